//! Expensive handshakes, on threads beside the loops.
//!
//! A signature with an RSA key takes longer than a hundred messages, and a loop that makes them one after the other keeps
//! everyone else waiting. A shard hands such a session, with the ClientHello that it got, to a [`HandshakePool`] and goes
//! on; the session comes back with the server's flight. The queue between them is bounded in length and in time: who would
//! wait too long is refused at once, while there is still time to try another server.

mod hello;
mod records;
mod sys;

pub use records::RecordPool;
pub(crate) use records::Seals;

use crate::closed::Cause;
use crate::config::Offload;
use crate::handler::Handler;
use crate::link::{Hello, Link, Phase, Stop};
use crate::probe::Probe;
use crate::shard::Core;
use crate::timer::Tick;
use crossbeam_channel::{Receiver, Sender, TrySendError, bounded, unbounded};
use hello::is_whole;
use std::io;
use std::num::NonZero;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tautline_io::{Driver, Token, Waker};
use tautline_tls::record::{Front, front};
use tautline_tls::{Answer, Engine, Error, Handshake, Session, Signing};
use tautline_window::Buf;

/// What begins a record of handshake messages that are not encrypted (RFC 8446, section 5.1).
const PLAIN_HANDSHAKE: u8 = 22;

/// Sessions that are kept to hold places; more than a loop has away at a time in ordinary days are not worth it.
const SPARE: usize = 16;

/// Threads that shake hands for the shards of one server; clones are the same threads, which end with the last of them.
#[derive(Debug)]
pub struct HandshakePool<S> {
    jobs: Sender<Job<S>>,
    load: Arc<Load>,
}

impl<S> Clone for HandshakePool<S> {
    fn clone(&self) -> Self {
        Self { jobs: self.jobs.clone(), load: self.load.clone() }
    }
}

/// What admission goes by.
#[derive(Debug)]
struct Load {
    threads: u64,
    max_wait: Duration,
    /// Nanoseconds that a handshake took lately.
    cost: AtomicU64,
}

/// A handshake on its way to the pool.
#[derive(Debug)]
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
    pub(crate) session: S,
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
        let (jobs, queue) = bounded(offload.max_waiting);
        let cpus = std::thread::available_parallelism().map_or(1, NonZero::get);
        let threads = offload.threads.unwrap_or_else(|| cpus.div_ceil(2)).max(1);
        let load = Arc::new(Load { threads: threads as u64, max_wait: offload.max_wait, cost: AtomicU64::new(0) });
        for number in 0..threads {
            let (queue, load) = (queue.clone(), load.clone());
            std::thread::Builder::new().name(format!("handshake-{number}")).spawn(move || work::<S>(&queue, &load))?;
        }
        Ok(Self { jobs, load })
    }

    /// Whether a job that comes now is expected to be done in time.
    fn admits(&self) -> bool {
        let ahead = self.jobs.len() as u64 * self.load.cost.load(Ordering::Relaxed) / self.load.threads;
        Duration::from_nanos(ahead) <= self.load.max_wait
    }
}

