//! 10x mtx folders: a Matrix Market file of features by barcodes, and the names of both, each gzipped or not.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use cellsilo::{Error, Result};
use flate2::read::MultiGzDecoder;
use rayon::prelude::*;

use super::{Block, GeneKey, Label, Matrix, Source, SourceOptions, filter_features};
use crate::store::starts_with;
use crate::values::{Dtype, NotACount, counts};

/// Bytes of text parsed by one task.
const TEXT_BLOCK: usize = 2 << 20;
/// Longest line of a table of names, and of the matrix.
const MAX_LINE: usize = 1 << 20;
/// Most bytes of a table of names.
const MAX_TABLE_BYTES: u64 = 8 << 30;

/// The three files of a sample.
#[derive(Debug, Clone)]
pub(super) struct Files {
    prefix: String,
    matrix: PathBuf,
    features: PathBuf,
    barcodes: PathBuf,
}

const MATRIX: [&str; 2] = ["matrix.mtx", "matrix.mtx.gz"];
const FEATURES: [&str; 4] = ["features.tsv.gz", "features.tsv", "genes.tsv.gz", "genes.tsv"];
const BARCODES: [&str; 2] = ["barcodes.tsv.gz", "barcodes.tsv"];

/// Finds the samples of a folder (or of its only subfolder that has some), or of a matrix file; `None` if
/// `path` is something else.
pub(super) fn find(path: &Path, options: &SourceOptions) -> Result<Option<Vec<Files>>> {
    let meta = fs::metadata(path).map_err(|e| Error::io(path, e))?;
    if meta.is_file() {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let Some(prefix) = matrix_prefix(&name) else { return Ok(None) };
        let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        return Ok(Some(vec![sample(folder, prefix)?]));
    }
    if [".zgroup", ".zattrs", "zarr.json"].iter().any(|name| path.join(name).exists()) {
        return Ok(None);
    }
    let prefixes = prefixes(path)?;
    if !prefixes.is_empty() {
        return choose(path, prefixes, options).map(Some);
    }
    let mut inner = Vec::new();
    for entry in fs::read_dir(path).map_err(|e| Error::io(path, e))? {
        let folder = entry.map_err(|e| Error::io(path, e))?.path();
        if folder.is_dir() && !self::prefixes(&folder)?.is_empty() {
            inner.push(folder);
        }
    }
    inner.sort();
    match inner.as_slice() {
        [] => Err(Error::invalid("the folder is neither a zarr store nor does it hold a matrix.mtx or matrix.mtx.gz").in_file(path)),
        [one] => choose(one, self::prefixes(one)?, options).map(Some),
        several => Err(Error::Usage(format!(
            "{}: several folders with a matrix; name one or more of {}",
            path.display(),
            join(several.iter().map(|p| p.display()))
        ))),
    }
}

fn join(items: impl Iterator<Item = impl std::fmt::Display>) -> String {
    items.map(|i| i.to_string()).collect::<Vec<_>>().join(", ")
}

fn matrix_prefix(name: &str) -> Option<&str> {
    MATRIX.iter().find_map(|m| name.strip_suffix(m))
}

fn prefixes(folder: &Path) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).map_err(|e| Error::io(folder, e))? {
        let name = entry.map_err(|e| Error::io(folder, e))?.file_name().to_string_lossy().into_owned();
        found.extend(matrix_prefix(&name).map(str::to_owned));
    }
    found.sort();
    found.dedup();
    Ok(found)
}

fn choose(folder: &Path, prefixes: Vec<String>, options: &SourceOptions) -> Result<Vec<Files>> {
    let bare = |p: &str| p.trim_end_matches(['_', '.', '-']).to_owned();
    let listed = || join(prefixes.iter().map(|p| format!("{:?}", bare(p))));
    let chosen: Vec<&String> = match options.prefix.as_deref() {
        Some("all") => prefixes.iter().collect(),
        Some(wanted) => prefixes.iter().filter(|p| *p == wanted || bare(p) == bare(wanted)).collect(),
        None if prefixes.len() == 1 => prefixes.iter().collect(),
        None => {
            return Err(Error::Usage(format!(
                "{}: several samples: choose one with --prefix, or --prefix all to join them; there are {}",
                folder.display(),
                listed()
            )));
        }
    };
    if chosen.is_empty() {
        return Err(Error::Usage(format!(
            "{}: no sample with the prefix {:?}; there are {}",
            folder.display(),
            options.prefix.as_deref().unwrap_or_default(),
            listed()
        )));
    }
    chosen.into_iter().map(|prefix| sample(folder, prefix)).collect()
}

