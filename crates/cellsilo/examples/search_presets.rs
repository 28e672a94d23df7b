//! Measures zstd parameters on the streams of a tile: the search behind `Preset`.
//!
//! ```sh
//! cargo run --release --example search_presets -- OUT.silo/tiles/tile_000000.dct [quick|fast|balanced|small]
//! ```
//!
//! One line a candidate: size in percent of level 19's, encode and decode speed as multiples of level 19's, for
//! the gaps, the vals, and both together. Single thread, best of three for decode.

use std::time::Instant;

use cellsilo::tile::TileView;
use zstd_safe::{CCtx, CParameter, DCtx, ResetDirective, Strategy};

type Candidate = (String, Vec<CParameter>);

fn main() {
    let path = std::env::args().nth(1).expect("name a tile");
    let wanted = std::env::args().nth(2).unwrap_or_else(|| "quick".into());
    let bytes = std::fs::read(&path).expect("the tile can be read");
    let view = TileView::parse(&bytes).expect("the tile is valid");
    // Two of its chunks stand for the tile, the rest is the same data.
    let mut streams: [Vec<Vec<u8>>; 2] = [Vec::new(), Vec::new()];
    for chunk in view.chunks().iter().step_by(4) {
        for (list, range) in streams.iter_mut().zip([&chunk.gaps, &chunk.vals]) {
            let mut content = vec![0; 2 * chunk.len() as usize];
            zstd_safe::decompress(&mut content[..], &bytes[range.start as usize..range.end as usize]).expect("the frame is valid");
            list.push(content);
        }
    }
    let base = streams.each_ref().map(|s| measure(s, &[CParameter::CompressionLevel(19)]));
    println!(
        "level 19: {} bytes, encode {:.1} MB/s, decode {:.0} MB/s",
        base[0].0 + base[1].0,
        rate(&streams, base[0].1 + base[1].1),
        rate(&streams, base[0].2 + base[1].2)
    );
    println!("{:44} {:>24} {:>24} {:>24}", "size %, encode x, decode x", "gaps", "vals", "both");
    for (name, parameters) in candidates(&wanted) {
        let found = streams.each_ref().map(|s| measure(s, &parameters));
        let cell = |a: (usize, f64, f64), b: (usize, f64, f64)| {
            format!("{:8.2} {:7.2} {:7.2}", 100.0 * a.0 as f64 / b.0 as f64, b.1 / a.1, b.2 / a.2)
        };
        let sum = |x: [(usize, f64, f64); 2]| (x[0].0 + x[1].0, x[0].1 + x[1].1, x[0].2 + x[1].2);
        println!("{name:44} {} {} {}", cell(found[0], base[0]), cell(found[1], base[1]), cell(sum(found), sum(base)));
    }
}

fn rate(streams: &[Vec<Vec<u8>>; 2], seconds: f64) -> f64 {
    streams.iter().flatten().map(Vec::len).sum::<usize>() as f64 / seconds / 1e6
}

/// Bytes, seconds to encode, seconds to decode.
fn measure(streams: &[Vec<u8>], parameters: &[CParameter]) -> (usize, f64, f64) {
    let mut context = CCtx::create();
    context.reset(ResetDirective::SessionAndParameters).expect("reset works");
    for &parameter in parameters {
        context.set_parameter(parameter).expect("the parameter is valid");
    }
    let mut frames: Vec<Vec<u8>> = streams.iter().map(|s| Vec::with_capacity(zstd_safe::compress_bound(s.len()))).collect();
    let mut encode = f64::INFINITY;
    // Slow candidates are measured once; fast ones need a warm context and the best of several.
    for _ in 0..5 {
        let started = Instant::now();
        for (frame, stream) in frames.iter_mut().zip(streams) {
            frame.clear();
            context.compress2(frame, stream).expect("it compresses");
        }
        encode = encode.min(started.elapsed().as_secs_f64());
        if encode > 0.3 {
            break;
        }
    }
    let mut decoder = DCtx::create();
    let mut out = vec![0; streams.iter().map(Vec::len).max().unwrap_or(0)];
    let decode = (0..5)
        .map(|_| {
            let started = Instant::now();
            for (frame, stream) in frames.iter().zip(streams) {
                decoder.decompress(&mut out[..stream.len()], frame).expect("it decompresses");
            }
            started.elapsed().as_secs_f64()
        })
        .fold(f64::INFINITY, f64::min);
    (frames.iter().map(Vec::len).sum(), encode, decode)
}

fn tuned(strategy: Strategy, window: u32, hash: u32, chain: u32, search: u32, min_match: u32, target: u32) -> Candidate {
    let name = format!("{strategy:?} w{window} h{hash} c{chain} s{search} m{min_match} t{target}").replace("ZSTD_", "");
    let list = vec![
        CParameter::CompressionLevel(19),
        CParameter::Strategy(strategy),
        CParameter::WindowLog(window),
        CParameter::HashLog(hash),
        CParameter::ChainLog(chain),
        CParameter::SearchLog(search),
        CParameter::MinMatch(min_match),
        CParameter::TargetLength(target),
    ];
    (name, list)
}

fn level(n: i32) -> Candidate {
    (format!("level {n}"), vec![CParameter::CompressionLevel(n)])
}

fn candidates(wanted: &str) -> Vec<Candidate> {
    use Strategy::{ZSTD_btopt, ZSTD_btultra, ZSTD_btultra2, ZSTD_dfast, ZSTD_fast, ZSTD_greedy};
    let mut list = Vec::new();
    match wanted {
        "fast" => {
            list.extend([-20, -10, -7, -5, -3, -1, 1, 2, 3, 4].map(level));
            for window in [15, 17] {
                for (hash, min_match) in [(10, 4), (12, 4), (12, 5), (13, 6), (13, 7), (14, 5), (14, 7)] {
                    list.push(tuned(ZSTD_fast, window, hash, 12, 1, min_match, 0));
                    list.push(tuned(ZSTD_fast, window, hash, 12, 1, min_match, 8));
                }
            }
            list.push(tuned(ZSTD_dfast, 17, 14, 14, 1, 5, 0));
            list.push(tuned(ZSTD_greedy, 17, 14, 14, 2, 4, 0));
        }
        "balanced" => {
            for strategy in [ZSTD_btopt, ZSTD_btultra, ZSTD_btultra2] {
                for (window, search) in [(17, 3), (17, 4), (17, 5), (17, 6), (16, 5), (18, 5), (19, 6)] {
                    for target in [32, 256] {
                        list.push(tuned(strategy, window, window, window, search, 3, target));
                    }
                }
            }
        }
        "small" => {
            list.push(level(22));
            for strategy in [ZSTD_btopt, ZSTD_btultra] {
                for (window, chain, search) in [(17, 17, 6), (21, 22, 8), (21, 22, 10)] {
                    for min_match in [3, 4, 5, 6] {
                        for target in [64, 999] {
                            list.push(tuned(strategy, window, 18, chain, search, min_match, target));
                        }
                    }
                }
            }
        }
        _ => {
            list.extend([1, 3, 9, 12, 15, 19, 22].map(level));
            list.push(tuned(ZSTD_btopt, 17, 17, 17, 6, 3, 64));
            list.push(tuned(ZSTD_btultra2, 17, 17, 17, 9, 3, 256));
        }
    }
    list
}
