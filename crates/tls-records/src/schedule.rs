//! The key schedule after the handshake (RFC 8446, sections 7.1 to 7.3).

use aws_lc_rs::digest::{self, digest};
use aws_lc_rs::hkdf::{self, HKDF_SHA256, HKDF_SHA384, KeyType, Prk};
use core::fmt;
use tautline_tls::{CipherSuite, Error};
use zeroize::Zeroize;

/// Longest AEAD key of the suites, in bytes.
const MAX_KEY: usize = 32;
/// Longest hash output of the suites in bytes, which is the length of a secret.
const MAX_HASH: usize = 48;

/// Length of an IV in bytes, for every suite.
pub(crate) const IV: usize = 12;

/// A cipher suite of TLS 1.3 (RFC 8446, section B.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Suite {
    /// `TLS_AES_128_GCM_SHA256`
    Aes128Gcm,
    /// `TLS_AES_256_GCM_SHA384`
    Aes256Gcm,
    /// `TLS_CHACHA20_POLY1305_SHA256`
    Chacha20Poly1305,
}

impl Suite {
    /// All suites.
    pub const ALL: [Self; 3] = [Self::Aes128Gcm, Self::Aes256Gcm, Self::Chacha20Poly1305];

    /// The name of the suite's AEAD (RFC 5116, RFC 8439).
    #[must_use]
    pub const fn aead_name(self) -> &'static str {
        match self {
            Self::Aes128Gcm => "AES-128-GCM",
            Self::Aes256Gcm => "AES-256-GCM",
            Self::Chacha20Poly1305 => "CHACHA20-POLY1305",
        }
    }

    /// The suite as handshakes negotiate it.
    #[must_use]
    pub const fn cipher_suite(self) -> CipherSuite {
        match self {
            Self::Aes128Gcm => CipherSuite::Aes128GcmSha256,
            Self::Aes256Gcm => CipherSuite::Aes256GcmSha384,
            Self::Chacha20Poly1305 => CipherSuite::Chacha20Poly1305Sha256,
        }
    }

    /// The suite that a handshake negotiated; `None` if it is not one of TLS 1.3 that is known here.
    #[must_use]
    pub fn negotiated(suite: CipherSuite) -> Option<Self> {
        Self::ALL.into_iter().find(|own| own.cipher_suite() == suite)
    }

    /// Length in bytes of the suite's hash, and so of a traffic secret.
    #[must_use]
    pub const fn hash_len(self) -> usize {
        match self {
            Self::Aes128Gcm | Self::Chacha20Poly1305 => 32,
            Self::Aes256Gcm => 48,
        }
    }

    /// Length in bytes of the key of the suite's AEAD.
    #[must_use]
    pub const fn key_len(self) -> usize {
        match self {
            Self::Aes128Gcm => 16,
            Self::Aes256Gcm | Self::Chacha20Poly1305 => 32,
        }
    }

    fn digest(self) -> &'static digest::Algorithm {
        match self {
            Self::Aes128Gcm | Self::Chacha20Poly1305 => &digest::SHA256,
            Self::Aes256Gcm => &digest::SHA384,
        }
    }

    fn hash(self) -> hkdf::Algorithm {
        match self {
            Self::Aes128Gcm | Self::Chacha20Poly1305 => HKDF_SHA256,
            Self::Aes256Gcm => HKDF_SHA384,
        }
    }
}

/// A traffic secret; wiped on drop. The suite determines its length.
#[derive(Clone)]
pub struct Secret([u8; MAX_HASH]);

impl Secret {
    /// Copies a secret; `None` if it is longer than the longest hash.
    #[must_use]
    pub fn new(secret: &[u8]) -> Option<Self> {
        let mut own = Self([0; MAX_HASH]);
        own.0.get_mut(..secret.len())?.copy_from_slice(secret);
        Some(own)
    }

    /// The bytes of the secret, as many as the suite's hash has.
    #[must_use]
    pub fn bytes(&self, suite: Suite) -> &[u8] {
        &self.0[..suite.hash_len()]
    }

    /// The secret after the next key update.
    pub(crate) fn next(&self, suite: Suite) -> Result<Self, Error> {
        let mut next = Self([0; MAX_HASH]);
        self.expand(suite, b"\x11tls13 traffic upd\0", &mut next.0[..suite.hash_len()])?;
        Ok(next)
    }

    /// Derives the IV.
    pub(crate) fn iv(&self, suite: Suite) -> Result<[u8; IV], Error> {
        let mut iv = [0; IV];
        self.expand(suite, b"\x08tls13 iv\0", &mut iv)?;
        Ok(iv)
    }

    /// Derives the key.
    pub(crate) fn key(&self, suite: Suite) -> Result<Key, Error> {
        let mut key = Key([0; MAX_KEY]);
        self.expand(suite, b"\x09tls13 key\0", &mut key.0[..suite.key_len()])?;
        Ok(key)
    }

