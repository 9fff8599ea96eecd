//! Bytes of HTTP/2 (RFC 9113), written by hand, and streams as an attacker or an honest client sees them.

use crate::seen::Seen;
use crate::wire::{Frame, PONG};

// Types of frames (section 6).
pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const PRIORITY: u8 = 2;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;
/// RFC 9218, section 7.1.
pub(crate) const PRIORITY_UPDATE: u8 = 0x10;

// Flags.
pub(crate) const ACK: u8 = 1;
pub(crate) const END_STREAM: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;
pub(crate) const PADDED: u8 = 8;
pub(crate) const HAS_PRIORITY: u8 = 0x20;

// Error codes (section 7).
pub(crate) const PROTOCOL_ERROR: u32 = 1;
pub(crate) const FLOW_CONTROL_ERROR: u32 = 3;
pub(crate) const STREAM_CLOSED: u32 = 5;
pub(crate) const FRAME_SIZE_ERROR: u32 = 6;
pub(crate) const REFUSED_STREAM: u32 = 7;
pub(crate) const COMPRESSION_ERROR: u32 = 9;
pub(crate) const ENHANCE_YOUR_CALM: u32 = 11;

/// The stream of an honest client's WebSocket.
pub(crate) const STREAM: u32 = 1;
/// Bytes after which an honest client returns the windows.
const RETURN: u32 = 16 << 10;

/// The first bytes of a client: the preface, and settings without a value.
pub(crate) fn preface() -> Vec<u8> {
    [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &frame(SETTINGS, 0, 0, &[])].concat()
}

pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let [_, len @ ..] = u32::try_from(payload.len()).unwrap_or(u32::MAX).to_be_bytes();
    [&len[..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// A literal field without an entry in the table (RFC 7541, section 6.2.2), shorter than 2^14 bytes.
pub(crate) fn field(name: &[u8], value: &[u8]) -> Vec<u8> {
    [&[0][..], &string(name), &string(value)].concat()
}

/// A string without Huffman's code (RFC 7541, section 5.2).
pub(crate) fn string(text: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    match u8::try_from(text.len()) {
        Ok(len @ ..127) => bytes.push(len),
        _ => {
            bytes.push(127);
            let mut rest = text.len() - 127;
            while rest >= 128 {
                bytes.push(u8::try_from(rest % 128).unwrap_or(0) | 128);
                rest /= 128;
            }
            bytes.push(u8::try_from(rest).unwrap_or(0));
        }
    }
    bytes.extend_from_slice(text);
    bytes
}

/// The fields of a request by this method.
pub(crate) fn fields(method: &[u8]) -> Vec<u8> {
    [field(b":method", method), field(b":scheme", b"https"), field(b":path", b"/"), field(b":authority", b"localhost")]
        .concat()
}

/// A request that opens a WebSocket (RFC 8441).
pub(crate) fn websocket(stream: u32) -> Vec<u8> {
    let fields =
        [fields(b"CONNECT"), field(b":protocol", b"websocket"), field(b"sec-websocket-version", b"13")].concat();
    frame(HEADERS, END_HEADERS, stream, &fields)
}

/// A request for `/`.
pub(crate) fn get(stream: u32) -> Vec<u8> {
    frame(HEADERS, END_HEADERS | END_STREAM, stream, &fields(b"GET"))
}

/// A request whose body does not come.
pub(crate) fn post(stream: u32) -> Vec<u8> {
    frame(HEADERS, END_HEADERS, stream, &fields(b"POST"))
}

pub(crate) fn reset(stream: u32) -> Vec<u8> {
    frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes())
}

pub(crate) fn window(stream: u32, more: u32) -> Vec<u8> {
    frame(WINDOW_UPDATE, 0, stream, &more.to_be_bytes())
}

/// One setting: its number and its value.
pub(crate) fn setting(id: u16, value: u32) -> Vec<u8> {
    frame(SETTINGS, 0, 0, &[&id.to_be_bytes()[..], &value.to_be_bytes()].concat())
}

/// The priority of a stream (RFC 9218).
pub(crate) fn priority_update(stream: u32, value: &[u8]) -> Vec<u8> {
    frame(PRIORITY_UPDATE, 0, 0, &[&stream.to_be_bytes()[..], value].concat())
}

/// A ping whose answer shows that the connection is in order.
pub(crate) fn ping() -> Vec<u8> {
    frame(PING, 0, 0, b"attacker")
}

/// The streams of a connection, as far as a client reads them.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    bytes: Vec<u8>,
    /// Whether the client is honest: it has one stream, acknowledges settings and returns windows.
    is_honest: bool,
    taken: u32,
}

