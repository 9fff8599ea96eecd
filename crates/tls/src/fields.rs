//! Fields of a certificate (RFC 5280, section 4.1) that TLS libraries do not show.

use crate::der::{BITS, Der, EXPLICIT_0, INTEGER, OBJECT, OCTETS, SEQUENCE, TIME, UTC_TIME, seconds};
use crate::names::{self, AlternativeName};
use crate::signed::Key;

// Extensions: 2.5.29.15, 2.5.29.17, 2.5.29.35 and 2.5.29.37.
const KEY_USAGE: [u8; 3] = [0x55, 0x1d, 15];
const ALTERNATIVE_NAMES: [u8; 3] = [0x55, 0x1d, 17];
const AUTHORITY_KEY_ID: [u8; 3] = [0x55, 0x1d, 35];
const EXTENDED_KEY_USAGE: [u8; 3] = [0x55, 0x1d, 37];
// Extensions of PKIX: 1.3.6.1.5.5.7.1.1 and .24.
const AUTHORITY_INFORMATION: [u8; 8] = [0x2b, 6, 1, 5, 5, 7, 1, 1];
const TLS_FEATURE: [u8; 8] = [0x2b, 6, 1, 5, 5, 7, 1, 24];

/// id-ad-ocsp, 1.3.6.1.5.5.7.48.1, a way to information of the authority.
const OCSP: [u8; 8] = [0x2b, 6, 1, 5, 5, 7, 0x30, 1];
/// id-kp-OCSPSigning, 1.3.6.1.5.5.7.3.9, a purpose of a key.
const OCSP_SIGNING: [u8; 8] = [0x2b, 6, 1, 5, 5, 7, 3, 9];
/// status_request (RFC 6066, section 8), a feature of TLS.
const STATUS_REQUEST: u64 = 5;
/// `[6]`, a URI among general names.
const URI: u8 = 0x86;

/// `[1]`, the issuer in an authority key identifier, and within it `[4]`, the name of a directory.
const ISSUER: u8 = 0xa1;
const DIRECTORY: u8 = 0xa4;

/// A role in which a certificate is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// As a server.
    Server,
    /// As a client.
    Client,
}

/// Fields of one certificate.
#[derive(Clone, Debug)]
pub struct Fields<'a> {
    serial: &'a [u8],
    not_before: u64,
    not_after: u64,
    issuer: &'a [u8],
    subject: &'a [u8],
    key: &'a [u8],
    extensions: &'a [u8],
}

impl<'a> Fields<'a> {
    /// Reads a certificate of version 3. `None` if it is malformed.
    #[must_use]
    pub fn of(certificate: &'a [u8]) -> Option<Self> {
        let mut fields = Der(Der(Der(certificate).take(SEQUENCE)?).take(SEQUENCE)?);
        fields.take(EXPLICIT_0)?;
        let serial = fields.take(INTEGER)?;
        fields.take(SEQUENCE)?;
        let issuer = fields.take(SEQUENCE)?;
        let mut validity = Der(fields.take(SEQUENCE)?);
        let (not_before, not_after) = (time(validity.next()?)?, time(validity.next()?)?);
        let subject = fields.take(SEQUENCE)?;
        let key = fields.take(SEQUENCE)?;
        let mut extensions = &[][..];
        while let Some((tag, value)) = fields.next() {
            if tag == 0xa3 {
                extensions = Der(value).take(SEQUENCE)?;
            }
        }
        Some(Self { serial, not_before, not_after, issuer, subject, key, extensions })
    }

    /// Whether it is valid at this time, in seconds since 1970.
    #[must_use]
    pub const fn is_valid_at(&self, now: u64) -> bool {
        self.not_before <= now && now <= self.not_after
    }

    /// Whether it names itself as its issuer.
    #[must_use]
    pub fn is_self_issued(&self) -> bool {
        self.issuer == self.subject
    }

    /// Whether its extended key usage allows this role. A certificate that does not limit its use does.
    #[must_use]
    pub fn is_for(&self, role: Role) -> bool {
        // id-kp-serverAuth and id-kp-clientAuth, 1.3.6.1.5.5.7.3.1 and .2
        let purpose = [0x2b, 6, 1, 5, 5, 7, 3, if role == Role::Server { 1 } else { 2 }];
        self.extension(&EXTENDED_KEY_USAGE).is_none_or(|value| has_purpose(value, &purpose))
    }

    /// Whether it is that of a responder, which signs OCSP responses (RFC 6960, section 4.2.2.2).
    #[must_use]
    pub fn signs_responses(&self) -> bool {
        self.extension(&EXTENDED_KEY_USAGE).is_some_and(|value| has_purpose(value, &OCSP_SIGNING))
    }

