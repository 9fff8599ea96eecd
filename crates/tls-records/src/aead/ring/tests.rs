// Other processors lay expanded keys out differently.
#![cfg(target_arch = "x86_64")]

use super::super::provider::Aead;
use super::Context;
use crate::Suite;
use core::hint::black_box;
use std::fs::{File, read_to_string};
use std::os::unix::fs::FileExt;

/// The last round key of AES-128 for the key of FIPS 197, appendix A.1, each byte inverted.
///
/// So the round key itself lies in memory only where a context was expanded.
const LAST_ROUND: [u8; 16] =
    [0x2f, 0xeb, 0x06, 0x57, 0x36, 0x11, 0xda, 0x76, 0x1e, 0xc0, 0xf3, 0x37, 0x49, 0x9c, 0xf3, 0x59];
const KEY: [u8; 16] = [0x2b, 0x7e, 0x15, 0x16, 0x28, 0xae, 0xd2, 0xa6, 0xab, 0xf7, 0x15, 0x88, 0x09, 0xcf, 0x4f, 0x3c];

/// The number of places in all writable memory of this process that hold the last round key.
///
/// `None` under a sanitizer, which has a shadow of all memory and stacks of its own.
fn places() -> Option<usize> {
    let memory = File::open("/proc/self/mem").unwrap();
    let mut buffer = vec![0; 1 << 20];
    let mut found = 0;
    let ours = buffer.as_ptr() as u64;
    for line in read_to_string("/proc/self/maps").unwrap().lines() {
        let mut words = line.split_whitespace();
        let (range, rights) = (words.next().unwrap(), words.next().unwrap());
        let (start, end) = range.split_once('-').unwrap();
        let [mut at, end] = [start, end].map(|text| u64::from_str_radix(text, 16).unwrap());
        if !rights.starts_with("rw") {
            continue;
        }
        if end - at > 1 << 36 {
            return None;
        }
        while at < end {
            let wanted = usize::try_from(end - at).unwrap().min(buffer.len());
            let Ok(read) = memory.read_at(&mut buffer[..wanted], at) else { break };
            // Contexts are aligned. The buffer itself is left out.
            let chunks = buffer[..read].chunks_exact(4).enumerate();
            let starts = chunks.filter(|(_, chunk)| chunk.iter().zip(&LAST_ROUND).all(|(a, b)| *a == !*b));
            for (number, _) in starts {
                let place = at + 4 * number as u64;
                let is_key = buffer.get(4 * number..4 * number + 16);
                let is_key = is_key.is_some_and(|key| key.iter().zip(&LAST_ROUND).all(|(a, b)| *a == !*b));
                found += usize::from(is_key && !(ours..ours + buffer.len() as u64).contains(&place));
            }
            at += read.max(1) as u64;
        }
    }
    buffer.fill(0);
    Some(found)
}

#[test]
fn no_expanded_key_is_left_behind() {
    let Some(before) = places() else { return };
    assert_eq!(before, 0, "the round key is in memory already");
    let context = black_box(Context::new(Suite::Aes128Gcm, &KEY).unwrap());
    assert_eq!(places(), Some(1), "only the context itself");
    let mut body = [0; 100];
    context.seal_in_place([0; 12], [0; 5], &mut body).unwrap();
    let moved = vec![context];
    assert_eq!(places(), Some(1), "moving a context copies a pointer");
    drop(moved);
    assert_eq!(places(), Some(0), "a dropped context is overwritten");
}
