use super::dial::{Dialed, Holds, close_all, open_all};
use super::open_loop::Pace;
use super::{Job, PATIENCE, Server, Stage, WAIT, Watch, config, turn};
use crate::payload::Payload;
use crate::{Error, Latencies, Measured, Meter};
use std::cell::Cell;
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tautline::layers::engine::probe::{Off, Probe, Stages};
use tautline::layers::io::{Arrival, Driver};
use tautline::layers::tls::Engine;
use tautline::{Closed, Conn, ConnectError, Delivery, DialId, Handler, Kind, Message, Opening, Outgoing, Shard};

/// Progress is reported this often.
const REPORT: Duration = Duration::from_millis(100);

/// Load on a WebSocket echo server. Every reply is compared with what was sent, byte for byte.
#[derive(Clone)]
pub struct Echo {
    /// The server.
    pub server: Server,
    /// Concurrent connections.
    pub connections: usize,
    /// Payload bytes per message.
    pub size: usize,
    /// Closed loop: messages in flight per connection. Each reply is followed by the next message.
    pub pipeline: usize,
    /// Open loop instead: messages per second over all connections, whether replies come or not. A latency then counts
    /// from the time at which its message was to be sent, so that a stall counts for every message that it delayed.
    pub rate: Option<f64>,
    /// How long to run before measuring begins.
    pub warmup: Duration,
    /// How long to measure.
    pub duration: Duration,
}

impl Echo {
    /// Connects, runs, measures.
    ///
    /// # Errors
    /// A connection failed or ended, a reply was wrong, none came for 5 s, the server did not keep up with the rate, or
    /// the arguments make no sense.
    pub fn run(&self, watch: Watch<'_>) -> Result<Measured, Error> {
        self.check()?;
        let (measured, _) = self.server.with_engine(&self.server.tls, Run { echo: self, watch, stamped: false })?;
        Ok(measured)
    }

    fn check(&self) -> Result<(), Error> {
        if self.connections == 0 || self.pipeline == 0 {
            return Err(Error::Usage("connections and pipeline must be at least 1".into()));
        }
        if self.rate.is_some_and(|rate| !(rate > 0.0 && rate <= 1e7)) {
            return Err(Error::Usage("the rate must lie above 0 and at most at 10,000,000 messages a second".into()));
        }
        Ok(())
    }

    /// As [`run`](Self::run), at a [rate](Self::rate), but a latency counts from when the message was given to this machine's
    /// kernel until the reply was back there, by the kernel's stamp: what this side's threads wait for is not in it, neither
    /// before nor after. That is for servers that share the machine with their load. Where there are no stamps, as over Unix
    /// sockets, it ends when the reply is read.
    ///
    /// Gives all latencies too, in the order of replies.
    ///
    /// # Errors
    /// Those of [`run`](Self::run).
    pub fn run_stamped(&self, watch: Watch<'_>) -> Result<(Measured, Vec<Duration>), Error> {
        self.check()?;
        self.server.with_engine(&self.server.tls, Run { echo: self, watch, stamped: true })
    }
}

/// A run, before its engine is known.
struct Run<'a, 'w> {
    echo: &'a Echo,
    watch: Watch<'w>,
    stamped: bool,
}

impl Job for Run<'_, '_> {
    type Output = (Measured, Vec<Duration>);

    fn run<E: Engine, D: Driver>(self, engine: E, driver: D) -> Result<Self::Output, Error> {
        if self.stamped {
            let arrived = Arrived::default();
            let client = Client { arrived: Some(arrived.clone()), ..Client::new(self.echo) };
            return self.with(engine, driver, client, arrived);
        }
        let client = Client::new(self.echo);
        self.with(engine, driver, client, Off)
    }
}

