//! The driver over io_uring(7): needs Linux 6.12, and a machine that permits it.
//!
//! A request to accept or to receive completes again and again, so that a message costs no system call. The kernel
//! copies into buffers that it was given before, while the driver waits for any event. These buffers form one small
//! log, which all connections share without gaps. Each turn begins at its front. Bytes in flight thus stay in the cache, room for carried bytes lies in front of every message, and idle connections hold no
//! buffer. Replies leave at once, by send(2). Only bytes that the kernel has no room for go through the ring, so that a
//! turn enters the ring once.
//!
//! If large messages arrive on many connections at once, the log would leave the cache before it is looked at. The
//! kernel then only reports such connections, and the driver receives from each directly, into one buffer.
//!
//! A connection that finds no buffer is received from directly too, as the [`epoll`](crate::epoll) driver does. The
//! sink gets no bytes of a connection that is paused or had its share of the turn. Such bytes are copied out of the log.
//! The kernel stops receiving for a connection that is paused or has too many of them: no peer can exhaust the buffers.
//!
//! The thread of the first turn is the only one that can use the driver from then on.

mod accept;
mod conn;
mod listeners;
mod receive;
mod reports;
mod send;
mod still;
mod sys;

use crate::deferred::Deferred;
use crate::driver::aligned_headroom;
use crate::slots::Slots;
use crate::spin::Spinner;
use crate::stamp::{Arrivals, Departures};
use crate::wake::Wake;
use crate::{Address, Arrival, Direct, Held, ListenOptions, Listener, Sent, Sink, Spin, Token, Waker, socket};
use conn::{Conn, Phase};
use listeners::Listeners;
use reports::Reports;
use rustix::event::PollFlags;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{self, sockopt};
use std::cell::OnceCell;
use std::collections::VecDeque;
use std::io;
use std::mem;
use std::net::IpAddr;
use std::panic::{self, AssertUnwindSafe};
use std::time::{Duration, Instant};
use sys::{BufferRing, MAX_INDEX, Ring, Sizes, Source};
use tautline_buf::Buf;

/// How a [`Driver`] works. The defaults suit servers and clients of any size.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// Most bytes of one connection that are delivered at once. Default 256 KiB.
    pub receive_buffer: usize,
    /// Room in front of received bytes for carried ones, see [`Received::join`](crate::Received::join). Default 20
    /// KiB: more than one TLS record (RFC 8446 section 5.2: 16,640 bytes behind a header of 5).
    pub headroom: usize,
    /// Number of buffers that the kernel receives into, rounded up to a power of two, at least 2. Default 4.
    pub buffers: u16,
    /// Bytes of each buffer. Default 64 KiB: all of them stay in a core's second-level cache.
    pub buffer: u32,
    /// Messages of at least this many bytes are large. Default 8 KiB.
    ///
    /// Once a turn receives more than half of `buffers` can hold, the kernel only reports connections with large
    /// messages. The driver receives from them into one buffer, which stays in the cache. This lasts until the
    /// connection's messages are smaller. 0 does so with all connections from the start.
    pub large: usize,
    /// Sends of at least this many bytes are made from the buffer instead of from a copy (`IORING_OP_SEND_ZC`). They
    /// are [pending](crate::Sent::Pending) until the peer has acknowledged them, so a connection holds one buffer
    /// longer and a stream of messages joins into larger sends. Pays only with a network card that can do it, and
    /// large messages: see `docs/drivers.md`. Default never.
    pub zero_copy: usize,
    /// Requests that fit the kernel's queue; more cost another system call. Default 256.
    pub submissions: u32,
    /// Completions that fit the kernel's queue. Default 2048.
    pub completions: u32,
    /// How long a closed connection may go on sending its pending bytes before it is reset. Default 5 seconds.
    pub linger: Duration,
    /// How the driver spins instead of sleeping. By default it sleeps.
    pub spin: Option<Spin>,
    /// Address of this machine that TCP connections are opened from. By default the kernel chooses it.
    ///
    /// A source has about 28,000 ports for each destination (`net.ipv4.ip_local_port_range`).
    pub source: Option<IpAddr>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            receive_buffer: 256 * 1024,
            headroom: 20 * 1024,
            buffers: 4,
            buffer: 64 * 1024,
            large: 8 * 1024,
            zero_copy: usize::MAX,
            submissions: 256,
            completions: 2048,
            linger: Duration::from_secs(5),
            spin: None,
            source: None,
        }
    }
}

