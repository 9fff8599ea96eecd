//! Work of one thread that other threads join while it lasts. They share a borrow that safe code cannot give them.
#![expect(unsafe_code, reason = "threads that outlive a borrow use it while it lasts")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Turns that a thread spins for others before it yields its CPU: about 10 us, in which several records are sealed.
const SPINS: usize = 256;

/// Wait after which a thread counts as descheduled. Sealing and sending half a megabyte takes a third of this time.
const PATIENCE: Duration = Duration::from_micros(300);

/// Bit of a job's state: no thread may join any more.
const CLOSED: usize = 1 << (usize::BITS - 1);

/// Bit of a job's state: a thread has joined.
const JOINED: usize = CLOSED >> 1;

/// The result of an offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Help {
    /// No thread joined.
    None,
    /// Other threads joined and did a share.
    Came,
    /// Other threads joined and delayed the rest: the scheduler did not run them.
    Late,
}

/// Work that is offered to other threads.
pub(super) struct Job {
    /// INVARIANT: only threads that have joined call it. [`Job::offer`] returns only when no thread can join and all that
    /// joined have left.
    work: *const (dyn Fn() + Sync),
    /// [`CLOSED`], [`JOINED`], and the number of threads that have joined and not left.
    state: AtomicUsize,
}

// SAFETY: `work` points to a `dyn Fn + Sync`, which any thread may call through a shared reference while the borrow lives.
// `state` keeps the borrow alive for every thread that has joined.
unsafe impl Send for Job {}
// SAFETY: as above; a shared job calls `work` only after it has joined through the atomic `state`.
unsafe impl Sync for Job {}

impl Job {
    /// Calls `work` on this thread, and on threads that `publish` gives the job to. When this returns, no thread calls it.
    pub(super) fn offer(work: &(dyn Fn() + Sync), publish: impl FnOnce(&Arc<Self>)) -> Help {
        // SAFETY: only the lifetime changes. `Offer` keeps this function from returning or unwinding, and so keeps the borrow
        // alive, until no thread uses it.
        let work = unsafe { core::mem::transmute::<&(dyn Fn() + Sync), &'static (dyn Fn() + Sync)>(work) };
        let offer = Offer(Arc::new(Self { work, state: AtomicUsize::new(0) }));
        publish(&offer.0);
        work();
        offer.close()
    }

    /// Calls the work on this thread too, unless the job is closed.
    pub(super) fn join(&self) {
        let open = |state: usize| (state & CLOSED == 0).then_some((state + 1) | JOINED);
        if self.state.try_update(Ordering::AcqRel, Ordering::Relaxed, open).is_err() {
            return;
        }
        let _joined = Joined(self);
        // SAFETY: this thread has joined before the job was closed and has not left, so `offer` waits and the borrow is alive.
        let work = unsafe { &*self.work };
        work();
    }
}

/// The offering thread's end of a job. It closes the job and waits for all threads that joined, also if the work panics.
struct Offer(Arc<Job>);

impl Offer {
    fn close(&self) -> Help {
        let state = &self.0.state;
        state.fetch_or(CLOSED, Ordering::AcqRel);
        let mut wait = Wait::default();
        loop {
            // Acquire, to see the writes of threads that have left.
            match state.load(Ordering::Acquire) {
                CLOSED => return Help::None,
                state if state == CLOSED | JOINED => return if wait.is_long() { Help::Late } else { Help::Came },
                _ => wait.turn(),
            }
        }
    }
}

/// A wait for another thread that should take only microseconds: it spins, and then yields.
#[derive(Default)]
pub(super) struct Wait {
    turns: usize,
    /// When it began to yield.
    since: Option<Instant>,
}

impl Wait {
    /// Waits for a moment.
    pub(super) fn turn(&mut self) {
        self.turns += 1;
        if self.turns < SPINS {
            core::hint::spin_loop();
        } else {
            self.since.get_or_insert_with(Instant::now);
            std::thread::yield_now();
        }
    }

    /// Whether the wait took longer than a running thread needs.
    pub(super) fn is_long(&self) -> bool {
        self.since.is_some_and(|since| since.elapsed() > PATIENCE)
    }
}

impl Drop for Offer {
    fn drop(&mut self) {
        self.close();
    }
}

/// A thread that joined a job. It leaves on drop, also if the work panics.
struct Joined<'a>(&'a Job);

impl Drop for Joined<'_> {
    fn drop(&mut self) {
        self.0.state.fetch_sub(1, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::{Help, Job};
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::channel;

    #[test]
    fn other_threads_join_only_while_the_work_lasts() {
        let (jobs, offered) = channel::<std::sync::Arc<Job>>();
        let helper = std::thread::spawn(move || offered.iter().for_each(|job| job.join()));
        let rounds = if cfg!(miri) { 20 } else { 2_000 };
        for round in 0..rounds {
            // On this thread's stack, and gone after each round.
            let mut cells = [0_usize; 16];
            let rest = Mutex::new(cells.iter_mut());
            let calls = AtomicUsize::new(0);
            let work = || {
                calls.fetch_add(1, Ordering::Relaxed);
                while let Some(cell) = { rest.lock().unwrap().next() } {
                    *cell += round;
                }
            };
            let help = Job::offer(&work, |job| jobs.send(job.clone()).unwrap());
            assert_eq!(calls.load(Ordering::Relaxed), if help == Help::None { 1 } else { 2 });
            assert_eq!(cells, [round; 16]);
        }
        drop(jobs);
        helper.join().unwrap();
    }

    #[test]
    fn a_panic_of_the_owner_closes_the_job() {
        let (jobs, offered) = channel::<std::sync::Arc<Job>>();
        let work = || panic!("no");
        let result = catch_unwind(AssertUnwindSafe(|| Job::offer(&work, |job| jobs.send(job.clone()).unwrap())));
        assert!(result.is_err());
        // The work is dropped, so joining must not call it.
        offered.recv().unwrap().join();
    }

    #[test]
    fn a_helper_that_panics_leaves_the_job() {
        let (jobs, offered) = channel::<std::sync::Arc<Job>>();
        let helper = std::thread::spawn(move || {
            let job = offered.recv().unwrap();
            catch_unwind(AssertUnwindSafe(|| job.join())).is_err()
        });
        let owner = std::thread::current().id();
        let panicked = AtomicUsize::new(0);
        let work = || {
            if std::thread::current().id() == owner {
                while panicked.load(Ordering::Acquire) == 0 {
                    std::thread::yield_now();
                }
            } else {
                panicked.store(1, Ordering::Release);
                panic!("no");
            }
        };
        Job::offer(&work, |job| jobs.send(job.clone()).unwrap());
        assert!(helper.join().unwrap());
    }
}
