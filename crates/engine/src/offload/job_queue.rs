//! The queue between the loops and the threads of the handshake pool.

use crate::config::Offload;
use crate::threads::sync::{Condvar, Mutex, MutexGuard, PoisonError, TryLockError, sleep};
use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::time::{Duration, Instant};

/// How often a loop tries the lock before it sleeps.
const SPINS: usize = 64;

/// How often a loop sleeps for the shortest possible time (about 50 us) before it does without the lock.
const NAPS: usize = 4;

/// How long a stalled thread sleeps to find out whether the scheduler runs it again. It holds no job meanwhile, since that job
/// would be stuck with it. If the thread wakes up within twice this time, it takes jobs again.
const TRIAL: Duration = Duration::from_millis(1);

/// Jobs that wait for a thread.
///
/// A lock guards them, held only to insert or remove a job. A job whose client hangs up must be removed at once: otherwise a
/// flood of such clients would fill the queue.
///
/// A pool thread of idle priority can be descheduled while it holds the lock. A loop therefore waits only briefly
/// ([`NAPS`]), and then does without it.
pub(super) struct JobQueue<J> {
    jobs: Mutex<Jobs<J>>,
    /// Notified when a job arrives and when the queue closes.
    available: Condvar,
    /// Notified when jobs need a watcher and when the queue closes.
    watch: Condvar,
    max_waiting: usize,
    pub(super) max_wait: Duration,
    max_stall: Duration,
}

struct Jobs<J> {
    /// By number, in order of arrival, with the time of arrival.
    waiting: BTreeMap<NonZeroU64, (Instant, J)>,
    next: NonZeroU64,
    /// Threads that wait for a job.
    idle: usize,
    /// When a thread other than a watcher last began a job, or when the first job arrived at an empty queue if that is later.
    unserved_since: Instant,
    /// Watchers have taken over, and no other thread has shown since that the scheduler runs it.
    stalled: bool,
    /// When the last job was begun, if other jobs waited then.
    last_begin: Option<Instant>,
    /// Recent mean time between two beginnings while jobs waited.
    interval: Duration,
    /// A watcher waits for the stall to become too long, or was notified to do so.
    watched: bool,
    closed: bool,
}

/// The reason why a job was rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rejected {
    /// Too many jobs wait, or the wait would be too long.
    Full,
    /// A thread that the scheduler does not run holds the lock.
    Stalled,
}

impl<J> JobQueue<J> {
    pub(super) fn new(offload: &Offload) -> Self {
        let jobs = Jobs {
            waiting: BTreeMap::new(),
            next: NonZeroU64::MIN,
            idle: 0,
            unserved_since: Instant::now(),
            stalled: false,
            last_begin: None,
            interval: Duration::ZERO,
            watched: false,
            closed: false,
        };
        Self {
            jobs: Mutex::new(jobs),
            available: Condvar::new(),
            watch: Condvar::new(),
            max_waiting: offload.max_waiting,
            max_wait: offload.max_wait,
            max_stall: offload.max_stall.unwrap_or(Duration::MAX),
        }
    }

    /// Queues a job, unless the queue is full or the job would wait too long. Returns the job's number.
    pub(super) fn put(&self, job: J) -> Result<NonZeroU64, (J, Rejected)> {
        let Some(mut jobs) = self.lock_briefly() else { return Err((job, Rejected::Stalled)) };
        let ahead = u32::try_from(jobs.waiting.len()).unwrap_or(u32::MAX);
        let is_full = jobs.waiting.len() >= self.max_waiting.saturating_add(jobs.idle);
        if is_full || jobs.interval.saturating_mul(ahead) > self.max_wait {
            return Err((job, Rejected::Full));
        }
        if jobs.waiting.is_empty() {
            // Times of jobs that were withdrawn long ago do not count.
            (jobs.last_begin, jobs.unserved_since) = (None, Instant::now());
        }
        let number = jobs.next;
        jobs.next = number.saturating_add(1);
        jobs.waiting.insert(number, (Instant::now(), job));
        let unwatched = !std::mem::replace(&mut jobs.watched, true);
        // A busy thread looks for its next job by itself. A notification costs a system call even if no thread waits.
        let has_idle = jobs.idle > 0;
        drop(jobs);
        if has_idle {
            self.available.notify_one();
        }
        if unwatched {
            self.watch.notify_one();
        }
        Ok(number)
    }

    /// Removes a job that no thread has begun.
    pub(super) fn withdraw(&self, number: NonZeroU64) -> Option<J> {
        self.lock_briefly()?.waiting.remove(&number).map(|(_, job)| job)
    }

    /// Takes the oldest job and its time of arrival, if a job waits and watchers have not taken over.
    pub(super) fn try_take(&self) -> Option<(Instant, J)> {
        self.lock().begin_unless_stalled()
    }

    /// Waits for a job, and takes the oldest one and its time of arrival; `None` once the queue is closed and empty.
    pub(super) fn take(&self) -> Option<(Instant, J)> {
        let mut jobs = self.lock();
        loop {
            if let Some(job) = jobs.begin_unless_stalled() {
                return Some(job);
            }
            if jobs.stalled && !jobs.waiting.is_empty() {
                drop(jobs);
                let slept_at = Instant::now();
                sleep(TRIAL);
                let runs_again = slept_at.elapsed() < 2 * TRIAL;
                jobs = self.lock();
                jobs.stalled = !runs_again;
                continue;
            }
            if jobs.closed {
                return None;
            }
            jobs.idle += 1;
            jobs = self.available.wait(jobs).unwrap_or_else(PoisonError::into_inner);
            jobs.idle -= 1;
        }
    }

