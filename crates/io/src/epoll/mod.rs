//! The driver over epoll(7): runs on every Linux, without privileges.
//!
//! Level-triggered: one `epoll_wait` a turn, one `recv` per readable connection and turn into the driver's only receive
//! buffer, which stays in the cache, and one `send` per [`send`](crate::Driver::send) unless the kernel's buffer is full.
//! What one turn leaves in the kernel is reported again by the next, behind the other ready connections, so that a
//! flooding peer cannot starve them.
//!
//! A connection is watched for writing only while a send is pending, and pausing costs a system call only once bytes
//! arrive that nobody wants. No lock, no hash table and no allocation lies on the message path.

mod accept;
mod chores;
mod connection;
mod slots;
#[cfg(test)]
mod tests;
mod wait;
mod wake;

use crate::{Address, ListenOptions, Listener, Sent, Sink, Token, Waker, socket};
use accept::Listeners;
use chores::Chores;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::fd::OwnedFd;
use slots::{Conn, Slots, Source};
use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};
use tautline_window::Buf;
use wake::Wake;

/// How long accepting rests after it failed for want of descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// How a [`Driver`] works. The defaults suit servers and clients of any size.
#[derive(Clone, Debug)]
pub struct Config {
    /// Most bytes of one connection that are received at once. Default 256 KiB.
    pub receive_buffer: usize,
    /// Room in front of received bytes for carried ones, see [`Received::join`](crate::Received::join). Default 20 KiB: more than one TLS
    /// record (RFC 8446 section 5.2: 16,640 bytes behind a header of 5).
    pub headroom: usize,
    /// Most events that one turn takes from the kernel. Default 1024.
    pub events_per_turn: usize,
    /// Most connections that one turn accepts from one listening socket. Default 64.
    pub accepts_per_turn: usize,
    /// How long a closed connection may go on to send what was pending, before it is reset. Default 5 seconds.
    pub linger: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            receive_buffer: 256 * 1024,
            headroom: 20 * 1024,
            events_per_turn: 1024,
            accepts_per_turn: 64,
            linger: Duration::from_secs(5),
        }
    }
}

/// What `events` is filled with.
const NO_EVENT: Event = Event { flags: EventFlags::empty(), data: EventData::new_u64(0) };

/// See the [module](self).
pub struct Driver {
    config: Config,
    epoll: OwnedFd,
    wake: Wake,
    slots: Slots,
    listeners: Listeners,
    chores: Chores,
    /// Connections whose failure the sink does not know yet.
    failures: VecDeque<(Token, io::Error)>,
    /// Where the kernel puts events; empty while a turn delivers them.
    events: Vec<Event>,
    /// Headroom and receive buffer; empty while a turn lends it.
    buffer: Vec<u8>,
}

impl Driver {
    /// A driver with the default [`Config`].
    ///
    /// # Errors
    /// No descriptors are left.
    pub fn new() -> io::Result<Self> {
        Self::with(Config::default())
    }

    /// A driver that works as `config` says. Sizes and numbers of 0 count as 1, but for the headroom.
    ///
    /// # Errors
    /// No descriptors are left.
    pub fn with(mut config: Config) -> io::Result<Self> {
        for size in [&mut config.receive_buffer, &mut config.events_per_turn, &mut config.accepts_per_turn] {
            *size = (*size).max(1);
        }
        let epoll = epoll::create(CreateFlags::CLOEXEC)?;
        let wake = Wake::new()?;
        epoll::add(&epoll, wake.fd(), Source::Wake.data(), EventFlags::IN | EventFlags::ET)?;
        Ok(Self {
            config,
            epoll,
            wake,
            slots: Slots::default(),
            listeners: Listeners::default(),
            chores: Chores::default(),
            failures: VecDeque::new(),
            events: Vec::new(),
            buffer: Vec::new(),
        })
    }

    /// How long the kernel may wait: not at all where something is to be delivered, not past the driver's own chores.
    fn clip(&self, timeout: Option<Duration>) -> Option<Duration> {
        if !self.failures.is_empty() {
            return Some(Duration::ZERO);
        }
        let Some(chore) = self.chores.next() else { return timeout };
        let chore = chore.saturating_duration_since(Instant::now());
        Some(timeout.map_or(chore, |timeout| timeout.min(chore)))
    }

