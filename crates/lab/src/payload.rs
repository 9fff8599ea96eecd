use tautline_measure::SplitMix;

/// Constant seed, for the same texts on every machine.
const SEED: u64 = 0x6a73_6f6e_0000_0001;

/// Bytes of the counter at the front of a payload.
const COUNTER: usize = 8;

/// Different texts of [`Content::Json`], so that a window of the largest size holds no message twice.
const TEXTS: usize = 64;

/// Contents of messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Content {
    /// Bytes without a short period, the same in each message but for a counter.
    #[default]
    Bytes,
    /// Text like JSON with changing numbers.
    Json,
    /// As `Json`, in messages that this side does not compress.
    JsonAsItIs,
}

/// Messages of one size that all differ: a counter, then bytes of one of a few variants.
///
/// A reply can be compared with its message byte for byte, although no message is kept.
#[derive(Debug)]
pub(crate) struct Payload(Vec<Vec<u8>>);

impl Payload {
    /// Messages of `size` bytes. Messages shorter than the counter carry its low bytes.
    pub(crate) fn new(size: usize) -> Self {
        // A multiplicative sequence has no short period, so a shifted or repeated part does not match.
        Self(vec![(0..size).map(|i| (i.wrapping_mul(0x9e37_79b1) >> 13).to_le_bytes()[0]).collect()])
    }

    /// Messages of `size` bytes with this content.
    pub(crate) fn of(content: Content, size: usize) -> Self {
        match content {
            Content::Bytes => Self::new(size),
            Content::Json | Content::JsonAsItIs => {
                let mut random = SplitMix(SEED);
                Self((0..TEXTS).map(|_| json(size, &mut random)).collect())
            }
        }
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
        Self(vec![bytes])
    }

    pub(crate) fn len(&self) -> usize {
        self.0[0].len()
    }

    /// Message number `counter`. Only the counter is written; the rest is constant.
    pub(crate) fn stamp(&mut self, counter: u64) -> &[u8] {
        let head = self.head();
        let variant = self.variant(counter);
        let message = &mut self.0[variant];
        message[..head].copy_from_slice(&counter.to_le_bytes()[..head]);
        message
    }

    /// Whether `bytes` are those of message number `counter` from `offset` on.
    pub(crate) fn matches(&self, counter: u64, offset: usize, bytes: &[u8]) -> bool {
        let Some(end) = offset.checked_add(bytes.len()).filter(|&end| end <= self.len()) else { return false };
        let head = self.head();
        let from_counter = head.clamp(offset, end) - offset;
        bytes[..from_counter] == counter.to_le_bytes()[offset.min(head)..offset.min(head) + from_counter]
            && bytes[from_counter..] == self.0[self.variant(counter)][offset + from_counter..end]
    }

    fn variant(&self, counter: u64) -> usize {
        usize::try_from(counter % self.0.len() as u64).unwrap_or(0)
    }

    fn head(&self) -> usize {
        COUNTER.min(self.len())
    }
}

/// Records like those of an exchange: the same names, other numbers.
fn json(size: usize, random: &mut SplitMix) -> Vec<u8> {
    let mut bytes = vec![b' '; COUNTER.min(size)];
    while bytes.len() < size {
        let (price, amount) = (random.next() % 10_000_000, random.next() % 1_000_000);
        let (symbol, side) = (random.next() % 40, if random.next().is_multiple_of(2) { "buy" } else { "sell" });
        let time = 1_795_000_000_000 + random.next() % 100_000_000;
        let record = format!(
            "{{\"symbol\":\"SYM{symbol}\",\"side\":\"{side}\",\"price\":\"{}.{:02}\",\"amount\":\"0.{amount:06}\",\
             \"time\":{time}}},",
            price / 100,
            price % 100
        );
        bytes.extend_from_slice(record.as_bytes());
    }
    bytes.truncate(size);
    bytes
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
        assert!(Payload::text(1024).0[0][8..].is_ascii());
    }

    #[test]
    fn json_differs_from_message_to_message() {
        let mut payload = Payload::of(Content::Json, 300);
        let messages: Vec<Vec<u8>> = (0..TEXTS as u64 + 1).map(|counter| payload.stamp(counter).to_vec()).collect();
        assert!(messages.windows(2).all(|two| two[0][8..] != two[1][8..]));
        assert_eq!(messages[0][8..], messages[TEXTS][8..]);
        for (counter, message) in (0..).zip(&messages) {
            assert!(message.len() == 300 && payload.matches(counter, 0, message), "{counter}");
            assert!(!payload.matches(counter + 1, 0, message));
        }
        assert_eq!(Payload::of(Content::Json, 3).len(), 3);
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
