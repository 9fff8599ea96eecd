mod parallel;

use super::{MAX_PLAIN, Records, Tickets};
use crate::aead::AeadChoice;
use crate::{CompactTlsInfo, Keys, Role, Secret, Suite};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tautline_buf::Buf;
use tautline_tls::alert::Alert;
use tautline_tls::{Content, Error, TlsInfo};

/// Both ends of a connection, server first.
fn connected() -> [Records; 2] {
    [end(Role::Server, None), end(Role::Client, None)]
}

fn end(role: Role, tickets: Option<Box<dyn Tickets>>) -> Records {
    let keys = |secret| Keys::derive(Suite::Aes128Gcm, Secret::new(&[secret; 32]).unwrap(), 0).unwrap();
    let (rx, tx) = if role == Role::Server { (keys(1), keys(2)) } else { (keys(2), keys(1)) };
    Records::new(role, Suite::Aes128Gcm, (rx, tx), CompactTlsInfo::new(Suite::Aes128Gcm, TlsInfo::default()), tickets)
}

/// Opens a stream of records; returns its data, the number of records without data, and whether it ends with a close.
fn open_all(records: &mut Records, wire: &mut [u8]) -> Result<(Vec<u8>, usize, bool), Error> {
    let (mut data, mut control, mut start) = (Vec::new(), 0, 0);
    loop {
        let rest = &mut wire[start..];
        let opened = records.open(rest, &mut Buf::new())?;
        start += opened.used;
        match opened.content {
            Content::Data(plain) => data.extend_from_slice(&rest[plain.range]),
            Content::Control => control += 1,
            Content::Closed => return Ok((data, control, true)),
            Content::Partial => return Ok((data, control, false)),
        }
    }
}

#[test]
fn sealing_changes_keys_at_the_limit() {
    let [mut server, mut client] = connected();
    let mut out = Buf::new();
    for message in 0..20_u8 {
        server.seal_with_limit(&[&[message; 100]], &mut out, 7).unwrap();
    }
    let wire = out.filled_mut();
    let (data, control, _) = open_all(&mut client, wire).unwrap();
    assert_eq!(data, (0..20).flat_map(|message| [message; 100]).collect::<Vec<u8>>());
    // Two keys protected seven messages and a key update each; the third protected six messages.
    assert_eq!((control, server.tx.sequence()), (2, 6));
    assert_eq!(client.rx.sequence(), 6);
}

/// The choice is the process's, so other tests see it too. They pass with every provider.
#[test]
fn the_provider_may_change_at_any_record() {
    let [mut server, mut client] = connected();
    for round in 0..40_usize {
        AeadChoice::ALL[round % AeadChoice::ALL.len()].set();
        let message = vec![7; [5, 300, 5_000, 40_000][round % 4]];
        let mut out = Buf::new();
        server.seal(&[&message], &mut out).unwrap();
        if round % 5 == 0 {
            server.update_keys_now(true, &mut out).unwrap();
        }
        if round % 7 == 0 {
            server = Records::import(&server.snapshot()).unwrap();
            client = Records::import(&client.snapshot()).unwrap();
        }
        AeadChoice::ALL[(round / 2) % AeadChoice::ALL.len()].set();
        assert!(open_all(&mut client, out.filled_mut()).unwrap().0 == message, "round {round}");
        let mut out = Buf::new();
        client.seal(&[&message], &mut out).unwrap();
        assert!(open_all(&mut server, out.filled_mut()).unwrap().0 == message, "round {round}");
        let named = client.info().expand().aead;
        assert!(["aws-lc", "ring", "aws-lc, ring"].contains(&named), "{named}");
    }
    AeadChoice::default().set();
}

