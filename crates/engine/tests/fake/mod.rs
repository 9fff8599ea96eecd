//! A fake driver that takes and delivers exactly the bytes that a test says.
#![allow(dead_code, unreachable_pub, reason = "each test binary that includes this uses a part of it")]

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::sync::OnceLock;
use std::time::Duration;
use tautline_buf::Buf;
use tautline_buf::kernel_tls::TrafficKeys;
use tautline_io::{
    Address, Arrival, End, Held, KernelTls, ListenOptions, Listener, Received, Sent, Sink, Token, Waker,
};

/// An event that the next turn delivers. Connections are numbered from 0.
pub enum Event {
    Accept,
    Bytes(u32, Vec<u8>),
    /// The kernel takes this number of bytes more: first pending ones, then later ones.
    Room(u32, usize),
    Finished(u32),
    /// The connection broke, or could not be made.
    Failed(u32),
    Connected(u32),
    /// The stamp of a send by its number: this time of `CLOCK_REALTIME`, in nanoseconds.
    Departed(u32, u32, u64),
}

/// A connection, as its peer and the test see it.
#[derive(Default)]
pub struct Wire {
    pub received: Vec<u8>,
    /// Bytes that the kernel still takes.
    pub room: usize,
    pending: Option<Buf>,
    pub paused: bool,
    pub finished: bool,
    /// `Some` if the connection was closed; true if by a reset.
    pub closed: Option<bool>,
}

impl Wire {
    fn take(&mut self, buf: &mut Buf) {
        let n = buf.len().min(self.room);
        self.room -= n;
        self.received.extend_from_slice(&buf.filled()[..n]);
        buf.take(n);
    }
}

#[derive(Default)]
pub struct State {
    pub wires: BTreeMap<u32, Wire>,
    pub events: VecDeque<Event>,
    /// The `room` of new connections.
    pub room: usize,
    /// The peer of all connections. Without one it is an unnamed Unix socket.
    pub peer: Option<Address>,
    /// Addresses of outgoing connections, with the connections' numbers.
    pub dialed: Vec<(u32, Address)>,
    /// The timeouts of all turns, the latest last.
    pub waits: Vec<Option<Duration>>,
    /// The arrival that is reported for each read.
    pub arrival: Option<Arrival>,
    /// The begin that is reported for each read.
    pub began: Option<u64>,
    /// Whether the times of the next read are not wanted.
    pub silent: bool,
    /// The choice of kernel TLS that the driver reports.
    pub kernel_tls: KernelTls,
    /// The keys given so far, and the bytes that the peer had received by then.
    pub keys: Vec<(TrafficKeys, usize)>,
    /// The number of keys that are taken; further ones are rejected.
    pub most_keys: usize,
    /// The number of the next stamped send, if the driver stamps sends.
    pub stamp: Option<u32>,
}

impl State {
    fn add(&mut self) -> u32 {
        let index = u32::try_from(self.wires.len()).unwrap();
        let room = self.room;
        self.wires.insert(index, Wire { room, ..Wire::default() });
        index
    }
}

/// The fake driver. Clones share its state.
#[derive(Clone, Default)]
pub struct Fake(pub Rc<RefCell<State>>);

/// A descriptor that stands for the socket of any connection.
pub fn socket() -> &'static File {
    static SOCKET: OnceLock<File> = OnceLock::new();
    SOCKET.get_or_init(|| File::open("/dev/null").unwrap())
}

fn token(index: u32) -> Token {
    Token { index, generation: 0 }
}

impl Fake {
    pub fn push(&self, event: Event) {
        self.0.borrow_mut().events.push_back(event);
    }

    /// Takes the bytes that the peer of connection `index` received since the last call.
    pub fn received(&self, index: u32) -> Vec<u8> {
        std::mem::take(&mut self.0.borrow_mut().wires.get_mut(&index).unwrap().received)
    }

    pub fn with<R>(&self, index: u32, look: impl FnOnce(&Wire) -> R) -> R {
        look(&self.0.borrow().wires[&index])
    }

    fn step(&mut self, event: Event, sink: &mut dyn Sink) {
        match event {
            Event::Accept => {
                let index = self.0.borrow_mut().add();
                sink.accepted(self, token(index), Listener(0));
            }
            Event::Connected(index) => sink.connected(self, token(index)),
            Event::Bytes(index, mut bytes) => {
                if self.with(index, |wire| wire.paused) {
                    // The bytes wait in the kernel.
                    return self.push(Event::Bytes(index, bytes));
                }
                sink.received(self, token(index), Received::new(&mut bytes, 0));
            }
            Event::Room(index, more) => {
                let done = {
                    let mut state = self.0.borrow_mut();
                    let wire = state.wires.get_mut(&index).unwrap();
                    wire.room = wire.room.saturating_add(more);
                    wire.pending.take().and_then(|mut buf| {
                        wire.take(&mut buf);
                        if buf.is_empty() {
                            Some(buf)
                        } else {
                            wire.pending = Some(buf);
                            None
                        }
                    })
                };
                if let Some(buf) = done {
                    sink.sent(self, token(index), buf);
                }
            }
            Event::Departed(index, number, nanos) => sink.departed(self, token(index), number, nanos),
            Event::Finished(index) => sink.ended(self, token(index), End::Finished),
            Event::Failed(index) => {
                sink.ended(self, token(index), End::Failed(io::ErrorKind::ConnectionReset.into()));
            }
        }
    }
}

