use crate::{ClientTls, Closed, Config, Conn, ConnId, ConnectError, Delivery, Error, Handler, Message, Opening};
use crate::{Outgoing, Shard, Target};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tautline_engine::DialId;
use tautline_io::epoll;
use tautline_tls::{Facts, plain};
use tautline_tls_rustls::{Engine as Rustls, fused::Engine as Fused};
use tautline_ws::{CloseCode, Kind};

/// Connects to a `ws://` or `wss://` URI with the platform's trusted authorities and waits until it stands.
///
/// # Errors
/// Whatever failed, from the URI to the opening handshake.
pub fn connect(uri: &str) -> Result<Socket, Error> {
    Socket::connect(Target::new(uri)?, ClientTls::default(), Config::default())
}

/// A blocking client connection: the same loop, run by whoever waits.
///
/// Pings are answered and deadlines kept only inside its methods; a program that does other things for long should use
/// [`Client`](crate::Client). Its driver is always epoll, and its records stay in user space: a [`Way`](crate::Way), and with it
/// the kernel's TLS, is for that one.
pub struct Socket {
    loops: Loop,
}

enum Loop {
    Plain(Box<Shard<plain::Engine, epoll::Driver, Mailbox>>),
    Fused(Box<Shard<Fused, epoll::Driver, Mailbox>>),
    Rustls(Box<Shard<Rustls, epoll::Driver, Mailbox>>),
    #[cfg(feature = "libssl")]
    Libssl(Box<Shard<tautline_tls_libssl::Engine, epoll::Driver, Mailbox>>),
    #[cfg(feature = "libssl")]
    FusedLibssl(Box<Shard<tautline_tls_libssl::fused::Engine, epoll::Driver, Mailbox>>),
}

/// A message that was received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Incoming {
    /// UTF-8.
    Text(String),
    /// Bytes.
    Binary(Vec<u8>),
}

#[derive(Default)]
struct Mailbox {
    conn: Option<ConnId>,
    facts: Facts,
    response: Option<http::Response<()>>,
    received: VecDeque<Incoming>,
    failed: Option<ConnectError>,
    closed: Option<Closed>,
}

/// Received messages beyond this many bytes or so stay in the kernel until some are taken.
const MAX_WAITING: usize = 1024;

impl Handler for Mailbox {
    type State = ();

    fn on_open(&mut self, conn: &mut Conn<'_, ()>, opening: &Opening<'_>) {
        self.conn = Some(conn.id());
        self.facts = opening.tls.clone();
        self.response = opening.response.cloned();
    }

    fn on_message(&mut self, conn: &mut Conn<'_, ()>, message: Message<'_>) {
        self.received.push_back(match message.text() {
            Some(text) => Incoming::Text(text.to_owned()),
            None => Incoming::Binary(message.data().to_vec()),
        });
        if self.received.len() >= MAX_WAITING {
            conn.pause(true);
        }
    }

    fn on_close(&mut self, _conn: &mut Conn<'_, ()>, closed: &Closed) {
        self.closed = Some(closed.clone());
    }

    fn on_connect_failed(&mut self, _dial: DialId, error: &ConnectError, _retry: Option<Duration>) {
        self.failed = Some(error.clone());
    }
}

