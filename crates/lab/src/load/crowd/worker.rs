use super::order::{Counts, Done, Order, Report};
use super::tally::Tally;
use crate::load::client::{Client, OnMessage};
use crate::load::make::config;
use crate::load::progress::Progress;
use crate::load::server::Server;
use crate::{Error, Span};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, TryRecvError};
use std::time::{Duration, Instant};
use tautline::layers::io::machine::OwnDescriptors;
use tautline_measure::SplitMix;

/// Connections that one thread opens at a time: as many as a client keeps tickets.
const AT_ONCE: usize = 8;

/// Messages in flight of one thread where one is echoed on each connection.
const ECHOES: usize = 32;

/// Longest wait for events, and so for orders.
const WAIT: Duration = Duration::from_millis(50);

/// Time without any reply after which a run has failed. Dozens of threads share a CPU.
const PATIENCE: Duration = Duration::from_secs(30);

/// One thread of a crowd.
pub(super) struct Worker {
    client: Client,
    tally: Rc<RefCell<Tally>>,
    counts: Arc<Counts>,
    random: SplitMix,
    /// Resumed sessions that were counted.
    resumed: usize,
}

impl Worker {
    /// Follows orders until there are no more.
    pub(super) fn run(
        (number, server, own): (usize, Server, Option<OwnDescriptors>),
        (epoch, counts): (Instant, Arc<Counts>),
        orders: &Receiver<Order>,
        reports: &Sender<Report>,
    ) {
        let made = own
            .map_or(Ok(()), |own| {
                own.take().map_err(|error| Error::Failed(format!("cannot make a table of descriptors: {error}")))
            })
            .and_then(|()| Self::new(&server, number, epoch, counts));
        let followed = made.and_then(|worker| worker.follow(orders, reports));
        if let Err(error) = followed {
            // Fails if the load has ended.
            let _ = reports.send(Err(error));
        }
    }

    fn new(server: &Server, number: usize, epoch: Instant, counts: Arc<Counts>) -> Result<Self, Error> {
        let tally = Rc::new(RefCell::new(Tally::new(epoch)));
        let (replies, shared) = (Rc::clone(&tally), Arc::clone(&counts));
        let on_message: OnMessage = Box::new(move |conn, message| {
            if replies.borrow_mut().on_message(conn, message)? {
                shared.published.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        });
        let client = Client::new(server, config(64, 64), None, on_message)?;
        Ok(Self { client, tally, counts, random: SplitMix(number as u64), resumed: 0 })
    }

    fn follow(mut self, orders: &Receiver<Order>, reports: &Sender<Report>) -> Result<(), Error> {
        let mut closed = 0;
        loop {
            match orders.try_recv() {
                Ok(order) => {
                    let done = self.act(&order)?;
                    if reports.send(Ok(done)).is_err() {
                        return Ok(());
                    }
                }
                Err(TryRecvError::Empty) => self.client.turn(WAIT)?,
                Err(TryRecvError::Disconnected) => return self.client.close(),
            }
            let now = self.client.closed();
            self.counts.closed.fetch_add(now - closed, Ordering::Relaxed);
            closed = now;
        }
    }

    fn act(&mut self, order: &Order) -> Result<Done, Error> {
        match *order {
            Order::Open(count) => self.open(count)?,
            Order::EchoOnEach => self.echo_on_each()?,
            Order::Echo { rate, span } => return self.echo(rate, span),
            Order::Publish => {
                let tally = &self.tally;
                self.client.with(0, |conn| tally.borrow().publish(conn))?;
                self.client.flush();
            }
            Order::Published => {
                let published = std::mem::take(&mut self.tally.borrow_mut().published);
                return Ok(Done { latencies: Some(published), ..Done::default() });
            }
            Order::ExpectEnd => self.client.expect_end(),
            Order::CountErrors => self.client.count_errors(),
            Order::Errors => {
                let errors = Some((self.client.take_errors(), self.client.held()));
                return Ok(Done { errors, ..Done::default() });
            }
        }
        Ok(Done::default())
    }

    fn open(&mut self, count: usize) -> Result<(), Error> {
        let (counts, mut known) = (Arc::clone(&self.counts), self.client.connections());
        self.client.open_some(count, AT_ONCE, PATIENCE, &mut |progress| {
            if let Progress::Connecting(open, _) = progress {
                counts.open.fetch_add(open - known, Ordering::Relaxed);
                known = open;
            }
        })?;
        let resumed = self.client.resumed();
        self.counts.resumed.fetch_add(resumed - self.resumed, Ordering::Relaxed);
        self.resumed = resumed;
        Ok(())
    }

    fn send(&mut self, connection: usize, due: Instant) -> Result<(), Error> {
        let tally = &self.tally;
        self.client.with(connection, |conn| tally.borrow_mut().send(conn, due))
    }

    fn turn(&mut self, longest: Duration) -> Result<(), Error> {
        self.client.turn(longest)?;
        self.tally.borrow().check(PATIENCE)
    }

    /// Waits until at most `most` messages are in flight.
    fn settle(&mut self, most: usize) -> Result<(), Error> {
        while self.tally.borrow().in_flight > most {
            self.turn(WAIT)?;
        }
        Ok(())
    }

    fn echo_on_each(&mut self) -> Result<(), Error> {
        for connection in 0..self.client.connections() {
            self.settle(ECHOES - 1)?;
            self.send(connection, Instant::now())?;
        }
        self.settle(0)
    }

    /// Sends messages on random connections when they are due, whether replies come or not.
    fn echo(&mut self, rate: f64, span: Span) -> Result<Done, Error> {
        let connections = self.client.connections();
        let began = Instant::now();
        let (since, end) = (began + span.warmup, began + span.warmup + span.duration);
        self.tally.borrow_mut().since = Some(since);
        // Threads begin together, and do not send together.
        let phase = self.random.below(1 << 20) as f64 / f64::from(1 << 20);
        let mut sent = 0_u64;
        loop {
            let due = |sent: u64| began + Duration::from_secs_f64((sent as f64 + phase) / rate);
            let now = Instant::now();
            // Messages due before the end are sent even if this thread runs late.
            while due(sent) <= now && due(sent) < end && connections > 0 {
                let connection = self.random.below(connections);
                self.send(connection, due(sent))?;
                sent += 1;
            }
            if now >= end {
                break;
            }
            self.turn(WAIT.min(due(sent).saturating_duration_since(now)).min(end - now))?;
        }
        self.settle(0)?;
        let mut tally = self.tally.borrow_mut();
        tally.since = None;
        let latencies = std::mem::take(&mut tally.latencies);
        Ok(Done { latencies: Some(latencies), ..Done::default() })
    }
}
