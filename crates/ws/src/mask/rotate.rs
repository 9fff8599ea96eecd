/// Rotates a key, so that it applies behind the first `n` bytes of a payload.
#[must_use]
#[inline]
pub const fn rotate(key: [u8; 4], n: usize) -> [u8; 4] {
    let [a, b, c, d] = key;
    match n % 4 {
        0 => key,
        1 => [b, c, d, a],
        2 => [c, d, a, b],
        _ => [d, a, b, c],
    }
}
