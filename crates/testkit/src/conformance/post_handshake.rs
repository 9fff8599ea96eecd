//! Records that a TLS 1.3 peer may or may not send after the handshake, from a raw peer.

use super::differences::Difference;
use super::{Engines, LOCALHOST, Make, client_config, server_config, trusted};
use crate::pair::End;
use crate::raw_peer::{RawPeer, kind};
use rustls::CipherSuite;
use tautline_tls::alert::Alert;
use tautline_tls::{Engine, Error, Session};

/// Runs `test` with the engine's session as the server, then as the client.
fn both_roles<E: Engine>(make: &impl Make<E>, mut test: impl FnMut(&mut End<E::Session>, &mut RawPeer)) {
    let engines = Engines::new(make, &server_config(), &client_config());
    let roots = String::from_utf8(trusted()).unwrap();
    let mut server = End::new(engines.server.accept().unwrap());
    let mut raw_peer = RawPeer::client(&mut server, &roots, None);
    // Some libraries send tickets only with their first data.
    server.send(&[b"tickets stand before this"]).unwrap();
    raw_peer.open(&server.take_outbox());
    test(&mut server, &mut raw_peer);
    let mut client = End::new(engines.client.connect("localhost").unwrap());
    let mut raw_peer = RawPeer::server(&mut client, &LOCALHOST, None);
    test(&mut client, &mut raw_peer);
}

/// Delivers `wire` to the engine's session in both roles. Each must reject it, with one of `alerts` if any are given.
fn refused<E: Engine>(make: &impl Make<E>, alerts: &[u8], mut wire: impl FnMut(&mut RawPeer) -> Vec<u8>) {
    let ends_silently = Engines::new(make, &server_config(), &client_config()).differs(Difference::EndsWithoutAlert);
    both_roles(make, |end, raw_peer| {
        let wire = wire(raw_peer);
        match end.deliver(&wire) {
            Err(Error::Peer(_)) => {}
            other => panic!("{other:?}, with {:?} received, is no refusal", end.received),
        }
        let said = raw_peer.open(&end.take_outbox());
        let is_silent = said.is_empty() && ends_silently;
        if !(alerts.is_empty() || is_silent) {
            let [(kind::ALERT, alert)] = &said[..] else { panic!("{said:?} is not one alert") };
            assert!(alert[0] == 2 && alerts.contains(&alert[1]), "alert {alert:?}, not {alerts:?}");
        }
    });
}

const UNEXPECTED_MESSAGE: u8 = 10;
const BAD_RECORD_MAC: u8 = 20;
const RECORD_OVERFLOW: u8 = 22;
const ILLEGAL_PARAMETER: u8 = 47;
const DECODE_ERROR: u8 = 50;

/// Sends a message each way, to check that the connection works.
fn assert_works<S: Session>(end: &mut End<S>, raw_peer: &mut RawPeer) {
    end.received.clear();
    let wire = raw_peer.seal(kind::DATA, b"still there?", 0);
    end.deliver(&wire).unwrap();
    assert_eq!(end.received, b"still there?");
    end.send(&[b"of course"]).unwrap();
    let said = raw_peer.open(&end.take_outbox());
    assert_eq!(said.last(), Some(&(kind::DATA, b"of course".to_vec())), "{said:?}");
}

/// Every TLS 1.3 cipher suite works in both roles, also after a KeyUpdate.
pub fn every_suite<E: Engine>(make: impl Make<E>) {
    let engines = Engines::new(&make, &server_config(), &client_config());
    let roots = String::from_utf8(trusted()).unwrap();
    for suite in [
        CipherSuite::TLS13_AES_128_GCM_SHA256,
        CipherSuite::TLS13_AES_256_GCM_SHA384,
        CipherSuite::TLS13_CHACHA20_POLY1305_SHA256,
    ] {
        let mut server = End::new(engines.server.accept().unwrap());
        let mut raw_peer = RawPeer::client(&mut server, &roots, Some(suite));
        raw_peer.open(&server.take_outbox());
        let mut client = End::new(engines.client.connect("localhost").unwrap());
        let mut other = RawPeer::server(&mut client, &LOCALHOST, Some(suite));
        for (end, raw_peer) in [(&mut server, &mut raw_peer), (&mut client, &mut other)] {
            assert_eq!(end.session.tls_info().suite, Some(u16::from(suite).into()));
            assert_works(end, raw_peer);
            let wire = raw_peer.seal(kind::HANDSHAKE, &[24, 0, 0, 1, 1], 0);
            raw_peer.tx.update();
            end.deliver(&wire).unwrap();
            assert_works(end, raw_peer);
            end.send(&[&[9; 40_000]]).unwrap();
            let said: usize = raw_peer.open(&end.take_outbox()).iter().map(|(_, content)| content.len()).sum();
            assert_eq!(said, 40_000, "{suite:?}");
        }
    }
}