    /// Fills `out` with keying material; `self` is the exporter's secret (RFC 8446, section 7.5).
    ///
    /// # Errors
    /// [`Error::ApiMisuse`] if the label is longer than 249 bytes, or `out` longer than 255 outputs of the suite's hash.
    pub fn export(&self, suite: Suite, label: &[u8], context: &[u8], out: &mut [u8]) -> Result<(), Error> {
        let hash = |bytes: &[u8]| digest(suite.digest(), bytes);
        let mut derived = Self([0; MAX_HASH]);
        self.expand_label(suite, label, hash(&[]).as_ref(), &mut derived.0[..suite.hash_len()])?;
        derived.expand_label(suite, b"exporter", hash(context).as_ref(), out)
    }

    /// HKDF-Expand-Label (RFC 8446, section 7.1). `label` is without the prefix `tls13 `.
    fn expand_label(&self, suite: Suite, label: &[u8], context: &[u8], out: &mut [u8]) -> Result<(), Error> {
        const TOO_LONG: Error = Error::ApiMisuse("an exporter's label has at most 249 bytes");
        const PREFIX: &[u8] = b"tls13 ";
        let length = |bytes: usize| u8::try_from(bytes).map_err(|_| TOO_LONG);
        let label =
            [&[length(PREFIX.len() + label.len())?], PREFIX, label, &[length(context.len())?], context].concat();
        self.expand(suite, &label, out)
    }

    /// HKDF-Expand-Label.
    ///
    /// `label` includes its own length in front, and the length of the context and the context behind.
    fn expand(&self, suite: Suite, label: &[u8], out: &mut [u8]) -> Result<(), Error> {
        /// An output length, in the form that aws-lc-rs takes.
        struct Len(usize);

        impl KeyType for Len {
            fn len(&self) -> usize {
                self.0
            }
        }

        const FAILED: Error = Error::ApiMisuse("HKDF failed to derive a key");
        let len = u16::try_from(out.len()).map_err(|_| FAILED)?.to_be_bytes();
        let prk = Prk::new_less_safe(suite.hash(), self.bytes(suite));
        prk.expand(&[&len, label], Len(out.len())).and_then(|okm| okm.fill(out)).map_err(|_| FAILED)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

/// A key of an AEAD; wiped on drop. The suite determines its length.
pub(crate) struct Key([u8; MAX_KEY]);

impl Key {
    /// Copies a key; `None` if it is longer than the longest key.
    pub(crate) fn new(key: &[u8]) -> Option<Self> {
        let mut own = Self([0; MAX_KEY]);
        own.0.get_mut(..key.len())?.copy_from_slice(key);
        Some(own)
    }

    /// The bytes of the key, as many as the suite's AEAD takes.
    pub(crate) fn of(&self, suite: Suite) -> &[u8] {
        &self.0[..suite.key_len()]
    }

    /// All bytes; those behind the suite's key length are unused.
    pub(crate) const fn bytes(&self) -> &[u8; MAX_KEY] {
        &self.0
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

#[cfg(test)]
mod tests {
    use super::{Secret, Suite};
    use tautline_tls::CipherSuite;

    fn bytes(hex: &str) -> Vec<u8> {
        (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
    }

    /// RFC 8448, section 3: traffic secrets of application data, with their keys and IVs.
    #[test]
    fn derives_the_keys_of_rfc_8448() {
        for (secret, key, iv) in [
            (
                "9e40646ce79a7f9dc05af8889bce6552875afa0b06df0087f792ebb7c17504a5",
                "17422dda596ed5d9acd890e3c63f5051",
                "5b78923dee08579033e523d9",
            ),
            (
                "a11af9f05531f856ad47116b45a950328204b4f44bfb6b3a4b4f1f3fcb631643",
                "9f02283b6c9c07efc26bb9f2ac92e356",
                "cf782b88dd83549aadf1e984",
            ),
        ] {
            let secret = Secret::new(&bytes(secret)).unwrap();
            assert_eq!(secret.key(Suite::Aes128Gcm).unwrap().0[..16], bytes(key));
            assert_eq!(secret.iv(Suite::Aes128Gcm).unwrap()[..], bytes(iv));
        }
    }

    #[test]
    fn rejects_a_secret_longer_than_every_hash() {
        assert!(Secret::new(&[0; 48]).is_some());
        assert!(Secret::new(&[0; 49]).is_none());
    }

    #[test]
    fn finds_negotiated_suites() {
        for suite in Suite::ALL {
            assert_eq!(Suite::negotiated(suite.cipher_suite()), Some(suite));
        }
        assert_eq!(Suite::negotiated(CipherSuite::EcdheRsaAes128GcmSha256), None);
    }
}
