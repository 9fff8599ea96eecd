//! Peers that vanish at any byte, by FIN, close or reset.

use crate::common::frame::{self, BINARY, CONTINUES, ENDS, PING, TEXT, TEXT_BEGINS, masked};
use crate::common::peer::UPGRADE;
use crate::common::server::{client_config, config};
use crate::common::{App, Event, Over, Peer, Started, both, logs, serve};
use tautline::{Cause, CloseCode};

/// The bytes that a client sends in a session with all kinds of frames, send by send.
fn session() -> Vec<Vec<u8>> {
    vec![
        UPGRADE.into(),
        masked(TEXT, "häl".as_bytes()),
        masked(PING, b"there?"),
        [masked(TEXT_BEGINS, b"frag"), masked(CONTINUES, b""), masked(PING, b""), masked(ENDS, b"ment")].concat(),
        masked(BINARY, &[7; 200]),
        frame::close(1000, "done"),
    ]
}

/// How a client vanishes.
#[derive(Clone, Copy)]
enum Exit {
    Finish,
    Drop,
    Reset,
}

fn leave(peer: Peer, exit: Exit) {
    match exit {
        Exit::Finish => {
            peer.finish();
            // The server ends its direction too.
            let mut peer = peer;
            let (_, end) = peer.rest();
            assert_eq!(end, Ok(()));
        }
        Exit::Drop => drop(peer),
        Exit::Reset => peer.reset(),
    }
}

const EXITS: [Exit; 3] = [Exit::Finish, Exit::Drop, Exit::Reset];

#[test]
fn plain_at_every_byte() {
    let server = serve(Over::Plain, config(), App::default());
    let bytes = session().concat();
    for len in 0..bytes.len() {
        let mut peer = server.attack();
        peer.send_wire(&bytes[..len]);
        leave(peer, EXITS[len % 3]);
    }
    server.survives();
}

/// Runs a session over TLS until the client has sent `len` bytes. False if the whole session has no more bytes.
fn secure_until(server: &Started, len: usize, exit: Exit) -> bool {
    let mut peer = server.attack();
    let mut left = len;
    let mut cut = |peer: &mut Peer, wire: &[u8]| {
        let n = wire.len().min(left);
        left -= n;
        peer.send_wire(&wire[..n]);
        n < wire.len()
    };
    let hello = peer.hello(&client_config());
    let mut is_cut = cut(&mut peer, &hello);
    if !is_cut {
        let flight = peer.flight().unwrap();
        is_cut = cut(&mut peer, &flight);
    }
    for piece in session() {
        if is_cut {
            break;
        }
        let wire = peer.seal(&piece);
        is_cut = cut(&mut peer, &wire);
    }
    leave(peer, exit);
    is_cut
}

#[test]
fn fused_at_many_bytes() {
    secure_at_many_bytes(Over::Fused);
}

#[test]
fn rustls_at_many_bytes() {
    secure_at_many_bytes(Over::Rustls);
}

fn secure_at_many_bytes(over: Over) {
    let server = serve(over, config(), App::default());
    let mut edges = vec![0];
    let mut peer = server.attack();
    let mut at = peer.hello(&client_config()).len();
    edges.push(at);
    // The client's second flight always has the same length: change_cipher_spec and Finished.
    at += 6 + 5 + 4 + 32 + 1 + 16;
    edges.push(at);
    for piece in session() {
        at += piece.len() + 5 + 1 + 16;
        edges.push(at);
    }
    drop(peer);
    let near = |len: &usize| edges.iter().any(|edge| len.abs_diff(*edge) <= 6) || len.is_multiple_of(41);
    for len in (0..at).filter(near) {
        assert!(secure_until(&server, len, EXITS[len % 3]), "no cut at {len} of {at}");
    }
    server.survives();
}

/// Sends `last`, vanishes by `exit`, and checks the cause that the application gets.
fn ends_with(over: Over, last: &[u8], exit: Exit, expected: fn(&Cause) -> bool) {
    let server = serve(over, config(), App::default());
    let mut peer = server.peer();
    let name = peer.name();
    peer.echoes("before");
    let wire = peer.seal(last);
    peer.send_wire(&wire);
    leave(peer, exit);
    let closed = server.events.close(server.events.open(0).0);
    assert!(expected(&closed.cause), "{closed:?}");
    assert_eq!((closed.code, &*closed.reason), (CloseCode::ABNORMAL, ""));
    logs::expect(&[&name, &closed.cause.to_string()]);
    server.survives();
}

#[test]
fn an_end_without_close_frame_is_finished_or_truncated() {
    ends_with(Over::Plain, b"", Exit::Finish, |cause| matches!(cause, Cause::Finished));
    ends_with(Over::Plain, &masked(BINARY, &[1; 1000])[..500], Exit::Finish, |cause| matches!(cause, Cause::Finished));
    ends_with(Over::Fused, b"", Exit::Finish, |cause| matches!(cause, Cause::Truncated));
    ends_with(Over::Fused, &masked(BINARY, &[1; 1000])[..500], Exit::Finish, |cause| matches!(cause, Cause::Truncated));
}

