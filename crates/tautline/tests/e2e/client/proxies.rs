//! Connections through proxies, which the tests implement.

use super::failure;
use crate::common::server::{client_config, config};
use crate::common::{App, Over, PATIENCE, Started, both, serve};
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tautline::{Client, CloseCode, Conn, DialTimes, Handler, Incoming, Message, Opening, Target};
use tautline_testkit::ClosedPort;

/// Reads until `done` returns true for the bytes so far.
fn request(stream: &mut TcpStream, done: impl Fn(&[u8]) -> bool) -> Vec<u8> {
    let mut bytes = Vec::new();
    while !done(&bytes) {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        bytes.push(byte[0]);
    }
    bytes
}

/// Sends `answer`, and then relays bytes in both directions until both ends are done.
fn relay(client: TcpStream, server: SocketAddr, answer: &[u8]) {
    let server = TcpStream::connect(server).unwrap();
    let pump = |mut from: TcpStream, mut to: TcpStream| {
        std::thread::spawn(move || {
            let _ = std::io::copy(&mut from, &mut to);
            let _ = to.shutdown(Shutdown::Write);
        })
    };
    // The answer and the server's first bytes may arrive together.
    (&client).write_all(answer).unwrap();
    let up = pump(client.try_clone().unwrap(), server.try_clone().unwrap());
    let down = pump(server, client);
    up.join().unwrap();
    down.join().unwrap();
}

/// Starts a proxy for one connection. Its thread returns the request.
fn proxy(serve: impl FnOnce(TcpStream) -> String + Send + 'static) -> (u16, JoinHandle<String>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let thread = std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        serve(stream)
    });
    (port, thread)
}

fn http_proxy(to: SocketAddr) -> (u16, JoinHandle<String>) {
    proxy(move |mut stream| {
        let asked = request(&mut stream, |bytes| bytes.ends_with(b"\r\n\r\n"));
        relay(stream, to, b"HTTP/1.1 200 Connection established\r\nVia: test\r\n\r\n");
        String::from_utf8(asked).unwrap()
    })
}

/// Starts a SOCKS5 proxy, which requires a password if `login` is true. Its thread returns the destination as `HOST:PORT`.
fn socks_proxy(to: SocketAddr, login: bool) -> (u16, JoinHandle<String>) {
    proxy(move |mut stream| {
        // It gets login method 0 with and without credentials, and method 2 with them.
        let methods = request(&mut stream, |bytes| bytes.len() == 2 + usize::from(bytes.get(1).copied().unwrap_or(9)));
        assert!(methods == [5, 2, 0, 2] || !login && methods == [5, 1, 0], "{methods:?}");
        stream.write_all(&[5, if login { 2 } else { 0 }]).unwrap();
        if login {
            let credentials = request(&mut stream, |bytes| bytes.len() == 3 + 2 + 6);
            assert_eq!(credentials, b"\x01\x02me\x06secret");
            stream.write_all(&[1, 0]).unwrap();
        }
        let asked = request(&mut stream, |bytes| bytes.len() > 4 && bytes.len() == 7 + usize::from(bytes[4]));
        assert_eq!(asked[..4], [5, 1, 0, 3]);
        let host = String::from_utf8(asked[5..asked.len() - 2].to_vec()).unwrap();
        let port = u16::from_be_bytes([asked[asked.len() - 2], asked[asked.len() - 1]]);
        relay(stream, to, &[5, 0, 0, 1, 127, 0, 0, 1, 0, 80]);
        format!("{host}:{port}")
    })
}

/// A target with a name and port that only the proxy can reach.
fn target(server: &Started, proxy: &str) -> Target {
    let scheme = if server.over.is_secure() { "wss" } else { "ws" };
    let mut target = Target::new(&format!("{scheme}://localhost:4711/chat")).unwrap();
    target.proxy = Some(proxy.parse().unwrap());
    target
}

fn echoes(server: &Started, target: Target) {
    let mut socket = server.socket_to(target);
    for i in 0..10 {
        let text = format!("through the proxy {i}");
        socket.text(&text).unwrap();
        assert_eq!(socket.receive().unwrap(), Incoming::Text(text));
    }
    socket.close(CloseCode::NORMAL, "").unwrap();
}

#[test]
fn http_connect() {
    both(|over| {
        let app = App::default().on_open(|_, conn| conn.ping(b"with the first bytes").unwrap());
        let server = serve(over, config(), app);
        let (port, thread) = http_proxy(server.tcp());
        echoes(&server, target(&server, &format!("http://me:secret@localhost:{port}")));
        let asked = thread.join().unwrap();
        assert!(asked.starts_with("CONNECT localhost:4711 HTTP/1.1\r\nHost: localhost:4711\r\n"), "{asked}");
        assert!(asked.contains("Proxy-Authorization: Basic bWU6c2VjcmV0\r\n"), "{asked}");
        assert_eq!(server.events.open(0).1.path.as_deref(), Some("/chat"));
        server.survives();
    });
}

