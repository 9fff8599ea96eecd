//! Configurations that cannot work, and calls at the wrong time.

use super::{Engines, LOCALHOST, Make, certificate, client_config, server_config};
use crate::certificate::KeyKind;
use tautline_tls::{Certificate, ClientAuth, ClientConfig, Content, Engine, Error, Roots, ServerConfig, Session};
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
