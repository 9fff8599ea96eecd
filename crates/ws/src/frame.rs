use crate::Error;
use crate::mask::{copy, mask_copy};
use tautline_buf::Buf;

/// The kind of a message: text or binary.
///
/// ```
/// # mod tautline { pub use tautline_ws::Kind; pub mod layers { pub use tautline_ws as ws; } }
/// use tautline::layers::ws::Opcode;
/// use tautline::Kind;
///
/// assert_eq!(Opcode::from(Kind::Text), Opcode::Text);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// UTF-8 text.
    Text,
    /// Any bytes.
    Binary,
}

/// The opcode of a frame (RFC 6455, section 5.2), except for the reserved ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Opcode {
    /// Continues the message that a text or binary frame began.
    Continuation = 0x0,
    /// Begins a text message.
    Text = 0x1,
    /// Begins a binary message.
    Binary = 0x2,
    /// Begins the closing handshake, or answers it.
    Close = 0x8,
    /// Requests a pong with the same payload.
    Ping = 0x9,
    /// Answers a ping, or shows unsolicited that the sender is alive.
    Pong = 0xa,
}

impl Opcode {
    /// Whether this is a close, ping or pong frame: at most 125 bytes, never fragmented, allowed between fragments.
    #[must_use]
    pub const fn is_control(self) -> bool {
        self as u8 & 0x8 != 0
    }

    pub(crate) const fn parse(nibble: u8) -> Result<Self, Error> {
        Ok(match nibble {
            0x0 => Self::Continuation,
            0x1 => Self::Text,
            0x2 => Self::Binary,
            0x8 => Self::Close,
            0x9 => Self::Ping,
            0xa => Self::Pong,
            _ => return Err(Error::ReservedOpcode(nibble)),
        })
    }
}

impl From<Kind> for Opcode {
    fn from(kind: Kind) -> Self {
        match kind {
            Kind::Text => Self::Text,
            Kind::Binary => Self::Binary,
        }
    }
}

/// A frame's header (RFC 6455, section 5.2).
///
/// ```text
///  0 1 2 3   4..7     8     9..15
/// +-+-+-+-+--------+------+---------+---------------------+-----------------+
/// |F|R|0 0| opcode | mask | length  | 16 or 64 bits of    | masking key, if |
/// |I|S|   | 4 bits |      | 7 bits  | length, if 126, 127 | the mask bit is |
/// |N|V|   |        |      |         |                     | set             |
/// +-+-+-+-+--------+------+---------+---------------------+-----------------+
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The message ends with this frame.
    pub fin: bool,
    /// The message is compressed (RFC 7692, section 6); set only on its first frame.
    pub rsv1: bool,
    /// The opcode.
    pub opcode: Opcode,
    /// The masking key of a client's frame.
    pub key: Option<[u8; 4]>,
    /// Length of the payload in bytes, below 2^63.
    pub len: u64,
}

impl Header {
    /// Longest header in bytes: 2, plus 8 of length, plus 4 of key.
    pub const MAX_LEN: usize = 14;

