//! The folder that a conversion writes: the output itself, or one beside it that takes its place at the end.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use cellsilo::dataset::{GENE_ORDER, MANIFEST, PartialDataset, remove_dataset, write_whole};
use cellsilo::format::Manifest;
use cellsilo::{Error, Result};
use serde_json::Value;

/// Left in an unfinished folder: what its conversion was asked for.
const STATE_FILE: &str = ".cellsilo-convert.json";

/// Where to write.
pub(super) struct Target {
    output: PathBuf,
    folder: PathBuf,
    resumes: bool,
}

/// What is to do.
pub(super) enum Choice {
    /// Write into this.
    Write(Target),
    /// `--resume`, and the same conversion is complete.
    Done(Box<Manifest>),
}

impl Target {
    /// Looks at the output and decides; refuses to touch what was not asked to be touched.
    pub(super) fn choose(output: &Path, state: &Value, resume: bool, overwrite: bool) -> Result<Choice> {
        let refuse = |what: &str| Err(Error::Refused(format!("{}: {what}", output.display())));
        let found = PartialDataset::at(output, STATE_FILE)?;
        if found == PartialDataset::Foreign {
            return refuse("this is not a dataset, and it is not touched; name another output");
        }
        if found == PartialDataset::Complete && resume {
            let manifest = Manifest::parse(&fs::read(output.join(MANIFEST)).map_err(|e| Error::io(output, e))?)?;
            if manifest.metadata.get("cellsilo") == Some(state) {
                return Ok(Choice::Done(Box::new(manifest)));
            }
        }
        if found == PartialDataset::Complete && !overwrite {
            return refuse("a dataset stands there already (--overwrite replaces it once the new one is complete)");
        }
        // A complete dataset stays until the new one is whole, so that one is written beside it.
        let folder = if found == PartialDataset::Complete { staging(output) } else { output.to_owned() };
        let found = PartialDataset::at(&folder, STATE_FILE)?;
        let unfinished = found == PartialDataset::Unfinished;
        if found == PartialDataset::Foreign {
            return Err(Error::Refused(format!("{}: this is in the way and not a dataset; remove it", folder.display())));
        }
        if unfinished && resume {
            check_state(&folder, state)?;
            return Ok(Choice::Write(Self { output: output.to_owned(), folder, resumes: true }));
        }
        if unfinished && !overwrite {
            return refuse("an unfinished conversion stands there (--resume goes on with it, --overwrite starts again)");
        }
        if found != PartialDataset::Absent {
            remove_dataset(&folder, STATE_FILE)?;
        }
        Ok(Choice::Write(Self { output: output.to_owned(), folder, resumes: false }))
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(super) fn resumes(&self) -> bool {
        self.resumes
    }

    /// Records what the folder is becoming, and checks that a resumed one has the same order of genes.
    pub(super) fn write_state(&self, state: &Value, gene_order: &[u8]) -> Result<()> {
        let order = self.folder.join(GENE_ORDER);
        if self.resumes && fs::read(&order).is_ok_and(|old| old != gene_order) {
            return Err(Error::Refused(format!(
                "{}: the inputs no longer give the same order of genes; use --overwrite",
                self.folder.display()
            )));
        }
        write_whole(&order, gene_order)?;
        write_whole(&self.folder.join(STATE_FILE), state.to_string().as_bytes())
    }

    /// Removes the state, and puts the folder in the place of an old dataset.
    pub(super) fn finish(&self) -> Result<()> {
        let state = self.folder.join(STATE_FILE);
        fs::remove_file(&state).map_err(|e| Error::io(state, e))?;
        if self.folder == self.output {
            return Ok(());
        }
        let old = sibling(&self.output, "old");
        // Left by a crash in the middle of an earlier swap; the output is complete, so it is not needed.
        retire(&old, &self.output)?;
        fs::rename(&self.output, &old).map_err(|e| Error::io(&self.output, e))?;
        if let Err(e) = fs::rename(&self.folder, &self.output) {
            // Put the old one back: nothing complete is ever lost.
            let _ = fs::rename(&old, &self.output);
            return Err(Error::io(&self.folder, e));
        }
        retire(&old, &self.output)
    }

    /// Removes what was written, after an error that no further try can mend.
    pub(super) fn discard(&self) {
        let _ = remove_dataset(&self.folder, STATE_FILE);
    }
}

/// Removes an old dataset; somebody's own files that stood in its folder go to the new one's.
fn retire(old: &Path, new: &Path) -> Result<()> {
    if !old.exists() {
        return Ok(());
    }
    remove_dataset(old, STATE_FILE)?;
    if !old.exists() {
        return Ok(());
    }
    for entry in fs::read_dir(old).map_err(|e| Error::io(old, e))? {
        let entry = entry.map_err(|e| Error::io(old, e))?;
        let place = new.join(entry.file_name());
        if !place.exists() {
            fs::rename(entry.path(), &place).map_err(|e| Error::io(place, e))?;
        }
    }
    // What has a namesake in the new folder stays where it is, rather than be lost.
    let _ = fs::remove_dir(old);
    Ok(())
}

fn check_state(folder: &Path, state: &Value) -> Result<()> {
    let path = folder.join(STATE_FILE);
    let text = fs::read(&path).map_err(|e| Error::io(&path, e))?;
    let old: Value = serde_json::from_slice(&text).map_err(|e| Error::invalid(format!("the state is damaged: {e}")).in_file(&path))?;
    if old == *state {
        return Ok(());
    }
    let differing: Vec<&str> = ["version", "sources", "options"].into_iter().filter(|key| old[key] != state[key]).collect();
    Err(Error::Refused(format!(
        "{}: the unfinished conversion there had other {}; use the same, or --overwrite to start again",
        folder.display(),
        differing.join(" and ")
    )))
}

fn staging(output: &Path) -> PathBuf {
    sibling(output, "new")
}

fn sibling(output: &Path, suffix: &str) -> PathBuf {
    let name = output.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    output.with_file_name(format!(".{name}.cellsilo-{suffix}"))
}

/// Bytes of a file or of all files in a folder, and when the latest of them changed (seconds).
pub(super) fn size_and_time(path: &Path) -> Result<(u64, u64)> {
    let meta = fs::metadata(path).map_err(|e| Error::io(path, e))?;
    let time = meta.modified().ok().and_then(|t| t.duration_since(UNIX_EPOCH).ok()).map_or(0, |d| d.as_secs());
    if !meta.is_dir() {
        return Ok((meta.len(), time));
    }
    let (mut bytes, mut latest) = (0u64, 0);
    for entry in fs::read_dir(path).map_err(|e| Error::io(path, e))? {
        let entry = entry.map_err(|e| Error::io(path, e))?;
        // A link out of the folder, or a loop, is not followed.
        if entry.file_type().is_ok_and(|t| t.is_symlink()) {
            continue;
        }
        let (size, time) = size_and_time(&entry.path())?;
        bytes = bytes.saturating_add(size);
        latest = latest.max(time);
    }
    Ok((bytes, latest))
}
