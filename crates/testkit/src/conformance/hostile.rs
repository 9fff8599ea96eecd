//! Wire bytes that a peer should not send, or that were changed on the way.

use super::differences::Difference;
use super::{Engines, Make, client_config, greet, server_config};
use crate::Random;
use crate::pair::{Pair, Side, Split};
use crate::{Fault, record_ranges};
use tautline_tls::alert::Alert;
use tautline_tls::{Engine, Error, Session, Versions};

/// A flipped bit never changes the received data.
///
/// The session reports an error and sends an alert, waits for more bytes, or ignores a bit in the record's version.
pub fn flipped_bits<E: Engine>(make: impl Make<E>) {
    let data = b"forty bytes that nobody may ever change!";
    for versions in [Versions::Tls13, Versions::Tls12] {
        let engines = Engines::with_versions(&make, versions);
        for at in 0.. {
            let mut pair = engines.open("localhost");
            greet(&mut pair);
            pair.server.received.clear();
            pair.client.send(&[data]).unwrap();
            let mut wire = pair.client.take_outbox();
            if at == wire.len() {
                break;
            }
            Fault::Flip { at, bit: u8::try_from(at % 8).unwrap() }.apply(&mut wire);
            match pair.server.deliver(&wire) {
                Err(error) => {
                    assert!(matches!(error, Error::Peer(_)), "{at}: {error:?}");
                    let heard = pair.deliver_alert(Side::Server);
                    // Errors in the header have alerts of their own.
                    let bad_mac = heard == Some(Error::Alert(Alert::BAD_RECORD_MAC));
                    let may_differ = at < 5 && matches!(heard, Some(Error::Alert(_)));
                    let is_silent = heard.is_none() && engines.differs(Difference::EndsWithoutAlert);
                    assert!(bad_mac || may_differ || is_silent, "{at}: {heard:?}");
                    let again = pair.server.deliver(&wire);
                    assert!(matches!(again, Err(Error::ApiMisuse(_))), "a dead session stays dead: {again:?}");
                }
                Ok(()) => {
                    // RFC 8446, section 5.1: receivers ignore the version in the header.
                    assert!(at < 5, "a change at {at} goes unnoticed");
                    assert!(pair.server.received.is_empty() || pair.server.received == data, "{at}");
                }
            }
        }
    }
}

/// A handshake with a flipped bit does not complete on both sides, unless TLS does not authenticate the bit.
pub fn flipped_bits_in_handshakes<E: Engine>(make: impl Make<E>) {
    let mut random = Random::new(3);
    for versions in [Versions::Tls13, Versions::Tls12] {
        let engines = Engines::with_versions(&make, versions);
        for _ in 0..60 {
            let mut pair = engines.pair("localhost");
            pair.client.work().unwrap();
            let target = random.below(3);
            if exchange_with_one_flip(&mut pair, target, &mut random).is_some_and(|in_header| !in_header) {
                assert!(!(pair.client.open && pair.server.open), "a change in flight {target} goes unnoticed");
            }
        }
    }
}

/// Exchanges flights, and flips one bit of flight `target`.
///
/// Returns whether [`is_in_header`] applies to that bit, or `None` if there was no such flight.
fn exchange_with_one_flip<A: Session, B: Session>(
    pair: &mut Pair<A, B>,
    target: usize,
    random: &mut Random,
) -> Option<bool> {
    let mut in_header = None;
    for flight in 0..6 {
        let from_client = flight % 2 == 0;
        let mut wire = if from_client { pair.client.take_outbox() } else { pair.server.take_outbox() };
        if flight == target && !wire.is_empty() {
            let at = random.below(wire.len());
            wire[at] ^= 1 << random.below(8);
            in_header = Some(is_in_header(&wire, at));
        }
        let result = if from_client { pair.server.deliver(&wire) } else { pair.client.deliver(&wire) };
        if result.is_err() {
            break;
        }
    }
    in_header
}

/// Whether the byte at `at` is in a record's header or in a change_cipher_spec, which is not authenticated either.
fn is_in_header(wire: &[u8], at: usize) -> bool {
    let records = record_ranges(wire);
    records
        .iter()
        .find(|record| record.contains(&at))
        .is_none_or(|record| at < record.start + 5 || wire[record.start] == 20)
}

/// Random bytes and records of random bytes never cause a panic, never complete a handshake, and never become data.
pub fn garbage<E: Engine>(make: impl Make<E>) {
    let mut random = Random::new(4);
    let engines = Engines::new(&make, &server_config(), &client_config());
    for round in 0..300 {
        let len = random.below(400);
        let mut wire = random.bytes(len);
        if round % 3 > 0 {
            let body = u16::try_from(len).unwrap().to_be_bytes();
            let kind = 20 + u8::try_from(random.below(5)).unwrap();
            wire.splice(0..0, [kind, 3, 3, body[0], body[1]]);
            if round % 3 == 2 {
                // Begins like a ClientHello or a ServerHello.
                let start = [22, 3, 1, 0, 200, 1 + u8::try_from(random.below(2)).unwrap(), 0, 0, 196, 3, 3];
                wire.splice(..wire.len().min(start.len()), start);
            }
        }
        let mut pair = engines.pair("localhost");
        pair.client.work().unwrap();
        let _ = pair.server.deliver(&wire);
        let _ = pair.client.deliver(&wire);
        assert!(!pair.server.open && !pair.client.open);
        let mut pair = engines.open("localhost");
        let _ = pair.server.deliver(&wire);
        assert!(pair.server.received.is_empty() && !pair.server.closed);
    }
}

