//! The genes of the output: one input's own, or several inputs' joined.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use cellsilo::{Error, Result};

/// Stands in a map for a feature that has no column.
pub const LEFT_OUT: u32 = u32::MAX;
/// Names that a notice shows before it only counts.
const SHOWN: usize = 8;

/// Which genes several inputs share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Join {
    /// All genes of any input.
    #[default]
    Outer,
    /// Genes that all inputs have.
    Inner,
}

/// How the output's genes are chosen.
#[derive(Debug, Clone, Default)]
pub struct GeneOptions {
    /// How several inputs are joined.
    pub join: Join,
    /// A reference list that decides the genes and their source order instead.
    pub reference: Option<Vec<String>>,
    /// Whether repeated keys get suffixes, as anndata's `var_names_make_unique` gives them.
    pub make_unique: bool,
}

/// The genes of the output before they are ordered, and where each input's genes go.
#[derive(Debug, PartialEq)]
pub struct GenePlan {
    /// Keys, in the joined source order.
    pub names: Vec<String>,
    /// For each input, the joined index of each of its genes, or [`LEFT_OUT`].
    pub maps: Vec<Vec<u32>>,
    /// What the user should know.
    pub notices: Vec<String>,
}

/// Joins the genes of the inputs, given as (name of the input, keys of its genes).
///
/// # Errors
/// [`Error::Refused`] if keys that are joined repeat, or nothing is left.
pub fn join(inputs: &[(String, Vec<String>)], options: &GeneOptions) -> Result<GenePlan> {
    let mut notices = Vec::new();
    let mut lists: Vec<Vec<String>> = inputs.iter().map(|(_, genes)| genes.clone()).collect();
    let alone = lists.len() == 1 && options.reference.is_none();
    for ((input, _), genes) in inputs.iter().zip(&mut lists) {
        let repeated = repeated(genes);
        if repeated.is_empty() {
            continue;
        }
        let shown = show(&repeated);
        if options.make_unique {
            make_unique(genes);
            notices.push(format!("{input}: {} gene keys stood more than once and got suffixes: {shown}", repeated.len()));
        } else if alone {
            notices.push(format!("{input}: {} gene keys stand more than once and are kept so: {shown}", repeated.len()));
        } else {
            return Err(Error::Refused(format!(
                "{input}: {} gene keys stand more than once, so genes cannot be matched: {shown}; use --gene-column gene_ids, or --make-unique",
                repeated.len()
            )));
        }
    }
    let names = match (&options.reference, options.join) {
        (Some(reference), _) => reference.clone(),
        (None, _) if alone => lists[0].clone(),
        (None, Join::Outer) => union(&lists),
        (None, Join::Inner) => intersection(&lists),
    };
    if names.is_empty() {
        return Err(Error::Refused("no genes are left: the inputs share none (is the gene key the same in all? see --gene-column)".into()));
    }
    if alone {
        let maps = vec![(0..names.len() as u32).collect()];
        return Ok(GenePlan { names, maps, notices });
    }
    let place: HashMap<&str, u32> = names.iter().enumerate().map(|(i, name)| (name.as_str(), i as u32)).collect();
    if place.len() != names.len() {
        return Err(Error::Refused(format!("the list of genes holds some more than once: {}", show(&repeated(&names)))));
    }
    let maps: Vec<Vec<u32>> =
        lists.iter().map(|genes| genes.iter().map(|g| place.get(g.as_str()).copied().unwrap_or(LEFT_OUT)).collect()).collect();
    for ((input, _), (genes, map)) in inputs.iter().zip(lists.iter().zip(&maps)) {
        let left_out: Vec<&str> = genes.iter().zip(map).filter(|(_, m)| **m == LEFT_OUT).map(|(g, _)| g.as_str()).collect();
        if !left_out.is_empty() {
            notices.push(format!("{input}: {} of {} genes are left out: {}", left_out.len(), genes.len(), show(&left_out)));
        }
        let missing: Vec<&str> = missing(&names, map);
        if !missing.is_empty() {
            notices.push(format!("{input}: {} of {} genes are missing and stay empty: {}", missing.len(), names.len(), show(&missing)));
        }
    }
    Ok(GenePlan { names, maps, notices })
}

fn missing<'a>(names: &'a [String], map: &[u32]) -> Vec<&'a str> {
    let mut there = vec![false; names.len()];
    map.iter().filter(|m| **m != LEFT_OUT).for_each(|&m| there[m as usize] = true);
    names.iter().zip(there).filter(|(_, there)| !there).map(|(name, _)| name.as_str()).collect()
}

fn show<S: AsRef<str>>(names: &[S]) -> String {
    let mut text = names.iter().take(SHOWN).map(AsRef::as_ref).collect::<Vec<_>>().join(", ");
    if names.len() > SHOWN {
        text.push_str(", ...");
    }
    text
}

