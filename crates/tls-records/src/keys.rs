mod parallel;

use crate::aead::choice;
use crate::aead::class::Direction as Way;
use crate::aead::context::Context;
use crate::aead::provider::{Provider, TAG};
use crate::contexts::Claim;
use crate::schedule::{IV, Key, Secret, Suite};
use tautline_buf::kernel_tls::{Cipher, Direction, TrafficKeys};
use tautline_tls::Error;
use tautline_tls::record::HEADER;
use zeroize::Zeroize;

/// Bytes of a record beyond its content: header, content type, tag.
pub(crate) const OVERHEAD: usize = HEADER + 1 + TAG;

/// The keys of one direction, with the number of records that they have protected; wiped on drop.
///
/// The fields that every record needs come first. If the AEAD's context is cached, the others are not touched.
#[repr(C)]
pub struct Keys {
    sequence: u64,
    claim: Claim,
    iv: [u8; IV],
    key: Key,
    secret: Secret,
}

impl Keys {
    /// Takes a `key` and `iv` that a library derived from `secret`, and that have protected `sequence` records.
    ///
    /// # Errors
    /// [`Error::Library`] if `iv` does not come from `secret`, [`Error::ApiMisuse`] if a length is wrong.
    pub fn new(suite: Suite, secret: Secret, key: &[u8], iv: &[u8], sequence: u64) -> Result<Self, Error> {
        // Without this check, a wrong secret would only show at the first key update.
        if secret.iv(suite)? != *iv {
            return Err(Error::Library("the traffic secret is not that of the keys".to_owned()));
        }
        let key = Key::new(key).ok_or(Error::ApiMisuse("a traffic key is too long"))?;
        Self::from_parts(sequence, key, iv, secret)
    }

    /// Derives key and IV from `secret`; they have protected `sequence` records.
    ///
    /// # Errors
    /// [`Error::ApiMisuse`] if HKDF cannot derive them.
    pub fn derive(suite: Suite, secret: Secret, sequence: u64) -> Result<Self, Error> {
        Self::from_parts(sequence, secret.key(suite)?, &secret.iv(suite)?, secret)
    }

    /// The keys as a kernel has them: without a secret.
    #[cfg(test)]
    pub(crate) fn of_kernel(keys: &TrafficKeys) -> Option<Self> {
        let key = Key::new(&keys.key[..keys.cipher.key_len()])?;
        Self::from_parts(keys.sequence, key, &keys.iv, Secret::new(&[])?).ok()
    }

    fn from_parts(sequence: u64, key: Key, iv: &[u8], secret: Secret) -> Result<Self, Error> {
        choice::settle();
        let iv = iv.try_into().map_err(|_| Error::ApiMisuse("an IV has the wrong length"))?;
        Ok(Self { sequence, claim: Claim::new(), iv, key, secret })
    }

    /// Replaces secret, key and IV by the next ones (RFC 8446, section 7.2).
    pub(crate) fn update(&mut self, suite: Suite) -> Result<(), Error> {
        *self = Self::derive(suite, self.secret.next(suite)?, 0)?;
        Ok(())
    }

    /// How many records these keys have protected.
    pub(crate) const fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Counts records that the kernel protected with these keys.
    pub(crate) const fn count(&mut self, records: usize) {
        self.sequence = self.sequence.saturating_add(records as u64);
    }

    /// A copy for the kernel.
    pub(crate) const fn for_kernel(&self, direction: Direction, cipher: Cipher) -> TrafficKeys {
        TrafficKeys { direction, cipher, key: *self.key.bytes(), iv: self.iv, sequence: self.sequence }
    }

    /// The bytes of the secret that these keys come from.
    pub(crate) fn secret(&self, suite: Suite) -> &[u8] {
        self.secret.bytes(suite)
    }

    /// Opens the body of a record in place; returns the length of content, type and padding.
    ///
    /// `None` if the record does not authenticate; then `body` holds no plaintext.
    ///
    /// # Errors
    /// A failure of this end: no context could be made, or the sequence numbers are used up.
    #[inline]
    pub(crate) fn open(&mut self, suite: Suite, body: &mut [u8]) -> Result<Option<usize>, Error> {
        self.open_by(choice::provider(suite, body.len().saturating_sub(1 + TAG), Way::Open), suite, body)
    }

