use super::client::{Client, WAIT, number};
use super::progress::{Intervals, Progress, Watch};
use super::server::PATIENCE;
use crate::payload::{Content, Payload};
use crate::{Error, Latencies, Meter};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tautline::layers::engine::probe::{MessageTimes, Probe, Stages};
use tautline::layers::io::{Arrival, Driver};
use tautline::{Conn, Delivery, DialId, Kind, Message, Outgoing};

/// Interval of progress reports.
const REPORT: Duration = Duration::from_millis(100);

/// Messages and replies of all connections: sends, checks, counts.
pub(super) struct Exchange {
    payload: Payload,
    /// Whether messages are compressed, if that was negotiated.
    compress: bool,
    is_open_loop: bool,
    /// Messages of each connection, by its number.
    connections: Vec<InFlight>,
    /// Begin of measuring. A closed loop counts all replies since then, an open loop replies to messages due since then.
    measuring: Option<Instant>,
    pub(super) answered: u64,
    pub(super) in_flight: usize,
    pub(super) latencies: Latencies,
    last_reply: Instant,
    /// Arrival of the bytes being read, if latencies end at the kernel's stamps.
    arrived: Option<Arrived>,
    /// Latencies by stamps, in the order of replies.
    pub(super) in_order: Vec<Duration>,
}

/// Messages of one connection.
#[derive(Default)]
struct InFlight {
    /// Time at which each message was sent (open loop: was due), oldest first, and that time by the clock of stamps.
    sent: VecDeque<(Instant, Duration)>,
    /// Number of the next message.
    next: u64,
    /// Number of the message whose reply is next.
    expected: u64,
}

impl Exchange {
    pub(super) fn new(
        (content, size): (Content, usize),
        connections: usize,
        is_open_loop: bool,
        arrived: Option<Arrived>,
    ) -> Self {
        Self {
            payload: Payload::of(content, size),
            compress: content != Content::JsonAsItIs,
            is_open_loop,
            connections: (0..connections).map(|_| InFlight::default()).collect(),
            measuring: None,
            answered: 0,
            in_flight: 0,
            latencies: Latencies::new(),
            last_reply: Instant::now(),
            arrived,
            in_order: Vec::new(),
        }
    }

    /// Whether each message must leave at once.
    pub(super) const fn is_stamped(&self) -> bool {
        self.arrived.is_some()
    }

    /// Begins to measure.
    fn begin(&mut self, server_pid: Option<u32>) -> Result<Meter, Error> {
        self.answered = 0;
        self.latencies.clear();
        self.in_order.clear();
        let meter = Meter::start(server_pid)?;
        self.measuring = Some(meter.began());
        Ok(meter)
    }

    /// Sends the next message; its latency counts from `at`.
    fn send(&mut self, conn: &mut Conn<'_, ()>, at: Instant) -> Result<(), Error> {
        let by_stamps = if self.is_stamped() { real_time() } else { Duration::ZERO };
        let connection = &mut self.connections[number(conn)];
        let message = connection.next;
        connection.next += 1;
        connection.sent.push_back((at, by_stamps));
        if self.in_flight == 0 {
            self.last_reply = at;
        }
        self.in_flight += 1;
        let message = Outgoing::binary(self.payload.stamp(message));
        match conn.send(if self.compress { message } else { message.uncompressed() }) {
            Delivery::Dropped | Delivery::Closed => {
                Err(Error::Failed("a connection takes no more messages".to_owned()))
            }
            _ => Ok(()),
        }
    }

    /// Checks a reply. In a closed loop the next message follows.
    pub(super) fn on_reply(&mut self, conn: &mut Conn<'_, ()>, reply: &Message<'_>) -> Result<(), Error> {
        let now = Instant::now();
        let connection = &mut self.connections[number(conn)];
        let Some((sent, sent_by_stamps)) = connection.sent.pop_front() else {
            return Err(Error::WrongReply("more replies than messages".into()));
        };
        let (data, message, due) = (reply.data(), connection.expected, self.payload.len());
        if reply.kind() != Kind::Binary || data.len() != due {
            let (kind, length) = (reply.kind(), data.len());
            let what = format!("message {message}: {kind:?} of {length} bytes instead of Binary of {due}");
            return Err(Error::WrongReply(what));
        }
        if !self.payload.matches(message, 0, data) {
            return Err(Error::WrongReply(format!("message {message}: other bytes than were sent")));
        }
        connection.expected += 1;
        self.in_flight -= 1;
        self.last_reply = now;
        if let Some(since) = self.measuring
            && (!self.is_open_loop || sent >= since)
        {
            self.answered += 1;
            let mut latency = now.saturating_duration_since(sent);
            if let Some(arrived) = &self.arrived {
                let arrival = arrived.0.get().map_or_else(real_time, |arrival| Duration::from_nanos(arrival.nanos));
                latency = arrival.saturating_sub(sent_by_stamps);
                self.in_order.push(latency);
            }
            self.latencies.record(latency);
        }
        if self.is_open_loop { Ok(()) } else { self.send(conn, now) }
    }
}