/// Keys that stand more than once, in the order of their second appearance.
fn repeated(genes: &[String]) -> Vec<String> {
    let (mut seen, mut told) = (HashSet::new(), HashSet::new());
    genes.iter().filter(|g| !seen.insert(g.as_str()) && told.insert(g.as_str())).cloned().collect()
}

/// The rule of `anndata.utils.make_index_unique`: every repetition gets "-1", "-2", ..., the first number that
/// makes a name that does not stand anywhere yet.
fn make_unique(genes: &mut [String]) {
    let mut taken: HashSet<String> = genes.iter().cloned().collect();
    let mut counters: HashMap<String, u64> = HashMap::new();
    for gene in genes {
        let Some(counter) = counters.get_mut(gene.as_str()) else {
            counters.insert(gene.clone(), 0);
            continue;
        };
        let name = loop {
            *counter += 1;
            let name = format!("{gene}-{counter}");
            if !taken.contains(&name) {
                break name;
            }
        };
        taken.insert(name.clone());
        *gene = name;
    }
}

fn union(lists: &[Vec<String>]) -> Vec<String> {
    let mut seen = HashSet::new();
    lists.iter().flatten().filter(|g| seen.insert(g.as_str())).cloned().collect()
}

fn intersection(lists: &[Vec<String>]) -> Vec<String> {
    let sets: Vec<HashSet<&str>> = lists[1..].iter().map(|l| l.iter().map(String::as_str).collect()).collect();
    lists[0].iter().filter(|g| sets.iter().all(|s| s.contains(g.as_str()))).cloned().collect()
}

/// Reads a reference list: a gene a line, its key before the first tab; lines that are empty or start with "#"
/// are passed over.
///
/// # Errors
/// [`Error::Io`]; [`Error::Invalid`] if it is not text or lists nothing.
pub fn read_reference(path: &Path) -> Result<Vec<String>> {
    let bytes = std::fs::read(path).map_err(|e| Error::io(path, e))?;
    let text = String::from_utf8(bytes).map_err(|_| Error::invalid("the list of genes is not UTF-8").in_file(path))?;
    let genes: Vec<String> = text
        .lines()
        .map(|l| l.split('\t').next().unwrap_or_default().trim())
        .filter(|g| !g.is_empty() && !g.starts_with('#'))
        .map(str::to_owned)
        .collect();
    if genes.is_empty() {
        return Err(Error::invalid("the list of genes is empty").in_file(path));
    }
    Ok(genes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inputs(lists: &[&[&str]]) -> Vec<(String, Vec<String>)> {
        lists.iter().enumerate().map(|(i, l)| (format!("in{i}"), l.iter().map(|&g| g.to_owned()).collect())).collect()
    }

    #[test]
    fn outer_inner_and_reference() {
        let two = inputs(&[&["a", "b", "c"], &["c", "d", "a"]]);
        let outer = join(&two, &GeneOptions::default()).unwrap();
        assert_eq!(outer.names, ["a", "b", "c", "d"]);
        assert_eq!(outer.maps, [vec![0, 1, 2], vec![2, 3, 0]]);
        let inner = join(&two, &GeneOptions { join: Join::Inner, ..Default::default() }).unwrap();
        assert_eq!(inner.names, ["a", "c"]);
        assert_eq!(inner.maps, [vec![0, LEFT_OUT, 1], vec![1, LEFT_OUT, 0]]);
        let reference = Some(vec!["x".to_owned(), "d".to_owned()]);
        let listed = join(&two, &GeneOptions { reference, ..Default::default() }).unwrap();
        assert_eq!(listed.maps, [vec![LEFT_OUT; 3], vec![LEFT_OUT, 1, LEFT_OUT]]);
        assert!(listed.notices.iter().any(|n| n.contains("3 of 3 genes are left out: a, b, c")), "{:?}", listed.notices);
        assert!(join(&inputs(&[&["a"], &["b"]]), &GeneOptions { join: Join::Inner, ..Default::default() }).is_err());
    }

    #[test]
    fn repeated_keys() {
        let one = inputs(&[&["a", "a-1", "a", "a"]]);
        let kept = join(&one, &GeneOptions::default()).unwrap();
        assert_eq!((kept.names.len(), kept.notices.len()), (4, 1));
        let unique = join(&one, &GeneOptions { make_unique: true, ..Default::default() }).unwrap();
        assert_eq!(unique.names, ["a", "a-1", "a-2", "a-3"]);
        let error = join(&inputs(&[&["a", "a"], &["b"]]), &GeneOptions::default()).unwrap_err().to_string();
        assert!(error.contains("--gene-column") && error.contains("--make-unique"), "{error}");
    }
}
