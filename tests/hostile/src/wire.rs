//! Bytes of the protocols, written by hand: attackers share no code with the programs that they attack.

// First bytes of frames: FIN and the opcode.
pub(crate) const TEXT: u8 = 0x81;
pub(crate) const BINARY: u8 = 0x82;
pub(crate) const CLOSE: u8 = 0x88;
pub(crate) const PING: u8 = 0x89;
pub(crate) const PONG: u8 = 0x8a;
// First bytes of the first fragment of a text, of a middle fragment, and of the last one.
pub(crate) const TEXT_BEGINS: u8 = 0x01;
pub(crate) const CONTINUES: u8 = 0x00;
pub(crate) const ENDS: u8 = 0x80;
/// The bit of a compressed message's first frame.
pub(crate) const RSV1: u8 = 0x40;

const KEY: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];

/// A frame as a client sends it.
pub(crate) fn masked(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = header(first, 0x80, payload.len() as u64);
    frame.extend(KEY);
    frame.extend(payload.iter().zip(KEY.iter().cycle()).map(|(byte, key)| byte ^ key));
    frame
}

/// A frame as a server sends it.
pub(crate) fn unmasked(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = header(first, 0, payload.len() as u64);
    frame.extend_from_slice(payload);
    frame
}

/// A header that announces `len` bytes, in the shortest form; `mask` is 0x80 or 0.
pub(crate) fn header(first: u8, mask: u8, len: u64) -> Vec<u8> {
    let mut frame = vec![first];
    match (u8::try_from(len), u16::try_from(len)) {
        (Ok(len @ 0..126), _) => frame.push(mask | len),
        (_, Ok(len)) => {
            frame.push(mask | 126);
            frame.extend(len.to_be_bytes());
        }
        _ => {
            frame.push(mask | 127);
            frame.extend(len.to_be_bytes());
        }
    }
    frame
}

/// A masked frame's header with eight bytes of length, whether it needs them or not.
pub(crate) fn long_header(first: u8, len: u64) -> Vec<u8> {
    [&[first, 0x80 | 127][..], &len.to_be_bytes(), &KEY].concat()
}

/// A masked frame's header with two bytes of length, whether it needs them or not.
pub(crate) fn middle_header(first: u8, len: u16) -> Vec<u8> {
    [&[first, 0x80 | 126][..], &len.to_be_bytes(), &KEY].concat()
}

/// A client's close frame.
pub(crate) fn close(code: u16, reason: &[u8]) -> Vec<u8> {
    masked(CLOSE, &[&code.to_be_bytes(), reason].concat())
}

/// An upgrade request with further header lines, each with its CRLF.
pub(crate) fn upgrade(further: &str) -> Vec<u8> {
    format!(
        "GET /chat HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n{further}\r\n"
    )
    .into_bytes()
}

/// A received frame: its first byte and payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) first: u8,
    pub(crate) payload: Vec<u8>,
}

/// The frame at the front of `bytes`, and its length.
pub(crate) fn parse(bytes: &[u8]) -> Option<(Frame, usize)> {
    let (&first, &second) = (bytes.first()?, bytes.get(1)?);
    let (len, at) = match second & 0x7f {
        126 => (u64::from(u16::from_be_bytes(bytes.get(2..4)?.try_into().ok()?)), 4),
        127 => (u64::from_be_bytes(bytes.get(2..10)?.try_into().ok()?), 10),
        len => (u64::from(len), 2),
    };
    let end = usize::try_from(len).ok()?.checked_add(at)?;
    // A masked frame of a server is kept with its key, so that it equals no expectation.
    Some((Frame { first, payload: bytes.get(at..end)?.to_vec() }, end))
}

/// Compresses like permessage-deflate: a raw stream with a sync flush, without its last four bytes.
pub(crate) fn deflated(plain: &[u8]) -> Vec<u8> {
    let mut squeezer = flate2::Compress::new(flate2::Compression::best(), false);
    let mut out = Vec::with_capacity(plain.len() / 100 + 1024);
    loop {
        let used = usize::try_from(squeezer.total_in()).unwrap_or(usize::MAX);
        let rest = plain.get(used..).unwrap_or_default();
        let status = squeezer.compress_vec(rest, &mut out, flate2::FlushCompress::Sync);
        if status.is_err() || out.len() < out.capacity() {
            break;
        }
        out.reserve(out.capacity());
    }
    out.truncate(out.len().saturating_sub(4));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_the_frames_of_rfc_6455() {
        // Section 5.7.
        assert_eq!(masked(TEXT, b"Hello"), [0x81, 0x85, 0x37, 0xfa, 0x21, 0x3d, 0x7f, 0x9f, 0x4d, 0x51, 0x58]);
        assert_eq!(unmasked(BINARY, &[0; 256])[..4], [0x82, 0x7e, 1, 0]);
        assert_eq!(unmasked(BINARY, &[0; 65_536])[..10], [0x82, 0x7f, 0, 0, 0, 0, 0, 1, 0, 0]);
        assert_eq!(parse(&unmasked(TEXT, b"Hello")), Some((Frame { first: TEXT, payload: b"Hello".to_vec() }, 7)));
        assert_eq!(parse(&unmasked(TEXT, b"Hello")[..6]), None);
    }

    #[test]
    fn compresses_as_rfc_7692_shows() {
        // Section 7.2.3.1, but with the flate2 library's choice of a block.
        let mut all = deflated(b"Hello");
        all.extend([0, 0, 0xff, 0xff]);
        let mut plain = Vec::with_capacity(100);
        flate2::Decompress::new(false).decompress_vec(&all, &mut plain, flate2::FlushDecompress::Sync).unwrap();
        assert_eq!(plain, b"Hello");
        assert!(deflated(&vec![0; 16 << 20]).len() < 20_000);
    }
}
