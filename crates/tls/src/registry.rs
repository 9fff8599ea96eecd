//! Numbers of IANA's registry for TLS that the engines negotiate, with their names.

use core::fmt;

/// Defines an enum of numbers in a registry. It prints a number's name there, or the number if it has none.
macro_rules! registry {
    ($(#[$doc:meta])* $name:ident { $($item:ident = $number:literal $text:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum $name {
            $(#[doc = concat!("`", $text, "`")] $item,)+
            /// Another number of the registry.
            Unknown(u16),
        }

        impl $name {
            /// The name in the registry.
            #[must_use]
            pub const fn name(self) -> Option<&'static str> {
                match self {
                    $(Self::$item => Some($text),)+
                    Self::Unknown(_) => None,
                }
            }

            /// The member with this name, however its letters are capitalized.
            #[must_use]
            pub fn from_name(name: &str) -> Option<Self> {
                match name {
                    $(name if name.eq_ignore_ascii_case($text) => Some(Self::$item),)+
                    _ => None,
                }
            }

            /// The number in the registry.
            #[must_use]
            pub const fn number(self) -> u16 {
                match self {
                    $(Self::$item => $number,)+
                    Self::Unknown(number) => number,
                }
            }
        }

        impl From<u16> for $name {
            fn from(number: u16) -> Self {
                match number {
                    $($number => Self::$item,)+
                    _ => Self::Unknown(number),
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self.name() {
                    Some(name) => f.pad(name),
                    None => write!(f, "number {:#06x}", self.number()),
                }
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }
    };
}

registry! {
    /// A version of TLS, by its number on the wire.
    ///
    /// ```
    /// # mod tautline { pub use tautline_tls::ProtocolVersion; }
    /// use tautline::ProtocolVersion;
    ///
    /// assert_eq!(ProtocolVersion::Tls13.to_string(), "TLSv1.3");
    /// ```
    ProtocolVersion {
        Tls12 = 0x0303 "TLSv1.2",
        Tls13 = 0x0304 "TLSv1.3",
    }
}

registry! {
    /// A cipher suite of TLS 1.3 (RFC 8446, section B.4) or TLS 1.2 (RFC 5289, RFC 7905).
    ///
    /// ```
    /// # mod tautline { pub use tautline_tls::CipherSuite; }
    /// use tautline::CipherSuite;
    ///
    /// assert_eq!(CipherSuite::Aes128GcmSha256.to_string(), "TLS_AES_128_GCM_SHA256");
    /// assert_eq!(CipherSuite::from(0x1304).to_string(), "number 0x1304");
    /// ```
    CipherSuite {
        Aes128GcmSha256 = 0x1301 "TLS_AES_128_GCM_SHA256",
        Aes256GcmSha384 = 0x1302 "TLS_AES_256_GCM_SHA384",
        Chacha20Poly1305Sha256 = 0x1303 "TLS_CHACHA20_POLY1305_SHA256",
        EcdheEcdsaAes128GcmSha256 = 0xc02b "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
        EcdheEcdsaAes256GcmSha384 = 0xc02c "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
        EcdheRsaAes128GcmSha256 = 0xc02f "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
        EcdheRsaAes256GcmSha384 = 0xc030 "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
        EcdheRsaChacha20Poly1305Sha256 = 0xcca8 "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
        EcdheEcdsaChacha20Poly1305Sha256 = 0xcca9 "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
    }
}

registry! {
    /// A group of the key exchange (RFC 8446, section 4.2.7), hybrids with ML-KEM included.
    ///
    /// ```
    /// # mod tautline { pub use tautline_tls::NamedGroup; }
    /// use tautline::NamedGroup;
    ///
    /// assert_eq!(NamedGroup::X25519MlKem768.to_string(), "X25519MLKEM768");
    /// ```
    NamedGroup {
        Secp256r1 = 0x0017 "secp256r1",
        Secp384r1 = 0x0018 "secp384r1",
        Secp521r1 = 0x0019 "secp521r1",
        X25519 = 0x001d "X25519",
        X448 = 0x001e "X448",
        Ffdhe2048 = 0x0100 "ffdhe2048",
        Ffdhe3072 = 0x0101 "ffdhe3072",
        Ffdhe4096 = 0x0102 "ffdhe4096",
        Ffdhe6144 = 0x0103 "ffdhe6144",
        Ffdhe8192 = 0x0104 "ffdhe8192",
        MlKem512 = 0x0200 "MLKEM512",
        MlKem768 = 0x0201 "MLKEM768",
        MlKem1024 = 0x0202 "MLKEM1024",
        Secp256r1MlKem768 = 0x11eb "SecP256r1MLKEM768",
        X25519MlKem768 = 0x11ec "X25519MLKEM768",
        Secp384r1MlKem1024 = 0x11ed "SecP384r1MLKEM1024",
    }
}

#[cfg(test)]
mod tests {
    use super::{CipherSuite, NamedGroup, ProtocolVersion};

    #[test]
    fn numbers_and_members_match() {
        for number in 0..=u16::MAX {
            assert_eq!(ProtocolVersion::from(number).number(), number);
            assert_eq!(CipherSuite::from(number).number(), number);
            let group = NamedGroup::from(number);
            assert_eq!(group.number(), number);
            assert_eq!(group.name().and_then(NamedGroup::from_name), group.name().map(|_| group));
        }
        assert_eq!(CipherSuite::from(0x1301), CipherSuite::Aes128GcmSha256);
        assert_eq!(format!("{:?} {}", CipherSuite::from(0x1304), NamedGroup::X448), "number 0x1304 X448");
        assert_eq!(NamedGroup::from_name("x25519"), Some(NamedGroup::X25519));
        assert_eq!(NamedGroup::from_name("X25519Kyber768"), None);
    }
}
