use crate::listen_options::ListenOptions;
use crate::{Address, Arrival, KernelTls, Source, socket};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tautline_buf::kernel_tls::TrafficKeys;
use tautline_buf::{Buf, copy_in_pieces};

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

    /// The carried bytes and the new ones as one slice, if `carried` fits the room before the new ones.
    ///
    /// # Errors
    /// `carried` does not fit: gives the new bytes back.
    pub fn join(self, carried: &[u8]) -> Result<&'a mut [u8], Self> {
        let Some(start) = self.start.checked_sub(carried.len()) else { return Err(self) };
        copy_in_pieces(carried, &mut self.buf[start..self.start]);
        Ok(&mut self.buf[start..])
    }
}

/// The least headroom of `headroom` bytes or more behind which received bytes are aligned as a [`Buf`] is.
pub(crate) fn aligned_headroom(headroom: usize) -> usize {
    headroom.checked_next_multiple_of(Buf::ALIGN).unwrap_or(headroom)
}

/// The outcome of [`Driver::send`]: the driver gives the buffer back, or keeps it for now.
#[derive(Debug)]
#[must_use]
pub enum Sent {
    /// The kernel took all of it, or it was discarded as the connection is broken or closed. The buffer comes back,
    /// empty.
    Done(Buf),
    /// The driver keeps the buffer until [`Sink::sent`]. Before that, the connection takes no other send.
    Pending,
}

/// A connection's socket, for sends that do not pass through its driver. A thread that has sealed a part of a message sends it
/// itself.
#[derive(Clone, Copy, Debug)]
pub struct Direct<'a>(BorrowedFd<'a>);

impl<'a> Direct<'a> {
    pub(crate) const fn new(socket: BorrowedFd<'a>) -> Self {
        Self(socket)
    }

    /// Sends the bytes that the kernel takes at once, and returns their number. If that is less than all, nothing more
    /// may be sent this way: the kernel is full or the connection is broken. [`Driver::send`] finds out which with the
    /// rest.
    #[must_use]
    pub fn send(&self, bytes: &[u8]) -> usize {
        socket::send_some(self.0, bytes).unwrap_or(0)
    }

    /// Has the kernel send at most `most` bytes of a file from `at` on, which moves on. Returns their number, like
    /// [`send`](Self::send).
    #[must_use]
    pub fn send_file(&self, file: impl AsFd, at: &mut u64, most: u64) -> u64 {
        socket::send_file(self.0, file.as_fd(), at, most).unwrap_or(0)
    }
}

/// An open connection as its driver has it, to be given to another process.
#[derive(Clone, Copy, Debug)]
pub struct Held<'a> {
    /// The socket.
    pub socket: BorrowedFd<'a>,
    /// Bytes that the driver has received and not delivered.
    pub received: &'a [u8],
    /// Bytes that the driver has taken and the kernel has not.
    pub unsent: &'a [u8],
}

/// The reason why no more bytes will come.
#[derive(Debug)]
pub enum End {
    /// The peer finished its direction; ours still works.
    Finished,
    /// The connection is broken, or could not be made.
    Failed(io::Error),
    /// As `Failed`, since the peer broke this rule of the connection that [carries](Driver::carrier) this one, or met a limit there.
    Faulty(&'static str),
}

/// The end of a connection that [carries](Driver::carrier) others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CarrierEnd {
    /// It carries none any more.
    Done,
    /// Its peer broke this rule, or met this limit.
    Fault(&'static str),
}

/// The fault of a peer for which one stream ends, or does not begin. The connection that [carries](Driver::carrier) it goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum StreamFault {
    /// The peer began more streams at once than it may.
    Streams,
    /// The peer sent more than the window of the stream allows.
    Window,
    /// The head has more bytes or fields than are taken.
    Head,
    /// The peer broke this rule.
    Rule(&'static str),
}

impl StreamFault {
    /// The rule or limit.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Streams => "too many streams at once",
            Self::Window => "more DATA than the stream's window allows",
            Self::Head => "more header fields, or longer ones, than are taken",
            Self::Rule(rule) => rule,
        }
    }
}