#[test]
fn a_reset_in_mid_message_is_a_lost_connection() {
    both(|over| {
        ends_with(over, &masked(BINARY, &[1; 1000])[..500], Exit::Reset, |cause| matches!(cause, Cause::Io(_)));
    });
}

#[test]
fn half_a_record_is_a_truncation() {
    let server = serve(Over::Fused, config(), App::default());
    let mut peer = server.peer();
    peer.echoes("before");
    let wire = peer.seal(&masked(TEXT, b"never read"));
    peer.send_wire(&wire[..wire.len() - 1]);
    leave(peer, Exit::Finish);
    let closed = server.events.close(server.events.open(0).0);
    assert!(matches!(closed.cause, Cause::Truncated), "{closed:?}");
    server.survives();
}

#[test]
fn close_notify_without_close_frame_is_no_truncation() {
    let server = serve(Over::Fused, config(), App::default());
    let mut peer = server.peer();
    let notify = peer.close_notify();
    peer.send_wire(&notify);
    // The server answers before our FIN.
    peer.end();
    let closed = server.events.close(server.events.open(0).0);
    assert!(matches!(closed.cause, Cause::Finished), "{closed:?}");
    drop(peer);
    server.survives();
}

#[test]
fn half_closed_peers_get_their_answers() {
    both(|over| {
        let server = serve(over, config(), App::default());
        let mut peer = server.secured();
        peer.send(&[UPGRADE.as_bytes(), &masked(TEXT, b"one"), &masked(TEXT, b"two")].concat());
        let notify = peer.close_notify();
        peer.send_wire(&notify);
        peer.finish();
        assert!(peer.head().starts_with("HTTP/1.1 101"));
        assert_eq!(peer.frame().text(), "one");
        assert_eq!(peer.frame().text(), "two");
        peer.end();
        server.survives();
    });
}

#[test]
fn half_closed_http_clients_get_the_whole_response() {
    both(|over| {
        let app = App::default().on_request(|_| {
            let response = http::Response::new(vec![b'x'; 16 << 20]);
            tautline::Reply::Respond(response)
        });
        let server = serve(over, config(), app);
        let mut peer = server.secured();
        peer.send(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
        let notify = peer.close_notify();
        peer.send_wire(&notify);
        peer.finish();
        // Time for the server to see the end while most of its answer waits.
        std::thread::sleep(std::time::Duration::from_millis(30));
        let (head, body) = peer.response();
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
        assert_eq!(body.len(), 16 << 20);
        server.forgets();
        server.stop();
    });
}

#[test]
fn a_whole_session_in_single_bytes() {
    both(|over| {
        let server = serve(over, config(), App::default());
        let mut peer = server.attack();
        let drip = |peer: &mut Peer, wire: &[u8]| wire.iter().for_each(|byte| peer.send_wire(&[*byte]));
        if over.is_secure() {
            let hello = peer.hello(&client_config());
            drip(&mut peer, &hello);
            let flight = peer.flight().unwrap();
            drip(&mut peer, &flight);
        }
        for piece in session() {
            let wire = peer.seal(&piece);
            drip(&mut peer, &wire);
        }
        assert!(peer.head().starts_with("HTTP/1.1 101"));
        assert_eq!(peer.frame().text(), "häl");
        assert_eq!(peer.frame().payload, b"there?");
        assert_eq!(peer.frame().payload, b"");
        assert_eq!(peer.frame().text(), "fragment");
        assert_eq!(peer.frame().payload, [7; 200]);
        assert_eq!(peer.close_frame(), (1000, String::new()));
        peer.end();
        drop(peer);
        let closed = server.events.close(server.events.open(0).0);
        assert_eq!((closed.code, &*closed.reason), (CloseCode::NORMAL, "done"));
        assert!(matches!(closed.cause, Cause::Peer));
        assert!(!server.events.all().iter().any(|event| matches!(event, Event::Drain(_))));
        server.survives();
    });
}

#[test]
fn resets_in_the_backlog_leak_nothing() {
    let mut config = config();
    config.limits.max_connections = 1;
    let server = serve(Over::Plain, config, App::default());
    let mut first = server.peer();
    first.echoes("full now");
    for _ in 0..20 {
        server.attack().reset();
    }
    drop(first);
    server.forgets();
    server.peer().close();
    // The driver reuses its slots, so no ended connection holds one.
    let (last, _) = server.events.open(1);
    let text = last.to_string();
    let slot: u32 = text.split('.').nth(1).unwrap().parse().unwrap();
    assert!(slot <= 1, "{text}");
    server.survives();
}
