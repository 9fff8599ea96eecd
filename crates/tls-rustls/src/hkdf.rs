//! HKDF for TLS 1.3 (RFC 8446, section 7.1) that prepares each secret once, over ring's HMAC.
//!
//! A handshake derives up to five values from one secret. For each of them the HKDF of AWS-LC extracts the secret anew, and
//! makes the keyed states of its HMAC anew. Here both are made when the secret is known. An HMAC of ring is the two states and
//! nothing more, so that copying it for each value is cheap. That of AWS-LC is not: with it nothing is gained.

use core::hint::black_box;
use ring::hmac::{self, Context, Key, Tag};
use rustls::crypto;
use rustls::crypto::hash::HashAlgorithm;
use rustls::crypto::tls13::{Hkdf, HkdfExpander, OkmBlock, OutputLengthError};
use std::sync::LazyLock;

/// Most bytes that are joined before they are hashed: more than TLS derives its own secrets from.
const JOINED: usize = 96;

/// A key that takes the place of a secret.
static NO_SECRET: LazyLock<Key> = LazyLock::new(|| Key::new(hmac::HMAC_SHA256, &[]));

/// HKDF over one hash.
pub(crate) struct Prepared(&'static hmac::Algorithm);

static SHA256: Prepared = Prepared(&hmac::HMAC_SHA256);
static SHA384: Prepared = Prepared(&hmac::HMAC_SHA384);

impl Prepared {
    /// HKDF over this hash, if a suite of TLS 1.3 has it.
    pub(crate) fn over(hash: HashAlgorithm) -> Option<&'static Self> {
        match hash {
            HashAlgorithm::SHA256 => Some(&SHA256),
            HashAlgorithm::SHA384 => Some(&SHA384),
            _ => None,
        }
    }

    fn key(&self, secret: &[u8]) -> Key {
        Key::new(*self.0, secret)
    }

    /// A salt or a secret that is not there.
    fn zeros(&self) -> &'static [u8] {
        &[0; OkmBlock::MAX_LEN][..self.0.digest_algorithm().output_len()]
    }

    fn expander(&self, secret: &[u8]) -> Box<dyn HkdfExpander> {
        Box::new(Expander(self.key(secret)))
    }
}

impl Hkdf for Prepared {
    fn extract_from_zero_ikm(&self, salt: Option<&[u8]>) -> Box<dyn HkdfExpander> {
        self.extract_from_secret(salt, self.zeros())
    }

    fn extract_from_secret(&self, salt: Option<&[u8]>, secret: &[u8]) -> Box<dyn HkdfExpander> {
        let salt = self.key(salt.unwrap_or_else(|| self.zeros()));
        self.expander(hmac::sign(&salt, secret).as_ref())
    }

    fn expander_for_okm(&self, okm: &OkmBlock) -> Box<dyn HkdfExpander> {
        self.expander(okm.as_ref())
    }

    fn hmac_sign(&self, key: &OkmBlock, message: &[u8]) -> crypto::hmac::Tag {
        crypto::hmac::Tag::new(hmac::sign(&self.key(key.as_ref()), message).as_ref())
    }
}

/// A secret as the key of an HMAC, overwritten on drop.
struct Expander(Key);

impl Drop for Expander {
    fn drop(&mut self) {
        self.0.clone_from(&NO_SECRET);
        // Otherwise the compiler may leave out what nobody reads.
        black_box(&self.0);
    }
}

impl Expander {
    /// A block of HKDF-Expand (RFC 5869, section 2.3), behind the block `before`.
    fn block(&self, before: &[u8], info: &[&[u8]], number: u8) -> Tag {
        let mut context = Context::with_key(&self.0);
        // Each update is a call into the library, and most parts have a few bytes.
        let (mut joined, mut len) = ([0; JOINED], 0);
        for part in [before].iter().chain(info).chain(&[&[number][..]]) {
            if part.len() > JOINED - len {
                context.update(&joined[..len]);
                len = 0;
            }
            match joined.get_mut(len..len + part.len()) {
                Some(room) => {
                    room.copy_from_slice(part);
                    len += part.len();
                }
                None => context.update(part),
            }
        }
        context.update(&joined[..len]);
        context.sign()
    }
}

