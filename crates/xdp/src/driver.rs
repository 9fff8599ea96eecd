use crate::config::Config;
use crate::conn::{Conn, Phase};
use crate::faulty::Faulty;
use crate::frame::Pair;
use crate::listeners::Listeners;
use crate::netlink::Netlink;
use crate::port::{InterfaceInfo, Port};
use crate::stack::Stack;
use crate::wake::Wake;
use crate::wire::{CHECK_INTERVAL, Wire};
use foldhash::fast::RandomState;
use rustix::fd::AsFd;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::io;
use std::mem;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tautline_buf::Buf;
use tautline_io::slots::Slots;
use tautline_io::{
    Address, Arrival, Clock, DriverConfig, External, ListenOptions, Listener, Sent, Sink, TcpOptions, Ticker, Token,
    Waker,
};

/// Longest wait while the device has no room for frames to send.
const FULL_WAIT: Duration = Duration::from_millis(1);

/// A driver for TCP connections over an AF_XDP interface. See the [crate](crate).
pub struct Driver<W: Wire = Port> {
    pub(crate) config: Config,
    pub(crate) info: InterfaceInfo,
    pub(crate) netlink: Netlink,
    pub(crate) wire: Faulty<W>,
    pub(crate) stack: Stack,
    pub(crate) wake: Wake,
    /// The time of the current turn or call.
    pub(crate) now: Instant,
    /// The time of the last check that the device is still there.
    checked: Instant,
    /// All connections, including those that the user does not know yet or any more.
    pub(crate) conns: Slots<Conn>,
    /// The connections that the user knows, by the user's token.
    pub(crate) tokens: Slots<Token>,
    pub(crate) pairs: HashMap<Pair, Token, RandomState>,
    /// The local endpoints whose frames we take, with the number of listeners and connections that use each.
    pub(crate) claims: HashMap<SocketAddr, u32>,
    pub(crate) listening: Listeners,
    /// Connections to serve in the next turn, which then does not wait.
    pub(crate) queue: VecDeque<Token>,
    /// Connections that have something to send.
    pub(crate) dirty: Vec<Token>,
    /// An empty list, swapped with `dirty`.
    spare: Vec<Token>,
    /// Failures that were not reported to the sink yet.
    pub(crate) failures: VecDeque<(Token, io::Error)>,
    /// The times at which to serve connections.
    pub(crate) timers: BinaryHeap<Reverse<(Instant, Token)>>,
    /// Headroom and received bytes, as lent to the sink; empty during a turn.
    pub(crate) buffer: Buf,
    /// Times of the lent bytes, if arrivals are stamped.
    pub(crate) stamps: Option<Stamps>,
    /// Whether a turn is under way. At its end all connections send.
    in_turn: bool,
}

/// The times of the bytes that are lent to the sink.
pub(crate) struct Stamps {
    pub(crate) ticker: Ticker,
    /// The time at which their copy out of the stack began.
    pub(crate) began: u64,
    /// The time at which the last of them arrived.
    pub(crate) arrival: Option<u64>,
}

impl External for Config {
    fn name(&self) -> &str {
        if self.spin.is_zero() { "xdp" } else { "xdp-spin" }
    }

    fn max_loops(&self) -> usize {
        1
    }

    fn open(&self) -> io::Result<Box<dyn tautline_io::Driver>> {
        Ok(Box::new(Driver::with(self.clone())?))
    }
}

impl From<Config> for DriverConfig {
    fn from(config: Config) -> Self {
        Self::External(Arc::new(config))
    }
}

impl Driver<Port> {
    /// Opens the interface with the default [`Config`].
    ///
    /// # Errors
    /// The interface, a privilege or the kernel's support is missing. The text names the remedy.
    pub fn new(interface: &str) -> io::Result<Self> {
        Self::with(Config::new(interface))
    }

    /// Opens the interface of `config`.
    ///
    /// # Errors
    /// The interface, a privilege or the kernel's support is missing. The text names the remedy.
    pub fn with(config: Config) -> io::Result<Self> {
        let config = config.clamp();
        let mut netlink = Netlink::new()?;
        let (port, info) = Port::open(&config, &mut netlink)?;
        Self::with_wire(port, config, info, netlink)
    }

