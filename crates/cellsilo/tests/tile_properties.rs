//! Encode and decode against a naive implementation, and damaged bytes: never a panic, never another matrix.

use cellsilo::tile::{Csr, CsrBlock, EncodeOptions, Preset, TileView, encode_tile};
use proptest::prelude::*;

/// A dense description of a matrix: for each cell its (gene, count) pairs, sorted and without repeats.
fn matrix() -> impl Strategy<Value = (u32, Vec<Vec<(u32, u32)>>)> {
    let n_genes = prop_oneof![1u32..50, 1000u32..3000, 100_000u32..400_000, Just(1 << 31)];
    n_genes.prop_flat_map(|n_genes| {
        let count = prop_oneof![8 => 1u32..6, 2 => 250u32..260, 1 => 65_530u32..65_540, 1 => Just(i32::MAX as u32)];
        let row = prop::collection::btree_map(0..n_genes, count, 0..40).prop_map(|m| m.into_iter().collect::<Vec<_>>());
        (Just(n_genes), prop::collection::vec(row, 0..26))
    })
}

fn to_csr(n_genes: u32, rows: &[Vec<(u32, u32)>]) -> Csr<i32> {
    let mut csr = Csr::empty(u64::from(n_genes));
    for row in rows {
        csr.indices.extend(row.iter().map(|e| e.0 as i32));
        csr.data.extend(row.iter().map(|e| e.1 as i32));
        csr.indptr.push(csr.indices.len() as i64);
    }
    csr
}

fn encode(csr: &Csr<i32>, n_chunks: u32) -> Vec<u8> {
    let block = CsrBlock { n_genes: csr.n_genes as u32, indptr: &csr.indptr, indices: &csr.indices, data: &csr.data };
    encode_tile(&block, &EncodeOptions { n_chunks, min_chunk_nnz: 1, preset: Preset::Fast }).unwrap()
}

fn decode(bytes: &[u8]) -> cellsilo::Result<Csr<i32>> {
    let mut out = Csr::default();
    TileView::parse(bytes)?.decode_into(&mut out)?;
    Ok(out)
}

/// The specification's "Decoding a chunk", word by word, in 64 bits and without care for speed.
fn naive_decode(bytes: &[u8]) -> (Vec<u64>, Vec<u64>) {
    let u64_at = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()) as usize;
    let n_chunks = u32::from_le_bytes(bytes[36..40].try_into().unwrap()) as usize;
    let indptr = |cell: usize| u64_at(u64_at(40) + 8 * cell);
    let (mut genes, mut counts) = (Vec::new(), Vec::new());
    for k in 0..n_chunks {
        let field = |i: usize| u64_at(64 + 96 * k + 8 * i);
        let unzip = |i: usize, size: usize| {
            let mut content = vec![0; size];
            let written = zstd_safe::decompress(&mut content[..], &bytes[field(i)..field(i) + field(i + 1)]).unwrap();
            content.truncate(written);
            content
        };
        let n = field(3) - field(2);
        let (gaps, vals) = (unzip(4, 2 * n), unzip(6, 2 * n));
        let word = |s: &[u8], i: usize| u64::from(s[i]) + 256 * u64::from(s[n + i]);
        let entries = |i: usize| {
            let content = if field(i + 1) == 0 { Vec::new() } else { unzip(i, 8 * n) };
            let words: Vec<u32> = content.chunks_exact(4).map(|b| u32::from_le_bytes(b.try_into().unwrap())).collect();
            let half = words.len() / 2;
            (0..half).map(|j| (words[j] as usize, u64::from(words[half + j]))).collect::<Vec<_>>()
        };
        let (base, mut gap_list) = (genes.len(), (0..n).map(|i| word(&gaps, i)).collect::<Vec<_>>());
        counts.extend((0..n).map(|i| word(&vals, i)));
        entries(8).into_iter().for_each(|(p, v)| counts[base + p] = v);
        entries(10).into_iter().for_each(|(p, v)| gap_list[p] += v);
        for cell in field(0)..field(1) {
            let mut gene = 0;
            for i in indptr(cell)..indptr(cell + 1) {
                gene += gap_list[i - field(2)];
                genes.push(gene);
            }
        }
    }
    (genes, counts)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn what_is_encoded_is_decoded((n_genes, rows) in matrix(), n_chunks in 1u32..9) {
        let csr = to_csr(n_genes, &rows);
        let bytes = encode(&csr, n_chunks);
        prop_assert_eq!(&decode(&bytes).unwrap(), &csr);
        let (genes, counts) = naive_decode(&bytes);
        prop_assert_eq!(genes, csr.indices.iter().map(|&g| g as u64).collect::<Vec<_>>());
        prop_assert_eq!(counts, csr.data.iter().map(|&c| c as u64).collect::<Vec<_>>());
    }

    #[test]
    fn a_part_is_the_part_of_the_whole((n_genes, rows) in matrix(), a in 0usize..27, b in 0usize..27) {
        let csr = to_csr(n_genes, &rows);
        let bytes = encode(&csr, 5);
        let (a, b) = (a.min(rows.len()), b.min(rows.len()));
        let range = a.min(b)..a.max(b);
        let mut part = Csr::default();
        TileView::parse(&bytes).unwrap().decode_cells_into(range.clone(), &mut part).unwrap();
        let mut expected = Csr::empty(csr.n_genes);
        range.for_each(|cell| expected.push_row_of(&csr, cell));
        prop_assert_eq!(part, expected);
    }
}

