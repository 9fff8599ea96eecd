use super::client::{Client, WAIT, number, send};
use super::progress::{Intervals, Progress, Watch};
use super::server::PATIENCE;
use super::template::Template;
use crate::payload::{Content, Payload};
use crate::{Error, Latencies, Meter};
use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::io;
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tautline::layers::engine::probe::{MessageTimes, Probe, Stages};
use tautline::layers::io::{Arrival, Driver};
use tautline::{Conn, ConnId, DialId, Kind, Message, Outgoing};
use tautline_measure::SplitMix;

/// Interval of progress reports.
const REPORT: Duration = Duration::from_millis(100);

/// Messages and replies of all connections: sends, checks, counts.
pub(super) struct Exchange {
    payload: Source,
    /// Whether any message is a reply.
    takes_any_reply: bool,
    /// The wait before the next message of a connection, from and to.
    think: Option<(Duration, Duration)>,
    random: SplitMix,
    /// Connections that send their next message later, and when.
    later: BinaryHeap<Reverse<(Instant, ConnId)>>,
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

/// The contents of messages.
pub(super) enum Source {
    Bytes(Payload),
    /// Text, and the one that was written last.
    Text(Template, Vec<u8>),
}

impl Source {
    fn message(&mut self, connection: usize, number: u64) -> Outgoing<'_> {
        match self {
            Self::Bytes(payload) => Outgoing::binary(payload.stamp(number)),
            Self::Text(template, text) => {
                template.write(connection, number, text);
                // Templates are text, and so is all that they write.
                std::str::from_utf8(text).map_or_else(|_| Outgoing::binary(text), Outgoing::text)
            }
        }
    }

    /// Checks that a reply is the message itself.
    fn check(&mut self, connection: usize, message: u64, reply: &Message<'_>) -> Result<(), Error> {
        let (kind, data) = (reply.kind(), reply.data());
        let (expected, due) = match self {
            Self::Bytes(payload) => (Kind::Binary, payload.len()),
            Self::Text(template, text) => {
                template.write(connection, message, text);
                (Kind::Text, text.len())
            }
        };
        if kind != expected || data.len() != due {
            let length = data.len();
            let what = format!("message {message}: {kind:?} of {length} bytes instead of {expected:?} of {due}");
            return Err(Error::WrongReply(what));
        }
        let is_same = match self {
            Self::Bytes(payload) => payload.matches(message, 0, data),
            Self::Text(_, text) => *text == data,
        };
        if is_same {
            return Ok(());
        }
        Err(Error::WrongReply(format!("message {message}: other bytes than were sent")))
    }
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
            payload: Source::Bytes(Payload::of(content, size)),
            takes_any_reply: false,
            think: None,
            random: SplitMix(1),
            later: BinaryHeap::new(),
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

    /// Takes other messages, replies and waits than an echo's.
    pub(super) fn set(
        &mut self,
        template: Option<Template>,
        takes_any_reply: bool,
        think: Option<(Duration, Duration)>,
    ) {
        if let Some(template) = template {
            self.payload = Source::Text(template, Vec::new());
        }
        (self.takes_any_reply, self.think) = (takes_any_reply, think);
    }

    /// The replies to a connection that has ended do not come any more.
    fn forget(&mut self, number: usize) {
        let connection = &mut self.connections[number];
        self.in_flight -= std::mem::take(&mut connection.sent).len();
        connection.expected = connection.next;
    }

    /// A connection whose next message is due.
    fn next_due(&mut self, now: Instant) -> Option<ConnId> {
        self.later.peek().filter(|Reverse((at, _))| *at <= now)?;
        self.later.pop().map(|Reverse((_, conn))| conn)
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
        let own = number(conn);
        let connection = &mut self.connections[own];
        let message = connection.next;
        connection.next += 1;
        connection.sent.push_back((at, by_stamps));
        if self.in_flight == 0 {
            self.last_reply = at;
        }
        self.in_flight += 1;
        let message = self.payload.message(own, message);
        send(conn, if self.compress { message } else { message.uncompressed() })
    }

    /// Checks a reply. In a closed loop the next message follows.
    pub(super) fn on_reply(&mut self, conn: &mut Conn<'_, ()>, reply: &Message<'_>) -> Result<(), Error> {
        let now = Instant::now();
        let connection = &mut self.connections[number(conn)];
        let Some((sent, sent_by_stamps)) = connection.sent.pop_front() else {
            return Err(Error::WrongReply("more replies than messages".into()));
        };
        let message = connection.expected;
        connection.expected += 1;
        self.in_flight -= 1;
        self.last_reply = now;
        let checked = if self.takes_any_reply { Ok(()) } else { self.payload.check(number(conn), message, reply) };
        if let Some(since) = self.measuring
            && checked.is_ok()
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
        // A load that counts errors goes on.
        let next = if self.is_open_loop { Ok(()) } else { self.go_on(conn, now) };
        checked.and(next)
    }

    /// Sends the next message of a closed loop, now or after the wait.
    fn go_on(&mut self, conn: &mut Conn<'_, ()>, now: Instant) -> Result<(), Error> {
        let Some((least, most)) = self.think else { return self.send(conn, now) };
        let share = (self.random.next() >> 11) as f64 / (1_u64 << 53) as f64;
        self.later.push(Reverse((now + least + (most - least).mul_f64(share), conn.id())));
        Ok(())
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
    /// Whether it goes on in spite of errors.
    pub(super) counts_errors: bool,
    /// Since measuring began.
    intervals: Option<Intervals>,
}

impl<'w> Run<'w> {
    pub(super) fn new(client: Client, exchange: Rc<RefCell<Exchange>>, total: Duration, watch: Watch<'w>) -> Self {
        let now = Instant::now();
        Self { client, exchange, watch, began: now, total, reported: now, counts_errors: false, intervals: None }
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

    /// Handles events. If replies are missing for too long, it fails, or counts them as errors and waits no more for them.
    pub(super) fn turn(&mut self, longest: Duration) -> Result<(), Error> {
        self.client.turn(longest)?;
        let mut exchange = self.exchange.borrow_mut();
        self.client.take_ended().into_iter().for_each(|number| exchange.forget(number));
        if exchange.in_flight > 0 && exchange.last_reply.elapsed() > PATIENCE {
            let what = format!("no reply for {} s", PATIENCE.as_secs());
            if !self.counts_errors {
                return Err(Error::Failed(what));
            }
            self.client.add_error("no reply", exchange.in_flight as u64, || what);
            // A reply that comes all the same is one too many.
            (0..exchange.connections.len()).for_each(|number| exchange.forget(number));
        }
        Ok(())
    }

    /// Sends the messages that are due after a wait. Returns the time until the next one, at most `longest`.
    fn send_due(&mut self, now: Instant, longest: Duration) -> Result<Duration, Error> {
        let mut sent = false;
        loop {
            let due = self.exchange.borrow_mut().next_due(now);
            let Some(conn) = due else { break };
            let exchange = &self.exchange;
            self.client.with_conn(conn, |conn| exchange.borrow_mut().send(conn, now))?;
            sent = true;
        }
        if sent {
            self.client.flush();
        }
        let next = self.exchange.borrow().later.peek().map(|Reverse((at, _))| at.saturating_duration_since(now));
        Ok(next.map_or(longest, |next| next.min(longest)))
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
            if now >= end || self.client.is_deserted() {
                return Ok(());
            }
            self.report(now);
            let longest = self.send_due(now, WAIT.min(end - now))?;
            self.turn(longest)?;
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
