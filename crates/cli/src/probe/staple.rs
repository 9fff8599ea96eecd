//! Stapled OCSP responses (RFC 6960): what they say of a certificate, for how long, and who signed it.

use super::facts::{Certified, Staple, Status};
use rustls::RootCertStore;
use rustls::pki_types::{CertificateDer, SignatureVerificationAlgorithm};
use x509_parser::asn1_rs::{Any, Class, FromDer as _, Tag};
use x509_parser::prelude::X509Certificate;
use x509_parser::time::ASN1Time;

/// id-pkix-ocsp-basic, 1.3.6.1.5.5.7.48.1.1.
const BASIC: [u8; 9] = [0x2b, 6, 1, 5, 5, 7, 0x30, 1, 1];

/// The algorithms that a client verifies signatures with.
type Algorithms<'a> = &'a [&'a dyn SignatureVerificationAlgorithm];

/// Reads a response that came with a chain. `None` if there is none, or no certificate that it could be about.
///
/// The serial number says which certificate a response is about. The names and keys of issuers in it are hashes, and are
/// not compared: its signature is verified with the key of this certificate's issuer.
pub(crate) fn read(
    response: &[u8],
    chain: &[CertificateDer<'_>],
    roots: Option<&RootCertStore>,
    algorithms: Algorithms<'_>,
) -> Option<Staple> {
    if response.is_empty() {
        return None;
    }
    let (_, leaf) = X509Certificate::from_der(chain.first()?).ok()?;
    let mut staple = Staple { bytes: response.len(), ..Staple::default() };
    match parse(response) {
        Some(Parsed::Refused(code)) => staple.status = Status::Refused(refusal(code).to_owned()),
        Some(Parsed::Answer(answer)) => match answer.read(leaf.raw_serial(), &mut staple) {
            Some(()) => staple.certified = answer.certify(&leaf, chain, roots, algorithms),
            None => staple.status = Status::Malformed,
        },
        None => {}
    }
    Some(staple)
}

/// The names of RFC 6960, section 4.2.1, as words.
fn refusal(code: u8) -> &'static str {
    match code {
        1 => "malformed request",
        2 => "internal error",
        3 => "try later",
        5 => "the request must be signed",
        6 => "unauthorized",
        _ => "unknown error",
    }
}

/// The names of RFC 5280, section 5.3.1, as words.
fn reason(code: u8) -> Option<&'static str> {
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

enum Parsed<'a> {
    /// The responder did not answer, for this reason.
    Refused(u8),
    Answer(Answer<'a>),
}

/// A BasicOCSPResponse.
struct Answer<'a> {
    signed: Signed<'a>,
    /// The SEQUENCE of its SingleResponses.
    singles: Elements<'a>,
    /// The certificates of the responder.
    certificates: Vec<&'a [u8]>,
}

fn parse(response: &[u8]) -> Option<Parsed<'_>> {
    let mut whole = Elements(response);
    let mut response = whole.enter(Tag::Sequence)?;
    if !whole.is_empty() {
        return None;
    }
    let &[code] = response.take(Tag::Enumerated)? else { return None };
    if code != 0 {
        return Some(Parsed::Refused(code));
    }
    let mut bytes = response.enter_numbered(0)?.enter(Tag::Sequence)?;
    if bytes.take(Tag::Oid)? != BASIC {
        return None;
    }
    let mut basic = Elements(bytes.take(Tag::OctetString)?);
    let mut basic = basic.enter(Tag::Sequence)?;
    let signed = Signed::read(&mut basic)?;
    let mut certificates = Vec::new();
    if !basic.is_empty() {
        let mut list = basic.enter_numbered(0)?.enter(Tag::Sequence)?;
        while !list.is_empty() {
            certificates.push(list.next()?.0);
        }
    }
    let mut data = Elements(signed.message).enter(Tag::Sequence)?;
    // The version is left out as a rule. The responder's name or key follows.
    if data.next_is(0) {
        data.next()?;
    }
    data.next()?;
    data.take(Tag::GeneralizedTime)?;
    let singles = data.enter(Tag::Sequence)?;
    Some(Parsed::Answer(Answer { signed, singles, certificates }))
}

