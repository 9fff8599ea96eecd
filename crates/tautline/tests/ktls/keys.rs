//! Key updates of the peer, on kernels that can replace keys and on others.

use crate::common::{App, logs};
use crate::peer::Peer;
use crate::{HALVES, has_ktls, rekeys, serve};
use tautline::{Cause, KernelTls};
use tautline_testkit::raw_peer::kind;

/// Sends a KeyUpdate, which requests one of ours if `requested`.
fn key_update(peer: &mut Peer, requested: bool) {
    peer.send(kind::HANDSHAKE, &[24, 0, 0, 1, u8::from(requested)]);
    peer.raw_peer.tx.update();
}

#[test]
fn a_peer_changes_its_keys() {
    let epoll = HALVES.into_iter().flat_map(|half| [("epoll", half, false), ("epoll", half, true)]);
    for (io, halves, requested) in epoll.chain([("select", KernelTls::Both, true)]) {
        if !has_ktls() {
            return;
        }
        let server = serve(io, halves, App::default());
        let mut peer = Peer::new(&server);
        peer.echoes(b"under the first keys");
        // A key that the kernel holds changes: the one for receiving, or the one for sending if that is requested.
        let concerned = halves != KernelTls::Transmit || requested;
        if rekeys() || !concerned {
            for round in 0..3 {
                key_update(&mut peer, requested);
                peer.echoes(format!("under other keys: {round}").as_bytes());
            }
            peer.close();
        } else {
            key_update(&mut peer, requested);
            assert_eq!(peer.alert(), [2, 80], "{halves} {requested}");
            let (conn, _) = server.events.open(0);
            let cause = server.events.close(conn).cause;
            assert!(matches!(&cause, Cause::Tls(error) if error.to_string().contains("6.14")), "{cause}");
            logs::expect(&["Linux does from 6.14 on", "leave receiving out of the kernel"]);
            drop(peer);
        }
        server.survives();
    }
}

#[test]
fn rejects_a_flood_of_records_without_data() {
    if has_ktls() {
        let server = serve("epoll", KernelTls::Both, App::default());
        let mut peer = Peer::new(&server);
        for _ in 0..4 {
            peer.send(kind::ALERT, &[1, 90]);
        }
        peer.echoes(b"user_canceled is a warning");
        peer.send(kind::ALERT, &[1, 90]);
        assert_eq!(peer.alert(), [2, 10]);
        let (conn, _) = server.events.open(0);
        let cause = server.events.close(conn).cause;
        assert!(cause.to_string().contains("keeps canceling"), "{cause}");
        drop(peer);
        server.survives();
    }
}