fn work<S: Session>(queue: &Receiver<Job<S>>, load: &Load) {
    // Ten steps down are a tenth of the weight: enough to go on with, too little to be felt (sched(7)).
    if let Err(error) = rustix::process::setpriority_process(Some(rustix::thread::gettid()), 10) {
        log::debug!("handshakes run at the priority of loops: {error}");
    }
    while let Ok(Job { token, mut session, mut wire, mut out, since, reply, waker }) = queue.recv() {
        let result = (since.elapsed() <= load.max_wait).then(|| {
            let start = Instant::now();
            let result = session.handshake(wire.filled_mut(), &mut out);
            let took = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
            let before = load.cost.load(Ordering::Relaxed);
            load.cost.store(if before == 0 { took } else { before - before / 8 + took / 8 }, Ordering::Relaxed);
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
        let (reply, done) = unbounded();
        Self { pool, reply, done, waker, spare: Vec::new() }
    }

    /// Hands a session over, to go on with `wire`; gives all of it back where too many wait.
    pub(crate) fn begin(&self, token: Token, session: S, wire: Buf, out: Buf) -> Result<(), (S, Buf, Buf)> {
        if !self.pool.admits() {
            return Err((session, wire, out));
        }
        let (reply, waker) = (self.reply.clone(), self.waker.clone());
        let job = Job { token, session, wire, out, since: Instant::now(), reply, waker };
        self.pool.jobs.try_send(job).map_err(|error| match error {
            TrySendError::Full(job) | TrySendError::Disconnected(job) => (job.session, job.wire, job.out),
        })
    }

    pub(crate) fn next(&self) -> Option<Done<S>> {
        self.done.try_recv().ok()
    }

    /// Keeps what held a place, for the next that needs one.
    fn keep(&mut self, place: S) {
        if self.spare.len() < SPARE {
            self.spare.push(place);
        }
    }
}

/// For so long after a ticket was no good, tickets do not keep a handshake in the loop: anyone can make one up.
const DISTRUST: Tick = 1_000;

/// Where a step of a handshake is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// In the loop, with so many bytes: it is cheap, or nothing can be done yet.
    Here(usize),
    /// In the pool.
    Away,
    /// Nowhere, until more has arrived.
    Waits,
}

impl Step {
    /// Expensive, with the message that `wire` begins with: whoever sends it in pieces costs one visit to the pool.
    fn away(wire: &[u8]) -> Self {
        if is_whole(wire) { Self::Away } else { Self::Waits }
    }
}

impl<S, T> Link<S, T> {
    /// Takes note of what was answered to the client, if anything.
    fn note(&mut self, answer: Option<Answer>) {
        match answer {
            Some(Answer::Full | Answer::Resumed) => self.hello = Hello::Answered,
            // The second ClientHello is judged anew.
            Some(Answer::Retry) => self.hello = Hello::Plain,
            None => {}
        }
    }
}

impl<E: Engine, H: Handler, P: Probe> Core<E, H, P> {
    /// Where the next step of this handshake is done.
    pub(crate) fn next_step(&self, link: &mut Link<E::Session, H::State>, wire: &[u8]) -> Step {
        if self.handshakes.is_none() || link.info.dial.is_some() || link.hello == Hello::Answered {
            return Step::Here(wire.len());
        }
        // One record and no more: the next may be the one that makes the server sign.
        let here = Step::Here(if let Front::Whole(len) = front(wire) { len } else { wire.len() });
        if let Hello::Heavy(offered) = link.hello {
            // Alerts and the like; all that is encrypted comes after the answer.
            let is_hello = wire.first() == Some(&PLAIN_HANDSHAKE);
            return if is_hello && wire.len() > offered as usize { Step::away(wire) } else { here };
        }
        let Some(Signing { time, may_resume }) = self.engine.signing(wire) else { return here };
        if time < self.shared.config.offload.min_signature {
            return here;
        }
        if may_resume && self.shared.now >= self.distrust_end {
            link.hello = Hello::Resumes;
            return here;
        }
        link.hello = Hello::Heavy(0);
        Step::away(wire)
    }

    /// Does the next step in the loop.
    pub(crate) fn shake(
        &mut self,
        link: &mut Link<E::Session, H::State>,
        wire: &mut [u8],
    ) -> Result<(usize, Handshake), Stop> {
        let out = link.out.wire(&mut self.shared.pool);
        let start = out.len();
        let result = link.session.handshake(wire, out);
        if self.handshakes.is_some() && link.info.dial.is_none() && link.hello != Hello::Answered {
            let answer = Answer::read(&out.filled()[start..]);
            // Whoever made a ticket up need not go on, so this is the time to notice: it costs one signature, not one for
            // each of those who come together.
            if link.hello == Hello::Resumes && (answer == Some(Answer::Full) || result.is_err()) {
                self.distrust_end = self.shared.now + DISTRUST;
            }
            link.note(answer);
        }
        Ok(result?)
    }

    /// Sends a session away, with the bytes that it goes on with.
    pub(crate) fn hand_over(&mut self, link: &mut Link<E::Session, H::State>, wire: &[u8]) -> Result<(), Stop> {
        let Some(handshakes) = &mut self.handshakes else { return Ok(()) };
        let place = handshakes.spare.pop().map_or_else(|| self.engine.accept(), Ok)?;
        let pool = &mut self.shared.pool;
        let (mut bytes, out) = (pool.take(), pool.take());
        bytes.put(wire);
        link.phase = Phase::Away;
        let session = std::mem::replace(&mut link.session, place);
        if let Err((session, bytes, out)) = handshakes.begin(link.token, session, bytes, out) {
            handshakes.keep(std::mem::replace(&mut link.session, session));
            pool.give(bytes);
            pool.give(out);
            return Err(self.overloaded());
        }
        self.shared.counters.handshakes_offloaded += 1;
        Ok(())
    }

    /// Takes a session back, and goes on where it stands now.
    pub(crate) fn come_back<D: Driver>(&mut self, driver: &mut D, done: Done<E::Session>) {
        let Done { token, session, mut wire, result, out } = done;
        let Some(mut link) = self.take(token) else {
            self.shared.pool.give(wire);
            self.shared.pool.give(out);
            return;
        };
        let place = std::mem::replace(&mut link.session, session);
        if let Some(handshakes) = &mut self.handshakes {
            handshakes.keep(place);
        }
        if result.is_some() {
            link.phase = Phase::Tls;
        }
        link.out.wire(&mut self.shared.pool).put(out.filled());
        link.note(Answer::read(out.filled()));
        let went_on = match result {
            None => Err(self.overloaded()),
            Some(Err(error)) => Err(error.into()),
            Some(Ok((used, step))) => {
                wire.take(used);
                if let Hello::Heavy(offered) = &mut link.hello {
                    *offered = u32::try_from(wire.len()).unwrap_or(u32::MAX);
                }
                if !wire.is_empty() {
                    wire.put(link.carry.filled());
                    std::mem::swap(&mut wire, &mut link.carry);
                    link.held = true;
                }
                if step == Handshake::Complete { self.secured(&mut link) } else { Ok(()) }
            }
        };
        self.shared.pool.give(wire);
        self.shared.pool.give(out);
        if let Err(stop) = went_on {
            self.stop(&mut link, stop);
        }
        self.settle(driver, link);
    }

    fn overloaded(&mut self) -> Stop {
        self.shared.counters.handshakes_refused += 1;
        Stop::Failed(Cause::Overloaded)
    }
}
