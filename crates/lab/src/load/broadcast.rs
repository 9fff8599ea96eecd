use super::client::{Client, OnMessage, WAIT, number};
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
        if self.subscribers == 0 || self.pipeline == 0 {
            return Err(Error::Usage("subscribers and pipeline must be at least 1".into()));
        }
        let deliveries = Rc::new(RefCell::new(Deliveries::new(self)));
        let delivered = Rc::clone(&deliveries);
        let on_message: OnMessage = Box::new(move |conn, message| delivered.borrow_mut().on_delivery(conn, message));
        let client = Client::new(&self.server, config(self.size, self.pipeline), None, on_message)?;
        let mut run = Run { client, deliveries };
        run.client.open(self.subscribers, watch)?;
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
        if run.deliveries.borrow().oldest == 0 {
            let (got, all) = run.deliveries.borrow().first();
            return Err(Error::Failed(format!(
                "only {got} of {all} connections got the first message: does the server send each message to all, as \
                 `taut serve --app broadcast` does?"
            )));
        }
        let (delivered, latencies) = run.deliveries.borrow_mut().reset();
        let measured = meter.stop(delivered, latencies)?;
        run.client.close()?;
        Ok(measured)
    }
}

/// A run in progress.
struct Run {
    client: Client,
    deliveries: Rc<RefCell<Deliveries>>,
}

impl Run {
    fn publish(&mut self, count: usize) -> Result<(), Error> {
        let deliveries = &self.deliveries;
        for _ in 0..count {
            self.client.with(0, |conn| deliveries.borrow_mut().publish(conn))?;
            self.client.flush();
        }
        Ok(())
    }

    /// Runs until `end`, and shows the latencies so far after each turn.
    fn until(&mut self, end: Instant, show: &mut dyn FnMut(Instant, &Latencies)) -> Result<(), Error> {
        loop {
            let now = Instant::now();
            if now >= end {
                return Ok(());
            }
            self.client.turn(WAIT)?;
            let mut deliveries = self.deliveries.borrow_mut();
            if deliveries.last.elapsed() > PATIENCE {
                return Err(Error::Failed(format!("no delivery for {} s", PATIENCE.as_secs())));
            }
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

    /// Connections that have the oldest message in flight, and all.
    fn first(&self) -> (usize, usize) {
        let missing = self.in_flight.front().map_or(self.next.len(), |(_, missing)| *missing);
        (self.next.len() - missing, self.next.len())
    }

    fn publish(&mut self, conn: &mut Conn<'_, ()>) -> Result<(), Error> {
        let message = self.payload.stamp(self.oldest + self.in_flight.len() as u64);
        self.last = Instant::now();
        self.in_flight.push_back((self.last, self.next.len()));
        match conn.send(Outgoing::binary(message)) {
            Delivery::Dropped | Delivery::Closed => {
                Err(Error::Failed("the publisher's connection takes no more messages".to_owned()))
            }
            _ => Ok(()),
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
        if data.len() != self.payload.len() || !self.payload.matches(number, 0, data) {
            return Err(Error::WrongReply(format!("message {number}: other bytes than were published")));
        }
        *missing -= 1;
        self.last = Instant::now();
        self.latencies.record(self.last.saturating_duration_since(*published));
        self.delivered += 1;
        while self.in_flight.front().is_some_and(|(_, missing)| *missing == 0) {
            self.in_flight.pop_front();
            self.oldest += 1;
            self.publishable += 1;
        }
        Ok(())
    }
}