impl Run<'_, '_> {
    fn with<E: Engine, D: Driver, P: Probe>(
        self,
        engine: E,
        driver: D,
        client: Client,
        probe: P,
    ) -> Result<(Measured, Vec<Duration>), Error> {
        let Self { echo, watch, .. } = self;
        let in_flight = echo.rate.map_or(echo.pipeline, |_| Pace::most_in_flight(echo.size));
        let made = Shard::with_probe(0, config(echo.size, in_flight).into(), engine, driver, client, probe);
        let mut shard = made.map_err(|error| Error::Failed(format!("cannot make a loop: {error}")))?;
        open_all(&mut shard, &Arc::new(echo.server.resolved()?), echo.connections, watch)?;
        let mut clock = Clock::new(echo.warmup + echo.duration);
        let pid = echo.server.pid;
        let measured = if let Some(rate) = echo.rate {
            let mut pace = Pace::new(rate, echo.connections);
            pace.until(&mut shard, Instant::now() + echo.warmup, &mut clock, watch)?;
            let meter = shard.handler().begin(pid)?;
            let began = meter.began();
            pace.until(&mut shard, began + echo.duration, &mut clock, watch)?;
            let mut measured = meter.stop(shard.handler().answered, Latencies::new())?;
            pace.finish(&mut shard)?;
            measured.latencies = std::mem::take(&mut shard.handler().latencies);
            measured
        } else {
            fill(&mut shard, echo.pipeline);
            until(&mut shard, Instant::now() + echo.warmup, &mut clock, watch)?;
            let meter = shard.handler().begin(pid)?;
            let end = meter.began() + echo.duration;
            until(&mut shard, end, &mut clock, watch)?;
            let client = shard.handler();
            client.measuring = None;
            meter.stop(client.answered, std::mem::take(&mut client.latencies))?
        };
        close_all(&mut shard)?;
        Ok((measured, shard.into_handler().in_order))
    }
}

/// Says how much of the time is over, now and then.
pub(super) struct Clock {
    began: Instant,
    total: Duration,
    reported: Instant,
}

impl Clock {
    fn new(total: Duration) -> Self {
        let now = Instant::now();
        Self { began: now, total, reported: now }
    }

    pub(super) fn tick(&mut self, now: Instant, watch: Watch<'_>) {
        if now - self.reported >= REPORT {
            self.reported = now;
            watch(Stage::Running((now - self.began).as_secs_f64() / self.total.as_secs_f64()));
        }
    }
}

/// Puts the first messages on their way.
fn fill<E: Engine, D: Driver, P: Probe>(shard: &mut Shard<E, D, Client, P>, pipeline: usize) {
    let open = shard.handler().dialed.open.clone();
    for conn in open {
        shard.with_conn(conn, |client, conn| {
            for _ in 0..pipeline {
                client.send(conn, Instant::now());
            }
        });
    }
    shard.flush();
}

/// Runs the closed loop.
fn until<E: Engine, D: Driver, P: Probe>(
    shard: &mut Shard<E, D, Client, P>,
    end: Instant,
    clock: &mut Clock,
    watch: Watch<'_>,
) -> Result<(), Error> {
    loop {
        let now = Instant::now();
        if now >= end {
            return Ok(());
        }
        clock.tick(now, watch);
        turn(shard, WAIT.min(end - now))?;
        shard.handler().check()?;
    }
}

/// Notes when the bytes that are read reached this machine.
#[derive(Clone, Default)]
struct Arrived(Rc<Cell<Option<Arrival>>>);

impl Probe for Arrived {
    fn begin<D: Driver>(&mut self, driver: &mut D) -> io::Result<()> {
        driver.stamp_arrivals()
    }

    fn received<D: Driver>(&mut self, driver: &mut D) {
        self.0.set(driver.arrival());
    }

    fn woke(&mut self) {}
    fn resumed(&mut self) {}
    fn opening(&mut self) {}
    fn opened(&mut self) {}
    fn decoding(&mut self) {}
    fn parsed(&mut self) {}
    fn calling(&mut self) {}

    fn stages(&self) -> Option<Box<Stages>> {
        None
    }
}

/// The time by the clock that the kernel stamps with.
fn real_time() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// The application on the client's side: sends, checks replies, counts.
pub(super) struct Client {
    pub(super) dialed: Dialed,
    payload: Payload,
    is_open_loop: bool,
    /// Since when messages count: in a closed loop all that are answered, in an open loop all that were due since.
    measuring: Option<Instant>,
    answered: u64,
    pub(super) in_flight: usize,
    latencies: Latencies,
    last_reply: Instant,
    /// Where latencies end by the kernel's stamps.
    arrived: Option<Arrived>,
    /// These, one by one.
    in_order: Vec<Duration>,
}

