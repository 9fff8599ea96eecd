//! One loop for the sockets, and a thread pool for every TLS operation, as in the published report.
//!
//! The loop receives bytes into a ring. A worker reads that ring through TLS and calls back. The loop hands the answer to
//! a worker, which writes through TLS into another ring and calls back. Then the loop sends from that ring.

use super::baseline::Baseline;
use super::end::{Buffers, End, Ended, RECEIVE};
use super::source::{Source, answer};
use rustix::event::epoll::EventFlags;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::OwnedFd;
use std::collections::VecDeque;
use std::io;
use std::net::TcpListener;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tautline::Kind;
use tautline::layers::buf::Buf;
use tautline::layers::tls::{Engine, Session};
use tautline_measure::cpu;
use tautline_measure::poll::{self, Poll};

const LISTENER: usize = usize::MAX;
const CALLBACKS: usize = usize::MAX - 1;
const WAIT: Duration = Duration::from_millis(500);

/// Bytes waiting in a ring from which on its socket is not read.
const RING: usize = 256 << 10;

/// State of a connection that loop and workers share: TLS between two rings.
struct Tls<S> {
    end: Mutex<End<S>>,
    inbound: Mutex<Buf>,
    outbound: Mutex<Buf>,
}

/// One operation for a worker.
struct Job<S> {
    connection: usize,
    tls: Arc<Tls<S>>,
    work: Work,
}

enum Work {
    Read,
    Write(Kind, Vec<u8>),
}

/// A worker's callback: the messages that it read, or `None` if the connection has ended.
struct Done {
    connection: usize,
    messages: Option<Vec<(Kind, Vec<u8>)>>,
}

/// The queue of the pool, and its callbacks to the loop.
struct Pool<S> {
    jobs: Mutex<VecDeque<Job<S>>>,
    waiting: Condvar,
    done: Mutex<Vec<Done>>,
    wake: OwnedFd,
}

/// The loop's state of a connection.
struct Connection<S> {
    socket: OwnedFd,
    tls: Arc<Tls<S>>,
    /// Answers that wait for a worker.
    answers: VecDeque<(Kind, Vec<u8>)>,
    /// Whether a worker has it. Each connection has one operation at a time.
    is_busy: bool,
    /// Whether bytes arrived since a worker last read.
    has_unread: bool,
    interest: EventFlags,
    has_ended: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn serve<E: Engine>(
    listener: TcpListener,
    engine: E,
    baseline: &Baseline,
    source: Option<Source>,
) -> io::Result<()> {
    let pool = Pool {
        jobs: Mutex::new(VecDeque::new()),
        waiting: Condvar::new(),
        done: Mutex::new(Vec::new()),
        wake: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
    };
    std::thread::scope(|scope| {
        for _ in 0..baseline.threads {
            let (pool, source) = (&pool, source.as_ref());
            scope.spawn(move || pool.work(source));
        }
        let _pinned = baseline.cpu(0).map(cpu::Pinned::to);
        Loop { poll: Poll::new()?, listener: listener.into(), engine, pool: &pool, connections: Vec::new() }.run()
    })
}

impl<S: Session> Pool<S> {
    fn submit(&self, job: Job<S>) {
        lock(&self.jobs).push_back(job);
        self.waiting.notify_one();
    }

    fn work(&self, source: Option<&Source>) {
        let (mut buffers, mut wire, mut out) = (Buffers::new(), Buf::new(), Buf::new());
        loop {
            let mut jobs = lock(&self.jobs);
            let job = loop {
                match jobs.pop_front() {
                    Some(job) => break job,
                    None => jobs = self.waiting.wait(jobs).unwrap_or_else(PoisonError::into_inner),
                }
            };
            drop(jobs);
            let messages = job.run(&mut buffers, &mut wire, &mut out, source);
            let mut done = lock(&self.done);
            done.push(Done { connection: job.connection, messages: messages.ok() });
            if done.len() == 1 {
                // Wakes the loop. The counter would overflow only after 2^64 - 2 unread wakes.
                let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
            }
        }
    }
}

impl<S: Session> Job<S> {
    fn run(
        &self,
        buffers: &mut Buffers,
        wire: &mut Buf,
        out: &mut Buf,
        source: Option<&Source>,
    ) -> Result<Vec<(Kind, Vec<u8>)>, Ended> {
        let mut end = lock(&self.tls.end);
        let mut messages = Vec::new();
        let result = match &self.work {
            Work::Read => {
                wire.clear();
                {
                    let inbound = lock(&self.tls.inbound);
                    wire.put(inbound.filled());
                }
                let used = end.read(wire.filled_mut(), buffers, out, |message, _| {
                    let (kind, payload) = answer(&message, source);
                    messages.push((kind, payload.to_vec()));
                    Ok(())
                });
                // Only used bytes leave the ring: the loop may have added more behind them.
                used.map(|used| lock(&self.tls.inbound).take(used))
            }
            Work::Write(kind, payload) => end.write(*kind, payload, buffers, out),
        };
        lock(&self.tls.outbound).put(out.filled());
        out.clear();
        result.map(|()| messages)
    }
}

struct Loop<'a, E: Engine> {
    poll: Poll,
    listener: OwnedFd,
    engine: E,
    pool: &'a Pool<E::Session>,
    connections: Vec<Option<Connection<E::Session>>>,
}

