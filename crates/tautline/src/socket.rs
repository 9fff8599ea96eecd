use crate::choice::Then;
use crate::erased::StatelessLoop;
use crate::{
    ClientConfig, Closed, Config, Conn, ConnId, ConnectError, Delivery, EngineChoice, Error, Handler, Message, Opening,
};
use crate::{Outgoing, Shard, SlowConsumer, Target, Tls};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tautline_engine::DialId;
use tautline_io::epoll;
use tautline_tls::{EngineKind, TlsInfo, plain};
use tautline_ws::{CloseCode, Kind};

/// Connects to a `ws://` or `wss://` URI, and waits until the connection is open.
///
/// It trusts the platform's certificate authorities.
///
/// # Errors
/// If the URI is invalid, the connection cannot be made, or the opening handshake fails.
// Optimised, a loop is compiled again by each crate that starts it: so only programs that connect compile this one.
#[cfg_attr(not(debug_assertions), inline)]
pub fn connect(uri: &str) -> Result<Socket, Error> {
    Socket::connect(Target::new(uri)?, ClientConfig::default(), Config::default())
}

/// A blocking client connection, whose methods run its loop.
///
/// Pings are answered and deadlines are kept only inside its methods. A program that spends long on other work should
/// use [`Client`](crate::Client). A socket stays on the thread that made it. Its driver is always epoll, without kernel
/// TLS; [`Client`](crate::Client) has all drivers.
///
/// ```
/// use tautline::{CloseCode, Incoming};
///
/// # struct Echo;
/// # impl tautline::Handler for Echo {
/// #     type State = ();
/// #     fn on_message(&mut self, conn: &mut tautline::Conn<'_, ()>, message: tautline::Message<'_>) {
/// #         conn.send(tautline::Outgoing::from(&message));
/// #     }
/// # }
/// # let server = tautline::Server::plain().listen("127.0.0.1:0".parse()?).start(|_| Echo)?;
/// # let address = &server.addresses()[0];
///
/// let mut socket = tautline::connect(&format!("ws://{address}/"))?;
/// socket.text("hello")?;
/// assert_eq!(socket.receive()?, Incoming::Text("hello".into()));
/// socket.close(CloseCode::NORMAL, "")?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Socket {
    shard: Box<dyn StatelessLoop>,
    mailbox: Rc<RefCell<Mailbox>>,
    tls: TlsInfo,
    response: Option<http::Response<()>>,
}

/// The socket's loop, before its engine is known.
struct SocketLoop {
    tls: ClientConfig,
    config: Config,
    mailbox: Rc<RefCell<Mailbox>>,
}

impl Then for SocketLoop {
    type Output = Result<Box<dyn StatelessLoop>, Error>;

    fn with<K: EngineKind>(self, kind: K) -> Self::Output {
        let engine = kind.client(&self.tls)?;
        let made = epoll::Driver::new()
            .and_then(|driver| Shard::new(0, Arc::new(self.config), engine, driver, Receiver(self.mailbox)))
            .map_err(|error| Error::Machine { what: "cannot run a loop", error })?;
        Ok(Box::new(made))
    }
}

/// A received message.
///
/// ```
/// use tautline::{Incoming, Kind};
///
/// let message = Incoming::Text("hello".into());
/// assert_eq!((message.kind(), message.data()), (Kind::Text, &b"hello"[..]));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Incoming {
    /// A text message.
    Text(String),
    /// A binary message.
    Binary(Vec<u8>),
}

/// The events of the connection that no method has told the caller of.
#[derive(Default)]
struct Mailbox {
    conn: Option<ConnId>,
    tls: TlsInfo,
    response: Option<http::Response<()>>,
    received: VecDeque<Incoming>,
    /// Bytes of `received`.
    bytes: usize,
    /// Whether reading is paused since too many messages wait.
    full: bool,
    failed: Option<ConnectError>,
    closed: Option<Closed>,
}

/// Limits of the messages and bytes that wait in a socket. Reading pauses at either limit, until both are at most half
/// used.
const MAX_WAITING: (usize, usize) = (1024, 16 << 20);

impl Mailbox {
    fn put(&mut self, message: Incoming) {
        self.bytes += message.data().len();
        self.received.push_back(message);
        self.full |= self.received.len() >= MAX_WAITING.0 || self.bytes >= MAX_WAITING.1;
    }

    /// The next message, and whether to resume reading.
    fn take(&mut self) -> Option<(Incoming, bool)> {
        let message = self.received.pop_front()?;
        self.bytes -= message.data().len();
        let room = self.received.len() <= MAX_WAITING.0 / 2 && self.bytes <= MAX_WAITING.1 / 2;
        Some((message, room && std::mem::take(&mut self.full)))
    }
}