/// The error names plain HTTP on either side, and says of other protocols that they are not TLS.
pub fn other_protocols<E: Engine>(make: impl Make<E>) {
    let engines = Engines::new(&make, &server_config(), &client_config());
    for (wire, words) in [
        ("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "plain HTTP"),
        ("CONNECT localhost:443 HTTP/1.1\r\n\r\n", "plain HTTP"),
        ("POST /chat HTTP/1.1\r\n\r\n", "plain HTTP"),
        ("SSH-2.0-OpenSSH_9.2\r\n", "not TLS"),
        ("\0\0\0\0\0\0\0\0", "not TLS"),
    ] {
        for mut split in [Split::Whole, Split::Every(1)] {
            let mut server = crate::pair::End::new(engines.server.accept().unwrap());
            let mut rest = wire.as_bytes();
            let mut result = Ok(());
            while result.is_ok() && !rest.is_empty() {
                let (piece, behind) = rest.split_at(split.next(rest.len()));
                rest = behind;
                result = server.deliver(piece);
            }
            assert!(matches!(&result, Err(Error::Peer(why)) if why.contains(words)), "{wire:?}: {result:?}");
        }
    }
    let mut client = crate::pair::End::new(engines.client.connect("localhost").unwrap());
    client.work().unwrap();
    let result = client.deliver(b"HTTP/1.1 400 Bad Request\r\n\r\n");
    assert!(matches!(&result, Err(Error::Peer(why)) if why.contains("plain HTTP")), "{result:?}");
}

/// A header with a length that no record may have is rejected at once, before the rest arrives.
pub fn impossible_lengths<E: Engine>(make: impl Make<E>) {
    for versions in [Versions::Tls13, Versions::Tls12] {
        let engines = Engines::with_versions(&make, versions);
        for header in [[23, 3, 3, 0xff, 0xff], [23, 3, 3, 0x48, 1], [21, 3, 3, 0, 0], [22, 3, 3, 0x80, 0]] {
            let mut pair = engines.open("localhost");
            assert!(matches!(pair.server.deliver(&header), Err(Error::Peer(_))), "{header:?}");
            let heard = pair.deliver_alert(Side::Server);
            let is_silent = heard.is_none() && engines.differs(Difference::EndsWithoutAlert);
            assert!(is_silent || matches!(heard, Some(Error::Alert(_))), "{header:?}: {heard:?}");
            let mut pair = engines.pair("localhost");
            pair.client.work().unwrap();
            assert!(matches!(pair.client.deliver(&header), Err(Error::Peer(_))), "{header:?}");
        }
    }
}

/// Records that are repeated, left out or swapped do not authenticate.
pub fn repeated_and_dropped_records<E: Engine>(make: impl Make<E>) {
    for versions in [Versions::Tls13, Versions::Tls12] {
        let engines = Engines::with_versions(&make, versions);
        for fault in
            [Fault::Repeat(0), Fault::Repeat(2), Fault::Drop(0), Fault::Drop(1), Fault::Swap(0), Fault::Swap(1)]
        {
            let mut pair = engines.open("localhost");
            greet(&mut pair);
            for data in [b"first ", b"second", b"third "] {
                pair.client.send(&[data]).unwrap();
            }
            let mut wire = pair.client.take_outbox();
            fault.apply(&mut wire);
            let error = pair.server.deliver(&wire).expect_err("a record is out of order");
            assert!(matches!(error, Error::Peer(_)), "{error:?}");
            let heard = pair.deliver_alert(Side::Server);
            let is_silent = heard.is_none() && engines.differs(Difference::EndsWithoutAlert);
            assert!(is_silent || heard == Some(Error::Alert(Alert::BAD_RECORD_MAC)), "{heard:?}");
        }
    }
}

/// A ClientHello that arrives in records of one byte and never ends is rejected early.
pub fn endless_hellos<E: Engine>(make: impl Make<E>) {
    let engines = Engines::new(&make, &server_config(), &client_config());
    let mut server = crate::pair::End::new(engines.server.accept().unwrap());
    let start = std::time::Instant::now();
    let header = [1, 0, 0xff, 0xf0];
    // At most 180 kB on the wire, a sixth of which is the message.
    let refused = (0..30_000).find_map(|at| {
        let byte = header.get(at).copied().unwrap_or(3);
        server.deliver(&[22, 3, 1, 0, 1, byte]).err()
    });
    assert!(matches!(refused, Some(Error::Peer(_))), "{refused:?}");
    assert!(start.elapsed().as_secs() < 20, "{:?}", start.elapsed());
}