    /// Takes the oldest job for a watcher, once no other thread has begun one for `max_stall` while jobs wait.
    ///
    /// Further jobs are then taken at once, until a thread in [`take`](Self::take) runs again. `None` once the queue is closed.
    pub(super) fn take_stalled(&self) -> Option<(Instant, J)> {
        let mut jobs = self.lock();
        while !jobs.closed {
            if jobs.waiting.is_empty() {
                jobs.watched = false;
                jobs = self.watch.wait(jobs).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let left = self.max_stall.saturating_sub(jobs.unserved_since.elapsed());
            if jobs.stalled || left.is_zero() {
                jobs.stalled = true;
                let job = jobs.begin();
                // Another watcher takes the next job meanwhile, on another CPU if there is one.
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

    /// Closes the queue: the remaining jobs are done, and then the threads end.
    pub(super) fn close(&self) {
        self.lock().closed = true;
        self.available.notify_all();
        self.watch.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Jobs<J>> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the lock for a loop, or gives up after [`SPINS`] and [`NAPS`]. A nap lets the holder run, if a CPU is free.
    fn lock_briefly(&self) -> Option<MutexGuard<'_, Jobs<J>>> {
        for turn in 0..SPINS + NAPS {
            match self.jobs.try_lock() {
                Ok(jobs) => return Some(jobs),
                Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
                Err(TryLockError::WouldBlock) if turn < SPINS => std::hint::spin_loop(),
                Err(TryLockError::WouldBlock) => sleep(Duration::from_nanos(1)),
            }
        }
        None
    }
}

impl<J> Jobs<J> {
    /// [Begins](Self::begin) a job for a thread that is not a watcher, unless watchers have taken over.
    fn begin_unless_stalled(&mut self) -> Option<(Instant, J)> {
        if self.stalled {
            return None;
        }
        let job = self.begin()?;
        self.unserved_since = Instant::now();
        Some(job)
    }

    /// Takes the oldest job, and updates the interval between beginnings.
    fn begin(&mut self) -> Option<(Instant, J)> {
        let (_, job) = self.waiting.pop_first()?;
        let now = Instant::now();
        if let Some(before) = self.last_begin {
            let took = now - before;
            self.interval = if self.interval.is_zero() { took } else { self.interval * 7 / 8 + took / 8 };
        }
        self.last_begin = (!self.waiting.is_empty()).then_some(now);
        Some(job)
    }
}

#[cfg(test)]
mod tests {
    use super::{JobQueue, Rejected};
    use crate::config::Offload;
    use std::time::Duration;

    fn queue(max_stall: Duration) -> JobQueue<u8> {
        JobQueue::new(&Offload { max_stall: Some(max_stall), max_waiting: 3, ..Offload::default() })
    }

    #[test]
    fn a_held_lock_rejects_jobs_instead_of_blocking() {
        let queue = queue(Duration::ZERO);
        let number = queue.put(1).unwrap();
        let held = queue.lock();
        assert_eq!(queue.put(2), Err((2, Rejected::Stalled)));
        assert_eq!(queue.withdraw(number), None);
        drop(held);
        assert_eq!(queue.withdraw(number), Some(1));
    }

    #[test]
    fn watchers_take_jobs_only_after_a_stall() {
        let stall = Duration::from_millis(30);
        let queue = queue(stall);
        for job in 1..=3 {
            queue.put(job).unwrap();
        }
        assert_eq!(queue.put(4), Err((4, Rejected::Full)));
        let job = |taken: Option<(std::time::Instant, u8)>| taken.map(|(since, job)| (since.elapsed(), job));
        assert_eq!(job(queue.take()).map(|(_, job)| job), Some(1));
        // The watcher waits for the whole stall, and then takes one job after the other.
        let (waited, second) = job(queue.take_stalled()).unwrap();
        assert!(waited >= stall && second == 2, "{waited:?} {second}");
        assert_eq!(job(queue.take_stalled()).map(|(_, job)| job), Some(3));
        queue.put(5).unwrap();
        assert_eq!(job(queue.try_take()), None, "watchers have taken over");
        // A watcher would take it at once. A thread whose trial sleep ends in time takes over again.
        assert_eq!(job(queue.take()).map(|(_, job)| job), Some(5));
        assert!(!queue.lock().stalled);
        queue.put(6).unwrap();
        let (waited, sixth) = job(queue.take_stalled()).unwrap();
        assert!(waited >= stall && sixth == 6, "after a recovery the stall counts anew");
        queue.close();
        assert_eq!((queue.take(), queue.take_stalled()), (None, None));
    }

    #[test]
    fn rejects_a_job_that_would_wait_too_long() {
        let queue = queue(Duration::ZERO);
        let numbers = [0, 1, 2].map(|job| queue.put(job).unwrap());
        queue.take().unwrap();
        std::thread::sleep(Duration::from_millis(20));
        queue.take().unwrap();
        let interval = queue.lock().interval;
        assert!(interval >= Duration::from_millis(20), "{interval:?}");
        // Time without waiting jobs does not count.
        queue.withdraw(numbers[2]).unwrap();
        std::thread::sleep(Duration::from_millis(20));
        queue.put(2).unwrap();
        queue.take().unwrap();
        assert_eq!(queue.lock().interval, interval);
        queue.put(2).unwrap();
        // Set, since the machine may have taken any time.
        queue.lock().interval = Duration::from_secs(2);
        queue.put(3).unwrap();
        assert_eq!(queue.put(4), Err((4, Rejected::Full)), "it would wait for 4 s");
    }
}