impl From<&'static str> for StreamFault {
    fn from(rule: &'static str) -> Self {
        Self::Rule(rule)
    }
}

impl fmt::Display for StreamFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

/// A request that a driver has answered in place of the loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answered<'a> {
    /// The status of the response.
    pub status: u16,
    /// The method, if the head of the request could be read. It and the others are not known for a connection of the loop.
    pub method: Option<&'a str>,
    /// The path without the query.
    pub path: Option<&'a str>,
    /// The value of `user-agent`.
    pub user_agent: Option<&'a str>,
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
/// A token is valid from [`Sink::accepted`] or [`connect`](Self::connect) until [`close`](Self::close), whatever
/// happens to the connection in between; calls with an unknown or closed token do nothing.
pub trait Driver {
    /// The driver's name in messages: `epoll`.
    fn name(&self) -> &'static str;

    /// Starts to listen. Returns the listener and the address it got (a port of 0 is resolved).
    ///
    /// # Errors
    /// `socket(2)`, `bind(2)` or `listen(2)` fails, or the driver cannot take another socket.
    fn listen(&mut self, address: &Address, options: &ListenOptions) -> io::Result<(Listener, Address)>;

    /// Accepts connections from a listening socket that something else has made, and that others may accept from too.
    ///
    /// # Errors
    /// The socket is none of these, or the driver cannot take sockets of others.
    fn listen_on(&mut self, socket: OwnedFd) -> io::Result<(Listener, Address)> {
        drop(socket);
        unsupported(self.name(), "cannot take listening sockets of others; epoll, io_uring and select can")
    }

    /// Stops accepting and closes all listening sockets.
    fn stop_listening(&mut self);

    /// Stops (`true`) or resumes accepting on all listening sockets; connections wait in the kernel's backlog
    /// meanwhile.
    fn pause_accept(&mut self, pause: bool);

    /// Takes a connected stream socket that something else has accepted. No [`Sink::accepted`] follows. After
    /// [`hold_still`](Self::hold_still), nothing is read from it before the next turn.
    ///
    /// # Errors
    /// The socket is none of these, or the driver cannot take sockets of others.
    fn adopt(&mut self, socket: OwnedFd) -> io::Result<Token> {
        drop(socket);
        unsupported(self.name(), "cannot take connections of others; epoll, io_uring and select can")
    }

    /// Has nothing of any connection move until the next turn, so that each can be given to another process.
    ///
    /// Requests of the kernel that run are ended. The bytes that they received or did not send count as [held](Self::held).
    ///
    /// # Errors
    /// The driver cannot give connections away, or fails. The next turn goes on as if nothing had happened.
    fn hold_still(&mut self) -> io::Result<()> {
        unsupported(self.name(), "cannot give connections away; epoll, io_uring and select can")
    }

