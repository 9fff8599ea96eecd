//! Handshakes that wait for a thread.

use crate::config::Offload;
use std::collections::BTreeMap;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

/// How often a loop looks whether the lock is free before it sleeps.
const SPINS: usize = 64;

/// How often it sleeps, for the shortest time there is (some 50 us), before it does without the lock.
const NAPS: usize = 4;

/// A thread that was not let run asks whether it is now by sleeping for so long: had it a handshake in hand, that would be
/// stuck with it. Waking up may take as long again.
const TRIAL: Duration = Duration::from_millis(1);

/// Handshakes that wait for a thread.
///
/// Behind a lock, which is held for as long as it takes to put one in or to take one out: who has hung up must free its place
/// at once, or a flood of such would keep everyone else out, and it has no memory then. Threads that run only while nobody else
/// does may hold it for as long as they are not let run, so no loop waits for it beyond [`NAPS`].
pub(super) struct Waiting<J> {
    jobs: Mutex<Jobs<J>>,
    /// Somebody has come, or nobody will any more.
    news: Condvar,
    /// The same for those who watch over the others.
    watch: Condvar,
    max_waiting: usize,
    pub(super) max_wait: Duration,
    max_stall: Duration,
}

struct Jobs<J> {
    /// By the order in which they came.
    waiting: BTreeMap<u64, (Instant, J)>,
    next: u64,
    /// Threads without anything to do.
    idle: usize,
    /// Since when one waits for a thread that is not a watcher: since one of these last began, or since it came.
    owed: Instant,
    /// Watchers took over, and none of these was let run in time since.
    stalled: bool,
    /// When anyone did, if others waited behind it.
    busy: Option<Instant>,
    /// Time from one beginning to the next lately, while some waited.
    interval: Duration,
    /// A watcher looks at the clock, or was called to.
    watched: bool,
    closed: bool,
}

/// Why a job was not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotNow {
    /// Too many wait, or for too long.
    Full,
    /// The lock is held by somebody who is not let run.
    Stalled,
}

impl<J> Waiting<J> {
    pub(super) fn new(offload: &Offload) -> Self {
        let jobs = Jobs {
            waiting: BTreeMap::new(),
            next: 0,
            idle: 0,
            owed: Instant::now(),
            stalled: false,
            busy: None,
            interval: Duration::ZERO,
            watched: false,
            closed: false,
        };
        Self {
            jobs: Mutex::new(jobs),
            news: Condvar::new(),
            watch: Condvar::new(),
            max_waiting: offload.max_waiting,
            max_wait: offload.max_wait,
            max_stall: offload.max_stall.unwrap_or(Duration::MAX),
        }
    }

    /// Lets a job in, if there is a place for it, and its turn is expected to come in time.
    pub(super) fn put(&self, job: J) -> Result<u64, (J, NotNow)> {
        let Some(mut jobs) = self.lock_soon() else { return Err((job, NotNow::Stalled)) };
        let ahead = u32::try_from(jobs.waiting.len()).unwrap_or(u32::MAX);
        let is_full = jobs.waiting.len() >= self.max_waiting.saturating_add(jobs.idle);
        if is_full || jobs.interval.saturating_mul(ahead) > self.max_wait {
            return Err((job, NotNow::Full));
        }
        if jobs.waiting.is_empty() {
            // Those who waited may have hung up long ago.
            (jobs.busy, jobs.owed) = (None, Instant::now());
        }
        let number = jobs.next;
        jobs.next += 1;
        jobs.waiting.insert(number, (Instant::now(), job));
        let unwatched = !std::mem::replace(&mut jobs.watched, true);
        // Whoever is busy looks by itself; telling nobody costs a system call too.
        let has_idle = jobs.idle > 0;
        drop(jobs);
        if has_idle {
            self.news.notify_one();
        }
        if unwatched {
            self.watch.notify_one();
        }
        Ok(number)
    }

    /// Takes a job back that nobody has begun with.
    pub(super) fn forget(&self, number: u64) -> Option<J> {
        self.lock_soon()?.waiting.remove(&number).map(|(_, job)| job)
    }

    /// The job that has waited longest, if any waits, and since when.
    pub(super) fn take_now(&self) -> Option<(Instant, J)> {
        self.lock().begin_in_time()
    }

    /// Waits for the job that has waited longest, and says since when it has; `None` where there will be none.
    pub(super) fn take(&self) -> Option<(Instant, J)> {
        let mut jobs = self.lock();
        loop {
            if let Some(job) = jobs.begin_in_time() {
                return Some(job);
            }
            if jobs.stalled && !jobs.waiting.is_empty() {
                drop(jobs);
                let asked = Instant::now();
                std::thread::sleep(TRIAL);
                let is_let_run = asked.elapsed() < 2 * TRIAL;
                jobs = self.lock();
                jobs.stalled = !is_let_run;
                continue;
            }
            if jobs.closed {
                return None;
            }
            jobs.idle += 1;
            jobs = self.news.wait(jobs).unwrap_or_else(PoisonError::into_inner);
            jobs.idle -= 1;
        }
    }

