//! Handshake messages that arrive in pieces.

/// The type of a record with unencrypted handshake messages (RFC 8446, section 5.1).
pub(super) const PLAIN_HANDSHAKE: u8 = 22;

/// Longest ClientHello to wait for, in bytes. Real ones have at most a few kilobytes.
const MAX_HELLO: usize = 16 << 10;

/// Whether the handshake message at the start of `wire` is whole, in any number of records (RFC 8446, section 5.1).
///
/// Also true if more bytes would not help: a record of another type interrupts the message, or the message is too long.
pub(super) fn is_whole(wire: &[u8]) -> bool {
    // The message's type and length, which may span records.
    let (mut head, mut seen) = ([0_u8; 4], 0);
    let mut rest = wire;
    while wire.len() <= MAX_HELLO {
        let Some((&[kind, _, _, high, low], behind)) = rest.split_first_chunk() else { return false };
        let len = usize::from(u16::from_be_bytes([high, low]));
        if kind != PLAIN_HANDSHAKE || len == 0 {
            return true;
        }
        let Some((part, behind)) = behind.split_at_checked(len) else { return false };
        for (to, from) in head.iter_mut().skip(seen).zip(part) {
            *to = *from;
        }
        seen += len;
        let [_, a, b, c] = head;
        let whole = 4 + u32::from_be_bytes([0, a, b, c]) as usize;
        if seen >= 4 && (seen >= whole || whole > MAX_HELLO) {
            return true;
        }
        rest = behind;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::{MAX_HELLO, is_whole};

    fn records(message: &[u8], cut: usize) -> Vec<u8> {
        let record = |part: &[u8]| [&[22, 3, 1, 0, u8::try_from(part.len()).unwrap()], part].concat();
        message.chunks(cut).flat_map(record).collect()
    }

    #[test]
    fn a_message_is_whole_with_its_last_byte() {
        let message = [&[1, 0, 1, 44][..], &[7; 300]].concat();
        for cut in [1, 2, 3, 4, 5, 100, 255] {
            let wire = records(&message, cut);
            for len in 0..wire.len() {
                assert!(!is_whole(&wire[..len]), "{len} of {} bytes, cut at {cut}", wire.len());
            }
            assert!(is_whole(&wire) && is_whole(&[&wire[..], &[20, 3, 3]].concat()));
        }
    }

    #[test]
    fn an_interrupted_or_too_long_message_is_not_waited_for() {
        let begun = records(&[1, 0, 1, 44, 7], 5);
        for behind in [&[21, 3, 3, 0, 2, 1, 0][..], &[22, 3, 3, 0, 0]] {
            assert!(is_whole(&[&begun[..], behind].concat()));
        }
        // Too long by its length field, and by the bytes received.
        assert!(is_whole(&records(&[1, 1, 0, 0, 7], 5)));
        assert!(is_whole(&vec![22; MAX_HELLO + 1]));
    }
}