    /// Number of received frames that the kernel dropped: they were too long, or there was no room for them.
    #[must_use]
    pub fn dropped_frames(&self) -> u64 {
        self.wire.wire.dropped()
    }

    /// Whether the device reads and writes frames in the driver's memory, without copies.
    #[must_use]
    pub const fn is_zero_copy(&self) -> bool {
        self.wire.wire.zero_copy
    }

    /// Whether the XDP program runs in the device's driver.
    #[must_use]
    pub const fn is_native(&self) -> bool {
        self.wire.wire.native
    }
}

impl<W: Wire> Driver<W> {
    pub(crate) fn with_wire(wire: W, config: Config, info: InterfaceInfo, netlink: Netlink) -> io::Result<Self> {
        let now = Instant::now();
        let stack = Stack::new(&config, &info, now)?;
        Ok(Self {
            wire: Faulty::new(wire, config.faults),
            config,
            info,
            netlink,
            stack,
            wake: Wake::new()?,
            now,
            checked: now,
            conns: Slots::new(u32::MAX),
            tokens: Slots::new(u32::MAX),
            pairs: HashMap::default(),
            claims: HashMap::new(),
            listening: Listeners::default(),
            queue: VecDeque::new(),
            dirty: Vec::new(),
            spare: Vec::new(),
            failures: VecDeque::new(),
            timers: BinaryHeap::new(),
            buffer: Buf::new(),
            stamps: None,
            in_turn: false,
        })
    }

    /// The driver's own token of the connection that the user knows as `token`.
    pub(crate) fn id(&self, token: Token) -> Option<Token> {
        self.tokens.get(token).copied()
    }

    fn conn(&self, token: Token) -> Option<&Conn> {
        self.conns.get(self.id(token)?)
    }

    /// Limits a timeout: to zero if there is work, else to the next timer, and to [`FULL_WAIT`] while frames wait for
    /// room in the device.
    fn limit_timeout(&mut self, timeout: Option<Duration>) -> Option<Duration> {
        if !self.failures.is_empty() || !self.queue.is_empty() || self.has_to_accept() {
            return Some(Duration::ZERO);
        }
        let mut clipped = timeout;
        if !self.dirty.is_empty() {
            let wait = if self.wire.has_room() { Duration::ZERO } else { FULL_WAIT };
            clipped = Some(clipped.map_or(wait, |timeout| timeout.min(wait)));
        }
        if let Some(Reverse((at, _))) = self.timers.peek() {
            let left = at.saturating_duration_since(Instant::now());
            clipped = Some(clipped.map_or(left, |timeout| timeout.min(left)));
        }
        clipped
    }

