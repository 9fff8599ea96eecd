//! The end of a connection.

use super::{Engines, Make, greet, transfer};
use crate::record_ranges;
use tautline_buf::Buf;
use tautline_tls::{Content, Engine, Error, Session, Versions};

/// Each direction is closed separately, with one close_notify. Bytes behind a close_notify are ignored.
pub fn close_both_ways<E: Engine>(make: impl Make<E>) {
    for versions in [Versions::Tls13, Versions::Tls12] {
        let mut pair = Engines::with_versions(&make, versions).open("localhost");
        greet(&mut pair);
        pair.client.send(&[b"last words"]).unwrap();
        pair.client.close();
        pair.client.close();
        assert!(matches!(pair.client.send(&[b"more"]), Err(Error::ApiMisuse(_))));
        let wire = pair.client.take_outbox();
        assert_eq!(record_ranges(&wire).len(), 2, "one record of data, one alert");
        pair.server.received.clear();
        pair.server.deliver(&wire).unwrap();
        assert_eq!(pair.server.received, b"last words");
        assert!(pair.server.closed);
        // RFC 8446, section 6.1: the other direction stays open.
        transfer(&mut pair.server, &mut pair.client, b"an answer to them");
        let (mut scratch, mut out) = (Buf::new(), Buf::new());
        let mut late = [23, 3, 3, 0, 9, 7];
        let opened = pair.server.session.open(&mut late, &mut scratch, &mut out).unwrap();
        assert_eq!((opened.used, opened.content), (6, Content::Closed));
        pair.server.close();
        let wire = pair.server.take_outbox();
        pair.client.deliver(&wire).unwrap();
        assert!(pair.client.closed);
        pair.server.close();
        assert!(pair.server.outbox.is_empty() && out.is_empty());
    }
}

/// A stream that is cut before the end of close_notify is not reported as closed.
pub fn truncation<E: Engine>(make: impl Make<E>) {
    for versions in [Versions::Tls13, Versions::Tls12] {
        let engines = Engines::with_versions(&make, versions);
        let mut pair = engines.open("localhost");
        greet(&mut pair);
        pair.client.send(&[&[5; 500]]).unwrap();
        pair.client.close();
        let wire = pair.client.take_outbox();
        for piece in wire[..wire.len() - 1].chunks(1) {
            pair.server.deliver(piece).unwrap();
            assert!(!pair.server.closed, "{versions:?}");
        }
        pair.server.deliver(&wire[wire.len() - 1..]).unwrap();
        assert!(pair.server.closed);
    }
}

/// Records from the peer are still verified after our close_notify.
pub fn errors_after_close<E: Engine>(make: impl Make<E>) {
    for versions in [Versions::Tls13, Versions::Tls12] {
        let engines = Engines::with_versions(&make, versions);
        for at in [0, 5, 30] {
            let mut pair = engines.open("localhost");
            greet(&mut pair);
            pair.server.close();
            transfer(&mut pair.client, &mut pair.server, b"not all is said");
            pair.client.send(&[b"but this is changed on its way"]).unwrap();
            let mut wire = pair.client.take_outbox();
            wire[at] ^= 0x80;
            assert!(matches!(pair.server.deliver(&wire), Err(Error::Peer(_))), "{versions:?}, {at}");
        }
    }
}
