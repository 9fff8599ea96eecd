//! Nothing is left of pairs that have ended. Alone in its process, whose descriptors it counts.
#![expect(clippy::unwrap_used, reason = "all of this runs inside tests")]

mod kit;

use kit::{Client, head, proxy, reader, scripted};
use std::io::{Read as _, Write as _};
use std::thread;
use std::time::{Duration, Instant};

/// The descriptors of this process.
fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

#[test]
fn nothing_is_left_of_pairs_that_end_in_any_way() {
    let (server, _) = scripted(|mut stream| {
        let mut reader = reader(&stream);
        let Some(head) = head(&mut reader) else { return };
        let path = head.split(' ').nth(1).unwrap();
        let _ = stream.write_all(match path {
            "/garbage" => &b"garbage\r\n\r\n"[..],
            "/head" => b"HTTP/1.1 200 OK\r\nContent-",
            "/body" => b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf",
            "/chunk" => b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhe",
            "/bad-chunk" => b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello;;",
            _ => {
                b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                   Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\nhalf a fra"
            }
        });
    });
    let proxy = proxy(&[server]);
    let before = descriptors();
    for number in 0..200 {
        let path = ["/garbage", "/head", "/body", "/chunk", "/bad-chunk", "/tunnel"][number % 6];
        let mut client = Client::of(&proxy);
        client.ask(&format!(
            "GET {path} HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        ));
        let head = client.head();
        let status = if number % 6 < 2 {
            502
        } else if path == "/tunnel" {
            101
        } else {
            200
        };
        assert!(head.starts_with(&format!("http/1.1 {status} ")), "{path}: {head}");
        if number % 12 < 6 && status != 502 {
            let is_cut = client.reader.read_to_end(&mut Vec::new()).is_err();
            assert_eq!(is_cut, status == 200, "{path}");
        }
    }
    let end = Instant::now() + kit::LONG;
    let left = || {
        let counters = proxy.shards()[0].counters();
        (counters.connections, counters.memory_sending, counters.memory_heads, counters.memory_partial)
    };
    while (left() != (0, 0, 0, 0) || descriptors() > before) && Instant::now() < end {
        thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(left(), (0, 0, 0, 0));
    assert!(descriptors() <= before, "{} of {before}", descriptors());
}