impl Socket {
    /// Connects as `target` says and waits until the connection stands. A target's `reconnect` has no effect here.
    ///
    /// # Errors
    /// Whatever failed, from the URI to the opening handshake.
    pub fn connect(mut target: Target, tls: impl Into<ClientTls>, config: Config) -> Result<Self, Error> {
        target.reconnect = None;
        let secure = target.is_secure();
        let config = Arc::new(config);
        let machine = |error| Error::Machine { what: "cannot run a loop", error };
        let driver = epoll::Driver::new().map_err(machine)?;
        let mailbox = Mailbox::default();
        let mut loops = match tls.into() {
            _ if !secure => {
                Loop::Plain(Box::new(Shard::new(0, config, plain::Engine, driver, mailbox).map_err(machine)?))
            }
            ClientTls::Fused(tls) => {
                let engine = Fused::client(&tls)?;
                Loop::Fused(Box::new(Shard::new(0, config, engine, driver, mailbox).map_err(machine)?))
            }
            ClientTls::Rustls(tls) => {
                let engine = Rustls::client(&tls)?;
                Loop::Rustls(Box::new(Shard::new(0, config, engine, driver, mailbox).map_err(machine)?))
            }
            #[cfg(feature = "libssl")]
            ClientTls::Libssl(flavour, tls) => {
                let engine = tautline_tls_libssl::Engine::new(flavour, None, Some(&tls))?;
                Loop::Libssl(Box::new(Shard::new(0, config, engine, driver, mailbox).map_err(machine)?))
            }
            #[cfg(feature = "libssl")]
            ClientTls::FusedLibssl(flavour, tls) => {
                let engine = tautline_tls_libssl::fused::Engine::new(flavour, None, Some(&tls))?;
                Loop::FusedLibssl(Box::new(Shard::new(0, config, engine, driver, mailbox).map_err(machine)?))
            }
        };
        loops.connect(Arc::new(target));
        let mut socket = Self { loops };
        loop {
            let mailbox = socket.loops.mailbox();
            if mailbox.conn.is_some() {
                return Ok(socket);
            }
            if let Some(error) = mailbox.failed.take() {
                return Err(Error::Connect(error));
            }
            socket.loops.turn(None).map_err(machine)?;
        }
    }

    /// Sends a text message; waits while the peer is slow.
    ///
    /// # Errors
    /// [`Error::Closed`] once the connection has ended.
    pub fn text(&mut self, text: &str) -> Result<(), Error> {
        self.send(Outgoing::text(text))
    }

    /// Sends a binary message; waits while the peer is slow.
    ///
    /// # Errors
    /// [`Error::Closed`] once the connection has ended.
    pub fn binary(&mut self, payload: &[u8]) -> Result<(), Error> {
        self.send(Outgoing::binary(payload))
    }

    /// Sends a message; waits while the peer is slow.
    ///
    /// # Errors
    /// [`Error::Closed`] once the connection has ended.
    pub fn send(&mut self, message: Outgoing<'_>) -> Result<(), Error> {
        let delivery = self.loops.with_conn(|conn| conn.send(message));
        self.loops.flush();
        match delivery {
            Some(Delivery::Sent) => Ok(()),
            Some(Delivery::Queued(_) | Delivery::Dropped) => self.wait_until(|conn| conn.buffered() == 0),
            Some(Delivery::Closed) | None => Err(self.ended()),
        }
    }

    /// Waits for the next message.
    ///
    /// # Errors
    /// [`Error::Closed`] once the connection has ended and everything received was taken.
    pub fn receive(&mut self) -> Result<Incoming, Error> {
        loop {
            if let Some(message) = self.receive_timeout(Duration::from_secs(3600))? {
                return Ok(message);
            }
        }
    }

    /// Waits for the next message at most `timeout`; `None` where none came.
    ///
    /// # Errors
    /// [`Error::Closed`] once the connection has ended and everything received was taken.
    pub fn receive_timeout(&mut self, timeout: Duration) -> Result<Option<Incoming>, Error> {
        let end = Instant::now() + timeout;
        loop {
            let mailbox = self.loops.mailbox();
            if let Some(message) = mailbox.received.pop_front() {
                if mailbox.received.len() == MAX_WAITING / 2 {
                    self.loops.with_conn(|conn| conn.pause(false));
                }
                return Ok(Some(message));
            }
            if mailbox.closed.is_some() {
                return Err(self.ended());
            }
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            self.turn(Some(left))?;
        }
    }

    /// Closes and waits for the peer's answer, at most until the close deadline. Messages that arrive meanwhile are lost.
    ///
    /// # Errors
    /// How the connection ended, where that was not by the peer's answer.
    pub fn close(mut self, code: CloseCode, reason: &str) -> Result<(), Error> {
        self.loops.with_conn(|conn| conn.close(code, reason));
        while self.loops.mailbox().closed.is_none() {
            self.turn(None)?;
        }
        match self.loops.mailbox().closed.take() {
            Some(Closed { cause: tautline_engine::Cause::Local | tautline_engine::Cause::Peer, .. }) | None => Ok(()),
            Some(closed) => Err(Error::Closed(closed)),
        }
    }

