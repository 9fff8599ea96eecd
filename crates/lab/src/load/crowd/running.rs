use super::order::{Counts, Done, Order, Report};
use crate::load::Errors;
use crate::load::progress::{Progress, Watch};
use crate::load::server::PATIENCE;
use crate::{Error, Latencies, Span};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Longest time without a message or a close while all connections wait for one.
const SILENCE: Duration = Duration::from_secs(60);

/// A running [`Crowd`](super::Crowd).
pub struct RunningCrowd {
    pub(super) threads: Vec<Thread>,
    pub(super) reports: Receiver<Report>,
    pub(super) shared: Arc<Counts>,
    /// Connections opened so far.
    pub(super) open: usize,
}

/// A thread of a crowd.
pub(super) struct Thread {
    pub(super) orders: Sender<Order>,
    pub(super) thread: Option<JoinHandle<()>>,
}

impl RunningCrowd {
    /// Number of threads.
    #[must_use]
    pub const fn threads(&self) -> usize {
        self.threads.len()
    }

    /// Number of connections that resumed a session.
    #[must_use]
    pub fn resumed(&self) -> usize {
        self.shared.resumed.load(Ordering::Relaxed)
    }

    /// Counts errors of connections from now on. Without this the first one ends the run.
    ///
    /// # Errors
    /// A thread has failed.
    pub fn count_errors(&mut self) -> Result<(), Error> {
        self.order_all(|| Order::CountErrors);
        self.all_done(&mut |_| {}, &mut || {})
    }

    /// The errors so far, and the number of connections that are open in spite of them.
    ///
    /// # Errors
    /// A thread has failed.
    pub fn errors(&mut self) -> Result<(Errors, usize), Error> {
        let (mut errors, mut open) = (Errors::default(), 0);
        self.order_all(|| Order::Errors);
        let mut add = |done: Done| {
            let (some, held) = done.errors.unwrap_or_default();
            errors.merge(some);
            open += held;
        };
        self.all_done(&mut add, &mut || {})?;
        Ok((errors, open))
    }

    /// Opens connections until there are `count`.
    ///
    /// # Errors
    /// A connection failed or ended, or none opened for 5 s.
    pub fn open(&mut self, count: usize, watch: Watch<'_>) -> Result<Duration, Error> {
        let began = Instant::now();
        let threads = self.threads.len();
        for (number, thread) in self.threads.iter().enumerate() {
            thread.order(Order::Open(count * (number + 1) / threads - count * number / threads));
        }
        let shared = Arc::clone(&self.shared);
        self.all_done(&mut |_| {}, &mut || watch(Progress::Connecting(shared.open.load(Ordering::Relaxed), count)))?;
        self.open = count;
        Ok(began.elapsed())
    }

    /// Echoes one message on every connection, a few hundred at a time. Returns the time that it took.
    ///
    /// # Errors
    /// A connection ended, or a reply was wrong or did not come.
    pub fn echo_on_each(&mut self) -> Result<Duration, Error> {
        let began = Instant::now();
        self.order_all(|| Order::EchoOnEach);
        self.all_done(&mut |_| {}, &mut || {})?;
        Ok(began.elapsed())
    }

    /// Echoes `rate` messages a second on random connections. Returns the latencies since each message was due.
    ///
    /// # Errors
    /// A connection ended, or a reply was wrong or did not come.
    pub fn echo(&mut self, rate: f64, span: Span, watch: Watch<'_>) -> Result<Latencies, Error> {
        let rate = rate / self.threads.len() as f64;
        self.order_all(|| Order::Echo { rate, span });
        let (began, all) = (Instant::now(), span.warmup + span.duration);
        let mut latencies = Latencies::new();
        self.all_done(&mut |done| done.add_to(&mut latencies), &mut || {
            watch(Progress::Running((began.elapsed().as_secs_f64() / all.as_secs_f64()).min(1.0)));
        })?;
        Ok(latencies)
    }

