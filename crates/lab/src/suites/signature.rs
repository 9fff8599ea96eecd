use super::Key;
use crate::Error;
use crate::cpu::{time_per_item, timed};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, Ed25519KeyPair, RSA_PSS_SHA256, RsaKeyPair};
use std::time::Duration;

/// Bytes that a server signs in TLS 1.3 with SHA-256 (RFC 8446, section 4.4.3).
const SIGNED: [u8; 64 + 33 + 1 + 32] = [0x20; 64 + 33 + 1 + 32];

/// Signs with a key and does nothing else: the lower bound of a full handshake.
pub(super) struct Signer(Box<dyn Fn() -> Result<(), Error>>);

impl Signer {
    pub(super) fn new(key: Key) -> Result<Self, Error> {
        let no_key = |_| Error::Failed(format!("cannot make a key: {}", key.name()));
        Ok(Self(match key {
            Key::P256 => {
                let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING).map_err(no_key)?;
                let random = SystemRandom::new();
                Box::new(move || pair.sign(&random, &SIGNED).map(drop).map_err(failed))
            }
            Key::Ed25519 => {
                let pair = Ed25519KeyPair::generate().map_err(no_key)?;
                Box::new(move || pair.try_sign(&SIGNED).map(drop).map_err(failed))
            }
            Key::Rsa2048 => rsa(KeySize::Rsa2048).map_err(no_key)?,
            Key::Rsa4096 => rsa(KeySize::Rsa4096).map_err(no_key)?,
        }))
    }

    /// CPU time of one signature in us, over at least `least` of CPU time.
    pub(super) fn measure(&self, least: Duration) -> Result<f64, Error> {
        const BATCH: usize = 8;
        (self.0)()?;
        let batch = || timed(|| (0..BATCH).try_for_each(|_| (self.0)())).map(|(took, ())| (took, BATCH));
        Ok(time_per_item(least, batch)?.0)
    }
}

fn rsa(size: KeySize) -> Result<Box<dyn Fn() -> Result<(), Error>>, aws_lc_rs::error::Unspecified> {
    let pair = RsaKeyPair::generate(size)?;
    let random = SystemRandom::new();
    Ok(Box::new(move || {
        let mut signature = vec![0; pair.public_modulus_len()];
        pair.sign(&RSA_PSS_SHA256, &random, &SIGNED, &mut signature).map_err(failed)
    }))
}

fn failed(_: aws_lc_rs::error::Unspecified) -> Error {
    Error::Failed("the library does not sign".to_owned())
}