impl HkdfExpander for Expander {
    fn expand_slice(&self, info: &[&[u8]], output: &mut [u8]) -> Result<(), OutputLengthError> {
        if output.len() > usize::from(u8::MAX) * self.hash_len() {
            return Err(OutputLengthError);
        }
        let mut before: Option<Tag> = None;
        for (number, part) in (1..=u8::MAX).zip(output.chunks_mut(self.hash_len())) {
            let block = self.block(before.as_ref().map_or(&[], Tag::as_ref), info, number);
            part.copy_from_slice(&block.as_ref()[..part.len()]);
            before = Some(block);
        }
        Ok(())
    }

    fn expand_block(&self, info: &[&[u8]]) -> OkmBlock {
        OkmBlock::new(self.block(&[], info, 1).as_ref())
    }

    fn hash_len(&self) -> usize {
        self.0.algorithm().digest_algorithm().output_len()
    }
}

#[cfg(test)]
mod tests {
    use super::Prepared;
    use proptest::prelude::*;
    use rustls::SupportedCipherSuite;
    use rustls::crypto::aws_lc_rs::ALL_CIPHER_SUITES;
    use rustls::crypto::hash::HashAlgorithm;
    use rustls::crypto::tls13::{Hkdf, HkdfExpander, OkmBlock};

    fn bytes(hex: &str) -> Vec<u8> {
        (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
    }

    /// RFC 5869, appendix A.1 and A.3 (without salt and info).
    #[test]
    fn derives_the_values_of_rfc_5869() {
        let hkdf = Prepared::over(HashAlgorithm::SHA256).unwrap();
        let mut okm = [0; 42];
        let secret = hkdf.extract_from_secret(Some(&bytes("000102030405060708090a0b0c")), &[0x0b; 22]);
        secret.expand_slice(&[&bytes("f0f1f2f3"), &bytes("f4f5f6f7f8f9")], &mut okm).unwrap();
        let expected = "3cb25f25faacd57a90434f64d0362f2a2d2d0a90cf1a5a4c5db02d56ecc4c5bf34007208d5b887185865";
        assert_eq!(okm[..], bytes(expected));
        hkdf.extract_from_secret(None, &[0x0b; 22]).expand_slice(&[], &mut okm).unwrap();
        let expected = "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8";
        assert_eq!(okm[..], bytes(expected));
    }

    #[test]
    fn refuses_more_than_255_blocks() {
        for (hash, len) in [(HashAlgorithm::SHA256, 32), (HashAlgorithm::SHA384, 48)] {
            let secret = Prepared::over(hash).unwrap().extract_from_zero_ikm(None);
            assert_eq!(secret.hash_len(), len);
            assert!(secret.expand_slice(&[b"info"], &mut vec![0; 255 * len]).is_ok());
            assert!(secret.expand_slice(&[b"info"], &mut vec![0; 255 * len + 1]).is_err());
        }
    }

    /// The bytes that one secret gives.
    fn derived(secret: &dyn HkdfExpander, info: &[&[u8]], len: usize) -> (Vec<u8>, Vec<u8>) {
        let mut out = vec![0; len];
        secret.expand_slice(info, &mut out).unwrap();
        (out, secret.expand_block(info).as_ref().to_vec())
    }

    proptest! {
        #[test]
        fn agrees_with_the_library(
            salt in prop::option::of(prop::collection::vec(any::<u8>(), 0..100)),
            secret in prop::collection::vec(any::<u8>(), 0..100),
            info in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..130), 0..8),
            len in 0_usize..200,
        ) {
            let info: Vec<&[u8]> = info.iter().map(Vec::as_slice).collect();
            for suite in ALL_CIPHER_SUITES {
                let SupportedCipherSuite::Tls13(suite) = suite else { continue };
                let library = suite.hkdf_provider;
                let ours = Prepared::over(suite.common.hash_provider.algorithm()).unwrap();
                let salt = salt.as_deref();
                let of = |hkdf: &dyn Hkdf| {
                    let okm = OkmBlock::new(&secret[..secret.len().min(32)]);
                    [
                        derived(&*hkdf.extract_from_secret(salt, &secret), &info, len),
                        derived(&*hkdf.extract_from_zero_ikm(salt), &info, len),
                        derived(&*hkdf.expander_for_okm(&okm), &info, len),
                        (hkdf.hmac_sign(&okm, &secret).as_ref().to_vec(), Vec::new()),
                    ]
                };
                prop_assert_eq!(of(ours), of(library));
            }
        }
    }
}
