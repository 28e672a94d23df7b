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
    /// The smallest known.
    Small,
    /// One of zstd's own levels for all streams.
    Level(i32),
}

impl Preset {
    /// Parameters for the `gaps` streams.
    pub fn gaps(self) -> ZstdParameters {
        match self {
            Self::Fast => ZstdParameters::Level(1),
            Self::Balanced => tuned(Strategy::ZSTD_btopt, 17, 6, 64),
            Self::Small => tuned(Strategy::ZSTD_btultra2, 17, 9, 256),
            Self::Level(level) => ZstdParameters::Level(level),
        }
    }

    /// Parameters for the `vals` streams.
    pub fn vals(self) -> ZstdParameters {
        self.gaps()
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

fn tuned(strategy: Strategy, window_log: u32, search_log: u32, target_length: u32) -> ZstdParameters {
    ZstdParameters::Tuned { strategy, window_log, hash_log: window_log, chain_log: window_log, search_log, min_match: 3, target_length }
}
