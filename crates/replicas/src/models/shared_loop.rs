//! Threads that share one poller.

use super::baseline::Baseline;
use super::end::{Buffers, End, Ended, RECEIVE};
use super::source::{Source, answer};
use rustix::event::epoll::EventFlags;
use rustix::fd::OwnedFd;
use std::io;
use std::net::TcpListener;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;
use tautline::layers::buf::Buf;
use tautline::layers::tls::{Engine, Session};
use tautline_measure::cpu;
use tautline_measure::poll::{self, Poll};

const LISTENER: usize = usize::MAX;

/// Events that a thread fetches at a time: enough to work on, and few enough to leave some for the others.
const EVENTS: usize = 8;

/// Longest wait for events.
const WAIT: Duration = Duration::from_millis(500);

/// State shared by all threads.
struct Common<E: Engine> {
    engine: E,
    listener: OwnedFd,
    source: Option<Source>,
    connections: RwLock<Vec<Slot<E>>>,
}

/// A connection, locked for the compiler only. Its event is reported once, so no other thread has it until it is armed
/// again.
type Slot<E> = Option<Arc<Mutex<Connection<<E as Engine>::Session>>>>;

struct Connection<S> {
    socket: OwnedFd,
    end: End<S>,
    /// Beginning of an incomplete record.
    carry: Vec<u8>,
    out: Buf,
    /// Whether it ends once `out` is sent.
    is_ending: bool,
}

pub(super) fn serve<E: Engine>(
    listener: TcpListener,
    engine: E,
    baseline: &Baseline,
    source: Option<Source>,
) -> io::Result<()> {
    let poll = Poll::new()?;
    let listener = OwnedFd::from(listener);
    poll.add(&listener, LISTENER, EventFlags::IN | EventFlags::ONESHOT)?;
    let connections = RwLock::new(Vec::new());
    let common = Common { engine, listener, source, connections };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..baseline.threads)
            .map(|number| {
                let cpu = baseline.cpu(number);
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
    let (mut buffers, mut received) = (Buffers::new(), vec![0; 2 * RECEIVE]);
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
            let result = connection.turn(&mut buffers, &mut received, common.source.as_ref());
            let interest = if connection.out.is_empty() { EventFlags::IN } else { EventFlags::OUT };
            if result.is_err() || poll.modify(&connection.socket, key, interest | EventFlags::ONESHOT).is_err() {
                common.connections.write().unwrap_or_else(PoisonError::into_inner)[key] = None;
            }
        }
    }
}

fn accept<E: Engine>(poll: &Poll, common: &Common<E>) -> io::Result<()> {
    while let Some(socket) = poll::accept(&common.listener)? {
        let end = End::new(common.engine.accept().map_err(io::Error::other)?);
        let connection = Connection { socket, end, carry: Vec::new(), out: Buf::new(), is_ending: false };
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
    /// Sends waiting bytes, or receives once and answers.
    fn turn(&mut self, buffers: &mut Buffers, buffer: &mut [u8], source: Option<&Source>) -> Result<(), Ended> {
        if self.out.is_empty() {
            let carried = self.carry.len();
            buffer[..carried].copy_from_slice(&self.carry);
            let received = match poll::receive(&self.socket, &mut buffer[carried..carried + RECEIVE]) {
                Ok(Some(0)) | Err(_) => return Err(Ended),
                Ok(Some(received)) => received,
                Ok(None) => return Ok(()),
            };
            let wire = &mut buffer[..carried + received];
            let used = self.end.read(wire, buffers, &mut self.out, |message, reply| {
                let (kind, payload) = answer(&message, source);
                reply.send(kind, payload)
            });
            self.carry.clear();
            match used {
                Ok(used) => self.carry.extend_from_slice(&wire[used..]),
                Err(Ended) => self.is_ending = true,
            }
        }
        poll::send_all(&self.socket, &mut self.out).map_err(|_| Ended)?;
        if self.out.is_empty() && self.is_ending { Err(Ended) } else { Ok(()) }
    }
}
