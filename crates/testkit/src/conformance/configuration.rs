//! Invalid configurations, and calls in the wrong role or state.

use super::{AUTHORITY, Engines, LOCALHOST, Make, certificate, client_config, issue, server_config, trusted};
use crate::certificate::{KeyKind, Leaf, Usage, Validity};
use crate::pair::Side;
use crate::warnings;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use tautline_buf::Buf;
use tautline_tls::{Certificate, ClientAuth, Content, Engine, Error, Roots, ServerConfig, Session, Versions};

/// An invalid configuration is rejected when the engine is made, and the error says which part is wrong.
pub fn bad_configurations<E: Engine>(make: impl Make<E>) {
    let other = certificate(&["localhost"], KeyKind::P256);
    let mismatch = Certificate::new(LOCALHOST.chain.clone(), other.key.to_vec());
    let no_chain = Certificate::new(b"not a certificate", other.key.to_vec());
    let no_key = Certificate::new(other.chain.clone(), other.chain.clone());
    let cut = Certificate::new(&other.chain[..other.chain.len() / 2], other.key.to_vec());
    for (certificates, words) in [
        (vec![], "needs a certificate"),
        (vec![mismatch.clone()], "does not belong to the certificate"),
        (vec![other, mismatch.clone()], "certificate 2 of 2"),
        (vec![no_chain], "no certificate found"),
        (vec![no_key], "no private key found"),
        (vec![cut], "PEM"),
    ] {
        expect(make(Some(&ServerConfig::new(certificates)), None), words);
    }
    for client_auth in [ClientAuth::Required(Vec::new()), ClientAuth::Optional(b"nothing".to_vec())] {
        expect(make(Some(&server_config().with_client_auth(client_auth)), None), "roots for client certificates");
    }
    expect(make(None, Some(&client_config().with_roots(Roots::Pem(Vec::new())))), "trusted roots");
    expect(make(None, Some(&client_config().with_certificate(mismatch))), "client certificate");
}

fn expect<E>(made: Result<E, Error>, words: &str) {
    match made {
        Err(Error::Config(why)) => assert!(why.contains(words), "{why:?} should say {words:?}"),
        Err(other) => panic!("{other:?} is not a configuration error"),
        Ok(_) => panic!("the engine accepts a configuration that should fail with {words:?}"),
    }
}

/// Certificates that peers will reject are reported in the log when they are configured.
pub fn unusable_certificates_are_reported<E: Engine>(make: impl Make<E>) {
    let leaf = Leaf::new(&["localhost"]);
    for (certificate, words) in [
        (issue(&leaf), ""),
        (issue(&leaf.with_usage(Usage::Both)), ""),
        (issue(&leaf.with_validity(Validity::Expired)), "expired on 20"),
        (issue(&leaf.with_validity(Validity::NotYet)), "not valid before 20"),
        (issue(&leaf.with_usage(Usage::Client)), "another use"),
    ] {
        let config = ServerConfig::new([certificate]);
        let said = warnings(|| drop(make(Some(&config), None).unwrap()));
        match words {
            "" => assert!(said.is_empty(), "{said:?}"),
            words => assert!(said.len() == 1 && said[0].contains(words), "{said:?} should say {words:?}"),
        }
        assert!(said.iter().all(|line| line.starts_with("server certificate ")), "{said:?}");
    }
    // Tickets are on by default, so an engine without TLS 1.3 tickets only logs a warning.
    let config = server_config().with_versions(Versions::Tls13);
    let said = warnings(|| drop(make(Some(&config), None).unwrap()));
    let has_tickets = make(Some(&config), None).unwrap().capabilities().resumes_tls13;
    assert!(if has_tickets { said.is_empty() } else { said[0].contains("no tickets of TLS 1.3") }, "{said:?}");
    let config = |usage| client_config().with_certificate(issue(&leaf.with_usage(usage)));
    let said = warnings(|| drop(make(None, Some(&config(Usage::Server))).unwrap()));
    assert!(said.len() == 1 && said[0].starts_with("client certificate is meant for another use"), "{said:?}");
    assert!(warnings(|| drop(make(None, Some(&config(Usage::Client))).unwrap())).is_empty());
}

/// A server's chain that lacks the certificate of its issuer is reported, at start and at a reload. A whole one is not.
pub fn missing_intermediates_are_reported<E: Engine>(make: impl Make<E>) {
    let middle = AUTHORITY.intermediate("Test Intermediate").unwrap();
    let leaf = middle.issue(&Leaf::new(&["localhost"])).unwrap();
    let with = |issuer: &str| Certificate::new([&leaf.chain[..], issuer.as_bytes()].concat(), leaf.key.to_vec());
    let itself = Leaf::new(&["localhost"]).with_usage(Usage::Both).signed_by_itself().unwrap();
    let (whole, other) = (with(middle.certificate()), with(AUTHORITY.certificate()));
    for (certificate, is_reported) in [(leaf.clone(), true), (whole, false), (itself, false)] {
        let config = ServerConfig::new([certificate]);
        let mut engine = None;
        let said = warnings(|| engine = Some(make(Some(&config), None).unwrap()));
        let said_again = warnings(|| engine.as_ref().unwrap().reload(&config).unwrap());
        for said in [said, said_again] {
            let about = |line: &&String| line.contains("its chain") && line.contains("\"Test Intermediate\"");
            assert_eq!(said.iter().filter(about).count(), usize::from(is_reported), "{said:?}");
        }
    }
    // Nor does any other certificate take the issuer's place.
    let said = warnings(|| drop(make(Some(&ServerConfig::new([other])), None).unwrap()));
    assert!(said.len() == 1 && said[0].contains("its chain"), "{said:?}");
}

