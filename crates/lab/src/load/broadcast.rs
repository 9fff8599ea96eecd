use super::client::{Client, OnMessage, WAIT, number};
use super::errors::Errors;
use super::make::config;
use super::progress::{Intervals, Progress, Watch};
use super::server::{PATIENCE, Server};
use crate::payload::Payload;
use crate::{Error, Latencies, Measured, Meter, Span};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Instant;
use tautline::{Conn, Delivery, Message, Outgoing};

/// Load on a server that sends every message to everyone, its sender included (`taut serve --app broadcast`).
///
/// One connection publishes. As soon as all subscribers have a message, it publishes the next. Every delivery is compared
/// with its message.
#[derive(Clone)]
pub struct Broadcast {
    /// The server. If its target offers permessage-deflate, deliveries are compressed.
    pub server: Server,
    /// Connections that get every message; the first of them publishes.
    pub subscribers: usize,
    /// Payload bytes per message: text that compresses well.
    pub size: usize,
    /// Messages in flight.
    pub pipeline: usize,
    /// Length of the measurement.
    pub span: Span,
}

impl Broadcast {
    /// Connects, runs and measures. The count is that of deliveries; a latency is from publishing to one delivery.
    ///
    /// # Errors
    /// A delivery was wrong or missing, a connection failed, or there is nobody to deliver to.
    pub fn run(&self, watch: Watch<'_>) -> Result<Measured, Error> {
        Ok(self.measure(false, watch)?.0)
    }

    /// As [`run`](Self::run), but goes on in spite of errors, and counts them. Connections that have ended get no more
    /// deliveries.
    ///
    /// # Errors
    /// No connection opened at all, or the arguments make no sense.
    pub fn run_counting(&self, watch: Watch<'_>) -> Result<(Measured, Errors), Error> {
        self.measure(true, watch)
    }

    fn measure(&self, counts_errors: bool, watch: Watch<'_>) -> Result<(Measured, Errors), Error> {
        if self.subscribers == 0 || self.pipeline == 0 {
            return Err(Error::Usage("subscribers and pipeline must be at least 1".into()));
        }
        let deliveries = Rc::new(RefCell::new(Deliveries::new(self)));
        let delivered = Rc::clone(&deliveries);
        let on_message: OnMessage = Box::new(move |conn, message| delivered.borrow_mut().on_delivery(conn, message));
        let client = Client::new(&self.server, config(self.size, self.pipeline), None, on_message)?;
        if counts_errors {
            client.count_errors();
        }
        let mut run = Run { client, deliveries, publisher: 0 };
        run.client.open(self.subscribers, watch)?;
        run.client.check_any_open()?;
        run.deliveries.borrow_mut().subscribers = run.client.connections();
        run.publish(self.pipeline)?;
        run.until(Instant::now() + self.span.warmup, &mut |_, _| {})?;
        watch(Progress::Running(0.0));
        run.deliveries.borrow_mut().reset();
        let meter = Meter::start(self.server.pid)?;
        let mut intervals = Intervals::begin(meter.began());
        run.until(meter.began() + self.span.duration, &mut |now, latencies| {
            if let Some(interval) = intervals.next(now, latencies) {
                watch(Progress::Interval(interval));
            }
        })?;
        let (delivered, latencies) = run.deliveries.borrow_mut().reset();
        let measured = meter.stop(delivered, latencies)?;
        run.check_first()?;
        let errors = run.client.take_errors();
        run.client.close()?;
        Ok((measured, errors))
    }
}

/// A run in progress.
struct Run {
    client: Client,
    deliveries: Rc<RefCell<Deliveries>>,
    /// The connection that publishes: the first one that has not ended.
    publisher: usize,
}

impl Run {
    fn publish(&mut self, count: usize) -> Result<(), Error> {
        let deliveries = &self.deliveries;
        for _ in 0..count {
            let mut published = false;
            while !published && self.publisher < self.client.connections() {
                self.client.with(self.publisher, |conn| {
                    published = deliveries.borrow_mut().publish(conn);
                    Ok(())
                })?;
                if !published && !self.client.counts_errors() {
                    return Err(Error::Failed("the publisher's connection takes no more messages".to_owned()));
                }
                self.publisher += usize::from(!published);
            }
            self.client.flush();
        }
        Ok(())
    }

    /// Counts errors, or fails with the first one.
    fn fail(&self, kind: &str, count: usize, what: String) -> Result<(), Error> {
        if !self.client.counts_errors() {
            return Err(Error::Failed(what));
        }
        self.client.add_error(kind, count as u64, || what);
        Ok(())
    }

    /// Checks that the first message has reached all connections.
    fn check_first(&self) -> Result<(), Error> {
        let deliveries = self.deliveries.borrow();
        if deliveries.oldest > 0 || self.client.is_deserted() {
            return Ok(());
        }
        let (missing, all) = (deliveries.missing(), deliveries.subscribers);
        let got = all - missing;
        let what = format!(
            "only {got} of {all} connections got the first message: does the server send each message to all, as \
             `taut serve --app broadcast` does?"
        );
        self.fail("not delivered", missing, what)
    }