    /// Waits until [`take`](Self::take) has not been let run for too long while jobs wait, and gives the one that has waited
    /// longest; from then on at once, until that runs again. `None` where nobody will come any more.
    pub(super) fn take_stalled(&self) -> Option<(Instant, J)> {
        let mut jobs = self.lock();
        while !jobs.closed {
            if jobs.waiting.is_empty() {
                jobs.watched = false;
                jobs = self.watch.wait(jobs).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let left = self.max_stall.saturating_sub(jobs.owed.elapsed());
            if jobs.stalled || left.is_zero() {
                jobs.stalled = true;
                let job = jobs.begin();
                // Somebody else looks meanwhile: where there are several processors, they help each other.
                jobs.watched = !jobs.waiting.is_empty();
                if jobs.watched {
                    self.watch.notify_one();
                }
                return job;
            }
            jobs = self.watch.wait_timeout(jobs, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        None
    }

    /// Nobody will come any more: what waits is done, and then the threads end.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.news.notify_all();
        self.watch.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Jobs<J>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// For loops. Whoever sleeps lets the holder run, unless others keep the processors busy.
    fn lock_soon(&self) -> Option<MutexGuard<'_, Jobs<J>>> {
        for turn in 0..SPINS + NAPS {
            match self.jobs.try_lock() {
                Ok(jobs) => return Some(jobs),
                Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
                Err(TryLockError::WouldBlock) if turn < SPINS => std::hint::spin_loop(),
                Err(TryLockError::WouldBlock) => std::thread::sleep(Duration::from_nanos(1)),
            }
        }
        None
    }
}

impl<J> Jobs<J> {
    /// [Begins](Self::begin), by a thread that is not a watcher; not while these are in charge.
    fn begin_in_time(&mut self) -> Option<(Instant, J)> {
        if self.stalled {
            return None;
        }
        let job = self.begin()?;
        self.owed = Instant::now();
        Some(job)
    }

    /// Takes the oldest job, and notes how fast that goes.
    fn begin(&mut self) -> Option<(Instant, J)> {
        let (_, job) = self.waiting.pop_first()?;
        let now = Instant::now();
        if let Some(before) = self.busy {
            let took = now - before;
            self.interval = if self.interval.is_zero() { took } else { self.interval * 7 / 8 + took / 8 };
        }
        self.busy = (!self.waiting.is_empty()).then_some(now);
        Some(job)
    }
}

#[cfg(test)]
mod tests {
    use super::{NotNow, Waiting};
    use crate::config::Offload;
    use std::time::Duration;

    fn waiting(max_stall: Duration) -> Waiting<u8> {
        Waiting::new(&Offload { max_stall: Some(max_stall), max_waiting: 3, ..Offload::default() })
    }

    #[test]
    fn a_lock_that_is_not_given_up_keeps_no_loop() {
        let waiting = waiting(Duration::ZERO);
        let number = waiting.put(1).unwrap();
        let held = waiting.lock();
        assert_eq!(waiting.put(2), Err((2, NotNow::Stalled)));
        assert_eq!(waiting.forget(number), None);
        drop(held);
        assert_eq!(waiting.forget(number), Some(1));
    }

    #[test]
    fn watchers_take_only_what_is_left_to_lie() {
        let stall = Duration::from_millis(30);
        let waiting = waiting(stall);
        for job in 1..=3 {
            waiting.put(job).unwrap();
        }
        assert_eq!(waiting.put(4), Err((4, NotNow::Full)));
        let job = |taken: Option<(std::time::Instant, u8)>| taken.map(|(since, job)| (since.elapsed(), job));
        assert_eq!(job(waiting.take()).map(|(_, job)| job), Some(1));
        // Not before nobody has begun for so long, but then one after the other.
        let (waited, second) = job(waiting.take_stalled()).unwrap();
        assert!(waited >= stall && second == 2, "{waited:?} {second}");
        assert_eq!(job(waiting.take_stalled()).map(|(_, job)| job), Some(3));
        waiting.put(5).unwrap();
        assert_eq!(job(waiting.take_now()), None, "watchers are in charge");
        // They would take it at once. Who sleeps no longer than it wanted to takes over again.
        assert_eq!(job(waiting.take()).map(|(_, job)| job), Some(5));
        assert!(!waiting.lock().stalled);
        waiting.put(6).unwrap();
        let (waited, sixth) = job(waiting.take_stalled()).unwrap();
        assert!(waited >= stall && sixth == 6, "who was let run gets the time again");
        waiting.close();
        assert_eq!((waiting.take(), waiting.take_stalled()), (None, None));
    }

    #[test]
    fn who_waits_behind_slow_ones_for_too_long_is_not_let_in() {
        let waiting = waiting(Duration::ZERO);
        for job in 0..3 {
            waiting.put(job).unwrap();
        }
        waiting.take().unwrap();
        std::thread::sleep(Duration::from_millis(20));
        waiting.take().unwrap();
        let interval = waiting.lock().interval;
        assert!(interval >= Duration::from_millis(20), "{interval:?}");
        // When nobody waits, time does not count.
        waiting.forget(2).unwrap();
        std::thread::sleep(Duration::from_millis(20));
        waiting.put(2).unwrap();
        waiting.take().unwrap();
        assert_eq!(waiting.lock().interval, interval);
        waiting.put(2).unwrap();
        // However long the machine took for it.
        waiting.lock().interval = Duration::from_secs(2);
        waiting.put(3).unwrap();
        assert_eq!(waiting.put(4), Err((4, NotNow::Full)), "it would wait for 4 s");
    }
}
