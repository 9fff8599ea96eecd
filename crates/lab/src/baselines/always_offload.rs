//! One loop for the sockets, and a thread pool for every TLS operation, as in the published report: the loop reads bytes into
//! a ring, a worker reads the ring through TLS and calls back, the loop hands the answer to a worker, which writes through TLS
//! into another ring and calls back, and the loop sends that.

use super::end::{End, Over, Room, answer};
use super::{Baseline, RECEIVE, Source};
use crate::cpu;
use crate::limit::Poll;
use rustix::event::epoll::EventFlags;
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{self, RecvFlags, SendFlags, SocketFlags, sockopt};
use std::collections::VecDeque;
use std::io;
use std::net::TcpListener;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tautline::Kind;
use tautline::layers::tls::{Engine, Session};
use tautline::layers::window::Buf;

const LISTENER: usize = usize::MAX;
const CALLBACKS: usize = usize::MAX - 1;
const WAIT: Duration = Duration::from_millis(500);

/// Bytes that wait in a ring before the socket is not read any more.
const RING: usize = 256 << 10;

/// What loop and workers share of a connection: TLS between two rings.
struct Tls<S> {
    end: Mutex<End<S>>,
    inbound: Mutex<Buf>,
    outbound: Mutex<Buf>,
}

/// One operation, for a worker.
struct Job<S> {
    connection: usize,
    tls: Arc<Tls<S>>,
    work: Work,
}

enum Work {
    Read,
    Write(Kind, Vec<u8>),
}

/// What a worker calls back with: messages that were read; nothing where the connection is over.
struct Done {
    connection: usize,
    messages: Option<Vec<(Kind, Vec<u8>)>>,
}

/// The pool's queue, and the way back.
struct Pool<S> {
    jobs: Mutex<VecDeque<Job<S>>>,
    waiting: Condvar,
    done: Mutex<Vec<Done>>,
    wake: OwnedFd,
}

/// What the loop knows of a connection.
struct Connection<S> {
    socket: OwnedFd,
    tls: Arc<Tls<S>>,
    /// Answers that no worker has yet.
    answers: VecDeque<(Kind, Vec<u8>)>,
    /// A worker has it: operations of one connection come one after the other.
    busy: bool,
    /// Something has come since a worker last read.
    news: bool,
    interest: EventFlags,
    over: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn serve<E: Engine>(
    listener: TcpListener,
    engine: E,
    baseline: &Baseline,
    always: Option<Source>,
) -> io::Result<()> {
    let pool = Pool {
        jobs: Mutex::new(VecDeque::new()),
        waiting: Condvar::new(),
        done: Mutex::new(Vec::new()),
        wake: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
    };
    std::thread::scope(|scope| {
        for _ in 0..baseline.threads {
            let (pool, always) = (&pool, always.as_ref());
            scope.spawn(move || pool.work(always));
        }
        let _pinned = baseline.cpus.first().map(|&cpu| cpu::Pinned::to(cpu));
        Loop { poll: Poll::new()?, listener: listener.into(), engine, pool: &pool, connections: Vec::new() }.run()
    })
}

impl<S: Session> Pool<S> {
    fn submit(&self, job: Job<S>) {
        lock(&self.jobs).push_back(job);
        self.waiting.notify_one();
    }

