use super::waiting::{NotNow, Waiting};
use crate::config::Offload;
use std::io;
use std::num::NonZero;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::time::{Duration, Instant};
use tautline_io::machine::run_when_idle;
use tautline_io::{Token, Waker};
use tautline_tls::{Error, Handshake, Session};
use tautline_window::Buf;

/// Sessions that are kept to hold places; more than a loop has away at a time in ordinary days are not worth it.
const SPARE: usize = 16;

/// How much nicer than loops threads are that do not run only while nobody else does (sched(7)): by a thirtieth of the weight,
/// which is enough to go on with beside loops that never sleep.
const NICE: i32 = 15;

/// While more of a shard's handshakes wait, those that are done go back together, this far apart: a loop on the same processor
/// interrupts us each time that it is woken. It saves a handshake in a storm 5 to 10 % of the server's CPU time.
const BATCH: Duration = Duration::from_millis(1);

/// What a peer is told whose handshake made us panic: internal_error (RFC 8446, section 6.2). Nothing is encrypted before
/// the server's answer.
const INTERNAL_ERROR: [u8; 7] = [21, 3, 3, 0, 2, 2, 80];

/// Threads that shake hands for the shards of one server; clones are the same threads, which end with the last of them.
///
/// They run only while their processors have nothing else to do, so that a loop that wakes up never waits for the end of a
/// signature. Beside loops that never sleep that would be hardly ever, so each thread has a watcher, of a low priority but not
/// the lowest, that takes over while none of them is let run (see [`Offload::max_stall`]).
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

/// Ends the threads.
struct Owners<S> {
    waiting: Arc<Waiting<Box<Job<S>>>>,
    threads: usize,
}

impl<S> Drop for Owners<S> {
    fn drop(&mut self) {
        self.waiting.close();
    }
}

/// A handshake on its way to the pool.
struct Job<S> {
    token: Token,
    session: S,
    wire: Buf,
    out: Buf,
    back: Arc<Back<S>>,
}

/// A shard, for those who bring its handshakes back.
struct Back<S> {
    done: Mutex<Vec<Done<S>>>,
    waker: Waker,
}

/// A handshake on its way back.
#[derive(Debug)]
pub(crate) struct Done<S> {
    pub(crate) token: Token,
    /// Nothing where it panicked.
    pub(crate) session: Option<S>,
    /// What the session was given, and how much of it is used, unless it waited for too long.
    pub(crate) wire: Buf,
    pub(crate) result: Option<Result<(usize, Handshake), Error>>,
    /// What it has to say to the peer.
    pub(crate) out: Buf,
    /// A watcher did it.
    pub(crate) stalled: bool,
}

