//! Conformance of the engines.

use tautline_testkit::certificate::{Authority, Leaf};
use tautline_testkit::pair::{Pair, Split};
use tautline_tls::*;

#[test]
fn smoke() {
    let ca = Authority::new("Test").unwrap();
    let cert = ca.issue(&Leaf { names: &["localhost"], ..Leaf::default() }).unwrap();
    let server =
        tautline_tls_rustls::Engine::server(&ServerConfig { certificates: vec![cert], ..Default::default() }).unwrap();
    let client = tautline_tls_rustls::Engine::client(&ClientConfig {
        roots: Roots::Pem(ca.certificate().into()),
        ..Default::default()
    })
    .unwrap();
    for _ in 0..2 {
        let mut pair = Pair::new(&client, &server, "localhost").unwrap();
        pair.handshake(&mut Split::Whole).unwrap();
        assert!(pair.client.open && pair.server.open);
        pair.client.send(&[b"hello ", b"world"]).unwrap();
        pair.server.send(&[b"there"]).unwrap();
        pair.settle(&mut Split::Every(1)).unwrap();
        assert_eq!(pair.server.received, b"hello world");
        assert_eq!(pair.client.received, b"there");
        println!("{:?}", Facts { peer_certificates: vec![], ..pair.client.session.facts() });
        println!("{:?}", pair.server.session.facts());
    }
}
