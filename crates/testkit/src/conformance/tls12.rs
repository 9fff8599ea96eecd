//! Records that a TLS 1.2 peer may or may not send after the handshake, from a raw peer.

use super::{Engines, LOCALHOST, Make, trusted};
use crate::pair::End;
use crate::raw_peer::kind;
use crate::raw_peer_tls12::RawPeerTls12;
use crate::record_ranges;
use tautline_tls::alert::Alert;
use tautline_tls::{Engine, Error, Session, Versions};

/// Runs `test` with the engine's session as the server, then as the client; the flag is true for the server.
fn both_roles<E: Engine>(make: &impl Make<E>, mut test: impl FnMut(&mut End<E::Session>, &mut RawPeerTls12, bool)) {
    let engines = Engines::with_versions(make, Versions::Tls12);
    let mut server = End::new(engines.server.accept().unwrap());
    let mut raw_peer = RawPeerTls12::client(&mut server, &String::from_utf8(trusted()).unwrap());
    test(&mut server, &mut raw_peer, true);
    let mut client = End::new(engines.client.connect("localhost").unwrap());
    let mut raw_peer = RawPeerTls12::server(&mut client, &LOCALHOST);
    test(&mut client, &mut raw_peer, false);
}

/// Receives a message and sends one, to check that the connection works.
fn assert_works<S: Session>(end: &mut End<S>, raw_peer: &mut RawPeerTls12) {
    end.received.clear();
    end.deliver(&raw_peer.seal(kind::DATA, b"still there?")).unwrap();
    assert_eq!(end.received, b"still there?");
    end.send(&[b"of course"]).unwrap();
}

/// Whether `wire` has a handshake record; TLS 1.2 does not encrypt the content type.
fn has_handshake(wire: &[u8]) -> bool {
    record_ranges(wire).into_iter().any(|record| wire[record.start] == kind::HANDSHAKE)
}

/// A few empty data records of TLS 1.2 are accepted; a flood of empty records is an error.
pub fn old_empty_records<E: Engine>(make: impl Make<E>) {
    both_roles(&make, |end, raw_peer, _| {
        for _ in 0..10 {
            for _ in 0..16 {
                end.deliver(&raw_peer.seal(kind::DATA, &[])).unwrap();
            }
            assert_works(end, raw_peer);
        }
        let flood = (0..1000).find_map(|_| end.deliver(&raw_peer.seal(kind::DATA, &[])).err());
        assert!(matches!(flood, Some(Error::Peer(_))), "{flood:?}");
    });
    for unused in [kind::HANDSHAKE, kind::ALERT] {
        both_roles(&make, |end, raw_peer, _| {
            let flood = (0..1000).find_map(|_| end.deliver(&raw_peer.seal(unused, &[])).err());
            assert!(matches!(flood, Some(Error::Peer(_))), "{flood:?}");
        });
    }
}

/// A few TLS 1.2 warnings are ignored (RFC 5246, section 7.2); a flood of them is an error.
///
/// A fatal alert ends the session.
pub fn old_alerts<E: Engine>(make: impl Make<E>) {
    // user_canceled, unrecognized_name
    for warning in [90, 112] {
        both_roles(&make, |end, raw_peer, _| {
            end.deliver(&raw_peer.seal(kind::ALERT, &[1, warning])).unwrap();
            assert_works(end, raw_peer);
            let flood = (0..1000).find_map(|_| end.deliver(&raw_peer.seal(kind::ALERT, &[1, warning])).err());
            assert!(matches!(flood, Some(Error::Peer(_))), "{flood:?}");
        });
    }
    both_roles(&make, |end, raw_peer, _| {
        let result = end.deliver(&raw_peer.seal(kind::ALERT, &[2, 40]));
        assert_eq!(result, Err(Error::Alert(Alert::HANDSHAKE_FAILURE)));
    });
    both_roles(&make, |end, raw_peer, _| {
        end.deliver(&raw_peer.seal(kind::ALERT, &[1, 0])).unwrap();
        assert!(end.closed);
    });
}

/// A request to renegotiate is rejected, if need be after some that are ignored; no new handshake begins.
pub fn renegotiation<E: Engine>(make: impl Make<E>) {
    both_roles(&make, |end, raw_peer, is_server| {
        assert_works(end, raw_peer);
        end.take_outbox();
        // A ClientHello (TLS 1.2, a random, no session, one suite, no compression), or a server's HelloRequest.
        let hello = [&[1, 0, 0, 41, 3, 3][..], &[7; 32], &[0, 0, 2, 0xc0, 0x2b, 1, 0]].concat();
        let request = if is_server { &hello[..] } else { &[0, 0, 0, 0] };
        let mut ignored = 0;
        let refused = (0..1000).find_map(|_| {
            let result = end.deliver(&raw_peer.seal(kind::HANDSHAKE, request));
            if result.is_ok() {
                ignored += 1;
                assert!(ignored != 1 || !has_handshake(end.outbox.filled()), "a handshake begins");
            }
            result.err()
        });
        assert!(matches!(refused, Some(Error::Peer(_))), "{refused:?} after {ignored}");
        assert!(!has_handshake(&end.take_outbox()), "a handshake begins");
    });
    // A client that ignores a HelloRequest goes on working.
    both_roles(&make, |end, raw_peer, is_server| {
        if !is_server && end.deliver(&raw_peer.seal(kind::HANDSHAKE, &[0, 0, 0, 0])).is_ok() {
            assert_works(end, raw_peer);
        }
    });
}