    /// Has the server send a message to all. Returns the times from its publishing to its arrivals.
    ///
    /// # Errors
    /// A connection ended, or no message arrived for a minute although some were missing.
    pub fn broadcast(&mut self) -> Result<Latencies, Error> {
        self.shared.published.store(0, Ordering::Relaxed);
        self.threads[0].order(Order::Publish);
        let report = self.reports.recv_timeout(PATIENCE);
        report.map_err(|_| stopped())??;
        self.await_count(|counts| &counts.published)?;
        self.order_all(|| Order::Published);
        let mut latencies = Latencies::new();
        self.all_done(&mut |done| done.add_to(&mut latencies), &mut || {})?;
        Ok(latencies)
    }

    /// Calls `stop`, which has the server close all connections. Returns the time until all were closed.
    ///
    /// # Errors
    /// A connection ended otherwise, or none for a minute although some were left.
    pub fn await_end(&mut self, stop: impl FnOnce()) -> Result<Duration, Error> {
        self.order_all(|| Order::ExpectEnd);
        self.all_done(&mut |_| {}, &mut || {})?;
        let began = Instant::now();
        stop();
        self.await_count(|counts| &counts.closed)?;
        Ok(began.elapsed())
    }

    /// Holds the connections for `duration`.
    ///
    /// # Errors
    /// A connection ended.
    pub fn hold(&mut self, duration: Duration, watch: Watch<'_>) -> Result<(), Error> {
        let began = Instant::now();
        while began.elapsed() < duration {
            watch(Progress::Running(began.elapsed().as_secs_f64() / duration.as_secs_f64()));
            std::thread::sleep(Duration::from_millis(50).min(duration));
            self.check()?;
        }
        Ok(())
    }

    fn order_all(&self, mut order: impl FnMut() -> Order) {
        for thread in &self.threads {
            thread.order(order());
        }
    }

    /// Waits for the report of every thread, and passes each to `add`.
    fn all_done(&self, add: &mut dyn FnMut(Done), watch: &mut dyn FnMut()) -> Result<(), Error> {
        let mut missing = self.threads.len();
        while missing > 0 {
            watch();
            let done: Done = match self.reports.recv_timeout(Duration::from_millis(200)) {
                Ok(report) => report?,
                Err(RecvTimeoutError::Timeout) => continue,
                Err(RecvTimeoutError::Disconnected) => return Err(stopped()),
            };
            missing -= 1;
            add(done);
        }
        Ok(())
    }

    /// Fails if a thread has failed.
    fn check(&self) -> Result<(), Error> {
        self.reports.try_recv().map_or(Ok(()), |report| report.map(drop))
    }

    /// Waits until a count has reached the number of connections.
    fn await_count(&self, count: fn(&Counts) -> &AtomicUsize) -> Result<(), Error> {
        let mut last = (0, Instant::now());
        loop {
            let counted = count(&self.shared).load(Ordering::Relaxed);
            if counted >= self.open {
                return Ok(());
            }
            if counted > last.0 {
                last = (counted, Instant::now());
            }
            if last.1.elapsed() > SILENCE {
                let (all, silence) = (self.open, SILENCE.as_secs());
                return Err(Error::Failed(format!("{counted} of {all} connections, then no other for {silence} s")));
            }
            std::thread::sleep(Duration::from_millis(2));
            self.check()?;
        }
    }
}

impl Drop for RunningCrowd {
    fn drop(&mut self) {
        // Every thread ends when it has no more orders to expect.
        let threads: Vec<_> = self.threads.drain(..).filter_map(|thread| thread.thread).collect();
        for thread in threads {
            let _ = thread.join();
        }
    }
}

impl Thread {
    fn order(&self, order: Order) {
        // A thread that has ended has reported why.
        let _ = self.orders.send(order);
    }
}

fn stopped() -> Error {
    Error::Failed("a thread of the load has stopped".to_owned())
}
