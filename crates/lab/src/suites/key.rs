use tautline_dev_cert::KeyKind;
use tautline_measure::named;

named! {
    /// Kind of a certificate's key.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(super) enum Key {
        Rsa2048 = "rsa2048",
        Rsa4096 = "rsa4096",
        P256 = "p256",
        Ed25519 = "ed25519",
    }
}

impl Key {
    pub(super) const fn kind(self) -> KeyKind {
        match self {
            Self::Rsa2048 => KeyKind::Rsa2048,
            Self::Rsa4096 => KeyKind::Rsa4096,
            Self::P256 => KeyKind::P256,
            Self::Ed25519 => KeyKind::Ed25519,
        }
    }
}
