use crate::Error;
use core::time::Duration;
use rcgen::{
    BasicConstraints, CertificateParams, CustomExtension, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
};
use rcgen::{KeyUsagePurpose, RsaKeySize};
use std::time::{SystemTime, UNIX_EPOCH};
use tautline_tls::Certificate;

const DAY: u64 = 24 * 60 * 60;

/// A certificate authority with its own key (ECDSA P-256), valid for ten years.
///
/// No client trusts it by default. The holder of its key can impersonate any server to every client that trusts it.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: String,
    /// The authority key identifier of the certificates that it issues.
    identifier: Vec<u8>,
}

impl Authority {
    /// Makes an authority with a new key.
    ///
    /// The common name of its subject is `name` and eight hex digits of its key. Verifiers look authorities up by
    /// subject and would confuse two with equal ones.
    ///
    /// # Errors
    /// The library failed, for instance because the system has no randomness.
    pub fn new(name: &str) -> Result<Self, Error> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(Vec::<String>::new())?;
        let digits: String = key.public_key_raw().iter().rev().take(4).map(|byte| format!("{byte:02x}")).collect();
        let name = format!("{name} {digits}");
        params.distinguished_name.push(DnType::CommonName, &name);
        let serial: Vec<u8> = [1].into_iter().chain(key.public_key_raw().iter().rev().take(15).copied()).collect();
        params.serial_number = Some(serial.clone().into());
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let now = now();
        set_validity(&mut params, (now - DAY, now + 3650 * DAY));
        let certificate = params.self_signed(&key)?.pem();
        let identifier = identifier(&params.key_identifier(&key), &name, &serial);
        Ok(Self { issuer: Issuer::new(params, key), certificate, identifier })
    }

    /// Makes an authority below this one, with a new key.
    ///
    /// Chains of certificates that it issues need its own [certificate](Self::certificate) behind them.
    ///
    /// # Errors
    /// The library failed.
    pub fn intermediate(&self, name: &str) -> Result<Self, Error> {
        let key = KeyPair::generate()?;
        let mut params = CertificateParams::new(Vec::<String>::new())?;
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let now = now();
        set_validity(&mut params, (now - DAY, now + 3650 * DAY));
        let certificate = params.signed_by(&key, &self.issuer)?.pem();
        let identifier = element(0x30, &element(0x80, &params.key_identifier(&key)));
        Ok(Self { issuer: Issuer::new(params, key), certificate, identifier })
    }

    /// The authority's certificate in PEM, which clients must trust.
    #[must_use]
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// The authority's private key in PKCS#8 PEM.
    #[must_use]
    pub fn key(&self) -> String {
        self.issuer.key().serialize_pem()
    }

    /// Issues a certificate with a new key. Its chain does not include the authority's certificate.
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
        params.custom_extensions = vec![CustomExtension::from_oid_content(&[2, 5, 29, 35], self.identifier.clone())];
        set_validity(&mut params, leaf.validity.seconds(now()));
        let certificate = params.signed_by(&key, &self.issuer)?;
        Ok(Certificate::new(certificate.pem(), key.serialize_pem()))
    }
}

/// The contents of a certificate.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Leaf<'a> {
    /// The DNS names (with or without a leading `*.`) and IP addresses that it is valid for.
    pub names: &'a [&'a str],
    /// The kind of its key.
    pub key: KeyKind,
    /// The roles that it authenticates.
    pub usage: Usage,
    /// The time for which it is valid.
    pub validity: Validity,
}