fn sample(folder: &Path, prefix: &str) -> Result<Files> {
    let find = |names: &[&str]| {
        let candidates = names.iter().map(|name| folder.join(format!("{prefix}{name}")));
        candidates.into_iter().find(|p| p.is_file()).ok_or_else(|| {
            Error::invalid(format!("the matrix has no {prefix}{} beside it (nor {})", names[0], join(names[1..].iter()))).in_file(folder)
        })
    };
    Ok(Files { prefix: prefix.to_owned(), matrix: find(&MATRIX)?, features: find(&FEATURES)?, barcodes: find(&BARCODES)? })
}

/// Opens a text file, through gzip if its first bytes say so, whatever its name is.
fn open_text(path: &Path) -> Result<Box<dyn Read + Send>> {
    let file = File::open(path).map_err(|e| Error::io(path, e))?;
    Ok(if starts_with(path, 2)? == [0x1f, 0x8b] {
        Box::new(MultiGzDecoder::new(BufReader::with_capacity(1 << 17, file)))
    } else {
        Box::new(file)
    })
}

fn text_error(path: &Path, e: std::io::Error) -> Error {
    use std::io::ErrorKind;
    match e.kind() {
        ErrorKind::InvalidInput | ErrorKind::InvalidData | ErrorKind::UnexpectedEof => {
            Error::invalid(format!("its gzip data are damaged or cut short: {e}")).in_file(path)
        }
        _ => Error::io(path, e),
    }
}

/// The lines of a table, split at tabs. Empty lines at the end do not count.
fn table(path: &Path) -> Result<Vec<Vec<String>>> {
    let mut reader = BufReader::with_capacity(1 << 17, open_text(path)?.take(MAX_TABLE_BYTES));
    let (mut rows, mut line) = (Vec::new(), Vec::new());
    loop {
        line.clear();
        let n = reader.by_ref().take(MAX_LINE as u64).read_until(b'\n', &mut line).map_err(|e| text_error(path, e))?;
        if n == 0 {
            break;
        }
        if n == MAX_LINE && line.last() != Some(&b'\n') {
            return Err(Error::invalid(format!("line {} is longer than {MAX_LINE} bytes", rows.len() + 1)).in_file(path));
        }
        let text = String::from_utf8_lossy(&line);
        let text = text.trim_end_matches(['\n', '\r']);
        rows.push(text.split('\t').map(|cell| cell.trim_matches('"').to_owned()).collect());
    }
    while rows.last().is_some_and(|row: &Vec<String>| row.iter().all(String::is_empty)) {
        rows.pop();
    }
    Ok(rows)
}