    /// Parses the header at the front of `bytes` and returns its length; `None` if it is incomplete.
    ///
    /// This checks every rule for a frame by itself. The [`Decoder`](crate::Decoder) checks whether RSV1, mask and
    /// opcode fit the connection and the message in progress.
    ///
    /// # Errors
    /// RSV2 or RSV3 is set, the opcode is reserved, or the length is not minimal or too large. A control frame is
    /// fragmented or longer than 125 bytes. A fault in the first two bytes is found without the others.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<Option<(Self, usize)>, Error> {
        let [first, second, rest @ ..] = bytes else { return Ok(None) };
        //= https://www.rfc-editor.org/rfc/rfc6455#section-5.2
        //# MUST be 0 unless an extension is negotiated that defines meanings for non-zero values.
        if first & 0x30 != 0 {
            return Err(Error::ReservedBits);
        }
        let opcode = Opcode::parse(first & 0x0f)?;
        let fin = first & 0x80 != 0;
        let short = second & 0x7f;
        //= https://www.rfc-editor.org/rfc/rfc6455#section-5.5
        //# All control frames MUST have a payload length of 125 bytes or less and MUST NOT be fragmented.
        if opcode.is_control() {
            if !fin {
                return Err(Error::ControlFragmented);
            }
            if short > 125 {
                return Err(Error::ControlTooLong);
            }
        }
        let Some((len, rest)) = parse_len(short, rest)? else { return Ok(None) };
        let (key, rest) = if second & 0x80 == 0 {
            (None, rest)
        } else {
            let Some((key, rest)) = rest.split_first_chunk() else { return Ok(None) };
            (Some(*key), rest)
        };
        let header = Self { fin, rsv1: first & 0x40 != 0, opcode, key, len };
        Ok(Some((header, bytes.len() - rest.len())))
    }

    /// Writes the header, its length field in as few bytes as possible, and returns how long the header is.
    #[inline]
    pub fn encode_to(&self, out: &mut [u8; Self::MAX_LEN]) -> usize {
        out[0] = u8::from(self.fin) << 7 | u8::from(self.rsv1) << 6 | self.opcode as u8;
        let mask = u8::from(self.key.is_some()) << 7;
        //= https://www.rfc-editor.org/rfc/rfc6455#section-5.2
        //# the minimal number of bytes MUST be used to encode the length
        let end = match (u8::try_from(self.len), u16::try_from(self.len)) {
            (Ok(len @ ..=125), _) => {
                out[1] = mask | len;
                2
            }
            (_, Ok(len)) => {
                out[1] = mask | 126;
                out[2..4].copy_from_slice(&len.to_be_bytes());
                4
            }
            _ => {
                out[1] = mask | 127;
                out[2..10].copy_from_slice(&self.len.to_be_bytes());
                10
            }
        };
        let Some(key) = self.key else { return end };
        out[end..end + 4].copy_from_slice(&key);
        end + 4
    }

    /// Appends the header and `payload`, masked if the header has a key.
    #[inline]
    pub(crate) fn put_frame(&self, payload: &[u8], out: &mut Buf) {
        let mut head = [0; Self::MAX_LEN];
        let start = self.encode_to(&mut head);
        let free = out.reserve(Self::MAX_LEN + payload.len());
        // A copy of fixed size compiles to two moves. The payload then overwrites the bytes behind the header.
        free[..Self::MAX_LEN].copy_from_slice(&head);
        let body = &mut free[start..start + payload.len()];
        match self.key {
            Some(key) => mask_copy(payload, body, key),
            None => copy(payload, body),
        }
        out.commit(start + payload.len());
    }

    /// Length of a header, by its second byte.
    pub(crate) const fn len_of(second: u8) -> usize {
        let len = match second & 0x7f {
            126 => 4,
            127 => 10,
            _ => 2,
        };
        if second & 0x80 == 0 { len } else { len + 4 }
    }
}

/// Parses the length that the 7 bits `short` begin, and returns the bytes behind it; `None` if it is incomplete.
#[inline]
fn parse_len(short: u8, bytes: &[u8]) -> Result<Option<(u64, &[u8])>, Error> {
    //= https://www.rfc-editor.org/rfc/rfc6455#section-5.2
    //# the minimal number of bytes MUST be used to encode the length
    match short {
        126 => {
            let Some((len, rest)) = bytes.split_first_chunk() else { return Ok(None) };
            let len = u16::from_be_bytes(*len);
            if len < 126 { Err(Error::LengthNotMinimal) } else { Ok(Some((u64::from(len), rest))) }
        }
        127 => {
            let Some((len, rest)) = bytes.split_first_chunk() else { return Ok(None) };
            let len = u64::from_be_bytes(*len);
            //= https://www.rfc-editor.org/rfc/rfc6455#section-5.2
            //# the most significant bit MUST be 0
            if len >> 63 != 0 {
                return Err(Error::LengthTooLarge);
            }
            if len <= 0xffff { Err(Error::LengthNotMinimal) } else { Ok(Some((len, rest))) }
        }
        len => Ok(Some((u64::from(len), bytes))),
    }
}

#[cfg(test)]
mod tests {
    use super::{Header, Opcode};
    use crate::Error;
    use proptest::prelude::*;