impl Answer<'_> {
    /// Reads the status of the certificate with this serial number.
    fn read(&self, serial: &[u8], staple: &mut Staple) -> Option<()> {
        let mut singles = Elements(self.singles.0);
        staple.status = Status::OtherCertificate;
        while !singles.is_empty() {
            let mut single = singles.enter(Tag::Sequence)?;
            let mut id = single.enter(Tag::Sequence)?;
            id.take(Tag::Sequence)?;
            id.take(Tag::OctetString)?;
            id.take(Tag::OctetString)?;
            let is_about_it = trimmed(id.take(Tag::Integer)?) == trimmed(serial);
            let (_, status) = single.next()?;
            let begin = single.time()?;
            let end = if single.next_is(0) { Some(single.enter_numbered(0)?.time()?) } else { None };
            if !is_about_it {
                continue;
            }
            staple.this_update = begin.timestamp();
            staple.next_update = end.map(|end| end.timestamp());
            staple.valid = match end {
                Some(end) => format!("{begin} to {end}"),
                None => format!("{begin}, without an end"),
            };
            staple.valid = staple.valid.replace(" +00:00", "");
            staple.status = match status.header.tag().0 {
                0 => Status::Good,
                1 => {
                    let mut revoked = Elements(status.data);
                    staple.revoked = Some(revoked.time()?.to_string().replace(" +00:00", ""));
                    if revoked.next_is(0)
                        && let &[code] = revoked.enter_numbered(0)?.take(Tag::Enumerated)?
                    {
                        staple.reason = reason(code);
                    }
                    Status::Revoked
                }
                _ => Status::Unknown,
            };
            return Some(());
        }
        Some(())
    }

    /// Verifies the signature: it has to be of the certificate's issuer, or of a responder that the issuer appointed.
    fn certify(
        &self,
        leaf: &X509Certificate<'_>,
        chain: &[CertificateDer<'_>],
        roots: Option<&RootCertStore>,
        algorithms: Algorithms<'_>,
    ) -> Certified {
        let issuers = issuers(leaf, chain, roots);
        if issuers.is_empty() {
            return Certified::NotVerified("the issuer's certificate is neither sent nor trusted here".to_owned());
        }
        let mut best =
            Certified::Wrong("neither the certificate's issuer nor an appointed responder signed it".to_owned());
        for issuer in &issuers {
            match self.signed.verify(issuer, algorithms) {
                Checked::Holds => return Certified::ByIssuer,
                Checked::NoAlgorithm => {
                    best = Certified::NotVerified("its signature algorithm is not one of today's clients".to_owned());
                }
                Checked::Fails => {}
            }
        }
        for der in &self.certificates {
            let Some(responder) = appointed(der, &issuers, algorithms) else { continue };
            match Key::read(responder.public_key().raw).map(|key| self.signed.verify(&key, algorithms)) {
                Some(Checked::Holds) => return Certified::ByResponder(responder.subject().to_string()),
                Some(Checked::NoAlgorithm) => {
                    best = Certified::NotVerified("its signature algorithm is not one of today's clients".to_owned());
                }
                _ => {}
            }
        }
        best
    }
}

/// The keys of those who may have issued a certificate: their names are those that it has.
fn issuers<'a>(
    leaf: &X509Certificate<'_>,
    chain: &'a [CertificateDer<'_>],
    roots: Option<&'a RootCertStore>,
) -> Vec<Key<'a>> {
    let wanted = leaf.issuer().as_raw();
    let sent = chain.iter().filter_map(|der| X509Certificate::from_der(der).ok()).map(|(_, one)| one);
    let mut keys: Vec<Key<'a>> = sent
        .filter(|one| one.subject().as_raw() == wanted)
        .filter_map(|one| Key::read(one.tbs_certificate.subject_pki.raw))
        .collect();
    // An anchor has its name and key without the header of their SEQUENCE.
    let name = Elements(wanted).take(Tag::Sequence);
    let anchors = roots.into_iter().flat_map(|roots| &roots.roots);
    let anchors = anchors.filter(|anchor| Some(anchor.subject.as_ref()) == name);
    keys.extend(anchors.filter_map(|anchor| Key::of(Elements(&anchor.subject_public_key_info))));
    keys
}

