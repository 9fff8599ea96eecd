//! Invalid bytes in TLS, HTTP and WebSocket frames.

use crate::common::frame::{BINARY, CLOSE, CONTINUES, ENDS, PING, RSV1, TEXT, TEXT_BEGINS, header, masked, unmasked};
use crate::common::server::{client_config, config};
use crate::common::{App, Over, Peer, both, logs, payload, serve};
use std::time::{Duration, Instant};
use tautline::layers::ws::Error;
use tautline::{Cause, CloseCode};

/// All violations of the protocol on an open connection: the bytes, the close code and the error.
fn broken_frames() -> Vec<(Vec<u8>, u16, Error)> {
    let bits = |len: u64| [header(BINARY, 0x80, len), vec![1, 2, 3, 4]].concat();
    let long = |len: u64| [vec![BINARY, 0x80 | 127], len.to_be_bytes().to_vec(), vec![1, 2, 3, 4]].concat();
    let too_big = Error::MessageTooBig { limit: 1 << 20 };
    vec![
        (unmasked(TEXT, b"bare"), 1002, Error::NotMasked),
        (masked(RSV1 | TEXT, b"squeezed"), 1002, Error::ReservedBits),
        (masked(0x83, b""), 1002, Error::ReservedOpcode(3)),
        (masked(0x8b, b""), 1002, Error::ReservedOpcode(11)),
        (long(5), 1002, Error::LengthNotMinimal),
        (long(1 << 63), 1002, Error::LengthTooLarge),
        (long(u64::MAX), 1002, Error::LengthTooLarge),
        (long((1 << 63) - 1), 1009, too_big),
        (bits((1 << 20) + 1), 1009, too_big),
        ([masked(TEXT_BEGINS, &[b'x'; 1 << 19]), masked(ENDS, &[b'x'; (1 << 19) + 1])].concat(), 1009, too_big),
        (masked(PING & 0x7f, b""), 1002, Error::ControlFragmented),
        (masked(PING, &[0; 126]), 1002, Error::ControlTooLong),
        (masked(CONTINUES, b""), 1002, Error::UnexpectedContinuation),
        ([masked(TEXT_BEGINS, b""), masked(TEXT, b"")].concat(), 1002, Error::MessageInterleaved),
        (masked(CLOSE, &[3]), 1002, Error::CloseTruncated),
        (masked(CLOSE, &1005_u16.to_be_bytes()), 1002, Error::InvalidCloseCode(1005)),
        (masked(CLOSE, &[3, 232, 0xff]), 1007, Error::InvalidUtf8),
        (masked(TEXT, b"\xed\xa0\x80"), 1007, Error::InvalidUtf8),
        ([masked(TEXT_BEGINS, b"\xf0\x9f"), masked(ENDS, b"\xa6")].concat(), 1007, Error::InvalidUtf8),
    ]
}

#[test]
fn broken_frames_are_answered_with_their_close_code() {
    both(|over| {
        let server = serve(over, config(), App::default());
        for (at, (sent, code, why)) in broken_frames().into_iter().enumerate() {
            let mut peer = server.peer();
            let name = peer.name();
            peer.echoes("before");
            peer.send(&sent);
            assert_eq!(peer.close_frame(), (code, why.to_string()));
            peer.end();
            drop(peer);
            let closed = server.events.close(server.events.open(at).0);
            assert!(matches!(closed.cause, Cause::WebSocket(error) if error == why), "{closed:?}, not {why}");
            assert_eq!((closed.code, &*closed.reason), (CloseCode::ABNORMAL, ""));
            logs::expect(&[&name, &why.to_string()]);
        }
        server.survives();
    });
}

#[test]
fn bytes_behind_a_broken_frame_do_not_hide_the_close_code() {
    // A close with unread bytes resets the connection, and a reset can overtake the close frame.
    both(|over| {
        let server = serve(over, config(), App::default());
        let mut peer = server.peer();
        peer.send(&unmasked(TEXT, b"bare"));
        for _ in 0..64 {
            peer.send(&payload(64 << 10));
        }
        assert_eq!(peer.close_frame().0, 1002);
        peer.end();
        drop(peer);
        server.survives();
    });
}