/// Opens a sample.
pub(super) fn open(files: &Files, options: &SourceOptions) -> Result<Source> {
    if !matches!(options.matrix.as_str(), "" | "auto" | "X") {
        return Err(Error::Refused(format!("{}: no matrix {}: a 10x folder has one matrix only", files.matrix.display(), options.matrix)));
    }
    let rows = table(&files.features)?;
    let barcodes = table(&files.barcodes)?;
    let column = match GeneKey::parse(options.gene_column.as_deref()) {
        GeneKey::Names => 1,
        GeneKey::Ids => 0,
        GeneKey::Other(name) => return Err(GeneKey::unknown(&files.features, name)),
    };
    // With one column only, the names are the ids.
    let names: Vec<String> = rows.iter().map(|row| row.get(column).or(row.first()).cloned().unwrap_or_default()).collect();
    let types: Option<Vec<String>> = rows.iter().map(|row| row.get(2).cloned()).collect();
    let header = Header::read(&files.matrix)?;
    let mut notices = Vec::new();
    let (n_features, n_cells) = (names.len() as u64, barcodes.len() as u64);
    let transposed = header.orientation(files, n_features, n_cells, &mut notices)?;
    super::check_shape(&files.matrix, n_cells, n_features, names.len())?;
    let features =
        filter_features(&files.features, types.as_deref(), options.feature_type.as_deref(), &mut notices, &|_| true, names.len())?;
    let genes = features.iter().map(|&f| names[f as usize].clone()).collect();
    let label = Label { path: files.matrix.clone(), matrix: "the matrix".into(), features: Arc::new(names) };
    let kind = if files.prefix.is_empty() { "10x mtx".to_owned() } else { format!("10x mtx, prefix {:?}", files.prefix) };
    let matrix = Mtx { label, header, transposed, n_cells, n_features, sorted: AtomicBool::new(true) };
    Ok(Source {
        path: files.matrix.clone(),
        kind,
        matrix_name: "X".into(),
        n_cells,
        n_features,
        genes,
        features,
        notices,
        matrix: Box::new(matrix),
    })
}

/// The first lines of a Matrix Market file (NIST, "Matrix Market exchange formats").
#[derive(Debug, Clone, Copy)]
struct Header {
    rows: u64,
    columns: u64,
    entries: u64,
    pattern: bool,
    /// Lines before the first entry.
    lines: u64,
}

impl Header {
    fn read(path: &Path) -> Result<Self> {
        let mut reader = BufReader::new(open_text(path)?);
        Self::parse(&mut reader, path)
    }

    fn parse(reader: &mut impl BufRead, path: &Path) -> Result<Self> {
        let bad = |what: String| Error::invalid(what).in_file(path);
        let mut lines = 0;
        let mut next = || {
            let mut line = Vec::new();
            reader.by_ref().take(MAX_LINE as u64).read_until(b'\n', &mut line).map_err(|e| text_error(path, e))?;
            lines += 1;
            Ok::<_, Error>(String::from_utf8_lossy(&line).trim().to_owned())
        };
        let banner = next()?.to_lowercase();
        let words: Vec<&str> = banner.split_whitespace().collect();
        let pattern = match words.as_slice() {
            ["%%matrixmarket", "matrix", "coordinate", "integer" | "real" | "unsigned-integer", "general"] => false,
            ["%%matrixmarket", "matrix", "coordinate", "pattern", "general"] => true,
            ["%%matrixmarket", ..] => {
                return Err(bad(format!(
                    "the matrix is {:?}, only \"matrix coordinate integer|real general\" is read",
                    words[1..].join(" ")
                )));
            }
            _ => return Err(bad("it does not start with %%MatrixMarket".into())),
        };
        let sizes = loop {
            let line = next()?;
            if !line.starts_with('%') {
                break line;
            }
        };
        let numbers: Option<Vec<u64>> = sizes.split_whitespace().map(|w| w.parse().ok()).collect();
        match numbers.as_deref() {
            Some(&[rows, columns, entries]) => Ok(Self { rows, columns, entries, pattern, lines }),
            _ => Err(bad(format!("the sizes are {sizes:?}, expected three numbers"))),
        }
    }

    /// Whether cells are the rows, which 10x never writes but people do.
    fn orientation(&self, files: &Files, n_features: u64, n_cells: u64, notices: &mut Vec<String>) -> Result<bool> {
        if self.pattern {
            return Err(Error::Refused(format!("{}: it is a pattern without values: there are no counts in it", files.matrix.display())));
        }
        if (self.rows, self.columns) == (n_features, n_cells) {
            return Ok(false);
        }
        if (self.rows, self.columns) == (n_cells, n_features) {
            notices.push(format!("{}: the matrix is cells by genes; it was turned", files.matrix.display()));
            return Ok(true);
        }
        let what = format!(
            "the matrix is {} by {}, but {} has {n_features} lines and {} has {n_cells}",
            self.rows,
            self.columns,
            files.features.display(),
            files.barcodes.display()
        );
        Err(Error::invalid(what).in_file(&files.matrix))
    }
}

