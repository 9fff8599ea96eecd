use crate::{Address, Arrival, KernelTls, socket};
use rustix::fd::BorrowedFd;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tautline_window::Buf;
use tautline_window::kernel::TrafficKeys;

/// Names one connection of one driver. The generation makes a late event for a reused slot recognisable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Token {
    /// Slot; small, and reused after close, so that it can index a table.
    pub index: u32,
    /// How often the slot was used before.
    pub generation: u32,
}

/// Names one listening socket of one driver, in the order of [`Driver::listen`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Listener(pub u32);

/// How to listen.
#[derive(Clone, Debug)]
pub struct ListenOptions {
    /// Length of the queue of connections that are not accepted yet (`listen(2)`).
    pub backlog: i32,
    /// `SO_REUSEPORT`: several drivers listen at one address and the kernel spreads connections over them.
    pub reuse_port: bool,
    /// Replace a Unix socket's file that nobody listens on any more.
    pub replace_stale: bool,
}

impl Default for ListenOptions {
    fn default() -> Self {
        Self { backlog: 4096, reuse_port: false, replace_stale: true }
    }
}

/// Bytes that arrived, lent for one call. Room for carried bytes lies before them.
#[derive(Debug)]
pub struct Received<'a> {
    buf: &'a mut [u8],
    start: usize,
}

impl<'a> Received<'a> {
    /// `buf[start..]` arrived; `buf[..start]` is free for the receiver to put earlier bytes in front.
    #[must_use]
    pub const fn new(buf: &'a mut [u8], start: usize) -> Self {
        Self { buf, start }
    }

    /// The bytes, yours for this call.
    #[must_use]
    pub fn bytes(self) -> &'a mut [u8] {
        &mut self.buf[self.start..]
    }

    /// Number of bytes that arrived.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.buf.len() - self.start
    }

    /// Whether nothing arrived.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The carried bytes and the new ones as one slice, where `carried` fits the room before the new ones.
    ///
    /// # Errors
    /// Gives the bytes back where it does not.
    pub fn join(self, carried: &[u8]) -> Result<&'a mut [u8], Self> {
        let Some(start) = self.start.checked_sub(carried.len()) else { return Err(self) };
        self.buf[start..self.start].copy_from_slice(carried);
        Ok(&mut self.buf[start..])
    }
}

/// What became of a buffer given to [`Driver::send`].
#[derive(Debug)]
#[must_use]
pub enum Sent {
    /// All of it is with the kernel; the buffer comes back, empty.
    Done(Buf),
    /// The driver keeps it until [`Sink::sent`]; no other send may be asked of this connection before.
    Pending,
}

/// The way to a connection's socket past its driver, for several threads: who has sealed a part of a message sends it.
#[derive(Clone, Copy, Debug)]
pub struct Direct<'a>(BorrowedFd<'a>);

impl<'a> Direct<'a> {
    pub(crate) const fn new(socket: BorrowedFd<'a>) -> Self {
        Self(socket)
    }

    /// Sends what the kernel takes at once, and says how much that is. Less than all means that nothing more may be sent this
    /// way: the kernel is full or the connection is broken, which [`Driver::send`] finds out with the rest.
    #[must_use]
    pub fn send(&self, bytes: &[u8]) -> usize {
        socket::send_some(self.0, bytes).unwrap_or(0)
    }
}

/// Why no more bytes will come.
#[derive(Debug)]
pub enum End {
    /// The peer finished its direction; ours still works.
    Finished,
    /// The connection is broken, or could not be made.
    Failed(io::Error),
}

/// Wakes a driver's [`turn`](Driver::turn) from another thread.
#[derive(Clone)]
pub struct Waker(Arc<dyn Fn() + Send + Sync>);

impl Waker {
    /// A waker that calls `wake`, which must not block.
    #[must_use]
    pub fn new(wake: impl Fn() + Send + Sync + 'static) -> Self {
        Self(Arc::new(wake))
    }

    /// Ends the driver's wait, now or the next time it waits.
    pub fn wake(&self) {
        (self.0)();
    }
}

impl core::fmt::Debug for Waker {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("Waker")
    }
}