#[test]
fn the_first_record_is_the_short_one() {
    let [mut server, mut client] = connected();
    for (header, payload, expected) in [
        (10, 100, vec![110]),
        (4, 20_000, vec![20_004 - MAX_PLAIN, MAX_PLAIN]),
        (10, 65_536, vec![10, MAX_PLAIN, MAX_PLAIN, MAX_PLAIN, MAX_PLAIN]),
        (0, 2 * MAX_PLAIN, vec![MAX_PLAIN, MAX_PLAIN]),
    ] {
        let (header, payload) = (vec![1; header], vec![2; payload]);
        let mut out = Buf::new();
        server.seal(&[&header, &[], &payload], &mut out).unwrap();
        let (mut wire, mut lens) = (out.filled(), Vec::new());
        while let [_, _, _, high, low, ..] = *wire {
            let len = usize::from(u16::from_be_bytes([high, low]));
            lens.push(len - 17);
            wire = &wire[5 + len..];
        }
        assert_eq!(lens, expected);
        let (data, ..) = open_all(&mut client, out.filled_mut()).unwrap();
        assert!(data == [header, payload].concat());
    }
}

#[test]
fn a_key_update_that_is_due_precedes_the_close() {
    let [mut server, mut client] = connected();
    let mut out = Buf::new();
    client.seal_record(super::HANDSHAKE, &[super::KEY_UPDATE, 0, 0, 1, 1], &mut out).unwrap();
    let (_, control, closed) = open_all(&mut server, out.filled_mut()).unwrap();
    assert_eq!((control, closed), (1, false));
    let mut out = Buf::new();
    server.close(&mut out).unwrap();
    assert_eq!(open_all(&mut client, out.filled_mut()).unwrap(), (Vec::new(), 1, true));
}

/// The peer should keep the limit itself, but many libraries leave that to their users.
#[test]
fn requests_one_key_update_when_the_peers_key_reaches_the_limit() {
    let [mut server, mut client] = connected();
    for keys in [&mut server.rx, &mut client.tx] {
        keys.count(usize::try_from(super::REKEY_AFTER).unwrap() - 1);
    }
    let mut out = Buf::new();
    client.seal_record(super::DATA, b"the last one", &mut out).unwrap();
    client.seal_record(super::DATA, b"and more", &mut out).unwrap();
    assert_eq!(open_all(&mut server, out.filled_mut()).unwrap().0, b"the last oneand more");
    // An export keeps the request.
    let mut server = Records::import(&server.snapshot()).unwrap();
    let mut out = Buf::new();
    server.seal(&[b"answer"], &mut out).unwrap();
    server.seal(&[b"answer"], &mut out).unwrap();
    assert_eq!(open_all(&mut client, out.filled_mut()).unwrap(), (b"answeranswer".to_vec(), 1, false));
    assert!(client.owes_update && !client.asks_update);
    let mut out = Buf::new();
    client.seal(&[b"under new keys"], &mut out).unwrap();
    assert_eq!(open_all(&mut server, out.filled_mut()).unwrap(), (b"under new keys".to_vec(), 1, false));
    assert_eq!(server.rx.sequence(), 1);
}

#[test]
fn update_keys_now_works_until_the_close() {
    let [mut server, mut client] = connected();
    let mut out = Buf::new();
    server.update_keys_now(true, &mut out).unwrap();
    server.update_keys_now(false, &mut out).unwrap();
    assert_eq!(open_all(&mut client, out.filled_mut()).unwrap(), (Vec::new(), 2, false));
    assert!(client.owes_update);
    server.close(&mut out).unwrap();
    assert!(matches!(server.update_keys_now(false, &mut out), Err(Error::ApiMisuse(_))));
}

#[test]
fn a_record_that_does_not_authenticate_leaves_no_plaintext() {
    let [mut server, mut client] = connected();
    let mut out = Buf::new();
    server.seal(&[b"a secret of the server's"], &mut out).unwrap();
    let wire = out.filled_mut();
    let last = wire.len() - 1;
    wire[last] ^= 1;
    assert!(open_all(&mut client, wire).is_err());
    assert!(!wire.windows(6).any(|window| b"a secret of the server's".windows(6).any(|secret| secret == window)));
}

