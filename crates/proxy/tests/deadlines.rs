//! Deadlines of requests and tunnels, between real sockets.
#![expect(clippy::unwrap_used, reason = "all of this runs inside tests")]

mod kit;

use kit::{Client, head, proxy_with, reader, scripted};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

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