#[test]
fn socks5() {
    both(|over| {
        for (user, login) in [("", false), ("me:secret@", true), ("me:secret@", false)] {
            let server = serve(over, config(), App::default());
            let (port, thread) = socks_proxy(server.tcp(), login);
            echoes(&server, target(&server, &format!("socks5://{user}localhost:{port}")));
            assert_eq!(thread.join().unwrap(), "localhost:4711");
            server.survives();
        }
    });
}

/// Sends the times of its first opening.
struct Timed(Sender<DialTimes>);

impl Handler for Timed {
    type State = ();
    fn on_open(&mut self, conn: &mut Conn<'_, ()>, opening: &Opening<'_>) {
        self.0.send(opening.times.unwrap()).unwrap();
        conn.close(CloseCode::NORMAL, "");
    }
    fn on_message(&mut self, _conn: &mut Conn<'_, ()>, _message: Message<'_>) {}
}

#[test]
fn the_steps_of_a_connection_are_timed() {
    let server = serve(Over::Fused, config(), App::default());
    let (to, slow) = (server.tcp(), Duration::from_millis(60));
    let (port, thread) = proxy(move |mut stream| {
        let asked = request(&mut stream, |bytes| bytes.ends_with(b"\r\n\r\n"));
        std::thread::sleep(slow);
        relay(stream, to, b"HTTP/1.1 200 OK\r\n\r\n");
        String::from_utf8(asked).unwrap()
    });
    let (sender, times) = channel();
    let began = Instant::now();
    let target = target(&server, &format!("http://127.0.0.1:{port}"));
    Client::new(client_config()).target(target).start(move |_| Timed(sender)).unwrap().join().unwrap();
    let times = times.recv().unwrap();
    assert!(times.resolve < slow && times.proxy >= slow, "{times:?}");
    assert!([times.connect, times.tls, times.upgrade].iter().all(|time| !time.is_zero()), "{times:?}");
    assert!(times.total() <= began.elapsed(), "{times:?}");
    thread.join().unwrap();
    server.survives();
}

/// The client's error if a proxy answers with these bytes.
fn refusal(kind: &str, answer: &'static [u8], close: bool) -> String {
    let server = serve(Over::Plain, config(), App::default());
    let (port, thread) = proxy(move |mut stream| {
        let mut bytes = [0; 3];
        stream.read_exact(&mut bytes).unwrap();
        stream.write_all(answer).unwrap();
        if close {
            stream.shutdown(Shutdown::Write).unwrap();
        }
        // Until the client hangs up.
        let _ = stream.read_to_end(&mut Vec::new());
        String::new()
    });
    let error = failure(target(&server, &format!("{kind}://localhost:{port}")), client_config(), config());
    thread.join().unwrap();
    server.survives();
    error
}

#[test]
fn refusals_are_explained() {
    for (kind, answer, word) in [
        ("http", &b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n"[..], "wants a user name and password"),
        (
            "http",
            b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n",
            "refused the tunnel: \"HTTP/1.1 502 Bad Gateway\"",
        ),
        ("http", b"SSH-2.0\r\n\r\n", "this is no HTTP proxy: it answered \"SSH-2.0\""),
        ("socks5", b"\x05\xff", "wants a login: write USER:PASSWORD@ before its host"),
        ("socks5", b"\x05\x02", "it chose login method 2, which was not offered"),
        ("socks5", b"\x05\x00\x05\x05\x00\x01", "could not connect to localhost:4711: connection refused"),
        ("socks5", b"\x05\x00\x05\x04\x00\x01", "could not connect to localhost:4711: host unreachable"),
        ("socks5", b"HTTP/1.1 400 Bad Request", "this is no SOCKS5 proxy"),
    ] {
        let error = refusal(kind, answer, false);
        assert!(error.contains(word), "{kind} {answer:?}: {error}");
    }
    let error = refusal("http", b"HTTP/1.1 2", true);
    assert!(error.contains("hung up"), "{error}");
    let error = refusal("socks5", b"\x05", true);
    assert!(error.contains("hung up"), "{error}");
}

#[test]
fn a_proxy_that_is_not_running() {
    let closed = ClosedPort::new().unwrap();
    let server = serve(Over::Plain, config(), App::default());
    let error = failure(target(&server, &format!("http://{}", closed.address())), client_config(), config());
    assert!(error.contains("refused"), "{error}");
    server.survives();
}