    /// What TLS agreed on. Empty without TLS.
    pub fn tls(&mut self) -> &Facts {
        &self.loops.mailbox().facts
    }

    /// The server's response to the upgrade.
    pub fn response(&mut self) -> Option<&http::Response<()>> {
        self.loops.mailbox().response.as_ref()
    }

    fn wait_until(&mut self, done: impl Fn(&Conn<'_, ()>) -> bool) -> Result<(), Error> {
        loop {
            match self.loops.with_conn(|conn| done(conn)) {
                Some(true) => return Ok(()),
                Some(false) => self.turn(None)?,
                None => return Err(self.ended()),
            }
        }
    }

    fn turn(&mut self, longest: Option<Duration>) -> Result<(), Error> {
        self.loops.turn(longest).map_err(|error| Error::Machine { what: "the driver failed", error })
    }

    fn ended(&mut self) -> Error {
        let closed = self.loops.mailbox().closed.clone();
        Error::Closed(closed.unwrap_or_else(|| Closed {
            code: CloseCode::ABNORMAL,
            reason: String::new(),
            cause: tautline_engine::Cause::Local,
        }))
    }
}

impl Loop {
    fn connect(&mut self, target: Arc<Target>) {
        match self {
            Self::Plain(shard) => shard.connect(target),
            Self::Fused(shard) => shard.connect(target),
            Self::Rustls(shard) => shard.connect(target),
            #[cfg(feature = "libssl")]
            Self::Libssl(shard) => shard.connect(target),
            #[cfg(feature = "libssl")]
            Self::FusedLibssl(shard) => shard.connect(target),
        };
    }

    fn mailbox(&mut self) -> &mut Mailbox {
        match self {
            Self::Plain(shard) => shard.handler(),
            Self::Fused(shard) => shard.handler(),
            Self::Rustls(shard) => shard.handler(),
            #[cfg(feature = "libssl")]
            Self::Libssl(shard) => shard.handler(),
            #[cfg(feature = "libssl")]
            Self::FusedLibssl(shard) => shard.handler(),
        }
    }

    fn turn(&mut self, longest: Option<Duration>) -> std::io::Result<()> {
        match self {
            Self::Plain(shard) => shard.turn(longest),
            Self::Fused(shard) => shard.turn(longest),
            Self::Rustls(shard) => shard.turn(longest),
            #[cfg(feature = "libssl")]
            Self::Libssl(shard) => shard.turn(longest),
            #[cfg(feature = "libssl")]
            Self::FusedLibssl(shard) => shard.turn(longest),
        }
    }

    fn flush(&mut self) {
        match self {
            Self::Plain(shard) => shard.flush(),
            Self::Fused(shard) => shard.flush(),
            Self::Rustls(shard) => shard.flush(),
            #[cfg(feature = "libssl")]
            Self::Libssl(shard) => shard.flush(),
            #[cfg(feature = "libssl")]
            Self::FusedLibssl(shard) => shard.flush(),
        }
    }

    fn with_conn<R>(&mut self, act: impl FnOnce(&mut Conn<'_, ()>) -> R) -> Option<R> {
        let conn = self.mailbox().conn?;
        match self {
            Self::Plain(shard) => shard.with_conn(conn, |_, conn| act(conn)),
            Self::Fused(shard) => shard.with_conn(conn, |_, conn| act(conn)),
            Self::Rustls(shard) => shard.with_conn(conn, |_, conn| act(conn)),
            #[cfg(feature = "libssl")]
            Self::Libssl(shard) => shard.with_conn(conn, |_, conn| act(conn)),
            #[cfg(feature = "libssl")]
            Self::FusedLibssl(shard) => shard.with_conn(conn, |_, conn| act(conn)),
        }
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

    /// The bytes of either.
    #[must_use]
    pub fn data(&self) -> &[u8] {
        match self {
            Self::Text(text) => text.as_bytes(),
            Self::Binary(bytes) => bytes,
        }
    }
}
