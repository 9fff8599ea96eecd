//! The key schedule behind the handshake (RFC 8446, sections 7.1 to 7.3).

use aws_lc_rs::aead::{AES_128_GCM, AES_256_GCM, Algorithm, CHACHA20_POLY1305, LessSafeKey, UnboundKey};
use aws_lc_rs::hkdf::{self, HKDF_SHA256, HKDF_SHA384, KeyType, Prk};
use tautline_tls::Error;
use zeroize::Zeroize;

/// Longest key of an AEAD here.
const MAX_KEY: usize = 32;
/// Longest output of a hash here, which is a secret's length.
const MAX_HASH: usize = 48;

/// Bytes of an IV, which is the same for all suites.
pub(crate) const IV: usize = 12;

/// A cipher suite of TLS 1.3 (RFC 8446, section B.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Suite {
    /// `TLS13_AES_128_GCM_SHA256`
    Aes128Gcm = 0x1301,
    /// `TLS13_AES_256_GCM_SHA384`
    Aes256Gcm = 0x1302,
    /// `TLS13_CHACHA20_POLY1305_SHA256`
    Chacha20Poly1305 = 0x1303,
}

impl Suite {
    /// The suite of this number at IANA.
    #[must_use]
    pub const fn from_code(code: u16) -> Option<Self> {
        match code {
            0x1301 => Some(Self::Aes128Gcm),
            0x1302 => Some(Self::Aes256Gcm),
            0x1303 => Some(Self::Chacha20Poly1305),
            _ => None,
        }
    }

    /// Bytes of its hash's output, and so of a traffic secret.
    #[must_use]
    pub const fn hash_len(self) -> usize {
        match self {
            Self::Aes128Gcm | Self::Chacha20Poly1305 => 32,
            Self::Aes256Gcm => 48,
        }
    }

    /// Bytes of its AEAD's key.
    pub(crate) const fn key_len(self) -> usize {
        match self {
            Self::Aes128Gcm => 16,
            Self::Aes256Gcm | Self::Chacha20Poly1305 => 32,
        }
    }

    fn aead(self) -> &'static Algorithm {
        match self {
            Self::Aes128Gcm => &AES_128_GCM,
            Self::Aes256Gcm => &AES_256_GCM,
            Self::Chacha20Poly1305 => &CHACHA20_POLY1305,
        }
    }

    fn hash(self) -> hkdf::Algorithm {
        match self {
            Self::Aes128Gcm | Self::Chacha20Poly1305 => HKDF_SHA256,
            Self::Aes256Gcm => HKDF_SHA384,
        }
    }
}

/// A traffic secret; wiped when it is dropped. How many of the bytes count is for the suite to say.
#[derive(Clone)]
pub struct Secret([u8; MAX_HASH]);

impl Secret {
    /// `None` where `secret` is longer than any hash's output.
    #[must_use]
    pub fn new(secret: &[u8]) -> Option<Self> {
        let mut own = Self([0; MAX_HASH]);
        own.0.get_mut(..secret.len())?.copy_from_slice(secret);
        Some(own)
    }

    /// Its bytes, as many as the suite's hash has.
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

    /// The IV that it stands for.
    pub(crate) fn iv(&self, suite: Suite) -> Result<[u8; IV], Error> {
        let mut iv = [0; IV];
        self.expand(suite, b"\x08tls13 iv\0", &mut iv)?;
        Ok(iv)
    }

    /// The key that it stands for.
    pub(crate) fn key(&self, suite: Suite) -> Result<Key, Error> {
        let mut key = Key([0; MAX_KEY]);
        self.expand(suite, b"\x09tls13 key\0", &mut key.0[..suite.key_len()])?;
        Ok(key)
    }

    /// HKDF-Expand-Label with an empty context; `label` with the lengths of itself before and of the context behind it.
    fn expand(&self, suite: Suite, label: &[u8], out: &mut [u8]) -> Result<(), Error> {
        /// A length, as aws-lc wants to be told of it.
        struct Len(usize);

        impl KeyType for Len {
            fn len(&self) -> usize {
                self.0
            }
        }

        const REFUSED: Error = Error::ApiMisuse("HKDF refuses to derive a key");
        let len = u16::try_from(out.len()).map_err(|_| REFUSED)?.to_be_bytes();
        let prk = Prk::new_less_safe(suite.hash(), self.bytes(suite));
        prk.expand(&[&len, label], Len(out.len())).and_then(|okm| okm.fill(out)).map_err(|_| REFUSED)
    }
}

impl Drop for Secret {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

/// A key of an AEAD; wiped when it is dropped. How many of the bytes count is for the suite to say.
pub(crate) struct Key([u8; MAX_KEY]);

impl Key {
    /// `None` where `key` is longer than any AEAD's.
    pub(crate) fn new(key: &[u8]) -> Option<Self> {
        let mut own = Self([0; MAX_KEY]);
        own.0.get_mut(..key.len())?.copy_from_slice(key);
        Some(own)
    }

    /// All of its bytes; those behind the suite's count for nothing.
    pub(crate) const fn bytes(&self) -> &[u8; MAX_KEY] {
        &self.0
    }

    /// The key as the AEAD wants it, which costs a tenth of a microsecond.
    pub(crate) fn context(&self, suite: Suite) -> Result<LessSafeKey, Error> {
        UnboundKey::new(suite.aead(), &self.0[..suite.key_len()])
            .map(LessSafeKey::new)
            .map_err(|_| Error::Library("the traffic key has the wrong length".to_owned()))
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

    fn bytes(hex: &str) -> Vec<u8> {
        (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
    }

    /// RFC 8448, section 3: the traffic secrets of application data, and what they stand for.
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
    fn takes_no_secret_that_is_too_long() {
        assert!(Secret::new(&[0; 48]).is_some());
        assert!(Secret::new(&[0; 49]).is_none());
    }

    #[test]
    fn suites_have_their_codes() {
        for suite in [Suite::Aes128Gcm, Suite::Aes256Gcm, Suite::Chacha20Poly1305] {
            assert_eq!(Suite::from_code(suite as u16), Some(suite));
        }
        assert_eq!(Suite::from_code(0x1304), None);
    }
}
