//! Integers in as few bytes as they need: seven bits in each, the lowest first.

/// Bytes of the longest.
pub(super) const MOST: usize = 10;

pub(super) fn push(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    out.push(value.to_le_bytes()[0]);
}

/// Reads an integer at an offset and moves behind it.
pub(super) fn take(bytes: &[u8], at: &mut usize) -> Option<u64> {
    let mut value = 0;
    for index in 0..MOST {
        let byte = *bytes.get(*at)?;
        *at += 1;
        value |= u64::from(byte & 0x7F) << (7 * index);
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

/// A difference as an integer that is small where the difference is small.
pub(super) const fn zigzag(difference: i64) -> u64 {
    (difference << 1 ^ difference >> 63).cast_unsigned()
}

pub(super) const fn unzigzag(value: u64) -> i64 {
    (value >> 1).cast_signed() ^ -(value & 1).cast_signed()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn integers_survive(value: u64, difference: i64) {
            let mut bytes = Vec::new();
            push(&mut bytes, value);
            push(&mut bytes, zigzag(difference));
            let mut at = 0;
            prop_assert_eq!(take(&bytes, &mut at), Some(value));
            prop_assert_eq!(take(&bytes, &mut at).map(unzigzag), Some(difference));
            prop_assert_eq!((at, take(&bytes, &mut at)), (bytes.len(), None));
        }
    }
}
