use super::provider::{Aead, TAG, copy_inner};
use crate::schedule::{IV, Suite};
use core::hint::black_box;
use ring::aead::{AES_128_GCM, AES_256_GCM, Aad, Algorithm, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use std::sync::OnceLock;
use tautline_tls::record::HEADER;

/// A context of ring, 0.5 KiB.
///
/// ring does not wipe its contexts. So each one stays at one place of the heap, and is overwritten when it is dropped.
/// The stack that expanded it is overwritten too.
pub(crate) struct Context(Box<LessSafeKey>);

impl Aead for Context {
    fn new(suite: Suite, key: &[u8]) -> Option<Self> {
        let context = expand(algorithm(suite), key);
        scrub_stack();
        context
    }

    #[inline(never)]
    fn open(&self, nonce: [u8; IV], header: [u8; HEADER], body: &mut [u8]) -> Option<usize> {
        let opened = self.0.open_in_place(Nonce::assume_unique_for_key(nonce), Aad::from(header), body);
        opened.ok().map(|inner| inner.len())
    }

    #[inline(never)]
    fn seal_in_place(&self, nonce: [u8; IV], header: [u8; HEADER], body: &mut [u8]) -> Option<()> {
        let (inner, tag) = body.split_at_mut(body.len().checked_sub(TAG)?);
        let nonce = Nonce::assume_unique_for_key(nonce);
        let sealed = self.0.seal_in_place_separate_tag(nonce, Aad::from(header), inner).ok()?;
        tag.copy_from_slice(sealed.as_ref());
        Some(())
    }

    /// Copies first, since ring seals only in place.
    #[inline(never)]
    fn seal(&self, nonce: [u8; IV], header: [u8; HEADER], plain: (&[u8], u8), body: &mut [u8]) -> Option<()> {
        copy_inner(plain, body)?;
        self.seal_in_place(nonce, header, body)
    }
}

impl Drop for Context {
    /// Overwrites the context with one of a key of zeros, which has the same size and needs no unsafe code.
    fn drop(&mut self) {
        static BLANK: OnceLock<[Option<LessSafeKey>; 3]> = OnceLock::new();
        let blank = BLANK.get_or_init(|| {
            let blank = |algorithm: &'static Algorithm| UnboundKey::new(algorithm, &[0; 32][..algorithm.key_len()]);
            [&AES_128_GCM, &AES_256_GCM, &CHACHA20_POLY1305].map(|one| blank(one).ok().map(LessSafeKey::new))
        });
        let same = |one: &&LessSafeKey| one.algorithm() == self.0.algorithm();
        if let Some(blank) = blank.iter().flatten().find(same) {
            *self.0 = blank.clone();
            // Without a reader, the compiler may leave out a write to memory that is freed next.
            black_box(&mut *self.0);
        }
    }
}

fn algorithm(suite: Suite) -> &'static Algorithm {
    match suite {
        Suite::Aes128Gcm => &AES_128_GCM,
        Suite::Aes256Gcm => &AES_256_GCM,
        Suite::Chacha20Poly1305 => &CHACHA20_POLY1305,
    }
}

/// Expands a key in a stack frame of its own, which [`scrub_stack`] overwrites.
#[inline(never)]
fn expand(algorithm: &'static Algorithm, key: &[u8]) -> Option<Context> {
    UnboundKey::new(algorithm, key).ok().map(|key| Context(Box::new(LessSafeKey::new(key))))
}

/// Overwrites the part of the stack that [`expand`] used before.
#[inline(never)]
fn scrub_stack() {
    /// Bytes that the calls below [`expand`] need without optimization; with it they need a third.
    const STACK: usize = 8192;
    black_box(&mut [0_u8; STACK]);
}

#[cfg(test)]
mod tests;