/// Padding is removed, whatever its length.
pub fn padding<E: Engine>(make: impl Make<E>) {
    both_roles(&make, |end, raw_peer| {
        for len in [1, 2, 100, 1000] {
            for zeros in [0, 1, 15, 16, 255, 15_000, 16_384 - len] {
                end.received.clear();
                // The content ends in zeros too, which must stay.
                let content = [vec![7; len / 2], vec![0; len - len / 2]].concat();
                let wire = raw_peer.seal(kind::DATA, &content, zeros);
                end.deliver(&wire).unwrap();
                assert!(end.received == content, "{len} bytes with {zeros} of padding");
            }
        }
        assert_works(end, raw_peer);
    });
}

/// Invalid records are rejected: without a content type, of an unknown type, too long, or too short.
pub fn impossible_inner_plaintexts<E: Engine>(make: impl Make<E>) {
    for inner in [vec![], vec![0; 1], vec![0; 500]] {
        refused(&make, &[], |raw_peer| raw_peer.tx.seal(inner.clone()));
    }
    for unknown in [1, 19, 24, 25, 99, 255] {
        refused(&make, &[UNEXPECTED_MESSAGE, DECODE_ERROR], |raw_peer| raw_peer.seal(unknown, b"what is this?", 0));
    }
    refused(&make, &[UNEXPECTED_MESSAGE], |raw_peer| raw_peer.seal(kind::CHANGE_CIPHER_SPEC, &[1], 0));
    for (content, zeros) in [(16_385, 0), (16_000, 385), (1, 16_384), (16_500, 0), (18_000, 0)] {
        refused(&make, &[RECORD_OVERFLOW], |raw_peer| raw_peer.seal(kind::DATA, &vec![5; content], zeros));
    }
    // Shorter than an authentication tag.
    refused(&make, &[BAD_RECORD_MAC, DECODE_ERROR], |_| vec![23, 3, 3, 0, 5, 1, 2, 3, 4, 5]);
    refused(&make, &[BAD_RECORD_MAC, DECODE_ERROR], |_| vec![23, 3, 3, 0, 0]);
    both_roles(&make, |end, raw_peer| {
        let wire = raw_peer.seal(kind::DATA, &[6; 16_384], 0);
        end.deliver(&wire).unwrap();
        assert_eq!(end.received.len(), 16_384, "the longest permitted record");
    });
}

/// A few empty records are accepted; a flood of them is an error.
pub fn empty_records<E: Engine>(make: impl Make<E>) {
    both_roles(&make, |end, raw_peer| {
        for _ in 0..10 {
            for _ in 0..16 {
                let wire = raw_peer.seal(kind::DATA, &[], 3);
                end.deliver(&wire).unwrap();
            }
            assert_works(end, raw_peer);
        }
        let flood = (0..1000).find_map(|_| end.deliver(&raw_peer.seal(kind::DATA, &[], 0)).err());
        assert!(matches!(flood, Some(Error::Peer(_))), "{flood:?}");
    });
    // RFC 8446, section 5.4: alerts and handshake messages must not be empty. Engines may ignore a few of the latter.
    refused(&make, &[], |raw_peer| raw_peer.seal(kind::ALERT, &[], 0));
    both_roles(&make, |end, raw_peer| {
        let flood = (0..1000).find_map(|_| end.deliver(&raw_peer.seal(kind::HANDSHAKE, &[], 0)).err());
        assert!(matches!(flood, Some(Error::Peer(_))), "{flood:?}");
    });
}

/// A KeyUpdate takes effect, and is answered if the peer requests it (RFC 8446, section 4.6.3).
///
/// Each KeyUpdate arrives in one buffer with the data before and after it.
pub fn key_updates<E: Engine>(make: impl Make<E>) {
    both_roles(&make, |end, raw_peer| {
        for round in 0..40 {
            let asks = u8::from(round % 2 == 1);
            let mut wire = raw_peer.seal(kind::DATA, b"before ", 0);
            wire.extend(raw_peer.seal(kind::HANDSHAKE, &[24, 0, 0, 1, asks], 0));
            raw_peer.tx.update();
            wire.extend(raw_peer.seal(kind::DATA, b"after", 0));
            end.received.clear();
            end.deliver(&wire).unwrap();
            assert_eq!(end.received, b"before after");
            end.send(&[b"reply"]).unwrap();
            let said = raw_peer.open(&end.take_outbox());
            match asks {
                0 => assert_eq!(said, [(kind::DATA, b"reply".to_vec())]),
                _ => {
                    assert_eq!(said, [(kind::HANDSHAKE, vec![24, 0, 0, 1, 0]), (kind::DATA, b"reply".to_vec())]);
                }
            }
        }
    });
}

