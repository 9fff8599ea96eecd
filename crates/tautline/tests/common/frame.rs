//! WebSocket frames, encoded by the tests themselves.

// First bytes of unfragmented frames: FIN and the opcode.
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

/// A client's close frame.
pub(crate) fn close(code: u16, reason: &str) -> Vec<u8> {
    masked(CLOSE, &[&code.to_be_bytes(), reason.as_bytes()].concat())
}

/// A received frame, unmasked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Frame {
    pub(crate) first: u8,
    pub(crate) payload: Vec<u8>,
}

impl Frame {
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.payload).unwrap()
    }
}

/// The frame at the front of `bytes`, and its length.
pub(crate) fn parse(bytes: &[u8]) -> Option<(Frame, usize)> {
    let (&first, &second) = (bytes.first()?, bytes.get(1)?);
    let (len, mut at) = match second & 0x7f {
        126 => (u64::from(u16::from_be_bytes(bytes.get(2..4)?.try_into().unwrap())), 4),
        127 => (u64::from_be_bytes(bytes.get(2..10)?.try_into().unwrap()), 10),
        len => (u64::from(len), 2),
    };
    let len = usize::try_from(len).unwrap();
    let mut key = [0; 4];
    if second & 0x80 != 0 {
        key.copy_from_slice(bytes.get(at..at + 4)?);
        at += 4;
    }
    let payload = bytes.get(at..at + len)?;
    let payload = payload.iter().zip(key.iter().cycle()).map(|(byte, key)| byte ^ key).collect();
    Some((Frame { first, payload }, at + len))
}
