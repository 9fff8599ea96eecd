//! Keys and frames for connections whose TLS records the kernel seals or opens (kernel TLS).
//!
//! A frame is a record without protection: one byte of kind, four bytes of length (big-endian), then the content. Once
//! the kernel has a session's keys, the session writes and reads frames in place of records. The driver turns these
//! frames into system calls.

use core::fmt;
use core::hint::black_box;

/// Length of a frame's head in bytes: kind and length.
pub const HEAD: usize = 5;

/// The kind of a frame for a received record that the kernel could not open.
///
/// Its content is one byte: the alert to send to the peer.
pub const REFUSED: u8 = 0;

/// The kind of a frame that switches the sending keys; it has no content.
///
/// The frames behind it are sealed with the next keys that the driver was given for sending.
pub const NEW_KEYS: u8 = 1;

/// The kind of a frame with application data.
///
/// Every other kind is a content type of TLS (RFC 8446, section 5.1); such a frame holds one record.
pub const DATA: u8 = 23;

/// Makes the head of a frame with `len` bytes of content.
#[must_use]
pub const fn head(kind: u8, len: u32) -> [u8; HEAD] {
    let [a, b, c, d] = len.to_be_bytes();
    [kind, a, b, c, d]
}

/// Reads kind and length of the frame at the front of `bytes`; `None` if its head is incomplete.
#[must_use]
pub fn frame(bytes: &[u8]) -> Option<(u8, usize)> {
    let &[kind, a, b, c, d] = bytes.first_chunk()?;
    Some((kind, usize::try_from(u32::from_be_bytes([a, b, c, d])).unwrap_or(usize::MAX)))
}

/// One direction of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From this end to the peer.
    Transmit,
    /// From the peer to this end.
    Receive,
}

/// An AEAD of TLS 1.3.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cipher {
    /// AES-GCM with a key of 16 bytes.
    Aes128Gcm,
    /// AES-GCM with a key of 32 bytes.
    Aes256Gcm,
    /// ChaCha20-Poly1305, key of 32 bytes.
    Chacha20Poly1305,
}

impl Cipher {
    /// Length of the key in bytes.
    #[must_use]
    pub const fn key_len(self) -> usize {
        match self {
            Self::Aes128Gcm => 16,
            Self::Aes256Gcm | Self::Chacha20Poly1305 => 32,
        }
    }
}

/// The key material that the kernel needs for one direction; wiped on drop.
#[derive(Clone, PartialEq, Eq)]
pub struct TrafficKeys {
    /// The direction that these keys protect.
    pub direction: Direction,
    /// The AEAD that they are for.
    pub cipher: Cipher,
    /// The key: the first [`key_len`](Cipher::key_len) bytes; the others are unused.
    pub key: [u8; 32],
    /// The IV, which is XORed with the sequence number (RFC 8446, section 5.3).
    pub iv: [u8; 12],
    /// Sequence number of the next record: how many records the key has protected.
    pub sequence: u64,
}

impl Drop for TrafficKeys {
    fn drop(&mut self) {
        self.key.fill(0);
        self.iv.fill(0);
        // A reader that the compiler cannot rule out: without one, it would drop the zeros as dead stores.
        black_box((&self.key, &self.iv));
    }
}

/// Omits key and IV.
impl fmt::Debug for TrafficKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { direction, cipher, sequence, .. } = self;
        f.debug_struct("TrafficKeys")
            .field("direction", direction)
            .field("cipher", cipher)
            .field("sequence", sequence)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::{Cipher, DATA, Direction, TrafficKeys, frame, head};
    use alloc::format;

    #[test]
    fn frame_reads_what_head_wrote() {
        for len in [0, 1, 0x0102_0304, u32::MAX] {
            let head = head(DATA, len);
            assert_eq!(frame(&head), Some((DATA, len as usize)));
            assert_eq!(frame(&head[..4]), None);
        }
    }

    #[test]
    fn debug_output_omits_key_and_iv() {
        let keys = TrafficKeys {
            direction: Direction::Transmit,
            cipher: Cipher::Aes128Gcm,
            key: [77; 32],
            iv: [78; 12],
            sequence: 5,
        };
        let printed = format!("{keys:?}");
        assert!(printed.contains("Transmit") && !printed.contains("77") && !printed.contains("78"), "{printed}");
    }
}
