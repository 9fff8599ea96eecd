//! A thread that has a hundred connections, and visits one after the other.

use super::figures::Totals;
use crate::outcome::Result;
use crate::peer::Peer;
use crate::script::Begin;
use crate::seen::End;
use crate::server::Server;
use crate::wire::{self, BINARY, CLOSE, Frame, PING, PONG, masked};
use rustix::net::sockopt;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};
use tautline_testkit::Random;

/// Time between two visits.
const PACE: Duration = Duration::from_millis(50);
/// Of all workers, those with this number modulo [`STORMS`] take part in a storm.
const STORMS: usize = 10;

/// A connection, and the messages whose echoes are not read yet.
struct Connection {
    peer: Peer,
    /// The number of the next message to be sent.
    next: u64,
    /// Messages without an echo: their number, length and time of sending.
    owed: std::collections::VecDeque<(u64, usize, Instant)>,
    /// Tells messages of different connections apart.
    tag: u64,
}

/// Whether the time of an echo counts: not if it waited for a slow reader.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Timed {
    Yes,
    No,
}

pub(super) struct Worker<'a> {
    server: &'a Server,
    totals: &'a Totals,
    number: usize,
    random: Random,
    connections: Vec<Connection>,
    storm: u32,
}

impl<'a> Worker<'a> {
    pub(super) fn new(server: &'a Server, totals: &'a Totals, number: usize, seed: u64) -> Self {
        Self { server, totals, number, random: Random::new(seed), connections: Vec::new(), storm: 0 }
    }

    /// Opens connections, visits them until it is told to stop, and closes them.
    pub(super) fn run(mut self, connections: usize) {
        while self.connections.len() < connections && !self.is_over() {
            if let Some(connection) = self.connect() {
                self.connections.push(connection);
                self.totals.open.fetch_add(1, Ordering::Relaxed);
            }
        }
        let mut due = Instant::now();
        for turn in 0.. {
            if self.is_over() {
                break;
            }
            due = (due + PACE).max(Instant::now() - 10 * PACE);
            thread::sleep(due.saturating_duration_since(Instant::now()));
            let storm = self.totals.storm.load(Ordering::Relaxed);
            if storm > self.storm {
                self.storm = storm;
                if self.number % STORMS == storm as usize % STORMS {
                    (0..self.connections.len()).for_each(|at| self.replace(at, true));
                }
            }
            let at = turn % self.connections.len().max(1);
            if let Err(error) = self.visit(at) {
                self.totals.fail(format!("connection {at} of worker {}: {error}", self.number));
            }
        }
        for mut connection in std::mem::take(&mut self.connections) {
            let closed = connection.settle(self.totals, Timed::No).and_then(|()| connection.close());
            if let Err(error) = closed {
                self.totals.fail(format!("at the end: {error}"));
            }
        }
    }

    fn is_over(&self) -> bool {
        self.totals.stop.load(Ordering::Relaxed) || self.totals.failures() > 10
    }

    fn connect(&mut self) -> Option<Connection> {
        match Peer::begin(self.server, Begin::Open) {
            Ok(peer) => {
                self.totals.connected.fetch_add(1, Ordering::Relaxed);
                Some(Connection { peer, next: 0, owed: std::collections::VecDeque::new(), tag: self.random.next() })
            }
            Err(error) => {
                self.totals.fail(format!("a connection of worker {}: {error}", self.number));
                None
            }
        }
    }

    /// Replaces a connection by a new one, after a reset or a closing handshake.
    fn replace(&mut self, at: usize, reset: bool) {
        if !reset {
            let connection = &mut self.connections[at];
            let closed = connection.settle(self.totals, Timed::No).and_then(|()| connection.close());
            if let Err(error) = closed {
                self.totals.fail(format!("a closing handshake of worker {}: {error}", self.number));
            }
        }
        if let Some(new) = self.connect() {
            let old = std::mem::replace(&mut self.connections[at], new);
            if reset {
                // Its messages on their way are given up, and are not lost.
                self.totals.given_up.fetch_add(old.owed.len() as u64, Ordering::Relaxed);
                let _ = sockopt::set_socket_linger(&old.peer.stream, Some(Duration::ZERO));
            }
        }
    }

