//! A shard with one connection over the fake driver.
#![expect(unreachable_pub, reason = "each test binary that includes this is a crate of its own")]
#![allow(dead_code, reason = "each test binary uses a part of this")]

use crate::fake::{Event, Fake};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tautline_engine::{Closed, Config, Conn, ConnId, Delivery, Handler, Opening, Outgoing, Shard, SlowConsumer};
use tautline_tls::plain;
use tautline_ws::Message;

pub const UPGRADE: &[u8] = b"GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n";
pub type Act = Box<dyn FnMut(&mut Conn<'_, ()>)>;

/// Echoes, and calls a test's closure in `on_drain`.
#[derive(Default)]
pub struct App {
    pub conns: Vec<ConnId>,
    pub drained: usize,
    pub on_drain: Option<Act>,
    pub seen: Vec<String>,
    pub pause_at: Option<String>,
    pub closed: Vec<Closed>,
    pub timers: Vec<u64>,
}

impl Handler for App {
    type State = ();

    fn on_open(&mut self, conn: &mut Conn<'_, ()>, _opening: &Opening<'_>) {
        self.conns.push(conn.id());
    }

    fn on_message(&mut self, conn: &mut Conn<'_, ()>, message: Message<'_>) {
        let text = message.text().unwrap();
        self.seen.push(text.to_owned());
        if self.pause_at.as_deref() == Some(text) {
            conn.pause(true);
        }
        conn.send(Outgoing::from(&message));
    }

    fn on_drain(&mut self, conn: &mut Conn<'_, ()>) {
        self.drained += 1;
        if let Some(act) = &mut self.on_drain {
            act(conn);
        }
    }

    fn on_timer(&mut self, _: &mut Conn<'_, ()>, id: u64) {
        self.timers.push(id);
    }

    fn on_close(&mut self, conn: &mut Conn<'_, ()>, closed: &Closed) {
        assert_eq!(conn.text("too late"), Delivery::Closed, "{closed:?}");
        self.closed.push(closed.clone());
    }
}

pub struct Bench {
    pub kernel: Fake,
    pub shard: Shard<plain::Engine, App>,
}

impl Bench {
    /// An open connection whose peer has read the 101 response and reads no more.
    pub fn new(config: Config) -> Self {
        let kernel = Fake::default();
        let mut shard = Shard::new(0, Arc::new(config), plain::Engine, kernel.clone(), App::default()).unwrap();
        kernel.0.borrow_mut().room = 129;
        kernel.push(Event::Accept);
        kernel.push(Event::Bytes(0, UPGRADE.to_vec()));
        shard.turn(Some(Duration::ZERO)).unwrap();
        let bench = Self { kernel, shard };
        assert!(bench.kernel.received(0).ends_with(b"\r\n\r\n"));
        assert_eq!(bench.kernel.with(0, |wire| wire.room), 0);
        bench
    }

    pub fn policy(slow_consumer: SlowConsumer) -> Self {
        let mut config = Config::default();
        config.slow_consumer = slow_consumer;
        let mut bench = Self::new(config);
        // Reported as sent: nothing was in flight before, so the engine cannot know that the peer does not read.
        assert_eq!(bench.send("first"), Delivery::Sent);
        bench
    }

    pub fn turn(&mut self) {
        self.shard.turn(Some(Duration::ZERO)).unwrap();
    }

    pub fn wait(&mut self, time: Duration) {
        let end = Instant::now() + time;
        while Instant::now() < end {
            std::thread::sleep(Duration::from_millis(5));
            self.turn();
        }
    }

    pub fn act<R>(&mut self, act: impl FnOnce(&mut Conn<'_, ()>) -> R) -> R {
        let conn = self.shard.handler().conns[0];
        let result = self.shard.with_conn(conn, |_, conn| act(conn)).unwrap();
        self.shard.flush();
        result
    }

    pub fn send(&mut self, text: &str) -> Delivery {
        self.act(|conn| conn.text(text))
    }

    pub fn send_keyed(&mut self, key: u64, text: &str) -> Delivery {
        self.act(|conn| conn.send(Outgoing::text(text).with_key(key)))
    }

    /// Lets the peer read, and returns the texts and control frames that it got.
    pub fn read(&mut self) -> Vec<String> {
        self.kernel.push(Event::Room(0, usize::MAX));
        self.turn();
        let mut received = Vec::new();
        // A turn may end before all is sent.
        loop {
            self.turn();
            let more = self.kernel.received(0);
            if more.is_empty() {
                return frames(&received);
            }
            received.extend(more);
        }
    }
}

/// Unmasked frames: texts as they are, others by their first byte and payload.
pub fn frames(mut bytes: &[u8]) -> Vec<String> {
    let mut frames = Vec::new();
    while let [first, len, rest @ ..] = bytes {
        let (len, rest) = match len {
            126 => (usize::from(u16::from_be_bytes([rest[0], rest[1]])), &rest[2..]),
            127 => (usize::try_from(u64::from_be_bytes(rest[..8].try_into().unwrap())).unwrap(), &rest[8..]),
            len => (usize::from(*len), rest),
        };
        let text = String::from_utf8_lossy(&rest[..len]);
        frames.push(if *first == 0x81 { text.into_owned() } else { format!("{first:x} {text}") });
        bytes = &rest[len..];
    }
    frames
}

pub fn masked(text: &str) -> Vec<u8> {
    let len = u8::try_from(text.len()).unwrap();
    [&[0x81, 0x80 | len, 0, 0, 0, 0], text.as_bytes()].concat()
}
