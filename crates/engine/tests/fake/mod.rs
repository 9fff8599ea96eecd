//! A driver whose kernel takes and brings exactly the bytes that a test says.
#![allow(dead_code, unreachable_pub, reason = "each test binary that includes this uses a part of it")]

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::rc::Rc;
use std::time::Duration;
use tautline_io::{Address, Arrival, End, KernelTls, ListenOptions, Listener, Received, Sent, Sink, Token, Waker};
use tautline_window::Buf;
use tautline_window::kernel::TrafficKeys;

/// What the next turn delivers.
pub enum Event {
    Accept,
    Bytes(u32, Vec<u8>),
    /// The kernel takes so many bytes more of what it left with the driver, and of what comes later.
    Room(u32, usize),
    Finished(u32),
    /// It broke, or could not be made.
    Failed(u32),
    Connected(u32),
}

/// One connection, as its peer and the test see it.
#[derive(Default)]
pub struct Wire {
    pub received: Vec<u8>,
    /// Bytes that the kernel still takes.
    pub room: usize,
    pending: Option<Buf>,
    pub paused: bool,
    pub finished: bool,
    /// Whether it was closed, and by a reset.
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
    /// Room of connections made from now on.
    pub room: usize,
    /// Where it was asked to connect, by the connections' numbers.
    pub dialed: Vec<(u32, Address)>,
    /// Waits that were asked for, the last one at the end.
    pub waits: Vec<Option<Duration>>,
    /// What it tells of each read.
    pub arrival: Option<Arrival>,
    pub began: Option<u64>,
    /// Whether it need not tell of the next one.
    pub silent: bool,
    /// What of TLS its kernel is to do.
    pub kernel_tls: KernelTls,
    /// Keys that it was given, and the bytes that its peer had by then; it takes no more than it is told.
    pub keys: Vec<(TrafficKeys, usize)>,
    pub most_keys: usize,
}

impl State {
    fn add(&mut self) -> u32 {
        let index = u32::try_from(self.wires.len()).unwrap();
        let room = self.room;
        self.wires.insert(index, Wire { room, ..Wire::default() });
        index
    }
}

/// See the module. Clones share the kernel.
#[derive(Clone, Default)]
pub struct Fake(pub Rc<RefCell<State>>);

fn token(index: u32) -> Token {
    Token { index, generation: 0 }
}

impl Fake {
    pub fn push(&self, event: Event) {
        self.0.borrow_mut().events.push_back(event);
    }

    /// What the peer of connection `index` received since the last call.
    pub fn received(&self, index: u32) -> Vec<u8> {
        std::mem::take(&mut self.0.borrow_mut().wires.get_mut(&index).unwrap().received)
    }

    pub fn with<R>(&self, index: u32, look: impl FnOnce(&Wire) -> R) -> R {
        look(&self.0.borrow().wires[&index])
    }

    fn step<S: Sink<Self>>(&mut self, event: Event, sink: &mut S) {
        match event {
            Event::Accept => {
                let index = self.0.borrow_mut().add();
                sink.accepted(self, token(index), Listener(0));
            }
            Event::Connected(index) => sink.connected(self, token(index)),
            Event::Bytes(index, mut bytes) => {
                if self.with(index, |wire| wire.paused) {
                    // It waits in the kernel.
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
            Event::Finished(index) => sink.ended(self, token(index), End::Finished),
            Event::Failed(index) => {
                sink.ended(self, token(index), End::Failed(io::ErrorKind::ConnectionReset.into()));
            }
        }
    }
}

impl tautline_io::Driver for Fake {
    const NAME: &'static str = "fake";

    fn listen(&mut self, address: &Address, _options: &ListenOptions) -> io::Result<(Listener, Address)> {
        Ok((Listener(0), address.clone()))
    }

    fn stop_listening(&mut self) {}

    fn pause_accept(&mut self, _pause: bool) {}

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
        Some(Address::UnixUnnamed)
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

    fn turn<S: Sink<Self>>(&mut self, timeout: Option<Duration>, sink: &mut S) -> io::Result<()> {
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
