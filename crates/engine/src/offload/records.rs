//! Records of large messages, sealed by several threads at once.
//!
//! A message of 1 MiB is 64 records, and each can be sealed without the others. A shard with such a message reserves
//! their places in the wire buffer and offers half of them to the helper threads. Each thread sends what it sealed, but
//! waits until all earlier records are sent. The records therefore leave in order, and nothing is copied. The shard
//! goes on when all threads are done. If a helper comes too late, the shard has sealed everything itself. Smaller
//! messages are sealed without helpers.

use super::sys::{Help, Job, Wait};
use crate::config::Records;
use crate::counts::counters::LiveCounters;
use crossbeam_channel::{Receiver, Sender, TryRecvError, bounded};
use std::io;
use std::num::NonZero;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use tautline_buf::Buf;
use tautline_io::Direct;
use tautline_tls::{Error, Helpers, Session};

/// How long an idle thread polls for the next message before it sleeps.
///
/// To wake a thread takes longer than to seal a few hundred kilobytes, and large messages often come close together.
const POLL_TIME: Duration = Duration::from_micros(200);

/// Most jobs in the queue. A shard that finds the queue full seals alone.
const MAX_JOBS: usize = 64;

/// Most messages in a row that are sealed alone after help did not come.
const MAX_ALONE: u32 = 64;

/// Threads that help the shards of one server to seal large messages.
///
/// Clones share the threads, which end with the last clone.
#[derive(Clone)]
pub struct RecordPool {
    jobs: Sender<Arc<Job>>,
    threads: usize,
    min_message: usize,
    backoff: Arc<Backoff>,
}

/// Exponential backoff of requests for help.
///
/// On busy CPUs, the scheduler may not run a helper that has joined. The loop then waits longer than help ever saves.
#[derive(Default)]
struct Backoff {
    /// Requests in a row for which no help came in time.
    misses: AtomicU32,
    /// Messages to seal alone before the next request.
    alone: AtomicU32,
}

impl Backoff {
    fn should_try(&self) -> bool {
        let alone = self.alone.load(Ordering::Relaxed);
        if alone > 0 {
            // If shards count at the same time, one count is lost, which does no harm.
            self.alone.store(alone - 1, Ordering::Relaxed);
        }
        alone == 0
    }

    fn learn(&self, help: Help) {
        if help == Help::Came {
            self.misses.store(0, Ordering::Relaxed);
            return;
        }
        let misses = self.misses.load(Ordering::Relaxed).saturating_add(1);
        self.misses.store(misses, Ordering::Relaxed);
        // Back off only after two misses: the first request may only have woken the helpers.
        if misses.is_multiple_of(2) {
            self.alone.store(1_u32.checked_shl(misses / 2).unwrap_or(MAX_ALONE).min(MAX_ALONE), Ordering::Relaxed);
        }
    }
}

impl RecordPool {
    /// Starts the threads.
    ///
    /// # Errors
    /// If the system cannot start a thread.
    pub fn start(records: &Records) -> io::Result<Self> {
        let (jobs, queue) = bounded(MAX_JOBS);
        let cpus = std::thread::available_parallelism().map_or(1, NonZero::get);
        let threads = records.threads.unwrap_or_else(|| (cpus - 1).min(Records::MOST_THREADS));
        if threads == 0 {
            log::warn!("no thread helps with large messages: each loop seals their records itself");
        }
        for number in 0..threads {
            let queue = queue.clone();
            std::thread::Builder::new().name(format!("records-{number}")).spawn(move || work(&queue))?;
        }
        let min_message = if threads == 0 { usize::MAX } else { records.min_message };
        Ok(Self { jobs, threads, min_message, backoff: Arc::default() })
    }
}

impl RecordPool {
    /// Whether to ask for help with a message of `len` bytes.
    pub(crate) fn wants(&self, len: usize) -> bool {
        len >= self.min_message && self.backoff.should_try()
    }
}

fn work(queue: &Receiver<Arc<Job>>) {
    let mut last = Instant::now();
    loop {
        let job = match queue.try_recv() {
            Ok(job) => job,
            Err(TryRecvError::Empty) if last.elapsed() < POLL_TIME => {
                // Other threads go first on this CPU.
                std::thread::yield_now();
                continue;
            }
            Err(_) => match queue.recv() {
                Ok(job) => job,
                Err(_) => return,
            },
        };
        // The job's owner notices records that are left undone.
        if catch_unwind(AssertUnwindSafe(|| job.join())).is_err() {
            log::error!("sealing a record panicked");
        }
        last = Instant::now();
    }
}

impl std::fmt::Debug for RecordPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { threads, min_message, .. } = self;
        f.debug_struct("RecordPool").field("threads", threads).field("min_message", min_message).finish()
    }
}

/// Seals a shard's records: with the threads of `pool`, if it has one.
pub(crate) struct Seals<'a> {
    pub(crate) pool: Option<&'a RecordPool>,
    pub(crate) counters: &'a LiveCounters,
}

