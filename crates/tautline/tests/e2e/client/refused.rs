//! Servers that answer, but do not accept the WebSocket.

use super::failure;
use crate::common::frame::{CLOSE, TEXT, unmasked};
use crate::common::server::{client_config, config};
use crate::common::{App, Event, Over, PATIENCE, serve};
use crate::life::accept;
use std::io::{Read, Write};
use std::net::TcpListener;
use tautline::{Cause, ClientConfig, Config, DeflateConfig, Error, HeadLimits, Incoming, Reply, Socket, Target};

/// Starts a server for one connection that answers the request with the result of `answer`. Returns its target.
fn answering(answer: impl FnOnce(&str) -> Vec<u8> + Send + 'static) -> Target {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            stream.read_exact(&mut byte).unwrap();
            request.push(byte[0]);
        }
        let _ = stream.write_all(&answer(&String::from_utf8(request).unwrap()));
        // Until the client has hung up.
        let _ = stream.read_to_end(&mut Vec::new());
    });
    Target::new(&format!("ws://127.0.0.1:{port}/where?it=is")).unwrap()
}

fn failure_with(answer: &'static str) -> String {
    failure(answering(|_| answer.into()), client_config(), config())
}

#[test]
fn refusals_are_reported_with_their_status() {
    for (answer, words) in [
        ("HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\n\r\nno", &["refused the upgrade", "401 Unauthorized"][..]),
        ("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", &["refused the upgrade", "200 OK"]),
        (
            "HTTP/1.1 302 Found\r\nLocation: wss://other.example/x\r\n\r\n",
            &["redirects to", "wss://other.example/x", "302"],
        ),
        ("HTTP/1.1 301 Moved Permanently\r\n\r\n", &["redirects", "without saying where"]),
        ("SSH-2.0-OpenSSH_9.6\r\n\r\n", &["malformed"]),
        (
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
            &["Sec-WebSocket-Accept"],
        ),
        (
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
          Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n",
            &["Sec-WebSocket-Accept"],
        ),
    ] {
        let error = failure_with(answer);
        assert!(words.iter().all(|word| error.contains(word)), "{answer}: {error}");
    }
}

#[test]
fn rejects_invalid_answers() {
    let with = |find: &'static str, replace: &'static str| {
        let target = answering(move |request| {
            let answer = accept(request);
            let changed = answer.replace(find, replace);
            assert_ne!(answer, changed);
            changed.into_bytes()
        });
        failure(target, client_config(), config())
    };
    for (find, replace, word) in [
        ("Upgrade: websocket", "Upgrade: h2c", "Upgrade"),
        ("Connection: Upgrade", "Connection: close", "Connection"),
        ("HTTP/1.1", "HTTP/1.0", "HTTP/1.0"),
        ("\r\n\r\n", "\r\nSec-WebSocket-Protocol: chat\r\n\r\n", "subprotocol that was not offered"),
        ("\r\n\r\n", "\r\nSec-WebSocket-Extensions: permessage-deflate\r\n\r\n", "extension that was not offered"),
    ] {
        let error = with(find, replace);
        assert!(error.contains(word), "{find} to {replace}: {error}");
    }
}

#[test]
fn rejects_an_endless_answer() {
    let endless = answering(|_| format!("HTTP/1.1 101 Switching Protocols\r\nX: {}", "y".repeat(100_000)).into_bytes());
    let mut config = config();
    config.limits.head = HeadLimits::new(4096, 10);
    let error = failure(endless, client_config(), config);
    assert!(error.contains("longer than 4096 bytes"), "{error}");
}

#[test]
fn reports_a_silent_server_and_one_that_hangs_up() {
    let silent = answering(|_| Vec::new());
    let mut config = config();
    config.deadlines.handshake = std::time::Duration::from_millis(150);
    let error = failure(silent, client_config(), config.clone());
    assert!(error.contains("handshake deadline"), "{error}");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let target = Target::new(&format!("ws://{}/", listener.local_addr().unwrap())).unwrap();
    let thread = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let _ = stream.read(&mut [0; 1000]);
        stream.write_all(b"HTTP/1.1 101 Swi").unwrap();
    });
    let error = failure(target, client_config(), config);
    assert!(error.contains("hung up"), "{error}");
    thread.join().unwrap();
}

#[test]
fn frames_behind_the_answer_are_read() {
    let target = answering(|request| {
        let close = unmasked(CLOSE, &[&4000_u16.to_be_bytes()[..], b"that was all"].concat());
        [accept(request).as_bytes(), &unmasked(TEXT, b"one"), &unmasked(TEXT, b"two"), &close].concat()
    });
    let mut socket = Socket::connect(target, client_config(), Config::default()).unwrap();
    assert_eq!(socket.response().unwrap().status(), 101);
    assert_eq!(socket.receive().unwrap(), Incoming::Text("one".into()));
    assert_eq!(socket.receive().unwrap(), Incoming::Text("two".into()));
    let Err(Error::Closed(closed)) = socket.receive() else { panic!("more") };
    assert_eq!((closed.code.get(), &*closed.reason), (4000, "that was all"));
}

#[test]
fn interim_answers_are_skipped() {
    let target = answering(|request| {
        let early = "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n";
        [early.as_bytes(), accept(request).as_bytes(), &unmasked(TEXT, b"in")].concat()
    });
    let mut socket = Socket::connect(target, client_config(), Config::default()).unwrap();
    assert_eq!(socket.receive().unwrap(), Incoming::Text("in".into()));
}

