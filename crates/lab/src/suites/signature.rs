use super::server::Key;
use crate::Error;
use crate::cpu::thread_time;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, Ed25519KeyPair, RSA_PSS_SHA256, RsaKeyPair};
use std::time::Duration;

/// Bytes that a server signs in TLS 1.3 with SHA-256 (RFC 8446, section 4.4.3).
const SIGNED: [u8; 64 + 33 + 1 + 32] = [0x20; 64 + 33 + 1 + 32];

/// A key that signs, without anything around it: the part of a full handshake that cannot be saved.
pub(super) struct Signer(Box<dyn Fn() -> Result<(), Error>>);

impl Signer {
    pub(super) fn new(key: Key) -> Result<Self, Error> {
        let failed = |_| Error::Failed(format!("cannot make a key: {}", key.name()));
        Ok(Self(match key {
            Key::P256 => {
                let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING).map_err(failed)?;
                let random = SystemRandom::new();
                Box::new(move || pair.sign(&random, &SIGNED).map(drop).map_err(refused))
            }
            Key::Ed25519 => {
                let pair = Ed25519KeyPair::generate().map_err(failed)?;
                Box::new(move || pair.try_sign(&SIGNED).map(drop).map_err(refused))
            }
            Key::Rsa2048 => rsa(KeySize::Rsa2048).map_err(failed)?,
            Key::Rsa4096 => rsa(KeySize::Rsa4096).map_err(failed)?,
        }))
    }

    /// CPU time of one signature in us, over `least` of CPU time in all.
    pub(super) fn measure(&self, least: Duration) -> Result<f64, Error> {
        (self.0)()?;
        let began = thread_time();
        let (mut took, mut count) = (Duration::ZERO, 0_u32);
        while took < least && count < 1 << 20 {
            for _ in 0..8 {
                (self.0)()?;
            }
            count += 8;
            took = thread_time().saturating_sub(began);
        }
        Ok(took.as_secs_f64() * 1e6 / f64::from(count))
    }
}

fn rsa(size: KeySize) -> Result<Box<dyn Fn() -> Result<(), Error>>, aws_lc_rs::error::Unspecified> {
    let pair = RsaKeyPair::generate(size)?;
    let random = SystemRandom::new();
    Ok(Box::new(move || {
        let mut signature = vec![0; pair.public_modulus_len()];
        pair.sign(&RSA_PSS_SHA256, &random, &SIGNED, &mut signature).map_err(refused)
    }))
}

fn refused(_: aws_lc_rs::error::Unspecified) -> Error {
    Error::Failed("the library does not sign".to_owned())
}
