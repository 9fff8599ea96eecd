//! The driver over epoll(7): runs on every Linux, without privileges.
//!
//! One `epoll_wait` a turn, one `recv` per readable connection and turn into the driver's only receive buffer, which
//! stays in the cache, and one `send` per [`send`](crate::Driver::send) unless the kernel's buffer is full.
//!
//! Connections are watched edge-triggered, which spares the kernel a second look at each that was served and makes
//! pausing, resuming and a full send buffer free of system calls. Nothing is lost by it, because the driver remembers what
//! it leaves in the kernel: where a receive filled the buffer, or something lies behind the bytes, the next turn goes on
//! without waiting, after the other ready connections, so that a flooding peer cannot starve them. A receive that is
//! shorter than the buffer proves that all was received (epoll(7)); the one exception is a Unix peer that passes
//! descriptors: what it sent behind them waits for its next byte.
//!
//! No lock, no hash table and no allocation lies on the message path.

mod accept;
mod connection;
mod slots;
#[cfg(test)]
mod tests;
mod wait;

use crate::chores::Chores;
use crate::spin::Spinner;
use crate::wake::Wake;
use crate::{Address, ListenOptions, Listener, Sent, Sink, Spin, Token, Waker, socket};
use accept::Listeners;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::fd::OwnedFd;
use slots::{Conn, Phase, Slots, Source};
use std::collections::VecDeque;
use std::io;
use std::mem;
use std::ops::Range;
use std::time::{Duration, Instant};
use tautline_window::Buf;

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
    /// Asks instead of sleeping. Default not.
    pub spin: Option<Spin>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            receive_buffer: 256 * 1024,
            headroom: 20 * 1024,
            events_per_turn: 1024,
            accepts_per_turn: 64,
            linger: Duration::from_secs(5),
            spin: None,
        }
    }
}

/// See the [module](self).
pub struct Driver {
    config: Config,
    epoll: OwnedFd,
    spinner: Spinner,
    wake: Wake,
    slots: Slots,
    listeners: Listeners,
    chores: Chores,
    /// Connections whose failure the sink does not know yet.
    failures: VecDeque<(Token, io::Error)>,
    /// Connections to receive from without being told by the kernel, see [`Conn::queued`].
    queue: VecDeque<Token>,
    /// Where the kernel puts events.
    events: Vec<Event>,
    /// Which of `events` are not delivered yet. Only a sink that panics or takes a turn itself leaves any.
    undelivered: Range<usize>,
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
        let events = vec![Event { flags: EventFlags::empty(), data: EventData::new_u64(0) }; config.events_per_turn];
        Ok(Self {
            spinner: Spinner::new(config.spin.clone()),
            config,
            epoll,
            wake,
            slots: Slots::default(),
            listeners: Listeners::default(),
            chores: Chores::default(),
            failures: VecDeque::new(),
            queue: VecDeque::new(),
            events,
            undelivered: 0..0,
            buffer: Vec::new(),
        })
    }

    /// How long the kernel may wait: not at all where something is to be done, not past the driver's own chores.
    fn clip(&self, timeout: Option<Duration>) -> Option<Duration> {
        if !self.failures.is_empty() || !self.queue.is_empty() {
            return Some(Duration::ZERO);
        }
        let Some(chore) = self.chores.next() else { return timeout };
        let chore = chore.saturating_duration_since(Instant::now());
        Some(timeout.map_or(chore, |timeout| timeout.min(chore)))
    }

    fn deliver<S: Sink<Self>>(&mut self, buffer: &mut [u8], sink: &mut S) {
        // What the sink's calls add to them waits for the next turn.
        let (failures, queued) = (self.failures.len(), self.queue.len());
        for _ in 0..failures {
            self.deliver_failure(buffer, sink);
        }
        while let Some(event) = self.undelivered.next() {
            let event = self.events[event];
            match Source::of(event.data) {
                Source::Connection(token) => self.connection_event(token, event.flags, buffer, sink),
                Source::Listener(number) => self.accept(number, sink),
                Source::Wake => {
                    self.wake.clear();
                    sink.woken(self);
                }
            }
        }
        for _ in 0..queued {
            self.receive_again(buffer, sink);
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
        let token = self.slots.insert(Conn::new(socket::stream(address)?, Phase::Connecting))?;
        self.start_connecting(token, address.clone());
        Ok(token)
    }

    fn send(&mut self, token: Token, mut buf: Buf) -> Sent {
        if let Some(conn) = self.slots.get_mut(token)
            && conn.phase != Phase::Failed
        {
            if conn.phase == Phase::Open && conn.pending.is_empty() {
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
        let Some(conn) = self.slots.get_mut(token) else { return };
        conn.paused = pause;
        if !pause && conn.readable {
            self.enqueue(token);
        }
    }

    fn shutdown(&mut self, token: Token) {
        if let Some(conn) = self.slots.get_mut(token)
            && !conn.finishing
        {
            conn.finishing = true;
            if conn.pending.is_empty() && conn.phase == Phase::Open {
                connection::finish(&conn.fd);
            }
        }
    }

    fn close(&mut self, token: Token, abort: bool) {
        let Some(conn) = self.slots.get_mut(token) else { return };
        if abort {
            connection::reset_on_close(&conn.fd);
        } else if !conn.pending.is_empty() && conn.phase == Phase::Open {
            conn.phase = Phase::Orphan;
            return self.orphan(token);
        }
        self.slots.remove(token);
    }

    fn unsent(&self, token: Token) -> usize {
        self.slots.get(token).map_or(0, |conn| conn.pending.len())
    }

    fn peer(&self, token: Token) -> Option<Address> {
        socket::peer(&self.slots.get(token)?.fd)
    }

    fn waker(&self) -> Waker {
        self.wake.waker()
    }

    fn turn<S: Sink<Self>>(&mut self, timeout: Option<Duration>, sink: &mut S) -> io::Result<()> {
        if self.undelivered.is_empty() {
            let timeout = self.clip(timeout);
            let ask = |timeout| wait::wait(&self.epoll, &mut self.events, timeout);
            self.undelivered = 0..self.spinner.wait(timeout, ask)?;
        }
        sink.woke(self);
        let mut buffer = mem::take(&mut self.buffer);
        // Nothing is there in the first turn, and after a sink that panicked.
        buffer.resize(self.config.headroom + self.config.receive_buffer, 0);
        self.deliver(&mut buffer, sink);
        self.buffer = buffer;
        if self.chores.next().is_some() {
            self.do_chores();
        }
        Ok(())
    }
}