#[test]
fn no_alert_follows_our_close_notify() {
    let [mut server, _] = connected();
    let mut out = Buf::new();
    server.close(&mut out).unwrap();
    out.clear();
    let mut garbage = [23, 3, 3, 0, 20, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20];
    assert!(matches!(server.open(&mut garbage, &mut out), Err(Error::Peer(_))));
    assert!(out.is_empty());
}

/// Counts the bytes of tickets, and rejects an empty one.
struct Counted(Arc<AtomicUsize>);

impl Tickets for Counted {
    fn take(&mut self, body: &[u8]) -> Result<(), (Alert, Error)> {
        if body.is_empty() {
            return Err((Alert::DECODE_ERROR, Error::Peer("an empty ticket".to_owned())));
        }
        self.0.fetch_add(body.len(), Ordering::Relaxed);
        Ok(())
    }
}

#[test]
fn a_client_drops_its_ticket_receiver_after_enough_tickets_or_records() {
    const TICKET: [u8; 7] = [super::NEW_SESSION_TICKET, 0, 0, 3, 1, 2, 3];
    for tickets in [1, 3] {
        let taken = Arc::new(AtomicUsize::new(0));
        let mut server = end(Role::Server, None);
        let mut client = end(Role::Client, Some(Box::new(Counted(Arc::clone(&taken)))));
        let mut out = Buf::new();
        server.seal_record(super::HANDSHAKE, &TICKET.repeat(tickets), &mut out).unwrap();
        assert_eq!(open_all(&mut client, out.filled_mut()).unwrap(), (Vec::new(), 1, false));
        assert_eq!(taken.load(Ordering::Relaxed), 3 * tickets.min(2));
        while client.rx.sequence() < super::TICKETS_WITHIN {
            assert_eq!(client.cold.is_none(), tickets == 3);
            let mut out = Buf::new();
            server.seal(&[b"data"], &mut out).unwrap();
            assert_eq!(open_all(&mut client, out.filled_mut()).unwrap(), (b"data".to_vec(), 0, false));
        }
        assert!(client.cold.is_none());
    }
}

#[test]
fn a_rejected_ticket_ends_the_connection_with_its_alert() {
    let mut server = end(Role::Server, None);
    let mut client = end(Role::Client, Some(Box::new(Counted(Arc::default()))));
    let (mut out, mut alert) = (Buf::new(), Buf::new());
    server.seal_record(super::HANDSHAKE, &[super::NEW_SESSION_TICKET, 0, 0, 0], &mut out).unwrap();
    assert!(matches!(client.open(out.filled_mut(), &mut alert), Err(Error::Peer(_))));
    let told = server.open(alert.filled_mut(), &mut Buf::new()).err();
    assert_eq!(told, Some(Error::Alert(Alert::DECODE_ERROR)));
}

/// A KeyUpdate split over two records, at every byte.
#[test]
fn joins_a_key_update_split_over_two_records() {
    let [mut server, mut client] = connected();
    for cut in 1..5 {
        let message = [super::KEY_UPDATE, 0, 0, 1, 0];
        let mut out = Buf::new();
        client.seal_record(super::HANDSHAKE, &message[..cut], &mut out).unwrap();
        assert_eq!(open_all(&mut server, out.filled_mut()).unwrap(), (Vec::new(), 1, false));
        assert!(!server.is_between_messages());
        let mut out = Buf::new();
        client.seal_record(super::HANDSHAKE, &message[cut..], &mut out).unwrap();
        client.tx.update(client.suite).unwrap();
        client.seal(&[b"under new keys"], &mut out).unwrap();
        assert_eq!(open_all(&mut server, out.filled_mut()).unwrap(), (b"under new keys".to_vec(), 1, false));
        assert!(server.cold.is_none());
    }
}