/// The time by the clock of the kernel's stamps.
fn real_time() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// A run in progress: the client, its messages, and the clock of its progress.
pub(super) struct Run<'w> {
    pub(super) client: Client,
    pub(super) exchange: Rc<RefCell<Exchange>>,
    watch: Watch<'w>,
    began: Instant,
    total: Duration,
    reported: Instant,
    /// Since measuring began.
    intervals: Option<Intervals>,
}

impl<'w> Run<'w> {
    pub(super) fn new(client: Client, exchange: Rc<RefCell<Exchange>>, total: Duration, watch: Watch<'w>) -> Self {
        let now = Instant::now();
        Self { client, exchange, watch, began: now, total, reported: now, intervals: None }
    }

    pub(super) fn begin(&mut self, server_pid: Option<u32>) -> Result<Meter, Error> {
        let meter = self.exchange.borrow_mut().begin(server_pid)?;
        self.intervals = Some(Intervals::begin(meter.began()));
        Ok(meter)
    }

    /// Ends measuring; returns the number of replies, and their latencies.
    pub(super) fn end(&self) -> (u64, Latencies) {
        let mut exchange = self.exchange.borrow_mut();
        exchange.measuring = None;
        (exchange.answered, std::mem::take(&mut exchange.latencies))
    }

    /// Reports progress, if a report is due.
    pub(super) fn report(&mut self, now: Instant) {
        if now - self.reported >= REPORT {
            self.reported = now;
            let latencies = &self.exchange.borrow().latencies;
            if let Some(interval) = self.intervals.as_mut().and_then(|intervals| intervals.next(now, latencies)) {
                (self.watch)(Progress::Interval(interval));
            }
            (self.watch)(Progress::Running((now - self.began).as_secs_f64() / self.total.as_secs_f64()));
        }
    }

    /// Sends `count` messages on a connection, at the next turn or flush. Their latencies count from `at`.
    pub(super) fn send(&mut self, connection: usize, count: usize, at: Instant) -> Result<(), Error> {
        let exchange = &self.exchange;
        self.client.with(connection, |conn| (0..count).try_for_each(|_| exchange.borrow_mut().send(conn, at)))
    }

    /// Handles events, and fails if replies are missing for too long.
    pub(super) fn turn(&mut self, longest: Duration) -> Result<(), Error> {
        self.client.turn(longest)?;
        let exchange = self.exchange.borrow();
        if exchange.in_flight > 0 && exchange.last_reply.elapsed() > PATIENCE {
            return Err(Error::Failed(format!("no reply for {} s", PATIENCE.as_secs())));
        }
        Ok(())
    }

    /// Puts `pipeline` messages in flight on each connection.
    pub(super) fn fill(&mut self, pipeline: usize) -> Result<(), Error> {
        for connection in 0..self.client.connections() {
            self.send(connection, pipeline, Instant::now())?;
        }
        self.client.flush();
        Ok(())
    }

    /// Runs the closed loop.
    pub(super) fn until(&mut self, end: Instant) -> Result<(), Error> {
        loop {
            let now = Instant::now();
            if now >= end {
                return Ok(());
            }
            self.report(now);
            self.turn(WAIT.min(end - now))?;
        }
    }
}

/// A probe that notes when the bytes being read arrived at this machine.
#[derive(Clone, Default)]
pub(super) struct Arrived(Rc<Cell<Option<Arrival>>>);

impl Probe for Arrived {
    fn begin(&mut self, driver: &mut dyn Driver) -> io::Result<()> {
        driver.stamp_arrivals()
    }

    fn received(&mut self, driver: &mut dyn Driver) {
        self.0.set(driver.arrival());
    }

    fn woke(&mut self) {}
    fn resumed(&mut self) {}
    fn opening(&mut self) {}
    fn opened(&mut self) {}
    fn decoding(&mut self) {}
    fn parsed(&mut self) {}
    fn calling(&mut self, _: Option<DialId>) -> Option<MessageTimes> {
        None
    }

    fn stages(&self) -> Option<Box<Stages>> {
        None
    }
}
