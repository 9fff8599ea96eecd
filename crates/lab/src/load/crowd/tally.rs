use super::super::client::send;
use crate::payload::Payload;
use crate::{Error, Latencies};
use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};
use tautline::{Conn, ConnId, Kind, Message, Outgoing};

/// Payload bytes of a message that is echoed.
const SIZE: usize = 64;

/// Messages and replies of a thread's connections. Connections without a message in flight take no memory here.
pub(super) struct Tally {
    payload: Payload,
    /// Number and time of each message in flight, oldest first.
    flights: HashMap<ConnId, VecDeque<(u64, Instant)>>,
    next: u64,
    pub(super) in_flight: usize,
    last_reply: Instant,
    /// Messages that were due since then are recorded.
    pub(super) since: Option<Instant>,
    pub(super) latencies: Latencies,
    /// Latencies of messages to all.
    pub(super) published: Latencies,
    /// Begin of times in messages to all.
    epoch: Instant,
}

impl Tally {
    pub(super) fn new(epoch: Instant) -> Self {
        Self {
            payload: Payload::new(SIZE),
            flights: HashMap::new(),
            next: 0,
            in_flight: 0,
            last_reply: epoch,
            since: None,
            latencies: Latencies::new(),
            published: Latencies::new(),
            epoch,
        }
    }

    /// Sends a message; its latency counts from `due`.
    pub(super) fn send(&mut self, conn: &mut Conn<'_, ()>, due: Instant) -> Result<(), Error> {
        let number = self.next;
        self.next += 1;
        if self.in_flight == 0 {
            self.last_reply = Instant::now();
        }
        self.in_flight += 1;
        self.flights.entry(conn.id()).or_default().push_back((number, due));
        send(conn, Outgoing::binary(self.payload.stamp(number)))
    }

    /// Has the server send a message to all.
    pub(super) fn publish(&self, conn: &mut Conn<'_, ()>) -> Result<(), Error> {
        send(conn, Outgoing::text(&self.epoch.elapsed().as_nanos().to_string()))
    }

    /// Checks a reply, or a message to all. Returns whether it was the latter.
    pub(super) fn on_message(&mut self, conn: &Conn<'_, ()>, message: &Message<'_>) -> Result<bool, Error> {
        let now = Instant::now();
        if message.kind() == Kind::Text {
            let sent = message.text().and_then(|text| text.parse().ok()).map(Duration::from_nanos);
            let sent =
                sent.ok_or_else(|| Error::WrongReply("a message to all has other bytes than were sent".into()))?;
            self.published.record(now.saturating_duration_since(self.epoch + sent));
            return Ok(true);
        }
        let flights = self.flights.get_mut(&conn.id());
        let Some((number, due)) = flights.and_then(VecDeque::pop_front) else {
            return Err(Error::WrongReply("more replies than messages".into()));
        };
        if self.flights.get(&conn.id()).is_some_and(VecDeque::is_empty) {
            self.flights.remove(&conn.id());
        }
        if message.data().len() != SIZE || !self.payload.matches(number, 0, message.data()) {
            return Err(Error::WrongReply(format!("message {number}: other bytes than were sent")));
        }
        self.in_flight -= 1;
        self.last_reply = now;
        if self.since.is_some_and(|since| due >= since) {
            self.latencies.record(now.saturating_duration_since(due));
        }
        Ok(false)
    }

    /// Fails if replies are missing, and none came for `patience`.
    pub(super) fn check(&self, patience: Duration) -> Result<(), Error> {
        if self.in_flight > 0 && self.last_reply.elapsed() > patience {
            let (missing, patience) = (self.in_flight, patience.as_secs());
            return Err(Error::Failed(format!("{missing} replies are missing, and none came for {patience} s")));
        }
        Ok(())
    }
}
