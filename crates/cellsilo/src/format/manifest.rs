//! `manifest.json` (specification, "manifest.json").

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::error::{Error, Result};
use crate::limits::{MAX_GENES, MAX_TILES};

/// The value of `format`.
pub const FORMAT: &str = "deltacells-dataset";
/// The value of `version`.
pub const VERSION: u64 = 2;

/// The manifest of a dataset.
///
/// The reference reads the top-level keys as a closed set, so what is ours goes under
/// [`metadata`](Self::metadata); keys that another writer put there are kept in [`unknown`](Self::unknown)
/// and written again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// `"deltacells-dataset"`.
    pub format: String,
    /// `2`.
    pub version: u64,
    /// Cells (rows) in all tiles.
    pub n_cells: u64,
    /// Genes (columns).
    pub n_genes: u64,
    /// Cells in every tile but the last.
    pub tile_size: u64,
    /// Cells of each tile.
    pub tile_cells: Vec<u64>,
    /// Stored nonzeros of each tile.
    pub tile_nnz: Vec<u64>,
    /// Size of each tile's file in bytes.
    pub tile_bytes: Vec<u64>,
    /// Chunks that the encoder aimed at (informational).
    pub n_chunks: u64,
    /// Compression level, or the level whose size the encoder's preset is like (informational).
    pub zstd_level: i64,
    /// Whether `gene_order.npy` exists.
    pub has_gene_order: bool,
    /// Whether `var_names.txt` exists.
    pub has_var_names: bool,
    /// Whether `var.parquet` exists.
    pub has_var_table: bool,
    /// Whether the dataset has obs; if so, the next four fields are required.
    pub has_obs: bool,
    /// Tiles (row groups) per obs shard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub obs_tiles_per_file: Option<u64>,
    /// Size of each obs shard in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub obs_shard_bytes: Option<Vec<u64>>,
    /// SHA-256 of each obs shard, in hex.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub obs_shard_sha256: Option<Vec<String>>,
    /// 24 hex characters identifying the obs content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub obs_fingerprint: Option<String>,
    /// Free-form.
    #[serde(default)]
    pub metadata: Map<String, Value>,
    /// Keys this version does not know, kept on rewrite.
    #[serde(flatten)]
    pub unknown: Map<String, Value>,
}

impl Manifest {
    /// Reads and checks the text of a manifest.
    ///
    /// # Errors
    /// [`Error::Invalid`] if it is not JSON, of another format or version, or its counts are inconsistent.
    pub fn parse(text: &[u8]) -> Result<Self> {
        let value: Value = serde_json::from_slice(text).map_err(|e| Error::invalid(format!("the manifest is not JSON: {e}")))?;
        let (format, version) = (value.get("format").unwrap_or(&Value::Null), value.get("version").unwrap_or(&Value::Null));
        if format != FORMAT {
            return Err(Error::invalid(format!("the manifest's format is {format}, only \"{FORMAT}\" can be read")));
        }
        if *version != VERSION {
            return Err(Error::invalid(format!("the manifest's version is {version}, only version {VERSION} can be read")));
        }
        let manifest: Self = serde_json::from_value(value).map_err(|e| Error::invalid(format!("the manifest is not complete: {e}")))?;
        manifest.check()?;
        Ok(manifest)
    }

    /// The text of the manifest, as Python's `json.dumps(.., indent=1)` lays it out.
    pub fn to_json(&self) -> Vec<u8> {
        let mut text = Vec::new();
        let formatter = serde_json::ser::PrettyFormatter::with_indent(b" ");
        self.serialize(&mut serde_json::Serializer::with_formatter(&mut text, formatter)).expect("a manifest is always JSON");
        text.push(b'\n');
        text
    }

    /// Checks that all counts agree with each other.
    ///
    /// # Errors
    /// [`Error::Invalid`] that names the field.
    pub fn check(&self) -> Result<()> {
        let bad = |what: String| Err(Error::invalid(format!("the manifest is inconsistent: {what}")));
        if self.n_genes == 0 || self.n_genes > MAX_GENES {
            return bad(format!("n_genes is {}, allowed are 1 to {MAX_GENES}", self.n_genes));
        }
        if self.tile_size == 0 {
            return bad("tile_size is 0".into());
        }
        let n_tiles = self.tile_cells.len();
        if self.tile_nnz.len() != n_tiles || self.tile_bytes.len() != n_tiles {
            return bad(format!(
                "tile_cells has {n_tiles} entries, tile_nnz {}, tile_bytes {}",
                self.tile_nnz.len(),
                self.tile_bytes.len()
            ));
        }
        if n_tiles > MAX_TILES {
            return bad(format!("{n_tiles} tiles, at most {MAX_TILES} are allowed"));
        }
        self.check_tiles()?;
        self.check_obs()
    }

