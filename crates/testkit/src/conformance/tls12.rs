//! What a TLS 1.2 peer may and may not protect and send after the handshake, from a peer that stops at nothing.

use super::{Engines, LOCALHOST, Make, trusted};
use crate::old::Old;
use crate::pair::End;
use crate::record_ranges;
use crate::wild::kind;
use tautline_tls::{Engine, Error, Session, Versions};

/// Runs `test` with the engine's session as the server, then as the client.
fn both_roles<E: Engine>(make: &impl Make<E>, mut test: impl FnMut(&mut End<E::Session>, &mut Old, bool)) {
    let engines = Engines::with_versions(make, Versions::Tls12);
    let mut server = End::new(engines.server.accept().unwrap());
    let mut old = Old::client(&mut server, &String::from_utf8(trusted()).unwrap());
    test(&mut server, &mut old, true);
    let mut client = End::new(engines.client.connect("localhost").unwrap());
    let mut old = Old::server(&mut client, &LOCALHOST);
    test(&mut client, &mut old, false);
}

/// Receives a little, as proof that the connection works.
fn works<S: Session>(end: &mut End<S>, old: &mut Old) {
    end.received.clear();
    end.deliver(&old.seal(kind::DATA, b"still there?")).unwrap();
    assert_eq!(end.received, b"still there?");
    end.send(&[b"of course"]).unwrap();
}

/// Whether anything of a handshake is in `wire`: what kind a record is can be seen in TLS 1.2.
fn has_handshake(wire: &[u8]) -> bool {
    record_ranges(wire).into_iter().any(|record| wire[record.start] == kind::HANDSHAKE)
}

/// Some empty records of TLS 1.2 are fine, endless ones are a flood.
pub fn old_empty_records<E: Engine>(make: impl Make<E>) {
    both_roles(&make, |end, old, _| {
        for _ in 0..10 {
            for _ in 0..16 {
                end.deliver(&old.seal(kind::DATA, &[])).unwrap();
            }
            works(end, old);
        }
        let flood = (0..1000).find_map(|_| end.deliver(&old.seal(kind::DATA, &[])).err());
        assert!(matches!(flood, Some(Error::Peer(_))), "{flood:?}");
    });
    for unused in [kind::HANDSHAKE, kind::ALERT] {
        both_roles(&make, |end, old, _| {
            let flood = (0..1000).find_map(|_| end.deliver(&old.seal(unused, &[])).err());
            assert!(matches!(flood, Some(Error::Peer(_))), "{flood:?}");
        });
    }
}

/// Warnings of TLS 1.2 are ignored (RFC 5246, section 7.2), endless ones are a flood; what is fatal ends the session.
pub fn old_alerts<E: Engine>(make: impl Make<E>) {
    // user_canceled, unrecognized_name
    for warning in [90, 112] {
        both_roles(&make, |end, old, _| {
            end.deliver(&old.seal(kind::ALERT, &[1, warning])).unwrap();
            works(end, old);
            let flood = (0..1000).find_map(|_| end.deliver(&old.seal(kind::ALERT, &[1, warning])).err());
            assert!(matches!(flood, Some(Error::Peer(_))), "{flood:?}");
        });
    }
    both_roles(&make, |end, old, _| {
        let result = end.deliver(&old.seal(kind::ALERT, &[2, 40]));
        assert_eq!(result, Err(Error::Alert("handshake_failure".to_owned())));
    });
    both_roles(&make, |end, old, _| {
        end.deliver(&old.seal(kind::ALERT, &[1, 0])).unwrap();
        assert!(end.closed);
    });
}

/// Who asks to renegotiate is refused, or ignored and not for ever; no new handshake begins.
pub fn renegotiation<E: Engine>(make: impl Make<E>) {
    both_roles(&make, |end, old, is_server| {
        works(end, old);
        end.take_outbox();
        // What a client begins with: TLS 1.2, a random, no session, one suite, no compression; and a server's HelloRequest.
        let hello = [&[1, 0, 0, 41, 3, 3][..], &[7; 32], &[0, 0, 2, 0xc0, 0x2b, 1, 0]].concat();
        let request = if is_server { &hello[..] } else { &[0, 0, 0, 0] };
        let mut ignored = 0;
        let refused = (0..1000).find_map(|_| {
            let result = end.deliver(&old.seal(kind::HANDSHAKE, request));
            if result.is_ok() {
                ignored += 1;
                assert!(ignored != 1 || !has_handshake(end.outbox.filled()), "a handshake begins");
            }
            result.err()
        });
        assert!(matches!(refused, Some(Error::Peer(_))), "{refused:?} after {ignored}");
        assert!(!has_handshake(&end.take_outbox()), "a handshake begins");
    });
    // A connection that ignores it goes on.
    both_roles(&make, |end, old, is_server| {
        if !is_server && end.deliver(&old.seal(kind::HANDSHAKE, &[0, 0, 0, 0])).is_ok() {
            works(end, old);
        }
    });
}
