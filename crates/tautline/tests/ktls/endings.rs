//! Ends of connections whose records the kernel opens.

use crate::common::{App, eventually, frame, payload};
use crate::peer::Peer;
use crate::{HALVES, has_ktls, serve};
use std::io::Write;
use std::net::Shutdown;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tautline::{Cause, KernelTls, Reply};
use tautline_testkit::raw_peer::kind;

const DRIVERS: [&str; 2] = ["epoll", "select"];

/// The causes of the ends that `act` brings about, for each choice of directions.
fn endings(halves: &[KernelTls], act: impl Fn(&mut Peer)) -> Vec<Cause> {
    let mut causes = Vec::new();
    let select = [("select", KernelTls::Both)];
    for (io, halves) in halves.iter().map(|&halves| ("epoll", halves)).chain(select) {
        let server = serve(io, halves, App::default());
        let mut peer = Peer::new(&server);
        peer.echoes(b"well");
        act(&mut peer);
        let (conn, _) = server.events.open(0);
        causes.push(server.events.close(conn).cause);
        drop(peer);
        server.survives();
    }
    causes
}

#[test]
fn close_notify_is_a_clean_end() {
    if has_ktls() {
        let causes = endings(&HALVES, |peer| {
            peer.send(kind::ALERT, &[1, 0]);
            assert_eq!(peer.alert(), [1, 0]);
        });
        assert!(causes.iter().all(|cause| matches!(cause, Cause::Finished)), "{causes:?}");
    }
}

#[test]
fn an_end_without_close_notify_is_a_truncation() {
    if has_ktls() {
        let causes = endings(&HALVES, |peer| peer.stream.shutdown(Shutdown::Write).unwrap());
        assert!(causes.iter().all(|cause| matches!(cause, Cause::Truncated)), "{causes:?}");
    }
}

#[test]
fn rejects_changed_records() {
    if has_ktls() {
        let causes = endings(&HALVES, |peer| {
            let mut record = peer.raw_peer.seal(kind::DATA, &frame::masked(frame::TEXT, b"changed"), 0);
            *record.last_mut().unwrap() ^= 1;
            peer.stream.write_all(&record).unwrap();
            assert_eq!(peer.alert(), [2, 20]);
        });
        assert!(causes.iter().all(|cause| cause.to_string().contains("does not authenticate")), "{causes:?}");
    }
}

#[test]
fn rejects_bytes_that_are_no_record() {
    if has_ktls() {
        let causes = endings(&HALVES, |peer| {
            peer.stream.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
            let alert = peer.alert();
            assert!(matches!(alert[..], [2, 10 | 20 | 22]), "{alert:?}");
        });
        assert!(causes.iter().all(|cause| matches!(cause, Cause::Tls(_))), "{causes:?}");
    }
}

#[test]
fn reports_fatal_alerts() {
    if has_ktls() {
        let causes = endings(&HALVES, |peer| peer.send(kind::ALERT, &[2, 40]));
        assert!(causes.iter().all(|cause| cause.to_string().contains("handshake_failure")), "{causes:?}");
    }
}

#[test]
fn rejects_unexpected_handshake_messages() {
    if has_ktls() {
        let causes = endings(&HALVES, |peer| {
            // A NewSessionTicket, which clients do not send.
            peer.send(kind::HANDSHAKE, &[4, 0, 0, 1, 0]);
            assert_eq!(peer.alert(), [2, 10]);
        });
        assert!(causes.iter().all(|cause| cause.to_string().contains("no place here")), "{causes:?}");
    }
}

/// The kernel's TLS accepts more bytes than its TCP has room for. Bytes that it holds when our direction ends would be lost.
#[test]
fn the_last_bytes_reach_a_slow_reader() {
    for (io, len) in DRIVERS.into_iter().flat_map(|io| [150_000, 1 << 20].map(|len| (io, len))) {
        if !has_ktls() {
            return;
        }
        let body = Arc::new(payload(len));
        let content = Arc::clone(&body);
        let app = App::default().on_request(move |_| Reply::Respond(http::Response::new(content.to_vec())));
        let server = serve(io, KernelTls::Both, app);
        let mut peers: Vec<Peer> = (0..8).map(|_| Peer::secured(&server, None)).collect();
        for peer in &mut peers {
            peer.send(kind::DATA, b"GET /body HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
        }
        std::thread::sleep(Duration::from_millis(100));
        for mut peer in peers {
            assert!(peer.head().contains("200 OK"));
            let (data, alert) = peer.rest();
            assert!(data == *body, "{io}: {} of {len}", data.len());
            assert_eq!(alert, [1, 0]);
        }
        server.forgets();
        server.stop();
    }
}

/// The kernel reports a socket as readable, but returns no bytes until the record is whole.
#[test]
fn half_a_record_does_not_spin_the_loop() {
    for io in DRIVERS {
        if !has_ktls() {
            return;
        }
        let server = serve(io, KernelTls::Both, App::default());
        let mut peer = Peer::new(&server);
        let record = peer.raw_peer.seal(kind::DATA, &frame::masked(frame::TEXT, b"late"), 0);
        let (front, rest) = record.split_at(record.len() / 2);
        peer.stream.write_all(front).unwrap();
        std::thread::sleep(Duration::from_millis(100));
        let (before, began) = (cpu_time(), Instant::now());
        std::thread::sleep(Duration::from_secs(1));
        let (busy, time) = (cpu_time() - before, began.elapsed());
        assert!(busy < time / 4, "{io}: {busy:?} of {time:?}");
        peer.stream.write_all(rest).unwrap();
        assert_eq!(peer.frame().payload, b"late");
        // The next record may be shorter than the previous one, and may arrive byte by byte.
        peer.echoes(b"");
        for byte in peer.raw_peer.seal(kind::DATA, &frame::masked(frame::TEXT, b"slowly"), 0) {
            peer.stream.write_all(&[byte]).unwrap();
            std::thread::sleep(Duration::from_millis(2));
        }
        assert_eq!(peer.frame().payload, b"slowly");
        // FIN within a record is a truncation.
        let half = peer.raw_peer.seal(kind::DATA, &frame::masked(frame::TEXT, b"never"), 0);
        peer.stream.write_all(&half[..half.len() / 2]).unwrap();
        peer.stream.shutdown(Shutdown::Write).unwrap();
        let (conn, _) = server.events.open(0);
        let cause = server.events.close(conn).cause;
        assert!(matches!(cause, Cause::Truncated), "{io}: {cause:?}");
        eventually("no connection left", || server.counters().connections == 0);
        server.stop();
    }
}

fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap(), u32::try_from(time.tv_nsec).unwrap())
}
