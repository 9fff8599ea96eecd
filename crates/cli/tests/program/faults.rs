//! The server while its disk is full, while it is stopped, and when clients or it are told to end amid transfers.

use super::{Home, Served};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const UPGRADE: &[u8] = b"GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n";

pub(super) fn signal(process: &str, name: &str) {
    assert!(Command::new("kill").args([name, process]).status().unwrap().success());
}

/// A WebSocket without TLS to an echo server.
fn open(server: &Served) -> TcpStream {
    let mut stream = TcpStream::connect(("127.0.0.1", server.port().parse().unwrap())).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream.write_all(UPGRADE).unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.extend(byte);
    }
    assert!(head.starts_with(b"HTTP/1.1 101"), "{}", String::from_utf8_lossy(&head));
    stream
}

/// The content of a message: 1,000 bytes that tell its number.
fn content(number: u32) -> Vec<u8> {
    number.to_be_bytes().repeat(250)
}

/// A binary message in one frame, with a mask of zeros.
fn frame(number: u32) -> Vec<u8> {
    [&[0x82, 0x80 | 126, 0x03, 0xe8, 0, 0, 0, 0][..], &content(number)].concat()
}

/// Reads the next frame of the server: its opcode and content. `None` at the end of the stream.
fn read_frame(stream: &mut TcpStream) -> Option<(u8, Vec<u8>)> {
    let mut head = [0; 2];
    match stream.read(&mut head[..1]).unwrap() {
        0 => return None,
        _ => stream.read_exact(&mut head[1..]).unwrap(),
    }
    let mut len = usize::from(head[1]);
    if len == 126 {
        let mut long = [0; 2];
        stream.read_exact(&mut long).unwrap();
        len = usize::from(u16::from_be_bytes(long));
    }
    let mut content = vec![0; len];
    stream.read_exact(&mut content).unwrap();
    Some((head[0] & 0x0f, content))
}

#[test]
fn a_full_disk_for_the_log_stops_nothing() {
    let home = Home::new();
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let server = home.serve_with(&["--plain"], |command| {
        command.env("RUST_LOG", "trace").stderr(full);
    });
    for number in 0..10 {
        let mut stream = open(&server);
        stream.write_all(&frame(number)).unwrap();
        assert_eq!(read_frame(&mut stream), Some((2, content(number))));
    }
    assert_eq!(server.stop().code, Some(0));
}

#[test]
fn a_server_that_restarts_says_when_it_is_back() {
    let home = Home::new();
    let server = home.serve(&["--plain", "--back-in", "2.5"]);
    let mut streams = [open(&server), open(&server)];
    signal(&server.pid(), "-TERM");
    for stream in &mut streams {
        let (opcode, content) = read_frame(stream).unwrap();
        assert_eq!((opcode, &content[..2]), (8, &1012_u16.to_be_bytes()[..]));
        let reason = std::str::from_utf8(&content[2..]).unwrap();
        let told = reason.strip_prefix("retry-after=").and_then(|reason| reason.strip_suffix("s the server restarts"));
        // No handshake was measured, so clients return at the slowest pace: five hundred per second.
        let seconds: f64 = told.unwrap_or_else(|| panic!("{reason}")).parse().unwrap();
        assert!((2.0..=2.51).contains(&seconds), "{reason}");
    }
    drop(streams);
    let error = home.taut(&["serve", "--plain", "--back-in", "soon"]).output().unwrap();
    assert!(String::from_utf8_lossy(&error.stderr).contains("no number of seconds"), "{error:?}");
}

#[test]
fn a_server_that_was_stopped_for_a_while_goes_on() {
    let home = Home::new();
    let server = home.serve(&["--plain"]);
    let mut streams: Vec<TcpStream> = (0..50).map(|_| open(&server)).collect();
    signal(&server.pid(), "-STOP");
    for stream in &mut streams {
        (0..20).for_each(|number| stream.write_all(&frame(number)).unwrap());
    }
    // The kernel accepts connections meanwhile.
    let waiting = TcpStream::connect(("127.0.0.1", server.port().parse().unwrap())).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    signal(&server.pid(), "-CONT");
    for stream in &mut streams {
        (0..20).for_each(|number| assert_eq!(read_frame(stream), Some((2, content(number)))));
    }
    drop((streams, waiting));
    assert_eq!(server.stop().code, Some(0));
}

#[test]
fn clients_that_are_killed_leave_no_connection() {
    let home = Home::new();
    let server = home.serve(&["--plain", "--app", "feed", "--feed-rate", "1000", "--feed-size", "1000"]);
    let connect = |_| {
        let mut client = home.taut(&["connect", &server.url]).stdout(Stdio::piped()).spawn().unwrap();
        client.stdout.as_mut().unwrap().read_exact(&mut [0; 1000]).unwrap();
        client
    };
    let mut clients: Vec<_> = (0..5).map(connect).collect();
    clients.iter_mut().for_each(|client| client.kill().unwrap());
    clients.iter_mut().for_each(|client| assert!(!client.wait().unwrap().success()));
    // A drain waits for connections that are there, by default for ten seconds.
    let start = Instant::now();
    assert_eq!(server.stop().code, Some(0));
    assert!(start.elapsed() < Duration::from_secs(8), "{:?}", start.elapsed());
}

/// 10,000 messages are on their way when the server is told to end. Each connection gets the answers to its first messages,
/// in order and whole, and then a close frame.
#[test]
fn a_server_that_ends_amid_transfers_cuts_none() {
    const EACH: u32 = 100;
    let home = Home::new();
    let mut server = home.serve(&["--plain"]);
    let mut streams: Vec<TcpStream> = (0..100).map(|_| open(&server)).collect();
    let pid = server.pid();
    for (place, stream) in streams.iter_mut().enumerate() {
        if place == 50 {
            signal(&pid, "-TERM");
        }
        let messages: Vec<u8> = (0..EACH).flat_map(frame).collect();
        // A server that has ended already takes no more.
        if stream.write_all(&messages).is_err() {
            assert!(place >= 50);
        }
    }
    for (place, stream) in streams.iter_mut().enumerate() {
        let mut answers = 0;
        let (opcode, last) = loop {
            match read_frame(stream).expect("an end without a close frame") {
                (2, echo) => assert_eq!(echo, content(answers), "answer {answers} of connection {place}"),
                other => break other,
            }
            answers += 1;
        };
        assert!(answers <= EACH && opcode == 8 && last[..2] == 1001_u16.to_be_bytes(), "{opcode} {last:?}");
    }
    drop(streams);
    // Without another signal, which would stop it at once.
    assert_eq!(server.child.as_mut().unwrap().wait().unwrap().code(), Some(0));
}