    /// Section 5.2 again, bit by bit.
    fn oracle(bytes: &[u8]) -> Result<Option<(Header, usize)>, Error> {
        if bytes.len() < 2 {
            return Ok(None);
        }
        let bit = |n: usize| bytes[n / 8] >> (7 - n % 8) & 1 == 1;
        if bit(2) || bit(3) {
            return Err(Error::ReservedBits);
        }
        let opcode = match bytes[0] % 16 {
            0 => Opcode::Continuation,
            1 => Opcode::Text,
            2 => Opcode::Binary,
            8 => Opcode::Close,
            9 => Opcode::Ping,
            10 => Opcode::Pong,
            other => return Err(Error::ReservedOpcode(other)),
        };
        let short = bytes[1] % 128;
        if bytes[0] % 16 >= 8 && !bit(0) {
            return Err(Error::ControlFragmented);
        }
        if bytes[0] % 16 >= 8 && short > 125 {
            return Err(Error::ControlTooLong);
        }
        let extra = match short {
            126 => 2,
            127 => 8,
            _ => 0,
        };
        if bytes.len() < 2 + extra {
            return Ok(None);
        }
        let extended = bytes[2..2 + extra].iter().fold(0_u64, |len, byte| len * 256 + u64::from(*byte));
        let len = if extra == 0 { u64::from(short) } else { extended };
        if len > i64::MAX as u64 {
            return Err(Error::LengthTooLarge);
        }
        if extra == 2 && len <= 125 || extra == 8 && len <= 65535 {
            return Err(Error::LengthNotMinimal);
        }
        let key_at = 2 + extra;
        let total = if bit(8) { key_at + 4 } else { key_at };
        if bytes.len() < total {
            return Ok(None);
        }
        let key = bit(8).then(|| bytes[key_at..total].try_into().unwrap());
        Ok(Some((Header { fin: bit(0), rsv1: bit(1), opcode, key, len }, total)))
    }

    #[test]
    fn parses_every_pair_of_first_bytes_like_the_oracle() {
        for first in 0..=255 {
            for second in 0..=255 {
                for fill in [0, 1, 0x7f, 0x80, 0xff] {
                    let mut bytes = [fill; 16];
                    bytes[..2].copy_from_slice(&[first, second]);
                    for len in [0, 1, 2, 3, 5, 9, 13, 16] {
                        assert_eq!(Header::parse(&bytes[..len]), oracle(&bytes[..len]), "{:x?}", &bytes[..len]);
                    }
                }
                assert_eq!(Header::len_of(second), {
                    let mut bytes = [0x7f; 16];
                    bytes[..2].copy_from_slice(&[0x82, second]);
                    oracle(&bytes).unwrap().unwrap().1
                });
            }
        }
    }

    #[test]
    fn rejects_lengths_that_are_not_minimal_or_too_large() {
        assert_eq!(Header::parse(b"\x82\x7e\x00\x7d"), Err(Error::LengthNotMinimal));
        assert!(Header::parse(b"\x82\x7e\x00\x7e").unwrap().is_some());
        assert_eq!(Header::parse(b"\x82\x7f\0\0\0\0\0\0\xff\xff"), Err(Error::LengthNotMinimal));
        assert_eq!(Header::parse(b"\x82\x7f\0\0\0\0\0\x01\0\0").unwrap().unwrap().0.len, 65536);
        assert_eq!(Header::parse(b"\x82\x7f\x7f\xff\xff\xff\xff\xff\xff\xff").unwrap().unwrap().0.len, (1 << 63) - 1);
        assert_eq!(Header::parse(b"\x82\x7f\x80\0\0\0\0\0\0\0"), Err(Error::LengthTooLarge));
    }

    proptest! {
        #[test]
        fn parses_arbitrary_bytes_like_the_oracle(bytes in prop::collection::vec(any::<u8>(), 0..20)) {
            prop_assert_eq!(Header::parse(&bytes), oracle(&bytes));
        }

        #[test]
        fn parse_reverses_encode_to(
            fin: bool,
            rsv1: bool,
            opcode in prop::sample::select(&[Opcode::Continuation, Opcode::Text, Opcode::Binary][..]),
            key: Option<[u8; 4]>,
            len in prop_oneof![0..300_u64, 65_500..65_600_u64, 0..1_u64 << 63],
        ) {
            let header = Header { fin, rsv1, opcode, key, len };
            let mut bytes = [0; Header::MAX_LEN];
            let n = header.encode_to(&mut bytes);
            prop_assert_eq!(Header::parse(&bytes[..n]), Ok(Some((header, n))));
            prop_assert_eq!(Header::parse(&bytes[..n - 1]), Ok(None));
        }
    }
}
