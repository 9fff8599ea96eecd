//! Records of large messages, sealed by several threads at once.
//!
//! One message of a megabyte is 64 records, and each of them can be sealed without the others. A shard that has such a
//! message reserves their places in the wire buffer and seals half of them, and a thread beside it the other half. Each
//! sends what it has sealed, the second after the first, and the shard goes on once both have, as if it had been alone: order
//! holds, nothing is copied or handed over, and whoever comes too late to help finds nothing to do. Smaller messages are not
//! asked about.

use super::sys::{Help, Job, Wait};
use crate::config::Records;
use crate::shared::Counters;
use crossbeam_channel::{Receiver, Sender, TryRecvError, bounded};
use std::io;
use std::num::NonZero;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use tautline_io::Direct;
use tautline_tls::{Error, Session, Team};
use tautline_window::Buf;

/// How long a thread that has nothing to do looks for the next message before it sleeps. To be woken takes longer than to
/// seal a few hundred kilobytes, and where one large message was, the next is seldom far.
const LOOKOUT: Duration = Duration::from_micros(200);

/// Jobs that may wait; who finds the queue full goes on alone.
const WAITING: usize = 64;

/// Most messages that are sealed alone after help did not come.
const MOST_ALONE: u32 = 64;

/// Threads that help the shards of one server to seal large messages; clones are the same threads, which end with the last
/// of them.
#[derive(Clone)]
pub struct RecordPool {
    jobs: Sender<Arc<Job>>,
    threads: usize,
    min_message: usize,
    luck: Arc<Luck>,
}

/// Whether help comes: where the processors turn out to be busy, it is asked for less and less often, because to be kept
/// waiting by a thread that is not let run costs more than it ever saves.
#[derive(Default)]
struct Luck {
    misses: AtomicU32,
    /// Messages that are sealed alone before the next try.
    alone: AtomicU32,
}

impl Luck {
    fn tries(&self) -> bool {
        let alone = self.alone.load(Ordering::Relaxed);
        if alone > 0 {
            // Shards that count at the same time lose a turn, no more.
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
        // Two tries each time: the first may find them asleep, and wake them for the second.
        if misses.is_multiple_of(2) {
            self.alone.store(1_u32.checked_shl(misses / 2).unwrap_or(MOST_ALONE).min(MOST_ALONE), Ordering::Relaxed);
        }
    }
}

impl RecordPool {
    /// Starts the threads.
    ///
    /// # Errors
    /// The system has no threads left.
    pub fn start(records: &Records) -> io::Result<Self> {
        let (jobs, queue) = bounded(WAITING);
        let cpus = std::thread::available_parallelism().map_or(1, NonZero::get);
        let threads = records.threads.unwrap_or_else(|| (cpus - 1).min(Records::MOST_THREADS));
        if threads == 0 {
            log::warn!("there is no processor to spare for large messages: their records stay in the loop");
        }
        for number in 0..threads {
            let queue = queue.clone();
            std::thread::Builder::new().name(format!("records-{number}")).spawn(move || work(&queue))?;
        }
        let min_message = if threads == 0 { usize::MAX } else { records.min_message };
        Ok(Self { jobs, threads, min_message, luck: Arc::default() })
    }
}

impl RecordPool {
    /// Whether a message of so many bytes is shared.
    pub(crate) fn wants(&self, len: usize) -> bool {
        len >= self.min_message && self.luck.tries()
    }
}

fn work(queue: &Receiver<Arc<Job>>) {
    let mut last = Instant::now();
    loop {
        let job = match queue.try_recv() {
            Ok(job) => job,
            Err(TryRecvError::Empty) if last.elapsed() < LOOKOUT => {
                // Whoever wants this processor gets it.
                std::thread::yield_now();
                continue;
            }
            Err(_) => match queue.recv() {
                Ok(job) => job,
                Err(_) => return,
            },
        };
        // What it leaves undone, its owner notices.
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

/// What a shard seals with.
pub(crate) struct Seals<'a> {
    pub(crate) pool: Option<&'a RecordPool>,
    pub(crate) counters: &'a mut Counters,
}

impl Seals<'_> {
    /// Seals `plain`, with others where there is a pool; then what could leave by `direct` has left `out`.
    #[inline]
    pub(crate) fn seal<'d, S: Session>(
        self,
        session: &mut S,
        plain: &[&[u8]],
        out: &mut Buf,
        direct: impl FnOnce() -> Option<Direct<'d>>,
    ) -> Result<(), Error> {
        let Some(pool) = self.pool else { return session.seal(plain, out) };
        // What lies there already is to leave before.
        let line = if out.is_empty() { direct().map(Line::new) } else { None };
        let crew = Crew { pool, line, help: OnceLock::new() };
        session.seal_with(plain, out, &crew)?;
        let Crew { line, help, .. } = crew;
        let help = match line {
            None => help.into_inner(),
            Some(line) => {
                let sent = line.sent.into_inner();
                out.take(sent);
                self.counters.bytes_out += sent as u64;
                if line.late.into_inner() { Some(Help::Late) } else { help.into_inner() }
            }
        };
        let help = help.unwrap_or(Help::None);
        self.counters.seals_offloaded += 1;
        self.counters.seals_helped += u64::from(help != Help::None);
        self.counters.seals_late += u64::from(help == Help::Late);
        pool.luck.learn(help);
        Ok(())
    }
}