impl tautline_io::Driver for Fake {
    fn name(&self) -> &'static str {
        "fake"
    }

    fn listen(&mut self, address: &Address, _options: &ListenOptions) -> io::Result<(Listener, Address)> {
        Ok((Listener(0), address.clone()))
    }

    fn stop_listening(&mut self) {}

    fn pause_accept(&mut self, _pause: bool) {}

    fn adopt(&mut self, socket: OwnedFd) -> io::Result<Token> {
        drop(socket);
        Ok(token(self.0.borrow_mut().add()))
    }

    fn hold_still(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn held(&self, token: Token) -> Option<Held<'_>> {
        let moves = self.with(token.index, |wire| wire.pending.is_none() && !wire.finished && wire.closed.is_none());
        moves.then(|| Held { socket: socket().as_fd(), received: &[], unsent: &[] })
    }

    fn connect(&mut self, address: &Address) -> io::Result<Token> {
        let mut state = self.0.borrow_mut();
        let index = state.add();
        state.dialed.push((index, address.clone()));
        Ok(token(index))
    }

    fn send(&mut self, token: Token, mut buf: Buf) -> Sent {
        let mut state = self.0.borrow_mut();
        let wire = state.wires.get_mut(&token.index).unwrap();
        assert!(wire.pending.is_none(), "two sends at once");
        assert!(!wire.finished && wire.closed.is_none(), "a send behind the end");
        wire.take(&mut buf);
        if buf.is_empty() {
            return Sent::Done(buf);
        }
        wire.pending = Some(buf);
        Sent::Pending
    }

    fn send_stamped(&mut self, token: Token, buf: Buf) -> (Sent, Option<u32>) {
        let sent = self.send(token, buf);
        let mut state = self.0.borrow_mut();
        let number = state.stamp.filter(|_| matches!(sent, Sent::Done(_)));
        state.stamp = state.stamp.map(|next| next + u32::from(number.is_some()));
        (sent, number)
    }

    fn pause_receive(&mut self, token: Token, pause: bool) {
        self.0.borrow_mut().wires.get_mut(&token.index).unwrap().paused = pause;
    }

    fn shutdown(&mut self, token: Token) {
        self.0.borrow_mut().wires.get_mut(&token.index).unwrap().finished = true;
    }

    fn close(&mut self, token: Token, abort: bool) {
        let mut state = self.0.borrow_mut();
        let wire = state.wires.get_mut(&token.index).unwrap();
        assert_eq!(wire.closed, None, "closed twice");
        wire.closed = Some(abort);
    }

    fn unsent(&self, token: Token) -> usize {
        self.with(token.index, |wire| wire.pending.as_ref().map_or(0, Buf::len))
    }

    fn peer(&self, _token: Token) -> Option<Address> {
        Some(self.0.borrow().peer.clone().unwrap_or(Address::UnixUnnamed))
    }

    fn waker(&self) -> Waker {
        Waker::new(|| {})
    }

    fn kernel_tls(&self) -> KernelTls {
        self.0.borrow().kernel_tls
    }

    fn give_keys(&mut self, token: Token, keys: TrafficKeys) -> io::Result<bool> {
        let mut state = self.0.borrow_mut();
        if state.keys.len() == state.most_keys {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let had = state.wires[&token.index].received.len();
        state.keys.push((keys, had));
        Ok(true)
    }

    fn stamp_arrivals(&mut self) -> io::Result<()> {
        Ok(())
    }

    fn stamp_next(&mut self, wanted: bool) {
        self.0.borrow_mut().silent = !wanted;
    }

    fn arrival(&self) -> Option<Arrival> {
        self.0.borrow().arrival
    }

    fn began(&self) -> Option<u64> {
        self.0.borrow().began
    }

    fn turn(&mut self, timeout: Option<Duration>, sink: &mut dyn Sink) -> io::Result<()> {
        self.0.borrow_mut().waits.push(timeout);
        sink.woke(self);
        sink.woken(self);
        let events = self.0.borrow().events.len();
        for _ in 0..events {
            let event = self.0.borrow_mut().events.pop_front();
            if let Some(event) = event {
                self.step(event, sink);
            }
        }
        Ok(())
    }
}