/// See the [module](self).
pub struct Driver {
    config: Config,
    /// Dropped before the sockets: requests keep theirs open.
    ring: Ring,
    spinner: Spinner,
    wake: Wake,
    /// For the loop of somebody else, once that has asked for it.
    reports: OnceCell<Option<Reports>>,
    /// The request that reports wakes is armed.
    waking: bool,
    slots: Slots<Conn>,
    listeners: Listeners,
    deferred: Deferred,
    /// Number of connections with [`Conn::full`].
    waiting: usize,
    /// Connections whose failure the sink does not know yet.
    failures: VecDeque<Token>,
    /// Connections to look at without another report by the kernel, see [`Conn::queued`].
    queue: VecDeque<Token>,
    /// Headroom and buffer for direct receives; empty while it is lent, and before it is needed.
    buffer: Buf,
    arrivals: Arrivals,
    departures: Departures,
    /// No request of a connection runs, and none may start before the next turn.
    still: bool,
    /// Sends that ended meanwhile.
    sent: VecDeque<(Token, Buf)>,
    /// Number of the turn.
    turn: u64,
    /// Bytes received in this turn, and in the one before.
    volume: (usize, usize),
}

impl Driver {
    /// A driver with the default [`Config`].
    ///
    /// # Errors
    /// This machine has no io_uring, or an older one, or does not permit it. The error says which.
    pub fn new() -> io::Result<Self> {
        Self::with(Config::default())
    }

    /// A driver with this `config`. Sizes and numbers of 0 count as 1, except `headroom`; `buffers` is 2 to 16,384.
    ///
    /// # Errors
    /// This machine has no io_uring, or an older one, or does not permit it. The error says which.
    pub fn with(mut config: Config) -> io::Result<Self> {
        config.receive_buffer = config.receive_buffer.max(1);
        config.headroom = aligned_headroom(config.headroom);
        let ring = Ring::new(&Sizes {
            submissions: config.submissions.max(1),
            completions: config.completions.max(config.submissions).max(1),
            buffers: config.buffers.clamp(2, 1 << 14),
            buffer: config.buffer.max(1),
            headroom: config.headroom,
        })?;
        if let Some(spin) = &config.spin {
            Spin::report("io_uring", &vec![("IORING_REGISTER_NAPI", ring.poll_cards(spin.busy_poll_micros()))]);
        }
        Ok(Self {
            spinner: Spinner::new(config.spin.clone()),
            config,
            ring,
            wake: Wake::new()?,
            reports: OnceCell::new(),
            waking: false,
            slots: Slots::new(MAX_INDEX),
            listeners: Listeners::default(),
            deferred: Deferred::default(),
            waiting: 0,
            failures: VecDeque::new(),
            queue: VecDeque::new(),
            buffer: Buf::new(),
            arrivals: Arrivals::default(),
            departures: Departures::default(),
            still: false,
            sent: VecDeque::new(),
            turn: 0,
            volume: (0, 0),
        })
    }

    fn conn(&self, fd: OwnedFd, phase: Phase) -> Conn {
        Conn { bulk: self.config.large == 0, ..Conn::new(fd, phase) }
    }

    /// How long the kernel may wait: not at all if something is to be done, and not past the next deferred work.
    fn clip(&self, timeout: Option<Duration>) -> Option<Duration> {
        if !self.failures.is_empty() || !self.queue.is_empty() || !self.sent.is_empty() || self.accepted_wait() {
            return Some(Duration::ZERO);
        }
        self.deferred.clip(timeout)
    }

    /// Submits all requests to the kernel, and waits.
    fn enter(&mut self, timeout: Option<Duration>, buffer_ring: &mut BufferRing) -> io::Result<()> {
        self.ring.rewind(buffer_ring);
        if let Some(Some(reports)) = self.reports.get() {
            reports.clear();
        }
        if !self.waking {
            self.ring.poll(self.wake.fd(), PollFlags::IN, true, Source::Wake);
            self.waking = true;
        }
        self.arm_listeners();
        let timeout = if self.ring.ready() > 0 { Some(Duration::ZERO) } else { self.clip(timeout) };
        let ring = &mut self.ring;
        self.spinner.wait(timeout, |timeout| ring.enter(timeout).map(|()| ring.ready()))?;
        Ok(())
    }

