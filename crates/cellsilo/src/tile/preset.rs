//! How hard the encoder tries. Tunable: nothing here changes the format.

use zstd_safe::{CParameter, Strategy};

/// Parameters of zstd for one kind of stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ZstdParameters {
    /// One of zstd's own levels, 1 to 22.
    Level(i32),
    /// Explicit parameters (zstd.h, "advanced compression API"), on top of level 19.
    Tuned {
        /// How matches are chosen.
        strategy: Strategy,
        /// Log2 of the match window in bytes.
        window_log: u32,
        /// Log2 of the hash table's entries.
        hash_log: u32,
        /// Log2 of the search tree's entries.
        chain_log: u32,
        /// Log2 of the search attempts.
        search_log: u32,
        /// Shortest match in bytes.
        min_match: u32,
        /// Match length that is good enough.
        target_length: u32,
    },
}

impl ZstdParameters {
    pub(super) fn list(&self) -> Vec<CParameter> {
        match *self {
            Self::Level(level) => vec![CParameter::CompressionLevel(level)],
            Self::Tuned { strategy, window_log, hash_log, chain_log, search_log, min_match, target_length } => vec![
                CParameter::CompressionLevel(19),
                CParameter::Strategy(strategy),
                CParameter::WindowLog(window_log),
                CParameter::HashLog(hash_log),
                CParameter::ChainLog(chain_log),
                CParameter::SearchLog(search_log),
                CParameter::MinMatch(min_match),
                CParameter::TargetLength(target_length),
            ],
        }
    }
}

/// A named choice between speed and size. The measured table stands in docs/performance.md.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Preset {
    /// At least 30 times as fast as level 19 and at most 6% larger.
    Fast,
    /// No larger than level 19, in a third of its time or less.
    #[default]
    Balanced,
    /// The smallest known: several ways are tried on each stream.
    Small,
    /// One of zstd's own levels for all streams.
    Level(i32),
}

/// Measured with examples/search_presets.rs on a tile of 10,000 cells; the table stands in docs/performance.md.
/// Long matches only (6 bytes and more): shorter ones cost more than the literals they replace.
const BALANCED: [ZstdParameters; 1] = [btopt(17, 17, 6, 6, 64)];
/// Which of these is smallest differs from stream to stream, so all are tried.
const SMALL: [ZstdParameters; 3] = [btopt(21, 22, 8, 3, 999), btopt(21, 22, 8, 4, 999), btopt(21, 22, 8, 6, 999)];

const fn btopt(window_log: u32, chain_log: u32, search_log: u32, min_match: u32, target_length: u32) -> ZstdParameters {
    ZstdParameters::Tuned { strategy: Strategy::ZSTD_btopt, window_log, hash_log: 18, chain_log, search_log, min_match, target_length }
}

impl Preset {
    /// Parameters to try on a stream; the smallest result is kept.
    pub fn candidates(self) -> Vec<ZstdParameters> {
        match self {
            Self::Fast => vec![ZstdParameters::Level(1)],
            Self::Balanced => BALANCED.to_vec(),
            Self::Small => SMALL.to_vec(),
            Self::Level(level) => vec![ZstdParameters::Level(level)],
        }
    }

    /// What the manifest says as `zstd_level`, which is informational: for the named presets the level of
    /// like size.
    pub fn zstd_level(self) -> i64 {
        match self {
            Self::Fast => 1,
            Self::Balanced => 19,
            Self::Small => 22,
            Self::Level(level) => i64::from(level),
        }
    }

    /// The name on the command line.
    pub fn name(self) -> String {
        match self {
            Self::Fast => "fast".into(),
            Self::Balanced => "balanced".into(),
            Self::Small => "small".into(),
            Self::Level(level) => format!("zstd-level {level}"),
        }
    }
}
