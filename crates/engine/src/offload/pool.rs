use crate::config::Offload;
use std::collections::BTreeMap;
use std::io;
use std::num::NonZero;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tautline_io::{Token, Waker};
use tautline_tls::{Error, Handshake, Session};
use tautline_window::Buf;

/// Sessions that are kept to hold places; more than a loop has away at a time in ordinary days are not worth it.
const SPARE: usize = 16;

/// How much nicer than loops the threads are (sched(7)): by a thirtieth of the weight, which is enough to go on with beside
/// loops that never sleep. With a tenth (10) a loop that woke up was made to wait for the end of a handshake three times
/// as often, which one in a hundred messages felt.
const NICE: i32 = 15;

/// What a peer is told whose handshake made us panic: internal_error (RFC 8446, section 6.2). Nothing is encrypted before
/// the server's answer.
const INTERNAL_ERROR: [u8; 7] = [21, 3, 3, 0, 2, 2, 80];

/// Threads that shake hands for the shards of one server; clones are the same threads, which end with the last of them.
pub struct HandshakePool<S>(Arc<Owners<S>>);

impl<S> Clone for HandshakePool<S> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<S> std::fmt::Debug for HandshakePool<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Queue { threads, max_waiting, max_wait, .. } = &*self.0.0;
        let mut pool = f.debug_struct("HandshakePool");
        pool.field("threads", threads).field("max_waiting", max_waiting).field("max_wait", max_wait).finish()
    }
}

/// Ends the threads.
struct Owners<S>(Arc<Queue<S>>);

impl<S> Drop for Owners<S> {
    fn drop(&mut self) {
        self.0.waiting().closed = true;
        self.0.news.notify_all();
    }
}

/// Handshakes that wait for a thread.
///
/// Behind a lock, which is held for as long as it takes to put one in or to take one out: who has hung up must free its place
/// at once, or a flood of such would keep everyone else out, and it has no memory then.
struct Queue<S> {
    waiting: Mutex<Waiting<S>>,
    /// Somebody has come, or nobody will any more.
    news: Condvar,
    threads: usize,
    max_waiting: usize,
    max_wait: Duration,
    /// Nanoseconds that a handshake took lately.
    cost: AtomicU64,
}

struct Waiting<S> {
    /// By the order in which they came.
    jobs: BTreeMap<u64, Box<Job<S>>>,
    next: u64,
    /// Threads without anything to do.
    idle: usize,
    closed: bool,
}

impl<S> Queue<S> {
    fn waiting(&self) -> MutexGuard<'_, Waiting<S>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets a job in, if there is a place for it, and it is expected to be done in time.
    fn put(&self, job: Box<Job<S>>) -> Result<u64, Box<Job<S>>> {
        let mut waiting = self.waiting();
        let ahead = waiting.jobs.len() as u64 * self.cost.load(Ordering::Relaxed) / self.threads as u64;
        let is_full = waiting.jobs.len() >= self.max_waiting.saturating_add(waiting.idle);
        if is_full || Duration::from_nanos(ahead) > self.max_wait {
            return Err(job);
        }
        let number = waiting.next;
        waiting.next += 1;
        waiting.jobs.insert(number, job);
        drop(waiting);
        self.news.notify_one();
        Ok(number)
    }

    /// Waits for the job that has waited longest; `None` where there will be none.
    fn take(&self) -> Option<Box<Job<S>>> {
        let mut waiting = self.waiting();
        loop {
            if let Some((_, job)) = waiting.jobs.pop_first() {
                return Some(job);
            }
            if waiting.closed {
                return None;
            }
            waiting.idle += 1;
            waiting = self.news.wait(waiting).unwrap_or_else(PoisonError::into_inner);
            waiting.idle -= 1;
        }
    }
}

/// A handshake on its way to the pool.
struct Job<S> {
    token: Token,
    session: S,
    wire: Buf,
    out: Buf,
    since: Instant,
    reply: Sender<Done<S>>,
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
}

impl<S: Session> HandshakePool<S> {
    /// Starts the threads, at a lower priority than the caller's: established connections come first where cores are short.
    ///
    /// # Errors
    /// The system has no threads left.
    pub fn start(offload: &Offload) -> io::Result<Self> {
        let cpus = std::thread::available_parallelism().map_or(1, NonZero::get);
        let threads = offload.threads.unwrap_or_else(|| cpus.div_ceil(2)).max(1);
        let queue = Arc::new(Queue {
            waiting: Mutex::new(Waiting { jobs: BTreeMap::new(), next: 0, idle: 0, closed: false }),
            news: Condvar::new(),
            threads,
            max_waiting: offload.max_waiting,
            max_wait: offload.max_wait,
            cost: AtomicU64::new(0),
        });
        let pool = Self(Arc::new(Owners(queue.clone())));
        for number in 0..threads {
            let queue = queue.clone();
            std::thread::Builder::new().name(format!("handshake-{number}")).spawn(move || work::<S>(&queue))?;
        }
        Ok(pool)
    }
}

fn work<S: Session>(queue: &Queue<S>) {
    if let Err(error) = rustix::process::setpriority_process(Some(rustix::thread::gettid()), NICE) {
        log::debug!("handshakes run at the priority of loops: {error}");
    }
    while let Some(job) = queue.take() {
        let Job { token, session, mut wire, mut out, since, reply, waker } = *job;
        let mut session = Some(session);
        let result = (since.elapsed() <= queue.max_wait).then(|| {
            let start = Instant::now();
            let result = shake(&mut session, &mut wire, &mut out);
            let took = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
            let before = queue.cost.load(Ordering::Relaxed);
            queue.cost.store(if before == 0 { took } else { before - before / 8 + took / 8 }, Ordering::Relaxed);
            result
        });
        // A shard that ended wants nothing back.
        if reply.send(Done { token, session, wire, result, out }).is_ok() {
            waker.wake();
        }
        // A loop that wakes up on this processor need not interrupt us at once: without this, the messages of a storm's
        // victims waited for slices of 3 ms; now they wait for the end of a handshake.
        std::thread::yield_now();
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
    reply: Sender<Done<S>>,
    done: Receiver<Done<S>>,
    waker: Waker,
    /// Fresh ones that hold the places of those that are away. They never serve: a reload may have outdated them.
    spare: Vec<S>,
}

impl<S: Session> Handshakes<S> {
    pub(crate) fn new(pool: HandshakePool<S>, waker: Waker) -> Self {
        let (reply, done) = channel();
        Self { pool, reply, done, waker, spare: Vec::new() }
    }

    /// Hands a session over, to go on with `wire`, under the number that it gives; gives all of it back where too many wait.
    pub(crate) fn begin(&self, token: Token, session: S, wire: Buf, out: Buf) -> Result<u64, (S, Buf, Buf)> {
        let (reply, waker) = (self.reply.clone(), self.waker.clone());
        let job = Box::new(Job { token, session, wire, out, since: Instant::now(), reply, waker });
        self.pool.0.0.put(job).map_err(|job| (job.session, job.wire, job.out))
    }

    /// Takes a handshake back that nobody has begun with; gives its memory back.
    pub(crate) fn forget(&self, number: u64) -> Option<(Buf, Buf)> {
        let job = self.pool.0.0.waiting().jobs.remove(&number)?;
        Some((job.wire, job.out))
    }

    pub(crate) fn next(&self) -> Option<Done<S>> {
        self.done.try_recv().ok()
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
