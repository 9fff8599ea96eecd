//! How connections end.

use crate::common::{App, eventually, frame, payload};
use crate::peer::Peer;
use crate::{HALVES, has_ktls, serve};
use std::io::Write;
use std::net::Shutdown;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tautline::{Cause, Io, KernelTls, Reply};
use tautline_testkit::wild::kind;

const DRIVERS: [Io; 2] = [Io::Epoll, Io::Select];

/// What `act` of a peer ends a server's connection with, for each of the halves.
fn endings(halves: &[KernelTls], act: impl Fn(&mut Peer)) -> Vec<Cause> {
    let mut causes = Vec::new();
    let select = [(Io::Select, KernelTls::Both)];
    for (io, halves) in halves.iter().map(|&halves| (Io::Epoll, halves)).chain(select) {
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
fn close_notify_is_an_end() {
    if has_ktls() {
        let causes = endings(&HALVES, |peer| {
            peer.send(kind::ALERT, &[1, 0]);
            assert_eq!(peer.alert(), [1, 0]);
        });
        assert!(causes.iter().all(|cause| matches!(cause, Cause::Finished)), "{causes:?}");
    }
}

#[test]
fn an_end_without_close_notify_is_none() {
    if has_ktls() {
        let causes = endings(&HALVES, |peer| peer.stream.shutdown(Shutdown::Write).unwrap());
        assert!(causes.iter().all(|cause| matches!(cause, Cause::Truncated)), "{causes:?}");
    }
}

#[test]
fn changed_records_are_refused() {
    if has_ktls() {
        let causes = endings(&HALVES, |peer| {
            let mut record = peer.wild.seal(kind::DATA, &frame::masked(frame::TEXT, b"changed"), 0);
            *record.last_mut().unwrap() ^= 1;
            peer.stream.write_all(&record).unwrap();
            assert_eq!(peer.alert(), [2, 20]);
        });
        assert!(causes.iter().all(|cause| cause.to_string().contains("does not authenticate")), "{causes:?}");
    }
}

#[test]
fn what_is_no_record_is_refused() {
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
fn fatal_alerts_are_told() {
    if has_ktls() {
        let causes = endings(&HALVES, |peer| peer.send(kind::ALERT, &[2, 40]));
        assert!(causes.iter().all(|cause| cause.to_string().contains("handshake_failure")), "{causes:?}");
    }
}

#[test]
fn messages_of_the_handshake_have_no_place() {
    if has_ktls() {
        let causes = endings(&HALVES, |peer| {
            // A NewSessionTicket, which clients do not send.
            peer.send(kind::HANDSHAKE, &[4, 0, 0, 1, 0]);
            assert_eq!(peer.alert(), [2, 10]);
        });
        assert!(causes.iter().all(|cause| cause.to_string().contains("no place here")), "{causes:?}");
    }
}

/// The kernel's TLS takes more than its TCP has room for, and what it still has when our direction ends is lost.
#[test]
fn the_last_words_arrive_however_slowly_they_are_read() {
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

/// The kernel says that there is something to receive, and has nothing to give before the record is whole.
#[test]
fn half_a_record_costs_nothing() {
    for io in DRIVERS {
        if !has_ktls() {
            return;
        }
        let server = serve(io, KernelTls::Both, App::default());
        let mut peer = Peer::new(&server);
        let record = peer.wild.seal(kind::DATA, &frame::masked(frame::TEXT, b"late"), 0);
        let (front, rest) = record.split_at(record.len() / 2);
        peer.stream.write_all(front).unwrap();
        std::thread::sleep(Duration::from_millis(100));
        let (before, began) = (cpu_time(), Instant::now());
        std::thread::sleep(Duration::from_secs(1));
        let (busy, time) = (cpu_time() - before, began.elapsed());
        assert!(busy < time / 4, "{io}: {busy:?} of {time:?}");
        peer.stream.write_all(rest).unwrap();
        assert_eq!(peer.frame().payload, b"late");
        // What comes next may be shorter than what was waited for, and come byte by byte.
        peer.echoes(b"");
        for byte in peer.wild.seal(kind::DATA, &frame::masked(frame::TEXT, b"slowly"), 0) {
            peer.stream.write_all(&[byte]).unwrap();
            std::thread::sleep(Duration::from_millis(2));
        }
        assert_eq!(peer.frame().payload, b"slowly");
        // Half a record is no end.
        let half = peer.wild.seal(kind::DATA, &frame::masked(frame::TEXT, b"never"), 0);
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