/// The handler of the socket's loop.
struct Receiver(Rc<RefCell<Mailbox>>);

impl Handler for Receiver {
    type State = ();

    fn on_open(&mut self, conn: &mut Conn<'_, ()>, opening: &Opening<'_>) {
        let mut mailbox = self.0.borrow_mut();
        mailbox.conn = Some(conn.id());
        mailbox.tls = opening.tls.clone();
        mailbox.response = opening.response.cloned();
    }

    fn on_message(&mut self, conn: &mut Conn<'_, ()>, message: Message<'_>) {
        let mut mailbox = self.0.borrow_mut();
        mailbox.put(match message.text() {
            Some(text) => Incoming::Text(text.to_owned()),
            None => Incoming::Binary(message.data().to_vec()),
        });
        if mailbox.full {
            conn.pause(true);
        }
    }

    fn on_close(&mut self, _conn: &mut Conn<'_, ()>, closed: &Closed) {
        self.0.borrow_mut().closed = Some(closed.clone());
    }

    fn on_connect_failed(&mut self, _dial: DialId, error: &ConnectError, _retry: Option<Duration>) {
        self.0.borrow_mut().failed = Some(error.clone());
    }
}

impl Socket {
    /// Connects to `target`, and waits until the connection is open.
    ///
    /// [`Target::reconnect`], [`Config::streaming`] and [`Config::slow_consumer`] have no effect on a socket: it waits for a
    /// slow peer, so that no message is dropped.
    ///
    /// # Errors
    /// If the connection cannot be made, or the opening handshake fails.
    pub fn connect<E: EngineChoice>(
        mut target: Target,
        tls: impl Into<Tls<ClientConfig, E>>,
        mut config: Config,
    ) -> Result<Self, Error> {
        target.reconnect = None;
        config.streaming = false;
        config.slow_consumer = SlowConsumer::Disconnect(usize::MAX);
        let Tls { engine, config: tls } = tls.into();
        let mailbox = Rc::<RefCell<Mailbox>>::default();
        let then = SocketLoop { tls, config, mailbox: Rc::clone(&mailbox) };
        let mut shard = if target.is_secure() { engine.choose(then) } else { then.with(plain::Engine) }?;
        shard.connect(Arc::new(target));
        let mut socket = Self { shard, mailbox, tls: TlsInfo::default(), response: None };
        while socket.conn().is_none() {
            if let Some(error) = socket.mailbox.borrow_mut().failed.take() {
                return Err(Error::Connect(error));
            }
            socket.turn(None)?;
        }
        let mut mailbox = socket.mailbox.borrow_mut();
        (socket.tls, socket.response) = (std::mem::take(&mut mailbox.tls), mailbox.response.take());
        drop(mailbox);
        Ok(socket)
    }

    /// Sends a text message. Waits while the peer is slow.
    ///
    /// # Errors
    /// [`Error::Closed`] once the connection has ended, [`Error::Machine`] if the driver fails.
    pub fn text(&mut self, text: &str) -> Result<(), Error> {
        self.send(Outgoing::text(text))
    }

    /// Sends a binary message. Waits while the peer is slow.
    ///
    /// # Errors
    /// [`Error::Closed`] once the connection has ended, [`Error::Machine`] if the driver fails.
    pub fn binary(&mut self, payload: &[u8]) -> Result<(), Error> {
        self.send(Outgoing::binary(payload))
    }

    /// Sends a message. Waits while the peer is slow, until the kernel has all of it: no loop goes on between two calls.
    ///
    /// # Errors
    /// [`Error::Closed`] once the connection has ended, [`Error::Machine`] if the driver fails.
    pub fn send(&mut self, message: Outgoing<'_>) -> Result<(), Error> {
        let delivery = self.with_conn(|conn| conn.send(message));
        self.shard.flush();
        match delivery {
            Some(Delivery::Sent | Delivery::Queued(_)) => self.wait_until(|conn| conn.buffered() == 0),
            _ => Err(self.ended()),
        }
    }

    /// Waits for the next message.
    ///
    /// # Errors
    /// [`Error::Closed`] once the connection has ended and all received messages were taken, [`Error::Machine`] if the driver
    /// fails.
    pub fn receive(&mut self) -> Result<Incoming, Error> {
        loop {
            if let Some(message) = self.received()? {
                return Ok(message);
            }
            self.turn(None)?;
        }
    }