#[test]
fn protocol_errors_of_servers_are_reported() {
    let masked = crate::common::frame::masked(TEXT, b"servers do not mask");
    let huge = [crate::common::frame::header(TEXT, 0, 1 << 40), vec![0; 100]].concat();
    for (frames, word) in [
        (masked, "masked"),
        (unmasked(TEXT, b"\xff"), "UTF-8"),
        (unmasked(0x83, b""), "reserved opcode"),
        (huge, "above the limit"),
    ] {
        let target = answering(move |request| [accept(request).as_bytes(), &frames].concat());
        let mut socket = Socket::connect(target, client_config(), Config::default()).unwrap();
        let Err(Error::Closed(closed)) = socket.receive() else { panic!("a message") };
        assert!(matches!(closed.cause, Cause::WebSocket(_)), "{closed:?}");
        assert!(closed.cause.to_string().contains(word), "{closed:?}");
    }
}

#[test]
fn an_end_at_any_byte_is_noticed() {
    let session =
        |request: &str| [accept(request).as_bytes(), &unmasked(TEXT, b"hello"), &unmasked(CLOSE, &[3, 232])].concat();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let len = accept(crate::common::peer::UPGRADE).len() + 7 + 4;
    let server = std::thread::spawn(move || {
        for cut in 0..len {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = vec![0; 4096];
            let n = stream.read(&mut request).unwrap();
            let session = session(std::str::from_utf8(&request[..n]).unwrap());
            assert_eq!(session.len(), len);
            stream.write_all(&session[..cut]).unwrap();
        }
    });
    for cut in 0..len {
        let target = Target::new(&format!("ws://{address}/")).unwrap();
        match Socket::connect(target, ClientConfig::default(), Config::default()) {
            Err(Error::Connect(_)) => assert!(cut < len - 11, "{cut}"),
            Err(error) => panic!("{error}"),
            Ok(mut socket) => {
                assert!(cut >= len - 11, "{cut}");
                match socket.receive() {
                    Ok(message) => {
                        assert_eq!(message, Incoming::Text("hello".into()));
                        assert!(cut >= len - 4);
                        assert!(matches!(socket.receive(), Err(Error::Closed(_))));
                    }
                    Err(Error::Closed(_)) => assert!(cut < len - 4),
                    Err(error) => panic!("{error}"),
                }
            }
        }
    }
    server.join().unwrap();
}

#[test]
fn invalid_options_are_explained() {
    let server = serve(Over::Plain, config(), App::default());
    let mut target = server.target();
    target.headers.insert("sec-websocket-key", http::HeaderValue::from_static("mine"));
    let error = failure(target, client_config(), config());
    assert!(error.contains("sec-websocket-key"), "{error}");
    let mut target = server.target();
    target.subprotocols = vec!["a b".into()];
    let error = failure(target, client_config(), config());
    assert!(error.contains("not a token"), "{error}");
    server.survives();
}

#[test]
fn headers_of_the_target_are_sent() {
    let app = App::default().on_request(|request| {
        let headers = request.http.headers();
        let good = headers.get("authorization").is_some_and(|value| value == "Bearer let-me-in")
            && headers.get("x-more").is_some_and(|value| value == "yes");
        if good { Reply::upgrade() } else { Reply::status(http::StatusCode::UNAUTHORIZED) }
    });
    let server = serve(Over::Fused, config(), app);
    let error = failure(server.target(), client_config(), config());
    assert!(error.contains("401"), "{error}");
    let mut target = server.target();
    target.headers.insert("authorization", http::HeaderValue::from_static("Bearer let-me-in"));
    target.headers.insert("x-more", http::HeaderValue::from_static("yes"));
    target.deflate = Some(DeflateConfig::default());
    drop(server.socket_to(target));
    // Compression that only one end wants is not negotiated.
    assert!(!server.events.open(0).1.deflate);
    server.forgets();
    server.stop();
}

#[test]
fn the_body_of_a_refusal_reaches_the_application() {
    let chunked = "HTTP/1.1 403 Forbidden\r\nTransfer-Encoding: chunked\r\n\r\n6\r\nno for\r\n4\r\n you\r\n0\r\n\r\n";
    for (answer, expected) in [
        ("HTTP/1.1 401 No\r\nContent-Length: 9\r\nX-Why: age\r\n\r\ntoo young", (401, "too young")),
        (chunked, (403, "no for you")),
        ("HTTP/1.1 503 Busy\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n", (503, "")),
    ] {
        let (client, events) = super::start(answering(|_| answer.into()), App::default());
        let refused = events.nth("a refusal", 0, |event| match event {
            Event::Refused(status, body) => Some((*status, body.clone())),
            _ => None,
        });
        assert_eq!(refused, (expected.0, expected.1.to_owned()));
        client.join().unwrap();
    }
}

#[test]
fn a_body_that_does_not_end_is_cut() {
    let endless = |_: &str| [b"HTTP/1.1 403 No\r\n\r\n".as_slice(), &vec![b'x'; 1 << 20]].concat();
    let Err(Error::Connect(error)) = Socket::connect(answering(endless), client_config(), config()) else {
        panic!("it is refused")
    };
    assert_eq!(error.refusal().unwrap().body().len(), 16 << 10);
    // A body that stops in the middle is reported at the deadline.
    let stops = |_: &str| b"HTTP/1.1 403 No\r\nContent-Length: 100\r\n\r\nthe begin".to_vec();
    let mut config = config();
    config.deadlines.handshake = std::time::Duration::from_millis(150);
    let Err(Error::Connect(error)) = Socket::connect(answering(stops), client_config(), config) else {
        panic!("it is refused")
    };
    assert_eq!(error.refusal().unwrap().body(), b"the begin");
}
