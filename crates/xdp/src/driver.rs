use crate::config::Config;
use crate::conn::{Conn, Phase};
use crate::faulty::Faulty;
use crate::frame::Pair;
use crate::hash::Keys;
use crate::listening::Listening;
use crate::netlink::Netlink;
use crate::port::{Facts, Port};
use crate::slab::Slab;
use crate::stack::Stack;
use crate::wake::Wake;
use crate::wire::{CHECK, Wire};
use rustix::fd::AsFd;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::io;
use std::mem;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tautline_io::{Address, Arrival, Clock, ListenOptions, Listener, Sent, Sink, Ticker, Token, Waker};
use tautline_window::Buf;

/// Longest wait while the device has no room for what is to be sent.
const FULL: Duration = Duration::from_millis(1);

/// TCP connections over an AF_XDP interface. See the [crate](crate).
pub struct Driver<W: Wire = Port> {
    pub(crate) config: Config,
    pub(crate) facts: Facts,
    pub(crate) netlink: Netlink,
    pub(crate) wire: Faulty<W>,
    pub(crate) stack: Stack,
    pub(crate) wake: Wake,
    /// The time of this turn.
    pub(crate) now: Instant,
    /// When the device was last known to be there.
    checked: Instant,
    /// All connections, also those that the user does not know yet or any more.
    pub(crate) conns: Slab<Conn>,
    /// Those that the user knows.
    pub(crate) tokens: Slab<Token>,
    pub(crate) pairs: HashMap<Pair, Token, Keys>,
    /// Local endpoints whose frames are ours, and how many listeners and connections need them.
    pub(crate) claims: HashMap<SocketAddr, u32>,
    pub(crate) listening: Listening,
    /// Connections to serve in the next turn, which does not wait.
    pub(crate) queue: VecDeque<Token>,
    /// Connections that have something to send.
    pub(crate) dirty: Vec<Token>,
    /// Empty; room for the next of those.
    clean: Vec<Token>,
    /// Connections whose failure the sink does not know yet.
    pub(crate) failures: VecDeque<(Token, io::Error)>,
    /// When to look at which connection.
    pub(crate) timers: BinaryHeap<Reverse<(Instant, Token)>>,
    /// Headroom and what is lent; empty while it is lent.
    pub(crate) buffer: Vec<u8>,
    /// When what is lent came, and what asks for that.
    pub(crate) stamps: Option<Stamps>,
    /// A turn is under way, at the end of which all is sent.
    in_turn: bool,
}

/// What is known of the bytes that are lent.
pub(crate) struct Stamps {
    pub(crate) ticker: Ticker,
    /// When they began to be copied out of the stack.
    pub(crate) began: u64,
    /// When the last of them came.
    pub(crate) arrival: Option<u64>,
}

impl Driver<Port> {
    /// Opens the interface with the default [`Config`].
    ///
    /// # Errors
    /// No such interface, no privilege, or no support; the text says what to do.
    pub fn new(interface: &str) -> io::Result<Self> {
        Self::with(Config::new(interface))
    }

    /// Opens an interface as `config` says.
    ///
    /// # Errors
    /// No such interface, no privilege, or no support; the text says what to do.
    pub fn with(config: Config) -> io::Result<Self> {
        let config = config.clamp();
        let mut netlink = Netlink::new()?;
        let (port, facts) = Port::open(&config, &mut netlink)?;
        Self::over(port, config, facts, netlink)
    }

    /// Frames that were lost between the device and us: too long, or more than there was room for.
    #[must_use]
    pub fn dropped_frames(&self) -> u64 {
        self.wire.wire.dropped()
    }

    /// Whether the device works in our memory, without copies.
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
    pub(crate) fn over(wire: W, config: Config, facts: Facts, netlink: Netlink) -> io::Result<Self> {
        let now = Instant::now();
        let stack = Stack::new(&config, &facts, now)?;
        Ok(Self {
            wire: Faulty::new(wire, config.faults),
            config,
            facts,
            netlink,
            stack,
            wake: Wake::new()?,
            now,
            checked: now,
            conns: Slab::new(),
            tokens: Slab::new(),
            pairs: HashMap::default(),
            claims: HashMap::new(),
            listening: Listening::default(),
            queue: VecDeque::new(),
            dirty: Vec::new(),
            clean: Vec::new(),
            failures: VecDeque::new(),
            timers: BinaryHeap::new(),
            buffer: Vec::new(),
            stamps: None,
            in_turn: false,
        })
    }

    /// The connection that the user means.
    pub(crate) fn id(&self, token: Token) -> Option<Token> {
        self.tokens.get(token).copied()
    }

    fn conn(&self, token: Token) -> Option<&Conn> {
        self.conns.get(self.id(token)?)
    }

    /// How long to wait: not at all where something is to be done, not past the next timer.
    fn clip(&mut self, timeout: Option<Duration>) -> Option<Duration> {
        if !self.failures.is_empty() || !self.queue.is_empty() || self.has_to_accept() {
            return Some(Duration::ZERO);
        }
        let mut clipped = timeout;
        if !self.dirty.is_empty() {
            let full = if self.wire.has_room() { Duration::ZERO } else { FULL };
            clipped = Some(clipped.map_or(full, |timeout| timeout.min(full)));
        }
        if let Some(Reverse((at, _))) = self.timers.peek() {
            let left = at.saturating_duration_since(Instant::now());
            clipped = Some(clipped.map_or(left, |timeout| timeout.min(left)));
        }
        clipped
    }

