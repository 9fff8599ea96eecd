//! The fused engine's records cost no allocation, once the buffers have their size: neither of Rust's, nor of the AEAD's C code
//! where the thread has the context of the connection's key. Where more connections are busy than it keeps contexts for,
//! each record has one made, which is one allocation in C.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../../../testkit/counting/sys.rs"]
mod counting;
#[cfg(target_env = "gnu")]
mod sys;

use counting::allocations;
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

fn engine() -> fused::Engine {
    let authority = Authority::new("Test").unwrap();
    let certificate = authority.issue(&Leaf { names: &["localhost"], ..Leaf::default() }).unwrap();
    let server = ServerConfig { certificates: vec![certificate], ..ServerConfig::default() };
    let client = ClientConfig { roots: Roots::Pem(authority.certificate().into()), ..ClientConfig::default() };
    fused::Engine::new(Some(&server), Some(&client)).unwrap()
}

#[test]
fn records_need_no_allocation() {
    let engine = engine();
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
    let before = allocations();
    #[cfg(target_env = "gnu")]
    let before_c = sys::of_c();
    for len in [1, 64, 1000, 16_384, 100_000] {
        for _ in 0..20 {
            assert_eq!(carry(&mut client, &mut server, &[&[1; 14], &payload[..len]], &mut wire), 14 + len);
            assert_eq!(carry(&mut server, &mut client, &[&payload[..len]], &mut wire), len);
        }
    }
    assert_eq!(allocations() - before, 0, "allocations in 200 messages");
    #[cfg(target_env = "gnu")]
    assert_eq!(sys::of_c() - before_c, 0, "allocations of C in 200 messages");
}

/// In the same order again and again is the worst that can happen to a table of contexts: none is there when it is wanted.
#[cfg(target_env = "gnu")]
#[test]
fn a_record_whose_context_is_not_at_hand_costs_one_allocation_of_c() {
    let engine = engine();
    let mut wire = Buf::with_capacity(1000);
    let mut template = Pair::new(&engine, &engine, "localhost").unwrap();
    template.handshake(&mut Split::Whole).unwrap();
    // As many connections as a thread keeps contexts for directions, all of one handshake: their keys are others to it.
    let snapshots = [template.client.session.export().unwrap(), template.server.session.export().unwrap()];
    let import = |at: usize| fused::Session::import(&snapshots[at]).unwrap();
    let mut pairs: Vec<_> = (0..1024).map(|_| (import(0), import(1))).collect();
    let mut round = || {
        for (client, server) in &mut pairs {
            assert_eq!(carry(client, server, &[b"message"], &mut wire), 7);
        }
    };
    (0..4).for_each(|_| round());
    let (before, before_c) = (allocations(), sys::of_c());
    round();
    assert_eq!(allocations() - before, 0);
    assert_eq!(sys::of_c() - before_c, 2 * 1024, "one to seal and one to open");
}
