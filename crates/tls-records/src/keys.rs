mod shared;

use crate::contexts::Claim;
use crate::schedule::{IV, Key, Secret, Suite};
use aws_lc_rs::aead::{Aad, LessSafeKey, Nonce};
use tautline_tls::Error;
use tautline_tls::record::HEADER;
use tautline_window::kernel::{Cipher, Direction, TrafficKeys};
use zeroize::Zeroize;

/// Bytes of the tag, which is the same for all suites of TLS 1.3.
const TAG: usize = 16;

/// Bytes that a record is longer than its content: header, content type, tag.
pub(crate) const OVERHEAD: usize = HEADER + 1 + TAG;

/// The keys of one direction, and how many records they protected. Wiped when they are dropped.
///
/// What a record needs comes first: where its context is at hand, the rest is not touched.
#[repr(C)]
pub struct Keys {
    sequence: u64,
    claim: Claim,
    iv: [u8; IV],
    key: Key,
    secret: Secret,
}

impl Keys {
    /// The `key` and `iv` that somebody derived from `secret`, which protected `sequence` records.
    ///
    /// # Errors
    /// [`Error::Library`] where they come from another secret, [`Error::ApiMisuse`] where they have a wrong length.
    pub fn new(suite: Suite, secret: Secret, key: &[u8], iv: &[u8], sequence: u64) -> Result<Self, Error> {
        // Whatever goes wrong with how the secret got here, it must not be noticed at the first key update.
        if secret.iv(suite)? != *iv {
            return Err(Error::Library("the traffic secret is not that of the keys".to_owned()));
        }
        let key = Key::new(key).ok_or(Error::ApiMisuse("a traffic key is too long"))?;
        Self::from_parts(sequence, key, iv, secret)
    }

    /// The keys that `secret` stands for, which protected `sequence` records.
    ///
    /// # Errors
    /// [`Error::ApiMisuse`] where nothing can be derived from it.
    pub fn derive(suite: Suite, secret: Secret, sequence: u64) -> Result<Self, Error> {
        Self::from_parts(sequence, secret.key(suite)?, &secret.iv(suite)?, secret)
    }

    /// As a kernel would have them, which knows no secrets.
    #[cfg(test)]
    pub(crate) fn of_kernel(keys: &TrafficKeys) -> Option<Self> {
        let key = Key::new(&keys.key[..keys.cipher.key_len()])?;
        Self::from_parts(keys.sequence, key, &keys.iv, Secret::new(&[])?).ok()
    }

    fn from_parts(sequence: u64, key: Key, iv: &[u8], secret: Secret) -> Result<Self, Error> {
        let iv = iv.try_into().map_err(|_| Error::ApiMisuse("an IV has the wrong length"))?;
        Ok(Self { sequence, claim: Claim::new(), iv, key, secret })
    }

    /// RFC 8446, section 7.2.
    pub(crate) fn update(&mut self, suite: Suite) -> Result<(), Error> {
        *self = Self::derive(suite, self.secret.next(suite)?, 0)?;
        Ok(())
    }

    /// Records that these keys protected.
    pub(crate) const fn sequence(&self) -> u64 {
        self.sequence
    }

    /// The kernel protected so many records more.
    pub(crate) const fn count(&mut self, records: usize) {
        self.sequence = self.sequence.saturating_add(records as u64);
    }

    /// What the kernel needs to go on with them.
    pub(crate) const fn for_kernel(&self, direction: Direction, cipher: Cipher) -> TrafficKeys {
        TrafficKeys { direction, cipher, key: *self.key.bytes(), iv: self.iv, sequence: self.sequence }
    }

    /// What these keys come from.
    pub(crate) fn secret(&self, suite: Suite) -> &[u8] {
        self.secret.bytes(suite)
    }

    /// Opens a record's body, which lies behind its header, in place; gives the length of content, type and padding.
    /// `None` where it does not authenticate, of which nothing is left then.
    pub(crate) fn open(&mut self, suite: Suite, body: &mut [u8]) -> Option<usize> {
        // RFC 8446, section 5.2: the header is authenticated, with the version that every protected record has.
        let header = header(body.len())?;
        let nonce = self.next_nonce()?;
        let open =
            |context: &LessSafeKey| context.open_in_place(nonce, Aad::from(header), body).ok().map(|inner| inner.len());
        self.claim.with(|| self.key.context(suite), open).ok()?
    }

    /// Seals `plain` as a record of type `kind` into `record`, which is [`OVERHEAD`] longer.
    pub(crate) fn seal(&mut self, suite: Suite, kind: u8, plain: &[u8], record: &mut [u8]) -> Result<(), Error> {
        // Sealing with the content type apart from the content costs AES-GCM nothing, but ChaCha20 more than a copy.
        if suite == Suite::Chacha20Poly1305 {
            record[HEADER..HEADER + plain.len()].copy_from_slice(plain);
            return self.seal_in_place(suite, kind, record);
        }
        let (front, body) = record.split_at_mut(HEADER);
        let header = header(body.len()).ok_or(TOO_LONG)?;
        front.copy_from_slice(&header);
        let nonce = self.next_nonce().ok_or(USED_UP)?;
        let (content, type_and_tag) = body.split_at_mut(plain.len());
        let seal = |context: &LessSafeKey| {
            context.seal_out_of_place_scatter(nonce, Aad::from(header), plain, content, &[kind], type_and_tag)
        };
        self.claim.with(|| self.key.context(suite), seal)?.map_err(|_| REFUSED)
    }

    /// Seals what lies in `record` between the room for the header and that for type and tag.
    pub(crate) fn seal_in_place(&mut self, suite: Suite, kind: u8, record: &mut [u8]) -> Result<(), Error> {
        let (front, body) = record.split_at_mut(HEADER);
        let header = header(body.len()).ok_or(TOO_LONG)?;
        front.copy_from_slice(&header);
        let nonce = self.next_nonce().ok_or(USED_UP)?;
        let (inner, tag) = body.split_at_mut(body.len() - TAG);
        if let Some(last) = inner.last_mut() {
            *last = kind;
        }
        let seal = |context: &LessSafeKey| context.seal_in_place_separate_tag(nonce, Aad::from(header), inner);
        let sealed = self.claim.with(|| self.key.context(suite), seal)?.map_err(|_| REFUSED)?;
        tag.copy_from_slice(sealed.as_ref());
        Ok(())
    }

    /// The next record's; it never wraps.
    fn next_nonce(&mut self) -> Option<Nonce> {
        let next = self.sequence.checked_add(1)?;
        let nonce = nonce(self.iv, self.sequence);
        self.sequence = next;
        Some(nonce)
    }
}

/// RFC 8446, section 5.3: the sequence number, over the end of the IV.
#[inline]
fn nonce(mut iv: [u8; IV], sequence: u64) -> Nonce {
    for (byte, number) in iv[IV - 8..].iter_mut().zip(sequence.to_be_bytes()) {
        *byte ^= number;
    }
    Nonce::assume_unique_for_key(iv)
}

impl Drop for Keys {
    fn drop(&mut self) {
        self.iv.zeroize();
    }
}

const TOO_LONG: Error = Error::ApiMisuse("a record is longer than its header can say");
const USED_UP: Error = Error::ApiMisuse("the connection's keys are used up: open a new one");
const REFUSED: Error = Error::ApiMisuse("the AEAD refuses to seal");

/// The header of a protected record with a body of `len` bytes.
fn header(len: usize) -> Option<[u8; HEADER]> {
    let [high, low] = u16::try_from(len).ok()?.to_be_bytes();
    Some([23, 3, 3, high, low])
}

#[cfg(test)]
mod tests;