/// A KeyUpdate right behind the peer's Finished, in the same flight or cut anywhere, is answered. Both ends stay in step.
///
/// A library that exports its keys after the handshake must neither have read the KeyUpdate by then, nor owe its answer.
pub fn key_updates_behind_finished<E: Engine>(make: impl Make<E>) {
    let engines = Engines::new(&make, &server_config(), &client_config());
    let roots = String::from_utf8(trusted()).unwrap();
    let behind = |raw_peer: &mut RawPeer, flight: Vec<u8>| {
        let update = raw_peer.seal(kind::HANDSHAKE, &[24, 0, 0, 1, 1], 0);
        raw_peer.tx.update();
        [flight, update, raw_peer.seal(kind::DATA, b"behind", 0)].concat()
    };
    let answered = |mut said: Vec<(u8, Vec<u8>)>, cut: usize| {
        for (kind, content) in &mut said {
            // Tickets may stand before the KeyUpdate, also in its record.
            while let (kind::HANDSHAKE, [4, a, b, c, ..]) = (*kind, &content[..]) {
                let len = 4 + u32::from_be_bytes([0, *a, *b, *c]) as usize;
                content.drain(..len);
            }
        }
        said.retain(|(_, content)| !content.is_empty());
        let expected = [(kind::HANDSHAKE, vec![24, 0, 0, 1, 0]), (kind::DATA, b"reply".to_vec())];
        assert_eq!(said, expected, "cut at {cut}");
    };
    for cut in 0.. {
        let mut server = End::new(engines.server.accept().unwrap());
        let (mut raw_peer, flight) = RawPeer::client_last_flight(&mut server, &roots);
        let wire = behind(&mut raw_peer, flight);
        let Some((first, second)) = wire.split_at_checked(cut) else { break };
        server.deliver(first).unwrap();
        server.deliver(second).unwrap();
        assert_eq!(server.received, b"behind", "cut at {cut}");
        server.send(&[b"reply"]).unwrap();
        answered(raw_peer.open(&server.take_outbox()), cut);
        assert_works(&mut server, &mut raw_peer);
    }
    let mut back = 0;
    loop {
        let mut client = End::new(engines.client.connect("localhost").unwrap());
        let (mut raw_peer, flight, mut handshake) = RawPeer::server_flight(&mut client, &LOCALHOST);
        let wire = behind(&mut raw_peer, flight);
        // From the end, where the records of the KeyUpdate and of Finished lie, and then in longer steps.
        let Some(cut) = wire.len().checked_sub(back) else { break };
        back += if back < 150 { 1 } else { 41 };
        client.deliver(&wire[..cut]).unwrap();
        client.deliver(&wire[cut..]).unwrap();
        assert_eq!(client.received, b"behind", "cut at {cut}");
        client.send(&[b"reply"]).unwrap();
        let said = client.take_outbox();
        answered(raw_peer.open(handshake.finish(&said)), cut);
        assert_works(&mut client, &mut raw_peer);
    }
}

/// A flood of KeyUpdates without data is an error, and the replies to them do not accumulate.
pub fn key_update_floods<E: Engine>(make: impl Make<E>) {
    both_roles(&make, |end, raw_peer| {
        let mut flood = None;
        for _ in 0..1000 {
            let wire = raw_peer.seal(kind::HANDSHAKE, &[24, 0, 0, 1, 1], 0);
            raw_peer.tx.update();
            flood = end.deliver(&wire).err();
            if flood.is_some() {
                break;
            }
        }
        assert!(matches!(flood, Some(Error::Peer(_))), "{flood:?}");
        assert!(end.outbox.len() < 4000, "{} bytes of replies", end.outbox.len());
    });
}

