//! The status of a certificate: the request to its authority's responder, and the answer (RFC 6960, in the profile of RFC 5019).
//!
//! The answer counts only if it is about this certificate of this issuer, and valid now. The issuer or a responder that it
//! appointed must have signed it. It is asked for by POST: a cache on the way may answer a GET with a response that the responder
//! has replaced.
//!
//! Responses are read by [`tautline_tls::ocsp`], as the engines and `taut probe` do. The crate `x509-ocsp` 0.2 has the same
//! types. It verifies no signature either, and it would bring a second set of crates for certificates (`der`, `x509-cert`,
//! `spki`). A request is one fixed structure, so it is written here.

use crate::plan::{Life, Time};
use crate::transport::Transport;
use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use http::Uri;
use rustls::crypto::aws_lc_rs::default_provider;
use std::time::Duration;
use tautline_tls::der::{INTEGER, OCTETS, SEQUENCE, date, trimmed};
use tautline_tls::fields::Fields;
use tautline_tls::ocsp::{self, Checked, Key, Response, Signed, Signer, Status};

/// id-sha1, 1.3.14.3.2.26, with its parameters, which are NULL.
const SHA1: &[u8] = &[0x06, 5, 0x2b, 0x0e, 3, 2, 0x1a, 0x05, 0];

/// Largest response: with the certificate of a responder it has some kilobytes.
const LARGEST: usize = 64 << 10;

/// The time that a clock of the responder may be ahead of ours.
const AHEAD: Duration = Duration::from_secs(5 * 60);

/// A question about one certificate.
pub(crate) struct Question<'a> {
    url: Uri,
    serial: &'a [u8],
    issuer: Key<'a>,
    /// The hashes of the issuer's name and key.
    hashes: [Vec<u8>; 2],
}

/// The authority's word on a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Word {
    /// It is good, for this time.
    Good(Life),
    /// It was revoked at this time, perhaps for this reason.
    Revoked(Time, Option<&'static str>),
}

impl<'a> Question<'a> {
    /// The question about the certificate `own` (DER). `issuer` is the certificate behind it in its chain.
    pub(crate) fn of(own: &'a [u8], issuer: Option<&'a [u8]>) -> Result<Self, String> {
        let own = Fields::of(own).ok_or("the certificate is malformed")?;
        let url = own.responder().ok_or("the certificate names no responder")?;
        let url: Uri = url.parse().map_err(|error| format!("its responder {url:?} is no URL: {error}"))?;
        let issuer = issuer.and_then(Fields::of).filter(|issuer| issuer.subject() == own.issuer());
        let issuer = issuer.ok_or("its chain has no certificate of its issuer")?;
        let key = issuer.key().ok_or("the key of its issuer is malformed")?;
        let hash = |bytes: &[u8]| digest(&SHA1_FOR_LEGACY_USE_ONLY, bytes).as_ref().to_vec();
        let hashes = [hash(&der(SEQUENCE, &[own.issuer()])), hash(key.bits)];
        Ok(Self { url, serial: own.serial(), issuer: key, hashes })
    }

    /// Asks the responder. Returns the response with what it says.
    pub(crate) async fn ask(&self, transport: &Transport, now: Time) -> Result<(Vec<u8>, Word), String> {
        let url = &self.url;
        let request = self.request();
        let answer = transport.post(url, "application/ocsp-request", request, LARGEST).await;
        let answer = answer.map_err(|why| format!("cannot reach the responder {url}: {why}"))?;
        let word = self.judge(&answer, now).map_err(|why| format!("the answer of the responder {url}: {why}"))?;
        Ok((answer.to_vec(), word))
    }

    /// The request, in DER (RFC 6960, section 4.1.1; RFC 5019, section 2.1).
    fn request(&self) -> Vec<u8> {
        let [name, key] = &self.hashes;
        let id = [&der(SEQUENCE, &[SHA1]), &der(OCTETS, &[name]), &der(OCTETS, &[key]), &der(INTEGER, &[self.serial])];
        let one = der(SEQUENCE, &[&der(SEQUENCE, &id.map(Vec::as_slice))]);
        der(SEQUENCE, &[&der(SEQUENCE, &[&der(SEQUENCE, &[&one])])])
    }

    /// Reads the word of a response, if it counts.
    pub(crate) fn judge(&self, response: &[u8], now: Time) -> Result<Word, String> {
        let basic = match Response::read(response).ok_or("it is no OCSP response")? {
            Response::Refused(code) => return Err(format!("it refuses to answer ({})", ocsp::refusal(code))),
            Response::Basic(basic) => basic,
        };
        let single = basic.about(self.serial).ok_or("it is malformed")?;
        let [name, key] = &self.hashes;
        let single = single.filter(|single| single.name_hash == name && single.key_hash == key);
        let single = single.ok_or("it is about other certificates")?;
        match basic.signer(&[self.issuer], now.as_secs(), check) {
            Signer::Issuer | Signer::Appointed(_) => {}
            Signer::Nobody => return Err("neither the issuer nor an appointed responder has signed it".to_owned()),
            Signer::NoAlgorithm => return Err("it is signed with an algorithm that is not known here".to_owned()),
        }
        let begin = Time::from_secs(single.this_update);
        // RFC 5019, section 4: clients reject a response without it.
        let end = Time::from_secs(single.next_update.ok_or("it does not say when the next one is due")?);
        if end <= now {
            return Err(format!("it ran out on {}", date(end.as_secs())));
        }
        if begin > now + AHEAD {
            return Err(format!("it is not valid before {}: is a clock wrong?", date(begin.as_secs())));
        }
        match single.status {
            Status::Good => Ok(Word::Good(Life { begin, end })),
            Status::Revoked { at, reason } => Ok(Word::Revoked(Time::from_secs(at), reason.and_then(ocsp::reason))),
            Status::Unknown => Err("the authority does not know the certificate".to_owned()),
        }
    }
}

/// The validity of a response for the certificate with this serial number, if it says that it is good; `None` otherwise.
pub(crate) fn life(response: &[u8], serial: &[u8]) -> Option<Life> {
    let Some(Response::Basic(basic)) = Response::read(response) else { return None };
    let single = basic.about(serial)??;
    let end = single.next_update.filter(|_| single.status == Status::Good)?;
    Some(Life { begin: Time::from_secs(single.this_update), end: Time::from_secs(end) })
}

/// Verifies one signature.
fn check(key: &Key<'_>, signed: &Signed<'_>) -> Checked {
    let algorithms = default_provider().signature_verification_algorithms.all;
    let mut known = algorithms.iter().filter(|one| one.signature_alg_id().as_ref() == signed.algorithm).peekable();
    if known.peek().is_none() {
        return Checked::NoAlgorithm;
    }
    // A signature algorithm has one entry for each kind of key.
    let mut fitting = known.filter(|one| one.public_key_alg_id().as_ref() == key.algorithm);
    let holds = fitting.any(|one| one.verify_signature(key.bits, signed.message, signed.signature).is_ok());
    if holds { Checked::Holds } else { Checked::Fails }
}

/// An element with this tag and these parts.
fn der(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let len: usize = parts.iter().map(|part| part.len()).sum();
    let mut element = vec![tag];
    match u8::try_from(len) {
        Ok(len @ 0..=0x7f) => element.push(len),
        _ => {
            let bytes = len.to_be_bytes();
            let bytes = trimmed(&bytes);
            element.push(0x80 | bytes.len().to_le_bytes()[0]);
            element.extend_from_slice(bytes);
        }
    }
    parts.iter().for_each(|part| element.extend_from_slice(part));
    element
}

#[cfg(test)]
mod tests;