#[test]
fn plain_http_at_a_tls_port_gets_an_alert() {
    for over in [Over::Fused, Over::Rustls] {
        let server = serve(over, config(), App::default());
        for text in ["GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "POST /x HTTP/1.0\r\n\r\n"] {
            let mut peer = server.attack();
            let name = peer.name();
            peer.send_wire(text.as_bytes());
            let (answer, end) = peer.rest();
            assert_eq!(end, Ok(()));
            assert!(matches!(answer[..], [21, 3, _, 0, 2, 2, _]), "no fatal alert: {answer:?}");
            logs::expect(&[&name, "plain HTTP"]);
        }
        server.survives();
    }
}

#[test]
fn garbage_at_a_tls_port_gets_an_alert() {
    for over in [Over::Fused, Over::Rustls] {
        let server = serve(over, config(), App::default());
        for sent in [vec![0; 500], vec![0xff; 5], payload(100_000), b"SSH-2.0-OpenSSH_9.6\r\n".to_vec()] {
            let mut peer = server.attack();
            let name = peer.name();
            let _ = peer.try_send_wire(&sent);
            let (answer, end) = peer.rest();
            assert_eq!(end, Ok(()), "{:?}", &sent[..5]);
            assert!(matches!(answer[..], [21, 3, _, 0, 2, 2, _]), "no fatal alert: {answer:?}");
            logs::expect(&[&name, "handshake failed", "not TLS"]);
        }
        server.survives();
    }
}

#[test]
fn garbage_inside_tls_gets_an_alert() {
    for over in [Over::Fused, Over::Rustls] {
        let server = serve(over, config(), App::default());
        let mut peer = server.peer();
        let name = peer.name();
        peer.echoes("before");
        let mut record = peer.seal(&masked(TEXT, b"changed on the way"));
        let last = record.len() - 1;
        record[last] ^= 1;
        peer.send_wire(&record);
        let error = peer.try_frame().unwrap_err();
        assert!(error.contains("bad_record_mac"), "{error}");
        drop(peer);
        let closed = server.events.close(server.events.open(0).0);
        assert!(matches!(closed.cause, Cause::Tls(_)), "{closed:?}");
        logs::expect(&[&name, "does not authenticate"]);
        server.survives();
    }
}

#[test]
fn a_client_hello_at_a_plain_port_is_recognised() {
    let server = serve(Over::Plain, config(), App::default());
    let mut peer = server.attack();
    let name = peer.name();
    let hello = Peer::connect(server.tcp()).hello(&client_config());
    peer.send_wire(&hello);
    assert!(peer.head().starts_with("HTTP/1.1 400 "));
    logs::expect(&[&name, "TLS"]);
    assert_eq!(peer.rest().1, Ok(()));
    drop(peer);
    server.survives();
}

#[test]
fn invalid_http_heads_are_rejected() {
    both(|over| {
        let server = serve(over, config(), App::default());
        let headers = "X: y\r\n".repeat(101);
        for (head, status) in [
            ("\x00\x01\x02garbage", "400"),
            ("GET / HTTP/1.1\nHost: x\n\n", "400"),
            ("GET / HTTP/1.1\r\n\r\n", "400"),
            ("GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", "400"),
            ("GET nowhere HTTP/1.1\r\nHost: x\r\n\r\n", "400"),
            ("GET / HTTP/1.1\r\nHost: x\r\n folded\r\n\r\n", "400"),
            ("GET / HTTP/1.1\r\nHost : x\r\n\r\n", "400"),
            ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "505"),
            (&format!("GET / HTTP/1.1\r\nHost: x\r\n{headers}\r\n"), "431"),
            (&format!("GET / HTTP/1.1\r\nHost: x\r\nX: {}", "y".repeat(20_000)), "431"),
            (&format!("GET /{} HTTP/1.1\r\n", "y".repeat(20_000)), "414"),
        ] {
            let mut peer = server.secured();
            let name = peer.name();
            peer.send(head.as_bytes());
            let (answer, _) = peer.response();
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{head:?}: {answer}");
            assert!(answer.contains("Connection: close\r\n"), "{answer}");
            peer.end();
            logs::expect(&[&name]);
        }
        assert_eq!(server.counters().opened, 0);
        server.survives();
    });
}

