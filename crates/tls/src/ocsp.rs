//! OCSP responses (RFC 6960): what they say, who signed them, and whether a server staples one.
//!
//! This is the one reader of responses. It verifies no signature itself: the caller lends a function that does, with the
//! algorithms of its TLS library.

use crate::Error;
use crate::chain::Strictness;
use crate::der::{Der, EXPLICIT_0, INTEGER, OBJECT, OCTETS, SEQUENCE, TIME, date, seconds, trimmed};
use crate::fields::Fields;
pub use crate::signed::{Key, Signed};

const ENUMERATED: u8 = 0x0a;
// Context-specific tags: `[0]`, and the constructed `[1]`.
const GOOD: u8 = 0x80;
const REVOKED: u8 = 0xa1;

/// id-pkix-ocsp-basic, 1.3.6.1.5.5.7.48.1.1.
const BASIC: [u8; 9] = [0x2b, 6, 1, 5, 5, 7, 0x30, 1, 1];

/// The answer of a responder.
#[derive(Clone, Debug)]
pub enum Response<'a> {
    /// The responder did not answer, with this code (RFC 6960, section 4.2.1).
    Refused(u8),
    /// It says what it knows about some certificates.
    Basic(Basic<'a>),
}

/// A BasicOCSPResponse.
#[derive(Clone, Debug)]
pub struct Basic<'a> {
    signed: Signed<'a>,
    singles: Der<'a>,
    /// The SEQUENCE of the responder's certificates.
    certificates: Der<'a>,
}

/// The part of a response about one certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Single<'a> {
    /// The hash of the issuer's name.
    pub name_hash: &'a [u8],
    /// The hash of the issuer's key.
    pub key_hash: &'a [u8],
    /// The serial number, without leading zeros.
    pub serial: &'a [u8],
    /// The status.
    pub status: Status,
    /// The time from which the status is known, in seconds since 1970.
    pub this_update: u64,
    /// The time at which the next response is due, in seconds since 1970.
    pub next_update: Option<u64>,
}

/// The status of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// It is not revoked.
    Good,
    /// It was revoked.
    Revoked {
        /// The time of the revocation, in seconds since 1970.
        at: u64,
        /// The code of the reason (RFC 5280, section 5.3.1).
        reason: Option<u8>,
    },
    /// The responder does not know it.
    Unknown,
}

/// Whether a signature is that of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checked {
    /// It is.
    Holds,
    /// It is not.
    Fails,
    /// The algorithm is none of those that the caller has.
    NoAlgorithm,
}

/// Whose signature a response has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signer<'a> {
    /// That of an issuer.
    Issuer,
    /// That of a responder that an issuer appointed (RFC 6960, section 4.2.2.2), whose certificate this is.
    Appointed(&'a [u8]),
    /// That of nobody who counts.
    Nobody,
    /// The caller does not have its algorithm.
    NoAlgorithm,
}

impl<'a> Response<'a> {
    /// Reads a response in DER; `None` if it is malformed.
    ///
    /// ```
    /// use tautline_tls::ocsp::Response;
    ///
    /// assert!(matches!(Response::read(&[0x30, 3, 0x0a, 1, 6]), Some(Response::Refused(6))));
    /// assert!(Response::read(b"<html>").is_none());
    /// ```
    #[must_use]
    pub fn read(response: &'a [u8]) -> Option<Self> {
        let mut whole = Der(response);
        let mut response = Der(whole.take(SEQUENCE)?);
        if !whole.0.is_empty() {
            return None;
        }
        let &[code] = response.take(ENUMERATED)? else { return None };
        if code != 0 {
            return Some(Self::Refused(code));
        }
        let mut bytes = Der(Der(response.take(EXPLICIT_0)?).take(SEQUENCE)?);
        if bytes.take(OBJECT)? != BASIC {
            return None;
        }
        Basic::read(Der(bytes.take(OCTETS)?).take(SEQUENCE)?).map(Self::Basic)
    }
}

impl<'a> Basic<'a> {
    fn read(basic: &'a [u8]) -> Option<Self> {
        let mut basic = Der(basic);
        let signed = Signed::take(&mut basic)?;
        let certificates =
            if basic.0.is_empty() { Der(&[]) } else { Der(Der(basic.take(EXPLICIT_0)?).take(SEQUENCE)?) };
        let mut data = Der(Der(signed.message).take(SEQUENCE)?);
        let (mut tag, _) = data.next()?;
        if tag == EXPLICIT_0 {
            // The first element was the version; the next is the responder's ID.
            tag = data.next()?.0;
        }
        if !matches!(tag, 0xa1 | 0xa2) {
            return None;
        }
        data.take(TIME)?;
        let singles = Der(data.take(SEQUENCE)?);
        Some(Self { signed, singles, certificates })
    }

