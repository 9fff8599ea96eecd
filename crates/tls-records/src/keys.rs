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
    ///
    /// # Errors
    /// What our own side is at fault for: no context could be made, or the numbers are used up.
    #[inline]
    pub(crate) fn open(&mut self, suite: Suite, body: &mut [u8]) -> Result<Option<usize>, Error> {
        // RFC 8446, section 5.2: the header is authenticated, with the version that every protected record has.
        let header = header(body.len()).ok_or(TOO_LONG)?;
        let nonce = self.next_nonce().ok_or(USED_UP)?;
        let open =
            |context: &LessSafeKey| context.open_in_place(nonce, Aad::from(header), body).ok().map(|inner| inner.len());
        self.claim.with(|| self.key.context(suite), open)
    }

    /// Seals `plain` as a record of type `kind` into `wire`, which is [`OVERHEAD`] longer; without `plain`, what lies in
    /// `wire` between the room for the header and that for type and tag.
    #[inline]
    pub(crate) fn seal(&mut self, suite: Suite, kind: u8, plain: Option<&[u8]>, wire: &mut [u8]) -> Result<(), Error> {
        let nonce = self.next_nonce().ok_or(USED_UP)?;
        let seal = |context: &LessSafeKey| Record { plain, wire, nonce }.seal(suite, kind, context);
        self.claim.with(|| self.key.context(suite), seal)?.ok_or(REFUSED)
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

/// A record to be sealed.
struct Record<'a> {
    /// Its content; `None` where that lies in its place already.
    plain: Option<&'a [u8]>,
    wire: &'a mut [u8],
    nonce: Nonce,
}

impl Record<'_> {
    /// `None` where the AEAD refuses.
    #[inline]
    fn seal(self, suite: Suite, kind: u8, context: &LessSafeKey) -> Option<()> {
        let (front, body) = self.wire.split_at_mut_checked(HEADER)?;
        let header = header(body.len())?;
        front.copy_from_slice(&header);
        let aad = Aad::from(header);
        match self.plain {
            // Sealing with the content type apart from the content costs AES-GCM nothing, but ChaCha20 more than a copy.
            Some(plain) if suite != Suite::Chacha20Poly1305 => {
                let (content, type_and_tag) = body.split_at_mut_checked(plain.len())?;
                context.seal_out_of_place_scatter(self.nonce, aad, plain, content, &[kind], type_and_tag).ok()
            }
            plain => {
                let (inner, tag) = body.split_at_mut_checked(body.len().checked_sub(TAG)?)?;
                let (last, content) = inner.split_last_mut()?;
                if let Some(plain) = plain {
                    content.copy_from_slice(plain);
                }
                *last = kind;
                let sealed = context.seal_in_place_separate_tag(self.nonce, aad, inner).ok()?;
                tag.copy_from_slice(sealed.as_ref());
                Some(())
            }
        }
    }
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
