//! Reads OCSP responses (RFC 6960) just far enough to decide whether to staple them.
//!
//! The signature is not verified. Clients verify it, and a wrong one harms only the server that sends it.

use crate::error;
use crate::strictness::Strictness;
use core::time::Duration;
use rustls::pki_types::UnixTime;
use rustls::sign::CertifiedKey;
use std::sync::Arc;
use tautline_tls::Error;
use webpki::EndEntityCert;

/// A certificate, with and without its stapled OCSP response.
#[derive(Debug)]
pub(crate) struct Stapled {
    bare: Arc<CertifiedKey>,
    /// The certificate with its response, and the second since 1970 at which the response expires.
    stapled: Option<(Arc<CertifiedKey>, u64)>,
}

impl Stapled {
    /// Pairs a certificate with its OCSP response; `ocsp` is empty if there is none.
    ///
    /// An unusable response is left out with a warning, because responses are often renewed later than certificates.
    /// Bytes that are no response are an error. On a reload, a revoked certificate is an error too.
    pub(crate) fn new(key: CertifiedKey, ocsp: &[u8], what: &str, strictness: Strictness) -> Result<Self, Error> {
        if ocsp.is_empty() {
            return Ok(Self { bare: Arc::new(key), stapled: None });
        }
        let parsed = key.cert.first().map(EndEntityCert::try_from);
        let serial = match &parsed {
            Some(Ok(certificate)) => certificate.serial(),
            _ => &[],
        };
        let until = match read(ocsp, serial) {
            Answer::Good { until } if until.is_none_or(|until| until > UnixTime::now().as_secs()) => until,
            Answer::Revoked if strictness == Strictness::Reload => {
                return Err(Error::Config(format!(
                    "{what}: its OCSP response says that it was revoked; get another certificate"
                )));
            }
            Answer::Malformed => {
                return Err(Error::Config(format!(
                    "{what}: its OCSP response cannot be read; expected DER, as `openssl ocsp -respout` writes it"
                )));
            }
            useless => {
                log::warn!("{what}: no OCSP response is sent: {}", useless.reason());
                return Ok(Self { bare: Arc::new(key), stapled: None });
            }
        };
        let stapled = CertifiedKey { ocsp: Some(ocsp.to_vec()), ..key.clone() };
        Ok(Self { bare: Arc::new(key), stapled: Some((Arc::new(stapled), until.unwrap_or(u64::MAX))) })
    }

    /// The certificate alone.
    pub(crate) fn key(&self) -> &CertifiedKey {
        &self.bare
    }

    /// The certificate, with its response until that expires.
    ///
    /// Clients reject an expired response, but accept a certificate without a response.
    pub(crate) fn current(&self) -> &Arc<CertifiedKey> {
        match &self.stapled {
            Some((stapled, until)) if UnixTime::now().as_secs() < *until => stapled,
            _ => &self.bare,
        }
    }
}

/// The status of one certificate in a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    /// The certificate is not revoked. The next response is due before this second since 1970.
    Good { until: Option<u64> },
    /// The certificate is revoked.
    Revoked,
    /// The responder does not know the certificate.
    Unknown,
    /// The response is about other certificates.
    Other,
    /// The responder did not answer; this is its status code.
    Refused(u8),
    /// The bytes are no OCSP response.
    Malformed,
}

impl Answer {
    fn reason(self) -> String {
        match self {
            Self::Good { until } => {
                let until = UnixTime::since_unix_epoch(Duration::from_secs(until.unwrap_or_default()));
                format!("it ran out on {}", error::date(until))
            }
            Self::Revoked => "it says that the certificate was revoked; get another".to_owned(),
            Self::Unknown => "its responder does not know the certificate".to_owned(),
            Self::Other => "it is about another certificate".to_owned(),
            Self::Refused(status) => format!("its responder refused to answer (status {status})"),
            Self::Malformed => "it is malformed".to_owned(),
        }
    }
}

const SEQUENCE: u8 = 0x30;
const INTEGER: u8 = 0x02;
const OCTETS: u8 = 0x04;
const OBJECT: u8 = 0x06;
const ENUMERATED: u8 = 0x0a;
const TIME: u8 = 0x18;
// Context-specific tags: `[0]`, and the constructed `[0]` and `[1]`.
const GOOD: u8 = 0x80;
const EXPLICIT_0: u8 = 0xa0;
const REVOKED: u8 = 0xa1;

/// Reads the status of the certificate `serial` from a response (RFC 6960, section 4.2.1).
fn read(response: &[u8], serial: &[u8]) -> Answer {
    match answer(response, trimmed(serial)) {
        Some(answer) => answer,
        None => Answer::Malformed,
    }
}

