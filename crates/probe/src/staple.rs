//! Stapled OCSP responses (RFC 6960): what they say of a certificate, for how long, and who signed it.

use super::facts::{Certified, Staple, Status};
use rustls::RootCertStore;
use rustls::pki_types::{CertificateDer, SignatureVerificationAlgorithm};
use std::time::{SystemTime, UNIX_EPOCH};
use tautline::layers::tls::fields::Fields;
use tautline::layers::tls::ocsp::{self, Basic, Checked, Key, Response, Signed, Signer};
use x509_parser::prelude::{FromDer as _, X509Certificate};
use x509_parser::time::ASN1Time;

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
    let leaf = Fields::of(chain.first()?)?;
    let mut staple = Staple { bytes: response.len(), ..Staple::default() };
    match Response::read(response) {
        Some(Response::Refused(code)) => staple.status = Status::Refused(ocsp::refusal(code).to_owned()),
        Some(Response::Basic(basic)) if describe(&basic, leaf.serial(), &mut staple).is_some() => {
            staple.certified = certified(&basic, &leaf, chain, roots, algorithms);
        }
        Some(Response::Basic(_)) | None => {}
    }
    Some(staple)
}

/// Describes the status of the certificate with this serial number; `None` if the response is malformed.
fn describe(basic: &Basic<'_>, serial: &[u8], staple: &mut Staple) -> Option<()> {
    let Some(single) = basic.about(serial)? else {
        staple.status = Status::OtherCertificate;
        return Some(());
    };
    let date = |seconds: u64| {
        let time = ASN1Time::from_timestamp(i64::try_from(seconds).ok()?).ok()?;
        Some(time.to_string().replace(" +00:00", ""))
    };
    let begin = date(single.this_update)?;
    staple.valid = match single.next_update {
        Some(end) => format!("{begin} to {}", date(end)?),
        None => format!("{begin}, without an end"),
    };
    staple.this_update = i64::try_from(single.this_update).ok()?;
    staple.next_update = single.next_update.map(i64::try_from).transpose().ok()?;
    staple.status = match single.status {
        ocsp::Status::Good => Status::Good,
        ocsp::Status::Revoked { at, reason } => {
            staple.revoked = Some(date(at)?);
            staple.reason = reason.and_then(ocsp::reason);
            Status::Revoked
        }
        ocsp::Status::Unknown => Status::Unknown,
    };
    Some(())
}

/// Verifies the signature: it has to be of the certificate's issuer, or of a responder that the issuer appointed.
fn certified(
    basic: &Basic<'_>,
    leaf: &Fields<'_>,
    chain: &[CertificateDer<'_>],
    roots: Option<&RootCertStore>,
    algorithms: Algorithms<'_>,
) -> Certified {
    let issuers = issuers(leaf, chain, roots);
    if issuers.is_empty() {
        return Certified::NotVerified("the issuer's certificate is neither sent nor trusted here".to_owned());
    }
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    match basic.signer(&issuers, now, |key, signed| check(algorithms, key, signed)) {
        Signer::Issuer => Certified::ByIssuer,
        Signer::Appointed(responder) => {
            let name = X509Certificate::from_der(responder).map(|(_, responder)| responder.subject().to_string());
            Certified::ByResponder(name.unwrap_or_default())
        }
        Signer::Nobody => {
            Certified::Wrong("neither the certificate's issuer nor an appointed responder signed it".to_owned())
        }
        Signer::NoAlgorithm => {
            Certified::NotVerified("its signature algorithm is not one of today's clients".to_owned())
        }
    }
}

/// Verifies one signature.
fn check(algorithms: Algorithms<'_>, key: &Key<'_>, signed: &Signed<'_>) -> Checked {
    let mut known = algorithms.iter().filter(|one| one.signature_alg_id().as_ref() == signed.algorithm).peekable();
    if known.peek().is_none() {
        return Checked::NoAlgorithm;
    }
    // A signature algorithm has one entry for each kind of key.
    let mut fitting = known.filter(|one| one.public_key_alg_id().as_ref() == key.algorithm);
    let holds = fitting.any(|one| one.verify_signature(key.bits, signed.message, signed.signature).is_ok());
    if holds { Checked::Holds } else { Checked::Fails }
}

/// The keys of those who may have issued a certificate: their names are those that it has.
fn issuers<'a>(leaf: &Fields<'_>, chain: &'a [CertificateDer<'_>], roots: Option<&'a RootCertStore>) -> Vec<Key<'a>> {
    let sent = chain.iter().filter_map(|der| Fields::of(der)).filter(|one| one.subject() == leaf.issuer());
    // An anchor has its name and key without the header of their SEQUENCE.
    let anchors = roots.into_iter().flat_map(|roots| &roots.roots);
    let anchors = anchors.filter(|anchor| anchor.subject.as_ref() == leaf.issuer());
    let keys = anchors.filter_map(|anchor| Key::read(&anchor.subject_public_key_info));
    sent.filter_map(|one| one.key()).chain(keys).collect()
}

#[cfg(test)]
mod tests;