    /// The part about the certificate with this serial number: `Some(None)` if there is none, `None` if it is malformed.
    ///
    /// The hashes of the issuer are not compared. A caller that relies on the status also verifies the signature.
    #[must_use]
    pub fn about(&self, serial: &[u8]) -> Option<Option<Single<'a>>> {
        let mut singles = self.singles;
        while !singles.0.is_empty() {
            let single = Single::read(singles.take(SEQUENCE)?)?;
            if single.serial == trimmed(serial) {
                return Some(Some(single));
            }
        }
        Some(None)
    }

    /// Whose signature it has, if these are the keys of those who may have issued the certificate.
    ///
    /// `check` verifies a signature. The time is in seconds since 1970.
    pub fn signer(
        &self,
        issuers: &[Key<'_>],
        now: u64,
        mut check: impl FnMut(&Key<'_>, &Signed<'_>) -> Checked,
    ) -> Signer<'a> {
        let mut best = Signer::Nobody;
        for issuer in issuers {
            match check(issuer, &self.signed) {
                Checked::Holds => return Signer::Issuer,
                Checked::NoAlgorithm => best = Signer::NoAlgorithm,
                Checked::Fails => {}
            }
        }
        let mut certificates = self.certificates;
        while let Some(certificate) = certificates.element() {
            let Some(responder) = Fields::of(certificate).filter(|one| one.signs_responses() && one.is_valid_at(now))
            else {
                continue;
            };
            let appointed = Signed::of(certificate)
                .is_some_and(|signed| issuers.iter().any(|issuer| check(issuer, &signed) == Checked::Holds));
            match responder.key().filter(|_| appointed).map(|key| check(&key, &self.signed)) {
                Some(Checked::Holds) => return Signer::Appointed(certificate),
                Some(Checked::NoAlgorithm) => best = Signer::NoAlgorithm,
                Some(Checked::Fails) | None => {}
            }
        }
        best
    }
}

impl<'a> Single<'a> {
    fn read(response: &'a [u8]) -> Option<Self> {
        let mut single = Der(response);
        let mut id = Der(single.take(SEQUENCE)?);
        id.take(SEQUENCE)?;
        let (name_hash, key_hash) = (id.take(OCTETS)?, id.take(OCTETS)?);
        let serial = trimmed(id.take(INTEGER)?);
        let (tag, value) = single.next()?;
        let this_update = seconds(single.take(TIME)?)?;
        let next_update = match single.next() {
            Some((EXPLICIT_0, next)) => Some(seconds(Der(next).take(TIME)?)?),
            _ => None,
        };
        let status = match tag {
            GOOD => Status::Good,
            REVOKED => {
                let mut revoked = Der(value);
                let at = seconds(revoked.take(TIME)?)?;
                let reason = revoked.take(EXPLICIT_0).and_then(|reason| Der(reason).take(ENUMERATED)?.first().copied());
                Status::Revoked { at, reason }
            }
            _ => Status::Unknown,
        };
        Some(Self { name_hash, key_hash, serial, status, this_update, next_update })
    }
}

/// The name of a code of [`Response::Refused`], in words.
#[must_use]
pub const fn refusal(code: u8) -> &'static str {
    match code {
        1 => "malformed request",
        2 => "internal error",
        3 => "try later",
        5 => "the request must be signed",
        6 => "unauthorized",
        _ => "unknown error",
    }
}

/// The name of a reason of [`Status::Revoked`], in words; `None` if it says nothing.
#[must_use]
pub const fn reason(code: u8) -> Option<&'static str> {
    Some(match code {
        1 => "key compromise",
        2 => "compromise of the authority",
        3 => "affiliation changed",
        4 => "superseded",
        5 => "cessation of operation",
        6 => "certificate hold",
        9 => "privilege withdrawn",
        10 => "compromise of an attribute authority",
        _ => return None,
    })
}

/// The use that a server makes of a response that it is given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stapling {
    /// It staples the response before this second since 1970.
    Until(u64),
    /// It does not staple the response, for this reason.
    Not(String),
}

/// Decides whether a server staples a response beside the certificate with this serial number. `now` is in seconds since 1970,
/// and `what` names the certificate.
///
/// The signature is not verified. Clients verify it, and a wrong one harms only the server that sends it.
///
/// # Errors
/// [`Error::Config`] if the bytes are no response. On a reload, a revoked certificate is an error too. Other unusable responses
/// are none, because responses are often renewed later than certificates.
pub fn stapling(
    response: &[u8],
    serial: &[u8],
    what: &str,
    strictness: Strictness,
    now: u64,
) -> Result<Stapling, Error> {
    let malformed = || {
        Error::Config(format!(
            "{what}: its OCSP response cannot be read; expected DER, as `openssl ocsp -respout` writes it"
        ))
    };
    let single = match Response::read(response).ok_or_else(malformed)? {
        Response::Refused(code) => {
            return Ok(Stapling::Not(format!("its responder refused to answer ({})", refusal(code))));
        }
        Response::Basic(basic) => basic.about(serial).ok_or_else(malformed)?,
    };
    let why = match single {
        None => "it is about another certificate".to_owned(),
        Some(Single { status: Status::Revoked { .. }, .. }) if strictness == Strictness::Reload => {
            return Err(Error::Config(format!(
                "{what}: its OCSP response says that it was revoked; get another certificate"
            )));
        }
        Some(Single { status: Status::Revoked { .. }, .. }) => {
            "it says that the certificate was revoked; get another".to_owned()
        }
        Some(Single { status: Status::Unknown, .. }) => "its responder does not know the certificate".to_owned(),
        Some(Single { next_update: Some(until), .. }) if until <= now => format!("it ran out on {}", date(until)),
        Some(Single { next_update, .. }) => return Ok(Stapling::Until(next_update.unwrap_or(u64::MAX))),
    };
    Ok(Stapling::Not(why))
}

#[cfg(test)]
mod tests;
