//! What passes where the kernel seals and opens records itself: the keys it is given, and frames in place of records.
//!
//! A frame is what a record is without protection: one byte of kind, four of length (big-endian), the content. A session
//! whose keys the kernel has writes frames where it wrote records, and reads them; the driver turns them to system calls.

use core::fmt;
use core::hint::black_box;

/// Bytes of a frame in front of its content.
pub const HEAD: usize = 5;

/// A kind of frame: the record that came cannot be opened. Its content is the alert that says so to the peer, one byte.
pub const REFUSED: u8 = 0;

/// A kind of frame, empty: what follows is to be sealed with the next keys that were given for sending.
pub const NEW_KEYS: u8 = 1;

/// A kind of frame: application data. The others are records of that type (RFC 8446, section 5.1), one a frame.
pub const DATA: u8 = 23;

/// The bytes in front of `len` bytes of content.
#[must_use]
pub const fn head(kind: u8, len: u32) -> [u8; HEAD] {
    let [a, b, c, d] = len.to_be_bytes();
    [kind, a, b, c, d]
}

/// Kind and length of the frame at the front of `bytes`; `None` where they end before its content begins.
#[must_use]
pub fn frame(bytes: &[u8]) -> Option<(u8, usize)> {
    let &[kind, a, b, c, d] = bytes.first_chunk()?;
    Some((kind, usize::try_from(u32::from_be_bytes([a, b, c, d])).unwrap_or(usize::MAX)))
}

/// Which half of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// What is sent.
    Transmit,
    /// What is received.
    Receive,
}

/// How the records of TLS 1.3 are protected.
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
    /// Bytes of its key.
    #[must_use]
    pub const fn key_len(self) -> usize {
        match self {
            Self::Aes128Gcm => 16,
            Self::Aes256Gcm | Self::Chacha20Poly1305 => 32,
        }
    }
}

/// What it takes to go on with one direction of a connection. Wiped when it is dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct TrafficKeys {
    /// Which one.
    pub direction: Direction,
    /// Whose key it is.
    pub cipher: Cipher,
    /// The key; its first [`key_len`](Cipher::key_len) bytes count.
    pub key: [u8; 32],
    /// The IV, which the sequence number is laid over (RFC 8446, section 5.3).
    pub iv: [u8; 12],
    /// Records that the key protected so far.
    pub sequence: u64,
}

impl Drop for TrafficKeys {
    fn drop(&mut self) {
        self.key.fill(0);
        self.iv.fill(0);
        // Whoever might look keeps the compiler from leaving the zeros out.
        black_box((&self.key, &self.iv));
    }
}

/// Says nothing of keys.
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
    fn heads_are_read_as_they_were_written() {
        for len in [0, 1, 0x0102_0304, u32::MAX] {
            let head = head(DATA, len);
            assert_eq!(frame(&head), Some((DATA, len as usize)));
            assert_eq!(frame(&head[..4]), None);
        }
    }

    #[test]
    fn keys_are_not_printed() {
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
