//! Two TLS sessions that exchange bytes in memory.

use crate::random::Random;
use tautline_buf::Buf;
use tautline_tls::{Content, Engine, Error, Handshake, Session};

/// One end of a connection: a session, its pending wire bytes, and what it has received.
pub struct End<S> {
    /// The TLS session.
    pub session: S,
    /// Wire bytes that have arrived and that the session has not used.
    pub inbox: Vec<u8>,
    /// Wire bytes for the peer that are not delivered yet.
    pub outbox: Buf,
    /// Whether the handshake is complete.
    pub open: bool,
    /// The application data received so far.
    pub received: Vec<u8>,
    /// The number of records without application data, close_notify not counted.
    pub control: usize,
    /// Whether the peer's close_notify has arrived.
    pub closed: bool,
    scratch: Buf,
}

impl<S: Session> End<S> {
    /// An end that has neither sent nor received anything.
    pub fn new(session: S) -> Self {
        Self {
            session,
            inbox: Vec::new(),
            outbox: Buf::new(),
            open: false,
            received: Vec::new(),
            control: 0,
            closed: false,
            scratch: Buf::new(),
        }
    }

    /// Appends `wire` to the inbox and processes it.
    ///
    /// # Errors
    /// The session's error.
    pub fn deliver(&mut self, wire: &[u8]) -> Result<(), Error> {
        self.inbox.extend_from_slice(wire);
        self.work()
    }

    /// Lets the session process the inbox until it needs more bytes.
    ///
    /// # Errors
    /// The session's error.
    ///
    /// # Panics
    /// If the session breaks the contract of [`Session`].
    pub fn work(&mut self) -> Result<(), Error> {
        if !self.open {
            let mut wire = self.inbox.clone();
            let (used, state) = self.session.handshake(&mut wire, &mut self.outbox)?;
            self.inbox.drain(..used);
            self.open = state == Handshake::Complete;
        }
        while self.open && self.step()? {}
        Ok(())
    }

    /// Opens one record; returns whether any bytes were used.
    ///
    /// The session gets a copy of the inbox, so it cannot rely on its changes to bytes that it did not use.
    fn step(&mut self) -> Result<bool, Error> {
        let mut wire = self.inbox.clone();
        let opened = self.session.open(&mut wire, &mut self.scratch, &mut self.outbox)?;
        match opened.content {
            Content::Data(plain) => {
                let data = plain.bytes(&mut wire, &mut self.scratch);
                assert!(!data.is_empty(), "an empty record is control, not data");
                assert!(!self.closed, "data after close_notify");
                self.received.extend_from_slice(data);
            }
            Content::Control => self.control += 1,
            Content::Closed => self.closed = true,
            Content::Partial => {
                assert_eq!(opened.used, 0, "a partial record is not used");
                return Ok(false);
            }
        }
        assert!(opened.used > 0 || self.closed, "a record takes bytes");
        self.inbox.drain(..opened.used);
        Ok(opened.used > 0)
    }

    /// Seals the concatenation of `plain` into the outbox.
    ///
    /// # Errors
    /// The session's error.
    pub fn send(&mut self, plain: &[&[u8]]) -> Result<(), Error> {
        self.session.seal(plain, &mut self.outbox)
    }

    /// Appends close_notify to the outbox.
    pub fn close(&mut self) {
        self.session.close(&mut self.outbox);
    }

    /// Empties the outbox and returns its bytes.
    pub fn take_outbox(&mut self) -> Vec<u8> {
        let wire = self.outbox.filled().to_vec();
        self.outbox.clear();
        wire
    }
}

/// One of the two ends of a [`Pair`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The end that connects.
    Client,
    /// The end that accepts.
    Server,
}

/// An error and the end that reported it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The end whose session reported it.
    pub side: Side,
    /// The error.
    pub error: Error,
}

/// How the byte stream is cut into pieces between the ends.
#[derive(Clone, Debug)]
pub enum Split {
    /// Not at all: the whole outbox arrives at once.
    Whole,
    /// Into pieces of this number of bytes.
    Every(usize),
    /// Into pieces of random length, about half of them at most 40 bytes.
    Random(Random),
}

impl Split {
    /// Random cuts that depend on `seed` alone.
    #[must_use]
    pub const fn random(seed: u64) -> Self {
        Self::Random(Random::new(seed))
    }

    /// The length of the next piece if `left` bytes are left: at least 1, or 0 if none are left.
    pub fn next(&mut self, left: usize) -> usize {
        match self {
            Self::Whole => left,
            Self::Every(len) => left.min((*len).max(1)),
            Self::Random(random) => {
                let most = match random.below(4) {
                    0 => 3,
                    1 => 40,
                    2 => 2_000,
                    _ => 40_000,
                };
                left.min(1 + random.below(most))
            }
        }
    }
}

/// A client and a server in one process, without a network.
pub struct Pair<C, S> {
    /// The end that connected.
    pub client: End<C>,
    /// The end that accepted.
    pub server: End<S>,
}

impl<C: Session, S: Session> Pair<C, S> {
    /// Makes a session of each engine; nothing is exchanged yet.
    ///
    /// # Errors
    /// The error of an engine that cannot make its session.
    pub fn new<X, Y>(client: &X, server: &Y, host: &str) -> Result<Self, Error>
    where
        X: Engine<Session = C>,
        Y: Engine<Session = S>,
    {
        Ok(Self { client: End::new(client.connect(host)?), server: End::new(server.accept()?) })
    }

    /// Exchanges bytes until neither end has more to send. Both ends are open then, unless one waits for bytes that
    /// never come.
    ///
    /// # Errors
    /// The first error of either end. That end's alert, if there is one, is still in its outbox; see
    /// [`deliver_alert`](Self::deliver_alert).
    pub fn handshake(&mut self, split: &mut Split) -> Result<(), Failure> {
        self.client.work().map_err(|error| Failure { side: Side::Client, error })?;
        self.settle(split)
    }

    /// Exchanges bytes until neither end has more to send.
    ///
    /// # Errors
    /// The first error of either end.
    pub fn settle(&mut self, split: &mut Split) -> Result<(), Failure> {
        while !self.client.outbox.is_empty() || !self.server.outbox.is_empty() {
            carry(&mut self.client, &mut self.server, split).map_err(|error| Failure { side: Side::Server, error })?;
            carry(&mut self.server, &mut self.client, split).map_err(|error| Failure { side: Side::Client, error })?;
        }
        Ok(())
    }

    /// Delivers the outbox of `side`, which has failed, and returns the other end's error if there is one.
    pub fn deliver_alert(&mut self, side: Side) -> Option<Error> {
        match side {
            Side::Client => carry(&mut self.client, &mut self.server, &mut Split::Whole),
            Side::Server => carry(&mut self.server, &mut self.client, &mut Split::Whole),
        }
        .err()
    }
}

fn carry<X: Session, Y: Session>(from: &mut End<X>, to: &mut End<Y>, split: &mut Split) -> Result<(), Error> {
    while !from.outbox.is_empty() {
        let len = split.next(from.outbox.len());
        let piece = from.outbox.filled()[..len].to_vec();
        from.outbox.take(len);
        to.deliver(&piece)?;
    }
    Ok(())
}