    /// An open connection's socket and the bytes that the driver has of it, after [`hold_still`](Self::hold_still).
    ///
    /// `None` if the connection cannot be given away: it is broken, the kernel does its TLS, or sends from our buffers until
    /// the peer has acknowledged them. If our direction [ends](Self::shutdown) behind unsent bytes, it has not ended yet.
    fn held(&self, token: Token) -> Option<Held<'_>> {
        let _ = token;
        None
    }

    /// Closes this process's descriptor of a connection and frees the slot, without any effect on the connection.
    ///
    /// Another process has the socket and all [held](Self::held) bytes.
    fn give_away(&mut self, token: Token) {
        let _ = token;
    }

    /// Copies of the listening sockets, for another process.
    ///
    /// # Errors
    /// The driver cannot give them, or no descriptors are left.
    fn listening(&self) -> io::Result<Vec<OwnedFd>> {
        unsupported(self.name(), "cannot give listening sockets away; epoll, io_uring and select can")
    }

    /// Stops accepting like [`stop_listening`](Self::stop_listening), but leaves the files of Unix sockets: another process
    /// listens there.
    fn give_listening_away(&mut self) {
        self.stop_listening();
    }

    /// A descriptor that is readable when a turn has something to do; `None` if the driver has none.
    fn poll_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// The time until the driver has something to do by itself; `None` if it waits only for [`poll_fd`](Self::poll_fd).
    fn next_work(&mut self) -> Option<Duration> {
        None
    }

    /// Begins to connect; [`Sink::connected`] or [`Sink::ended`] follows, never within this call.
    ///
    /// # Errors
    /// No socket could be made.
    fn connect(&mut self, address: &Address) -> io::Result<Token>;

    /// Begins to connect like [`connect`](Self::connect), from this end of the machine. A driver's own choice of an address
    /// gives way to it.
    ///
    /// # Errors
    /// No socket could be made, the address or the interface cannot be used, or this driver has no choice.
    fn connect_from(&mut self, address: &Address, source: &Source) -> io::Result<Token> {
        if *source == Source::default() {
            return self.connect(address);
        }
        unsupported(self.name(), "cannot choose the address, interface or TCP options of a connection")
    }

    /// A connection's socket for sends past the driver, if the connection is open and no send is pending.
    ///
    /// `None` also if plain `send(2)` does not do, as with kernel TLS or a userspace stack.
    fn direct(&self, token: Token) -> Option<Direct<'_>> {
        let _ = token;
        None
    }

    /// Sends all filled bytes of `buf`. Errors come as [`Sink::ended`], never within this call.
    fn send(&mut self, token: Token, buf: Buf) -> Sent;

    /// [Sends](Self::send) the last bytes: [`shutdown`](Self::shutdown) follows at once, so both may leave in one
    /// packet.
    fn send_last(&mut self, token: Token, buf: Buf) -> Sent {
        self.send(token, buf)
    }

    /// [Sends](Self::send), and has the kernel stamp the last byte when it leaves the machine. The stamp follows as
    /// [`Sink::departed`], with the number that is returned here.
    ///
    /// There is no number, and no stamp follows, if the kernel does not take all bytes at once or gives no stamps: over
    /// Unix sockets, before Linux 6.2, if it seals TLS records, and with other drivers than epoll and io_uring. A stamp
    /// can be lost also later, as when the network card's driver makes none.
    fn send_stamped(&mut self, token: Token, buf: Buf) -> (Sent, Option<u32>) {
        (self.send(token, buf), None)
    }

    /// Stops (`true`) or resumes receiving: the kernel's buffers fill and TCP slows the peer down.
    fn pause_receive(&mut self, token: Token, pause: bool);

    /// Finishes our direction once all bytes given to [`send`](Self::send) are sent (`shutdown(2)`, `SHUT_WR`).
    fn shutdown(&mut self, token: Token);

    /// Closes and frees the slot. No event follows. `abort` discards unsent bytes and resets the connection.
    ///
    /// Without `abort` the driver goes on to send pending bytes, for a bounded time. Closing while unread bytes are in
    /// the kernel resets a TCP connection, and the peer can lose the bytes sent last. To be sure that they arrive,
    /// [`shutdown`](Self::shutdown) first and close at [`End::Finished`].
    fn close(&mut self, token: Token, abort: bool);

    /// Bytes of a pending send that the kernel did not take yet.
    fn unsent(&self, token: Token) -> usize;

    /// The records for which the driver wants to be [given keys](Self::give_keys).
    fn kernel_tls(&self) -> KernelTls {
        KernelTls::Off
    }

    /// Has the kernel seal or open TLS records (`linux/tls.h`).
    ///
    /// From the first keys for sending on, [`send`](Self::send) takes [frames](tautline_buf::kernel_tls). From the
    /// first keys for receiving on, [`Sink::received`] gets whole frames. The driver may hold no bytes of that
    /// direction when it gets the first keys.
    ///
    /// Later keys for receiving count at once. Later keys for sending count from the next
    /// [`NEW_KEYS`](tautline_buf::kernel_tls::NEW_KEYS) frame on. If the kernel refuses later keys, the connection
    /// fails.
    ///
    /// Returns whether the kernel can take later keys.
    ///
    /// # Errors
    /// The first keys are refused: the kernel, the driver or this socket has no TLS. Everything stays as it was.
    fn give_keys(&mut self, token: Token, keys: TrafficKeys) -> io::Result<bool> {
        let _ = (token, keys);
        unsupported(self.name(), "has no kernel TLS")
    }

    /// The peer's address.
    fn peer(&self, token: Token) -> Option<Address>;

    /// The address of this end. `None` if the driver does not know it.
    fn local(&self, token: Token) -> Option<Address> {
        let _ = token;
        None
    }

    /// A handle that ends a wait from any thread; [`Sink::woken`] follows.
    fn waker(&self) -> Waker;

    /// Has bytes on connections of later turns stamped as they arrive, for [`arrival`](Self::arrival). Stamps cost a
    /// little per receive, so they are off until this call.
    ///
    /// # Errors
    /// This driver gives no stamps, or none once it has had connections; the error says why.
    fn stamp_arrivals(&mut self) -> io::Result<()> {
        unsupported(self.name(), "gives no stamps")
    }

    /// Sets whether the next received bytes need an [`arrival`](Self::arrival), once stamps were asked for. A driver
    /// that pays for each stamp leaves out the others.
    fn stamp_next(&mut self, wanted: bool) {
        let _ = wanted;
    }

    /// Within [`Sink::received`]: when the last of the lent bytes reached this machine. `None` if that is not known:
    /// before [`stamp_arrivals`](Self::stamp_arrivals), for a while after it, and over Unix sockets.
    ///
    /// Under load one receive reads several segments; all but the last arrived before this time.
    fn arrival(&self) -> Option<Arrival> {
        None
    }

    /// Within [`Sink::received`], after [`stamp_arrivals`](Self::stamp_arrivals): when the driver began to receive the
    /// bytes that are lent (the system call, or the copy out of a TCP stack of its own), by [`Ticker`](crate::Ticker).
    /// `None` if that is not known, as when the kernel receives while the driver waits.
    fn began(&self) -> Option<u64> {
        None
    }

    /// Takes plaintext of a connection that carries others, as by HTTP/2. The driver makes them known as [accepted](Sink::accepted)
    /// ones. Without bytes it begins a connection whose peer has said nothing yet.
    ///
    /// Only connections whose TLS has negotiated that reach this, and only with a driver that [`carries`](Self::carrier) others.
    fn opened(&mut self, token: Token, plain: &mut [u8]) {
        let _ = (token, plain);
    }

    /// Memory that is held for a connection that carries others, beside theirs and unless it is little: parts of what its peer
    /// says, and what waits for its peer.
    fn held_for_carrier(&self, token: Token) -> usize {
        let _ = token;
        0
    }

    /// Has a connection that carries others take no new ones, and end behind the last of them.
    fn go_away(&mut self, token: Token) {
        let _ = token;
    }

    /// The connection that carries this one.
    fn carrier(&self, token: Token) -> Option<Token> {
        let _ = token;
        None
    }

    /// The connections that this one carries.
    fn carried_by(&self, token: Token) -> Vec<Token> {
        let _ = token;
        Vec::new()
    }

    /// Waits for events at most `timeout` (for ever if it is `None`) and delivers them to `sink`.
    ///
    /// One connection gets one bounded [`Sink::received`] a turn, so that a flooding peer cannot starve the others.
    ///
    /// # Errors
    /// Only errors that make the driver itself useless.
    fn turn(&mut self, timeout: Option<Duration>, sink: &mut dyn Sink) -> io::Result<()>;
}

