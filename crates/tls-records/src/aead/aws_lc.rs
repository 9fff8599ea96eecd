use super::provider::{Aead, TAG, copy_inner};
use crate::schedule::{IV, Suite};
use aws_lc_rs::aead::{AES_128_GCM, AES_256_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use tautline_tls::record::HEADER;

/// A context of AWS-LC, 0.6 KiB that the library allocates in C. It wipes them when they are freed.
pub(crate) struct Context(LessSafeKey);

impl Aead for Context {
    fn new(suite: Suite, key: &[u8]) -> Option<Self> {
        let algorithm = match suite {
            Suite::Aes128Gcm => &AES_128_GCM,
            Suite::Aes256Gcm => &AES_256_GCM,
            Suite::Chacha20Poly1305 => &CHACHA20_POLY1305,
        };
        UnboundKey::new(algorithm, key).ok().map(|key| Self(LessSafeKey::new(key)))
    }

    #[inline(always)]
    fn open(&self, nonce: [u8; IV], header: [u8; HEADER], body: &mut [u8]) -> Option<usize> {
        let opened = self.0.open_in_place(Nonce::assume_unique_for_key(nonce), Aad::from(header), body);
        opened.ok().map(|inner| inner.len())
    }

    #[inline]
    fn seal_in_place(&self, nonce: [u8; IV], header: [u8; HEADER], body: &mut [u8]) -> Option<()> {
        let (inner, tag) = body.split_at_mut(body.len().checked_sub(TAG)?);
        let nonce = Nonce::assume_unique_for_key(nonce);
        let sealed = self.0.seal_in_place_separate_tag(nonce, Aad::from(header), inner).ok()?;
        tag.copy_from_slice(sealed.as_ref());
        Some(())
    }

    #[inline(always)]
    fn seal(&self, nonce: [u8; IV], header: [u8; HEADER], (plain, kind): (&[u8], u8), body: &mut [u8]) -> Option<()> {
        // The content type lies apart from the content. AES-GCM seals both at no extra cost; with ChaCha20 that costs
        // more than a copy.
        if *self.0.algorithm() == CHACHA20_POLY1305 {
            copy_inner((plain, kind), body)?;
            return self.seal_in_place(nonce, header, body);
        }
        let (content, type_and_tag) = body.split_at_mut_checked(plain.len())?;
        let nonce = Nonce::assume_unique_for_key(nonce);
        self.0.seal_out_of_place_scatter(nonce, Aad::from(header), plain, content, &[kind], type_and_tag).ok()
    }
}
