use super::dial::{Dialed, Holds, close_all, open_all};
use super::{Job, PATIENCE, Server, Stage, WAIT, Watch, config, new_loop, turn};
use crate::payload::Payload;
use crate::{Error, Latencies, Measured, Meter};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tautline::layers::io::Driver;
use tautline::layers::tls::Engine;
use tautline::{Closed, Conn, ConnId, ConnectError, Delivery, DialId, Handler, Message, Opening, Outgoing, Shard};

/// Load on a server that sends every message to everyone, its sender included (`taut serve --app broadcast`): one
/// connection publishes, and as soon as everybody has a message it publishes the next. Every delivery is compared with what
/// was sent.
#[derive(Clone)]
pub struct Broadcast {
    /// The server. Where its target offers permessage-deflate, messages come compressed.
    pub server: Server,
    /// Connections that everything is delivered to; the first of them publishes.
    pub subscribers: usize,
    /// Payload bytes per message: text that compresses well.
    pub size: usize,
    /// Messages that are under way at a time.
    pub pipeline: usize,
    /// How long to run before measuring begins.
    pub warmup: Duration,
    /// How long to measure.
    pub duration: Duration,
}

impl Broadcast {
    /// Connects, runs, measures. What is counted are deliveries, and a latency is from publishing to one delivery.
    ///
    /// # Errors
    /// A connection failed or ended, a delivery was wrong, none came for 5 s, or the arguments make no sense.
    pub fn run(&self, watch: Watch<'_>) -> Result<Measured, Error> {
        if self.subscribers == 0 || self.pipeline == 0 {
            return Err(Error::Usage("subscribers and pipeline must be at least 1".into()));
        }
        self.server.with_engine(&self.server.tls, Run { broadcast: self, watch })
    }
}

/// A run, before its engine is known.
struct Run<'a, 'w> {
    broadcast: &'a Broadcast,
    watch: Watch<'w>,
}

impl Job for Run<'_, '_> {
    type Output = Measured;

    fn run<E: Engine, D: Driver>(self, engine: E, driver: D) -> Result<Measured, Error> {
        let Self { broadcast, watch } = self;
        let client = Client::new(broadcast);
        let mut shard = new_loop(engine, driver, config(broadcast.size, broadcast.pipeline), client)?;
        open_all(&mut shard, &Arc::new(broadcast.server.resolved()?), broadcast.subscribers, watch)?;
        let publisher = shard.handler().dialed.open[0];
        for _ in 0..broadcast.pipeline {
            publish(&mut shard, publisher);
        }
        until(&mut shard, publisher, Instant::now() + broadcast.warmup)?;
        watch(Stage::Running(0.0));
        let client = shard.handler();
        client.delivered = 0;
        client.latencies.clear();
        let meter = Meter::start(broadcast.server.pid)?;
        until(&mut shard, publisher, meter.began() + broadcast.duration)?;
        let client = shard.handler();
        let measured = meter.stop(client.delivered, std::mem::take(&mut client.latencies))?;
        close_all(&mut shard)?;
        Ok(measured)
    }
}

fn publish<E: Engine, D: Driver>(shard: &mut Shard<E, D, Client>, publisher: ConnId) {
    shard.with_conn(publisher, Client::publish);
    shard.flush();
}

fn until<E: Engine, D: Driver>(shard: &mut Shard<E, D, Client>, publisher: ConnId, end: Instant) -> Result<(), Error> {
    while Instant::now() < end {
        turn(shard, WAIT)?;
        let client = shard.handler();
        client.dialed.check()?;
        if client.last.elapsed() > PATIENCE {
            return Err(Error::Failed(format!("no delivery for {} s", PATIENCE.as_secs())));
        }
        for _ in 0..std::mem::take(&mut shard.handler().owed) {
            publish(shard, publisher);
        }
    }
    Ok(())
}

/// The application on the clients' side.
struct Client {
    dialed: Dialed,
    payload: Payload,
    subscribers: usize,
    /// Messages under way, oldest first: when each was published, and how many do not have it yet.
    under_way: VecDeque<(Instant, usize)>,
    /// Number of the oldest of them.
    oldest: u64,
    /// Messages that may be published now.
    owed: usize,
    delivered: u64,
    latencies: Latencies,
    last: Instant,
}

impl Client {
    fn new(broadcast: &Broadcast) -> Self {
        Self {
            dialed: Dialed::default(),
            payload: Payload::text(broadcast.size),
            subscribers: broadcast.subscribers,
            under_way: VecDeque::new(),
            oldest: 0,
            owed: 0,
            delivered: 0,
            latencies: Latencies::new(),
            last: Instant::now(),
        }
    }

    fn publish(&mut self, conn: &mut Conn<'_, u64>) {
        let now = Instant::now();
        let message = Outgoing::binary(self.payload.stamp(self.oldest + self.under_way.len() as u64));
        self.under_way.push_back((now, self.subscribers));
        self.last = now;
        if let Delivery::Dropped | Delivery::Closed = conn.send(message) {
            self.dialed.fail(Error::Failed("the publisher's connection takes no more messages".into()));
        }
    }

    /// Counts the delivery of message `number`.
    fn deliver(&mut self, number: u64, data: &[u8]) -> Result<(), Error> {
        let index = usize::try_from(number.wrapping_sub(self.oldest)).unwrap_or(usize::MAX);
        let Some((published, missing)) = self.under_way.get_mut(index) else {
            return Err(Error::WrongReply(format!("message {number} came, which is not under way")));
        };
        if data.len() != self.payload.len() || !self.payload.matches(number, 0, data) {
            return Err(Error::WrongReply(format!("message {number}: other bytes than were published")));
        }
        *missing -= 1;
        self.last = Instant::now();
        self.latencies.record(self.last.saturating_duration_since(*published));
        self.delivered += 1;
        while self.under_way.front().is_some_and(|(_, missing)| *missing == 0) {
            self.under_way.pop_front();
            self.oldest += 1;
            self.owed += 1;
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
    /// Number of the message that comes next.
    type State = u64;

    fn on_open(&mut self, conn: &mut Conn<'_, u64>, _opening: &Opening<'_>) {
        self.dialed.open.push(conn.id());
    }

    fn on_message(&mut self, conn: &mut Conn<'_, u64>, message: Message<'_>) {
        if self.dialed.ending {
            return;
        }
        let number = *conn.state();
        *conn.state() += 1;
        if let Err(error) = self.deliver(number, message.data()) {
            self.dialed.fail(error);
        }
    }

    fn on_close(&mut self, _conn: &mut Conn<'_, u64>, closed: &Closed) {
        self.dialed.closed(closed);
    }

    fn on_connect_failed(&mut self, _dial: DialId, error: &ConnectError, _retry: Option<Duration>) {
        self.dialed.failed(error);
    }
}
