//! Compressors for blocks of a recording: the C library at several levels, and one in Rust.

use crate::messages;
use crate::timing::now;
use ruzstd::encoding::{CompressionLevel, compress_to_vec};

/// Bytes of a block.
const BLOCK: usize = 256 << 10;
const ROUNDS: usize = 9;

pub fn all() {
    let depths = messages::depths().concat();
    let trades = messages::trades().concat();
    for (name, messages) in [("depth", &depths), ("trades", &trades)] {
        let block: Vec<u8> = messages.iter().copied().cycle().take(BLOCK.min(messages.len())).collect();
        println!("a block of {name}, {} bytes", block.len());
        for level in [1, 3, 6] {
            let mut zstd = zstd::bulk::Compressor::new(level).unwrap();
            measure(&format!("zstd, level {level}"), &block, |block| zstd.compress(block).unwrap());
        }
        let fastest = |block: &[u8]| compress_to_vec(block, CompressionLevel::Fastest);
        measure("ruzstd, fastest", &block, fastest);
    }
}

fn measure(name: &str, block: &[u8], mut compress: impl FnMut(&[u8]) -> Vec<u8>) {
    let mut times = Vec::new();
    let mut len = 0;
    for _ in 0..ROUNDS {
        let begin = now();
        let compressed = compress(block);
        times.push(now() - begin);
        len = compressed.len();
        assert_eq!(zstd::bulk::decompress(&compressed, block.len()).unwrap(), block);
    }
    times.sort_by(f64::total_cmp);
    let rate = |seconds: f64| block.len() as f64 / seconds / 1e6;
    println!(
        "  {name:<28} {:>6.1} % {:>8.0} MB/s  (fastest {:.0})",
        100.0 * len as f64 / block.len() as f64,
        rate(times[ROUNDS / 2]),
        rate(times[0])
    );
}
