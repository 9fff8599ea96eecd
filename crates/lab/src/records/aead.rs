use super::batch::{Batch, messages};
use crate::Error;
use crate::cpu::timed;
use std::time::Duration;
use tautline::layers::tls_records::Suite;
use tautline::layers::tls_records::aead::{Context, Provider};

/// Largest plaintext of a TLS record (RFC 8446, section 5.1).
const RECORD: usize = 1 << 14;

/// Header of a record, which TLS 1.3 authenticates together with its content.
const HEADER: [u8; 5] = [23, 3, 3, 0, 0];

/// Length of a nonce and of a tag.
const NONCE: usize = 12;
const TAG: usize = 16;

/// AES-128-GCM over the bytes of a batch of messages, record by record, in place.
pub(super) struct Aead {
    context: Context,
    messages: usize,
    /// Payload of one message.
    size: usize,
    /// The records of all messages, each with room for its tag.
    memory: Vec<u8>,
}

impl Aead {
    pub(super) fn new(provider: Provider, size: usize) -> Result<Self, Error> {
        let context = Context::new(provider, Suite::Aes128Gcm, &[7; 16]).map_err(Error::failed)?;
        let messages = messages(size);
        let memory = vec![0; messages * (size + size.div_ceil(RECORD) * TAG)];
        Ok(Self { context, messages, size, memory })
    }

    /// Calls `work` with the context, the nonce and the bytes of each record, which end with the tag.
    fn each(&mut self, mut work: impl FnMut(&Context, [u8; NONCE], &mut [u8]) -> bool) -> Result<(), Error> {
        let (mut rest, mut sequence) = (&mut *self.memory, 0_u64);
        for _ in 0..self.messages {
            let mut left = self.size;
            while left > 0 {
                let len = left.min(RECORD);
                let (record, behind) = rest.split_at_mut(len + TAG);
                let mut nonce = [0; NONCE];
                nonce[NONCE - 8..].copy_from_slice(&sequence.to_be_bytes());
                if !work(&self.context, nonce, record) {
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
            self.each(|context, nonce, record| context.seal_in_place(nonce, HEADER, record).is_some())?;
            self.each(|context, nonce, record| {
                context.open(nonce, HEADER, record).is_some() && record.first() == Some(&0)
            })
        })?;
        Ok((took, self.messages))
    }
}
