//! Handshake messages that come in pieces.

use super::PLAIN_HANDSHAKE;

/// More than this is not waited for: honest ClientHellos have a few kilobytes, and what one record holds suffices.
const MOST: usize = 16 << 10;

/// Whether the handshake message that `wire` begins with is all there, in however many records (RFC 8446, section 5.1).
/// So is what waiting would not mend: other records in between, and what is too long.
pub(super) fn is_whole(wire: &[u8]) -> bool {
    // Type and length of the message, which may be cut too.
    let (mut head, mut seen) = ([0_u8; 4], 0);
    let mut rest = wire;
    while wire.len() <= MOST {
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
        if seen >= 4 && (seen >= whole || whole > MOST) {
            return true;
        }
        rest = behind;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::{MOST, is_whole};

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
    fn what_waiting_does_not_mend_is_not_waited_for() {
        let begun = records(&[1, 0, 1, 44, 7], 5);
        for behind in [&[21, 3, 3, 0, 2, 1, 0][..], &[22, 3, 3, 0, 0]] {
            assert!(is_whole(&[&begun[..], behind].concat()));
        }
        // Longer than any, as said, and as sent.
        assert!(is_whole(&records(&[1, 1, 0, 0, 7], 5)));
        assert!(is_whole(&vec![22; MOST + 1]));
    }
}