impl Streams {
    pub(crate) fn honest() -> Self {
        Self { is_honest: true, ..Self::default() }
    }

    /// Reads what has come. Appends the bytes of an honest client's WebSocket to `plain`, and what it owes to `owed`.
    pub(crate) fn read(&mut self, bytes: &[u8], seen: &mut Seen, plain: &mut Vec<u8>, owed: &mut Vec<u8>) {
        self.bytes.extend_from_slice(bytes);
        let mut at = 0;
        while let Some([_, high, low, kind, flags, id @ ..]) = self.bytes[at..].first_chunk::<9>()
            && let end = at + 9 + (usize::from(*high) << 8) + usize::from(*low)
            && let Some(payload) = self.bytes.get(at + 9..end)
        {
            let stream = u32::from_be_bytes(*id);
            let number = payload.first_chunk().copied().map_or(0, u32::from_be_bytes);
            match *kind {
                DATA if self.is_honest => {
                    plain.extend_from_slice(payload);
                    self.taken += u32::try_from(payload.len()).unwrap_or(0);
                    if self.taken >= RETURN {
                        owed.extend([window(0, self.taken), window(stream, self.taken)].concat());
                        self.taken = 0;
                    }
                }
                HEADERS => seen.status = status(payload),
                SETTINGS if flags & ACK == 0 && self.is_honest => owed.extend(frame(SETTINGS, ACK, 0, &[])),
                PING if flags & ACK != 0 => seen.frames.push(Frame { first: PONG, payload: payload.to_vec() }),
                RST_STREAM => seen.resets.push(number),
                GOAWAY => {
                    seen.go_away =
                        payload.get(4..8).and_then(|code| code.first_chunk()).copied().map(u32::from_be_bytes)
                }
                _ => {}
            }
            let ends = matches!(*kind, HEADERS | DATA) && flags & END_STREAM != 0 || *kind == RST_STREAM;
            seen.ended += usize::from(ends);
            at = end;
        }
        self.bytes.drain(..at);
    }
}

/// The status at the front of a field section, if the server has encoded it without Huffman's code.
fn status(fields: &[u8]) -> Option<u16> {
    let value = match fields {
        [known @ 0x88..=0x8e, ..] => return Some([200, 204, 206, 304, 400, 404, 500][usize::from(known - 0x88)]),
        // A literal whose name is one of those entries, or spelled out.
        [0x08..=0x0e | 0x48..=0x4e, value @ ..] => value,
        [0x00 | 0x40, 7, rest @ ..] => rest.strip_prefix(b":status")?,
        // A change of the table's size comes first.
        [0x20..=0x3e, rest @ ..] => return status(rest),
        _ => return None,
    };
    let [3, digits @ ..] = value else { return None };
    std::str::from_utf8(digits.get(..3)?).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_fields_of_rfc_7541() {
        // C.2.2, but with the name as a literal too, and C.1.2.
        assert_eq!(field(b":path", b"/a"), *b"\0\x05:path\x02/a");
        assert_eq!(string(&[b'x'; 1_337 + 96])[..3], [127, 0x80 | 26, 10]);
        assert_eq!(frame(PING, ACK, 0, b"12345678")[..9], [0, 0, 8, 6, 1, 0, 0, 0, 0]);
    }

    #[test]
    fn reads_frames_in_pieces() {
        let sent = [frame(HEADERS, 4, 1, b"\x88"), frame(GOAWAY, 0, 0, &[0, 0, 0, 1, 0, 0, 0, 11])].concat();
        let (mut streams, mut seen) = (Streams::default(), Seen::default());
        for byte in sent {
            streams.read(&[byte], &mut seen, &mut Vec::new(), &mut Vec::new());
        }
        assert_eq!((seen.status, seen.go_away, seen.ended), (Some(200), Some(11), 0));
        for fields in [&b"\x48\x03431"[..], b"\x20\x0e\x03431", b"\0\x07:status\x03431"] {
            assert_eq!(status(fields), Some(431));
        }
    }
}
