/// Bytes of the counter at the front of a payload.
const COUNTER: usize = 8;

/// Messages of one size that all differ: a counter, then constant bytes.
///
/// A reply can be compared with its message byte for byte, although no message is kept.
#[derive(Debug)]
pub(crate) struct Payload(Vec<u8>);

impl Payload {
    /// Messages of `size` bytes. Messages shorter than the counter carry its low bytes.
    pub(crate) fn new(size: usize) -> Self {
        // A multiplicative sequence has no short period, so a shifted or repeated part does not match.
        Self((0..size).map(|i| (i.wrapping_mul(0x9e37_79b1) >> 13).to_le_bytes()[0]).collect())
    }

    /// Messages that compress as well as text of machines: repeated words with changing numbers.
    pub(crate) fn text(size: usize) -> Self {
        let mut bytes = vec![b' '; COUNTER.min(size)];
        let lines = (0_u32..).map(|i| {
            let price = i.wrapping_mul(0x9e37_79b1) >> 16;
            format!(
                "{{\"symbol\":\"ABC{}\",\"price\":{}.{:02},\"size\":{}}},",
                i % 7,
                price / 100,
                price % 100,
                i % 90 + 10
            )
        });
        for line in lines {
            if bytes.len() >= size {
                break;
            }
            bytes.extend_from_slice(line.as_bytes());
        }
        bytes.truncate(size);
        Self(bytes)
    }

    pub(crate) const fn len(&self) -> usize {
        self.0.len()
    }

    /// Message number `counter`. Only the counter is written; the rest is constant.
    pub(crate) fn stamp(&mut self, counter: u64) -> &[u8] {
        let head = self.head();
        self.0[..head].copy_from_slice(&counter.to_le_bytes()[..head]);
        &self.0
    }

    /// Whether `bytes` are those of message number `counter` from `offset` on.
    pub(crate) fn matches(&self, counter: u64, offset: usize, bytes: &[u8]) -> bool {
        let Some(end) = offset.checked_add(bytes.len()).filter(|&end| end <= self.0.len()) else { return false };
        let head = self.head();
        let from_counter = head.clamp(offset, end) - offset;
        bytes[..from_counter] == counter.to_le_bytes()[offset.min(head)..offset.min(head) + from_counter]
            && bytes[from_counter..] == self.0[offset + from_counter..end]
    }

    fn head(&self) -> usize {
        COUNTER.min(self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_of_a_message_matches_and_no_changed_byte_does() {
        for size in [0, 1, 7, 8, 9, 40] {
            let mut payload = Payload::new(size);
            let counter = 0x0102_0304_0506_0708;
            let mut message = payload.stamp(counter).to_vec();
            assert_eq!(message.len(), size);
            for offset in 0..=size {
                for end in offset..=size {
                    assert!(payload.matches(counter, offset, &message[offset..end]), "{size}: {offset}..{end}");
                    for flip in offset..end {
                        message[flip] ^= 1;
                        assert!(!payload.matches(counter, offset, &message[offset..end]));
                        message[flip] ^= 1;
                    }
                }
            }
        }
    }

    #[test]
    fn text_has_the_wanted_size_and_a_counter() {
        for size in [0, 5, 8, 9, 1024] {
            let mut payload = Payload::text(size);
            let message = payload.stamp(7).to_vec();
            assert!(message.len() == size && payload.matches(7, 0, &message));
            assert!(size == 0 || !payload.matches(8, 0, &message));
        }
        assert!(Payload::text(1024).0[8..].is_ascii());
    }

    #[test]
    fn other_messages_and_excess_bytes_do_not_match() {
        let mut payload = Payload::new(20);
        let mut message = payload.stamp(5).to_vec();
        assert!(!payload.matches(6, 0, &message));
        message.push(0);
        assert!(!payload.matches(5, 0, &message));
        assert!(!payload.matches(5, usize::MAX, &message));
    }
}
