use crate::record::HEADER;
use aws_lc_rs::aead::{AES_128_GCM, AES_256_GCM, Aad, Algorithm, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use rustls::ConnectionTrafficSecrets;
use rustls::crypto::cipher::Iv;
use tautline_tls::Error;

/// Bytes of the tag, which is the same for all suites of TLS 1.3.
const TAG: usize = 16;

/// Bytes that a record is longer than its content: header, content type, tag.
pub(super) const OVERHEAD: usize = HEADER + 1 + TAG;

/// The keys of one direction, and how many records they protected. aws-lc wipes the key when it is dropped.
pub(super) struct Keys {
    key: LessSafeKey,
    iv: Iv,
    sequence: u64,
    /// Sealing with the content type apart from the content costs AES-GCM nothing, but ChaCha20 more than a copy.
    contiguous: bool,
}

impl Keys {
    pub(super) fn new((sequence, secrets): (u64, ConnectionTrafficSecrets)) -> Result<Self, Error> {
        let (algorithm, key, iv, contiguous) = match secrets {
            ConnectionTrafficSecrets::Aes128Gcm { key, iv } => (&AES_128_GCM, key, iv, false),
            ConnectionTrafficSecrets::Aes256Gcm { key, iv } => (&AES_256_GCM, key, iv, false),
            ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => (&CHACHA20_POLY1305, key, iv, true),
            _ => return Err(Error::Library("rustls agreed on a cipher that is unknown here".to_owned())),
        };
        Self::from_parts(algorithm, key.as_ref(), iv, sequence, contiguous)
    }

    fn from_parts(
        algorithm: &'static Algorithm,
        key: &[u8],
        iv: Iv,
        sequence: u64,
        contiguous: bool,
    ) -> Result<Self, Error> {
        let key = UnboundKey::new(algorithm, key)
            .map_err(|_| Error::Library("the traffic key has the wrong length".to_owned()))?;
        Ok(Self { key: LessSafeKey::new(key), iv, sequence, contiguous })
    }

    /// Records that these keys protected.
    pub(super) const fn sequence(&self) -> u64 {
        self.sequence
    }

    /// Opens a record's body, which lies behind its header, in place; gives the length of content, type and padding.
    /// `None` where it does not authenticate, of which nothing is left then.
    pub(super) fn open(&mut self, body: &mut [u8]) -> Option<usize> {
        // RFC 8446, section 5.2: the header is authenticated, with the version that every protected record has.
        let header = header(body.len())?;
        let nonce = self.next_nonce()?;
        self.key.open_in_place(nonce, Aad::from(header), body).ok().map(|inner| inner.len())
    }

    /// Seals `plain` as a record of type `kind` into `record`, which is [`OVERHEAD`] longer.
    pub(super) fn seal(&mut self, kind: u8, plain: &[u8], record: &mut [u8]) -> Result<(), Error> {
        if self.contiguous {
            record[HEADER..HEADER + plain.len()].copy_from_slice(plain);
            return self.seal_in_place(kind, record);
        }
        let (front, body) = record.split_at_mut(HEADER);
        let header = header(body.len()).ok_or(TOO_LONG)?;
        front.copy_from_slice(&header);
        let nonce = self.next_nonce().ok_or(USED_UP)?;
        let (content, type_and_tag) = body.split_at_mut(plain.len());
        self.key
            .seal_out_of_place_scatter(nonce, Aad::from(header), plain, content, &[kind], type_and_tag)
            .map_err(|_| REFUSED)
    }

    /// Seals what lies in `record` between the room for the header and that for type and tag.
    pub(super) fn seal_in_place(&mut self, kind: u8, record: &mut [u8]) -> Result<(), Error> {
        let (front, body) = record.split_at_mut(HEADER);
        let header = header(body.len()).ok_or(TOO_LONG)?;
        front.copy_from_slice(&header);
        let nonce = self.next_nonce().ok_or(USED_UP)?;
        let (inner, tag) = body.split_at_mut(body.len() - TAG);
        if let Some(last) = inner.last_mut() {
            *last = kind;
        }
        let sealed = self.key.seal_in_place_separate_tag(nonce, Aad::from(header), inner).map_err(|_| REFUSED)?;
        tag.copy_from_slice(sealed.as_ref());
        Ok(())
    }

    /// RFC 8446, section 5.3: the sequence number, over the end of the IV. It never wraps.
    fn next_nonce(&mut self) -> Option<Nonce> {
        let nonce = rustls::crypto::cipher::Nonce::new(&self.iv, self.sequence);
        self.sequence = self.sequence.checked_add(1)?;
        Some(Nonce::assume_unique_for_key(nonce.0))
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
