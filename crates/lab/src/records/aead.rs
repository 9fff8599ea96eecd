use super::batch::{Batch, messages};
use crate::Error;
use crate::cpu::timed;
use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use std::time::Duration;

/// Largest plaintext of a TLS record (RFC 8446, section 5.1).
const RECORD: usize = 1 << 14;

/// Header of a record, which TLS 1.3 authenticates together with its content.
const HEADER: [u8; 5] = [23, 3, 3, 0, 0];

/// AES-128-GCM over the bytes of a batch of messages, record by record, in place.
pub(super) struct Aead {
    key: LessSafeKey,
    messages: usize,
    /// Payload of one message.
    size: usize,
    /// The records of all messages, each with room for its tag.
    memory: Vec<u8>,
    /// Length of the tag.
    tag: usize,
}

impl Aead {
    pub(super) fn new(size: usize) -> Result<Self, Error> {
        let key = UnboundKey::new(&AES_128_GCM, &[7; 16]);
        let key = key.map_err(|_| Error::Failed("AWS-LC rejects a key".to_owned()))?;
        let (messages, tag) = (messages(size), AES_128_GCM.tag_len());
        let memory = vec![0; messages * (size + size.div_ceil(RECORD) * tag)];
        Ok(Self { key: LessSafeKey::new(key), messages, size, memory, tag })
    }

    /// Calls `work` with the key, the nonce, the bytes and the plaintext length of each record.
    fn each(&mut self, mut work: impl FnMut(&LessSafeKey, Nonce, &mut [u8], usize) -> bool) -> Result<(), Error> {
        let (mut rest, mut sequence) = (&mut *self.memory, 0_u64);
        for _ in 0..self.messages {
            let mut left = self.size;
            while left > 0 {
                let len = left.min(RECORD);
                let (record, behind) = rest.split_at_mut(len + self.tag);
                let mut nonce = [0; NONCE_LEN];
                nonce[NONCE_LEN - 8..].copy_from_slice(&sequence.to_be_bytes());
                if !work(&self.key, Nonce::assume_unique_for_key(nonce), record, len) {
                    return Err(Error::Failed("the AEAD failed".to_owned()));
                }
                (rest, left, sequence) = (behind, left - len, sequence + 1);
            }
        }
        Ok(())
    }
}

impl Batch for Aead {
    fn run(&mut self) -> Result<(Duration, usize), Error> {
        let (took, ()) = timed(|| {
            self.each(|key, nonce, record, len| {
                let (plain, tag) = record.split_at_mut(len);
                key.seal_in_place_separate_tag(nonce, Aad::from(HEADER), plain)
                    .map(|made| tag.copy_from_slice(made.as_ref()))
                    .is_ok()
            })?;
            self.each(|key, nonce, record, _| {
                key.open_in_place(nonce, Aad::from(HEADER), record).is_ok_and(|plain| plain.first() == Some(&0))
            })
        })?;
        Ok((took, self.messages))
    }
}
