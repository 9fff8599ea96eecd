use super::job_queue::{JobQueue, Rejected};
use crate::config::Offload;
use std::io;
use std::num::{NonZero, NonZeroU64};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::time::{Duration, Instant};
use tautline_buf::{Buf, Pool};
use tautline_io::machine::run_when_idle;
use tautline_io::{Token, Waker};
use tautline_tls::{Error, Handshake, Session};

/// Placeholder sessions that a shard keeps; usually no more of its handshakes are offloaded at a time.
const SPARE: usize = 16;

/// Nice value of watchers, and of other threads that cannot get idle priority (sched(7)). It gives them a thirtieth of a loop's
/// weight, which is enough to make progress beside loops that never sleep.
const NICE: i32 = 15;

/// Least time between two wake-ups of a shard while more of its handshakes wait.
///
/// A loop on the same CPU interrupts the pool's thread each time it is woken. In a storm this batching saves 5 to 10 % of the
/// server's CPU time.
const BATCH: Duration = Duration::from_millis(1);

/// The alert to a peer whose handshake panicked: internal_error (RFC 8446, section 6.2). Nothing is encrypted before the
/// server's answer.
const INTERNAL_ERROR: [u8; 7] = [21, 3, 3, 0, 2, 2, 80];

/// Threads that do handshakes for the shards of one server. Clones share the threads, which end with the last clone.
///
/// The threads run only while their CPUs are otherwise idle, so a loop that wakes up never waits for the end of a signature.
/// Beside loops that never sleep they would hardly run. So each thread has a watcher, of a low but not the lowest priority. It
/// takes over while the scheduler runs none of the threads (see [`Offload::max_stall`]).
pub struct HandshakePool<S>(Arc<Owners<S>>);

impl<S> Clone for HandshakePool<S> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<S> std::fmt::Debug for HandshakePool<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HandshakePool").field("threads", &self.0.threads).finish_non_exhaustive()
    }
}

/// The clones of one pool. Dropping the last one ends the threads.
struct Owners<S> {
    queue: Arc<JobQueue<Box<Job<S>>>>,
    threads: usize,
}

impl<S> Drop for Owners<S> {
    fn drop(&mut self) {
        self.queue.close();
    }
}

/// A handshake on its way to the pool.
struct Job<S> {
    token: Token,
    session: S,
    wire: Buf,
    out: Buf,
    completions: Arc<Completions<S>>,
}

/// The finished handshakes of one shard, and the means to wake it.
struct Completions<S> {
    done: Mutex<Vec<Done<S>>>,
    waker: Waker,
}

/// A handshake on its way back.
#[derive(Debug)]
pub(crate) struct Done<S> {
    pub(crate) token: Token,
    /// `None` if the handshake panicked.
    pub(crate) session: Option<S>,
    /// The session's input.
    pub(crate) wire: Buf,
    /// The bytes of `wire` that are used, and whether the handshake is complete; `None` if the job waited too long.
    pub(crate) result: Option<Result<(usize, Handshake), Error>>,
    /// The session's output for the peer.
    pub(crate) out: Buf,
    /// Whether a watcher did the step.
    pub(crate) stalled: bool,
    /// The time since the job was queued.
    pub(crate) took: Duration,
}

impl<S: Session> HandshakePool<S> {
    /// Starts the threads.
    ///
    /// # Errors
    /// If the system cannot start a thread.
    pub fn start(offload: &Offload) -> io::Result<Self> {
        let cpus = std::thread::available_parallelism().map_or(1, NonZero::get);
        let threads = offload.threads.unwrap_or_else(|| cpus.div_ceil(2)).max(1);
        let queue = Arc::new(JobQueue::new(offload));
        let pool = Self(Arc::new(Owners { queue: queue.clone(), threads }));
        let is_watched = offload.max_stall.is_some();
        for number in 0..threads {
            let jobs = queue.clone();
            spawn(format!("handshake-{number}"), move || {
                let class = if is_watched { lower_priority(run_when_idle) } else { set_nice() };
                work(&jobs, class);
            })?;
            if is_watched {
                let jobs = queue.clone();
                spawn(format!("watcher-{number}"), move || {
                    let _ = set_nice();
                    work(&jobs, Class::Watcher);
                })?;
            }
        }
        Ok(pool)
    }
}

fn spawn(name: String, run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    std::thread::Builder::new().name(name).spawn(run).map(drop)
}

/// The scheduling class of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    /// Runs only while its CPU is otherwise idle.
    Idle,
    /// Competes with loops for its CPU.
    Nice,
    /// Has the nice value [`NICE`], and takes jobs only after a stall.
    Watcher,
}

/// Gives the calling thread idle priority, or the nice value [`NICE`] if that is forbidden. Returns its class.
fn lower_priority(run_when_idle: impl FnOnce() -> io::Result<()>) -> Class {
    let Err(error) = run_when_idle() else { return Class::Idle };
    log::debug!("a handshake thread cannot have idle priority and delays loops a little: {error}");
    set_nice()
}

/// Gives the calling thread the nice value [`NICE`]. Returns its class.
fn set_nice() -> Class {
    if let Err(error) = rustix::process::setpriority_process(Some(rustix::thread::gettid()), NICE) {
        log::debug!("a handshake thread runs at the priority of loops: {error}");
    }
    Class::Nice
}

