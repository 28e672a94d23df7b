//! Encode and decode a tile, with the floor beside them: bare zstd on the same frames, and memcpy.
//!
//! ```sh
//! cargo bench -p cellsilo --bench tile                     # a synthetic tile of 2,000 cells
//! CELLSILO_TILE=atlas.silo/tiles/tile_000000.dct cargo bench -p cellsilo --bench tile
//! ```
//!
//! Rates are nonzeros a second. One thread unless the name says otherwise.

use cellsilo::tile::{Csr, CsrBlock, EncodeOptions, Preset, TileView, encode_tile};
use divan::Bencher;
use divan::counter::ItemsCount;

fn main() {
    divan::main();
}

/// The tile named by CELLSILO_TILE, or one with rows like those of real cells: genes by a power law, mostly
/// counts of 1 and 2.
fn tile() -> Vec<u8> {
    if let Some(path) = std::env::var_os("CELLSILO_TILE") {
        return std::fs::read(path).expect("CELLSILO_TILE can be read");
    }
    encode(&synthetic(2_000, 30_000), Preset::Balanced)
}

fn synthetic(n_cells: usize, n_genes: u32) -> Csr<i32> {
    let mut state = 1u64;
    let mut random = move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 11) as f64 / (1u64 << 53) as f64
    };
    let mut csr = Csr::empty(n_genes.into());
    for _ in 0..n_cells {
        for gene in 0..n_genes {
            let mean = 40.0 / (1.0 + f64::from(gene) * 0.02);
            if random() < 1.0 - (-mean * 0.08).exp() {
                csr.indices.push(gene as i32);
                csr.data.push(1 + (mean * 0.2 * random() * random()) as i32);
            }
        }
        csr.indptr.push(csr.indices.len() as i64);
    }
    csr
}

fn encode(csr: &Csr<i32>, preset: Preset) -> Vec<u8> {
    let block = CsrBlock { n_genes: csr.n_genes as u32, indptr: &csr.indptr, indices: &csr.indices, data: &csr.data };
    encode_tile(&block, &EncodeOptions { preset, ..Default::default() }).expect("the rows are canonical")
}

fn decoded(bytes: &[u8]) -> Csr<i32> {
    let mut rows = Csr::default();
    TileView::parse(bytes).and_then(|view| view.decode_into(&mut rows)).expect("the tile is valid");
    rows
}

fn pool(threads: usize) -> rayon::ThreadPool {
    rayon::ThreadPoolBuilder::new().num_threads(threads).build().expect("a pool can be made")
}

#[divan::bench(args = [Preset::Fast, Preset::Balanced, Preset::Small, Preset::Level(19)], sample_count = 3, sample_size = 1)]
fn encode_one_thread(bencher: Bencher<'_, '_>, preset: Preset) {
    let rows = decoded(&tile());
    let pool = pool(1);
    bencher.counter(ItemsCount::new(rows.nnz())).bench_local(|| pool.install(|| encode(&rows, preset)));
}

#[divan::bench(args = [1, 2])]
fn decode_i32(bencher: Bencher<'_, '_>, threads: usize) {
    let bytes = tile();
    let mut rows = decoded(&bytes);
    let pool = pool(threads);
    bencher
        .counter(ItemsCount::new(rows.nnz()))
        .bench_local(|| pool.install(|| TileView::parse(&bytes).and_then(|v| v.decode_into(&mut rows))));
}

#[divan::bench(args = [1, 2])]
fn decode_f32(bencher: Bencher<'_, '_>, threads: usize) {
    let bytes = tile();
    let mut rows = Csr::<f32>::default();
    let nnz = decoded(&bytes).nnz();
    let pool = pool(threads);
    bencher.counter(ItemsCount::new(nnz)).bench_local(|| pool.install(|| TileView::parse(&bytes).and_then(|v| v.decode_into(&mut rows))));
}

/// The floor: the same frames, decompressed and thrown away.
#[divan::bench]
fn floor_bare_zstd(bencher: Bencher<'_, '_>) {
    let bytes = tile();
    let view = TileView::parse(&bytes).expect("the tile is valid");
    let frames: Vec<&[u8]> =
        view.chunks().iter().flat_map(|c| [&c.gaps, &c.vals]).map(|r| &bytes[r.start as usize..r.end as usize]).collect();
    let longest = view.chunks().iter().map(|c| 2 * c.len() as usize).max().unwrap_or(0);
    let mut out = vec![0; longest];
    let mut context = zstd_safe::DCtx::create();
    bencher
        .counter(ItemsCount::new(view.header().nnz))
        .bench_local(|| frames.iter().map(|frame| context.decompress(&mut out[..], frame).expect("the frame is valid")).sum::<usize>());
}

/// The other floor: writing as many bytes as the decoded rows have.
#[divan::bench]
fn floor_memcpy(bencher: Bencher<'_, '_>) {
    let rows = decoded(&tile());
    let mut copy = rows.clone();
    bencher.counter(ItemsCount::new(rows.nnz())).bench_local(|| {
        copy.indices.copy_from_slice(&rows.indices);
        copy.data.copy_from_slice(&rows.data);
    });
}
