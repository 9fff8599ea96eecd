//! OCSP responses beside certificates, as the client of rustls sees them.

use super::{Make, certificate};
use crate::certificate::KeyKind;
use crate::pair::End;
use crate::rustls_peer::settle;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, SignatureScheme};
use std::sync::{Arc, Mutex};
use std::thread::sleep;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tautline_tls::chain::Strictness;
use tautline_tls::der::date;
use tautline_tls::fields::Fields;
use tautline_tls::ocsp::{Stapling, stapling};
use tautline_tls::{Certificate, Engine, Error, ServerConfig};

/// A server staples the response of the certificate that it shows, until that expires.
pub fn responses_are_stapled<E: Engine>(make: impl Make<E>) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    let first = certificate(&["localhost"], KeyKind::P256);
    let can = make(Some(&ServerConfig::new([first.clone()])), None).unwrap().capabilities();
    let with = |certificate: &Certificate, until: u64| certificate.clone().with_ocsp(good(certificate, until));
    if !can.stapling {
        let refused = make(Some(&ServerConfig::new([with(&first, now + 3600)])), None).err();
        assert!(matches!(&refused, Some(Error::Config(why)) if why.contains("take an engine that can")), "{refused:?}");
        return;
    }
    let mut certificates = vec![with(&first, now + 3600)];
    if can.several_keys {
        certificates.push(with(&certificate(&["localhost"], KeyKind::Rsa2048), now + 7200));
    }
    let others = [("other.example", now + 10_800), ("bare.example", 0)].map(|(name, until)| {
        let other = certificate(&[name], KeyKind::P256);
        if until == 0 { other } else { with(&other, until) }
    });
    certificates.extend(others);
    let server = make(Some(&ServerConfig::new(certificates.clone())), None).unwrap();
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let stapled = |host: &str, schemes: &[SignatureScheme]| ask(&server, host, version, schemes);
        assert_eq!(stapled("localhost", &ECDSA), certificates[0].ocsp, "{version:?}");
        assert_eq!(stapled("unknown.example", &ECDSA), certificates[0].ocsp, "{version:?}");
        if can.several_keys {
            assert_eq!(stapled("localhost", &RSA), certificates[1].ocsp, "{version:?}");
        }
        assert_eq!(stapled("other.example", &ECDSA), certificates[certificates.len() - 2].ocsp, "{version:?}");
        assert!(stapled("bare.example", &ECDSA).is_empty(), "{version:?}");
    }
    // A reload replaces the response, and keeps the certificate.
    let renewed = with(&first, now + 4000);
    server.reload(&ServerConfig::new([renewed.clone()])).unwrap();
    assert_eq!(ask(&server, "localhost", &rustls::version::TLS13, &ECDSA), renewed.ocsp);
    let soon = UNIX_EPOCH.elapsed().unwrap().as_secs() + 2;
    server.reload(&ServerConfig::new([with(&first, soon)])).unwrap();
    while UNIX_EPOCH.elapsed().unwrap().as_secs() < soon {
        sleep(Duration::from_millis(50));
    }
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        assert!(ask(&server, "localhost", version, &ECDSA).is_empty(), "{version:?}: one that has expired is not sent");
    }
}

const ECDSA: [SignatureScheme; 1] = [SignatureScheme::ECDSA_NISTP256_SHA256];
const RSA: [SignatureScheme; 2] = [SignatureScheme::RSA_PSS_SHA256, SignatureScheme::RSA_PKCS1_SHA256];

/// The response that a client with these signature schemes gets; empty if there is none.
fn ask<E: Engine>(
    server: &E,
    host: &str,
    version: &'static rustls::SupportedProtocolVersion,
    schemes: &[SignatureScheme],
) -> Vec<u8> {
    let mut provider = aws_lc_rs::default_provider();
    // In TLS 1.2 suites name a kind of key too. A client offers none whose signatures it does not know.
    let unknown = if schemes == ECDSA { "_RSA_" } else { "_ECDSA_" };
    provider.cipher_suites.retain(|suite| !format!("{:?}", suite.suite()).contains(unknown));
    let provider = Arc::new(provider);
    let seen = Arc::new(Seen { provider: provider.clone(), schemes: schemes.into(), response: Mutex::default() });
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[version])
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(seen.clone())
        .with_no_client_auth();
    let name = ServerName::try_from(host.to_owned()).unwrap();
    let mut client = rustls::ClientConnection::new(Arc::new(config), name).unwrap().into();
    let mut end = End::new(server.accept().unwrap());
    settle(&mut end, &mut client, usize::MAX);
    assert!(!client.is_handshaking() && end.open, "the handshake completes");
    seen.response.lock().unwrap().take().expect("a certificate was shown")
}

/// Trusts every certificate, and keeps the response that came with it.
#[derive(Debug)]
struct Seen {
    provider: Arc<CryptoProvider>,
    schemes: Vec<SignatureScheme>,
    response: Mutex<Option<Vec<u8>>>,
}

impl ServerCertVerifier for Seen {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        response: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        *self.response.lock().unwrap() = Some(response.to_vec());
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.schemes.clone()
    }
}

/// A response that says that this certificate is good until this second since 1970. Nobody has signed it: servers do not ask.
fn good(certificate: &Certificate, until: u64) -> Vec<u8> {
    let leaf = CertificateDer::from_pem_slice(&certificate.chain).unwrap();
    let serial = Fields::of(&leaf).unwrap().serial();
    let time = |seconds: u64| {
        let digits: String = date(seconds).chars().filter(char::is_ascii_digit).collect();
        der(0x18, &[format!("{digits}{:02}Z", seconds % 60).as_bytes()])
    };
    let hash = der(4, &[&[5; 20]]);
    let id = der(0x30, &[&der(0x30, &[]), &hash, &hash, &der(2, &[serial])]);
    let single = der(0x30, &[&id, &[0x80, 0], &time(0), &der(0xa0, &[&time(until)])]);
    let data = der(0x30, &[&der(0xa2, &[&hash]), &time(0), &der(0x30, &[&single])]);
    let basic = der(0x30, &[&data, &der(0x30, &[]), &der(3, &[&[0; 40]])]);
    let kind = der(6, &[&[0x2b, 6, 1, 5, 5, 7, 0x30, 1, 1]]);
    let response = der(0x30, &[&[10, 1, 0], &der(0xa0, &[&der(0x30, &[&kind, &der(4, &[&basic])])])]);
    let read = stapling(&response, serial, "", Strictness::Start, 0);
    assert_eq!(read, Ok(Stapling::Until(until)));
    response
}

fn der(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let value = parts.concat();
    let [high, low] = u16::try_from(value.len()).unwrap().to_be_bytes();
    // As short as can be: OpenSSL 3.6 reads responses, and writes them anew.
    let header = match (high, low) {
        (0, 0..0x80) => vec![tag, low],
        (0, _) => vec![tag, 0x81, low],
        _ => vec![tag, 0x82, high, low],
    };
    [header, value].concat()
}