struct Mtx {
    label: Label,
    header: Header,
    transposed: bool,
    n_cells: u64,
    n_features: u64,
    /// Whether no entry has come after one of a later cell, so far.
    sorted: AtomicBool,
}

/// Parsed lines.
#[derive(Default)]
struct Entries {
    cells: Vec<u32>,
    genes: Vec<u32>,
    counts: Vec<u32>,
    noisy: u64,
}

impl Entries {
    fn append(&mut self, other: Self) {
        self.cells.extend(other.cells);
        self.genes.extend(other.genes);
        self.counts.extend(other.counts);
        self.noisy += other.noisy;
    }

    /// Takes off all entries of cells before `cell`.
    fn split_before(&mut self, cell: u32) -> Self {
        let n = self.cells.partition_point(|&c| c < cell);
        let take = |v: &mut Vec<u32>| {
            let tail = v.split_off(n);
            std::mem::replace(v, tail)
        };
        Self { cells: take(&mut self.cells), genes: take(&mut self.genes), counts: take(&mut self.counts), noisy: 0 }
    }
}

impl Matrix for Mtx {
    fn is_cell_major(&self) -> bool {
        self.sorted.load(Ordering::Relaxed)
    }

    fn n_entries(&self) -> u64 {
        self.header.entries
    }

    fn stream(&self, from_cell: u64, visit: &mut dyn FnMut(Block) -> Result<()>) -> Result<u64> {
        let mut reader = BufReader::with_capacity(1 << 17, open_text(&self.label.path)?);
        Header::parse(&mut reader, &self.label.path)?;
        let mut rows = RowCutter { next_cell: from_cell, held: Entries::default() };
        let (mut line, mut found, mut noisy, mut rest) = (self.header.lines, 0, 0, Vec::new());
        loop {
            let texts = self.read_texts(&mut reader, &mut rest)?;
            if texts.is_empty() {
                break;
            }
            let first_lines: Vec<u64> = texts
                .iter()
                .scan(line, |sum, t| {
                    let first = *sum;
                    *sum += t.iter().filter(|&&b| b == b'\n').count() as u64;
                    Some(first)
                })
                .collect();
            let parsed = texts.par_iter().zip(&first_lines).map(|(text, &first)| self.parse(text, first)).collect::<Result<Vec<_>>>()?;
            line =
                first_lines.last().copied().unwrap_or(line) + texts.last().map_or(0, |t| t.iter().filter(|&&b| b == b'\n').count() as u64);
            for entries in parsed {
                found += entries.cells.len() as u64;
                noisy += entries.noisy;
                self.yield_entries(entries, &mut rows, visit)?;
            }
        }
        if found != self.header.entries {
            return Err(self
                .label
                .fault(format!("it has {found} entries, its header states {}: it is cut short or damaged", self.header.entries)));
        }
        if self.is_cell_major() {
            rows.cut(self.n_cells, visit)?;
        }
        Ok(noisy)
    }
}

impl Mtx {
    /// Reads some blocks of whole lines; none at the end.
    fn read_texts(&self, reader: &mut impl Read, rest: &mut Vec<u8>) -> Result<Vec<Vec<u8>>> {
        let mut texts = Vec::new();
        for _ in 0..2 * rayon::current_num_threads() {
            let mut text = std::mem::take(rest);
            reader.by_ref().take(TEXT_BLOCK as u64).read_to_end(&mut text).map_err(|e| text_error(&self.label.path, e))?;
            if text.is_empty() {
                break;
            }
            match text.iter().rposition(|&b| b == b'\n') {
                Some(end) => *rest = text.split_off(end + 1),
                None if text.len() > MAX_LINE => return Err(self.label.fault(format!("a line is longer than {MAX_LINE} bytes"))),
                // The last line has no line break.
                None => text.push(b'\n'),
            }
            texts.push(text);
        }
        Ok(texts)
    }