fn sample() -> Csr<i32> {
    let rows: Vec<Vec<(u32, u32)>> =
        (0..30).map(|c| (0..c % 7 * 3).map(|k| (c + k * 90_000, if k == 4 { 70_000 } else { 1 + k })).collect()).collect();
    to_csr(2_000_000, &rows)
}

#[test]
fn every_prefix_is_refused() {
    let bytes = encode(&sample(), 4);
    for len in 0..bytes.len() {
        assert!(decode(&bytes[..len]).is_err(), "a prefix of {len} bytes was taken");
    }
}

/// Seals the bytes again, as a hostile writer would, so that the flipped bit reaches the checks behind the CRC.
fn seal(bytes: &mut [u8]) {
    let crc32 = crc32fast::hash(&bytes[64..]);
    bytes[56..60].copy_from_slice(&crc32.to_le_bytes());
}

#[test]
fn flipped_bits_are_refused_or_harmless() {
    let csr = sample();
    let bytes = encode(&csr, 4);
    for at in 0..bytes.len() {
        for bit in [0, 3, 7] {
            let mut bad = bytes.clone();
            bad[at] ^= 1 << bit;
            // The CRC covers everything behind the header.
            assert!(at < 64 || decode(&bad).is_err(), "bit {bit} of byte {at}: the CRC missed it");
            seal(&mut bad);
            // Behind a right CRC a changed count may be another valid tile; it must still obey the format.
            if let Ok(rows) = decode(&bad) {
                assert_eq!(rows.indices.len(), rows.data.len());
                assert!(rows.data.iter().all(|&c| c > 0));
                (0..rows.n_cells()).for_each(|c| assert!(rows.row(c).0.is_sorted_by(|a, b| a < b)));
            }
        }
    }
}

#[test]
fn blocks_that_are_not_canonical_are_refused() {
    let try_block = |indptr: &[i64], indices: &[i32], data: &[i32]| {
        encode_tile(&CsrBlock { n_genes: 10, indptr, indices, data }, &EncodeOptions::default())
    };
    assert!(try_block(&[0, 2], &[1, 2], &[1, 1]).is_ok());
    for (indptr, indices, data) in [
        (&[0, 2][..], &[2, 1][..], &[1, 1][..]),
        (&[0, 2], &[1, 1], &[1, 1]),
        (&[0, 2], &[1, 10], &[1, 1]),
        (&[0, 2], &[-1, 1], &[1, 1]),
        (&[0, 2], &[1, 2], &[1, 0]),
        (&[0, 2], &[1, 2], &[1, -1]),
        (&[0, 1], &[1, 2], &[1, 1]),
        (&[1, 2], &[1, 2], &[1, 1]),
        (&[0, 2, 1, 2], &[1, 2], &[1, 1]),
        (&[], &[], &[]),
        (&[0, 2], &[1, 2], &[1]),
    ] {
        assert!(try_block(indptr, indices, data).is_err(), "{indptr:?} {indices:?} {data:?}");
    }
}

#[test]
fn frames_lie_behind_the_table_and_the_indptr_on_8_bytes() {
    let bytes = encode(&sample(), 4);
    let field = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
    // The second chunk's gaps: its entry is the second of the table.
    let place = 64 + 96 + 32;
    for (offset, says) in [
        (field(place) + 1, "multiple of 8"),
        (64, "inside the chunk table"),
        (field(40), "overlaps the indptr"),
        (field(40) + 8, "overlaps the indptr"),
    ] {
        let mut bad = bytes.clone();
        bad[place..place + 8].copy_from_slice(&offset.to_le_bytes());
        seal(&mut bad);
        let error = decode(&bad).unwrap_err().to_string();
        assert!(error.contains(says) && error.contains("chunk 1"), "{offset}: {error}");
    }
}
