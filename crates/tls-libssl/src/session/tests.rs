use super::{MAX_SEALED, REKEY_AFTER, Session};
use crate::{Engine, Flavour};
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use tautline_testkit::certificate::{Authority, KeyKind, Leaf};
use tautline_testkit::pair::{Pair, Split};
use tautline_tls::{Certificate, ClientConfig, Error, Roots, ServerConfig, Session as _, Versions};

/// A server of `localhost`, and a client that trusts it.
fn configurations() -> (ServerConfig, ClientConfig) {
    let authority = Authority::new("Test").unwrap();
    let certificate = authority.issue(&Leaf { names: &["localhost"], ..Leaf::default() }).unwrap();
    let client = ClientConfig { roots: Roots::Pem(authority.certificate().into()), ..ClientConfig::default() };
    (ServerConfig { certificates: vec![certificate], ..ServerConfig::default() }, client)
}

#[test]
fn what_went_wrong_before_is_not_taken_for_what_goes_well() {
    let (server, client) = configurations();
    for &flavour in Flavour::ALL {
        let engine = Engine::new(flavour, Some(&server), Some(&client)).unwrap();
        let open = || {
            let mut pair = Pair::new(&engine, &engine, "localhost").unwrap();
            pair.handshake(&mut Split::Whole).unwrap();
            pair
        };
        let mut good = open();
        let fail = || {
            let mut bad = open();
            bad.client.send(&[b"to be changed"]).unwrap();
            let mut wire = bad.client.take_outbox();
            *wire.last_mut().unwrap() ^= 1;
            assert!(bad.server.deliver(&wire).is_err(), "{flavour}");
            let cut = &server.certificates[0].chain[..99];
            let unusable = Certificate::new(cut, server.certificates[0].key.clone());
            let config = ServerConfig { certificates: vec![unusable], ..ServerConfig::default() };
            assert!(Engine::new(flavour, Some(&config), None).is_err(), "{flavour}");
        };
        for round in 0..4 {
            fail();
            good.server.send(&[b"tickets, where there are some, stand before this"]).unwrap();
            fail();
            good.settle(&mut Split::Whole).unwrap();
            // Keys change, and the change is answered, with nothing read: the library asks for more.
            let _ = good.client.session.connection.update_keys();
            good.client.send(&[b"new keys"]).unwrap();
            fail();
            good.settle(&mut Split::Whole).unwrap();
            assert_eq!(good.server.received.len(), 8 * (round + 1), "{flavour}");
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

#[test]
fn a_key_that_does_not_sign_is_not_the_peers_fault() {
    let (server, client) = configurations();
    let authority = Authority::new("Test").unwrap();
    let rsa = authority.issue(&Leaf { names: &["localhost"], key: KeyKind::Rsa2048, ..Leaf::default() }).unwrap();
    let roots = Roots::Pem(authority.certificate().into());
    for &flavour in Flavour::ALL {
        for versions in [Versions::Tls13, Versions::Tls12] {
            let client = ClientConfig { versions, roots: roots.clone(), ..client.clone() };
            let server = ServerConfig { certificates: vec![spoiled(&rsa)], ..server.clone() };
            let engine = Engine::new(flavour, Some(&server), Some(&client));
            // These look at the key before.
            let looks = ["aws-lc", "boringssl"].contains(&flavour.name());
            assert_eq!(engine.is_err(), looks, "{flavour}");
            let Ok(engine) = engine else { continue };
            let failure = Pair::new(&engine, &engine, "localhost").unwrap().handshake(&mut Split::Whole).unwrap_err();
            assert!(matches!(failure.error, Error::Library(_)), "{flavour}, {versions:?}: {failure:?}");
        }
    }
}

#[test]
fn a_session_is_offered_by_one_connection_at_a_time() {
    let (server, client) = configurations();
    for &flavour in Flavour::ALL {
        for versions in [Versions::Tls13, Versions::Tls12] {
            let server = ServerConfig { tickets_per_handshake: 1, ..server.clone() };
            let engine =
                Engine::new(flavour, Some(&server), Some(&ClientConfig { versions, ..client.clone() })).unwrap();
            let talk = |mut pair: Pair<Session, Session>| {
                pair.handshake(&mut Split::Whole).unwrap();
                pair.server.send(&[b"tickets, where there are some, stand before this"]).unwrap();
                pair.settle(&mut Split::Whole).unwrap();
                pair.client.session.facts().resumed
            };
            let begin = || Pair::new(&engine, &engine, "localhost").unwrap();
            assert!(!talk(begin()), "{flavour}");
            let [one, other] = [begin(), begin()];
            let resumes = versions == Versions::Tls12 || flavour.name() != "libressl";
            assert_eq!([talk(one), talk(other)], [resumes, false], "{flavour}, {versions:?}");
            // Of TLS 1.2, those that were resumed can be resumed once more.
            assert_eq!([talk(begin()), talk(begin())], [resumes; 2], "{flavour}, {versions:?}");
        }
    }
}

#[test]
fn no_key_protects_more_records_than_it_may() {
    let (server, client) = configurations();
    for &flavour in Flavour::ALL {
        let engine = Engine::new(flavour, Some(&server), Some(&client)).unwrap();
        let mut pair = Pair::new(&engine, &engine, "localhost").unwrap();
        pair.handshake(&mut Split::Whole).unwrap();
        pair.settle(&mut Split::Whole).unwrap();
        for end in [REKEY_AFTER, MAX_SEALED] {
            pair.client.session.sealed = end;
            let sent = pair.client.send(&[b"one more"]);
            if flavour.name() == "libressl" {
                assert_eq!(sent.is_err(), end == MAX_SEALED, "{flavour}: {sent:?}");
                assert!(!matches!(sent, Err(Error::Peer(_))), "it is not the peer's fault");
            } else {
                assert!(sent.is_ok() && pair.client.session.sealed == 0, "{flavour}: {sent:?}");
                pair.settle(&mut Split::Whole).unwrap();
                assert_eq!(std::mem::take(&mut pair.server.received), b"one more", "{flavour}");
            }
        }
    }
}