    pub(crate) fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        let mut timeout = self.limit_timeout(timeout);
        if self.wire.is_readable() || self.wake.is_set() || timeout == Some(Duration::ZERO) {
            // `receive_frames` follows, and looks at all queues.
            return Ok(());
        }
        if !self.config.spin.is_zero() {
            let start = Instant::now();
            let most = timeout.map_or(self.config.spin, |timeout| timeout.min(self.config.spin));
            loop {
                for _ in 0..32 {
                    if self.wire.is_readable() || self.wake.is_set() {
                        return Ok(());
                    }
                    std::hint::spin_loop();
                }
                let spun = start.elapsed();
                if spun >= most {
                    timeout = timeout.map(|timeout| timeout.saturating_sub(spun));
                    break;
                }
                self.wire.recycle();
                self.check(start + spun)?;
            }
            if timeout == Some(Duration::ZERO) {
                return Ok(());
            }
        }
        let owed = self.wake.is_owed().then(Instant::now);
        self.wire.wait(self.wake.as_fd(), timeout)?;
        if let Some(start) = owed
            && self.wake.take_owed()
            && !self.wire.is_readable()
        {
            // Only the late write of an earlier wake ended the wait, and that wake was handled before.
            let left = timeout.map(|timeout| timeout.saturating_sub(start.elapsed()));
            return self.wire.wait(self.wake.as_fd(), left);
        }
        Ok(())
    }

    /// Checks at intervals whether the device is still there.
    fn check(&mut self, now: Instant) -> io::Result<()> {
        if now.saturating_duration_since(self.checked) < CHECK_INTERVAL {
            return Ok(());
        }
        self.checked = now;
        self.wire.check()
    }

    fn deliver(&mut self, buffer: &mut [u8], sink: &mut dyn Sink) {
        // The sink's calls can add failures and connections. Those wait for the next turn.
        for _ in 0..self.failures.len() {
            self.deliver_failure(buffer, sink);
        }
        if self.wake.take() {
            sink.woken(self);
        }
        self.receive_frames();
        self.run_timers();
        for _ in 0..self.queue.len() {
            if let Some(id) = self.queue.pop_front() {
                self.serve(id, buffer, sink);
            }
        }
        self.accept(buffer, sink);
    }

    /// Sends for all connections that have something to send, and flushes the device.
    pub(crate) fn send_all(&mut self) {
        // A connection that becomes dirty meanwhile waits for the next call.
        let mut dirty = mem::replace(&mut self.dirty, mem::take(&mut self.spare));
        for id in dirty.drain(..) {
            if self.conns.get(id).is_some_and(|conn| conn.dirty) {
                self.egress(id);
            }
        }
        self.spare = dirty;
        self.wire.flush();
    }

    /// Sends at once if no turn is under way.
    fn send_unless_in_turn(&mut self) {
        if !self.in_turn {
            self.now = Instant::now();
            self.send_all();
        }
    }

    /// Answers peers, but reports nothing to the user, as a kernel does for its sockets between turns.
    ///
    /// Public for tests only.
    #[doc(hidden)]
    pub fn work_in_background(&mut self) {
        self.now = Instant::now();
        self.receive_frames();
        self.run_timers();
        for id in self.queue.clone() {
            match self.conns.get(id).map(|conn| conn.phase) {
                Some(Phase::HalfOpen(_) | Phase::Waiting(_)) => self.handshake(id),
                Some(Phase::Orphan) => self.continue_closing(id),
                Some(Phase::Resolving { .. }) => self.resolve(id),
                _ => {}
            }
            self.egress(id);
        }
        self.send_all();
    }

    /// Marks a connection as having something to send.
    pub(crate) fn mark_dirty(&mut self, id: Token) {
        if let Some(conn) = self.conns.get_mut(id)
            && !mem::replace(&mut conn.dirty, true)
        {
            self.dirty.push(id);
        }
    }

    /// Queues a connection to be served in the next turn.
    pub(crate) fn enqueue(&mut self, id: Token) {
        if let Some(conn) = self.conns.get_mut(id)
            && !mem::replace(&mut conn.queued, true)
        {
            self.queue.push_back(id);
        }
    }
}

