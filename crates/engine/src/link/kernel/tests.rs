//! Giving a connection's keys to the kernel, over a fake driver that moves exactly the bytes that a test names.

use super::Handover;
use crate::fake::{Event, Fake};
use crate::{Config, Conn, Handler, Shard};
use std::sync::Arc;
use std::time::Duration;
use tautline_buf::Buf;
use tautline_buf::kernel_tls::Direction::{self, Receive, Transmit};
use tautline_buf::kernel_tls::{Cipher, TrafficKeys};
use tautline_io::KernelTls;
use tautline_tls::{Content, Engine, Error, Handshake, Opened, Plain, Session, TlsInfo};
use tautline_ws::Message;

/// The engine of a protocol with four-byte records. Its handshake is one byte from the client and ten from the server.
#[derive(Clone)]
struct FourByteEngine;

#[derive(Default)]
struct FourByteSession {
    taken: Vec<Direction>,
    /// A new key waits for the kernel.
    due: bool,
    /// The key has protected as many records as it may.
    worn_out: bool,
}

impl Engine for FourByteEngine {
    type Session = FourByteSession;

    fn capabilities(&self) -> &'static tautline_tls::Capabilities {
        tautline_tls::plain::Engine.capabilities()
    }

    fn accept(&self) -> Result<FourByteSession, Error> {
        Ok(FourByteSession::default())
    }

    fn connect(&self, _: &str) -> Result<FourByteSession, Error> {
        Ok(FourByteSession::default())
    }
}

fn keys(direction: Direction, sequence: u64) -> TrafficKeys {
    TrafficKeys { direction, cipher: Cipher::Aes128Gcm, key: [0; 32], iv: [0; 12], sequence }
}

impl Session for FourByteSession {
    fn handshake(&mut self, wire: &mut [u8], out: &mut Buf) -> Result<(usize, Handshake), Error> {
        if wire.is_empty() {
            return Ok((0, Handshake::Pending));
        }
        out.put(b"our flight");
        Ok((1, Handshake::Complete))
    }

    fn open(&mut self, wire: &mut [u8], _: &mut Buf, _: &mut Buf) -> Result<Opened, Error> {
        match wire.get(..4) {
            None => Ok(Opened { used: 0, content: Content::Partial }),
            Some(record) if record == b"keys" => {
                self.due = true;
                Ok(Opened { used: 4, content: Content::Control })
            }
            Some(_) => Ok(Opened { used: 4, content: Content::Data(Plain::in_wire(0..4)) }),
        }
    }

    fn seal(&mut self, plain: &[&[u8]], out: &mut Buf) -> Result<(), Error> {
        plain.iter().for_each(|chunk| out.put(chunk));
        self.worn_out = true;
        Ok(())
    }

    fn close(&mut self, _: &mut Buf) {}

    fn tls_info(&self) -> TlsInfo {
        TlsInfo::default()
    }

    fn kernel_keys(&self, direction: Direction) -> Option<TrafficKeys> {
        assert!(!self.taken.contains(&direction), "the kernel has these keys already");
        Some(keys(direction, 0))
    }

    fn kernel_took(&mut self, direction: Direction, rekeys: bool) {
        assert!(rekeys);
        self.taken.push(direction);
    }

    fn is_kernel_worn_out(&self) -> bool {
        self.worn_out
    }

    fn next_kernel_keys(&mut self) -> Option<TrafficKeys> {
        std::mem::take(&mut self.due).then(|| keys(Receive, 1))
    }
}

struct Nothing;

impl Handler for Nothing {
    type State = ();

    fn on_message(&mut self, _: &mut Conn<'_, ()>, _: Message<'_>) {}
}

struct Bench {
    kernel: Fake,
    shard: Shard<FourByteEngine, Nothing>,
}

impl Bench {
    /// A shard with one connection. Its kernel takes `room` bytes to send and `most_keys` keys.
    fn new(kernel_tls: KernelTls, room: usize, most_keys: usize) -> Self {
        let kernel = Fake::default();
        {
            let mut state = kernel.0.borrow_mut();
            (state.kernel_tls, state.room, state.most_keys) = (kernel_tls, room, most_keys);
        }
        let mut shard = Shard::new(0, Arc::new(Config::default()), FourByteEngine, kernel.clone(), Nothing).unwrap();
        kernel.push(Event::Accept);
        shard.turn(Some(Duration::ZERO)).unwrap();
        Self { kernel, shard }
    }

