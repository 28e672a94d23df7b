//! One zstd frame of known size (specification, "Streams": a single frame including its content size).

use std::cell::RefCell;

use zstd_safe::{CCtx, DCtx, ResetDirective};

use super::preset::ZstdParameters;
use crate::error::{Error, Result};
use crate::limits::{MAX_ZSTD_BLOCK_BYTES, MIN_ZSTD_BLOCK_BYTES};

/// RFC 8878, section 3.1.1: the first four bytes of a frame. Skippable frames start otherwise.
const ZSTD_MAGIC: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

thread_local! {
    // A context keeps its tables (megabytes at high levels), so each thread makes one and uses it again.
    static COMPRESSOR: RefCell<CCtx<'static>> = RefCell::new(CCtx::create());
    static DECOMPRESSOR: RefCell<DCtx<'static>> = RefCell::new(DCtx::create());
}

/// Compresses `content` to one frame that states its content size.
pub(super) fn compress(content: &[u8], parameters: &ZstdParameters) -> Vec<u8> {
    COMPRESSOR.with_borrow_mut(|context| {
        let mut frame = Vec::with_capacity(zstd_safe::compress_bound(content.len()));
        let mut run = || {
            context.reset(ResetDirective::SessionAndParameters)?;
            for parameter in parameters.list() {
                context.set_parameter(parameter)?;
            }
            context.compress2(&mut frame, content)
        };
        run().unwrap_or_else(|code| panic!("zstd cannot compress into a buffer of its own bound: {}", zstd_safe::get_error_name(code)));
        frame.shrink_to_fit();
        frame
    })
}

/// A frame in a tile, with the words for a message about it.
#[derive(Clone, Copy)]
pub(super) struct Frame<'a> {
    pub(super) bytes: &'a [u8],
    pub(super) offset: u64,
    pub(super) chunk_index: usize,
    pub(super) name: &'static str,
}

impl Frame<'_> {
    pub(super) fn fault(&self, what: impl std::fmt::Display) -> Error {
        Error::invalid_at(self.offset, format!("chunk {}: the {} frame {what}", self.chunk_index, self.name))
    }

    /// The content size that the frame states, checked against what a frame of this many bytes can hold:
    /// each block takes at least 3 bytes and yields at most 128 KiB. So nothing is allocated for a claim
    /// that cannot be true.
    pub(super) fn content_size(&self) -> Result<usize> {
        if !self.bytes.starts_with(&ZSTD_MAGIC) {
            return Err(self.fault("is not a zstd frame"));
        }
        let size = match zstd_safe::get_frame_content_size(self.bytes) {
            Ok(Some(size)) => size,
            Ok(None) => return Err(self.fault("does not state its content size")),
            Err(_) => return Err(self.fault("has a damaged header")),
        };
        let most = (self.bytes.len() as u64 / MIN_ZSTD_BLOCK_BYTES + 1) * MAX_ZSTD_BLOCK_BYTES;
        if size > most {
            return Err(self.fault(format!("of {} bytes claims a content of {size}, it can hold at most {most}", self.bytes.len())));
        }
        match zstd_safe::find_frame_compressed_size(self.bytes) {
            Ok(len) if len == self.bytes.len() => Ok(size as usize),
            Ok(len) => Err(self.fault(format!("ends after {len} of its {} bytes; a stream is one whole frame", self.bytes.len()))),
            Err(_) => Err(self.fault("is cut short or damaged")),
        }
    }

    /// Checks that the content is exactly `expected` bytes, before anything is allocated for it.
    pub(super) fn expect_size(&self, expected: u64, because: impl std::fmt::Display) -> Result<()> {
        let size = self.content_size()?;
        if size as u64 != expected {
            return Err(self.fault(format!("holds {size} bytes, expected {expected} for {because}")));
        }
        Ok(())
    }

    /// Decompresses the content into exactly `content`.
    pub(super) fn decompress(&self, content: &mut [u8]) -> Result<()> {
        let written = DECOMPRESSOR
            .with_borrow_mut(|context| context.decompress(content, self.bytes))
            .map_err(|code| self.fault(format!("cannot be decompressed: {}", zstd_safe::get_error_name(code))))?;
        if written != content.len() {
            return Err(self.fault(format!("decompresses to {written} bytes, stated are {}", content.len())));
        }
        Ok(())
    }
}