    fn work(&self, always: Option<&Source>) {
        let (mut room, mut wire, mut out) = (Room::new(), Buf::new(), Buf::new());
        loop {
            let mut jobs = lock(&self.jobs);
            let job = loop {
                match jobs.pop_front() {
                    Some(job) => break job,
                    None => jobs = self.waiting.wait(jobs).unwrap_or_else(PoisonError::into_inner),
                }
            };
            drop(jobs);
            let messages = job.run(&mut room, &mut wire, &mut out, always);
            let mut done = lock(&self.done);
            done.push(Done { connection: job.connection, messages: messages.ok() });
            if done.len() == 1 {
                // Wakes the loop; it cannot fail before 2^64 - 2 wakes that nobody heard.
                let _ = rustix::io::write(&self.wake, &1_u64.to_ne_bytes());
            }
        }
    }
}

impl<S: Session> Job<S> {
    fn run(
        &self,
        room: &mut Room,
        wire: &mut Buf,
        out: &mut Buf,
        always: Option<&Source>,
    ) -> Result<Vec<(Kind, Vec<u8>)>, Over> {
        let mut end = lock(&self.tls.end);
        let mut messages = Vec::new();
        let result = match &self.work {
            Work::Read => {
                wire.clear();
                {
                    let inbound = lock(&self.tls.inbound);
                    wire.put(inbound.filled());
                }
                let used = end.read(wire.filled_mut(), room, out, |message, _| {
                    let (kind, payload) = answer(&message, always);
                    messages.push((kind, payload.to_vec()));
                    Ok(())
                });
                // What was used is taken from the ring; more has come behind it meanwhile.
                used.map(|used| lock(&self.tls.inbound).take(used))
            }
            Work::Write(kind, payload) => end.write(*kind, payload, room, out),
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
                        let stands = connection.receive(&mut buffer).and_then(|()| connection.send());
                        self.go_on(index, stands);
                    }
                }
            }
        }
    }

    fn accept(&mut self) -> io::Result<()> {
        loop {
            let socket = match net::accept_with(&self.listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok(socket) => socket,
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::CONNABORTED | Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            };
            sockopt::set_tcp_nodelay(&socket, true)?;
            let end = Mutex::new(End::new(self.engine.accept().map_err(io::Error::other)?));
            let tls = Arc::new(Tls { end, inbound: Mutex::default(), outbound: Mutex::default() });
            let index = self.connections.iter().position(Option::is_none).unwrap_or(self.connections.len());
            if index == self.connections.len() {
                self.connections.push(None);
            }
            let interest = EventFlags::IN;
            self.poll.add(&socket, index, interest)?;
            let answers = VecDeque::new();
            self.connections[index] =
                Some(Connection { socket, tls, answers, busy: false, news: false, interest, over: false });
        }
    }

    /// Takes back what workers are done with.
    fn call_back(&mut self) {
        let _ = rustix::io::read(&self.pool.wake, &mut [0; 8]);
        let done = std::mem::take(&mut *lock(&self.pool.done));
        for Done { connection: index, messages } in done {
            let Some(Some(connection)) = self.connections.get_mut(index) else { continue };
            connection.busy = false;
            match messages {
                Some(messages) => connection.answers.extend(messages),
                None => connection.over = true,
            }
            let stands = connection.send();
            self.go_on(index, stands);
        }
    }

    /// Gives a connection's next operation to the pool, and asks for what it waits for.
    fn go_on(&mut self, index: usize, stands: Result<(), Over>) {
        let Some(Some(connection)) = self.connections.get_mut(index) else { return };
        if stands.is_err() || connection.over {
            connection.over = true;
            // Its slot is not given to another while a worker has it.
            if !connection.busy {
                self.connections[index] = None;
            }
            return;
        }
        let (inbound, outbound) = (lock(&connection.tls.inbound).len(), lock(&connection.tls.outbound).len());
        if !connection.busy {
            let answer = connection.answers.pop_front();
            let work = answer.map(|(kind, payload)| Work::Write(kind, payload));
            if let Some(work) = work.or_else(|| std::mem::take(&mut connection.news).then_some(Work::Read)) {
                connection.busy = true;
                self.pool.submit(Job { connection: index, tls: connection.tls.clone(), work });
            }
        }
        let mut interest = EventFlags::empty();
        interest.set(EventFlags::IN, inbound < RING);
        interest.set(EventFlags::OUT, outbound > 0);
        if interest != connection.interest {
            connection.interest = interest;
            // Fails only for a socket that is gone, which the next call notices.
            let _ = self.poll.modify(&connection.socket, index, interest);
        }
    }
}

impl<S: Session> Connection<S> {
    /// From the socket into the ring.
    fn receive(&mut self, buffer: &mut [u8]) -> Result<(), Over> {
        if !self.interest.contains(EventFlags::IN) {
            return Ok(());
        }
        match net::recv(&self.socket, &mut *buffer, RecvFlags::empty()) {
            Ok((0, _)) => Err(Over),
            Ok((received, _)) => {
                lock(&self.tls.inbound).put(&buffer[..received]);
                self.news = true;
                Ok(())
            }
            Err(Errno::AGAIN | Errno::INTR) => Ok(()),
            Err(_) => Err(Over),
        }
    }

    /// From the ring to the socket.
    fn send(&self) -> Result<(), Over> {
        let mut outbound = lock(&self.tls.outbound);
        while !outbound.is_empty() {
            match net::send(&self.socket, outbound.filled(), SendFlags::NOSIGNAL) {
                Ok(sent) => outbound.take(sent),
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(_) => return Err(Over),
            }
        }
        Ok(())
    }
}