impl Seals<'_> {
    /// Seals `plain` into `out`, with helpers if there is a pool.
    ///
    /// Records that are sent through `direct` are removed from `out`.
    #[inline]
    pub(crate) fn seal<'d>(
        self,
        session: &mut dyn Session,
        plain: &[&[u8]],
        out: &mut Buf,
        direct: impl FnOnce() -> Option<Direct<'d>>,
    ) -> Result<(), Error> {
        let Some(pool) = self.pool else { return session.seal(plain, out) };
        // Bytes that are already in `out` must leave first.
        let ordered = if out.is_empty() { direct().map(OrderedSend::new) } else { None };
        let parallel = ParallelSeal { pool, ordered, help: OnceLock::new() };
        session.seal_with(plain, out, &parallel)?;
        let ParallelSeal { ordered, help, .. } = parallel;
        let help = match ordered {
            None => help.into_inner(),
            Some(ordered) => {
                let sent = ordered.sent.into_inner();
                out.take(sent);
                self.counters.bytes_out.add(sent as u64);
                if ordered.late.into_inner() { Some(Help::Late) } else { help.into_inner() }
            }
        };
        let help = help.unwrap_or(Help::None);
        self.counters.seals_offloaded.add(1);
        self.counters.seals_helped.add(u64::from(help != Help::None));
        self.counters.seals_late.add(u64::from(help == Help::Late));
        pool.backoff.learn(help);
        Ok(())
    }
}

/// The helpers of one call of [`Seals::seal`].
struct ParallelSeal<'a> {
    pool: &'a RecordPool,
    ordered: Option<OrderedSend<'a>>,
    /// Set when the helpers are done.
    help: OnceLock<Help>,
}

/// Sends runs of records in order, each from the thread that sealed it.
///
/// The loop does not send them itself: fetching them from another CPU's cache would cost as much as sealing them.
struct OrderedSend<'a> {
    direct: Direct<'a>,
    /// The number of the run that is sent next.
    next: AtomicUsize,
    /// Whether the kernel took all earlier runs as a whole.
    open: AtomicBool,
    /// Bytes that the kernel took.
    sent: AtomicUsize,
    /// Whether a thread waited for its turn for too long.
    late: AtomicBool,
}

impl<'a> OrderedSend<'a> {
    const fn new(direct: Direct<'a>) -> Self {
        let (next, open) = (AtomicUsize::new(0), AtomicBool::new(true));
        Self { direct, next, open, sent: AtomicUsize::new(0), late: AtomicBool::new(false) }
    }

    /// Waits for the turn of `run`, and sends its records unless an earlier run was not sent as a whole.
    fn send(&self, run: usize, records: Option<&[u8]>) {
        self.wait_turn(run);
        // `wait_turn` acquired the writes of earlier runs, and no other thread writes before `next` is stored.
        if self.open.load(Ordering::Relaxed) {
            let (len, sent) = records.map_or((usize::MAX, 0), |records| (records.len(), self.direct.send(records)));
            self.sent.fetch_add(sent, Ordering::Relaxed);
            self.open.store(sent == len, Ordering::Relaxed);
        }
        self.next.store(run + 1, Ordering::Release);
    }

    fn wait_turn(&self, run: usize) {
        let mut wait = Wait::default();
        while self.next.load(Ordering::Acquire) != run {
            wait.turn();
        }
        if wait.is_long() {
            self.late.store(true, Ordering::Relaxed);
        }
    }
}

impl Helpers for ParallelSeal<'_> {
    fn share(&self, others: usize, work: &(dyn Fn() + Sync)) {
        let others = others.min(self.pool.threads);
        if others == 0 {
            return work();
        }
        let help = Job::offer(work, |job| {
            for _ in 0..others {
                // A full queue: the helpers are busy with other messages.
                if self.pool.jobs.try_send(job.clone()).is_err() {
                    break;
                }
            }
        });
        // `share` is called once per message.
        let _ = self.help.set(help);
    }

    fn sealed(&self, run: usize, records: Option<&[u8]>) {
        if let Some(ordered) = &self.ordered {
            ordered.send(run, records);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_work_is_done_with_any_number_of_helpers() {
        for threads in [0, 1, 3] {
            let pool = RecordPool::start(&Records { threads: Some(threads), ..Records::default() }).unwrap();
            for round in 0..200 {
                let parallel = ParallelSeal { pool: &pool, ordered: None, help: OnceLock::new() };
                let (next, done, calls) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
                parallel.share(round % 5, &|| {
                    calls.fetch_add(1, Ordering::Relaxed);
                    while next.fetch_add(1, Ordering::Relaxed) < 64 {
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                });
                assert_eq!(done.into_inner(), 64);
                let calls = calls.into_inner();
                assert!((1..=1 + threads.min(round % 5)).contains(&calls), "{calls} calls by {threads} threads");
            }
        }
    }

    #[test]
    fn requests_for_help_back_off_while_none_comes() {
        let backoff = Backoff::default();
        let tries = |messages: usize| {
            let tried = (0..messages).filter(|_| backoff.should_try().then(|| backoff.learn(Help::Late)).is_some());
            tried.count()
        };
        // Two requests, two messages alone, two requests, four messages alone, and so on.
        assert_eq!((tries(4), tries(6), tries(10)), (2, 2, 2));
        tries(10_000);
        assert_eq!(tries(66 * 10), 20);
        backoff.learn(Help::Came);
        while !backoff.should_try() {}
        backoff.learn(Help::Came);
        assert!((0..100).all(|_| backoff.should_try()), "once help comes, every message asks for it");
    }
}
