//! Blocks of a source to canonical rows: genes mapped and sorted, repeated entries summed, zeros dropped.

use cellsilo::limits::MAX_COUNT;
use cellsilo::{Error, Result};
use rayon::prelude::*;

use crate::genes::LEFT_OUT;

/// Entries a task works on, about.
const TASK_ENTRIES: usize = 1 << 17;

/// Canonical rows.
#[derive(Debug, Default, PartialEq)]
pub struct Rows {
    /// Row limits from 0.
    pub indptr: Vec<i64>,
    /// Gene of each entry, strictly increasing in a row.
    pub genes: Vec<u32>,
    /// Count of each entry, at least 1.
    pub counts: Vec<u32>,
    /// Entries that were added to an earlier one of the same cell and gene.
    pub summed: u64,
}

/// Makes rows canonical, in parallel. `map` gives the output column of each feature, or [`LEFT_OUT`].
///
/// # Errors
/// [`Error::Refused`] if repeated entries sum to more than 2^31 - 1; `name_cell` names the row.
pub fn canonical(
    indptr: &[usize],
    genes: &[u32],
    counts: &[u32],
    map: &[u32],
    name_cell: &(dyn Fn(usize) -> String + Sync),
) -> Result<Rows> {
    let mut tasks = Vec::new();
    let mut row = 0;
    while row + 1 < indptr.len() {
        let end = indptr.partition_point(|&p| p <= indptr[row] + TASK_ENTRIES).clamp(row + 2, indptr.len()) - 1;
        tasks.push(row..end);
        row = end;
    }
    let parts: Vec<Rows> = tasks
        .into_par_iter()
        .map(|rows| {
            let mut out = Rows { indptr: Vec::with_capacity(rows.len()), ..Default::default() };
            let mut scratch = Vec::new();
            for row in rows {
                let range = indptr[row]..indptr[row + 1];
                push_row(&genes[range.clone()], &counts[range], map, &mut scratch, &mut out)
                    .ok_or_else(|| Error::Refused(format!("{}: entries of the same gene sum to more than {MAX_COUNT}", name_cell(row))))?;
            }
            Ok(out)
        })
        .collect::<Result<_>>()?;
    Ok(joined(parts))
}

/// Appends one row; `None` if a sum is too large.
fn push_row(genes: &[u32], counts: &[u32], map: &[u32], scratch: &mut Vec<u64>, out: &mut Rows) -> Option<()> {
    scratch.clear();
    let mapped = genes.iter().zip(counts).map(|(&g, &c)| (map[g as usize], c)).filter(|&(g, c)| g != LEFT_OUT && c != 0);
    // Gene and count in one number: sorting it sorts by gene.
    scratch.extend(mapped.map(|(g, c)| u64::from(g) << 32 | u64::from(c)));
    if !scratch.is_sorted_by_key(|e| e >> 32) {
        scratch.sort_unstable();
    }
    let start = out.genes.len();
    for &entry in scratch.iter() {
        let (gene, count) = ((entry >> 32) as u32, entry as u32);
        if out.genes.len() > start && out.genes[out.genes.len() - 1] == gene {
            let sum = out.counts.last_mut()?;
            *sum = sum.checked_add(count).filter(|&s| s <= MAX_COUNT)?;
            out.summed += 1;
        } else {
            out.genes.push(gene);
            out.counts.push(count);
        }
    }
    out.indptr.push(out.genes.len() as i64);
    Some(())
}

fn joined(parts: Vec<Rows>) -> Rows {
    let mut all = Rows { indptr: vec![0], ..Default::default() };
    for part in parts {
        let base = all.genes.len() as i64;
        all.indptr.extend(part.indptr.iter().map(|p| p + base));
        all.genes.extend_from_slice(&part.genes);
        all.counts.extend_from_slice(&part.counts);
        all.summed += part.summed;
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_mapped_sorted_summed_and_freed_of_zeros() {
        let map = [2, LEFT_OUT, 0, 1];
        let rows = canonical(&[0, 5, 5, 7], &[0, 3, 0, 1, 2, 2, 3], &[1, 4, 2, 9, 0, 7, 8], &map, &|_| String::new()).unwrap();
        assert_eq!(rows, Rows { indptr: vec![0, 2, 2, 4], genes: vec![1, 2, 0, 1], counts: vec![4, 3, 7, 8], summed: 1 });
        let error = canonical(&[0, 2], &[0, 0], &[MAX_COUNT, 1], &map, &|r| format!("cell {r}")).unwrap_err();
        assert!(error.to_string().starts_with("cell 0"));
    }
}
