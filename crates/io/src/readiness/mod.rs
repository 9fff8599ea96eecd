//! What drivers share whose kernel tells which sockets are ready, and which then receive and send themselves.

mod accept;
mod conn;
mod connection;
mod kernel;
mod poll;
#[cfg(test)]
mod tests;

pub use poll::Poll;

use crate::chores::Chores;
use crate::kernel::Transmit;
use crate::slots::Slots;
use crate::spin::Spinner;
use crate::stamp::Arrivals;
use crate::wake::Wake;
use crate::{Address, Arrival, Direct, KernelTls, ListenOptions, Listener, Sent, Sink, Spin, Token, Waker, socket};
use accept::Listeners;
use conn::{Conn, FIRST_LISTENER, InKernel, Phase, Source};
use rustix::event::epoll::EventFlags;
use rustix::fd::AsFd;
use rustix::net::SendFlags;
use std::collections::VecDeque;
use std::io;
use std::mem;
use std::ops::Range;
use std::time::{Duration, Instant};
use tautline_window::Buf;
use tautline_window::kernel::TrafficKeys;

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
    /// Which records are left to the kernel. Default none.
    pub kernel_tls: KernelTls,
    /// Descriptors that select(2) takes lie below this; the others take any. Default 1024, `FD_SETSIZE`; Linux takes more.
    pub descriptors: usize,
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
            kernel_tls: KernelTls::Off,
            descriptors: crate::select::FD_SETSIZE,
        }
    }
}

/// A driver over `P`.
pub struct Driver<P> {
    config: Config,
    poll: P,
    spinner: Spinner,
    wake: Wake,
    slots: Slots<Conn>,
    listeners: Listeners,
    chores: Chores,
    /// Connections whose failure the sink does not know yet.
    failures: VecDeque<(Token, io::Error)>,
    /// Connections to receive from without being told by the kernel, see [`Conn::queued`].
    queue: VecDeque<Token>,
    /// Which events are not delivered yet. Only a sink that panics or takes a turn itself leaves any.
    undelivered: Range<usize>,
    /// Headroom and receive buffer; empty while a turn lends it.
    buffer: Vec<u8>,
    arrivals: Arrivals,
    /// What the kernel seals, by the connection's index; empty where it seals nothing.
    sealing: Vec<Option<Box<Transmit>>>,
}

