use crate::{ClientTls, Closed, Config, Conn, ConnId, ConnectError, Delivery, Error, Handler, Message, Opening};
use crate::{Outgoing, Shard, Target};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tautline_engine::DialId;
use tautline_io::epoll;
use tautline_tls::{Engine, Facts, plain};
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
/// [`Client`](crate::Client). It stays on the thread that made it, as every loop does. Its driver is always epoll, and its records stay in user space: a [`Way`](crate::Way), and with it
/// the kernel's TLS, is for that one.
pub struct Socket {
    loops: Box<dyn Loop>,
}

/// A loop by whichever engine, for whoever waits.
trait Loop {
    fn connect(&mut self, target: Arc<Target>);
    fn mailbox(&mut self) -> &mut Mailbox;
    fn turn(&mut self, longest: Option<Duration>) -> io::Result<()>;
    fn flush(&mut self);
    fn with_conn(&mut self, conn: ConnId, act: &mut dyn FnMut(&mut Conn<'_, ()>));
}

impl<E: Engine> Loop for Shard<E, epoll::Driver, Mailbox> {
    fn connect(&mut self, target: Arc<Target>) {
        self.connect(target);
    }

    fn mailbox(&mut self) -> &mut Mailbox {
        self.handler()
    }

    fn turn(&mut self, longest: Option<Duration>) -> io::Result<()> {
        self.turn(longest)
    }

    fn flush(&mut self) {
        self.flush();
    }

    fn with_conn(&mut self, conn: ConnId, act: &mut dyn FnMut(&mut Conn<'_, ()>)) {
        self.with_conn(conn, |_, conn| act(conn));
    }
}

/// A loop whose only connection is the socket's.
fn alone<E: Engine>(engine: E, config: Config) -> Result<Box<dyn Loop>, Error> {
    let made = epoll::Driver::new()
        .and_then(|driver| Shard::new(0, Arc::new(config), engine, driver, Mailbox::default()))
        .map_err(|error| Error::Machine { what: "cannot run a loop", error })?;
    Ok(Box::new(made))
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
    /// Bytes of them.
    bytes: usize,
    /// They are so many that no more are read.
    full: bool,
    failed: Option<ConnectError>,
    closed: Option<Closed>,
}

/// Where so many messages wait to be taken, or so many bytes of them, what follows stays in the kernel until half are.
const MOST_WAITING: (usize, usize) = (1024, 16 << 20);

impl Mailbox {
    fn put(&mut self, message: Incoming) {
        self.bytes += message.data().len();
        self.received.push_back(message);
        self.full |= self.received.len() >= MOST_WAITING.0 || self.bytes >= MOST_WAITING.1;
    }

    /// The next message, and whether others may be read again.
    fn take(&mut self) -> Option<(Incoming, bool)> {
        let message = self.received.pop_front()?;
        self.bytes -= message.data().len();
        let room = self.received.len() <= MOST_WAITING.0 / 2 && self.bytes <= MOST_WAITING.1 / 2;
        Some((message, room && std::mem::take(&mut self.full)))
    }
}

impl Handler for Mailbox {
    type State = ();

    fn on_open(&mut self, conn: &mut Conn<'_, ()>, opening: &Opening<'_>) {
        self.conn = Some(conn.id());
        self.facts = opening.tls.clone();
        self.response = opening.response.cloned();
    }

    fn on_message(&mut self, conn: &mut Conn<'_, ()>, message: Message<'_>) {
        self.put(match message.text() {
            Some(text) => Incoming::Text(text.to_owned()),
            None => Incoming::Binary(message.data().to_vec()),
        });
        if self.full {
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
    /// Connects as `target` says and waits until the connection stands. A target's `reconnect` has no effect here, nor has
    /// [`Config::streaming`].
    ///
    /// # Errors
    /// Whatever failed, from the URI to the opening handshake.
    pub fn connect(mut target: Target, tls: impl Into<ClientTls>, mut config: Config) -> Result<Self, Error> {
        target.reconnect = None;
        config.streaming = false;
        let mut loops = match tls.into() {
            _ if !target.is_secure() => alone(plain::Engine, config)?,
            ClientTls::Fused(tls) => alone(Fused::client(&tls)?, config)?,
            ClientTls::Rustls(tls) => alone(Rustls::client(&tls)?, config)?,
            #[cfg(feature = "libssl")]
            ClientTls::Libssl(flavour, tls) => {
                alone(tautline_tls_libssl::Engine::new(flavour, None, Some(&tls))?, config)?
            }
            #[cfg(feature = "libssl")]
            ClientTls::FusedLibssl(flavour, tls) => {
                alone(tautline_tls_libssl::fused::Engine::new(flavour, None, Some(&tls))?, config)?
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
            socket.turn(None)?;
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
        let delivery = self.with_conn(|conn| conn.send(message));
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
            if let Some(message) = self.received()? {
                return Ok(message);
            }
            self.turn(None)?;
        }
    }

    /// Waits for the next message at most `timeout`; `None` where none came.
    ///
    /// # Errors
    /// [`Error::Closed`] once the connection has ended and everything received was taken.
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

    /// The next message, where one is here.
    fn received(&mut self) -> Result<Option<Incoming>, Error> {
        let mailbox = self.loops.mailbox();
        let Some((message, goes_on)) = mailbox.take() else {
            return if mailbox.closed.is_some() { Err(self.ended()) } else { Ok(None) };
        };
        if goes_on {
            self.with_conn(|conn| conn.pause(false));
        }
        Ok(Some(message))
    }

    /// Closes and waits for the peer's answer, at most until the close deadline. Messages that arrive meanwhile are lost.
    ///
    /// # Errors
    /// How the connection ended, where that was not by the peer's answer.
    pub fn close(mut self, code: CloseCode, reason: &str) -> Result<(), Error> {
        self.with_conn(|conn| conn.close(code, reason));
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
            match self.with_conn(|conn| done(conn)) {
                Some(true) => return Ok(()),
                Some(false) => self.turn(None)?,
                None => return Err(self.ended()),
            }
        }
    }

    /// `None` where the connection is not open any more.
    fn with_conn<R>(&mut self, act: impl FnOnce(&mut Conn<'_, ()>) -> R) -> Option<R> {
        let conn = self.loops.mailbox().conn?;
        let (mut act, mut result) = (Some(act), None);
        self.loops.with_conn(conn, &mut |conn| result = act.take().map(|act| act(conn)));
        result
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mailbox_is_full_of_many_messages_or_of_large_ones() {
        for (len, most) in [(0, MOST_WAITING.0), (1 << 20, MOST_WAITING.1 >> 20)] {
            let mut mailbox = Mailbox::default();
            for number in 1..=most {
                assert!(!mailbox.full);
                mailbox.put(Incoming::Binary(vec![0; len]));
                assert_eq!(mailbox.full, number == most);
            }
            // Room is told of once, when half are gone.
            for number in 1..=most {
                let (_, room) = mailbox.take().unwrap();
                assert_eq!(room, number == most / 2, "{number} of {len} B");
            }
            assert!(mailbox.take().is_none() && mailbox.bytes == 0 && !mailbox.full);
        }
    }
}
