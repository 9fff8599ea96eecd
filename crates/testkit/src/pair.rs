//! Two TLS sessions joined by pipes in memory.

use crate::random::Random;
use tautline_tls::{Content, Engine, Error, Handshake, Session};
use tautline_window::Buf;

/// One end of a connection: a session, what arrived for it, and what it made of that.
pub struct End<S> {
    /// The session itself.
    pub session: S,
    /// Wire bytes that arrived and are not done with.
    pub inbox: Vec<u8>,
    /// Wire bytes that wait to be delivered to the peer.
    pub outbox: Buf,
    /// Whether the handshake is complete.
    pub open: bool,
    /// Application data that was received.
    pub received: Vec<u8>,
    /// Records that held something else than application data.
    pub control: usize,
    /// Whether the peer's close_notify came.
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

    /// Adds `wire` to what arrived and works on it.
    ///
    /// # Errors
    /// The session's error.
    pub fn deliver(&mut self, wire: &[u8]) -> Result<(), Error> {
        self.inbox.extend_from_slice(wire);
        self.work()
    }

    /// Lets the session consume what arrived, until it needs more.
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

    /// Opens one record; says whether there was one.
    ///
    /// The session sees a copy, so that it cannot rely on changes that it made to bytes it did not use.
    fn step(&mut self) -> Result<bool, Error> {
        let mut wire = self.inbox.clone();
        let opened = self.session.open(&mut wire, &mut self.scratch, &mut self.outbox)?;
        match opened.content {
            Content::Data(data) => {
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

    /// Empties the outbox.
    pub fn take_outbox(&mut self) -> Vec<u8> {
        let wire = self.outbox.filled().to_vec();
        self.outbox.clear();
        wire
    }
}

/// Which end of a [`Pair`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The one that connected.
    Client,
    /// The one that accepted.
    Server,
}

/// An error, and whose it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The end whose session reported it.
    pub side: Side,
    /// What it reported.
    pub error: Error,
}

/// How the byte stream is cut on its way.
#[derive(Clone, Debug)]
pub enum Split {
    /// Not at all: everything that is in the outbox arrives at once.
    Whole,
    /// Every so many bytes.
    Every(usize),
    /// Anywhere, most often after few bytes.
    Random(Random),
}

impl Split {
    /// Random cuts that depend on `seed` alone.
    #[must_use]
    pub const fn random(seed: u64) -> Self {
        Self::Random(Random::new(seed))
    }

    /// Length of the next piece of a stream with `left` bytes to go, at least 1 where there are any.
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
    /// Sessions of two engines; nothing is exchanged yet.
    ///
    /// # Errors
    /// The engine's error, which has nothing to do with a peer.
    pub fn new<X, Y>(client: &X, server: &Y, host: &str) -> Result<Self, Error>
    where
        X: Engine<Session = C>,
        Y: Engine<Session = S>,
    {
        Ok(Self { client: End::new(client.connect(host)?), server: End::new(server.accept()?) })
    }

    /// Shuttles bytes until both ends are open, or until nothing moves any more.
    ///
    /// # Errors
    /// The first error of either end. The other end has then seen the alert; see [`last_words`](Self::last_words).
    pub fn handshake(&mut self, split: &mut Split) -> Result<(), Failure> {
        self.client.work().map_err(|error| Failure { side: Side::Client, error })?;
        self.settle(split)
    }

    /// Shuttles bytes until nothing moves any more.
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

    /// After `side` has failed: delivers what it still had to say, and returns what the other end makes of it.
    pub fn last_words(&mut self, side: Side) -> Option<Error> {
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
