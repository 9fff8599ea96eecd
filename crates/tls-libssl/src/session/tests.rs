use super::{MAX_SEALED, REKEY_AFTER};
use crate::{Engine, Flavour};
use tautline_testkit::certificate::{Authority, Leaf};
use tautline_testkit::pair::{Pair, Split};
use tautline_tls::{ClientConfig, Error, Roots, ServerConfig};

#[test]
fn no_key_protects_more_records_than_it_may() {
    let authority = Authority::new("Test").unwrap();
    let certificate = authority.issue(&Leaf { names: &["localhost"], ..Leaf::default() }).unwrap();
    let server = ServerConfig { certificates: vec![certificate], ..ServerConfig::default() };
    let client = ClientConfig { roots: Roots::Pem(authority.certificate().into()), ..ClientConfig::default() };
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
