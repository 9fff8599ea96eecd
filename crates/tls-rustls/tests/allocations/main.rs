//! The fused engine's records cost no allocation of Rust's, once the buffers have their size. (The AEAD's C code makes
//! its own, none of them per record.)
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod sys;

use tautline_testkit::certificate::{Authority, Leaf};
use tautline_testkit::pair::{Pair, Split};
use tautline_tls::{ClientConfig, Content, Roots, ServerConfig, Session};
use tautline_tls_rustls::fused;
use tautline_window::Buf;

/// Seals in one session and opens in the other; gives the bytes that arrived.
fn carry(from: &mut impl Session, to: &mut impl Session, chunks: &[&[u8]], wire: &mut Buf) -> usize {
    let (mut scratch, mut reply) = (Buf::new(), Buf::new());
    from.seal(chunks, wire).unwrap();
    let mut arrived = 0;
    loop {
        let opened = to.open(wire.filled_mut(), &mut scratch, &mut reply).unwrap();
        match opened.content {
            Content::Data(data) => arrived += data.len(),
            Content::Partial => return arrived,
            _ => {}
        }
        let used = opened.used;
        wire.take(used);
    }
}

#[test]
fn records_need_no_allocation() {
    let authority = Authority::new("Test").unwrap();
    let certificate = authority.issue(&Leaf { names: &["localhost"], ..Leaf::default() }).unwrap();
    let server = ServerConfig { certificates: vec![certificate], ..ServerConfig::default() };
    let client = ClientConfig { roots: Roots::Pem(authority.certificate().into()), ..ClientConfig::default() };
    let engine = fused::Engine::new(Some(&server), Some(&client)).unwrap();
    let mut pair = Pair::new(&engine, &engine, "localhost").unwrap();
    pair.handshake(&mut Split::Whole).unwrap();
    let (mut client, mut server) = (pair.client.session, pair.server.session);
    let mut wire = Buf::with_capacity(200_000);
    let payload = vec![7; 100_000];
    // The thread's table of contexts is made when a connection first falls busy.
    for _ in 0..3 {
        carry(&mut client, &mut server, &[&payload[..1]], &mut wire);
        carry(&mut server, &mut client, &[&payload[..1]], &mut wire);
    }
    let before = sys::allocations();
    for len in [1, 64, 1000, 16_384, 100_000] {
        for _ in 0..20 {
            assert_eq!(carry(&mut client, &mut server, &[&[1; 14], &payload[..len]], &mut wire), 14 + len);
            assert_eq!(carry(&mut server, &mut client, &[&payload[..len]], &mut wire), len);
        }
    }
    assert_eq!(sys::allocations() - before, 0, "allocations in 200 messages");
}