/// The sockets of one shard. Not shared between threads.
///
/// A token is valid from [`Sink::accepted`] or [`connect`](Self::connect) until [`close`](Self::close), whatever happens
/// to the connection in between; calls with an unknown or closed token do nothing.
pub trait Driver: Sized + 'static {
    /// The driver's name in configuration, logs and results: `epoll`.
    const NAME: &'static str;

    /// Starts to listen. Returns the listener and the address it got (a port of 0 is resolved).
    ///
    /// # Errors
    /// What `socket(2)`, `bind(2)` and `listen(2)` say.
    fn listen(&mut self, address: &Address, options: &ListenOptions) -> io::Result<(Listener, Address)>;

    /// Stops to accept and closes all listening sockets.
    fn stop_listening(&mut self);

    /// Stops (`true`) or resumes accepting on all listening sockets; connections wait in the kernel's backlog meanwhile.
    fn pause_accept(&mut self, pause: bool);

    /// Begins to connect; [`Sink::connected`] or [`Sink::ended`] follows, never within this call.
    ///
    /// # Errors
    /// No socket could be made.
    fn connect(&mut self, address: &Address) -> io::Result<Token>;

    /// A connection's socket, where nothing waits to be sent on it.
    ///
    /// `None` where something does, where the connection is not open, and where bytes do not reach it by `send(2)` alone.
    fn direct(&self, token: Token) -> Option<Direct<'_>> {
        let _ = token;
        None
    }

    /// Sends all filled bytes of `buf`. Errors come as [`Sink::ended`], never within this call.
    fn send(&mut self, token: Token, buf: Buf) -> Sent;

    /// [Sends](Self::send) what is last: [`shutdown`](Self::shutdown) follows at once, so that both may leave in one packet.
    fn send_last(&mut self, token: Token, buf: Buf) -> Sent {
        self.send(token, buf)
    }

    /// Stops (`true`) or resumes receiving: the kernel's buffers fill and TCP slows the peer down.
    fn pause_receive(&mut self, token: Token, pause: bool);

    /// Finishes our direction once what was given to [`send`](Self::send) is gone (`shutdown(2)`, `SHUT_WR`).
    fn shutdown(&mut self, token: Token);

    /// Closes and frees the slot. No event follows. `abort` discards what is unsent and resets the connection.
    ///
    /// Without `abort` the driver goes on to send what is pending, for a bounded time. Closing while unread bytes are in
    /// the kernel resets a TCP connection, and the peer can lose what was sent last: to be sure that it arrives,
    /// [`shutdown`](Self::shutdown) first and close at [`End::Finished`].
    fn close(&mut self, token: Token, abort: bool);

    /// Bytes of a pending send that the kernel did not take yet.
    fn unsent(&self, token: Token) -> usize;

    /// What it wants to be [given keys](Self::give_keys) for.
    fn kernel_tls(&self) -> KernelTls {
        KernelTls::Off
    }

    /// Has the kernel seal or open TLS records (`linux/tls.h`). With the first keys for sending, what is given to
    /// [`send`](Self::send) is [frames](tautline_window::kernel); with the first for receiving, so is what
    /// [`Sink::received`] gets, whole ones. Nothing of that direction may be with the driver then.
    ///
    /// Later keys for receiving count at once, those for sending from the frame on that says so. Where the kernel refuses
    /// later ones, the connection fails.
    ///
    /// Returns whether the kernel can take later ones.
    ///
    /// # Errors
    /// The first keys are refused: the kernel, the driver or this socket has no TLS. Everything stays as it was.
    fn give_keys(&mut self, token: Token, keys: TrafficKeys) -> io::Result<bool> {
        let _ = (token, keys);
        Err(io::Error::new(io::ErrorKind::Unsupported, format!("the driver {} has no kernel TLS", Self::NAME)))
    }

    /// The peer's address.
    fn peer(&self, token: Token) -> Option<Address>;

    /// A handle that ends a wait from any thread; [`Sink::woken`] follows.
    fn waker(&self) -> Waker;

    /// Has what arrives on connections of later turns stamped, for [`arrival`](Self::arrival). It costs a little per
    /// receive, so it is off until somebody asks.
    ///
    /// # Errors
    /// This driver gives no stamps, or none once it has had connections; the error says why.
    fn stamp_arrivals(&mut self) -> io::Result<()> {
        Err(io::Error::new(io::ErrorKind::Unsupported, format!("the driver {} gives no stamps", Self::NAME)))
    }

    /// Whether what is received next is to have an [`arrival`](Self::arrival), once stamps were asked for: a driver that pays
    /// for each of them leaves out the others.
    fn stamp_next(&mut self, wanted: bool) {
        let _ = wanted;
    }

    /// Within [`Sink::received`]: when the last of the bytes that are lent reached this machine. `None` where that is not
    /// known: before [`stamp_arrivals`](Self::stamp_arrivals), for a while after it, and over Unix sockets.
    ///
    /// Several segments are read at once under load; earlier ones had arrived before this.
    fn arrival(&self) -> Option<Arrival> {
        None
    }

    /// Within [`Sink::received`], after [`stamp_arrivals`](Self::stamp_arrivals): when the driver began to receive the bytes
    /// that are lent (the system call, or the copy out of a TCP stack of its own), by [`Ticker`](crate::Ticker). `None` where
    /// that is not known, as where the kernel receives while the driver waits.
    fn began(&self) -> Option<u64> {
        None
    }

    /// Waits for events at most `timeout` (for ever where it is `None`) and delivers what there is to `sink`.
    ///
    /// One connection gets one bounded [`Sink::received`] a turn, so that a flooding peer cannot starve the others.
    ///
    /// # Errors
    /// Only what makes the driver itself useless.
    fn turn<S: Sink<Self>>(&mut self, timeout: Option<Duration>, sink: &mut S) -> io::Result<()>;
}

/// What a [`Driver`] calls back. Every call may use the driver.
pub trait Sink<D> {
    /// The wait is over; events follow, or none. The place to read the clock once for all of them.
    fn woke(&mut self, driver: &mut D) {
        let _ = driver;
    }

    /// A client connected.
    fn accepted(&mut self, driver: &mut D, token: Token, listener: Listener);

    /// An outgoing connection stands.
    fn connected(&mut self, driver: &mut D, token: Token);

    /// Bytes arrived.
    fn received(&mut self, driver: &mut D, token: Token, data: Received<'_>);

    /// A pending send is done; the buffer comes back, empty.
    fn sent(&mut self, driver: &mut D, token: Token, buf: Buf);

    /// No more bytes will come. The token stays valid until it is closed.
    ///
    /// [`End::Finished`] comes at most once and [`End::Failed`] at most once, the latter last: a pending send is dropped
    /// with it, no [`sent`](Self::sent) follows, and later sends are discarded. What arrived before a failure is
    /// delivered first, unless receiving is paused.
    fn ended(&mut self, driver: &mut D, token: Token, end: End);

    /// A [`Waker`] was used, once or several times.
    fn woken(&mut self, driver: &mut D);

    /// Accepting failed for want of descriptors or memory; the driver tries again by itself after a pause.
    fn accept_failed(&mut self, driver: &mut D, error: io::Error);
}
