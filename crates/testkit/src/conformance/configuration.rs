//! Configurations that cannot work, and calls at the wrong time.

use super::{Engines, LOCALHOST, Make, certificate, client_config, issue, server_config, trusted};
use crate::certificate::{KeyKind, Leaf, Usage, Validity};
use crate::pair::Side;
use crate::warnings;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use tautline_tls::{
    Capabilities, Certificate, ClientAuth, ClientConfig, Content, Engine, Error, Roots, ServerConfig, Session, Versions,
};
use tautline_window::Buf;

/// Each is refused when the engine is made, with words that say which part is wrong.
pub fn bad_configurations<E: Engine>(make: impl Make<E>) {
    let other = certificate(&["localhost"], KeyKind::P256);
    let mismatch = Certificate::new(LOCALHOST.chain.clone(), other.key.clone());
    let no_chain = Certificate::new(b"not a certificate", other.key.clone());
    let no_key = Certificate::new(other.chain.clone(), other.chain.clone());
    let cut = Certificate::new(&other.chain[..other.chain.len() / 2], other.key.clone());
    for (certificates, words) in [
        (vec![], "needs a certificate"),
        (vec![mismatch.clone()], "does not belong to the certificate"),
        (vec![other, mismatch.clone()], "certificate 2 of 2"),
        (vec![no_chain], "no certificate found"),
        (vec![no_key], "no private key found"),
        (vec![cut], "PEM"),
    ] {
        expect(make(Some(&ServerConfig { certificates, ..ServerConfig::default() }), None), words);
    }
    for client_auth in [ClientAuth::Required(Vec::new()), ClientAuth::Optional(b"nothing".to_vec())] {
        expect(make(Some(&ServerConfig { client_auth, ..server_config() }), None), "roots for client certificates");
    }
    expect(make(None, Some(&ClientConfig { roots: Roots::Pem(Vec::new()), ..client_config() })), "trusted roots");
    expect(make(None, Some(&ClientConfig { certificate: Some(mismatch), ..client_config() })), "client certificate");
}

fn expect<E>(made: Result<E, Error>, words: &str) {
    match made {
        Err(Error::Config(why)) => assert!(why.contains(words), "{why:?} should say {words:?}"),
        Err(other) => panic!("{other:?} is not a configuration error"),
        Ok(_) => panic!("the engine takes a configuration with bad {words:?}"),
    }
}

/// Certificates that peers will refuse are reported when they are configured, not by the first user.
pub fn unusable_certificates_are_reported<E: Engine>(make: impl Make<E>) {
    let leaf = Leaf { names: &["localhost"], ..Leaf::default() };
    for (certificate, words) in [
        (issue(&leaf), ""),
        (issue(&Leaf { usage: Usage::Both, ..leaf }), ""),
        (issue(&Leaf { validity: Validity::Expired, ..leaf }), "expired on 20"),
        (issue(&Leaf { validity: Validity::NotYet, ..leaf }), "not valid before 20"),
        (issue(&Leaf { usage: Usage::Client, ..leaf }), "another use"),
    ] {
        let config = ServerConfig { certificates: vec![certificate], ..ServerConfig::default() };
        let said = warnings(|| drop(make(Some(&config), None).unwrap()));
        match words {
            "" => assert!(said.is_empty(), "{said:?}"),
            words => assert!(said.len() == 1 && said[0].contains(words), "{said:?} should say {words:?}"),
        }
        assert!(said.iter().all(|line| line.starts_with("server certificate ")), "{said:?}");
    }
    // Tickets are on by default, so that they are of no use is no error.
    let config = ServerConfig { versions: Versions::Tls13, ..server_config() };
    let said = warnings(|| drop(make(Some(&config), None).unwrap()));
    let has_tickets = Capabilities::of(make(Some(&config), None).unwrap().name()).is_none_or(|one| one.resumes_tls13);
    assert!(if has_tickets { said.is_empty() } else { said[0].contains("no tickets of TLS 1.3") }, "{said:?}");
    let config = |usage| ClientConfig { certificate: Some(issue(&Leaf { usage, ..leaf })), ..client_config() };
    let said = warnings(|| drop(make(None, Some(&config(Usage::Server))).unwrap()));
    assert!(said.len() == 1 && said[0].starts_with("client certificate is meant for another use"), "{said:?}");
    assert!(warnings(|| drop(make(None, Some(&config(Usage::Client))).unwrap())).is_empty());
}

