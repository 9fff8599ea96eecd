//! `--ktls`, on kernels with TLS, as in the virtual machine of `cargo xtask vm-test`.

use super::{Home, Served};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;
use tautline::layers::io::kernel::{self, Support};
use tautline_testkit::raw_peer::{RawPeer, kind, read_record};

/// The features of this kernel's TLS; `None` if it has none, which fails the test if `TAUTLINE_KTLS` is set.
fn here() -> Option<Support> {
    let wanted = std::env::var("TAUTLINE_KTLS").ok();
    match kernel::probe() {
        Ok(support) => {
            assert!(support.rekeys || wanted.as_deref() != Some("rekeys"), "the kernel takes no new keys");
            Some(support)
        }
        Err(error) => {
            assert_eq!(wanted, None, "{error}");
            eprintln!("skipped: {error}");
            None
        }
    }
}

/// Keys that the kernel took for sending and for receiving (`/proc/net/tls_stat`).
fn taken() -> [u64; 2] {
    let text = std::fs::read_to_string("/proc/net/tls_stat").unwrap();
    ["TlsTxSw", "TlsRxSw"].map(|name| {
        let line = text.lines().find(|line| line.split_whitespace().next() == Some(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    })
}

#[test]
fn servers_loads_and_clients_leave_records_to_the_kernel() {
    let Some(Support { rekeys, .. }) = here() else { return };
    let home = Home::new();
    let auto = u64::from(rekeys);
    for (driver, halves, received) in
        [("epoll", "--ktls", auto), ("epoll", "--ktls=rx", 1), ("select", "--ktls=both", 1)]
    {
        let arguments = ["--driver", driver, halves];
        let sent = u64::from(halves != "--ktls=rx");
        let before = taken();
        let server = home.serve(&arguments);
        let load = ["load", &server.url, "--connections", "3", "--size", "5000", "--duration", "0.3"];
        let said = home.run(&[&load[..], &["--warmup", "0.1"], &arguments].concat());
        assert_eq!(said.code, Some(0), "{driver} {halves}: {said:?}");
        let after_load = taken();
        let said = home.run_with(&[&["connect", "--wait", "0.5", &server.url], &arguments[..]].concat(), "hello\n");
        assert_eq!((said.code, said.out.as_str()), (Some(0), "hello\n"), "{driver} {halves}: {}", said.err);
        // Both ends of each connection count, and each process tries the kernel's TLS once, for sending.
        let grown = |from: [u64; 2], to: [u64; 2]| [to[0] - from[0], to[1] - from[1]];
        assert_eq!(grown(before, after_load), [6 * sent + 2, 6 * received], "{driver} {halves}");
        assert_eq!(grown(after_load, taken()), [2 * sent + 1, 2 * received], "{driver} {halves}");
        let stopped = server.stop();
        assert_eq!(stopped.code, Some(0), "{stopped:?}");
    }
}

/// A client whose TLS keys the test changes.
struct Client {
    stream: TcpStream,
    raw_peer: RawPeer,
    inbox: Vec<u8>,
}

impl Client {
    fn new(home: &Home, server: &Served) -> Self {
        let authority = std::fs::read_to_string(home.0.join("tautline/ca.pem")).unwrap();
        let mut stream = TcpStream::connect(("127.0.0.1", server.port().parse().unwrap())).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        let raw_peer = RawPeer::connect(&mut stream, &authority, None);
        let mut client = Self { stream, raw_peer, inbox: Vec::new() };
        client.send(
            kind::DATA,
            b"GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
              Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n",
        );
        client.until(|inbox| inbox.ends_with(b"\r\n\r\n")).unwrap();
        assert!(client.inbox.starts_with(b"HTTP/1.1 101 "));
        client
    }

    fn send(&mut self, kind: u8, content: &[u8]) {
        let record = self.raw_peer.seal(kind, content, 0);
        self.stream.write_all(&record).unwrap();
    }

    /// Receives data until there is enough. An alert is an error.
    fn until(&mut self, enough: impl Fn(&[u8]) -> bool) -> Result<(), Vec<u8>> {
        while !enough(&self.inbox) {
            let record = read_record(&mut self.stream).unwrap();
            for (kind, content) in self.raw_peer.open(&record) {
                match kind {
                    kind::DATA => self.inbox.extend(content),
                    kind::HANDSHAKE => {}
                    _ => return Err(content),
                }
            }
        }
        Ok(())
    }

    /// Sends a text of less than 126 bytes, and receives its echo.
    fn echoes(&mut self, text: &str) {
        let len = u8::try_from(text.len()).unwrap();
        self.inbox.clear();
        // Masked with zeros.
        self.send(kind::DATA, &[&[0x81, 0x80 | len, 0, 0, 0, 0], text.as_bytes()].concat());
        let expected = [&[0x81, len], text.as_bytes()].concat();
        self.until(|inbox| inbox.len() >= expected.len()).unwrap();
        assert_eq!(self.inbox, expected);
    }

    /// Changes the key for sending, and requests that the server change its own.
    fn changes_both_keys(&mut self) {
        self.send(kind::HANDSHAKE, &[24, 0, 0, 1, 1]);
        self.raw_peer.tx.update();
    }
}

#[test]
fn a_client_changes_the_keys_of_both_directions() {
    let Some(Support { rekeys, .. }) = here() else { return };
    let home = Home::new();
    for driver in ["epoll", "select"] {
        let server = home.serve(&["-v", "--driver", driver, "--ktls=both"]);
        let mut client = Client::new(&home, &server);
        client.echoes("under the first keys");
        for round in 0..3 {
            client.changes_both_keys();
            if !rekeys {
                // An internal_error, and the reason in the log.
                assert_eq!(client.until(|_| false), Err(vec![2, 80]), "{driver}");
                let mut rest = Vec::new();
                client.stream.read_to_end(&mut rest).unwrap();
                let said = server.stop();
                assert!(said.err.contains("Linux does from 6.14 on"), "{driver}: {}", said.err);
                break;
            }
            client.echoes(&format!("under other keys: {round}"));
        }
    }
}