    pub(crate) fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        let mut timeout = self.clip(timeout);
        if self.wire.is_readable() || self.wake.is_set() || timeout == Some(Duration::ZERO) {
            // What another queue of the device holds is seen by the receive that follows.
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
                self.wire.settle();
                self.check(start + spun)?;
            }
            if timeout == Some(Duration::ZERO) {
                return Ok(());
            }
        }
        let owed = self.wake.is_owed().then(Instant::now);
        self.wire.wait(self.wake.as_fd(), timeout)?;
        if let Some(start) = owed
            && self.wake.settle()
            && !self.wire.is_readable()
        {
            // It was the end of a wake that has been answered.
            let left = timeout.map(|timeout| timeout.saturating_sub(start.elapsed()));
            return self.wire.wait(self.wake.as_fd(), left);
        }
        Ok(())
    }

    /// Looks, now and then, whether the device is still there.
    fn check(&mut self, now: Instant) -> io::Result<()> {
        if now.saturating_duration_since(self.checked) < CHECK {
            return Ok(());
        }
        self.checked = now;
        self.wire.check()
    }

    fn deliver<S: Sink<Self>>(&mut self, buffer: &mut [u8], sink: &mut S) {
        // What the sink's calls add to them waits for the next turn.
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

    /// Sends what connections have to send, and hands it to the device.
    pub(crate) fn send_all(&mut self) {
        // What is soiled meanwhile waits for the next time.
        let mut dirty = mem::replace(&mut self.dirty, mem::take(&mut self.clean));
        for id in dirty.drain(..) {
            if self.conns.get(id).is_some_and(|conn| conn.dirty) {
                self.egress(id);
            }
        }
        self.clean = dirty;
        self.wire.flush();
    }

    /// Sends at once what is asked for outside of turns.
    fn send_unless_in_turn(&mut self) {
        if !self.in_turn {
            self.now = Instant::now();
            self.send_all();
        }
    }

    /// Does what the kernel does for its sockets at any time: answers peers, and tells the user nothing. Public for tests.
    #[doc(hidden)]
    pub fn work_in_background(&mut self) {
        self.now = Instant::now();
        self.receive_frames();
        self.run_timers();
        for id in self.queue.clone() {
            match self.conns.get(id).map(|conn| conn.phase) {
                Some(Phase::HalfOpen(_) | Phase::Waiting(_)) => self.handshake(id),
                Some(Phase::Orphan) => self.go_on_closing(id),
                Some(Phase::Resolving { .. }) => self.resolve(id),
                _ => {}
            }
            self.egress(id);
        }
        self.send_all();
    }

    /// Marks a connection as having something to send.
    pub(crate) fn soil(&mut self, id: Token) {
        if let Some(conn) = self.conns.get_mut(id)
            && !mem::replace(&mut conn.dirty, true)
        {
            self.dirty.push(id);
        }
    }

    /// Lets the next turn serve a connection.
    pub(crate) fn enqueue(&mut self, id: Token) {
        if let Some(conn) = self.conns.get_mut(id)
            && !mem::replace(&mut conn.queued, true)
        {
            self.queue.push_back(id);
        }
    }
}

impl<W: Wire + 'static> tautline_io::Driver for Driver<W> {
    const NAME: &'static str = "xdp";

    fn listen(&mut self, address: &Address, options: &ListenOptions) -> io::Result<(Listener, Address)> {
        let Address::Tcp(at) = address else { return Err(only_tcp(address)) };
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
                self.soil(id);
                self.send_unless_in_turn();
            }
            let Some(conn) = self.conns.get_mut(id) else { return Sent::Done(buf) };
            if buf.is_empty() {
                return Sent::Done(buf);
            }
            if conn.pending.is_empty() {
                conn.pending = buf;
            } else {
                // Against the contract, but losing bytes in the middle of a stream would be worse.
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
            self.soil(id);
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

    fn turn<S: Sink<Self>>(&mut self, timeout: Option<Duration>, sink: &mut S) -> io::Result<()> {
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
        // Nothing is there in the first turn, and after a sink that panicked.
        buffer.resize(self.config.headroom + self.config.receive_buffer, 0);
        self.deliver(&mut buffer, sink);
        self.buffer = buffer;
        self.in_turn = false;
        self.send_all();
        Ok(())
    }
}

impl<W: Wire> Drop for Driver<W> {
    /// Sends to its end what was closed in good order, for at most `Config::linger`, and resets what is still open: nobody
    /// else could answer its peers.
    fn drop(&mut self) {
        self.now = Instant::now();
        self.end();
    }
}

fn only_tcp(address: &Address) -> io::Error {
    let text = format!("the xdp driver speaks TCP only, not {address}; use another driver for Unix sockets");
    io::Error::new(io::ErrorKind::Unsupported, text)
}
