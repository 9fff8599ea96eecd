//! Clients whose requests are short and whose answers are long, beside an honest one.

use crate::helpers::{PATIENCE, client, publish, stop, subscribe};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tautline::{Address, Server, ServerHandle};
use tautline_hub::{Client, Event, Hub, Subscribe};

/// Members of the topic, and bytes of each name: a list of 250 KB.
const MEMBERS: usize = 1_000;
const NAME: usize = 200;
/// Messages of the honest client whose latency is taken at a time, and the time between two of them.
const MESSAGES: usize = 200;
const PACE: Duration = Duration::from_millis(3);
/// The honest latency beside an amplifier may be this many times the quiet one, or so much more. Where nothing is optimized one
/// page of history takes milliseconds, and the threads of the amplifier take their share of the processors.
const MOST_TIMES: u32 = 3;
const MOST_MORE: Duration = Duration::from_millis(if cfg!(debug_assertions) { 50 } else { 2 });
/// Measurements. Another program on this machine does not disturb all of them.
const ROUNDS: usize = 8;

fn address(server: &ServerHandle) -> SocketAddr {
    let Address::Tcp(address) = server.addresses()[0] else { panic!("a TCP address") };
    address
}

/// A text frame with a mask of zeros.
fn frame(text: &str) -> Vec<u8> {
    let len = u16::try_from(text.len()).unwrap().to_be_bytes();
    let mut frame = vec![0x81];
    match text.len() {
        0..126 => frame.push(0x80 | len[1]),
        _ => frame.extend([0x80 | 126, len[0], len[1]]),
    }
    [frame, vec![0; 4], text.into()].concat()
}

/// A connection that is open.
fn raw(server: &ServerHandle) -> TcpStream {
    let mut stream = TcpStream::connect(address(server)).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream
        .write_all(
            b"GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
              Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n",
        )
        .unwrap();
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    stream
}

/// Fills a topic with members who have long names. They stay for as long as the connections do.
fn crowd(server: &ServerHandle) -> Vec<TcpStream> {
    let join = |number: usize| {
        let name = format!("{number}{}", "n".repeat(NAME));
        let mut stream = raw(server);
        let text = format!(r#"{{"type":"subscribe","topic":"room","as":"{name}"}}"#);
        stream.write_all(&frame(&text)).unwrap();
        stream.read_exact(&mut [0; 10]).unwrap();
        stream
    };
    (0..MEMBERS).map(join).collect()
}

/// The 99th percentile of the honest client's latency: from a message to its return.
fn p99(honest: &Client) -> Duration {
    let mut took: Vec<Duration> = Vec::new();
    for number in 0..MESSAGES {
        let begun = Instant::now();
        honest.publish_once("honest", None, &number.to_string()).unwrap();
        loop {
            match honest.next_within(PATIENCE).unwrap() {
                Event::Message(message) if message.data == number.to_string() => break,
                _ => {}
            }
        }
        took.push(begun.elapsed());
        std::thread::sleep(PACE);
    }
    took.sort_unstable();
    took[MESSAGES * 99 / 100]
}

/// Takes what the threads of the hub and of the honest client leave of the processors: an amplifier would have a machine of its own.
fn give_way() {
    tautline::layers::io::machine::run_when_idle().unwrap();
}

/// Asks again and again, as fast as the hub answers, and reads all answers.
fn amplify(server: &ServerHandle, asks: &[String], stop: &AtomicBool, answered: &AtomicU64) {
    let stream = raw(server);
    stream.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    stream.set_write_timeout(Some(Duration::from_millis(100))).unwrap();
    let asks: Vec<u8> = asks.iter().flat_map(|ask| frame(ask)).collect();
    let (mut reader, mut writer) = (stream.try_clone().unwrap(), stream);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            give_way();
            let mut buffer = vec![0; 1 << 20];
            while !stop.load(Ordering::Relaxed) {
                match reader.read(&mut buffer) {
                    Ok(0) => return,
                    Ok(read) => _ = answered.fetch_add(read as u64, Ordering::Relaxed),
                    Err(_) => {}
                }
            }
        });
        give_way();
        let mut left: &[u8] = &[];
        while !stop.load(Ordering::Relaxed) {
            if left.is_empty() {
                left = &asks;
            }
            // A hub that does not read has the client wait.
            left = &left[writer.write(left).unwrap_or(0)..];
        }
    });
}

/// Measures an honest client beside the amplifier that sends these requests, each of a list in its turn.
fn judge(what: &str, server: &ServerHandle, asks: &[String]) {
    let honest = client(server);
    subscribe(&honest, "honest", Subscribe::default());
    let mut seen = Vec::new();
    for _ in 0..ROUNDS {
        let quiet = p99(&honest);
        let (stop, answered) = (AtomicBool::new(false), AtomicU64::new(0));
        let beside = std::thread::scope(|scope| {
            scope.spawn(|| amplify(server, asks, &stop, &answered));
            let end = Instant::now() + PATIENCE;
            while answered.load(Ordering::Relaxed) < 1 << 20 && Instant::now() < end {
                std::thread::sleep(Duration::from_millis(1));
            }
            let beside = p99(&honest);
            stop.store(true, Ordering::Relaxed);
            beside
        });
        assert!(answered.into_inner() >= 1 << 20, "{what}: it does not amplify");
        if beside <= (MOST_TIMES * quiet).max(quiet + MOST_MORE) {
            println!("{what}: p99 {beside:?}, {quiet:?} without it");
            return;
        }
        seen.push((quiet, beside));
    }
    panic!("{what}: p99 without it, and beside it: {seen:?}");
}

