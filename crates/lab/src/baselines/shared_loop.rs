//! Threads that share one poller, as those do who run one event loop on many.

use super::end::{End, Over, Room, answer};
use super::{Baseline, RECEIVE, Source};
use crate::cpu;
use crate::limit::Poll;
use rustix::event::epoll::EventFlags;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{self, RecvFlags, SendFlags, SocketFlags, sockopt};
use std::io;
use std::net::TcpListener;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;
use tautline::layers::tls::{Engine, Session};
use tautline::layers::window::Buf;

const LISTENER: usize = usize::MAX;

/// Events that a thread takes at a time: enough to work on, few enough that the others get theirs.
const EVENTS: usize = 8;

/// How long one wait lasts.
const WAIT: Duration = Duration::from_millis(500);

/// What all threads share.
struct Common<E: Engine> {
    engine: E,
    listener: OwnedFd,
    answer: Option<Source>,
    connections: RwLock<Vec<Slot<E>>>,
}

/// Told of an event once, a connection is nobody else's until it is armed again; the lock is what the compiler needs to see.
type Slot<E> = Option<Arc<Mutex<Connection<<E as Engine>::Session>>>>;

struct Connection<S> {
    socket: OwnedFd,
    end: End<S>,
    /// The beginning of a record.
    carry: Vec<u8>,
    out: Buf,
    /// It ends once `out` has left.
    over: bool,
}

pub(super) fn serve<E: Engine>(
    listener: TcpListener,
    engine: E,
    baseline: &Baseline,
    answer: Option<Source>,
) -> io::Result<()> {
    let poll = Poll::new()?;
    let listener = OwnedFd::from(listener);
    poll.add(&listener, LISTENER, EventFlags::IN | EventFlags::ONESHOT)?;
    let connections = RwLock::new(Vec::new());
    let common = Common { engine, listener, answer, connections };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..baseline.threads)
            .map(|number| {
                let cpu = baseline.cpus.get(number % baseline.cpus.len().max(1)).copied();
                let poll = poll.share();
                let common = &common;
                scope.spawn(move || {
                    let _pinned = cpu.map(cpu::Pinned::to);
                    work(&mut Poll::of(poll?, EVENTS), common)
                })
            })
            .collect();
        threads
            .into_iter()
            .try_for_each(|thread| thread.join().unwrap_or_else(|_| Err(io::Error::other("a thread panicked"))))
    })
}

fn work<E: Engine>(poll: &mut Poll, common: &Common<E>) -> io::Result<()> {
    let (mut room, mut buffer) = (Room::new(), vec![0; 2 * RECEIVE]);
    loop {
        poll.wait(WAIT)?;
        for i in 0..poll.events() {
            let key = poll.key(i);
            if key == LISTENER {
                accept(poll, common)?;
                continue;
            }
            let connection = {
                let connections = common.connections.read().unwrap_or_else(PoisonError::into_inner);
                connections.get(key).cloned().flatten()
            };
            let Some(connection) = connection else { continue };
            let mut connection = connection.lock().unwrap_or_else(PoisonError::into_inner);
            let stands = connection.turn(&mut room, &mut buffer, common.answer.as_ref());
            let interest = if connection.out.is_empty() { EventFlags::IN } else { EventFlags::OUT };
            if stands.is_err() || poll.modify(&connection.socket, key, interest | EventFlags::ONESHOT).is_err() {
                common.connections.write().unwrap_or_else(PoisonError::into_inner)[key] = None;
            }
        }
    }
}

fn accept<E: Engine>(poll: &Poll, common: &Common<E>) -> io::Result<()> {
    loop {
        let socket = match net::accept_with(&common.listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
            Ok(socket) => socket,
            Err(Errno::AGAIN) => break,
            Err(Errno::CONNABORTED | Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        };
        sockopt::set_tcp_nodelay(&socket, true)?;
        let session = common.engine.accept().map_err(io::Error::other)?;
        let connection = Connection { socket, end: End::new(session), carry: Vec::new(), out: Buf::new(), over: false };
        let mut connections = common.connections.write().unwrap_or_else(PoisonError::into_inner);
        let index = connections.iter().position(Option::is_none).unwrap_or(connections.len());
        if index == connections.len() {
            connections.push(None);
        }
        let connection = connections[index].insert(Arc::new(Mutex::new(connection))).clone();
        drop(connections);
        let connection = connection.lock().unwrap_or_else(PoisonError::into_inner);
        poll.add(&connection.socket, index, EventFlags::IN | EventFlags::ONESHOT)?;
    }
    poll.modify(&common.listener, LISTENER, EventFlags::IN | EventFlags::ONESHOT)?;
    Ok(())
}

impl<S: Session> Connection<S> {
    /// Sends what waits, or receives once and answers.
    fn turn(&mut self, room: &mut Room, buffer: &mut [u8], always: Option<&Source>) -> Result<(), Over> {
        if self.out.is_empty() {
            let carried = self.carry.len();
            buffer[..carried].copy_from_slice(&self.carry);
            let received = match net::recv(&self.socket, &mut buffer[carried..carried + RECEIVE], RecvFlags::empty()) {
                Ok((0, _)) => return Err(Over),
                Ok((received, _)) => received,
                Err(Errno::AGAIN | Errno::INTR) => return Ok(()),
                Err(_) => return Err(Over),
            };
            let wire = &mut buffer[..carried + received];
            let used = self.end.read(wire, room, &mut self.out, |message, reply| {
                let (kind, payload) = answer(&message, always);
                reply.send(kind, payload)
            });
            self.carry.clear();
            match used {
                Ok(used) => self.carry.extend_from_slice(&wire[used..]),
                Err(Over) => self.over = true,
            }
        }
        while !self.out.is_empty() {
            match net::send(&self.socket, self.out.filled(), SendFlags::NOSIGNAL) {
                Ok(sent) => self.out.take(sent),
                Err(Errno::AGAIN) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(_) => return Err(Over),
            }
        }
        if self.over { Err(Over) } else { Ok(()) }
    }
}