fn answer(response: &[u8], serial: &[u8]) -> Option<Answer> {
    let mut whole = Der(response);
    let mut response = Der(whole.take(SEQUENCE)?);
    if !whole.0.is_empty() {
        return None;
    }
    let &[status] = response.take(ENUMERATED)? else { return None };
    if status != 0 {
        return Some(Answer::Refused(status));
    }
    let mut bytes = Der(Der(response.take(EXPLICIT_0)?).take(SEQUENCE)?);
    // id-pkix-ocsp-basic, 1.3.6.1.5.5.7.48.1.1
    if bytes.take(OBJECT)? != [0x2b, 6, 1, 5, 5, 7, 0x30, 1, 1] {
        return None;
    }
    let mut basic = Der(Der(bytes.take(OCTETS)?).take(SEQUENCE)?);
    let mut data = Der(basic.take(SEQUENCE)?);
    let (mut tag, _) = data.next()?;
    if tag == EXPLICIT_0 {
        // The first element was the version; the next is the responder's ID.
        tag = data.next()?.0;
    }
    if !matches!(tag, 0xa1 | 0xa2) {
        return None;
    }
    data.take(TIME)?;
    let mut singles = Der(data.take(SEQUENCE)?);
    while !singles.0.is_empty() {
        let (about, answer) = single(singles.take(SEQUENCE)?)?;
        if about == serial {
            return Some(answer);
        }
    }
    Some(Answer::Other)
}

/// Reads a SingleResponse: the serial number and the status.
fn single(response: &[u8]) -> Option<(&[u8], Answer)> {
    let mut single = Der(response);
    let mut id = Der(single.take(SEQUENCE)?);
    id.take(SEQUENCE)?;
    id.take(OCTETS)?;
    id.take(OCTETS)?;
    let serial = trimmed(id.take(INTEGER)?);
    let (status, _) = single.next()?;
    single.take(TIME)?;
    let until = match single.next() {
        Some((EXPLICIT_0, next)) => Some(seconds(Der(next).take(TIME)?)?),
        _ => None,
    };
    let answer = match status {
        GOOD => Answer::Good { until },
        REVOKED => Answer::Revoked,
        _ => Answer::Unknown,
    };
    Some((serial, answer))
}

/// The unread rest of a DER sequence.
struct Der<'a>(&'a [u8]);

impl<'a> Der<'a> {
    /// Takes the next element: its tag and value. `None` at the end, or if the rest is not DER.
    fn next(&mut self) -> Option<(u8, &'a [u8])> {
        let (&[tag, first], rest) = self.0.split_first_chunk()?;
        let (len, rest) = match first {
            0..=0x7f => (usize::from(first), rest),
            0x81..=0x84 => {
                let (bytes, rest) = rest.split_at_checked(usize::from(first & 0x7f))?;
                (bytes.iter().fold(0, |len, &byte| len << 8 | usize::from(byte)), rest)
            }
            _ => return None,
        };
        let (value, rest) = rest.split_at_checked(len)?;
        self.0 = rest;
        Some((tag, value))
    }

    fn take(&mut self, tag: u8) -> Option<&'a [u8]> {
        self.next().filter(|&(found, _)| found == tag).map(|(_, value)| value)
    }
}

/// Strips leading zeros from a number.
fn trimmed(number: &[u8]) -> &[u8] {
    let zeros = number.iter().take_while(|&&byte| byte == 0).count();
    &number[zeros..]
}

/// Converts `YYYYMMDDHHMMSSZ` (RFC 5280, section 4.1.2.5.2) to seconds since 1970.
fn seconds(time: &[u8]) -> Option<u64> {
    let [digits @ .., b'Z'] = time else { return None };
    if digits.len() != 14 || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let number = |range: core::ops::Range<usize>| {
        digits[range].iter().fold(0, |number, &digit| number * 10 + u64::from(digit - b'0'))
    };
    let (year, month, day) = (number(0..4), number(4..6), number(6..8));
    if year < 1970 || !(1..=12).contains(&month) || day == 0 {
        return None;
    }
    // Years begin in March here, so that the leap day comes last.
    let (years, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * years + years / 4 - years / 100 + years / 400 + (153 * month + 2) / 5 + day - 1;
    let since_1970 = days - (365 * 1969 + 1969 / 4 - 1969 / 100 + 1969 / 400 + 306);
    Some(since_1970 * 86_400 + number(8..10) * 3600 + number(10..12) * 60 + number(12..14))
}

#[cfg(test)]
mod tests;