#[test]
fn an_honest_client_is_served_beside_each_amplifier() {
    let hub = Hub::default();
    // The honest client shares its loop with the amplifier.
    let server = Server::plain().shards(1).listen("127.0.0.1:0".parse().unwrap()).start(hub.handlers()).unwrap();
    let members = crowd(&server);
    let writer = client(&server);
    subscribe(&writer, "log:long", Subscribe::default());
    (0..500).for_each(|_| _ = publish(&writer, "log:long", None, &format!("\"{}\"", "x".repeat(1_000))));
    let list = r#"{"type":"subscribe","topic":"room","presence":true}"#.to_owned();
    judge("presence", &server, std::slice::from_ref(&list));
    let hello = r#"{"type":"hello","version":2}"#.to_owned();
    judge("presence, many times in a frame", &server, &[hello, format!("[{}]", vec![&*list; 200].join(","))]);
    // Each request changes the list too.
    let changing = r#"{"type":"subscribe","topic":"room","presence":true,"as":"a"}"#.to_owned();
    judge("presence of a member", &server, &[changing]);
    let history = r#"{"type":"subscribe","topic":"log:long","after":0}"#.to_owned();
    judge("history", &server, &[history]);
    let refused = r#"{"type":"?","topic":"a"}"#.to_owned();
    judge("requests that are refused", &server, &[refused]);
    drop(members);
    drop(writer);
    stop(server);
}

/// Watchers of a topic, clients that join and leave it, and what each of them sends at a time.
const WATCHERS: usize = 200;
const COMERS: usize = 16;
const PAIRS: usize = 120;
/// The honest latency while news of members go to all watchers. Each turn of the loop has two batches of them, which take tens of
/// milliseconds where nothing is optimized.
const MOST_BESIDE_NEWS: Duration = Duration::from_millis(100);

/// Reads all that comes to these connections.
fn read_all(streams: &mut [TcpStream], stop: &AtomicBool, read: &AtomicU64) {
    let mut buffer = vec![0; 1 << 18];
    streams.iter().for_each(|stream| stream.set_nonblocking(true).unwrap());
    while !stop.load(Ordering::Relaxed) {
        for stream in &mut *streams {
            while let Ok(1..) =
                stream.read(&mut buffer).inspect(|bytes| _ = read.fetch_add(*bytes as u64, Ordering::Relaxed))
            {
            }
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn an_honest_client_is_served_beside_news_of_members() {
    let hub = Hub::default();
    let server = Server::plain().shards(1).listen("127.0.0.1:0".parse().unwrap()).start(hub.handlers()).unwrap();
    let mut watchers: Vec<_> = (0..WATCHERS).map(|_| raw(&server)).collect();
    for stream in &mut watchers {
        stream.write_all(&frame(r#"{"type":"subscribe","topic":"room","presence":true}"#)).unwrap();
        stream.read_exact(&mut [0; 10]).unwrap();
    }
    let honest = client(&server);
    subscribe(&honest, "honest", Subscribe::default());
    let come = r#"{"type":"subscribe","topic":"room","as":"a"}"#.to_owned();
    let go = r#"{"type":"unsubscribe","topic":"room"}"#.to_owned();
    let asks: Vec<_> = std::iter::repeat_n([come, go], PAIRS).flatten().collect();
    let (stop_all, answered, told) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let (seen, flows) = std::thread::scope(|scope| {
        scope.spawn(|| read_all(&mut watchers, &stop_all, &told));
        for _ in 0..COMERS {
            scope.spawn(|| amplify(&server, &asks, &stop_all, &answered));
        }
        let end = Instant::now() + PATIENCE;
        while told.load(Ordering::Relaxed) < 4 << 20 && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(1));
        }
        let (mut seen, mut flows) = (Vec::new(), 0);
        // Another program on this machine does not disturb all of them.
        while seen.len() < ROUNDS && seen.last().is_none_or(|last| *last > MOST_BESIDE_NEWS) {
            let before = told.load(Ordering::Relaxed);
            seen.push(p99(&honest));
            flows = told.load(Ordering::Relaxed) - before;
        }
        stop_all.store(true, Ordering::Relaxed);
        (seen, flows)
    });
    println!("news of members: p99 {seen:?} beside {flows} bytes");
    assert!(flows >= 1 << 20, "the watchers get no news: {flows} bytes, {seen:?}");
    assert!(seen.last().unwrap() <= &MOST_BESIDE_NEWS, "{seen:?}");
    stop(server);
}