    /// Waits at most `timeout` for the next message; `None` if none arrived.
    ///
    /// # Errors
    /// [`Error::Closed`] once the connection has ended and all received messages were taken, [`Error::Machine`] if the driver
    /// fails.
    pub fn receive_timeout(&mut self, timeout: Duration) -> Result<Option<Incoming>, Error> {
        let begun = Instant::now();
        loop {
            if let Some(message) = self.received()? {
                return Ok(Some(message));
            }
            let left = timeout.saturating_sub(begun.elapsed());
            if left.is_zero() {
                return Ok(None);
            }
            self.turn(Some(left))?;
        }
    }

    /// The next message, if one waits.
    fn received(&mut self) -> Result<Option<Incoming>, Error> {
        let taken = self.mailbox.borrow_mut().take();
        let Some((message, resumes)) = taken else {
            return if self.is_closed() { Err(self.ended()) } else { Ok(None) };
        };
        if resumes {
            self.with_conn(|conn| conn.pause(false));
        }
        Ok(Some(message))
    }

    /// Sends a close frame, and waits for the peer's answer until the close deadline.
    ///
    /// Messages that were not taken before, or that arrive meanwhile, are lost.
    ///
    /// # Errors
    /// [`Error::Closed`] if the connection ended without the peer's close frame, [`Error::Machine`] if the driver fails.
    pub fn close(mut self, code: CloseCode, reason: &str) -> Result<(), Error> {
        self.with_conn(|conn| conn.close(code, reason));
        while !self.is_closed() {
            self.turn(None)?;
        }
        match self.mailbox.take().closed {
            Some(Closed { cause: tautline_engine::Cause::Local | tautline_engine::Cause::Peer, .. }) | None => Ok(()),
            Some(closed) => Err(Error::Closed(closed)),
        }
    }

    /// The negotiated parameters of TLS. Empty without TLS.
    pub fn tls(&mut self) -> &TlsInfo {
        &self.tls
    }

    /// The server's response to the upgrade.
    pub fn response(&mut self) -> Option<&http::Response<()>> {
        self.response.as_ref()
    }

    fn conn(&self) -> Option<ConnId> {
        self.mailbox.borrow().conn
    }

    fn is_closed(&self) -> bool {
        self.mailbox.borrow().closed.is_some()
    }

    fn wait_until(&mut self, done: impl Fn(&Conn<'_, ()>) -> bool) -> Result<(), Error> {
        loop {
            match self.with_conn(|conn| done(conn)) {
                Some(true) => return Ok(()),
                Some(false) => self.turn(None)?,
                None => return Err(self.ended()),
            }
        }
    }

    /// Calls `act` with the connection; `None` if it is no longer open.
    fn with_conn<R>(&mut self, act: impl FnOnce(&mut Conn<'_, ()>) -> R) -> Option<R> {
        let conn = self.conn()?;
        let (mut act, mut result) = (Some(act), None);
        self.shard.with_conn(conn, &mut |conn| result = act.take().map(|act| act(conn)));
        result
    }

    fn turn(&mut self, longest: Option<Duration>) -> Result<(), Error> {
        self.shard.turn(longest).map_err(|error| Error::Machine { what: "the driver failed", error })
    }

    fn ended(&self) -> Error {
        let closed = self.mailbox.borrow().closed.clone();
        let closed = closed.unwrap_or_else(|| Closed::new(CloseCode::ABNORMAL, tautline_engine::Cause::Local));
        Error::Closed(closed)
    }
}

impl std::fmt::Debug for Socket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Socket")
    }
}

impl Incoming {
    /// Text or binary.
    #[must_use]
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Text(_) => Kind::Text,
            Self::Binary(_) => Kind::Binary,
        }
    }

    /// The message's bytes.
    #[must_use]
    pub fn data(&self) -> &[u8] {
        match self {
            Self::Text(text) => text.as_bytes(),
            Self::Binary(bytes) => bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mailbox_fills_by_number_or_by_bytes() {
        for (len, most) in [(0, MAX_WAITING.0), (1 << 20, MAX_WAITING.1 >> 20)] {
            let mut mailbox = Mailbox::default();
            for number in 1..=most {
                assert!(!mailbox.full);
                mailbox.put(Incoming::Binary(vec![0; len]));
                assert_eq!(mailbox.full, number == most);
            }
            // Reading resumes once, when half of the messages are taken.
            for number in 1..=most {
                let (_, room) = mailbox.take().unwrap();
                assert_eq!(room, number == most / 2, "{number} of {len} B");
            }
            assert!(mailbox.take().is_none() && mailbox.bytes == 0 && !mailbox.full);
        }
    }
}
