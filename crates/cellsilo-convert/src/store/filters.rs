//! HDF5's filter pipeline, backwards: what stands in a chunk to the elements.
//!
//! hdf5-pure reads the chunk index and the pipeline's description; the chunks themselves are fetched and
//! decoded here, in parallel and with the fastest inflate there is, and with the filters of hdf5plugin that it
//! does not know.

use std::borrow::Cow;

use hdf5_pure::Filter;
use zarrs::array::BytesRepresentation;
use zarrs::array::codec::BloscCodec;
use zarrs::array::codec::api::BytesToBytesCodecTraits as _;
use zarrs::metadata_ext::codec::blosc::{BloscCompressionLevel, BloscCompressor, BloscShuffleMode};

use super::lzf;

const DEFLATE: u16 = 1;
const SHUFFLE: u16 = 2;
const FLETCHER32: u16 = 3;
const LZF: u16 = 32000;
const BLOSC: u16 = 32001;
const LZ4: u16 = 32004;
const ZSTD: u16 = 32015;

/// Says which filter of a pipeline cannot be read, if one cannot.
pub(super) fn unsupported(pipeline: &[Filter]) -> Option<String> {
    let filter = pipeline.iter().find(|f| !matches!(f.id, DEFLATE | SHUFFLE | FLETCHER32 | LZF | BLOSC | LZ4 | ZSTD))?;
    let name = filter.name.as_deref().unwrap_or("unnamed");
    Some(format!(
        "its chunks use HDF5 filter {} ({name:?}), which cannot be read; repack the file with gzip (h5repack -f GZIP=4 IN OUT)",
        filter.id
    ))
}

/// Decodes a chunk of `size` bytes. `mask` has a bit for each filter that was skipped.
pub(super) fn decode(stored: Vec<u8>, pipeline: &[Filter], mask: u32, size: usize, element: usize) -> Result<Vec<u8>, String> {
    let applied: Vec<&Filter> = pipeline.iter().enumerate().filter(|(i, _)| *i >= 32 || mask & (1 << i) == 0).map(|(_, f)| f).collect();
    let mut bytes = stored;
    for (i, filter) in applied.iter().enumerate().rev() {
        // A checksum that was added before this filter is part of what it yields.
        let expected = size + 4 * applied[..i].iter().filter(|f| f.id == FLETCHER32).count();
        check_claim(filter.id, bytes.len(), expected)?;
        bytes = match filter.id {
            DEFLATE => inflate(&bytes, expected),
            SHUFFLE => Ok(unshuffle(&bytes, filter.client_data.first().map_or(element, |&n| n as usize))),
            FLETCHER32 => check_fletcher32(bytes),
            LZF => exactly(expected, |out| lzf::decompress(&bytes, out)).ok_or_else(|| "its LZF data are damaged".into()),
            BLOSC => unblosc(&bytes, expected),
            LZ4 => exactly(expected, |out| unlz4(&bytes, out)).ok_or_else(|| "its LZ4 data are damaged".into()),
            ZSTD => exactly(expected, |out| (zstd_safe::decompress(out, &bytes).ok()? == expected).then_some(()))
                .ok_or_else(|| "its zstd data are damaged".into()),
            id => Err(format!("it uses HDF5 filter {id}, which cannot be read")),
        }?;
    }
    if bytes.len() != size {
        return Err(format!("it decodes to {} bytes, expected {size}", bytes.len()));
    }
    Ok(bytes)
}

/// Most bytes that one stored byte can stand for: deflate's longest match in a bit and a half, LZF's in three bytes,
/// LZ4's 255 a byte, a zstd block of 128 KiB in three bytes.
const MAX_RATIO: [(u16, usize); 4] = [(DEFLATE, 1032), (LZF, 264), (LZ4, 256), (ZSTD, 1 << 17)];

/// Refuses a chunk that claims more than its bytes can stand for, before anything is allocated for it.
fn check_claim(id: u16, stored: usize, expected: usize) -> Result<(), String> {
    match MAX_RATIO.iter().find(|(known, _)| *known == id) {
        Some((_, ratio)) if expected > stored.saturating_mul(*ratio).saturating_add(1 << 16) => {
            Err(format!("its {stored} bytes cannot stand for the {expected} that are claimed"))
        }
        _ => Ok(()),
    }
}

fn exactly(size: usize, fill: impl FnOnce(&mut [u8]) -> Option<()>) -> Option<Vec<u8>> {
    let mut out = vec![0; size];
    fill(&mut out)?;
    Some(out)
}

fn inflate(bytes: &[u8], expected: usize) -> Result<Vec<u8>, String> {
    let mut out = vec![0; expected];
    match libdeflater::Decompressor::new().zlib_decompress(bytes, &mut out) {
        Ok(n) if n == expected => Ok(out),
        Ok(n) => Err(format!("it inflates to {n} bytes, expected {expected}")),
        Err(e) => Err(format!("it cannot be inflated to {expected} bytes: {e}")),
    }
}

