//! The header of a block:
//!
//! | bytes | content |
//! |---|---|
//! | 4 | `TBLK` |
//! | 4 | length of the compressed content |
//! | 4 | length of the content |
//! | 4 | number of events |
//! | 8 | the stamp that the first event's is relative to |
//! | 4 | CRC-32 of the compressed content |
//! | 4 | CRC-32 of the bytes before |
//!
//! Integers have their lowest byte first.

/// The first bytes of a recording. The last one is the version of the format.
pub const PREAMBLE: [u8; 8] = *b"TAUTREC\x01";

/// Bytes of the largest payload that a recording takes.
pub const MAX_PAYLOAD: usize = 16 << 20;

/// Bytes of the largest content of a block: one with the largest payload.
pub(super) const MAX_CONTENT: usize = MAX_PAYLOAD + 64;

/// The first bytes of a block.
pub(super) const MARK: [u8; 4] = *b"TBLK";

/// Bytes of a header.
pub(super) const HEADER: usize = 32;

/// A block's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) compressed: u32,
    pub(super) content: u32,
    pub(super) events: u32,
    pub(super) first: u64,
    pub(super) checksum: u32,
}

impl Header {
    pub(super) fn to_bytes(self) -> [u8; HEADER] {
        let Self { compressed, content, events, first, checksum } = self;
        let mut bytes = [0; HEADER];
        let parts: [&[u8]; 6] = [
            &MARK,
            &compressed.to_le_bytes(),
            &content.to_le_bytes(),
            &events.to_le_bytes(),
            &first.to_le_bytes(),
            &checksum.to_le_bytes(),
        ];
        for (place, byte) in bytes.iter_mut().zip(parts.into_iter().flatten()) {
            *place = *byte;
        }
        if let Some((front, back)) = bytes.split_last_chunk_mut::<4>() {
            *back = crc32fast::hash(front).to_le_bytes();
        }
        bytes
    }

    /// Reads the header that bytes begin with. They hold one if it is right.
    pub(super) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let header = bytes.first_chunk::<HEADER>()?;
        let (front, back) = header.split_last_chunk::<4>()?;
        let integer = |at: usize| header.get(at..).and_then(<[u8]>::first_chunk).copied().map(u32::from_le_bytes);
        let first = header.get(16..).and_then(<[u8]>::first_chunk).copied().map(u64::from_le_bytes)?;
        let read =
            Self { compressed: integer(4)?, content: integer(8)?, events: integer(12)?, first, checksum: integer(24)? };
        let is_right = header.starts_with(&MARK)
            && crc32fast::hash(front) == u32::from_le_bytes(*back)
            && read.content as usize <= MAX_CONTENT
            && read.compressed as usize <= zstd::zstd_safe::compress_bound(MAX_CONTENT);
        is_right.then_some(read)
    }
}
