//! Integers with a prefix of some bits (RFC 7541, section 5.1).

use tautline_buf::Buf;

/// Takes an integer whose first byte has `prefix` bits of it. `None` if it is cut off, or longer than any that has a meaning.
pub(crate) fn take(block: &mut &[u8], prefix: u32) -> Option<usize> {
    let (first, mut rest) = block.split_first()?;
    let most = (1 << prefix) - 1;
    let mut value = usize::from(*first) & most;
    if value == most {
        // Four further bytes are more than any length here needs.
        for shift in [0, 7, 14, 21] {
            let (next, behind) = rest.split_first()?;
            rest = behind;
            value += usize::from(next & 0x7f) << shift;
            if next & 0x80 == 0 {
                *block = rest;
                return Some(value);
            }
        }
        return None;
    }
    *block = rest;
    Some(value)
}

/// Appends an integer. `first` has the bits before the prefix.
pub(crate) fn put(value: usize, prefix: u32, first: u8, out: &mut Buf) {
    let most = (1 << prefix) - 1;
    let low = |value: usize, bits: u8| u8::try_from(value & 0x7f).unwrap_or_default() | bits;
    if value < most {
        return out.put(&[low(value, first)]);
    }
    out.put(&[low(most, first)]);
    let mut rest = value - most;
    while rest >= 0x80 {
        out.put(&[low(rest, 0x80)]);
        rest >>= 7;
    }
    out.put(&[low(rest, 0)]);
}

#[cfg(test)]
mod tests {
    use super::{put, take};
    use tautline_buf::Buf;

    #[test]
    fn integers_are_read_as_they_were_written() {
        for (prefix, first) in [(7, 0x80), (6, 0x40), (5, 0x20), (4, 0)] {
            for value in (0..300).chain([1_337, 16_383, 16_384, 1 << 20, (1 << 27) + 5]) {
                let mut out = Buf::new();
                put(value, prefix, first, &mut out);
                assert_eq!(out.filled()[0] >> prefix, first >> prefix);
                let mut rest = out.filled();
                assert_eq!((take(&mut rest, prefix), rest.len()), (Some(value), 0));
            }
        }
        // RFC 7541, C.1.2.
        let mut out = Buf::new();
        put(1_337, 5, 0, &mut out);
        assert_eq!(out.filled(), [31, 154, 10]);
    }

    #[test]
    fn an_integer_without_an_end_is_none() {
        for bytes in [&b""[..], b"\x7f", b"\x7f\xff", b"\x7f\xff\xff\xff\xff\x01"] {
            assert_eq!(take(&mut &bytes[..], 7), None);
        }
    }
}