    /// Delivers `event`. Returns all keys given so far: direction, record number, and how many bytes the peer had
    /// received when they were given.
    fn after(&mut self, event: Event) -> Vec<(Direction, u64, usize)> {
        self.kernel.push(event);
        self.shard.turn(Some(Duration::ZERO)).unwrap();
        let given = self.kernel.0.borrow().keys.clone();
        given.iter().map(|(keys, had)| (keys.direction, keys.sequence, *had)).collect()
    }
}

#[test]
fn each_direction_goes_to_the_kernel_between_two_records() {
    let mut bench = Bench::new(KernelTls::Both, 3, 9);
    // The handshake, and half a record behind it. The kernel takes three of the ten bytes of our flight.
    assert_eq!(bench.after(Event::Bytes(0, b"1GE".to_vec())), []);
    assert_eq!(bench.after(Event::Room(0, 3)), []);
    assert_eq!(bench.after(Event::Bytes(0, b"T".to_vec())), [], "we received three of four bytes, and sent six of ten");
    assert_eq!(bench.after(Event::Room(0, 100)), [(Transmit, 0, 10)]);
    assert_eq!(
        bench.after(Event::Bytes(0, b" / ".to_vec())),
        [(Transmit, 0, 10)],
        "two bytes of the second record are carried"
    );
    assert_eq!(bench.after(Event::Bytes(0, b"HT".to_vec())), [(Transmit, 0, 10), (Receive, 0, 10)]);
}

#[test]
fn new_keys_are_given_before_anything_else_is_received() {
    let mut bench = Bench::new(KernelTls::Auto, 100, 9);
    let first = [(Transmit, 0, 10), (Receive, 0, 10)];
    assert_eq!(bench.after(Event::Bytes(0, b"1".to_vec())), first);
    assert_eq!(bench.after(Event::Bytes(0, b"keys".to_vec())), [first[0], first[1], (Receive, 1, 10)]);
    let mut unsent = Bench::new(KernelTls::Receive, 3, 9);
    assert_eq!(unsent.after(Event::Bytes(0, b"1".to_vec())), [(Receive, 0, 3)]);
    let given = unsent.after(Event::Bytes(0, b"keys".to_vec()));
    assert_eq!(given, [(Receive, 0, 3), (Receive, 1, 3)], "even while bytes wait to be sent");
}

#[test]
fn a_used_up_transmit_key_closes_with_1012() {
    let mut request = b"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
                        Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\nPad: "
        .to_vec();
    // Records are four bytes each.
    while !request.len().is_multiple_of(4) {
        request.push(b'a');
    }
    request.extend(b"\r\n\r\n");
    for (kernel_tls, closes) in [(KernelTls::Transmit, true), (KernelTls::Receive, false)] {
        let mut bench = Bench::new(kernel_tls, 10_000, 9);
        bench.after(Event::Bytes(0, b"1".to_vec()));
        bench.after(Event::Bytes(0, request.clone()));
        bench.shard.turn(Some(Duration::ZERO)).unwrap();
        let received = bench.kernel.received(0);
        assert!(received.starts_with(b"our flightHTTP/1.1 101"));
        // A close frame with the code 1012.
        assert_eq!(received.windows(4).any(|four| matches!(four, [0x88, _, 0x03, 0xf4])), closes, "{kernel_tls}");
    }
}

#[test]
fn refused_keys_leave_records_in_user_space() {
    let mut bench = Bench::new(KernelTls::Both, 100, 0);
    assert_eq!(bench.after(Event::Bytes(0, b"1".to_vec())), []);
    assert_eq!(bench.after(Event::Bytes(0, b"GET ".to_vec())), []);
    assert_eq!(bench.kernel.with(0, |wire| wire.closed), None, "the connection goes on");
    let mut off = Bench::new(KernelTls::Off, 100, 9);
    assert_eq!(off.after(Event::Bytes(0, b"1".to_vec())), []);
}

#[test]
fn auto_hands_receiving_over_only_if_keys_can_be_replaced() {
    for (rekeys, receives) in [(true, true), (false, false)] {
        let mut handover = Handover::new(KernelTls::Auto);
        assert!(handover.has(Handover::TRANSMIT) && !handover.has(Handover::RECEIVE));
        handover.took(Transmit, rekeys);
        assert_eq!(handover.has(Handover::RECEIVE), receives);
        assert!(!handover.has(Handover::TRANSMIT) && handover.is_active());
    }
    let mut both = Handover::new(KernelTls::Both);
    both.took(Receive, false);
    assert!(both.has(Handover::TRANSMIT) && !both.has(Handover::RECEIVE));
    assert!(!Handover::new(KernelTls::Off).is_active());
}