    fn parse(&self, text: &[u8], first_line: u64) -> Result<Entries> {
        let mut entries = Entries::default();
        for (k, line) in text.split(|&b| b == b'\n').enumerate() {
            let words = || line.split(u8::is_ascii_whitespace).filter(|w| !w.is_empty());
            let mut words = words();
            let Some(row) = words.next() else { continue };
            let bad =
                |what: &str| self.label.fault(format!("line {}, {:?}: {what}", first_line + k as u64 + 1, String::from_utf8_lossy(line)));
            let (Some(column), Some(value), None) = (words.next(), words.next(), words.next()) else {
                return Err(bad("expected row, column and value"));
            };
            let (Some(row), Some(column)) = (index(row, self.header.rows), index(column, self.header.columns)) else {
                return Err(bad(&format!("row and column must be numbers within {} by {}", self.header.rows, self.header.columns)));
            };
            let (gene, cell) = if self.transposed { (column, row) } else { (row, column) };
            let count = match number(value) {
                Some(Number::Count(count)) => count,
                Some(Number::Float(value)) => match counts(&value.to_le_bytes(), Dtype::F64) {
                    Ok(parsed) => {
                        entries.noisy += parsed.noisy;
                        parsed.values[0]
                    }
                    Err(NotACount { value, .. }) => return Err(self.label.not_counts(cell, gene, NotACount { position: 0, value })),
                },
                None => return Err(bad("the value is not a number")),
            };
            debug_assert!(gene < self.n_features);
            entries.cells.push(cell as u32);
            entries.genes.push(gene as u32);
            entries.counts.push(count);
        }
        Ok(entries)
    }

    fn yield_entries(&self, entries: Entries, rows: &mut RowCutter, visit: &mut dyn FnMut(Block) -> Result<()>) -> Result<()> {
        if !self.is_cell_major() {
            return visit(Block::Entries { cells: entries.cells, genes: entries.genes, counts: entries.counts });
        }
        let last_held = rows.held.cells.last().copied().unwrap_or(0);
        if !entries.cells.is_sorted() || entries.cells.first().is_some_and(|&c| c < last_held) {
            // The caller starts over, now with single entries.
            self.sorted.store(false, Ordering::Relaxed);
            return Err(Error::Refused(format!("{}: the entries are not sorted by cell", self.label.path.display())));
        }
        rows.held.append(entries);
        match rows.held.cells.last() {
            Some(&last) => rows.cut(u64::from(last), visit),
            None => Ok(()),
        }
    }
}

/// Cuts sorted entries into whole cells.
struct RowCutter {
    next_cell: u64,
    held: Entries,
}

impl RowCutter {
    /// Yields the cells up to `end`, of which all entries are here. Cells before the first wanted are dropped.
    fn cut(&mut self, end: u64, visit: &mut dyn FnMut(Block) -> Result<()>) -> Result<()> {
        // The first wanted cell only ever grows, so this drops nothing but what was not asked for.
        drop(self.held.split_before(self.next_cell as u32));
        if end <= self.next_cell {
            return Ok(());
        }
        let entries = self.held.split_before(u32::try_from(end).unwrap_or(u32::MAX));
        let first_cell = self.next_cell;
        let mut indptr = vec![0; (end - first_cell) as usize + 1];
        entries.cells.iter().for_each(|&c| indptr[(u64::from(c) - first_cell) as usize + 1] += 1);
        for i in 1..indptr.len() {
            indptr[i] += indptr[i - 1];
        }
        self.next_cell = end;
        visit(Block::Rows { first_cell, indptr, genes: entries.genes, counts: entries.counts })
    }
}

/// A one-based index of an axis, zero-based.
fn index(word: &[u8], len: u64) -> Option<u64> {
    let mut value = 0u64;
    for &b in word {
        value = value.checked_mul(10)?.checked_add(u64::from(b.wrapping_sub(b'0')))?;
        if !b.is_ascii_digit() {
            return None;
        }
    }
    (value >= 1 && value <= len).then(|| value - 1)
}

enum Number {
    Count(u32),
    Float(f64),
}

fn number(word: &[u8]) -> Option<Number> {
    if word.len() <= 9 && word.iter().all(u8::is_ascii_digit) {
        return Some(Number::Count(word.iter().fold(0, |n, b| n * 10 + u32::from(b - b'0'))));
    }
    std::str::from_utf8(word).ok()?.parse().ok().map(Number::Float)
}