    /// The URL of a responder that knows its status (RFC 5280, section 4.2.2.1); `None` if it names none.
    #[must_use]
    pub fn responder(&self) -> Option<&'a str> {
        let mut ways = Der(Der(self.extension(&AUTHORITY_INFORMATION)?).take(SEQUENCE)?);
        core::iter::from_fn(|| ways.take(SEQUENCE)).find_map(|way| {
            let mut way = Der(way);
            let is_ocsp = way.take(OBJECT)? == OCSP;
            way.take(URI).filter(|_| is_ocsp).and_then(|url| core::str::from_utf8(url).ok())
        })
    }

    /// Whether clients are to reject it without a stapled response ("must-staple", RFC 7633).
    #[must_use]
    pub fn must_be_stapled(&self) -> bool {
        let features = self.extension(&TLS_FEATURE).and_then(|value| Der(value).take(SEQUENCE)).unwrap_or_default();
        let mut features = Der(features);
        let number = |bytes: &[u8]| bytes.iter().fold(0, |number: u64, &byte| number << 8 | u64::from(byte));
        core::iter::from_fn(|| features.take(INTEGER)).any(|one| number(one) == STATUS_REQUEST)
    }

    /// Its serial number, as it stands in the certificate.
    #[must_use]
    pub const fn serial(&self) -> &'a [u8] {
        self.serial
    }

    /// Its key; `None` if that is malformed.
    #[must_use]
    pub fn key(&self) -> Option<Key<'a>> {
        Key::read(self.key)
    }

    /// Whether its key usage allows handshakes in this role. A certificate that does not limit its key's use does.
    #[must_use]
    pub fn key_is_for(&self, role: Role) -> bool {
        // As OpenSSL judges: digitalSignature or keyAgreement, and for servers also keyEncipherment.
        let allowed = if role == Role::Server { 0xa8 } else { 0x88 };
        self.extension(&KEY_USAGE).is_none_or(|value| {
            // The first byte of a string of bits is the number of unused ones.
            Der(value).take(BITS).is_some_and(|bits| bits.get(1).is_some_and(|first| first & allowed != 0))
        })
    }

    /// Whether it says that its issuer is a root: the issuer's issuer, in its authority key identifier, is the issuer.
    #[must_use]
    pub fn has_root_as_issuer(&self) -> bool {
        let named = || {
            let mut identifier = Der(Der(self.extension(&AUTHORITY_KEY_ID)?).take(SEQUENCE)?);
            let names = core::iter::from_fn(|| identifier.next()).find(|&(tag, _)| tag == ISSUER)?.1;
            Der(Der(names).take(DIRECTORY)?).take(SEQUENCE)
        };
        named() == Some(self.issuer)
    }

    /// The name of its issuer, in DER.
    #[must_use]
    pub const fn issuer(&self) -> &'a [u8] {
        self.issuer
    }

    /// Its own name, in DER.
    #[must_use]
    pub const fn subject(&self) -> &'a [u8] {
        self.subject
    }

    /// Its other names, in their order.
    #[must_use]
    pub fn alternative_names(&self) -> Vec<AlternativeName<'a>> {
        self.extension(&ALTERNATIVE_NAMES).map(names::alternative).unwrap_or_default()
    }

    /// The value of an extension, which is DER itself.
    fn extension(&self, id: &[u8]) -> Option<&'a [u8]> {
        let mut extensions = Der(self.extensions);
        core::iter::from_fn(|| extensions.take(SEQUENCE)).find_map(|extension| {
            let mut extension = Der(extension);
            if extension.take(OBJECT)? != id {
                return None;
            }
            // A flag says whether it is critical, if it is.
            core::iter::from_fn(|| extension.next()).find(|&(tag, _)| tag == OCTETS).map(|(_, value)| value)
        })
    }
}

/// Whether an extended key usage has this purpose.
fn has_purpose(usage: &[u8], purpose: &[u8]) -> bool {
    let mut purposes = Der(Der(usage).take(SEQUENCE).unwrap_or_default());
    core::iter::from_fn(|| purposes.take(OBJECT)).any(|one| one == purpose)
}

/// The common name, or all texts, of a name in DER, for people to read.
#[must_use]
pub fn readable(name: &[u8]) -> String {
    let mut sets = Der(name);
    let mut parts = Vec::new();
    while let Some((_, set)) = sets.next() {
        let Some(mut pair) = Der(set).take(SEQUENCE).map(Der) else { continue };
        let (Some(id), Some((_, text))) = (pair.take(OBJECT), pair.next()) else { continue };
        let text = String::from_utf8_lossy(text).escape_debug().to_string();
        if id == [0x55, 4, 3] {
            return text;
        }
        parts.push(text);
    }
    parts.join(", ")
}

/// Seconds since 1970 of a time. One with two digits for the year is between 1950 and 2049.
fn time((tag, text): (u8, &[u8])) -> Option<u64> {
    match tag {
        // Times before 1970 are long past.
        TIME => seconds(text).or_else(|| (text < &b"1970"[..]).then_some(0)),
        UTC_TIME if text >= &b"50"[..] && text < &b"70"[..] => Some(0),
        UTC_TIME => {
            let century: &[u8] = if text < &b"50"[..] { b"20" } else { b"19" };
            seconds(&[century, text].concat())
        }
        _ => None,
    }
}