/// Undoes the byte shuffle: all first bytes of the elements, then all second bytes, and so on; a remainder
/// stays as it is.
fn unshuffle(bytes: &[u8], element: usize) -> Vec<u8> {
    if element < 2 {
        return bytes.to_vec();
    }
    let n = bytes.len() / element;
    let mut out = vec![0; bytes.len()];
    for (b, plane) in bytes.chunks_exact(n.max(1)).take(element).enumerate() {
        for (value, slot) in plane.iter().zip(out.iter_mut().skip(b).step_by(element)) {
            *slot = *value;
        }
    }
    out[n * element..].copy_from_slice(&bytes[n * element..]);
    out
}

/// Fletcher's checksum over big-endian 16-bit words (HDF5's H5_checksum_fletcher32), in the last four bytes.
fn check_fletcher32(mut bytes: Vec<u8>) -> Result<Vec<u8>, String> {
    let Some(len) = bytes.len().checked_sub(4) else { return Err("it is too short for its checksum".into()) };
    let stated = u32::from_le_bytes(bytes[len..].try_into().expect("four bytes"));
    bytes.truncate(len);
    let (mut low, mut high) = (0u64, 0u64);
    let pairs = bytes.chunks_exact(2);
    let odd = pairs.remainder().first().map(|&b| u64::from(b) << 8);
    for word in pairs.map(|w| u64::from(u16::from_be_bytes([w[0], w[1]]))).chain(odd) {
        low = (low + word) % 65_535;
        high = (high + low) % 65_535;
    }
    let fold = |v: u64| if v == 0 && !bytes.is_empty() { [0, 65_535] } else { [v, v] };
    // 0 and 65535 are the same remainder: libhdf5's folding may leave either.
    let found = fold(high).iter().any(|&h| fold(low).iter().any(|&l| (h << 16 | l) as u32 == stated));
    if found { Ok(bytes) } else { Err("its checksum (Fletcher-32) is wrong".into()) }
}

/// Blosc 1: the codec of zarrs checks the header and the sizes before it decompresses.
fn unblosc(bytes: &[u8], expected: usize) -> Result<Vec<u8>, String> {
    // The header states the size; blosc itself would allocate by it.
    let stated = bytes.get(4..8).map(|b| u32::from_le_bytes(b.try_into().expect("four bytes")) as usize);
    if stated != Some(expected) {
        return Err(format!("its blosc data claim {} bytes, expected {expected}", stated.unwrap_or(0)));
    }
    let level = BloscCompressionLevel::try_from(5u8).map_err(|e| e.to_string())?;
    let codec = BloscCodec::new(BloscCompressor::LZ4, level, None, BloscShuffleMode::NoShuffle, None).map_err(|e| e.to_string())?;
    let size = BytesRepresentation::FixedSize(expected as u64);
    let out = codec.decode(Cow::Borrowed(bytes), &size, &Default::default()).map_err(|e| format!("its blosc data are damaged: {e}"))?;
    Ok(out.into_owned())
}

/// The framing of HDF5 filter 32004: sizes big-endian, blocks stored raw where LZ4 did not help.
fn unlz4(bytes: &[u8], out: &mut [u8]) -> Option<()> {
    let (total, rest) = bytes.split_first_chunk::<8>()?;
    let (block, mut rest) = rest.split_first_chunk::<4>()?;
    let block = u32::from_be_bytes(*block) as usize;
    if u64::from_be_bytes(*total) != out.len() as u64 || block == 0 {
        return None;
    }
    for out in out.chunks_mut(block) {
        let (size, tail) = rest.split_first_chunk::<4>()?;
        let (packed, tail) = tail.split_at_checked(u32::from_be_bytes(*size) as usize)?;
        rest = tail;
        if packed.len() == out.len() {
            out.copy_from_slice(packed);
        } else if lz4_flex::block::decompress_into(packed, out).ok()? != out.len() {
            return None;
        }
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_unshuffled() {
        assert_eq!(unshuffle(&[1, 3, 5, 2, 4, 6, 9], 2), [1, 2, 3, 4, 5, 6, 9]);
        assert_eq!(unshuffle(&[1], 4), [1]);
    }

    #[test]
    fn damaged_lz4_is_refused() {
        let mut frame = 5u64.to_be_bytes().to_vec();
        frame.extend(5u32.to_be_bytes());
        frame.extend(5u32.to_be_bytes());
        frame.extend(b"hello");
        let mut out = [0; 5];
        unlz4(&frame, &mut out).unwrap();
        assert_eq!(&out, b"hello");
        (0..frame.len()).for_each(|n| assert!(unlz4(&frame[..n], &mut out).is_none()));
    }
}