/// Does jobs until the queue is closed.
fn work<S: Session>(queue: &JobQueue<Box<Job<S>>>, class: Class) {
    // A shard with finished handshakes that was not woken yet, and since when.
    let mut unwoken: Option<(Arc<Completions<S>>, Instant)> = None;
    loop {
        let next = if class == Class::Watcher { None } else { queue.try_take() };
        let gets_more =
            |shard: &Arc<Completions<S>>| next.as_ref().is_some_and(|(_, job)| Arc::ptr_eq(&job.completions, shard));
        if let Some((shard, _)) = unwoken.take_if(|(shard, since)| !gets_more(shard) || since.elapsed() >= BATCH) {
            shard.waker.wake();
        }
        let wait = || if class == Class::Watcher { queue.take_stalled() } else { queue.take() };
        let Some((since, job)) = next.or_else(wait) else { return };
        let Job { token, session, mut wire, mut out, completions } = *job;
        let mut session = Some(session);
        let result = (since.elapsed() <= queue.max_wait).then(|| handshake_step(&mut session, &mut wire, &mut out));
        let done = Done { token, session, wire, result, out, stalled: class == Class::Watcher, took: since.elapsed() };
        // If the shard has ended, nothing reads this.
        completions.done.lock().unwrap_or_else(PoisonError::into_inner).push(done);
        unwoken.get_or_insert_with(|| (completions, Instant::now()));
        if class != Class::Idle {
            // The scheduler need not preempt this thread at once for a loop that wakes up on this CPU. Without the yield,
            // messages waited for time slices of 3 ms in a storm; now they wait for the end of a handshake.
            std::thread::yield_now();
        }
    }
}

/// Does one step of a handshake. A panic ends this handshake only.
fn handshake_step<S: Session>(
    session: &mut Option<S>,
    wire: &mut Buf,
    out: &mut Buf,
) -> Result<(usize, Handshake), Error> {
    let step = || session.as_mut().map(|session| session.handshake(wire.filled_mut(), out));
    if let Ok(Some(result)) = catch_unwind(AssertUnwindSafe(step)) {
        return result;
    }
    log::error!("a handshake panicked, and its connection ends; the thread goes on");
    // The session's state is unknown, and dropping it may panic too.
    let _ = catch_unwind(AssertUnwindSafe(|| *session = None));
    out.clear();
    out.put(&INTERNAL_ERROR);
    Err(Error::Library("the handshake panicked".to_owned()))
}

/// A shard's end of the pool.
pub(crate) struct Handshakes<S> {
    pool: HandshakePool<S>,
    completions: Arc<Completions<S>>,
    /// Unused sessions that take the place of offloaded ones. They never serve a connection: a reload may have outdated them.
    spare: Vec<S>,
}

impl<S: Session> Handshakes<S> {
    pub(crate) fn new(pool: HandshakePool<S>, waker: Waker) -> Self {
        Self { pool, completions: Arc::new(Completions { done: Mutex::new(Vec::new()), waker }), spare: Vec::new() }
    }

    /// Queues a step of `session` with the input `wire`, and returns its number. Returns everything if that is rejected.
    pub(crate) fn begin(
        &self,
        token: Token,
        session: S,
        wire: Buf,
        out: Buf,
    ) -> Result<NonZeroU64, (S, Buf, Buf, Rejected)> {
        let job = Box::new(Job { token, session, wire, out, completions: self.completions.clone() });
        self.pool.0.queue.put(job).map_err(|(job, why)| (job.session, job.wire, job.out, why))
    }

    /// Withdraws a handshake whose connection has ended, unless a thread has begun it.
    pub(crate) fn withdraw(&self, number: NonZeroU64, pool: &mut Pool) {
        if let Some(job) = self.pool.0.queue.withdraw(number) {
            pool.give(job.wire);
            pool.give(job.out);
        }
    }

    /// Takes the finished handshakes.
    pub(crate) fn done(&self) -> Vec<Done<S>> {
        match self.completions.done.try_lock() {
            Ok(mut done) => std::mem::take(&mut *done),
            Err(TryLockError::Poisoned(poisoned)) => std::mem::take(&mut *poisoned.into_inner()),
            // The holder wakes this loop afterwards. It may be descheduled, so the loop does not wait for it.
            Err(TryLockError::WouldBlock) => Vec::new(),
        }
    }

    /// Takes a kept placeholder, if there is one.
    pub(crate) fn placeholder(&mut self) -> Option<S> {
        self.spare.pop()
    }

    /// Keeps a placeholder for the next offloaded session.
    pub(crate) fn keep(&mut self, placeholder: S) {
        if self.spare.len() < SPARE {
            self.spare.push(placeholder);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Class, NICE, lower_priority};
    use rustix::process::getpriority_process;
    use rustix::thread::gettid;
    use std::io;

    #[test]
    fn without_idle_priority_threads_get_a_nice_value() {
        let forbidden = || Err(io::ErrorKind::PermissionDenied.into());
        let after = |step: fn() -> io::Result<()>| {
            let run = move || (lower_priority(step), getpriority_process(Some(gettid())).unwrap());
            std::thread::spawn(run).join().unwrap()
        };
        assert_eq!(after(forbidden), (Class::Nice, NICE));
        let (class, nice) = after(|| Ok(()));
        assert!(class == Class::Idle && nice < NICE);
    }
}