/// What is on its way on one connection.
#[derive(Default)]
pub(super) struct State {
    /// When each message was sent (open loop: was due), oldest first; and, where replies are stamped, by the clock of stamps.
    sent: VecDeque<(Instant, Duration)>,
    /// Number of the next message.
    next: u64,
    /// Number of the message whose reply comes next.
    expected: u64,
}

impl Client {
    fn new(echo: &Echo) -> Self {
        Self {
            dialed: Dialed::default(),
            payload: Payload::new(echo.size),
            is_open_loop: echo.rate.is_some(),
            measuring: None,
            answered: 0,
            in_flight: 0,
            latencies: Latencies::new(),
            last_reply: Instant::now(),
            arrived: None,
            in_order: Vec::new(),
        }
    }

    /// Whether each message is to leave at once.
    pub(super) const fn is_stamped(&self) -> bool {
        self.arrived.is_some()
    }

    pub(super) const fn size(&self) -> usize {
        self.payload.len()
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
    pub(super) fn send(&mut self, conn: &mut Conn<'_, State>, at: Instant) {
        let state = conn.state();
        let number = state.next;
        state.next += 1;
        state.sent.push_back((at, if self.is_stamped() { real_time() } else { Duration::ZERO }));
        if self.in_flight == 0 {
            self.last_reply = at;
        }
        self.in_flight += 1;
        let message = Outgoing::binary(self.payload.stamp(number));
        if let Delivery::Dropped | Delivery::Closed = conn.send(message) {
            self.dialed.fail(Error::Failed("a connection takes no more messages".into()));
        }
    }

    fn accept(&mut self, state: &mut State, message: &Message<'_>, now: Instant) -> Result<(), Error> {
        let Some((sent, by_stamps)) = state.sent.pop_front() else {
            return Err(Error::WrongReply("more replies than messages".into()));
        };
        let data = message.data();
        let number = state.expected;
        if message.kind() != Kind::Binary || data.len() != self.payload.len() {
            let (kind, length, due) = (message.kind(), data.len(), self.payload.len());
            let what = format!("message {number}: {kind:?} of {length} bytes instead of Binary of {due}");
            return Err(Error::WrongReply(what));
        }
        if !self.payload.matches(number, 0, data) {
            return Err(Error::WrongReply(format!("message {number}: other bytes than were sent")));
        }
        state.expected += 1;
        self.in_flight -= 1;
        self.last_reply = now;
        if let Some(since) = self.measuring
            && (!self.is_open_loop || sent >= since)
        {
            self.answered += 1;
            let mut latency = now.saturating_duration_since(sent);
            if let Some(arrived) = &self.arrived {
                let arrival = arrived.0.get().map_or_else(real_time, |arrival| Duration::from_nanos(arrival.nanos));
                latency = arrival.saturating_sub(by_stamps);
                self.in_order.push(latency);
            }
            self.latencies.record(latency);
        }
        Ok(())
    }

    pub(super) fn check(&mut self) -> Result<(), Error> {
        self.dialed.check()?;
        if self.in_flight > 0 && self.last_reply.elapsed() > PATIENCE {
            return Err(Error::Failed(format!("no reply for {} s", PATIENCE.as_secs())));
        }
        Ok(())
    }
}

impl Holds for Client {
    fn dialed(&mut self) -> &mut Dialed {
        &mut self.dialed
    }
}

impl Handler for Client {
    type State = State;

    fn on_open(&mut self, conn: &mut Conn<'_, State>, _opening: &Opening<'_>) {
        self.dialed.open.push(conn.id());
    }

    fn on_message(&mut self, conn: &mut Conn<'_, State>, message: Message<'_>) {
        if self.dialed.ending {
            return;
        }
        let now = Instant::now();
        if let Err(error) = self.accept(conn.state(), &message, now) {
            self.dialed.fail(error);
        } else if !self.is_open_loop {
            self.send(conn, now);
        }
    }

    fn on_close(&mut self, _conn: &mut Conn<'_, State>, closed: &Closed) {
        self.dialed.closed(closed);
    }

    fn on_connect_failed(&mut self, _dial: DialId, error: &ConnectError, _retry: Option<Duration>) {
        self.dialed.failed(error);
    }
}