impl<P: Poll> Driver<P> {
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
        let mut poll = P::new(&config)?;
        let wake = Wake::new()?;
        poll.add(wake.fd(), Source::Wake.data(), EventFlags::IN | EventFlags::ET)?;
        Ok(Self {
            spinner: Spinner::new(config.spin.clone()),
            config,
            poll,
            wake,
            slots: Slots::new(FIRST_LISTENER),
            listeners: Listeners::default(),
            chores: Chores::default(),
            failures: VecDeque::new(),
            queue: VecDeque::new(),
            undelivered: 0..0,
            buffer: Vec::new(),
            arrivals: Arrivals::default(),
            sealing: Vec::new(),
        })
    }

    /// Frees the slot and closes the socket.
    fn remove(&mut self, token: Token) {
        if let Some(conn) = self.slots.remove(token) {
            self.poll.remove(conn.fd.as_fd());
            self.forget_keys(token, conn.kernel);
        }
    }

    /// How long the kernel may wait: not at all where something is to be done, not past the driver's own chores.
    fn clip(&self, timeout: Option<Duration>) -> Option<Duration> {
        if !self.failures.is_empty() || !self.queue.is_empty() {
            return Some(Duration::ZERO);
        }
        self.chores.clip(timeout)
    }

    fn deliver<S: Sink<Self>>(&mut self, buffer: &mut [u8], sink: &mut S) {
        // What the sink's calls add to them waits for the next turn.
        let (failures, queued) = (self.failures.len(), self.queue.len());
        for _ in 0..failures {
            self.deliver_failure(buffer, sink);
        }
        while let Some(event) = self.undelivered.next() {
            let (data, flags) = self.poll.event(event);
            match Source::of(data) {
                Source::Connection(token) => self.connection_event(token, flags, buffer, sink),
                Source::Listener(number) => self.accept(number, sink),
                Source::Wake => {
                    if !P::EDGES {
                        self.wake.drain();
                        self.poll.rearm(self.wake.fd(), EventFlags::IN);
                    }
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
        if self.chores.due_accept(now) {
            self.watch_listeners();
        }
        let (connects, sends) = self.chores.due_retries(now);
        for (token, address) in connects {
            self.start_connecting(token, address);
        }
        for token in sends {
            self.tell_of_room(token);
        }
        while let Some(token) = self.chores.due_orphan(now) {
            crate::Driver::close(self, token, true);
        }
    }

    /// Sends what the kernel takes at once, and keeps the rest.
    fn send_now(&mut self, token: Token, mut buf: Buf, flags: SendFlags) -> Sent {
        if let Some(conn) = self.slots.get_mut(token)
            && conn.phase != Phase::Failed
        {
            if conn.phase == Phase::Open && conn.pending.is_empty() {
                match kernel::send(conn, token, &mut self.sealing, (&mut buf, flags)) {
                    Ok(()) if buf.is_empty() => return Sent::Done(buf),
                    Ok(()) => {}
                    Err(error) => self.cannot_send(token, error),
                }
            }
            return self.keep(token, buf);
        }
        buf.clear();
        Sent::Done(buf)
    }
}

impl<P: Poll> crate::Driver for Driver<P> {
    const NAME: &'static str = P::NAME;

    fn listen(&mut self, address: &Address, options: &ListenOptions) -> io::Result<(Listener, Address)> {
        let socket = self.spinner.listen(address, options)?;
        let address = socket.address.clone();
        Ok((self.start_accepting(socket)?, address))
    }

    fn stop_listening(&mut self) {
        self.listeners.close(&mut self.poll);
    }

    fn pause_accept(&mut self, pause: bool) {
        self.pause_accepting(pause);
    }

    fn connect(&mut self, address: &Address) -> io::Result<Token> {
        let socket = self.spinner.stream(address)?;
        self.arrivals.watch(&socket);
        let token = self.slots.insert(Conn::new(socket, Phase::Connecting))?;
        self.start_connecting(token, address.clone());
        Ok(token)
    }

    fn direct(&self, token: Token) -> Option<Direct<'_>> {
        let conn = self.slots.get(token)?;
        let free = conn.phase == Phase::Open && conn.pending.is_empty() && !conn.kernel.has(InKernel::TRANSMIT);
        free.then(|| Direct::new(conn.fd.as_fd()))
    }

    fn send(&mut self, token: Token, buf: Buf) -> Sent {
        self.send_now(token, buf, SendFlags::empty())
    }

    fn send_last(&mut self, token: Token, buf: Buf) -> Sent {
        // tcp(7): it waits for more, and takes what ends the direction for that.
        self.send_now(token, buf, SendFlags::MORE)
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
                socket::finish(&conn.fd);
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
        self.remove(token);
    }

    fn kernel_tls(&self) -> KernelTls {
        self.config.kernel_tls
    }

    fn give_keys(&mut self, token: Token, keys: TrafficKeys) -> io::Result<bool> {
        self.take_keys(token, &keys)
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

    fn stamp_next(&mut self, wanted: bool) {
        self.arrivals.want(wanted);
    }

    fn stamp_arrivals(&mut self) -> io::Result<()> {
        self.arrivals.ask();
        Ok(())
    }

    fn arrival(&self) -> Option<Arrival> {
        self.arrivals.last()
    }

    fn began(&self) -> Option<u64> {
        self.arrivals.began()
    }

    fn turn<S: Sink<Self>>(&mut self, timeout: Option<Duration>, sink: &mut S) -> io::Result<()> {
        if self.undelivered.is_empty() {
            let timeout = self.clip(timeout);
            self.undelivered = 0..self.spinner.wait(timeout, |timeout| self.poll.wait(timeout))?;
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