/// The pool, for one call.
struct Crew<'a> {
    pool: &'a RecordPool,
    line: Option<Line<'a>>,
    /// Set once those who helped have left.
    help: OnceLock<Help>,
}

/// Where runs of records leave in their order, each by whoever has sealed it: in another processor's cache it would cost the
/// loop as much to fetch it as to seal it.
struct Line<'a> {
    direct: Direct<'a>,
    /// The run that is next.
    next: AtomicUsize,
    /// Whether all that was sealed before has left.
    open: AtomicBool,
    sent: AtomicUsize,
    late: AtomicBool,
}

impl<'a> Line<'a> {
    const fn new(direct: Direct<'a>) -> Self {
        let (next, open) = (AtomicUsize::new(0), AtomicBool::new(true));
        Self { direct, next, open, sent: AtomicUsize::new(0), late: AtomicBool::new(false) }
    }

    fn send(&self, run: usize, records: Option<&[u8]>) {
        self.wait_for(run);
        // Whose turn it is has seen what those before did, and is alone.
        if self.open.load(Ordering::Relaxed) {
            let (len, sent) = records.map_or((usize::MAX, 0), |records| (records.len(), self.direct.send(records)));
            self.sent.fetch_add(sent, Ordering::Relaxed);
            self.open.store(sent == len, Ordering::Relaxed);
        }
        self.next.store(run + 1, Ordering::Release);
    }

    fn wait_for(&self, run: usize) {
        let mut wait = Wait::default();
        while self.next.load(Ordering::Acquire) != run {
            wait.turn();
        }
        if wait.is_long() {
            self.late.store(true, Ordering::Relaxed);
        }
    }
}

impl Team for Crew<'_> {
    fn share(&self, others: usize, work: &(dyn Fn() + Sync)) {
        let others = others.min(self.pool.threads);
        if others == 0 {
            return work();
        }
        let help = Job::offer(work, |job| {
            for _ in 0..others {
                // A full queue: they have enough to do without us.
                if self.pool.jobs.try_send(job.clone()).is_err() {
                    break;
                }
            }
        });
        // Asked once for a call.
        let _ = self.help.set(help);
    }

    fn sealed(&self, run: usize, records: Option<&[u8]>) {
        if let Some(line) = &self.line {
            line.send(run, records);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_of_the_work_is_done_however_many_help() {
        for threads in [0, 1, 3] {
            let pool = RecordPool::start(&Records { threads: Some(threads), ..Records::default() }).unwrap();
            for round in 0..200 {
                let crew = Crew { pool: &pool, line: None, help: OnceLock::new() };
                let (next, done, calls) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
                crew.share(round % 5, &|| {
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
    fn help_that_does_not_come_is_asked_for_less_often() {
        let luck = Luck::default();
        let tries = |messages: usize| {
            let tried = (0..messages).filter(|_| luck.tries().then(|| luck.learn(Help::Late)).is_some());
            tried.count()
        };
        // Two tries, two messages alone, two tries, four alone, and so on.
        assert_eq!((tries(4), tries(6), tries(10)), (2, 2, 2));
        tries(10_000);
        assert_eq!(tries(66 * 10), 20);
        luck.learn(Help::Came);
        while !luck.tries() {}
        luck.learn(Help::Came);
        assert!((0..100).all(|_| luck.tries()), "once it comes, it is asked for each time");
    }
}
