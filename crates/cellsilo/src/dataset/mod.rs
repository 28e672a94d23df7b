//! A dataset: tiles, gene order, gene names and the manifest (specification, "Dataset layout").

mod folder;
mod reader;
mod verify;
mod writer;

pub use folder::{PartialDataset, remove_dataset, write_whole};
pub use reader::{Dataset, GENE_ORDER, MANIFEST, VAR_NAMES};
pub use verify::{TileFacts, VerifyReport, check_tile, verify};
pub use writer::{DatasetWriter, WriteOptions};