#[test]
fn an_endless_head_is_rejected_while_it_is_sent() {
    both(|over| {
        let server = serve(over, config(), App::default());
        let mut peer = server.secured();
        let name = peer.name();
        peer.send(b"GET / HTTP/1.1\r\nHost: x\r\n");
        // 20 MB. The server parses some kilobytes, and reads the rest without parsing it, so that no reset overtakes its answer.
        let line = format!("X-Header: {}\r\n", "y".repeat(1000)).repeat(64);
        for _ in 0..320 {
            peer.send(line.as_bytes());
        }
        let (answer, _) = peer.response();
        assert!(answer.starts_with("HTTP/1.1 431 "), "{answer}");
        peer.end();
        drop(peer);
        logs::expect(&[&name, "longer than"]);
        server.survives();
    });
}

/// Lets a peer stall after `drip`, with a handshake deadline of one second. Expects this answer, and `word` in the log. A second
/// peer must not be disturbed.
fn stalls(over: Over, drip: impl Fn(&mut Peer), expected: &[u8], word: &str) {
    let mut config = config();
    config.deadlines.handshake = Duration::from_secs(1);
    let server = serve(over, config, App::default());
    let begun = Instant::now();
    let mut peer = server.attack();
    let name = peer.name();
    drip(&mut peer);
    let mut other = server.peer();
    other.echoes("while another one stalls");
    // The answer is not encrypted even at a TLS port, because there are no keys yet.
    let (answer, end) = peer.rest();
    assert_eq!(end, Ok(()));
    assert!(answer.starts_with(expected), "{:?}", String::from_utf8_lossy(&answer));
    assert_eq!(answer.is_empty(), expected.is_empty());
    assert!(begun.elapsed() >= Duration::from_millis(990));
    logs::expect(&[&name, word]);
    drop(peer);
    other.echoes("after it is gone");
    drop(other);
    server.survives();
}

#[test]
fn unfinished_handshakes_miss_their_deadline() {
    let handshake = "handshake deadline";
    stalls(Over::Plain, |_| {}, b"", handshake);
    stalls(Over::Plain, |peer| peer.send_wire(b"GET /chat HT"), b"HTTP/1.1 408 ", handshake);
    stalls(Over::Fused, |_| {}, b"", handshake);
    stalls(
        Over::Fused,
        |peer| {
            let hello = Peer::over(peer.socket.try_clone().unwrap()).hello(&client_config());
            peer.send_wire(&hello[..100]);
        },
        b"",
        handshake,
    );
}

#[test]
fn a_slow_head_does_not_extend_the_deadline() {
    let drip = |peer: &mut Peer| {
        for byte in b"GET /chat HTTP/1.1\r\nX-Slow: ".iter().cycle() {
            if peer.try_send_wire(&[*byte]).is_err() {
                return;
            }
            peer.socket.set_nonblocking(true).unwrap();
            let answered = peer.socket.peek(&mut [0]).is_ok();
            peer.socket.set_nonblocking(false).unwrap();
            if answered {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    };
    stalls(Over::Plain, drip, b"HTTP/1.1 408 ", "handshake deadline");
}

#[test]
fn a_peer_that_stalls_after_tls_gets_a_408() {
    let mut config = config();
    config.deadlines.handshake = Duration::from_secs(1);
    let server = serve(Over::Fused, config, App::default());
    let mut peer = server.secured();
    peer.send(b"GET / HT");
    assert!(peer.head().starts_with("HTTP/1.1 408 "));
    drop(peer);
    server.survives();
}