/// A certificate by which an issuer lets another key sign responses (RFC 6960, section 4.2.2.2).
fn appointed<'a>(der: &'a [u8], issuers: &[Key<'_>], algorithms: Algorithms<'_>) -> Option<X509Certificate<'a>> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    let may_sign = certificate.extended_key_usage().ok().flatten().is_some_and(|usage| usage.value.ocsp_signing);
    let signed = Signed::read(&mut Elements(der).enter(Tag::Sequence)?)?;
    let is_issued = issuers.iter().any(|issuer| matches!(signed.verify(issuer, algorithms), Checked::Holds));
    (may_sign && certificate.validity().is_valid() && is_issued).then_some(certificate)
}

/// A message with its signature: the form that certificates and responses share.
struct Signed<'a> {
    message: &'a [u8],
    /// The algorithm without its header.
    algorithm: &'a [u8],
    signature: &'a [u8],
}

enum Checked {
    Holds,
    Fails,
    NoAlgorithm,
}

impl<'a> Signed<'a> {
    fn read(elements: &mut Elements<'a>) -> Option<Self> {
        let (message, _) = elements.next()?;
        Some(Self { message, algorithm: elements.take(Tag::Sequence)?, signature: elements.bits()? })
    }

    fn verify(&self, key: &Key<'_>, algorithms: Algorithms<'_>) -> Checked {
        let mut known = algorithms.iter().filter(|one| one.signature_alg_id().as_ref() == self.algorithm).peekable();
        if known.peek().is_none() {
            return Checked::NoAlgorithm;
        }
        // A signature algorithm has one entry for each kind of key.
        let mut fitting = known.filter(|one| one.public_key_alg_id().as_ref() == key.algorithm);
        let holds = fitting.any(|one| one.verify_signature(key.bits, self.message, self.signature).is_ok());
        if holds { Checked::Holds } else { Checked::Fails }
    }
}

/// A SubjectPublicKeyInfo.
struct Key<'a> {
    algorithm: &'a [u8],
    bits: &'a [u8],
}

impl<'a> Key<'a> {
    fn read(info: &'a [u8]) -> Option<Self> {
        Self::of(Elements(info).enter(Tag::Sequence)?)
    }

    fn of(mut elements: Elements<'a>) -> Option<Self> {
        Some(Self { algorithm: elements.take(Tag::Sequence)?, bits: elements.bits()? })
    }
}

/// The unread elements of a DER sequence.
struct Elements<'a>(&'a [u8]);

impl<'a> Elements<'a> {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The next element: all of its bytes, and its value.
    fn next(&mut self) -> Option<(&'a [u8], Any<'a>)> {
        let before = self.0;
        let (rest, element) = Any::from_der(before).ok()?;
        self.0 = rest;
        Some((before.get(..before.len() - rest.len())?, element))
    }

    /// Whether the next element has this context-specific tag.
    fn next_is(&self, number: u32) -> bool {
        Elements(self.0).next().is_some_and(|(_, element)| is_numbered(&element, number))
    }

    fn take(&mut self, tag: Tag) -> Option<&'a [u8]> {
        let (_, element) = self.next()?;
        (element.header.class() == Class::Universal && element.header.tag() == tag).then_some(element.data)
    }

    fn enter(&mut self, tag: Tag) -> Option<Self> {
        self.take(tag).map(Self)
    }

    fn enter_numbered(&mut self, number: u32) -> Option<Self> {
        let (_, element) = self.next()?;
        is_numbered(&element, number).then_some(Self(element.data))
    }

    /// A BIT STRING of whole bytes.
    fn bits(&mut self) -> Option<&'a [u8]> {
        match self.take(Tag::BitString)? {
            [0, bits @ ..] => Some(bits),
            _ => None,
        }
    }

    fn time(&mut self) -> Option<ASN1Time> {
        let (rest, time) = ASN1Time::from_der(self.0).ok()?;
        self.0 = rest;
        Some(time)
    }
}

fn is_numbered(element: &Any<'_>, number: u32) -> bool {
    element.header.class() == Class::ContextSpecific && element.header.tag() == Tag(number)
}

/// Strips leading zeros from a number.
fn trimmed(number: &[u8]) -> &[u8] {
    let zeros = number.iter().take_while(|&&byte| byte == 0).count();
    number.get(zeros..).unwrap_or_default()
}

#[cfg(test)]
mod tests;