    fn deliver(&mut self, buffer_ring: &mut BufferRing, sink: &mut dyn Sink) {
        // Entries that the sink's calls add to these queues wait for the next turn.
        let (failures, queued, ready) = (self.failures.len(), self.queue.len(), self.ring.ready());
        for _ in 0..failures {
            self.deliver_failure(sink);
        }
        self.deliver_waiting(sink);
        self.report_sent(sink);
        for _ in 0..ready {
            let Some(completion) = self.ring.next(buffer_ring) else { break };
            match completion.source {
                Source::Receive(token) => {
                    self.receive_completed(token, completion, sink);
                    buffer_ring.recycle();
                }
                Source::Send(_) => self.send_completed(completion, sink),
                Source::Accept { .. } => self.accept_completed(completion, sink),
                Source::Connect(token) => self.connect_completed(token, completion.result, sink),
                Source::Watch(token) => self.watch_completed(token, &completion, sink),
                Source::Wake => {
                    self.waking = completion.more;
                    if completion.result.is_ok() {
                        self.wake.clear();
                        sink.woken(self);
                    }
                }
                Source::Cancel => {}
            }
        }
        for _ in 0..queued {
            self.go_on(sink);
        }
    }

    fn run_deferred(&mut self) {
        let now = Instant::now();
        if self.deferred.due_accept(now) {
            self.apply_pause();
        }
        let (connects, sends) = self.deferred.due_retries(now);
        for (token, address) in connects {
            self.start_connecting(token, address);
        }
        for token in sends {
            self.go_on_sending(token);
        }
        while let Some(token) = self.deferred.due_orphan(now) {
            crate::Driver::close(self, token, true);
        }
    }

    fn start_connecting(&mut self, token: Token, address: Address) {
        let Some(conn) = self.slots.get_mut(token) else { return };
        match socket::connect(&conn.fd, &address) {
            Ok(()) => self.await_connection(token),
            Err(Errno::AGAIN) if matches!(address, Address::Unix(_)) => self.deferred.retry_later(token, address),
            Err(errno) => self.fail_later(token, errno),
        }
    }

    fn await_connection(&mut self, token: Token) {
        let Some(conn) = self.slots.get_mut(token) else { return };
        self.ring.poll(&conn.fd, PollFlags::OUT, false, Source::Connect(token));
        conn.flush = self.ring.flushes();
    }

    fn connect_completed(&mut self, token: Token, result: Result<u32, Errno>, sink: &mut dyn Sink) {
        let Some(conn) = self.slots.get_mut(token) else { return };
        if conn.phase != Phase::Connecting {
            return;
        }
        match sockopt::socket_error(&conn.fd) {
            Ok(Ok(())) if result.is_ok_and(|events| events & u32::from(PollFlags::OUT.bits()) != 0) => {
                conn.phase = Phase::Open;
                if conn.out.is_empty() && conn.finishing {
                    socket::finish(&conn.fd);
                }
                self.go_on_sending(token);
                sink.connected(self, token);
                self.update(token);
            }
            Ok(Ok(())) => self.await_connection(token),
            Ok(Err(errno)) | Err(errno) => self.fail(token, errno, sink),
        }
    }
}