/// A key of a kind that an engine cannot use is refused with the name of one that can.
pub fn keys_that_cannot_be_used<E: Engine>(make: impl Make<E>) {
    let ed25519 = || certificate(&["localhost"], KeyKind::Ed25519);
    let server = ServerConfig { certificates: vec![ed25519()], ..server_config() };
    let client = ClientConfig { certificate: Some(ed25519()), ..client_config() };
    let name = make(None, Some(&client_config())).unwrap().name();
    let knows_it = Capabilities::of(name).is_none_or(|one| one.ed25519);
    for (made, what) in
        [(make(Some(&server), None), "server certificate"), (make(None, Some(&client)), "client certificate")]
    {
        if knows_it {
            assert!(made.is_ok(), "{name}");
        } else {
            expect(made, &format!("{name} cannot use Ed25519 keys ({what}); take fused or rustls"));
        }
    }
}

/// Calls that make no sense are errors, not panics.
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
        assert!(out.is_empty(), "nothing was said yet, so there is nothing to close");
    }
    let mut pair = engines.open("localhost");
    let mut out = Buf::new();
    let (used, state) = pair.client.session.handshake(&mut [23, 3, 3], &mut out).unwrap();
    assert_eq!((used, state), (0, tautline_tls::Handshake::Complete), "complete stays complete");
    let mut scratch = Buf::new();
    let opened = pair.client.session.open(&mut [], &mut scratch, &mut out).unwrap();
    assert_eq!((opened.used, opened.content), (0, Content::Partial));
}

/// A key that cannot sign is refused with its configuration, or the library's own failure where that does not look: never the
/// peer's fault.
pub fn keys_that_do_not_sign<E: Engine>(make: impl Make<E>) {
    let leaf = Leaf { names: &["localhost"], key: KeyKind::Rsa2048, usage: Usage::Both, ..Leaf::default() };
    let bad = spoiled(&issue(&leaf));
    for versions in [Versions::Tls13, Versions::Tls12] {
        let server = ServerConfig { versions, ..server_config() };
        let client = ClientConfig { versions, ..client_config() };
        let bad_server = ServerConfig { certificates: vec![bad.clone()], ..server.clone() };
        let bad_client = ClientConfig { certificate: Some(bad.clone()), ..client.clone() };
        let demanding = ServerConfig { client_auth: ClientAuth::Required(trusted()), ..server };
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

/// The key with the last bit of its first prime changed: it belongs to the certificate still, and signs nothing, since the
/// prime is even (RFC 8017, appendix A.1.2).
fn spoiled(certificate: &Certificate) -> Certificate {
    let PrivateKeyDer::Pkcs8(der) = PrivateKeyDer::from_pem_slice(&certificate.key).unwrap() else { unreachable!() };
    let der = der.secret_pkcs8_der();
    // What a value of ASN.1 at this place holds.
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
    // Behind version, modulus and both exponents.
    let prime = (0..4).fold(content(inner).start, |at, _| content(at).end);
    let bit = 8 * content(prime).end - 1;
    let mut pem = certificate.key.clone();
    let begins = pem.iter().position(|&byte| byte == b'\n').unwrap();
    let at = (begins..pem.len()).filter(|&at| !pem[at].is_ascii_whitespace()).nth(bit / 6).unwrap();
    let alphabet = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let value = alphabet.iter().position(|&letter| letter == pem[at]).unwrap();
    pem[at] = alphabet[value ^ (1 << (5 - bit % 6))];
    Certificate::new(certificate.chain.clone(), pem)
}