    /// Does one thing on a connection.
    fn visit(&mut self, at: usize) -> Result<()> {
        let (choice, len, count) = (self.random.below(100), self.random.below(2_000), 1 + self.random.below(20));
        let large = self.random.below(60_000);
        let connection = &mut self.connections[at];
        // A slow reader reads what it left on its last visit.
        connection.settle(self.totals, Timed::No)?;
        match choice {
            0..80 => {
                connection.send(len, self.totals)?;
                connection.settle(self.totals, Timed::Yes)
            }
            80..88 => {
                (0..count).try_for_each(|_| connection.send(len, self.totals))?;
                connection.settle(self.totals, Timed::Yes)
            }
            88..92 => connection.ping(),
            // A slow reader: it comes back seconds later.
            92..97 => (0..3).try_for_each(|_| connection.send(large, self.totals)),
            97..99 => {
                self.replace(at, false);
                Ok(())
            }
            _ => {
                connection.send(len, self.totals)?;
                self.replace(at, true);
                Ok(())
            }
        }
    }
}

impl Connection {
    /// Sends the next message: tag, number and checksum, and bytes that follow from them.
    fn send(&mut self, len: usize, totals: &Totals) -> Result<()> {
        let message = message(self.tag, self.next, len);
        self.owed.push_back((self.next, len, Instant::now()));
        self.next += 1;
        totals.sent.fetch_add(1, Ordering::Relaxed);
        self.peer.send(&masked(BINARY, &message))
    }

    /// Reads the echoes of all messages, and compares them.
    fn settle(&mut self, totals: &Totals, timed: Timed) -> Result<()> {
        while let Some((number, len, sent)) = self.owed.front().copied() {
            let frame = self.data()?;
            if frame.first != BINARY || !is_intact(&frame.payload, self.tag, number, len) {
                totals.corrupted.fetch_add(1, Ordering::Relaxed);
                return Err(format!("message {number} of {len} bytes came back as {}", summary(&frame)).into());
            }
            self.owed.pop_front();
            totals.received.fetch_add(1, Ordering::Relaxed);
            if timed == Timed::Yes {
                totals.latency(sent.elapsed());
            }
        }
        Ok(())
    }

    /// The next frame that is no control frame. Pings are answered.
    fn data(&mut self) -> Result<Frame> {
        loop {
            let frame = self.peer.frame()?;
            match frame.first {
                PING => self.peer.send(&masked(PONG, &frame.payload))?,
                PONG => {}
                CLOSE => return Err(format!("the server closes: {}", summary(&frame)).into()),
                _ => return Ok(frame),
            }
        }
    }

    fn ping(&mut self) -> Result<()> {
        let payload = self.next.to_be_bytes();
        self.peer.send(&masked(PING, &payload))?;
        loop {
            let frame = self.peer.frame()?;
            match frame.first {
                PONG if frame.payload == payload => return Ok(()),
                PING => self.peer.send(&masked(PONG, &frame.payload))?,
                _ => return Err(format!("a ping was answered with {}", summary(&frame)).into()),
            }
        }
    }

    /// Does the closing handshake, and waits for the end.
    fn close(&mut self) -> Result<()> {
        self.peer.send(&wire::close(1000, b"soaked"))?;
        loop {
            let frame = self.peer.frame()?;
            if frame.first == CLOSE {
                break;
            }
        }
        while self.peer.read()? {}
        if self.peer.end() == Some(End::Finished) { Ok(()) } else { Err("a reset behind the close frame".into()) }
    }
}

/// A message: tag, number, checksum of all else, and pseudo-random bytes.
fn message(tag: u64, number: u64, len: usize) -> Vec<u8> {
    let body = Random::new(tag ^ number.wrapping_mul(0x9e37_79b9)).bytes(len);
    let head = [tag.to_be_bytes(), number.to_be_bytes()].concat();
    [&head[..], &checksum(&head, &body).to_be_bytes(), &body].concat()
}

/// FNV-1a, 64 bits.
fn checksum(head: &[u8], body: &[u8]) -> u64 {
    let bytes = head.iter().chain(body);
    bytes.fold(0xcbf2_9ce4_8422_2325, |sum, byte| (sum ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

/// Whether this is the expected message, by its checksum and by every byte.
fn is_intact(payload: &[u8], tag: u64, number: u64, len: usize) -> bool {
    payload == message(tag, number, len)
}

fn summary(frame: &Frame) -> String {
    let start = frame.payload.get(..32).unwrap_or(&frame.payload);
    format!("{:#04x}, {} bytes: {start:02x?}", frame.first, frame.payload.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_change_of_a_message_is_noticed() {
        let good = message(7, 3, 40);
        assert!(is_intact(&good, 7, 3, 40));
        assert!(!is_intact(&good, 7, 4, 40) && !is_intact(&good, 8, 3, 40) && !is_intact(&good, 7, 3, 39));
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 1;
            assert!(!is_intact(&bad, 7, 3, 40), "{at}");
        }
        // The published value of FNV-1a.
        assert_eq!(checksum(b"", b"foobar"), 0x8594_4171_f739_67e8);
    }
}
