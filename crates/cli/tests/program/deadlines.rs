//! The deadlines of `taut serve`, as clients that let them pass meet them.

use super::{Home, Served};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// The presets have no deadline that is as short.
const SOON: Duration = Duration::from_secs(4);

const UPGRADE: &str = "GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                       Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n";

fn connect(server: &Served) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", server.port().parse().unwrap())).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    stream
}

/// Sends a request, and reads the head of the answer.
fn ask(stream: &mut TcpStream, request: &str) -> String {
    stream.write_all(request.as_bytes()).unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.extend(byte);
    }
    String::from_utf8(head).unwrap()
}

fn open(server: &Served) -> TcpStream {
    let mut stream = connect(server);
    assert!(ask(&mut stream, UPGRADE).starts_with("HTTP/1.1 101 "));
    stream
}

/// The first byte and the payload of the next short frame.
fn frame(stream: &mut TcpStream) -> (u8, Vec<u8>) {
    let mut head = [0; 2];
    stream.read_exact(&mut head).unwrap();
    let mut payload = vec![0; usize::from(head[1])];
    stream.read_exact(&mut payload).unwrap();
    (head[0], payload)
}

/// Whether the server ends the connection in time, perhaps after bytes.
fn ends(stream: &mut TcpStream) -> bool {
    let mut rest = [0; 4096];
    loop {
        match stream.read(&mut rest) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return error.kind() == std::io::ErrorKind::ConnectionReset,
        }
    }
}

#[test]
fn a_quiet_client_gets_pings() {
    let home = Home::new();
    let server = home.serve(&["--plain", "--ping", "100ms", "--idle", "off"]);
    assert_eq!(frame(&mut open(&server)).0, 0x89);
}

#[test]
fn pongs_do_not_break_the_silence() {
    let home = Home::new();
    let server = home.serve(&["--plain", "--ping", "50ms", "--idle", "off", "--silence", "400ms"]);
    let mut client = open(&server);
    let mut pongs = 0;
    loop {
        let (first, payload) = frame(&mut client);
        if first != 0x89 {
            assert_eq!((first, &payload[..2]), (0x88, &1001_u16.to_be_bytes()[..]));
            break;
        }
        let length = 0x80 | u8::try_from(payload.len()).unwrap();
        // The mask is 0.
        client.write_all(&[&[0x8a, length, 0, 0, 0, 0], &payload[..]].concat()).unwrap();
        pongs += 1;
    }
    assert!(pongs > 0);
}

#[test]
fn handshakes_and_plain_connections_have_their_times() {
    let home = Home::new();
    let server = home.serve(&["--plain", "--handshake-time", "200ms"]);
    assert!(ends(&mut connect(&server)));
    let server = home.serve(&["--plain", "--http-time", "200ms"]);
    let mut client = connect(&server);
    assert!(ask(&mut client, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").starts_with("HTTP/1.1 200 "));
    assert!(ends(&mut client));
}

#[test]
fn a_client_that_answers_no_close_frame_is_cut_off() {
    let home = Home::new();
    let server = home.serve(&["--plain", "--close-time", "200ms"]);
    let mut client = open(&server);
    assert!(std::process::Command::new("kill").args(["-TERM", &server.pid()]).status().unwrap().success());
    assert_eq!(frame(&mut client).0, 0x88);
    let closing = Instant::now();
    assert_eq!(server.wait().code, Some(0));
    assert!(closing.elapsed() < SOON && ends(&mut client), "{:?}", closing.elapsed());
}

#[test]
fn a_client_that_takes_nothing_is_cut_off() {
    let home = Home::new();
    let feed = ["--plain", "--preset", "low-latency", "--app", "feed", "--feed-rate", "2000", "--feed-size", "20000"];
    let server = home.serve(&[&feed[..], &["--send-time", "300ms"]].concat());
    let mut client = open(&server);
    std::thread::sleep(Duration::from_millis(2500));
    // Then it takes what the kernel has. A connection that goes on has as much again within this time.
    let (began, mut taken, mut some) = (Instant::now(), 0, vec![0; 1 << 20]);
    let ended = loop {
        match client.read(&mut some) {
            Ok(0) | Err(_) => break true,
            Ok(_) if began.elapsed() > SOON => break false,
            Ok(count) => taken += count,
        }
    };
    assert!(ended && taken > 0, "{taken} bytes");
}

#[test]
fn an_application_of_a_hub_has_the_time_for_an_answer() {
    let home = Home::new();
    // It accepts and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = silent.local_addr().unwrap();
    std::fs::write(home.0.join("hook.secret"), "0123456789abcdef0123456789abcdef\n").unwrap();
    let rules = format!(
        "[hooks]\nurl = \"http://{url}/\"\nsecret = \"hook.secret\"\nasks = [\"connect\"]\nwithin = 30\n\
         [[namespace]]\ntopics = \"*\"\nanyone = [\"subscribe\"]\n"
    );
    std::fs::write(home.0.join("hub.toml"), rules).unwrap();
    let server = home.serve(&["--plain", "--app", "hub", "--rules", "hub.toml", "--answer-time", "200ms"]);
    let answer = ask(&mut connect(&server), UPGRADE);
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
}