    /// Runs until `end`, and shows the latencies so far after each turn.
    fn until(&mut self, end: Instant, show: &mut dyn FnMut(Instant, &Latencies)) -> Result<(), Error> {
        loop {
            let now = Instant::now();
            if now >= end || self.client.is_deserted() {
                return Ok(());
            }
            self.client.turn(WAIT)?;
            let ended = self.client.take_ended();
            ended.into_iter().for_each(|number| self.deliveries.borrow_mut().forget(number));
            if self.deliveries.borrow().last.elapsed() > PATIENCE {
                let missing = self.deliveries.borrow_mut().give_up();
                self.fail("not delivered", missing, format!("no delivery for {} s", PATIENCE.as_secs()))?;
            }
            let mut deliveries = self.deliveries.borrow_mut();
            let count = std::mem::take(&mut deliveries.publishable);
            show(now, &deliveries.latencies);
            drop(deliveries);
            self.publish(count)?;
        }
    }
}

/// Messages and their deliveries.
struct Deliveries {
    payload: Payload,
    /// Connections that get each message.
    subscribers: usize,
    /// Number of each connection's next message.
    next: Vec<u64>,
    /// Messages in flight, oldest first: time of publishing, and number of subscribers that do not have it yet.
    in_flight: VecDeque<(Instant, usize)>,
    /// Number of the oldest message in flight.
    oldest: u64,
    /// Messages that may be published now.
    publishable: usize,
    delivered: u64,
    latencies: Latencies,
    last: Instant,
}

impl Deliveries {
    fn new(broadcast: &Broadcast) -> Self {
        Self {
            payload: Payload::text(broadcast.size),
            subscribers: broadcast.subscribers,
            next: vec![0; broadcast.subscribers],
            in_flight: VecDeque::new(),
            oldest: 0,
            publishable: 0,
            delivered: 0,
            latencies: Latencies::new(),
            last: Instant::now(),
        }
    }

    /// Returns the number of deliveries and their latencies, and counts from 0 again.
    fn reset(&mut self) -> (u64, Latencies) {
        (std::mem::take(&mut self.delivered), std::mem::take(&mut self.latencies))
    }

    /// Connections that do not have the oldest message in flight.
    fn missing(&self) -> usize {
        self.in_flight.front().map_or(self.subscribers, |(_, missing)| *missing)
    }

    /// Publishes the next message; returns whether the connection took it.
    fn publish(&mut self, conn: &mut Conn<'_, ()>) -> bool {
        let message = self.payload.stamp(self.oldest + self.in_flight.len() as u64);
        let now = Instant::now();
        if matches!(conn.send(Outgoing::binary(message)), Delivery::Dropped | Delivery::Closed) {
            return false;
        }
        self.last = now;
        self.in_flight.push_back((now, self.subscribers));
        true
    }

    /// A connection has ended: its deliveries do not come any more.
    fn forget(&mut self, number: usize) {
        self.subscribers = self.subscribers.saturating_sub(1);
        for (message, (_, missing)) in (self.oldest..).zip(&mut self.in_flight) {
            *missing = missing.saturating_sub(usize::from(message >= self.next[number]));
        }
        self.finish();
    }

    /// Waits no longer for what is in flight; returns the number of these deliveries.
    fn give_up(&mut self) -> usize {
        let missing = self.in_flight.iter_mut().map(|(_, missing)| std::mem::take(missing)).sum();
        self.last = Instant::now();
        self.finish();
        self.next.fill(self.oldest);
        missing
    }

    /// Makes room for messages in place of those that have reached all.
    fn finish(&mut self) {
        while self.in_flight.pop_front_if(|(_, missing)| *missing == 0).is_some() {
            self.oldest += 1;
            self.publishable += 1;
        }
    }

    fn on_delivery(&mut self, conn: &Conn<'_, ()>, message: &Message<'_>) -> Result<(), Error> {
        let next = &mut self.next[number(conn)];
        let (number, data) = (*next, message.data());
        *next += 1;
        let index = usize::try_from(number.wrapping_sub(self.oldest)).unwrap_or(usize::MAX);
        let Some((published, missing)) = self.in_flight.get_mut(index) else {
            return Err(Error::WrongReply(format!("message {number} came, which is not in flight")));
        };
        *missing = missing.saturating_sub(1);
        self.last = Instant::now();
        let is_right = data.len() == self.payload.len() && self.payload.matches(number, 0, data);
        if is_right {
            self.latencies.record(self.last.saturating_duration_since(*published));
            self.delivered += 1;
        }
        self.finish();
        if is_right {
            return Ok(());
        }
        Err(Error::WrongReply(format!("message {number}: other bytes than were published")))
    }
}
