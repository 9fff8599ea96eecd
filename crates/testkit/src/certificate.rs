//! A certificate authority for development and tests.

use core::time::Duration;
use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use rcgen::{KeyUsagePurpose, RsaKeySize};
use std::time::{SystemTime, UNIX_EPOCH};
use tautline_tls::Certificate;

/// Why a certificate could not be made: a name that no certificate can hold, or the library failed.
pub type Error = rcgen::Error;

const DAY: u64 = 24 * 60 * 60;

/// A certificate authority with its own key (ECDSA P-256), valid for ten years.
///
/// Nobody trusts it until told to; whoever holds its key can impersonate any server to those who do.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: String,
}

impl Authority {
    /// A new authority. Its subject's common name is `name` and a few digits of its key: verifiers look authorities up by
    /// subject, and would take two of the same for each other.
    ///
    /// # Errors
    /// The library failed, for instance for want of randomness.
    pub fn new(name: &str) -> Result<Self, Error> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(Vec::<String>::new())?;
        let digits: String = key.public_key_raw().iter().rev().take(4).map(|byte| format!("{byte:02x}")).collect();
        params.distinguished_name.push(DnType::CommonName, format!("{name} {digits}"));
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let now = now();
        set_validity(&mut params, (now - DAY, now + 3650 * DAY));
        let certificate = params.self_signed(&key)?.pem();
        Ok(Self { issuer: Issuer::new(params, key), certificate })
    }

    /// The authority's certificate, PEM: what clients must trust.
    #[must_use]
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// The authority's private key, PKCS#8 PEM.
    #[must_use]
    pub fn key(&self) -> String {
        self.issuer.key().serialize_pem()
    }

    /// A certificate by this authority. Its chain holds the certificate itself; the authority's own is not part of it.
    ///
    /// # Errors
    /// A name is not ASCII, or the library failed.
    pub fn issue(&self, leaf: &Leaf<'_>) -> Result<Certificate, Error> {
        let key = leaf.key.generate()?;
        let names: Vec<String> = leaf.names.iter().map(ToString::to_string).collect();
        let mut params = CertificateParams::new(names)?;
        if let Some(first) = leaf.names.first() {
            params.distinguished_name = rcgen::DistinguishedName::new();
            params.distinguished_name.push(DnType::CommonName, *first);
        }
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = leaf.usage.purposes().to_vec();
        params.use_authority_key_identifier_extension = true;
        set_validity(&mut params, leaf.validity.seconds(now()));
        let certificate = params.signed_by(&key, &self.issuer)?;
        Ok(Certificate::new(certificate.pem(), key.serialize_pem()))
    }
}

/// What to put into a certificate.
#[derive(Clone, Copy, Debug, Default)]
pub struct Leaf<'a> {
    /// DNS names (with or without a leading `*.`) and IP addresses it is valid for.
    pub names: &'a [&'a str],
    /// Its key.
    pub key: KeyKind,
    /// What it may be used for.
    pub usage: Usage,
    /// When it is valid.
    pub validity: Validity,
}

/// Kind of a private key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KeyKind {
    /// ECDSA over P-256: the fastest to sign that every client verifies.
    #[default]
    P256,
    /// ECDSA over P-384.
    P384,
    /// RSA, 2048 bits.
    Rsa2048,
    /// RSA, 4096 bits. Making one takes seconds.
    Rsa4096,
    /// Ed25519, which browsers do not verify.
    Ed25519,
}

impl KeyKind {
    /// Every kind that is quick to make.
    pub const QUICK: [Self; 4] = [Self::P256, Self::P384, Self::Rsa2048, Self::Ed25519];

    fn generate(self) -> Result<KeyPair, Error> {
        match self {
            Self::P256 => KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256),
            Self::P384 => KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384),
            Self::Rsa2048 => KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, RsaKeySize::_2048),
            Self::Rsa4096 => KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, RsaKeySize::_4096),
            Self::Ed25519 => KeyPair::generate_for(&rcgen::PKCS_ED25519),
        }
    }
}

/// What a certificate may be used for (RFC 5280, section 4.2.1.12).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Usage {
    /// To authenticate a server.
    #[default]
    Server,
    /// To authenticate a client.
    Client,
    /// Either.
    Both,
}

impl Usage {
    const fn purposes(self) -> &'static [ExtendedKeyUsagePurpose] {
        match self {
            Self::Server => &[ExtendedKeyUsagePurpose::ServerAuth],
            Self::Client => &[ExtendedKeyUsagePurpose::ClientAuth],
            Self::Both => &[ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth],
        }
    }
}

/// When a certificate is valid.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Validity {
    /// From yesterday for 397 days, the most that every browser accepts.
    #[default]
    Valid,
    /// From yesterday until so many days from now.
    Days(u32),
    /// It ended ten days ago.
    Expired,
    /// It begins in ten days.
    NotYet,
}

impl Validity {
    fn seconds(self, now: u64) -> (u64, u64) {
        match self {
            Self::Valid => (now - DAY, now + 396 * DAY),
            Self::Days(days) => (now - DAY, now + u64::from(days) * DAY),
            Self::Expired => (now - 40 * DAY, now - 10 * DAY),
            Self::NotYet => (now + 10 * DAY, now + 40 * DAY),
        }
    }
}

/// Seconds since 1970.
fn now() -> u64 {
    // A clock before 1970 cannot make a certificate that anyone accepts; a month after it, the arithmetic still holds.
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |age| age.as_secs()).max(60 * DAY)
}

fn set_validity(params: &mut CertificateParams, (not_before, not_after): (u64, u64)) {
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    params.not_before = epoch + Duration::from_secs(not_before);
    params.not_after = epoch + Duration::from_secs(not_after);
}