impl<W: Wire> tautline_io::Driver for Driver<W> {
    fn name(&self) -> &'static str {
        "xdp"
    }

    fn listen(&mut self, address: &Address, options: &ListenOptions) -> io::Result<(Listener, Address)> {
        let Address::Tcp(at) = address else { return Err(only_tcp(address)) };
        if options.tcp != TcpOptions::default() {
            let what =
                "the driver xdp has a TCP of its own, without options of the kernel's: leave them out, or use epoll";
            return Err(io::Error::new(io::ErrorKind::Unsupported, what));
        }
        let (listener, at) = self.start_listening(*at, options)?;
        Ok((listener, Address::Tcp(at)))
    }

    fn stop_listening(&mut self) {
        self.end_listening();
    }

    fn pause_accept(&mut self, pause: bool) {
        self.listening.paused = pause;
    }

    fn connect(&mut self, address: &Address) -> io::Result<Token> {
        let Address::Tcp(to) = address else { return Err(only_tcp(address)) };
        self.dial(*to)
    }

    fn send(&mut self, token: Token, mut buf: Buf) -> Sent {
        if let Some(id) = self.id(token)
            && let Some(conn) = self.conns.get_mut(id)
            && conn.phase != Phase::Failed
            && !buf.is_empty()
        {
            if conn.finishing || (conn.phase == Phase::Open && !conn.tcp.get().may_send()) {
                let error = io::ErrorKind::BrokenPipe;
                self.fail_later(id, error.into());
                buf.clear();
                return Sent::Done(buf);
            }
            if conn.phase == Phase::Open && conn.pending.is_empty() {
                conn.put(&mut buf);
                self.mark_dirty(id);
                self.send_unless_in_turn();
            }
            let Some(conn) = self.conns.get_mut(id) else { return Sent::Done(buf) };
            if buf.is_empty() {
                return Sent::Done(buf);
            }
            if conn.pending.is_empty() {
                // The peer may leave the rest unread for long, so few bytes do not keep much memory.
                buf.fit();
                conn.pending = buf;
            } else {
                // The caller broke the contract: a send is pending. Losing bytes within a stream would be worse.
                conn.pending.put(buf.filled());
            }
            return Sent::Pending;
        }
        buf.clear();
        Sent::Done(buf)
    }

    fn pause_receive(&mut self, token: Token, pause: bool) {
        let Some(id) = self.id(token) else { return };
        let Some(conn) = self.conns.get_mut(id) else { return };
        if mem::replace(&mut conn.paused, pause) && !pause {
            self.enqueue(id);
        }
    }

    fn shutdown(&mut self, token: Token) {
        let Some(id) = self.id(token) else { return };
        let Some(conn) = self.conns.get_mut(id) else { return };
        if !mem::replace(&mut conn.finishing, true) && conn.phase == Phase::Open {
            conn.finish();
            self.mark_dirty(id);
            self.send_unless_in_turn();
        }
    }

    fn close(&mut self, token: Token, abort: bool) {
        if let Some(id) = self.tokens.remove(token) {
            self.abandon(id, abort);
            self.send_unless_in_turn();
        }
    }

    fn unsent(&self, token: Token) -> usize {
        self.conn(token).map_or(0, |conn| conn.pending.len())
    }

    fn peer(&self, token: Token) -> Option<Address> {
        self.conn(token).map(|conn| Address::Tcp(conn.pair.remote))
    }

    fn local(&self, token: Token) -> Option<Address> {
        self.conn(token).map(|conn| Address::Tcp(conn.pair.local))
    }

    fn waker(&self) -> Waker {
        self.wake.waker()
    }

    fn stamp_arrivals(&mut self) -> io::Result<()> {
        if self.stamps.is_none() {
            self.wire.stamp()?;
            self.stamps = Some(Stamps { ticker: Ticker::here(), began: 0, arrival: None });
        }
        Ok(())
    }

    fn arrival(&self) -> Option<Arrival> {
        let nanos = self.stamps.as_ref()?.arrival?;
        Some(Arrival { clock: Clock::Monotonic, nanos })
    }

    fn began(&self) -> Option<u64> {
        self.stamps.as_ref().map(|stamps| stamps.began)
    }

    fn turn(&mut self, timeout: Option<Duration>, sink: &mut dyn Sink) -> io::Result<()> {
        if !self.dirty.is_empty() {
            self.now = Instant::now();
            self.send_all();
        }
        self.wait(timeout)?;
        self.now = Instant::now();
        self.check(self.now)?;
        sink.woke(self);
        self.in_turn = true;
        let mut buffer = mem::take(&mut self.buffer);
        // The buffer has no memory in the first turn, and after a sink panicked.
        let len = self.config.headroom + self.config.receive_buffer;
        self.deliver(&mut buffer.reserve(len)[..len], sink);
        self.buffer = buffer;
        self.in_turn = false;
        self.send_all();
        Ok(())
    }
}

impl<W: Wire> Drop for Driver<W> {
    /// Resets open connections, and finishes closed ones for at most `Config::linger`.
    ///
    /// Nothing else answers their peers once the driver is gone.
    fn drop(&mut self) {
        self.now = Instant::now();
        self.end();
    }
}

fn only_tcp(address: &Address) -> io::Error {
    let text = format!("the xdp driver speaks TCP only, not {address}; use another driver for Unix sockets");
    io::Error::new(io::ErrorKind::Unsupported, text)
}
