//! The messages of a simulation: each says which it is, and its content follows from that.
//!
//! | bytes | content |
//! |---|---|
//! | 0 | the verb: a request to the server |
//! | 1 | its argument, from `0` |
//! | 2..10 | the flow, in hexadecimal digits |
//! | 10..18 | the number in its flow, likewise |
//! | 18.. | letters that follow from flow and number |

/// Length of a message without content.
pub(crate) const HEADER: usize = 18;

/// The beginning of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Letter {
    pub(crate) verb: u8,
    pub(crate) argument: u8,
    pub(crate) flow: u32,
    pub(crate) number: u32,
}

impl Letter {
    /// The message, with `len` bytes or the least possible.
    pub(crate) fn write(self, len: usize) -> Vec<u8> {
        let Self { verb, argument, flow, number } = self;
        let mut bytes = vec![verb, b'0' + argument];
        bytes.extend(format!("{flow:08x}{number:08x}").bytes());
        let mut content = Content::new(flow, number);
        while bytes.len() < len {
            bytes.extend(content.next());
        }
        bytes.truncate(len.max(HEADER));
        bytes
    }

    /// The letter of a message. `None` if a byte of it is wrong.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        let (header, rest) = bytes.split_at_checked(HEADER)?;
        let hex = |range: core::ops::Range<usize>| {
            core::str::from_utf8(&header[range]).ok().and_then(|digits| u32::from_str_radix(digits, 16).ok())
        };
        let (flow, number) = (hex(2..10)?, hex(10..18)?);
        let mut content = Content::new(flow, number);
        let is_right = rest.chunks(8).all(|piece| content.next().starts_with(piece));
        is_right.then_some(Self { verb: header[0], argument: header[1].checked_sub(b'0')?, flow, number })
    }
}

/// The letters behind a header, eight at a time: xorshift64.
struct Content(u64);

impl Content {
    const fn new(flow: u32, number: u32) -> Self {
        Self(((flow as u64) << 32 | number as u64).wrapping_mul(0xd134_2543_de82_ef95) | 1)
    }

    fn next(&mut self) -> [u8; 8] {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        ((self.0 & 0x0f0f_0f0f_0f0f_0f0f) + 0x6161_6161_6161_6161).to_le_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::{HEADER, Letter};

    #[test]
    fn every_changed_byte_is_noticed() {
        let letter = Letter { verb: b'd', argument: 3, flow: 0x8001_0203, number: 77 };
        for len in [0, HEADER, 19, 100] {
            let bytes = letter.write(len);
            assert_eq!((bytes.len(), Letter::read(&bytes)), (len.max(HEADER), Some(letter)));
            assert!(bytes.is_ascii());
            for at in 0..bytes.len() {
                let mut wrong = bytes.clone();
                wrong[at] ^= 1;
                assert_ne!(Letter::read(&wrong), Some(letter), "{at}");
            }
        }
        assert_eq!(Letter::read(b"d0"), None);
    }
}
