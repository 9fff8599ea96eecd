//! The fused engine's records cost no allocation once the buffers have their size.
//!
//! That holds for Rust, and for the AEAD's C code if the thread has a context for the connection's key. A thread keeps
//! a limited number of contexts. Beyond it, each record costs one allocation in C for a context.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "../../../testkit/counting/sys.rs"]
mod counting;
#[cfg(target_env = "gnu")]
mod sys;

use counting::allocations;
use tautline_buf::Buf;
use tautline_testkit::certificate::{Authority, Leaf};
use tautline_testkit::pair::{Pair, Split};
use tautline_tls::{ClientConfig, Content, Handshake, Roots, ServerConfig, Session};
use tautline_tls_records::AeadChoice;
use tautline_tls_rustls::fused;

/// Most allocations of a server for a full handshake, and for a resumed one.
const FULL: u64 = 131;
const RESUMED: u64 = 131;

/// Seals in one session and opens in the other. Returns the number of bytes that arrived.
fn carry(from: &mut impl Session, to: &mut impl Session, chunks: &[&[u8]], wire: &mut Buf) -> usize {
    let (mut scratch, mut reply) = (Buf::new(), Buf::new());
    from.seal(chunks, wire).unwrap();
    let mut arrived = 0;
    loop {
        let opened = to.open(wire.filled_mut(), &mut scratch, &mut reply).unwrap();
        match opened.content {
            Content::Data(data) => arrived += data.range.len(),
            Content::Partial => return arrived,
            _ => {}
        }
        let used = opened.used;
        wire.take(used);
    }
}

fn engine() -> fused::Engine {
    let authority = Authority::new("Test").unwrap();
    let certificate = authority.issue(&Leaf::new(&["localhost"])).unwrap();
    let server = ServerConfig::new([certificate]);
    let client = ClientConfig::default().with_roots(Roots::Pem(authority.certificate().into()));
    // All tests count the contexts of one provider. A mixed choice makes a second context for some sizes.
    AeadChoice::AwsLc.set();
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
    // A thread makes its table of contexts when a connection first becomes busy.
    for _ in 0..3 {
        carry(&mut client, &mut server, &[&payload[..1]], &mut wire);
        carry(&mut server, &mut client, &[&payload[..1]], &mut wire);
    }
    let before = allocations();
    #[cfg(target_env = "gnu")]
    let before_c = sys::c_allocations();
    for len in [1, 64, 1000, 16_384, 100_000] {
        for _ in 0..20 {
            assert_eq!(carry(&mut client, &mut server, &[&[1; 14], &payload[..len]], &mut wire), 14 + len);
            assert_eq!(carry(&mut server, &mut client, &[&payload[..len]], &mut wire), len);
        }
    }
    assert_eq!(allocations() - before, 0, "allocations in 200 messages");
    #[cfg(target_env = "gnu")]
    assert_eq!(sys::c_allocations() - before_c, 0, "C allocations in 200 messages");
}

/// Handshakes, and has the client take its tickets. Returns how often the server allocates from the first bytes to the end of the
/// handshake, and whether it resumed a session.
fn handshake(server: &fused::Engine, client: &fused::Engine) -> (u64, bool) {
    let mut pair = Pair::new(client, server, "localhost").unwrap();
    pair.client.work().unwrap();
    let mut count = 0;
    while !pair.server.open {
        let mut wire = pair.client.take_outbox();
        let before = allocations();
        let (used, state) = pair.server.session.handshake(&mut wire, &mut pair.server.outbox).unwrap();
        count += allocations() - before;
        assert_eq!(used, wire.len());
        pair.server.open = state == Handshake::Complete;
        let reply = pair.server.take_outbox();
        pair.client.deliver(&reply).unwrap();
    }
    pair.server.send(&[b"hello"]).unwrap();
    pair.settle(&mut Split::Whole).unwrap();
    (count, pair.server.session.tls_info().resumed)
}

/// Each allocation costs about 20 ns. A higher number needs a reason.
#[test]
fn a_handshake_allocates_at_most_a_known_number_of_times() {
    let engine = engine();
    let (full, resumed) = (handshake(&engine, &engine), handshake(&engine, &engine));
    assert!(!full.1 && resumed.1);
    assert!(full.0 <= FULL && resumed.0 <= RESUMED, "{full:?} {resumed:?}");
}

/// Uses more connections in a fixed order than a thread keeps contexts for: the worst case, in which each one misses.
#[cfg(target_env = "gnu")]
#[test]
fn a_record_without_a_cached_context_costs_one_c_allocation() {
    let engine = engine();
    let mut wire = Buf::with_capacity(1000);
    let mut template = Pair::new(&engine, &engine, "localhost").unwrap();
    template.handshake(&mut Split::Whole).unwrap();
    // All sessions are imports of one handshake. Their keys still count as different ones.
    let snapshots = [template.client.session.export().unwrap(), template.server.session.export().unwrap()];
    let import = |at: usize| fused::Session::import(&snapshots[at]).unwrap();
    let mut pairs: Vec<_> = (0..1024).map(|_| (import(0), import(1))).collect();
    let mut round = || {
        for (client, server) in &mut pairs {
            assert_eq!(carry(client, server, &[b"message"], &mut wire), 7);
        }
    };
    (0..4).for_each(|_| round());
    let (before, before_c) = (allocations(), sys::c_allocations());
    round();
    assert_eq!(allocations() - before, 0);
    assert_eq!(sys::c_allocations() - before_c, 2 * 1024, "one allocation to seal and one to open");
}
