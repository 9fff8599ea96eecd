use super::vector::{self, Vector};
use super::{mask, mask_copy, rotate};
use proptest::prelude::*;

const KEY: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];

/// Section 5.3: "octet i of the transformed data is the XOR of octet i of the original data with octet at index i
/// modulo 4 of the masking key".
fn oracle(src: &[u8], key: [u8; 4]) -> Vec<u8> {
    src.iter().enumerate().map(|(i, byte)| byte ^ key[i % 4]).collect()
}

fn sample(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + i / 256).to_le_bytes()[0]).collect()
}

/// Checks that `path` masks like the oracle, copying and in place, and changes no other byte.
fn check(path: impl Fn(*const u8, *mut u8, usize, [u8; 4]), len: usize, src_at: usize, dst_at: usize) {
    let src = sample(src_at + len);
    let src = &src[src_at..];
    let expected = oracle(src, KEY);

    let mut dst = vec![0xee; dst_at + len + 64];
    path(src.as_ptr(), dst[dst_at..][..len].as_mut_ptr(), len, KEY);
    assert_eq!(dst[dst_at..][..len], expected, "copy of {len} bytes from {src_at} to {dst_at}");
    assert!(dst[..dst_at].iter().chain(&dst[dst_at + len..]).all(|byte| *byte == 0xee));

    dst[dst_at..][..len].copy_from_slice(src);
    let in_place = dst[dst_at..][..len].as_mut_ptr();
    path(in_place.cast_const(), in_place, len, KEY);
    assert_eq!(dst[dst_at..][..len], expected, "{len} bytes in place at {dst_at}");
    assert!(dst[..dst_at].iter().chain(&dst[dst_at + len..]).all(|byte| *byte == 0xee));
}

fn offsets() -> impl Iterator<Item = (usize, usize)> {
    let step = if cfg!(miri) { 21 } else { 1 };
    (0..64).step_by(step).map(|at| (at * 5 % 64, at))
}

fn check_vector<V: Vector>() {
    for (src_at, dst_at) in offsets() {
        for len in (V::WIDTH..=2 * V::WIDTH).step_by(if cfg!(miri) { V::WIDTH / 4 } else { 1 }) {
            // SAFETY: `check` passes two buffers of `len` bytes, or one of them twice; `len` is in range.
            check(|src, dst, len, key| unsafe { vector::xor_ends::<V>(src, dst, len, key) }, len, src_at, dst_at);
        }
        for len in (2 * V::WIDTH..=4 * V::WIDTH).step_by(if cfg!(miri) { V::WIDTH / 2 } else { 1 }) {
            // SAFETY: as above.
            check(|src, dst, len, key| unsafe { vector::xor_two_ends::<V>(src, dst, len, key) }, len, src_at, dst_at);
        }
        for len in (V::WIDTH..300).step_by(if cfg!(miri) { 59 } else { 1 }) {
            // SAFETY: as above.
            check(|src, dst, len, key| unsafe { vector::xor_aligned::<V>(src, dst, len, key) }, len, src_at, dst_at);
        }
    }
}

#[test]
fn words_agree_with_the_oracle() {
    check_vector::<u32>();
    check_vector::<u64>();
    check_vector::<u128>();
}

#[test]
fn baseline_vectors_agree_with_the_oracle() {
    check_vector::<super::Bytes16>();
}

#[test]
fn wide_vectors_agree_with_the_oracle() {
    #[cfg(target_arch = "x86_64")]
    for (src_at, dst_at) in offsets() {
        for len in (64..400).chain([4096, 5003]).step_by(if cfg!(miri) { 57 } else { 1 }) {
            if is_x86_feature_detected!("avx2") {
                // SAFETY: `check` passes two buffers of `len` bytes, or one of them twice; the CPU has AVX2.
                check(|src, dst, len, key| unsafe { super::avx2::xor(src, dst, len, key) }, len, src_at, dst_at);
            }
            if is_x86_feature_detected!("avx512f") {
                // SAFETY: as above, and the CPU has AVX-512F.
                check(|src, dst, len, key| unsafe { super::avx512::xor(src, dst, len, key) }, len, src_at, dst_at);
            }
        }
    }
}

#[test]
fn every_short_length_at_every_alignment_agrees_with_the_oracle() {
    for (src_at, dst_at) in offsets() {
        for len in (0..=300).step_by(if cfg!(miri) { 7 } else { 1 }) {
            let src = sample(src_at + len);
            let mut dst = vec![0; dst_at + len];
            mask_copy(&src[src_at..], &mut dst[dst_at..], KEY);
            assert_eq!(dst[dst_at..], oracle(&src[src_at..], KEY));
            mask(&mut dst[dst_at..], KEY);
            assert_eq!(dst[dst_at..], src[src_at..]);
        }
    }
}

#[test]
#[should_panic(expected = "differ in length")]
fn copying_between_different_lengths_panics() {
    mask_copy(&[0; 3], &mut [0; 4], KEY);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: if cfg!(miri) { 4 } else { 256 }, ..Default::default() })]

    #[test]
    fn pieces_with_a_rotated_key_equal_the_whole(
        key: [u8; 4],
        pieces in prop::collection::vec(0..200_usize, 0..8),
        lead in 0..64_usize,
    ) {
        let total: usize = pieces.iter().sum();
        let original = sample(lead + total);
        let mut data = original.clone();
        let mut at = 0;
        for piece in pieces {
            mask(&mut data[lead + at..][..piece], rotate(key, at));
            at += piece;
        }
        prop_assert_eq!(&data[lead..], oracle(&original[lead..], key));
    }

    #[test]
    fn large_payloads_agree_with_the_oracle(
        key: [u8; 4],
        len in 0..if cfg!(miri) { 600 } else { 100_000_usize },
        src_at in 0..64_usize,
        dst_at in 0..64_usize,
    ) {
        let src = sample(src_at + len);
        let mut dst = vec![0; dst_at + len];
        mask_copy(&src[src_at..], &mut dst[dst_at..], key);
        prop_assert_eq!(&dst[dst_at..], oracle(&src[src_at..], key));
        mask(&mut dst[dst_at..], key);
        prop_assert_eq!(&dst[dst_at..], &src[src_at..]);
    }
}