    #[inline]
    fn open_by(&mut self, provider: Provider, suite: Suite, body: &mut [u8]) -> Result<Option<usize>, Error> {
        // RFC 8446, section 5.2: the header is authenticated, with the version that every protected record has.
        let header = header(body.len()).ok_or(TOO_LONG)?;
        let sequence = self.next_sequence().ok_or(USED_UP)?;
        let open = |context: &Context| context.open(nonce(self.iv, sequence), header, body);
        self.claim.with(provider, || Context::new(provider, suite, self.key.of(suite)), open)
    }

    /// Seals `plain` as a record of type `kind` into `wire`, which is [`OVERHEAD`] longer.
    ///
    /// Without `plain`, the content already lies in `wire`, behind the room for the header.
    ///
    /// It stays one function for all callers. As a part of each, it would be split at the thread's contexts.
    #[inline(never)]
    pub(crate) fn seal(&mut self, suite: Suite, kind: u8, plain: Option<&[u8]>, wire: &mut [u8]) -> Result<(), Error> {
        let provider = choice::provider(suite, wire.len().saturating_sub(OVERHEAD), Way::Seal);
        self.seal_by(provider, suite, kind, plain, wire)
    }

    #[inline]
    fn seal_by(
        &mut self,
        provider: Provider,
        suite: Suite,
        kind: u8,
        plain: Option<&[u8]>,
        wire: &mut [u8],
    ) -> Result<(), Error> {
        let sequence = self.next_sequence().ok_or(USED_UP)?;
        let seal =
            |context: &Context| Record { plain, wire: &mut *wire, nonce: nonce(self.iv, sequence) }.seal(kind, context);
        self.claim.with(provider, || Context::new(provider, suite, self.key.of(suite)), seal)?.ok_or(SEAL_FAILED)
    }

    /// The sequence number of the next record, which never wraps.
    fn next_sequence(&mut self) -> Option<u64> {
        let sequence = self.sequence;
        self.sequence = sequence.checked_add(1)?;
        Some(sequence)
    }
}

/// The nonce of a record: the IV, its end XORed with the sequence number (RFC 8446, section 5.3).
#[inline]
fn nonce(mut iv: [u8; IV], sequence: u64) -> [u8; IV] {
    for (byte, number) in iv[IV - 8..].iter_mut().zip(sequence.to_be_bytes()) {
        *byte ^= number;
    }
    iv
}

/// A record to be sealed.
struct Record<'a> {
    /// The content; `None` if it already lies in `wire`.
    plain: Option<&'a [u8]>,
    wire: &'a mut [u8],
    nonce: [u8; IV],
}

impl Record<'_> {
    /// Seals the record; `None` if the AEAD fails.
    #[inline(always)]
    fn seal(self, kind: u8, context: &Context) -> Option<()> {
        let (front, body) = self.wire.split_at_mut_checked(HEADER)?;
        let header = header(body.len())?;
        front.copy_from_slice(&header);
        if let Some(plain) = self.plain {
            return context.seal(self.nonce, header, (plain, kind), body);
        }
        *body.get_mut(body.len().checked_sub(1 + TAG)?)? = kind;
        context.seal_in_place(self.nonce, header, body)
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        self.iv.zeroize();
    }
}

const TOO_LONG: Error = Error::ApiMisuse("a record is longer than its header can say");
const USED_UP: Error = Error::ApiMisuse("the connection's keys are used up: open a new one");
const SEAL_FAILED: Error = Error::ApiMisuse("the AEAD failed to seal a record");

/// The header of a protected record with a body of `len` bytes.
fn header(len: usize) -> Option<[u8; HEADER]> {
    let [high, low] = u16::try_from(len).ok()?.to_be_bytes();
    Some([23, 3, 3, high, low])
}

#[cfg(test)]
mod tests;
