//! Windows that close in both directions at once.

use super::{ACK, Bench, SYN, acknowledging, with_data};
use crate::Config;
use crate::frame::tests::frame;
use crate::frame::{ETHERNET, Pair};
use std::thread;
use std::time::Duration;
use tautline_buf::Buf;
use tautline_io::{Driver as _, Sent, Token};

const SEGMENT: usize = 1460;

/// A segment that the driver sent.
#[derive(Clone, Copy, Debug)]
struct Seen {
    sequence: u32,
    acknowledged: u32,
    window: u32,
    len: u32,
}

impl Seen {
    fn read(frame: &[u8]) -> Self {
        let tcp = &frame[ETHERNET + 20..];
        let word = |at: usize| u32::from_be_bytes(tcp[at..at + 4].try_into().unwrap());
        Self {
            sequence: word(4),
            acknowledged: word(8),
            window: u16::from_be_bytes([tcp[14], tcp[15]]).into(),
            len: u32::try_from(tcp.len() - usize::from(tcp[12] >> 4) * 4).unwrap(),
        }
    }

    /// The end of the range that the peer may send.
    fn edge(&self) -> u32 {
        self.acknowledged.wrapping_add(self.window)
    }
}

/// A peer with its state.
struct Peer {
    bench: Bench,
    pair: Pair,
    token: Token,
    /// Our next sequence number, and the first of the driver's that is not acknowledged.
    next: u32,
    first: u32,
}

impl Peer {
    /// Opens a connection, and offers window scaling.
    fn new(config: Config) -> Self {
        let mut bench = Bench::new(config);
        let pair = bench.pair(1);
        let mut opening = with_data(frame(pair, 1000, SYN), &[2, 4, 0x05, 0xb4, 3, 3, 7, 0]);
        opening[ETHERNET + 32] = 0x70;
        bench.driver.wire.wire.inbound.push_back(opening);
        bench.driver.turn(Some(Duration::ZERO), &mut bench.log).unwrap();
        let answer = bench.driver.wire.wire.outbound.pop().unwrap();
        let scale = answer[ETHERNET + 40..].windows(3).find(|option| option[..2] == [3, 3]).map(|option| option[2]);
        assert_eq!(scale, Some(0), "with scaling a window can move back, and both sides wait for ever");
        let first = Seen::read(&answer).sequence.wrapping_add(1);
        bench.give(acknowledging(frame(pair, 1001, ACK), first));
        bench.log.mute = true;
        let token = bench.log.accepted[0];
        Self { bench, pair, token, next: 1001, first }
    }

    /// Sends `len` bytes with a window in units of 128 bytes.
    fn send(&mut self, len: usize, window: u16) -> Vec<Seen> {
        let mut frame = acknowledging(frame(self.pair, self.next, ACK), self.first);
        frame[ETHERNET + 34..ETHERNET + 36].copy_from_slice(&window.to_be_bytes());
        self.bench.driver.wire.wire.inbound.push_back(with_data(frame, &vec![7; len]));
        self.next = self.next.wrapping_add(u32::try_from(len).unwrap());
        self.turn()
    }

    fn turn(&mut self) -> Vec<Seen> {
        for _ in 0..3 {
            self.bench.driver.turn(Some(Duration::ZERO), &mut self.bench.log).unwrap();
        }
        self.bench.driver.wire.wire.outbound.drain(..).map(|frame| Seen::read(&frame)).collect()
    }

    /// The user sends `len` bytes. Returns the segments that leave.
    fn user_sends(&mut self, len: usize) -> Vec<Seen> {
        let mut buf = Buf::new();
        buf.put(&vec![9; len]);
        assert!(matches!(self.bench.driver.send(self.token, buf), Sent::Done(_)));
        self.turn()
    }
}

#[test]
fn a_full_window_does_not_move_back_and_hides_no_acknowledgement() {
    // The configuration asks for a larger buffer, which would allow a deadlock.
    let mut peer = Peer::new(Config { receive_buffer: 256 << 10, ..Config::new("memory") });
    peer.bench.driver.pause_receive(peer.token, true);
    // Our direction is full: some bytes are under way, and the peer closes its window.
    let sent = peer.user_sends(60_000);
    peer.first = peer.first.wrapping_add(sent.iter().map(|seen| seen.len).sum());
    assert!(peer.send(0, 0).iter().all(|seen| seen.len == 0));
    // The peer fills its direction to the last byte, down to windows too small for scaling.
    let mut edge = 1001 + 65_535;
    let mut left = 65_535;
    while left > 0 {
        let len = if left > 2 * SEGMENT { SEGMENT } else { left.div_ceil(2) };
        left -= len;
        let answers = peer.send(len, 0);
        let last = answers.last().unwrap();
        assert_eq!((last.acknowledged, last.window), (peer.next, u32::try_from(left).unwrap()));
        assert!(answers.iter().all(|seen| seen.edge() == edge), "the window moved back: {answers:?}");
    }
    // Neither side can send. The peer's acknowledgement still counts.
    let more = peer.send(0, 100);
    assert!(more.iter().any(|seen| seen.len > 0), "{more:?}");
    // The user's reading opens the window.
    peer.bench.driver.pause_receive(peer.token, false);
    let opened = peer.turn();
    edge += 65_535;
    assert!(opened.iter().any(|seen| seen.edge() == edge), "{opened:?}");
    assert_eq!(peer.bench.log.received, 65_535);
}

#[test]
fn bytes_dropped_by_a_closed_window_are_retransmitted() {
    let retransmit = Duration::from_millis(1);
    let mut peer = Peer::new(Config { retransmit, congestion_control: false, ..Config::new("memory") });
    let sent = peer.user_sends(10 * SEGMENT);
    let all: u32 = sent.iter().map(|seen| seen.len).sum();
    assert!(sent.len() >= 4 && all > 4000, "{sent:?}");
    // The peer accepts the first segment, drops the others, and closes its window. Then it opens the window for one
    // segment, which the driver takes to be under way.
    peer.first = peer.first.wrapping_add(sent[0].len);
    peer.send(0, 0);
    let answers = peer.send(0, 8);
    assert!(answers.iter().all(|seen| seen.len <= 1), "the stack retransmits by itself: {answers:?}");
    // The driver asks for an acknowledgement, which makes it retransmit.
    let asks = (0..50).any(|_| {
        thread::sleep(Duration::from_millis(2));
        !peer.turn().is_empty()
    });
    assert!(asks, "the driver waits for ever");
    let retransmitted = peer.send(0, 8);
    assert!(retransmitted.iter().any(|seen| seen.sequence == peer.first && seen.len > 1), "{retransmitted:?}");
}

#[test]
fn congestion_control_can_be_disabled() {
    let first_flight = |congestion_control| {
        let mut peer = Peer::new(Config { congestion_control, ..Config::new("memory") });
        peer.user_sends(40_000).iter().map(|seen| seen.len).sum::<u32>()
    };
    assert_eq!((first_flight(true) < 20_000, first_flight(false)), (true, 40_000));
}
