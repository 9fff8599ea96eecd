//! Frame headers (RFC 9113, section 4.1).

use tautline_buf::Buf;

/// Bytes of a frame header.
pub(crate) const HEADER: usize = 9;
/// The connection preface of a client (RFC 9113, section 3.4).
pub(crate) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The largest frame that each end takes without a setting (RFC 9113, section 4.2).
pub(crate) const MAX_FRAME: u32 = 1 << 14;
/// The largest flow-control window (RFC 9113, section 6.9.1).
pub(crate) const MAX_WINDOW: i64 = (1 << 31) - 1;

/// Types of frames.
pub(crate) mod kind {
    pub(crate) const DATA: u8 = 0x0;
    pub(crate) const HEADERS: u8 = 0x1;
    pub(crate) const PRIORITY: u8 = 0x2;
    pub(crate) const RST_STREAM: u8 = 0x3;
    pub(crate) const SETTINGS: u8 = 0x4;
    pub(crate) const PUSH_PROMISE: u8 = 0x5;
    pub(crate) const PING: u8 = 0x6;
    pub(crate) const GOAWAY: u8 = 0x7;
    pub(crate) const WINDOW_UPDATE: u8 = 0x8;
    pub(crate) const CONTINUATION: u8 = 0x9;
    /// RFC 9218, section 7.1.
    pub(crate) const PRIORITY_UPDATE: u8 = 0x10;
}

/// Flags of frames.
pub(crate) mod flag {
    /// Of SETTINGS and PING.
    pub(crate) const ACK: u8 = 0x1;
    /// Of DATA and HEADERS.
    pub(crate) const END_STREAM: u8 = 0x1;
    pub(crate) const END_HEADERS: u8 = 0x4;
    pub(crate) const PADDED: u8 = 0x8;
    pub(crate) const PRIORITY: u8 = 0x20;
}

/// The header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FrameHeader {
    /// Bytes of the payload, at most 24 bits.
    pub(crate) len: u32,
    pub(crate) kind: u8,
    pub(crate) flags: u8,
    /// The stream, or 0 for the connection. The reserved bit is ignored.
    pub(crate) stream: u32,
}

impl FrameHeader {
    pub(crate) const fn parse(bytes: [u8; HEADER]) -> Self {
        let [a, b, c, kind, flags, s, t, u, v] = bytes;
        Self {
            len: u32::from_be_bytes([0, a, b, c]),
            kind,
            flags,
            stream: u32::from_be_bytes([s, t, u, v]) & 0x7fff_ffff,
        }
    }

    pub(crate) const fn bytes(self) -> [u8; HEADER] {
        let [_, a, b, c] = self.len.to_be_bytes();
        let [s, t, u, v] = self.stream.to_be_bytes();
        [a, b, c, self.kind, self.flags, s, t, u, v]
    }

    pub(crate) const fn has(self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

/// Writes a frame with a short payload.
pub(crate) fn put(kind: u8, flags: u8, stream: u32, payload: &[u8], out: &mut Buf) {
    // Payloads of this crate's own control frames have a few bytes.
    let len = u32::try_from(payload.len()).unwrap_or(u32::MAX);
    out.put(&FrameHeader { len, kind, flags, stream }.bytes());
    out.put(payload);
}

#[cfg(test)]
mod tests {
    use super::{FrameHeader, flag, kind};

    #[test]
    fn a_header_is_read_as_it_was_written() {
        let header =
            FrameHeader { len: 0x01_02_03, kind: kind::HEADERS, flags: flag::END_HEADERS, stream: 0x7654_3210 };
        assert_eq!(header.bytes(), [1, 2, 3, 1, 4, 0x76, 0x54, 0x32, 0x10]);
        assert_eq!(FrameHeader::parse(header.bytes()), header);
    }

    #[test]
    fn the_reserved_bit_is_ignored() {
        assert_eq!(FrameHeader::parse([0, 0, 0, 0, 0, 0x80, 0, 0, 1]).stream, 1);
    }
}