/// Rejected are malformed KeyUpdates, more bytes in the record of a KeyUpdate, and data under the old keys.
pub fn bad_key_updates<E: Engine>(make: impl Make<E>) {
    for message in [&[24, 0, 0, 1, 2][..], &[24, 0, 0, 1, 255], &[24, 0, 0, 0], &[24, 0, 0, 2, 0, 0]] {
        refused(&make, &[ILLEGAL_PARAMETER, DECODE_ERROR], |raw_peer| raw_peer.seal(kind::HANDSHAKE, message, 0));
    }
    // RFC 8446, section 5.1: keys do not change inside a record.
    let engines = Engines::new(&make, &server_config(), &client_config());
    if !engines.differs(Difference::IgnoresAfterKeyUpdate) {
        refused(&make, &[UNEXPECTED_MESSAGE], |raw_peer| {
            raw_peer.seal(kind::HANDSHAKE, &[24, 0, 0, 1, 0, 24, 0, 0, 1, 0], 0)
        });
        refused(&make, &[UNEXPECTED_MESSAGE], |raw_peer| raw_peer.seal(kind::HANDSHAKE, &[24, 0, 0, 1, 0, 24], 0));
    }
    refused(&make, &[BAD_RECORD_MAC], |raw_peer| {
        let mut wire = raw_peer.seal(kind::HANDSHAKE, &[24, 0, 0, 1, 0], 0);
        wire.extend(raw_peer.seal(kind::DATA, b"sealed with the old keys", 0));
        wire
    });
}

/// A handshake message may be split over records, but no data may come between its parts.
pub fn split_handshake_messages<E: Engine>(make: impl Make<E>) {
    both_roles(&make, |end, raw_peer| {
        for cuts in [&[1][..], &[2], &[4], &[1, 2, 3, 4]] {
            let message = [24, 0, 0, 1, 0];
            let (mut start, mut said) = (0, Vec::new());
            for &cut in cuts.iter().chain(&[message.len()]) {
                let wire = raw_peer.seal(kind::HANDSHAKE, &message[start..cut], 0);
                end.deliver(&wire).unwrap();
                start = cut;
                if start < message.len() {
                    // An engine may hold this data back, but only while the peer's message is incomplete.
                    end.send(&[b"meanwhile"]).unwrap();
                }
                said.extend(raw_peer.open(&end.take_outbox()).into_iter().flat_map(|(_, content)| content));
            }
            assert_eq!(said, b"meanwhile".repeat(cuts.len()));
            raw_peer.tx.update();
            assert_works(end, raw_peer);
        }
    });
    refused(&make, &[], |raw_peer| {
        let mut wire = raw_peer.seal(kind::HANDSHAKE, &[24, 0, 0], 0);
        wire.extend(raw_peer.seal(kind::DATA, b"data", 0));
        wire
    });
    // A record without effect between the parts should be rejected, but may be ignored.
    for (between, content) in [(kind::ALERT, &[1, 90][..]), (kind::DATA, &[])] {
        both_roles(&make, |end, raw_peer| {
            let mut wire = raw_peer.seal(kind::HANDSHAKE, &[24, 0, 0], 0);
            wire.extend(raw_peer.seal(between, content, 0));
            let result = end.deliver(&wire);
            assert!(matches!(result, Ok(()) | Err(Error::Peer(_))), "{result:?}");
            assert!(end.received.is_empty() && !end.closed);
        });
    }
    // A message whose header announces 16 MiB, in records of 16,000 bytes.
    both_roles(&make, |end, raw_peer| {
        let mut result = end.deliver(&raw_peer.seal(kind::HANDSHAKE, &[4, 0xff, 0xff, 0xff], 0));
        for _ in 0..8 {
            if result.is_err() {
                break;
            }
            result = end.deliver(&raw_peer.seal(kind::HANDSHAKE, &[1; 16_000], 0));
        }
        assert!(matches!(result, Err(Error::Peer(_))), "{result:?}");
    });
}

/// Handshake messages that do not belong after the handshake are rejected.
pub fn unexpected_handshake_messages<E: Engine>(make: impl Make<E>) {
    for message_type in [0, 1, 2, 5, 8, 11, 13, 15, 20, 77, 254] {
        refused(&make, &[], |raw_peer| raw_peer.seal(kind::HANDSHAKE, &[message_type, 0, 0, 2, 0, 0], 0));
    }
    let engines = Engines::new(&make, &server_config(), &client_config());
    let mut server = End::new(engines.server.accept().unwrap());
    let mut raw_peer = RawPeer::client(&mut server, &String::from_utf8(trusted()).unwrap(), None);
    let wire = raw_peer.seal(kind::HANDSHAKE, &ticket(1), 0);
    assert!(matches!(server.deliver(&wire), Err(Error::Peer(_))), "a ticket for a server");
}

/// A NewSessionTicket (RFC 8446, section 4.6.1).
fn ticket(number: u8) -> Vec<u8> {
    let body = [&[0, 0, 14, 16, 1, 2, 3, 4, 1, number, 0, 32][..], &[number; 32], &[0, 0]].concat();
    [&[4, 0, 0, u8::try_from(body.len()).unwrap()][..], &body].concat()
}