impl<'a> Leaf<'a> {
    /// A server's certificate for these names, with a P-256 key and 397 days of validity.
    #[must_use]
    pub fn new(names: &'a [&'a str]) -> Self {
        Self { names, ..Self::default() }
    }

    /// Makes a certificate that signs itself and calls itself an authority, as `openssl req -x509` does.
    ///
    /// Peers that trust this very certificate accept it.
    ///
    /// # Errors
    /// A name is not ASCII, or the library failed.
    pub fn signed_by_itself(&self) -> Result<Certificate, Error> {
        let key = self.key.generate()?;
        let mut params = CertificateParams::new(self.names.iter().map(ToString::to_string).collect::<Vec<_>>())?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        // Without this extension, as OpenSSL makes them, a certificate is for both roles.
        if self.usage != Usage::Both {
            params.extended_key_usages = self.usage.purposes().to_vec();
        }
        set_validity(&mut params, self.validity.seconds(now()));
        Ok(Certificate::new(params.self_signed(&key)?.pem(), key.serialize_pem()))
    }

    /// Sets the kind of its key.
    #[must_use]
    pub const fn with_key(mut self, key: KeyKind) -> Self {
        self.key = key;
        self
    }

    /// Sets the roles that it authenticates.
    #[must_use]
    pub const fn with_usage(mut self, usage: Usage) -> Self {
        self.usage = usage;
        self
    }

    /// Sets the time for which it is valid.
    #[must_use]
    pub const fn with_validity(mut self, validity: Validity) -> Self {
        self.validity = validity;
        self
    }
}

/// The kind of a private key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyKind {
    /// ECDSA over P-256: of the kinds that every client verifies, the fastest to sign.
    #[default]
    P256,
    /// ECDSA over P-384.
    P384,
    /// RSA, 2048 bits.
    Rsa2048,
    /// RSA, 4096 bits. Generating one takes seconds.
    Rsa4096,
    /// Ed25519, which browsers do not verify.
    Ed25519,
}

impl KeyKind {
    /// The kinds that are quick to generate.
    pub const QUICK: [Self; 4] = [Self::P256, Self::P384, Self::Rsa2048, Self::Ed25519];

    fn generate(self) -> Result<KeyPair, rcgen::Error> {
        match self {
            Self::P256 => KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256),
            Self::P384 => KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384),
            Self::Rsa2048 => KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, RsaKeySize::_2048),
            Self::Rsa4096 => KeyPair::generate_rsa_for(&rcgen::PKCS_RSA_SHA256, RsaKeySize::_4096),
            Self::Ed25519 => KeyPair::generate_for(&rcgen::PKCS_ED25519),
        }
    }
}

/// The roles that a certificate authenticates: its extended key usage (RFC 5280, section 4.2.1.12).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Usage {
    /// A server.
    #[default]
    Server,
    /// A client.
    Client,
    /// A server or a client.
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

/// The time for which a certificate is valid.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Validity {
    /// 397 days from yesterday on, which every browser accepts.
    #[default]
    Valid,
    /// From yesterday until this number of days from now.
    Days(u32),
    /// Ended ten days ago.
    Expired,
    /// Begins in ten days.
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

/// An authority key identifier (RFC 5280, section 4.2.1.1) that names an authority which signed itself.
///
/// It shows that a chain of one certificate is whole. The key alone would not tell the authority from an intermediate one.
fn identifier(key: &[u8], name: &str, serial: &[u8]) -> Vec<u8> {
    // id-at-commonName, 2.5.4.3, and a UTF8String.
    let pair = [element(0x06, &[0x55, 4, 3]), element(0x0c, name.as_bytes())].concat();
    let name = element(0x30, &element(0x31, &element(0x30, &pair)));
    let parts = [element(0x80, key), element(0xa1, &element(0xa4, &name)), element(0x82, serial)];
    element(0x30, &parts.concat())
}

/// One element of DER, of fewer than 64 KiB.
fn element(tag: u8, value: &[u8]) -> Vec<u8> {
    let [low, high, ..] = value.len().to_le_bytes();
    let head: &[u8] = match (high, low) {
        (0, ..0x80) => &[tag, low],
        (0, _) => &[tag, 0x81, low],
        _ => &[tag, 0x82, high, low],
    };
    [head, value].concat()
}

/// Seconds since 1970.
fn now() -> u64 {
    // If the clock is wrong, 60 days keep the subtractions of `Validity::seconds` from underflowing.
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |age| age.as_secs()).max(60 * DAY)
}

fn set_validity(params: &mut CertificateParams, (not_before, not_after): (u64, u64)) {
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    params.not_before = epoch + Duration::from_secs(not_before);
    params.not_after = epoch + Duration::from_secs(not_after);
}