impl<E: Engine> Loop<'_, E> {
    fn run(mut self) -> io::Result<()> {
        self.poll.add(&self.listener, LISTENER, EventFlags::IN)?;
        self.poll.add(&self.pool.wake, CALLBACKS, EventFlags::IN)?;
        let mut buffer = vec![0; RECEIVE];
        loop {
            self.poll.wait(WAIT)?;
            for i in 0..self.poll.events() {
                match self.poll.key(i) {
                    LISTENER => self.accept()?,
                    CALLBACKS => self.call_back(),
                    index => {
                        let Some(Some(connection)) = self.connections.get_mut(index) else { continue };
                        let result = connection.receive(&mut buffer).and_then(|()| connection.send());
                        self.advance(index, result);
                    }
                }
            }
        }
    }

    fn accept(&mut self) -> io::Result<()> {
        while let Some(socket) = poll::accept(&self.listener)? {
            let end = Mutex::new(End::new(self.engine.accept().map_err(io::Error::other)?));
            let tls = Arc::new(Tls { end, inbound: Mutex::default(), outbound: Mutex::default() });
            let index = self.connections.iter().position(Option::is_none).unwrap_or(self.connections.len());
            if index == self.connections.len() {
                self.connections.push(None);
            }
            let (answers, interest) = (VecDeque::new(), EventFlags::IN);
            self.poll.add(&socket, index, interest)?;
            self.connections[index] = Some(Connection {
                socket,
                tls,
                answers,
                is_busy: false,
                has_unread: false,
                interest,
                has_ended: false,
            });
        }
        Ok(())
    }

    /// Takes the results of the workers.
    fn call_back(&mut self) {
        let _ = rustix::io::read(&self.pool.wake, &mut [0; 8]);
        let done = std::mem::take(&mut *lock(&self.pool.done));
        for Done { connection: index, messages } in done {
            let Some(Some(connection)) = self.connections.get_mut(index) else { continue };
            connection.is_busy = false;
            match messages {
                Some(messages) => connection.answers.extend(messages),
                None => connection.has_ended = true,
            }
            let result = connection.send();
            self.advance(index, result);
        }
    }

    /// Hands the next operation of a connection to the pool, and polls for the events that it waits for.
    fn advance(&mut self, index: usize, result: Result<(), Ended>) {
        let Some(Some(connection)) = self.connections.get_mut(index) else { return };
        if result.is_err() || connection.has_ended {
            connection.has_ended = true;
            // Its slot stays taken while a worker has it.
            if !connection.is_busy {
                self.connections[index] = None;
            }
            return;
        }
        let (inbound, outbound) = (lock(&connection.tls.inbound).len(), lock(&connection.tls.outbound).len());
        if !connection.is_busy {
            let answer = connection.answers.pop_front();
            let work = answer.map(|(kind, payload)| Work::Write(kind, payload));
            if let Some(work) = work.or_else(|| std::mem::take(&mut connection.has_unread).then_some(Work::Read)) {
                connection.is_busy = true;
                self.pool.submit(Job { connection: index, tls: connection.tls.clone(), work });
            }
        }
        let mut interest = EventFlags::empty();
        interest.set(EventFlags::IN, inbound < RING);
        interest.set(EventFlags::OUT, outbound > 0);
        if interest != connection.interest {
            connection.interest = interest;
            // Fails only for a closed socket, which the next call reports.
            let _ = self.poll.modify(&connection.socket, index, interest);
        }
    }
}

impl<S: Session> Connection<S> {
    /// Moves bytes from the socket into the ring.
    fn receive(&mut self, buffer: &mut [u8]) -> Result<(), Ended> {
        if !self.interest.contains(EventFlags::IN) {
            return Ok(());
        }
        match poll::receive(&self.socket, buffer) {
            Ok(Some(0)) | Err(_) => return Err(Ended),
            Ok(Some(received)) => {
                lock(&self.tls.inbound).put(&buffer[..received]);
                self.has_unread = true;
            }
            Ok(None) => {}
        }
        Ok(())
    }

    /// Moves bytes from the ring to the socket.
    fn send(&self) -> Result<(), Ended> {
        poll::send_all(&self.socket, &mut lock(&self.tls.outbound)).map_err(|_| Ended)
    }
}