/// The error of a driver that lacks something.
fn unsupported<T>(driver: &str, what: &str) -> io::Result<T> {
    Err(io::Error::new(io::ErrorKind::Unsupported, format!("the driver {driver} {what}")))
}

impl<D: Driver + 'static> From<D> for Box<dyn Driver> {
    fn from(driver: D) -> Self {
        Box::new(driver)
    }
}

/// Callbacks of a [`Driver`]. Each of them may use the driver.
pub trait Sink {
    /// The wait is over, and events may follow. The sink can read the clock here, once for all of them.
    fn woke(&mut self, driver: &mut dyn Driver) {
        let _ = driver;
    }

    /// Whether a connection that waits is to be accepted in this turn. Drivers whose kernel accepts by itself do not ask.
    fn may_accept(&self) -> bool {
        true
    }

    /// A client connected.
    fn accepted(&mut self, driver: &mut dyn Driver, token: Token, listener: Listener);

    /// An outgoing connection is established.
    fn connected(&mut self, driver: &mut dyn Driver, token: Token);

    /// Bytes arrived.
    fn received(&mut self, driver: &mut dyn Driver, token: Token, data: Received<'_>);

    /// A pending send is done; the buffer comes back, empty.
    fn sent(&mut self, driver: &mut dyn Driver, token: Token, buf: Buf);

    /// The bytes of a [stamped send](Driver::send_stamped) have left: the kernel gave the last of them to the network
    /// card, or to the loopback device, at `nanos` of [`Clock::Realtime`](crate::Clock).
    ///
    /// A segment that is sent again can be stamped again.
    fn departed(&mut self, driver: &mut dyn Driver, token: Token, number: u32, nanos: u64) {
        let _ = (driver, token, number, nanos);
    }

    /// No more bytes will come. The token stays valid until it is closed.
    ///
    /// [`End::Finished`] comes at most once and [`End::Failed`] at most once, the latter last: a pending send is
    /// dropped with it, no [`sent`](Self::sent) follows, and later sends are discarded. Bytes that arrived before a
    /// failure are delivered first, unless receiving is paused.
    fn ended(&mut self, driver: &mut dyn Driver, token: Token, end: End);

    /// The driver has plaintext for the peer of a connection that carries others, which may end behind it.
    fn carried(&mut self, driver: &mut dyn Driver, token: Token, plain: &[u8], end: Option<CarrierEnd>) {
        let _ = (driver, token, plain, end);
    }

    /// A connection that carries others has its first one now (`true`), or none any more.
    fn carries(&mut self, driver: &mut dyn Driver, token: Token, some: bool) {
        let _ = (driver, token, some);
    }

    /// A stream with this number was refused or reset for a fault of the peer. The token is that of the connection that carries it.
    fn stream_failed(&mut self, driver: &mut dyn Driver, token: Token, stream: u32, fault: StreamFault) {
        let _ = (driver, token, stream, fault);
    }

    /// The driver has answered a request of a carried connection in place of the loop. The token is that of this connection, or of the
    /// one that carries it if the loop has not got to know it.
    fn answered(&mut self, driver: &mut dyn Driver, token: Token, answered: &Answered<'_>) {
        let _ = (driver, token, answered);
    }

    /// A [`Waker`] was used, once or several times.
    fn woken(&mut self, driver: &mut dyn Driver);

    /// There is no descriptor for a connection that waits. The sink may close one that gives way to them, with a reset. Returns
    /// whether it has.
    fn make_room(&mut self, driver: &mut dyn Driver) -> bool {
        let _ = driver;
        false
    }

    /// Accepting failed for want of descriptors or memory, and no other connection gave way; the driver tries again by itself after a pause.
    fn accept_failed(&mut self, driver: &mut dyn Driver, error: io::Error);
}