/// A key of a kind that the engine cannot use is rejected, with the engine and the kind in the error.
pub fn keys_that_cannot_be_used<E: Engine>(make: impl Make<E>) {
    let ed25519 = || certificate(&["localhost"], KeyKind::Ed25519);
    let server = server_config().with_certificates([ed25519()]);
    let client = client_config().with_certificate(ed25519());
    let can = make(None, Some(&client_config())).unwrap().capabilities();
    let (name, knows_it) = (can.engine, can.ed25519);
    for (made, what) in
        [(make(Some(&server), None), "server certificate"), (make(None, Some(&client)), "client certificate")]
    {
        if knows_it {
            assert!(made.is_ok(), "{name}");
        } else {
            expect(made, &format!("{name} cannot use Ed25519 keys ({what}); take an engine that can"));
        }
    }
}

/// Calls in the wrong role or state return errors instead of panicking.
pub fn misuse<E: Engine>(make: impl Make<E>) {
    let engines = Engines::new(&make, &server_config(), &client_config());
    assert!(matches!(engines.server.connect("localhost"), Err(Error::ApiMisuse(_))));
    assert!(matches!(engines.client.accept(), Err(Error::ApiMisuse(_))));
    for host in ["", "local host", "http://localhost", "localhost:443", "[::1"] {
        assert!(matches!(engines.client.connect(host), Err(Error::Config(_))), "{host:?}");
    }
    assert!(!engines.client.name().is_empty());
    for mut session in [engines.client.connect("localhost").unwrap(), engines.server.accept().unwrap()] {
        let (mut scratch, mut out) = (Buf::new(), Buf::new());
        assert!(matches!(session.seal(&[b"too early"], &mut out), Err(Error::ApiMisuse(_))));
        assert!(matches!(session.open(&mut [0; 50], &mut scratch, &mut out), Err(Error::ApiMisuse(_))));
        session.close(&mut out);
        assert!(out.is_empty(), "nothing was sent yet, so there is nothing to close");
    }
    let mut pair = engines.open("localhost");
    let mut out = Buf::new();
    let (used, state) = pair.client.session.handshake(&mut [23, 3, 3], &mut out).unwrap();
    assert_eq!((used, state), (0, tautline_tls::Handshake::Complete), "complete stays complete");
    let mut scratch = Buf::new();
    let opened = pair.client.session.open(&mut [], &mut scratch, &mut out).unwrap();
    assert_eq!((opened.used, opened.content), (0, Content::Partial));
}

/// A key that cannot sign is rejected with its configuration, or fails the handshake with an error of the library.
///
/// The error never blames the peer.
pub fn keys_that_do_not_sign<E: Engine>(make: impl Make<E>) {
    let leaf = Leaf::new(&["localhost"]).with_key(KeyKind::Rsa2048).with_usage(Usage::Both);
    let bad = with_even_prime(&issue(&leaf));
    for versions in [Versions::Tls13, Versions::Tls12] {
        let server = server_config().with_versions(versions);
        let client = client_config().with_versions(versions);
        let bad_server = server.clone().with_certificates([bad.clone()]);
        let bad_client = client.clone().with_certificate(bad.clone());
        let demanding = server.with_client_auth(ClientAuth::Required(trusted()));
        for (server, client, side) in [(bad_server, client, Side::Server), (demanding, bad_client, Side::Client)] {
            let (server, client) = match (make(Some(&server), None), make(None, Some(&client))) {
                (Ok(server), Ok(client)) => (server, client),
                (Err(Error::Config(_)), Ok(_)) if side == Side::Server => continue,
                (Ok(_), Err(Error::Config(_))) if side == Side::Client => continue,
                (server, client) => panic!("{:?}, {:?}", server.err(), client.err()),
            };
            let (failure, _) = Engines { server, client }.refused("localhost");
            assert!(matches!(failure.error, Error::Library(_)) && failure.side == side, "{versions:?}: {failure:?}");
        }
    }
}

/// Flips the last bit of the first prime of an RSA key (RFC 8017, appendix A.1.2).
///
/// The key still belongs to the certificate, but it cannot sign, because the prime is even.
fn with_even_prime(certificate: &Certificate) -> Certificate {
    let PrivateKeyDer::Pkcs8(der) = PrivateKeyDer::from_pem_slice(&certificate.key).unwrap() else { unreachable!() };
    let der = der.secret_pkcs8_der();
    // The range of the contents of the ASN.1 value at this place.
    let content = |at: usize| match der[at + 1] {
        long @ 0x81..=0x82 => {
            let bytes = usize::from(long - 0x80);
            let len = der[at + 2..at + 2 + bytes].iter().fold(0, |len, &byte| len << 8 | usize::from(byte));
            at + 2 + bytes..at + 2 + bytes + len
        }
        len => at + 2..at + 2 + usize::from(len),
    };
    let algorithm = content(content(0).start).end;
    let inner = content(content(algorithm).end).start;
    // The prime follows the version, the modulus and both exponents.
    let prime = (0..4).fold(content(inner).start, |at, _| content(at).end);
    let bit = 8 * content(prime).end - 1;
    let mut pem = certificate.key.to_vec();
    let begins = pem.iter().position(|&byte| byte == b'\n').unwrap();
    let at = (begins..pem.len()).filter(|&at| !pem[at].is_ascii_whitespace()).nth(bit / 6).unwrap();
    let alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let value = alphabet.iter().position(|&letter| letter == pem[at]).unwrap();
    pem[at] = alphabet[value ^ (1 << (5 - bit % 6))];
    Certificate::new(certificate.chain.clone(), pem)
}
