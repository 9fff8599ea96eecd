//! The place in the bytes of a peer.

use crate::frame::FrameHeader;

/// The meaning of the next bytes.
#[derive(Debug)]
pub(crate) enum Expect {
    /// The client's preface, of which so many bytes have arrived.
    Preface(usize),
    /// The header of a frame.
    Header,
    /// The payload of a frame.
    Payload(FrameHeader),
    /// The payload of a DATA frame.
    Data(Data),
    /// Bytes that lead to nothing.
    Skip(u32),
}

/// The rest of a DATA frame.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Data {
    pub(crate) stream: u32,
    /// Bytes without the padding, and without its length once that is known.
    pub(crate) left: u32,
    /// Whether the length of the padding comes next.
    pub(crate) is_padded: bool,
    pub(crate) padding: u32,
    pub(crate) end: bool,
}

/// A field section of which frames are missing.
#[derive(Debug)]
pub(crate) struct Block {
    pub(crate) stream: u32,
    pub(crate) end: bool,
    /// Whether the stream depends on itself by its priority.
    pub(crate) on_itself: bool,
    pub(crate) bytes: Vec<u8>,
    pub(crate) frames: u32,
}