    fn check_tiles(&self) -> Result<()> {
        let bad = |what: String| Err(Error::invalid(format!("the manifest is inconsistent: {what}")));
        let mut total = 0u64;
        for (t, &cells) in self.tile_cells.iter().enumerate() {
            let last = t + 1 == self.tile_cells.len();
            if cells == 0 || cells > self.tile_size || (!last && cells != self.tile_size) {
                return bad(format!("tile {t} has {cells} cells, tile_size is {}", self.tile_size));
            }
            total = match total.checked_add(cells) {
                Some(sum) => sum,
                None => return bad("the sum of tile_cells overflows".into()),
            };
            let most = u128::from(cells) * u128::from(self.n_genes);
            if u128::from(self.tile_nnz[t]) > most {
                return bad(format!(
                    "tile {t} has {} nonzeros, {cells} cells of {} genes hold at most {most}",
                    self.tile_nnz[t], self.n_genes
                ));
            }
        }
        if total != self.n_cells {
            return bad(format!("n_cells is {}, the tiles hold {total}", self.n_cells));
        }
        match self.tile_nnz.iter().try_fold(0u64, |sum, &n| sum.checked_add(n)) {
            Some(_) => Ok(()),
            None => bad("the sum of tile_nnz overflows".into()),
        }
    }

    fn check_obs(&self) -> Result<()> {
        if !self.has_obs {
            return Ok(());
        }
        let bad = |what: String| Err(Error::invalid(format!("the manifest is inconsistent: has_obs is true, but {what}")));
        let (Some(per_file), Some(bytes), Some(sha256), Some(fingerprint)) =
            (self.obs_tiles_per_file, &self.obs_shard_bytes, &self.obs_shard_sha256, &self.obs_fingerprint)
        else {
            return bad("one of obs_tiles_per_file, obs_shard_bytes, obs_shard_sha256 and obs_fingerprint is missing".into());
        };
        if per_file == 0 {
            return bad("obs_tiles_per_file is 0".into());
        }
        let shards = (self.tile_cells.len() as u64).div_ceil(per_file);
        if bytes.len() as u64 != shards || sha256.len() as u64 != shards {
            return bad(format!("{} shard sizes and {} hashes are listed for {shards} shards", bytes.len(), sha256.len()));
        }
        let hex = |s: &str, n: usize| s.len() == n && s.bytes().all(|b| b.is_ascii_hexdigit());
        if !hex(fingerprint, 24) {
            return bad(format!("obs_fingerprint is {fingerprint:?}, expected 24 hex characters"));
        }
        match sha256.iter().find(|s| !hex(s, 64)) {
            Some(s) => bad(format!("obs_shard_sha256 holds {s:?}, expected 64 hex characters")),
            None => Ok(()),
        }
    }

    /// Stored nonzeros in all tiles.
    pub fn nnz(&self) -> u64 {
        self.tile_nnz.iter().sum()
    }

    /// Size of all tiles in bytes.
    pub fn bytes(&self) -> u64 {
        self.tile_bytes.iter().fold(0, |sum, &n| sum.saturating_add(n))
    }

    /// The cumulative sum of `tile_cells`: tile `t` holds the cells `limits[t - 1]..limits[t]`.
    pub fn limits(&self) -> Vec<u64> {
        self.tile_cells
            .iter()
            .scan(0, |sum, &n| {
                *sum += n;
                Some(*sum)
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"{"format": "deltacells-dataset", "version": 2, "n_cells": 5, "n_genes": 9, "tile_size": 3,
        "tile_cells": [3, 2], "tile_nnz": [4, 1], "tile_bytes": [300, 200], "n_chunks": 8, "zstd_level": 19,
        "has_gene_order": false, "has_var_names": false, "has_var_table": false, "has_obs": false,
        "metadata": {"b": 1, "a": [null]}, "later": {"x": 1}}"#;

    #[test]
    fn unknown_keys_survive_a_rewrite() {
        let manifest = Manifest::parse(GOOD.as_bytes()).unwrap();
        let again = Manifest::parse(&manifest.to_json()).unwrap();
        assert_eq!(manifest, again);
        assert_eq!(again.unknown["later"]["x"], 1);
        assert_eq!(again.metadata.keys().collect::<Vec<_>>(), ["b", "a"]);
        assert_eq!(again.limits(), [3, 5]);
    }

    #[test]
    fn inconsistent_counts_are_refused() {
        for (from, to, says) in [
            ("deltacells-dataset", "other", "format"),
            ("\"version\": 2", "\"version\": 3", "version"),
            ("\"n_cells\": 5", "\"n_cells\": 6", "n_cells is 6"),
            ("\"n_genes\": 9", "\"n_genes\": 0", "n_genes"),
            ("\"tile_size\": 3", "\"tile_size\": 0", "tile_size"),
            ("\"tile_size\": 3", "\"tile_size\": 4", "tile 0"),
            ("[3, 2]", "[3, 0]", "tile 1"),
            ("[3, 2]", "[-3, 2]", "not complete"),
            ("[4, 1]", "[4]", "tile_nnz"),
            ("[4, 1]", "[40, 1]", "nonzeros"),
            ("[300, 200]", "[300]", "tile_bytes"),
            ("\"has_obs\": false", "\"has_obs\": true", "obs_tiles_per_file"),
            ("\"n_chunks\": 8, ", "", "n_chunks"),
        ] {
            let text = GOOD.replacen(from, to, 1);
            assert_ne!(text, GOOD);
            let error = Manifest::parse(text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(says), "{to}: {error}");
        }
    }
}
