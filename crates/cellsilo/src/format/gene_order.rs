//! `gene_order.npy`: output column `j` was column `gene_order[j]` of the source (specification, "Dataset
//! layout"). The container is NumPy's NPY format, version 1.0 (numpy.lib.format, "Format Version 1.0").

use crate::error::{Error, Result};

const MAGIC: &[u8] = b"\x93NUMPY";
/// The header of a one-dimensional int32 array fits well within this.
const MAX_HEADER: usize = 1 << 16;

/// The bytes of the file for `order`.
pub fn to_bytes(order: &[i32]) -> Vec<u8> {
    let mut dict = format!("{{'descr': '<i4', 'fortran_order': False, 'shape': ({},), }}", order.len());
    // The data start at a multiple of 64 bytes, and the header ends with a newline.
    while !(MAGIC.len() + 4 + dict.len() + 1).is_multiple_of(64) {
        dict.push(' ');
    }
    dict.push('\n');
    let mut bytes = Vec::with_capacity(MAGIC.len() + 4 + dict.len() + order.len() * 4);
    bytes.extend_from_slice(MAGIC);
    bytes.extend_from_slice(&[1, 0]);
    bytes.extend_from_slice(&(dict.len() as u16).to_le_bytes());
    bytes.extend_from_slice(dict.as_bytes());
    bytes.extend(order.iter().flat_map(|v| v.to_le_bytes()));
    bytes
}

/// Reads the file's bytes and checks that they are a permutation of `0..n_genes`.
///
/// # Errors
/// [`Error::Invalid`] for anything else than a one-dimensional little-endian int32 (or int64) array that is
/// such a permutation.
///
/// ```
/// use cellsilo::format::gene_order;
/// assert_eq!(gene_order::parse(&gene_order::to_bytes(&[2, 0, 1]), 3)?, [2, 0, 1]);
/// assert!(gene_order::parse(&gene_order::to_bytes(&[2, 0, 0]), 3).is_err());
/// # Ok::<(), cellsilo::Error>(())
/// ```
pub fn parse(bytes: &[u8], n_genes: u64) -> Result<Vec<i32>> {
    let (dict, data) = split_header(bytes)?;
    let squeezed: String = dict.chars().filter(|c| !c.is_whitespace()).map(|c| if c == '"' { '\'' } else { c }).collect();
    if !squeezed.contains("'fortran_order':")
        || !(squeezed.contains(&format!("'shape':({n_genes},)")) || squeezed.contains(&format!("'shape':({n_genes}L,)")))
    {
        return Err(Error::invalid(format!(
            "gene_order has the header {:?}, expected a one-dimensional array of {n_genes} values",
            dict.trim()
        )));
    }
    let order: Vec<i64> = if squeezed.contains("'descr':'<i4'") {
        whole(data, 4)?.map(|b| i64::from(i32::from_le_bytes(b.try_into().expect("four bytes")))).collect()
    } else if squeezed.contains("'descr':'<i8'") {
        whole(data, 8)?.map(|b| i64::from_le_bytes(b.try_into().expect("eight bytes"))).collect()
    } else {
        return Err(Error::invalid(format!("gene_order has the header {:?}, expected little-endian int32", dict.trim())));
    };
    check_permutation(&order, n_genes)?;
    Ok(order.into_iter().map(|v| v as i32).collect())
}

fn whole(data: &[u8], width: usize) -> Result<std::slice::ChunksExact<'_, u8>> {
    if !data.len().is_multiple_of(width) {
        return Err(Error::invalid(format!("gene_order has {} bytes of data, not a multiple of {width}", data.len())));
    }
    Ok(data.chunks_exact(width))
}

fn split_header(bytes: &[u8]) -> Result<(&str, &[u8])> {
    let bad = || Error::invalid("gene_order is not a NumPy .npy file of version 1 to 3");
    let rest = bytes.strip_prefix(MAGIC).ok_or_else(bad)?;
    let (version, rest) = rest.split_first_chunk::<2>().ok_or_else(bad)?;
    let (len, rest) = match version[0] {
        1 => rest.split_first_chunk::<2>().map(|(n, rest)| (usize::from(u16::from_le_bytes(*n)), rest)),
        2 | 3 => rest.split_first_chunk::<4>().map(|(n, rest)| (u32::from_le_bytes(*n) as usize, rest)),
        _ => None,
    }
    .ok_or_else(bad)?;
    let (dict, data) = rest.split_at_checked(len.min(MAX_HEADER)).ok_or_else(bad)?;
    Ok((std::str::from_utf8(dict).map_err(|_| bad())?, data))
}

fn check_permutation(order: &[i64], n_genes: u64) -> Result<()> {
    if order.len() as u64 != n_genes {
        return Err(Error::invalid(format!("gene_order has {} values, the dataset has {n_genes} genes", order.len())));
    }
    let mut seen = vec![false; order.len()];
    for (j, &v) in order.iter().enumerate() {
        match usize::try_from(v).ok().and_then(|v| seen.get_mut(v)) {
            Some(slot) if !*slot => *slot = true,
            _ => return Err(Error::invalid(format!("gene_order[{j}] is {v}, expected each of 0 to {} once", n_genes.saturating_sub(1)))),
        }
    }
    Ok(())
}
