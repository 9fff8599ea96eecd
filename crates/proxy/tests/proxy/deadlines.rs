//! Deadlines of requests and tunnels, between real sockets.

use crate::kit;
use crate::kit::{Client, head, length, parsed, proxy_with, reader, scripted, start, text};
use std::io::{BufRead as _, ErrorKind, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};
use tautline::ServerHandle;
use tautline_proxy::Live;

/// Far more than the times of the tests, and less than the usual ones.
const SOON: Duration = Duration::from_secs(4);

const UPGRADE: &str = "GET /ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
    Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

/// Answers requests, and sends everything back after an upgrade.
fn changing(mut stream: TcpStream) {
    let mut reader = reader(&stream);
    while let Some(head) = head(&mut reader) {
        if head.contains("upgrade: websocket") {
            let accept = "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";
            let switch = "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket";
            write!(stream, "{switch}\r\n{accept}\r\n\r\n").unwrap();
            let _ = std::io::copy(&mut reader, &mut stream);
            return;
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").unwrap();
    }
}

#[test]
fn a_tunnel_on_a_kept_connection_outlives_its_idle_time() {
    let (server, _) = scripted(changing);
    let proxy = proxy_with(&server, "idle-time = \"300ms\"\nconnect-time = \"500ms\"\ntunnel-time = \"1h\"");
    let mut client = Client::of(&proxy);
    client.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let _ = client.head();
    assert_eq!(client.exact(2), "ok");
    client.ask(UPGRADE);
    assert!(client.head().starts_with("http/1.1 101 "));
    client.stream.set_read_timeout(Some(Duration::from_millis(1500))).unwrap();
    let ended = client.reader.read(&mut [0]).map_err(|error| error.kind());
    assert_eq!(ended, Err(ErrorKind::WouldBlock), "nothing was sent, and nothing ended");
    client.ask("still here");
    assert_eq!(client.exact(10), "still here");
}

/// A proxy before a server that one failure takes out, with these times, and its plan.
fn strict(server: &str, times: &str) -> (ServerHandle, Live) {
    let live = parsed(&text(server, &format!("failures = 1\nfailure-time = \"1h\"\n{times}")));
    (start(live.clone()), live)
}

/// Whether the server is out, since a failure was its own.
fn is_out(live: &Live) -> bool {
    live.plan().backends[0].group.servers()[0].is_out(Instant::now())
}

/// Reads a head, and says nothing.
fn silent(stream: TcpStream) {
    let mut reader = reader(&stream);
    let _ = head(&mut reader);
    let _ = head(&mut reader);
}

#[test]
fn a_server_has_its_time_for_the_head_even_if_that_is_the_shortest() {
    let (server, _) = scripted(silent);
    let (proxy, live) = strict(&server, "head-time = \"300ms\"");
    let mut client = Client::of(&proxy);
    let begun = Instant::now();
    client.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(client.head().starts_with("http/1.1 504 "));
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
    assert!(is_out(&live));
}

#[test]
fn a_head_that_comes_in_drops_or_behind_interim_responses_has_no_more_time() {
    for (first, again) in [("HTTP/1.1 200 OK\r\n", "a: b\r\n"), ("", "HTTP/1.1 103 Early Hints\r\n\r\n")] {
        let (server, _) = scripted(move |mut stream| {
            let _ = head(&mut reader(&stream));
            let mut wrote = stream.write_all(first.as_bytes());
            while wrote.is_ok() {
                thread::sleep(Duration::from_millis(60));
                wrote = stream.write_all(again.as_bytes());
            }
        });
        let (proxy, live) = strict(&server, "head-time = \"400ms\"\nconnect-time = \"400ms\"");
        let mut client = Client::of(&proxy);
        client.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
        assert!(client.head().starts_with("http/1.1 504 "), "{again:?}");
        assert!(is_out(&live));
    }
}

#[test]
fn a_response_that_stops_is_cut_off() {
    let (server, _) = scripted(|mut stream| {
        let mut reader = reader(&stream);
        let _ = head(&mut reader);
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n0123456789").unwrap();
        let _ = head(&mut reader);
    });
    let (proxy, live) = strict(&server, "body-time = \"300ms\"");
    let mut client = Client::of(&proxy);
    let begun = Instant::now();
    client.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(length(&client.head()), Some(100));
    assert!(client.reader.read_to_end(&mut Vec::new()).is_err(), "it does not look whole");
    assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
    assert!(is_out(&live));
}

#[test]
fn a_request_that_stops_is_the_fault_of_its_client() {
    for rest in ["Content-Length: 9\r\n\r\nabc", "Transfer-Encoding: chunked\r\n\r\n9\r\nabc"] {
        let (server, _) = scripted(silent);
        let (proxy, live) = strict(&server, "body-time = \"300ms\"");
        let mut client = Client::of(&proxy);
        client.ask(&format!("POST / HTTP/1.1\r\nHost: a\r\n{rest}"));
        assert!(client.head().starts_with("http/1.1 408 "));
        assert!(!is_out(&live));
        let _ = client.rest();
    }
}

#[test]
fn a_server_that_takes_no_body_is_at_fault() {
    let (server, _) = scripted(|stream| {
        let mut reader = reader(&stream);
        let _ = head(&mut reader);
        // It reads nothing more.
        thread::sleep(kit::LONG);
    });
    let (proxy, live) = strict(&server, "body-time = \"500ms\"");
    let mut client = Client::of(&proxy);
    client.ask("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000000\r\n\r\n");
    let mut stream = client.stream.try_clone().unwrap();
    let sends = thread::spawn(move || while stream.write_all(&[7; 10_000]).is_ok() {});
    assert!(client.head().starts_with("http/1.1 504 "));
    assert!(is_out(&live));
    drop(client);
    drop(proxy);
    sends.join().unwrap();
}

#[test]
fn a_client_that_reads_late_gets_everything() {
    const LEN: usize = 30_000_000;
    let (server, _) = scripted(|mut stream| {
        let mut reader = reader(&stream);
        let _ = head(&mut reader);
        write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {LEN}\r\n\r\n").unwrap();
        stream.write_all(&vec![b'x'; LEN]).unwrap();
    });
    let (proxy, live) = strict(&server, "body-time = \"200ms\"\nconnect-time = \"5s\"\nhead-time = \"5s\"");
    let mut client = Client::of(&proxy);
    client.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(length(&client.head()), Some(LEN));
    thread::sleep(Duration::from_millis(1500));
    assert_eq!(client.exact(LEN).len(), LEN);
    assert!(!is_out(&live));
}

/// The time counts from the last byte, either way, and not from a look at the tunnel.
#[test]
fn a_silent_tunnel_ends_when_its_time_is_up() {
    let (server, _) = scripted(changing);
    let proxy = proxy_with(&server, "tunnel-time = \"4s\"\nconnect-time = \"1s\"");
    let mut client = Client::of(&proxy);
    client.ask(UPGRADE);
    assert!(client.head().starts_with("http/1.1 101 "));
    // Behind a first look.
    thread::sleep(Duration::from_millis(1500));
    let sent = Instant::now();
    client.ask("x");
    assert_eq!(client.exact(1), "x");
    let heard = Instant::now();
    assert_eq!(client.reader.fill_buf().unwrap(), b"", "its end");
    assert!(sent.elapsed() >= Duration::from_millis(3900), "{:?}", sent.elapsed());
    // A deadline that is only looked at each four seconds would be up after 6.5.
    assert!(heard.elapsed() < Duration::from_secs(6), "{:?}", heard.elapsed());
}

#[test]
fn idle_connections_and_silent_tunnels_end() {
    let (ended, ends) = channel();
    let (server, _) = scripted(move |stream| {
        changing(stream.try_clone().unwrap());
        ended.send(()).unwrap();
    });
    let proxy = proxy_with(&server, "idle-time = \"200ms\"\ntunnel-time = \"200ms\"\nconnect-time = \"1s\"");
    let mut client = Client::of(&proxy);
    client.ask("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    let _ = client.head();
    assert_eq!(client.exact(2), "ok");
    ends.recv_timeout(kit::LONG).unwrap();
    client.ask(UPGRADE);
    assert!(client.head().starts_with("http/1.1 101 "));
    assert_eq!(client.reader.fill_buf().unwrap(), b"", "its end");
    ends.recv_timeout(kit::LONG).unwrap();
}