impl<S: Session> HandshakePool<S> {
    /// Starts the threads.
    ///
    /// # Errors
    /// The system has no threads left.
    pub fn start(offload: &Offload) -> io::Result<Self> {
        let cpus = std::thread::available_parallelism().map_or(1, NonZero::get);
        let threads = offload.threads.unwrap_or_else(|| cpus.div_ceil(2)).max(1);
        let waiting = Arc::new(Waiting::new(offload));
        let pool = Self(Arc::new(Owners { waiting: waiting.clone(), threads }));
        let is_watched = offload.max_stall.is_some();
        for number in 0..threads {
            let jobs = waiting.clone();
            spawn(format!("handshake-{number}"), move || {
                let runs_last = is_watched && step_back(run_when_idle);
                work(&jobs, if runs_last { Class::Last } else { Class::Nice });
            })?;
            if is_watched {
                let jobs = waiting.clone();
                spawn(format!("watcher-{number}"), move || {
                    run_nicely();
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

/// How a thread runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Class {
    /// Only while nobody else does.
    Last,
    /// A little beside those who never sleep.
    Nice,
    /// Likewise, in the place of one that should have run.
    Watcher,
}

/// Lets the calling thread run only while nobody else does; where that is forbidden, a little beside them. Says which.
fn step_back(run_when_idle: impl FnOnce() -> io::Result<()>) -> bool {
    let Err(error) = run_when_idle() else { return true };
    log::debug!("handshakes do not make way for loops at once: {error}");
    run_nicely();
    false
}

fn run_nicely() {
    if let Err(error) = rustix::process::setpriority_process(Some(rustix::thread::gettid()), NICE) {
        log::debug!("handshakes run at the priority of loops: {error}");
    }
}

/// Does what there is to do until nobody will come any more.
fn work<S: Session>(waiting: &Waiting<Box<Job<S>>>, class: Class) {
    // A shard that was not told yet, and since when.
    let mut untold: Option<(Arc<Back<S>>, Instant)> = None;
    loop {
        let next = if class == Class::Watcher { None } else { waiting.take_now() };
        let may_wait = |back: &Arc<Back<S>>| next.as_ref().is_some_and(|(_, job)| Arc::ptr_eq(&job.back, back));
        if let Some((back, _)) = untold.take_if(|(back, since)| !may_wait(back) || since.elapsed() >= BATCH) {
            back.waker.wake();
        }
        let wait = || if class == Class::Watcher { waiting.take_stalled() } else { waiting.take() };
        let Some((since, job)) = next.or_else(wait) else { return };
        let Job { token, session, mut wire, mut out, back } = *job;
        let mut session = Some(session);
        let result = (since.elapsed() <= waiting.max_wait).then(|| shake(&mut session, &mut wire, &mut out));
        let done = Done { token, session, wire, result, out, stalled: class == Class::Watcher };
        // Nobody looks where the shard has ended.
        back.done.lock().unwrap_or_else(PoisonError::into_inner).push(done);
        untold.get_or_insert_with(|| (back, Instant::now()));
        if class != Class::Last {
            // A loop that wakes up on this processor need not interrupt us at once: without this, the messages of a storm's
            // victims waited for slices of 3 ms; now they wait for the end of a handshake.
            std::thread::yield_now();
        }
    }
}

/// Takes one step. A panic is the end of this handshake, and of no other.
fn shake<S: Session>(session: &mut Option<S>, wire: &mut Buf, out: &mut Buf) -> Result<(usize, Handshake), Error> {
    let step = || session.as_mut().map(|session| session.handshake(wire.filled_mut(), out));
    if let Ok(Some(result)) = catch_unwind(AssertUnwindSafe(step)) {
        return result;
    }
    log::error!("a handshake panicked, and its connection ends; the thread goes on");
    // Nobody knows what state it is in.
    let _ = catch_unwind(AssertUnwindSafe(|| *session = None));
    out.clear();
    out.put(&INTERNAL_ERROR);
    Err(Error::Library("the handshake panicked".to_owned()))
}

/// One shard's way to the pool and back.
pub(crate) struct Handshakes<S> {
    pool: HandshakePool<S>,
    back: Arc<Back<S>>,
    /// Fresh ones that hold the places of those that are away. They never serve: a reload may have outdated them.
    spare: Vec<S>,
}

impl<S: Session> Handshakes<S> {
    pub(crate) fn new(pool: HandshakePool<S>, waker: Waker) -> Self {
        Self { pool, back: Arc::new(Back { done: Mutex::new(Vec::new()), waker }), spare: Vec::new() }
    }

    /// Hands a session over, to go on with `wire`, under the number that it gives; gives all of it back where that is no good.
    pub(crate) fn begin(&self, token: Token, session: S, wire: Buf, out: Buf) -> Result<u64, (S, Buf, Buf, NotNow)> {
        let job = Box::new(Job { token, session, wire, out, back: self.back.clone() });
        self.pool.0.waiting.put(job).map_err(|(job, why)| (job.session, job.wire, job.out, why))
    }

    /// Takes a handshake back that nobody has begun with; gives its memory back.
    pub(crate) fn forget(&self, number: u64) -> Option<(Buf, Buf)> {
        let job = self.pool.0.waiting.forget(number)?;
        Some((job.wire, job.out))
    }

    /// Those that are back.
    pub(crate) fn done(&self) -> Vec<Done<S>> {
        match self.back.done.try_lock() {
            Ok(mut done) => std::mem::take(&mut *done),
            Err(TryLockError::Poisoned(poisoned)) => std::mem::take(&mut *poisoned.into_inner()),
            // Whoever holds it wakes us again afterwards, and may not be let run before we sleep.
            Err(TryLockError::WouldBlock) => Vec::new(),
        }
    }

    /// What holds a place, where one was kept.
    pub(crate) fn place(&mut self) -> Option<S> {
        self.spare.pop()
    }

    /// Keeps what held a place, for the next that needs one.
    pub(crate) fn keep(&mut self, place: S) {
        if self.spare.len() < SPARE {
            self.spare.push(place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{NICE, step_back};
    use rustix::process::getpriority_process;
    use rustix::thread::gettid;
    use std::io;

    #[test]
    fn where_stepping_back_is_forbidden_threads_are_nice() {
        let forbidden = || Err(io::ErrorKind::PermissionDenied.into());
        let after = |step: fn() -> io::Result<()>| {
            let run = move || (step_back(step), getpriority_process(Some(gettid())).unwrap());
            std::thread::spawn(run).join().unwrap()
        };
        assert_eq!(after(forbidden), (false, NICE));
        let (runs_last, nice) = after(|| Ok(()));
        assert!(runs_last && nice < NICE);
    }
}
