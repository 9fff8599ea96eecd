use super::{MAX_SEALED, REKEY_AFTER, Session};
use crate::{Engine, Flavour};
use tautline_testkit::certificate::{Authority, Leaf};
use tautline_testkit::pair::{Pair, Split};
use tautline_tls::{Certificate, ClientConfig, Error, Roots, ServerConfig, Session as _, Versions};

/// Makes the configurations of a server for `localhost` and of a client that trusts it.
fn configurations() -> (ServerConfig, ClientConfig) {
    let authority = Authority::new("Test").unwrap();
    let certificate = authority.issue(&Leaf::new(&["localhost"])).unwrap();
    let client = ClientConfig::default().with_roots(Roots::Pem(authority.certificate().into()));
    (ServerConfig::new([certificate]), client)
}

#[test]
fn an_error_of_another_session_does_not_fail_this_one() {
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
            let unusable = Certificate::new(cut, server.certificates[0].key.to_vec());
            let config = ServerConfig::new([unusable]);
            assert!(Engine::new(flavour, Some(&config), None).is_err(), "{flavour}");
        };
        for round in 0..4 {
            fail();
            good.server.send(&[b"any tickets precede this"]).unwrap();
            fail();
            good.settle(&mut Split::Whole).unwrap();
            // The answer to a KeyUpdate reads no data, so the library wants to read more.
            let _ = good.client.session.connection.update_keys();
            good.client.send(&[b"new keys"]).unwrap();
            fail();
            good.settle(&mut Split::Whole).unwrap();
            assert_eq!(good.server.received.len(), 8 * (round + 1), "{flavour}");
        }
    }
}

#[test]
fn a_session_is_offered_by_one_connection_at_a_time() {
    let (server, client) = configurations();
    for &flavour in Flavour::ALL {
        for versions in [Versions::Tls13, Versions::Tls12] {
            let server = server.clone().with_tickets_per_handshake(1);
            let engine = Engine::new(flavour, Some(&server), Some(&client.clone().with_versions(versions))).unwrap();
            let talk = |mut pair: Pair<Session, Session>| {
                pair.handshake(&mut Split::Whole).unwrap();
                pair.server.send(&[b"any tickets precede this"]).unwrap();
                pair.settle(&mut Split::Whole).unwrap();
                pair.client.session.tls_info().resumed
            };
            let begin = || Pair::new(&engine, &engine, "localhost").unwrap();
            assert!(!talk(begin()), "{flavour}");
            let [one, other] = [begin(), begin()];
            let resumes = versions == Versions::Tls12 || flavour.name() != "libressl";
            assert_eq!([talk(one), talk(other)], [resumes, false], "{flavour}, {versions:?}");
            // A session of TLS 1.2 can be resumed again.
            assert_eq!([talk(begin()), talk(begin())], [resumes; 2], "{flavour}, {versions:?}");
        }
    }
}

#[test]
fn keys_change_before_their_limit_of_records() {
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
                assert!(!matches!(sent, Err(Error::Peer(_))), "the peer is blamed");
            } else {
                assert!(sent.is_ok() && pair.client.session.sealed == 0, "{flavour}: {sent:?}");
                pair.settle(&mut Split::Whole).unwrap();
                assert_eq!(std::mem::take(&mut pair.server.received), b"one more", "{flavour}");
            }
        }
    }
}
