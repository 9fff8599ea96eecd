//! Work of one thread that others join while it lasts: the borrow that threads cannot be given otherwise.
#![expect(unsafe_code, reason = "threads that outlive a borrow use it while it lasts")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Turns that a processor spins for those who have not left, before it lets others run: some ten microseconds, in which a
/// record is sealed several times over.
const SPINS: usize = 256;

/// Who is waited for longer is not let run: half a megabyte is sealed and sent in a third of it.
const PATIENCE: Duration = Duration::from_micros(300);

/// Set in a job's state once nobody may join any more.
const CLOSED: usize = 1 << (usize::BITS - 1);

/// Set in a job's state once somebody has.
const JOINED: usize = CLOSED >> 1;

/// What came of an offer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Help {
    /// Nobody came.
    None,
    /// Others did a share.
    Came,
    /// Others took a share and kept everyone waiting with it: they were not let run.
    Late,
}

/// Work that is offered to others.
pub(super) struct Job {
    /// INVARIANT: called only by who has joined, and whoever offers it returns only when nobody can join and all have left.
    work: *const (dyn Fn() + Sync),
    /// [`CLOSED`], [`JOINED`], and how many have joined and not left.
    state: AtomicUsize,
}

// SAFETY: `work` points to a `dyn Fn + Sync`, which any thread may call through a shared reference; `state` says until when.
unsafe impl Send for Job {}
// SAFETY: as above; all that a shared job does is behind `state`.
unsafe impl Sync for Job {}

impl Job {
    /// Calls `work` here, and lets those join whom `publish` gives the job to. Nobody calls it any more when this returns.
    pub(super) fn offer(work: &(dyn Fn() + Sync), publish: impl FnOnce(&Arc<Self>)) -> Help {
        // SAFETY: only the lifetime changes. `Offer` keeps this function, and with it the borrow, until nobody uses it,
        // however it ends.
        let work = unsafe { core::mem::transmute::<&(dyn Fn() + Sync), &'static (dyn Fn() + Sync)>(work) };
        let offer = Offer(Arc::new(Self { work, state: AtomicUsize::new(0) }));
        publish(&offer.0);
        work();
        offer.close()
    }

    /// Calls the work too, unless it is over.
    pub(super) fn join(&self) {
        let open = |state: usize| (state & CLOSED == 0).then_some((state + 1) | JOINED);
        if self.state.try_update(Ordering::AcqRel, Ordering::Relaxed, open).is_err() {
            return;
        }
        let _joined = Joined(self);
        // SAFETY: joined before it was closed and not left, so whoever offers it waits, and the borrow stands.
        let work = unsafe { &*self.work };
        work();
    }
}

/// The offerer's end. Closes the job and waits for those who have joined, also where the work panics.
struct Offer(Arc<Job>);

impl Offer {
    fn close(&self) -> Help {
        let state = &self.0.state;
        state.fetch_or(CLOSED, Ordering::AcqRel);
        let mut wait = Wait::default();
        loop {
            // Acquire: what those who leave have written is seen.
            match state.load(Ordering::Acquire) {
                CLOSED => return Help::None,
                state if state == CLOSED | JOINED => return if wait.is_long() { Help::Late } else { Help::Came },
                _ => wait.turn(),
            }
        }
    }
}

/// Waiting for a thread that is to be done soon.
#[derive(Default)]
pub(super) struct Wait {
    turns: usize,
    /// When it began to let others run.
    since: Option<Instant>,
}

impl Wait {
    pub(super) fn turn(&mut self) {
        self.turns += 1;
        if self.turns < SPINS {
            core::hint::spin_loop();
        } else {
            self.since.get_or_insert_with(Instant::now);
            std::thread::yield_now();
        }
    }

    /// Whether it took longer than that thread needs.
    pub(super) fn is_long(&self) -> bool {
        self.since.is_some_and(|since| since.elapsed() > PATIENCE)
    }
}

impl Drop for Offer {
    fn drop(&mut self) {
        self.close();
    }
}

/// Someone who joined. Leaves, also where the work panics.
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
    fn others_join_while_it_lasts_and_never_later() {
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
    fn a_panic_ends_the_offer_too() {
        let (jobs, offered) = channel::<std::sync::Arc<Job>>();
        let work = || panic!("no");
        let result = catch_unwind(AssertUnwindSafe(|| Job::offer(&work, |job| jobs.send(job.clone()).unwrap())));
        assert!(result.is_err());
        // The work is gone: joining must not call it.
        offered.recv().unwrap().join();
    }

    #[test]
    fn a_panic_of_another_is_not_waited_for() {
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