/// A client accepts several tickets in a record and a ticket over several records.
///
/// A flood of tickets is an error, and so is a malformed one.
pub fn ticket_floods<E: Engine>(make: impl Make<E>) {
    let engines = Engines::new(&make, &server_config(), &client_config());
    let connected = || {
        let mut client = End::new(engines.client.connect("localhost").unwrap());
        let raw_peer = RawPeer::server(&mut client, &LOCALHOST, None);
        (client, raw_peer)
    };
    let (mut client, mut raw_peer) = connected();
    let wire = raw_peer.seal(kind::HANDSHAKE, &[ticket(1), ticket(2), ticket(3)].concat(), 7);
    client.deliver(&wire).unwrap();
    for piece in ticket(4).chunks(20) {
        let wire = raw_peer.seal(kind::HANDSHAKE, piece, 0);
        client.deliver(&wire).unwrap();
    }
    assert_works(&mut client, &mut raw_peer);
    let flood = (0..1000).find_map(|_| client.deliver(&raw_peer.seal(kind::HANDSHAKE, &ticket(9), 0)).err());
    assert!(matches!(flood, Some(Error::Peer(_))), "{flood:?}");
    let whole = ticket(5);
    for bad in [&[4, 0, 0, 0][..], &[4, 0, 0, 3, 1, 2, 3], &[&[4, 0, 0, 20], &whole[4..24]].concat()] {
        let (mut client, mut raw_peer) = connected();
        let wire = raw_peer.seal(kind::HANDSHAKE, bad, 0);
        assert!(matches!(client.deliver(&wire), Err(Error::Peer(_))), "{bad:?}");
    }
}

/// A fatal alert ends the session with the alert's name; a user_canceled does not, but a flood of them is an error.
///
/// A close_notify of either level closes the session. Malformed alerts and alerts of an unknown level are errors.
pub fn alerts<E: Engine>(make: impl Make<E>) {
    for alert in [Alert::HANDSHAKE_FAILURE, Alert::UNKNOWN_CA, Alert::INTERNAL_ERROR, Alert::BAD_RECORD_MAC] {
        both_roles(&make, |end, raw_peer| {
            let wire = raw_peer.seal(kind::ALERT, &[2, alert.0], 0);
            assert_eq!(end.deliver(&wire), Err(Error::Alert(alert)));
            assert!(end.outbox.is_empty(), "alerts are not answered");
        });
    }
    both_roles(&make, |end, raw_peer| {
        let wire = raw_peer.seal(kind::ALERT, &[1, 90], 0);
        end.deliver(&wire).unwrap();
        assert_works(end, raw_peer);
    });
    for level in [1, 2] {
        both_roles(&make, |end, raw_peer| {
            let wire = raw_peer.seal(kind::ALERT, &[level, 0], 0);
            end.deliver(&wire).unwrap();
            assert!(end.closed);
        });
    }
    both_roles(&make, |end, raw_peer| {
        let flood = (0..1000).find_map(|_| end.deliver(&raw_peer.seal(kind::ALERT, &[1, 90], 0)).err());
        assert!(matches!(flood, Some(Error::Peer(_))), "{flood:?}");
    });
    for malformed in [&[1][..], &[1, 0, 0], &[2, 40, 2, 40]] {
        refused(&make, &[DECODE_ERROR, UNEXPECTED_MESSAGE], |raw_peer| raw_peer.seal(kind::ALERT, malformed, 0));
    }
    for unknown_level in [0, 3, 255] {
        both_roles(&make, |end, raw_peer| {
            let wire = raw_peer.seal(kind::ALERT, &[unknown_level, 40], 0);
            let error = end.deliver(&wire).expect_err("an alert of unknown level is fatal");
            assert!(matches!(error, Error::Peer(_) | Error::Alert(_)), "{error:?}");
        });
    }
}

/// Unprotected records are rejected after the handshake.
pub fn unprotected_records<E: Engine>(make: impl Make<E>) {
    let cases = [&[20, 3, 3, 0, 1, 1][..], &[22, 3, 3, 0, 4, 4, 0, 0, 0], &[23, 3, 3, 0, 3, 1, 2, 3]];
    for wire in cases {
        refused(&make, &[UNEXPECTED_MESSAGE, BAD_RECORD_MAC, DECODE_ERROR], |_| wire.to_vec());
    }
    both_roles(&make, |end, raw_peer| {
        assert_works(end, raw_peer);
        let error = end.deliver(&[21, 3, 3, 0, 2, 1, 0]).expect_err("close_notify must be protected");
        assert!(matches!(error, Error::Peer(_) | Error::Alert(_)), "{error:?}");
        assert!(!end.closed);
    });
}
