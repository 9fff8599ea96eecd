//! Parsers of handshakes before and beside the TLS library: record headers, ClientHello and its answer.

use tautline_tls::Answer;
use tautline_tls::hello::{Hello, begins};
use tautline_tls::record::{Front, HEADER, Stage, check, front};

/// Input: bytes from a peer, as they lie on the wire.
pub(crate) fn run(wire: &[u8]) {
    let whole = front(wire);
    for len in 0..wire.len() {
        // More bytes never change what is known.
        match front(&wire[..len]) {
            Front::Partial => {}
            Front::Invalid => assert_eq!(whole, Front::Invalid),
            known @ Front::Whole(size) => assert!(size <= len && known == whole),
        }
    }
    for stage in [Stage::Hello, Stage::Handshake, Stage::Open12, Stage::Open13] {
        let header = wire.get(..HEADER).unwrap_or(wire);
        assert_eq!(check(wire, stage), check(header, stage), "the body plays no part");
        if check(wire, stage).is_ok() && wire.len() >= HEADER {
            assert_ne!(whole, Front::Invalid, "a good header is the header of a record");
        }
    }
    let _ = Answer::read(wire);
    let Some(hello) = Hello::read(wire) else { return };
    assert!(begins(wire));
    let _ = (hello.server_name(), hello.offers_tls13(), hello.offers_ticket(), hello.prefers_chacha());
    for scheme in hello.schemes() {
        let is_rsa = [true, false].into_iter().any(|rsa| hello.has_suites_for(rsa));
        assert!(is_rsa, "scheme {scheme:#06x} without a suite");
    }
}
