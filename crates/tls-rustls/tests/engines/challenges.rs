//! Challenges of TLS-ALPN-01: an authority sees the certificate made for it, and nobody else does.

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::version::{TLS12, TLS13};
use rustls::{Connection, DigitallySignedStruct, SignatureScheme, SupportedProtocolVersion};
use std::io::Write;
use std::sync::Arc;
use tautline_testkit::certificate::{Authority, Leaf};
use tautline_testkit::pair::End;
use tautline_tls::{ACME_TLS, Certificate, Challenges, ClientAuth, Engine, Error, ServerConfig, Session, pem};
use tautline_tls_rustls as library;
use tautline_tls_rustls::fused;

/// The challenge for `one.example`.
struct One(Certificate);

impl Challenges for One {
    fn certificate(&self, name: &str) -> Option<Certificate> {
        (name == "one.example").then(|| self.0.clone())
    }
}

/// A certificate for TLS-ALPN-01, with its critical extension (RFC 8737, section 3).
fn challenge() -> Certificate {
    let mut params = rcgen::CertificateParams::new(["one.example".to_owned()]).unwrap();
    params.custom_extensions = vec![rcgen::CustomExtension::new_acme_identifier(&[7; 32])];
    let key = rcgen::KeyPair::generate().unwrap();
    Certificate::new(params.self_signed(&key).unwrap().pem(), key.serialize_pem())
}

fn der(certificate: &Certificate) -> Vec<u8> {
    pem::certificates(&certificate.chain, "chain").unwrap()[0].der.to_vec()
}

/// A peer that looks at no certificate, as an authority that reads the extension itself.
#[derive(Debug)]
struct Reads;

impl ServerCertVerifier for Reads {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ECDSA_NISTP256_SHA256]
    }
}

/// The protocol and the certificate that a client sees which offers these protocols.
fn connect(
    server: &impl Engine,
    name: &'static str,
    alpn: &[&[u8]],
    version: &'static SupportedProtocolVersion,
) -> (Option<Vec<u8>>, Vec<u8>) {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider).with_protocol_versions(&[version]).unwrap();
    let mut config = builder.dangerous().with_custom_certificate_verifier(Arc::new(Reads)).with_no_client_auth();
    config.alpn_protocols = alpn.iter().map(|name| name.to_vec()).collect();
    let client = rustls::ClientConnection::new(Arc::new(config), ServerName::try_from(name).unwrap()).unwrap();
    let (mut client, mut end) = (Connection::Client(client), End::new(server.accept().unwrap()));
    let refused = ask(&mut end, &mut client);
    let protocol = client.alpn_protocol().map(<[u8]>::to_vec);
    if protocol.as_deref() == Some(ACME_TLS) {
        // Nobody was asked for a certificate.
        assert!(refused.unwrap().to_string().contains("acme-tls/1"));
        assert!(!end.open && end.received.is_empty());
        assert!(end.deliver(b"more").is_err() && end.send(&[b"answer"]).is_err());
    } else {
        assert!(end.open && refused.is_none(), "{refused:?}");
    }
    (protocol, client.peer_certificates().unwrap()[0].to_vec())
}

/// Goes through the handshake, and asks for a page. Returns the error of a server that ends the connection instead of reading it.
fn ask<S: Session>(end: &mut End<S>, client: &mut Connection) -> Option<Error> {
    let mut has_ended = false;
    while end.received.is_empty() {
        let mut wire = Vec::new();
        if !client.is_handshaking() {
            client.writer().write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        }
        while client.wants_write() {
            client.write_tls(&mut wire).unwrap();
        }
        let delivered = end.deliver(&wire);
        let sent = end.take_outbox();
        let mut rest = &sent[..];
        while !rest.is_empty() {
            client.read_tls(&mut rest).unwrap();
            has_ended |= client.process_new_packets().unwrap().peer_has_closed();
        }
        if let Err(error) = delivered {
            assert!(has_ended && !client.is_handshaking(), "the handshake is whole, and close_notify follows");
            return Some(error);
        }
    }
    None
}

fn answers(server: &impl Engine, usual: &Certificate, challenge: &Certificate) {
    for version in [&TLS13, &TLS12] {
        let (protocol, seen) = connect(server, "ONE.example", &[ACME_TLS], version);
        assert_eq!(protocol.as_deref(), Some(ACME_TLS));
        assert_eq!(seen, der(challenge));
        for (name, alpn) in [
            ("two.example", &[ACME_TLS][..]),
            ("one.example", &[]),
            ("one.example", &[b"http/1.1"]),
            ("one.example", &[ACME_TLS, b"http/1.1"]),
        ] {
            let (protocol, seen) = connect(server, name, alpn, version);
            assert_ne!(protocol.as_deref(), Some(ACME_TLS), "{name} {alpn:?}");
            assert_eq!(seen, der(usual), "{name} {alpn:?}");
        }
    }
}

#[test]
fn an_authority_sees_the_challenge_and_others_do_not() {
    let authority = Authority::new("Test").unwrap();
    let (usual, challenge) = (authority.issue(&Leaf::new(&["one.example"])).unwrap(), challenge());
    let config = ServerConfig::new([usual.clone()]).with_challenges(Arc::new(One(challenge.clone())));
    answers(&library::Engine::server(&config).unwrap(), &usual, &challenge);
    answers(&fused::Engine::server(&config).unwrap(), &usual, &challenge);
}

#[test]
fn an_authority_needs_no_client_certificate() {
    let authority = Authority::new("Test").unwrap();
    let (usual, challenge) = (authority.issue(&Leaf::new(&["one.example"])).unwrap(), challenge());
    let roots = ClientAuth::Required(authority.certificate().into());
    let config = ServerConfig::new([usual]).with_challenges(Arc::new(One(challenge.clone()))).with_client_auth(roots);
    let (_, seen) = connect(&fused::Engine::server(&config).unwrap(), "one.example", &[ACME_TLS], &TLS13);
    assert_eq!(seen, der(&challenge));
}

#[test]
fn a_challenge_that_cannot_be_used_ends_no_server() {
    let authority = Authority::new("Test").unwrap();
    let usual = authority.issue(&Leaf::new(&["one.example"])).unwrap();
    let broken = Certificate::new("no chain", "no key");
    let config = ServerConfig::new([usual.clone()]).with_challenges(Arc::new(One(broken)));
    let (_, seen) = connect(&fused::Engine::server(&config).unwrap(), "one.example", &[ACME_TLS], &TLS13);
    assert_eq!(seen, der(&usual));
}