impl crate::Driver for Driver {
    fn name(&self) -> &'static str {
        "io_uring"
    }

    fn listen(&mut self, address: &Address, options: &ListenOptions) -> io::Result<(Listener, Address)> {
        let socket = self.spinner.listen(address, options)?;
        self.start_accepting(socket)
    }

    fn listen_on(&mut self, socket: OwnedFd) -> io::Result<(Listener, Address)> {
        let socket = self.spinner.listen_on(socket)?;
        self.start_accepting(socket)
    }

    fn stop_listening(&mut self) {
        self.close_listeners();
    }

    fn pause_accept(&mut self, pause: bool) {
        self.pause_accepting(pause);
    }

    fn adopt(&mut self, socket: OwnedFd) -> io::Result<Token> {
        socket::adopt(&socket)?;
        self.arrivals.watch(&socket);
        let token = self.slots.insert(self.conn(socket, Phase::Open))?;
        self.update(token);
        Ok(token)
    }

    fn hold_still(&mut self) -> io::Result<()> {
        self.stop_requests()
    }

    fn held(&self, token: Token) -> Option<Held<'_>> {
        self.held_still(token)
    }

    fn give_away(&mut self, token: Token) {
        self.let_go(token);
    }

    fn listening(&self) -> io::Result<Vec<OwnedFd>> {
        self.listeners.sockets.iter().flatten().map(|socket| socket.listening.fd.try_clone()).collect()
    }

    fn give_listening_away(&mut self) {
        self.let_listeners_go();
    }

    fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        let reports = self.reports.get_or_init(|| {
            let made =
                Reports::new(self.wake.fd()).and_then(|made| self.ring.report_to(made.completions()).map(|()| made));
            made.inspect_err(|error| log::warn!("no other loop can wait for io_uring: {error}")).ok()
        });
        reports.as_ref().map(Reports::fd)
    }

    fn next_work(&mut self) -> Option<Duration> {
        let to_arm = !self.waking || self.listeners.unarmed && !self.deferred.accept_rests();
        if to_arm || self.ring.has_work() { Some(Duration::ZERO) } else { self.clip(None) }
    }

    fn connect(&mut self, address: &Address) -> io::Result<Token> {
        self.connect_from(address, &crate::Source::default())
    }

    fn connect_from(&mut self, address: &Address, source: &crate::Source) -> io::Result<Token> {
        let socket = self.spinner.stream(address, &source.or_address(self.config.source))?;
        self.arrivals.watch(&socket);
        let token = self.slots.insert(self.conn(socket, Phase::Connecting))?;
        self.start_connecting(token, address.clone());
        Ok(token)
    }

    fn direct(&self, token: Token) -> Option<Direct<'_>> {
        let conn = self.slots.get(token)?;
        (conn.phase == Phase::Open && conn.drained() && !conn.stamped).then(|| Direct::new(conn.fd.as_fd()))
    }

    fn send(&mut self, token: Token, buf: Buf) -> Sent {
        self.accept_send(token, buf)
    }

    fn send_stamped(&mut self, token: Token, mut buf: Buf) -> (Sent, Option<u32>) {
        match self.send_all_stamped(token, &mut buf) {
            None => (self.accept_send(token, buf), None),
            number => (Sent::Done(buf), number),
        }
    }

    fn pause_receive(&mut self, token: Token, pause: bool) {
        let Some(conn) = self.slots.get_mut(token) else { return };
        if mem::replace(&mut conn.paused, pause) == pause {
            return;
        }
        if !pause && (conn.backlog.is_some() || conn.hungry || conn.ending.is_some()) {
            self.enqueue(token);
        }
        self.update(token);
    }

    fn shutdown(&mut self, token: Token) {
        if let Some(conn) = self.slots.get_mut(token)
            && !conn.finishing
        {
            conn.finishing = true;
            if conn.drained() && conn.phase == Phase::Open {
                socket::finish(&conn.fd);
            }
        }
    }

    fn close(&mut self, token: Token, abort: bool) {
        if !abort && !self.flush_at_close(token) {
            return self.orphan(token);
        }
        let Some(conn) = self.slots.get(token) else { return };
        if abort {
            // Resets a TCP connection at once, although requests may keep its socket open for a moment; fails on
            // others.
            let _ = net::connect_unspec(&conn.fd);
        }
        self.remove(token);
    }

    fn unsent(&self, token: Token) -> usize {
        let sending = |conn: &Conn| conn.sending.map_or(0, |number| self.ring.send_len(number));
        self.slots.get(token).map_or(0, |conn| conn.out.len() + sending(conn))
    }

    fn peer(&self, token: Token) -> Option<Address> {
        socket::peer(&self.slots.get(token)?.fd)
    }

    fn local(&self, token: Token) -> Option<Address> {
        socket::local(self.slots.get(token)?.fd.as_fd()).ok()
    }

    fn waker(&self) -> Waker {
        self.wake.waker()
    }

    fn stamp_arrivals(&mut self) -> io::Result<()> {
        if !self.slots.is_new() {
            let why = "stamps are to be asked for before there are connections, which receive without";
            return Err(io::Error::new(io::ErrorKind::Unsupported, why));
        }
        self.arrivals.ask();
        self.ring.stamp();
        Ok(())
    }

    fn stamp_next(&mut self, wanted: bool) {
        self.arrivals.want(wanted);
    }

    fn arrival(&self) -> Option<Arrival> {
        self.arrivals.last()
    }

    fn began(&self) -> Option<u64> {
        self.arrivals.began()
    }

    fn turn(&mut self, timeout: Option<Duration>, sink: &mut dyn Sink) -> io::Result<()> {
        let Some(mut buffer_ring) = self.ring.lend_inbox() else {
            return Err(io::Error::other("a turn was asked for within a turn"));
        };
        if self.still {
            self.move_again();
        }
        // A sink that panics loses its turn only: the buffer ring must come back for the next one.
        let told = panic::catch_unwind(AssertUnwindSafe(|| {
            self.enter(timeout, &mut buffer_ring)?;
            self.turn = self.turn.wrapping_add(1);
            self.volume = (0, self.volume.0);
            sink.woke(self);
            self.deliver(&mut buffer_ring, sink);
            io::Result::Ok(())
        }));
        self.ring.return_inbox(buffer_ring);
        match told {
            Ok(told) => told?,
            Err(panic) => panic::resume_unwind(panic),
        }
        if self.deferred.next().is_some() {
            self.run_deferred();
        }
        Ok(())
    }
}
