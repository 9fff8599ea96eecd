//! The closing handshake (RFC 6455, section 7), from both sides.

use crate::common::frame::{self, CLOSE, TEXT, masked};
use crate::common::server::config;
use crate::common::{App, Over, both, payload, serve};
use std::time::Duration;
use tautline::{Cause, CloseCode, Deadline, Error, Incoming, Outgoing, SlowConsumer};

const SENDABLE: [u16; 16] =
    [1000, 1001, 1002, 1003, 1007, 1008, 1009, 1010, 1011, 1012, 1013, 1014, 3000, 3999, 4000, 4999];

/// An application that closes on the text `CODE REASON`.
fn closes_on_request() -> App {
    App::default().on_message(|_, conn, message| {
        let Some((code, reason)) = message.text().unwrap().split_once(' ') else {
            conn.send(Outgoing::from(&message));
            return;
        };
        conn.close(CloseCode::new(code.parse().unwrap()), reason);
        assert_eq!(conn.text("too late"), tautline::Delivery::Closed);
    })
}

#[test]
fn a_server_closes_with_every_code() {
    both(|over| {
        let server = serve(over, config(), closes_on_request());
        for (at, code) in SENDABLE.into_iter().enumerate() {
            let mut peer = server.peer();
            // The message behind it is not delivered.
            peer.send(&[masked(TEXT, format!("{code} grüße").as_bytes()), masked(TEXT, b"4000 again")].concat());
            assert_eq!(peer.close_frame(), (code, "grüße".to_owned()));
            peer.send(&frame::close(code, "dto."));
            peer.end();
            let closed = server.events.close(server.events.open(at).0);
            assert!(matches!(closed.cause, Cause::Local), "{closed:?}");
            assert_eq!((closed.code.get(), &*closed.reason), (code, "dto."));
        }
        server.survives();
    });
}

#[test]
fn a_client_closes_with_every_code() {
    both(|over| {
        let server = serve(over, config(), App::default());
        for (at, code) in SENDABLE.into_iter().enumerate() {
            let mut peer = server.peer();
            peer.send(&frame::close(code, "grüße"));
            assert_eq!(peer.close_frame(), (code, String::new()));
            peer.end();
            let closed = server.events.close(server.events.open(at).0);
            assert!(matches!(closed.cause, Cause::Peer), "{closed:?}");
            assert_eq!((closed.code.get(), &*closed.reason), (code, "grüße"));
        }
        server.survives();
    });
}

#[test]
fn a_close_without_code_is_answered_without_code() {
    both(|over| {
        let server = serve(over, config(), App::default());
        let mut peer = server.peer();
        peer.send(&masked(CLOSE, b""));
        assert_eq!(peer.close_frame(), (0, String::new()));
        peer.end();
        let closed = server.events.close(server.events.open(0).0);
        assert!(matches!(closed.cause, Cause::Peer), "{closed:?}");
        assert_eq!(closed.code, CloseCode::NO_STATUS);
        drop(peer);
        server.survives();
    });
}

#[test]
fn unsendable_codes_are_left_out() {
    let server = serve(Over::Plain, config(), closes_on_request());
    for code in [0, 999, 1004, 1005, 1006, 1015, 2999, 5000] {
        let mut peer = server.peer();
        peer.send(&masked(TEXT, format!("{code} never sent").as_bytes()));
        assert_eq!(peer.close_frame(), (0, String::new()), "{code}");
        peer.send(&masked(CLOSE, b""));
        peer.end();
    }
    server.survives();
}

#[test]
fn a_long_reason_is_cut_between_characters() {
    let server = serve(Over::Plain, config(), closes_on_request());
    let mut peer = server.peer();
    peer.send(&masked(TEXT, format!("1000 {}", "ü".repeat(100)).as_bytes()));
    assert_eq!(peer.close_frame(), (1000, "ü".repeat(61)));
    drop(peer);
    server.survives();
}

#[test]
fn both_ends_can_close_at_once() {
    both(|over| {
        let server = serve(over, config(), closes_on_request());
        let mut peer = server.peer();
        // Our close frame leaves before the server's arrives.
        peer.send(&[masked(TEXT, b"1000 mine"), frame::close(1001, "yours")].concat());
        assert_eq!(peer.close_frame(), (1000, "mine".to_owned()));
        // The server sends no second close frame, and ends its direction.
        peer.end();
        let closed = server.events.close(server.events.open(0).0);
        assert!(matches!(closed.cause, Cause::Local), "{closed:?}");
        assert_eq!((closed.code.get(), &*closed.reason), (1001, "yours"));
        drop(peer);
        server.survives();
    });
}

