use super::client::{Client, OnMessage};
use super::errors::Errors;
use super::exchange::{Arrived, Exchange, Run};
use super::make::config;
use super::open_loop::{RateStage, Schedule, most_in_flight};
use super::progress::Watch;
use super::server::Server;
use super::template::Template;
use crate::payload::Content;
use crate::{Error, Latencies, Measured, Span};
use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, Instant};
use tautline::layers::engine::probe::Probe;

/// Load on a WebSocket echo server. Every reply is compared with its message, byte for byte.
#[derive(Clone)]
pub struct Echo {
    /// The server.
    pub server: Server,
    /// Concurrent connections.
    pub connections: usize,
    /// Payload bytes per message.
    pub size: usize,
    /// Their contents.
    pub content: Content,
    /// Closed loop: messages in flight per connection. Each reply is followed by the next message.
    pub pipeline: usize,
    /// Open loop instead: messages per second over all connections, sent whether replies come or not.
    ///
    /// A latency then counts from the time at which its message was due, so a stall counts for every message that it
    /// delayed.
    pub rate: Option<f64>,
    /// Length of the measurement.
    pub span: Span,
}

impl Echo {
    /// Messages of 64 B, one in flight on each connection, or at a rate.
    pub(crate) const fn small(server: Server, connections: usize, rate: Option<f64>, span: Span) -> Self {
        Self { server, connections, size: 64, content: Content::Bytes, pipeline: 1, rate, span }
    }

    /// Connects, runs and measures.
    ///
    /// # Errors
    /// A connection failed or ended, a reply was wrong, none came for 5 s, the server did not keep up with the rate, or
    /// the arguments make no sense.
    pub fn run(&self, watch: Watch<'_>) -> Result<Measured, Error> {
        Ok(self.measure(watch, None, Shape::default())?.measured)
    }

    /// As [`run`](Self::run), but latencies leave out the time that threads of this side wait to run.
    ///
    /// A latency counts from the message's hand-over to this machine's kernel to the kernel's stamp of the reply. This is
    /// for servers that share the machine with their load. Without stamps, as over Unix sockets, a latency ends when the
    /// reply is read. Returns all latencies too, in the order of replies.
    pub(crate) fn run_stamped(&self, watch: Watch<'_>) -> Result<(Measured, Vec<Duration>), Error> {
        let run = self.measure(watch, Some(Arrived::default()), Shape::default())?;
        Ok((run.measured, run.in_order))
    }

    pub(super) fn measure(
        &self,
        watch: Watch<'_>,
        arrived: Option<Arrived>,
        shape: Shape,
    ) -> Result<Measurement, Error> {
        if self.connections == 0 || self.pipeline == 0 {
            return Err(Error::Usage("connections and pipeline must be at least 1".into()));
        }
        if self.rate.is_some_and(|rate| !(rate > 0.0 && rate <= 1e7)) {
            return Err(Error::Usage("the rate must be above 0 and at most 10,000,000 messages a second".into()));
        }
        let size = shape.template.as_ref().map_or(self.size, Template::typical_len);
        let has_template = shape.template.is_some();
        let is_open_loop = self.rate.is_some() || !shape.stages.is_empty();
        let mut exchange = Exchange::new((self.content, size), self.connections, is_open_loop, arrived.clone());
        exchange.set(shape.template, shape.takes_any_reply, shape.think);
        let exchange = Rc::new(RefCell::new(exchange));
        let replies = Rc::clone(&exchange);
        let on_message: OnMessage = Box::new(move |conn, reply| replies.borrow_mut().on_reply(conn, reply));
        // Other replies than the message itself may be longer, and so may later messages of a template.
        let largest = if shape.takes_any_reply || has_template { size.max(LARGEST_REPLY) } else { size };
        let config = config(largest, if is_open_loop { most_in_flight(size) } else { self.pipeline });
        let probe = arrived.map(|arrived| -> Box<dyn Probe> { Box::new(arrived) });
        let mut client = Client::new(&self.server, config, probe, on_message)?;
        if shape.counts_errors {
            client.count_errors();
        }
        client.ramp(self.connections, shape.ramp, watch)?;
        client.check_any_open()?;
        let Span { warmup, duration } = self.span;
        let staged: Duration = shape.stages.iter().map(|stage| stage.time).sum();
        let total = if shape.stages.is_empty() { warmup + duration } else { staged };
        let mut run = Run::new(client, exchange, total, watch);
        run.counts_errors = shape.counts_errors;
        let measured = if !shape.stages.is_empty() {
            let meter = run.begin(self.server.pid)?;
            let end = meter.began() + staged;
            Schedule::staged(shape.stages, size).until(&mut run, end)?;
            let answered = run.exchange.borrow().answered;
            let mut measured = meter.stop(answered, Latencies::new())?;
            Schedule::finish(&mut run)?;
            measured.latencies = run.end().1;
            measured
        } else if let Some(rate) = self.rate {
            let mut schedule = Schedule::new(rate, size);
            schedule.until(&mut run, Instant::now() + warmup)?;
            let meter = run.begin(self.server.pid)?;
            let end = meter.began() + duration;
            schedule.until(&mut run, end)?;
            let answered = run.exchange.borrow().answered;
            let mut measured = meter.stop(answered, Latencies::new())?;
            Schedule::finish(&mut run)?;
            measured.latencies = run.end().1;
            measured
        } else {
            run.fill(self.pipeline)?;
            run.until(Instant::now() + warmup)?;
            let meter = run.begin(self.server.pid)?;
            let received = run.client.received();
            run.until(meter.began() + duration)?;
            let received = run.client.received() - received;
            let (answered, latencies) = run.end();
            Measured { received: Some(received), ..meter.stop(answered, latencies)? }
        };
        let in_order = std::mem::take(&mut run.exchange.borrow_mut().in_order);
        let errors = run.client.take_errors();
        run.client.close()?;
        Ok(Measurement { measured, in_order, errors })
    }
}

/// Longest reply that is taken, if it need not be the message, or if messages grow.
const LARGEST_REPLY: usize = 16 << 20;

/// How a load differs from that of a benchmark.
#[derive(Default)]
pub(super) struct Shape {
    pub(super) ramp: Duration,
    pub(super) stages: Vec<RateStage>,
    pub(super) think: Option<(Duration, Duration)>,
    pub(super) template: Option<Template>,
    pub(super) takes_any_reply: bool,
    pub(super) counts_errors: bool,
}

/// The results of a run.
pub(super) struct Measurement {
    pub(super) measured: Measured,
    /// Latencies by stamps, in the order of replies.
    in_order: Vec<Duration>,
    pub(super) errors: Errors,
}