    fn deliver<S: Sink<Self>>(&mut self, events: &[Event], buffer: &mut [u8], sink: &mut S) {
        for event in events {
            match Source::of(event.data) {
                Source::Connection(token) => self.connection_event(token, event.flags, buffer, sink),
                Source::Listener(number) => self.accept(number, sink),
                Source::Wake => {
                    self.wake.clear();
                    sink.woken(self);
                }
            }
        }
    }

    fn do_chores(&mut self) {
        let now = Instant::now();
        if self.chores.accept.is_some_and(|at| at <= now) {
            self.accept_again();
        }
        for (token, address) in self.chores.due_retries(now) {
            self.start_connecting(token, address);
        }
        while let Some(token) = self.chores.due_orphan(now) {
            crate::Driver::close(self, token, true);
        }
    }
}

impl crate::Driver for Driver {
    const NAME: &'static str = "epoll";

    fn listen(&mut self, address: &Address, options: &ListenOptions) -> io::Result<(Listener, Address)> {
        let socket = socket::listen(address, options)?;
        let address = socket.address.clone();
        Ok((self.start_accepting(socket)?, address))
    }

    fn stop_listening(&mut self) {
        self.listeners.close();
    }

    fn pause_accept(&mut self, pause: bool) {
        self.pause_accepting(pause);
    }

    fn connect(&mut self, address: &Address) -> io::Result<Token> {
        let token = self.slots.insert(Conn::new(socket::stream(address)?, true))?;
        self.start_connecting(token, address.clone());
        Ok(token)
    }

    fn send(&mut self, token: Token, mut buf: Buf) -> Sent {
        if let Some(conn) = self.slots.get_mut(token)
            && !conn.failed
        {
            if !conn.connecting && conn.pending.is_empty() {
                match connection::send(&conn.fd, &mut buf) {
                    Ok(()) if buf.is_empty() => return Sent::Done(buf),
                    Ok(()) => {}
                    Err(errno) => self.fail_later(token, errno.into()),
                }
            }
            return self.keep(token, buf);
        }
        buf.clear();
        Sent::Done(buf)
    }

    fn pause_receive(&mut self, token: Token, pause: bool) {
        if let Some(conn) = self.slots.get_mut(token)
            && conn.paused != pause
        {
            conn.paused = pause;
            // Bytes that nobody wants may never come: only their event changes what is watched.
            if !pause {
                self.rewatch(token);
            }
        }
    }

    fn shutdown(&mut self, token: Token) {
        if let Some(conn) = self.slots.get_mut(token)
            && !conn.finishing
        {
            conn.finishing = true;
            if conn.pending.is_empty() && !conn.connecting {
                connection::finish(&conn.fd);
            }
        }
    }

    fn close(&mut self, token: Token, abort: bool) {
        let Some(conn) = self.slots.get_mut(token) else { return };
        if abort {
            connection::reset_on_close(&conn.fd);
        } else if !conn.pending.is_empty() && !conn.connecting {
            conn.orphan = true;
            return self.orphan(token);
        }
        self.slots.remove(token);
    }

    fn peer(&self, token: Token) -> Option<Address> {
        socket::peer(&self.slots.get(token)?.fd)
    }

    fn waker(&self) -> Waker {
        self.wake.waker()
    }

    fn turn<S: Sink<Self>>(&mut self, timeout: Option<Duration>, sink: &mut S) -> io::Result<()> {
        let mut events = std::mem::take(&mut self.events);
        let mut buffer = std::mem::take(&mut self.buffer);
        if events.is_empty() || buffer.is_empty() {
            // The first turn, or the first after one that a panicking sink left.
            events.resize(self.config.events_per_turn, NO_EVENT);
            buffer.resize(self.config.headroom + self.config.receive_buffer, 0);
            self.wake.repeat();
        }
        let timeout = self.clip(timeout);
        let result = wait::wait(&self.epoll, &mut events, timeout);
        if let Ok(ready) = result {
            sink.woke(self);
            if !self.failures.is_empty() {
                self.deliver_failures(&mut buffer, sink);
            }
            self.deliver(&events[..ready], &mut buffer, sink);
            if self.chores.next().is_some() {
                self.do_chores();
            }
        }
        self.events = events;
        self.buffer = buffer;
        result.map(drop).map_err(io::Error::from)
    }
}