#[test]
fn a_peer_that_does_not_answer_the_close_is_aborted() {
    both(|over| {
        let mut config = config();
        config.deadlines.close = Duration::from_millis(150);
        let server = serve(over, config, closes_on_request());
        let mut peer = server.peer();
        peer.send(&masked(TEXT, b"1000 bye"));
        assert_eq!(peer.close_frame().0, 1000);
        // Data is no answer, even if it arrives in time.
        let data = peer.seal(&masked(TEXT, b"4000 still here"));
        let _ = peer.try_send_wire(&data);
        let closed = server.events.close(server.events.open(0).0);
        assert!(matches!(closed.cause, Cause::Timeout(Deadline::Close)), "{closed:?}");
        assert_eq!(closed.code, CloseCode::ABNORMAL);
        peer.rest().1.unwrap_or_default();
        drop(peer);
        server.forgets();
        server.stop();
    });
}

/// Messages sent before a close arrive before it, even if the peer reads slowly.
#[test]
fn a_close_waits_for_earlier_messages() {
    both(|over| {
        let size = 1 << 20;
        let app = App::default().on_message(move |_, conn, _| {
            for i in 0..12_u8 {
                conn.binary(&vec![i; size]);
            }
            conn.close(CloseCode::NORMAL, "all of it");
        });
        let mut config = config();
        config.slow_consumer = SlowConsumer::Disconnect(1 << 30);
        let server = serve(over, config, app);
        let mut peer = server.peer();
        peer.send(&masked(TEXT, b"go"));
        for i in 0..12 {
            std::thread::sleep(Duration::from_millis(20));
            assert_eq!(peer.frame().payload, vec![i; size], "{over:?} {i}");
        }
        assert_eq!(peer.close_frame(), (1000, "all of it".to_owned()));
        peer.send(&frame::close(1000, ""));
        peer.end();
        drop(peer);
        let closed = server.events.close(server.events.open(0).0);
        assert!(matches!(closed.cause, Cause::Local), "{closed:?}");
        server.forgets();
        server.stop();
    });
}

