//! Messages and their deliveries.

use super::dialect::{Dialect, Heard};
use crate::load::client::number;
use crate::{Error, Latencies};
use std::collections::VecDeque;
use std::time::Instant;
use tautline::{Conn, Message};

/// The receivers of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Audience {
    /// Those of one room, which change from message to message.
    Rooms,
    /// All subscribers.
    Everyone,
}

/// A message that some receivers do not have yet.
struct InFlight {
    published: Instant,
    /// Its room; `None` if it is for all.
    room: Option<usize>,
    missing: usize,
}

pub(super) struct Tally {
    dialect: Dialect,
    /// The room of each subscriber, and the number of its last message. The publisher has none.
    subscribers: Vec<(usize, Option<u64>)>,
    pub(super) subscriptions: usize,
    /// Messages that are not complete, oldest first, and the number of the first of them.
    in_flight: VecDeque<InFlight>,
    first: u64,
    delivered: u64,
    latencies: Latencies,
    pub(super) last: Instant,
}

impl Tally {
    pub(super) fn new(dialect: Dialect) -> Self {
        Self {
            dialect,
            subscribers: Vec::new(),
            subscriptions: 0,
            in_flight: VecDeque::new(),
            first: 0,
            delivered: 0,
            latencies: Latencies::new(),
            last: Instant::now(),
        }
    }

    /// A subscriber of a room.
    pub(super) fn add(&mut self, connection: usize, room: usize) {
        let most = self.subscribers.len().max(connection + 1);
        self.subscribers.resize(most, (usize::MAX, None));
        self.subscribers[connection].0 = room;
    }

    /// The number of the next message.
    pub(super) fn next(&self) -> u64 {
        self.first + self.in_flight.len() as u64
    }

    /// A message is sent.
    pub(super) fn publish(&mut self, room: Option<usize>) {
        let is_in = |of: usize| of != usize::MAX && room.is_none_or(|room| room == of);
        let missing = self.subscribers.iter().filter(|(of, _)| is_in(*of)).count();
        self.last = Instant::now();
        self.in_flight.push_back(InFlight { published: self.last, room, missing });
    }

    /// The number of deliveries that are missing.
    pub(super) fn missing(&self) -> usize {
        self.in_flight.iter().map(|message| message.missing).sum()
    }

    /// Messages that have not come everywhere are not waited for any more.
    pub(super) fn forget(&mut self) {
        self.first = self.next();
        self.in_flight.clear();
    }

    /// The number of deliveries and their latencies. Counts from 0 again.
    pub(super) fn reset(&mut self) -> (u64, Latencies) {
        (std::mem::take(&mut self.delivered), std::mem::take(&mut self.latencies))
    }

    pub(super) fn take(&mut self, conn: &mut Conn<'_, ()>, message: &Message<'_>) -> Result<(), Error> {
        let text = message.text().ok_or_else(|| Error::WrongReply("a binary message".to_owned()))?;
        for line in text.lines() {
            match self.dialect.hear(line) {
                Heard::Message(message) => self.deliver(number(conn), message)?,
                Heard::Subscribed => (self.subscriptions, self.last) = (self.subscriptions + 1, Instant::now()),
                Heard::Ping => _ = conn.text(self.dialect.alive()),
                Heard::Other => {}
                Heard::Wrong => return Err(Error::WrongReply(format!("the server said {line}"))),
            }
        }
        Ok(())
    }

    fn deliver(&mut self, connection: usize, message: u64) -> Result<(), Error> {
        let wrong = |what: &str| Err(Error::WrongReply(format!("message {message} {what}")));
        let Some((room, seen)) = self.subscribers.get_mut(connection) else {
            return wrong("came to somebody who has not subscribed");
        };
        if seen.is_some_and(|seen| seen >= message) {
            return wrong("came twice, or after a later one");
        }
        *seen = Some(message);
        if message < self.first {
            // It was forgotten.
            return Ok(());
        }
        let index = usize::try_from(message - self.first).unwrap_or(usize::MAX);
        let Some(of) = self.in_flight.get_mut(index) else { return wrong("came before it was sent") };
        if of.room.is_some_and(|of| of != *room) || of.missing == 0 {
            return wrong("came to somebody of another room");
        }
        of.missing -= 1;
        self.last = Instant::now();
        self.latencies.record(self.last.saturating_duration_since(of.published));
        self.delivered += 1;
        while self.in_flight.front().is_some_and(|message| message.missing == 0) {
            self.in_flight.pop_front();
            self.first += 1;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Dialect, Tally};

    #[test]
    fn deliveries_are_counted_once_and_only_for_their_room() {
        let mut tally = Tally::new(Dialect::Hub);
        for connection in 1..=4 {
            tally.add(connection, connection % 2);
        }
        tally.publish(Some(1));
        assert_eq!((tally.missing(), tally.next()), (2, 1));
        assert!(tally.deliver(1, 0).is_ok());
        for (connection, message) in [(1, 0), (2, 0), (3, 1), (9, 0)] {
            assert!(tally.deliver(connection, message).is_err(), "{connection} {message}");
        }
        // Its room has changed nothing for the others.
        let mut tally = Tally::new(Dialect::Hub);
        (1..=4).for_each(|connection| tally.add(connection, connection % 2));
        tally.publish(None);
        (1..=4).for_each(|connection| tally.deliver(connection, 0).unwrap());
        assert_eq!((tally.missing(), tally.next(), tally.reset().0), (0, 1, 4));
        tally.publish(Some(0));
        assert!(tally.deliver(2, 1).is_ok());
        tally.forget();
        assert!(tally.deliver(4, 1).is_ok(), "one that was forgotten is no error");
        assert_eq!((tally.missing(), tally.next()), (0, 2));
    }
}