/// The close deadline does not abort the last response of an HTTP connection either.
#[test]
fn a_slow_download_is_not_aborted() {
    let page = payload(16 << 20);
    let body = page.clone();
    let app = App::default().on_request(move |_| tautline::Reply::Respond(http::Response::new(body.clone())));
    let mut config = config();
    config.deadlines.close = Duration::from_millis(100);
    let server = serve(Over::Fused, config, app);
    let mut peer = server.secured();
    peer.send(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    assert!(peer.head().starts_with("HTTP/1.1 200 "));
    for piece in page.chunks(1 << 20) {
        std::thread::sleep(Duration::from_millis(30));
        assert!(peer.bytes(piece.len()) == piece);
    }
    peer.end();
    drop(peer);
    server.forgets();
    server.stop();
}

#[test]
fn two_ends_of_the_library_close_each_other() {
    both(|over| {
        let server = serve(over, config(), closes_on_request());
        let socket = server.socket();
        socket.close(CloseCode::new(4242), "enough").unwrap();
        let closed = server.events.close(server.events.open(0).0);
        assert!(matches!(closed.cause, Cause::Peer), "{closed:?}");
        assert_eq!((closed.code.get(), &*closed.reason), (4242, "enough"));

        let mut socket = server.socket();
        socket.text("4343 you too").unwrap();
        let Err(Error::Closed(closed)) = socket.receive() else { panic!("more") };
        assert!(matches!(closed.cause, Cause::Peer), "{closed:?}");
        assert_eq!((closed.code.get(), &*closed.reason), (4343, "you too"));
        assert!(matches!(socket.text("too late"), Err(Error::Closed(_))));
        let closed = server.events.close(server.events.open(1).0);
        assert!(matches!(closed.cause, Cause::Local), "{closed:?}");
        assert_eq!(closed.code.get(), 4343);
        drop(socket);
        server.forgets();
        server.stop();
    });
}

#[test]
fn a_full_mailbox_does_not_hinder_closing() {
    let app = App::default().on_open(|_, conn| {
        for i in 0..5000 {
            conn.text(&i.to_string());
        }
    });
    let server = serve(Over::Fused, config(), app);
    let mut socket = server.socket();
    assert_eq!(socket.receive().unwrap(), Incoming::Text("0".into()));
    socket.close(CloseCode::NORMAL, "").unwrap();
    let closed = server.events.close(server.events.open(0).0);
    assert!(matches!(closed.cause, Cause::Peer), "{closed:?}");
    server.forgets();
    server.stop();
}

#[test]
fn other_threads_close_and_send() {
    let server = serve(Over::Fused, config(), App::default());
    let mut peer = server.peer();
    let conn = server.events.open(0).0;
    server.handle.send(conn, Outgoing::text("from afar")).unwrap();
    assert_eq!(peer.frame().text(), "from afar");
    server.handle.shards()[0].close(conn, CloseCode::POLICY, "away with you").unwrap();
    assert_eq!(peer.close_frame(), (1008, "away with you".to_owned()));
    peer.send(&frame::close(1008, ""));
    peer.end();
    drop(peer);
    server.events.close(conn);
    server.forgets();
    // Commands for the ended connection are ignored, even if its slot is in use again.
    let mut other = server.peer();
    server.handle.send(conn, Outgoing::text("late")).unwrap();
    server.handle.shards()[0].close(conn, CloseCode::POLICY, "late").unwrap();
    other.echoes("undisturbed");
    drop(other);
    server.survives();
}

/// The end of a server's direction.
#[derive(Clone, Copy, PartialEq)]
enum Ends {
    /// close_notify and FIN behind the client's close frame.
    WithFin,
    /// close_notify alone, as by Python's asyncio, which waits for the client's.
    WithNotify,
    /// close_notify alone, right behind the server's close frame and in one write with it.
    AtOnce,
}

#[test]
fn a_client_sends_close_notify_too() {
    for ends in [Ends::WithFin, Ends::WithNotify, Ends::AtOnce] {
        close_notify_of_a_client_of_a_server_that(ends);
    }
}

fn close_notify_of_a_client_of_a_server_that(ends: Ends) {
    // The test drives a server's session itself, to see the client's last bytes.
    use tautline::layers::buf::Buf;
    use tautline::layers::tls::{Content, Engine as _, Handshake, Session as _};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let served = std::thread::spawn(move || {
        use std::io::{Read, Write};
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(crate::common::PATIENCE)).unwrap();
        let engine = tautline::layers::tls_rustls::Engine::server(&crate::common::server::server_config()).unwrap();
        let mut session = engine.accept().unwrap();
        let (mut carry, mut plain, mut open, mut answered) = (Vec::new(), Vec::new(), false, false);
        let (mut out, mut scratch) = (Buf::new(), Buf::new());
        let mut bytes = [0; 4096];
        loop {
            let len = stream.read(&mut bytes).unwrap();
            if len == 0 {
                return false;
            }
            carry.extend_from_slice(&bytes[..len]);
            let mut at = 0;
            while at < carry.len() {
                if !open {
                    let (used, state) = session.handshake(&mut carry[at..], &mut out).unwrap();
                    at += used;
                    open = state == Handshake::Complete;
                    if !open {
                        break;
                    }
                    continue;
                }
                let rest = &mut carry[at..];
                let opened = session.open(rest, &mut scratch, &mut out).unwrap();
                at += opened.used;
                match opened.content {
                    Content::Data(data) => plain.extend_from_slice(data.bytes(rest, &mut scratch)),
                    Content::Closed => return true,
                    Content::Control => {}
                    Content::Partial => break,
                }
            }
            carry.drain(..at);
            if !answered && plain.ends_with(b"\r\n\r\n") {
                answered = true;
                let text = String::from_utf8(std::mem::take(&mut plain)).unwrap();
                session.seal(&[accept(&text).as_bytes(), &frame::unmasked(CLOSE, &[3, 232])], &mut out).unwrap();
                if ends == Ends::AtOnce {
                    session.close(&mut out);
                }
            } else if answered && frame::parse(&plain).is_some() && ends != Ends::AtOnce {
                // The client's close frame: we end our direction, as a server should.
                session.close(&mut out);
            }
            stream.write_all(out.filled()).unwrap();
            if answered && frame::parse(&plain).is_some() && ends == Ends::WithFin {
                stream.shutdown(std::net::Shutdown::Write).unwrap();
            }
            out.clear();
        }
    });
    let mut target = tautline::Target::new("wss://localhost/").unwrap();
    target.address = Some(address.into());
    let tls = crate::common::server::client_config();
    let client = tautline::Client::new(tls).target(target).start(|_| App::default()).unwrap();
    client.join().unwrap();
    assert!(served.join().unwrap(), "FIN without close_notify");
}

/// The 101 response to this request.
pub(crate) fn accept(request: &str) -> String {
    use tautline::layers::buf::Buf;
    use tautline::layers::ws::handshake::{HeadLimits, HeadReader, Policy, accept};
    let (request, _) = HeadReader::new(HeadLimits::default()).request(request.as_bytes()).unwrap().unwrap();
    let mut out = Buf::new();
    accept(&request, &Policy::default()).unwrap().write(&mut out);
    String::from_utf8(out.filled().to_vec()).unwrap()
}
