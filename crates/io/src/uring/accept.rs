use super::Driver;
use super::conn::{Multi, Phase};
use super::sys::{Completion, Source, With};
use crate::socket::{self, Listening};
use crate::{Listener, Sink};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{self, Shutdown};
use std::collections::VecDeque;
use std::io;

/// The listening sockets of one driver.
#[derive(Default)]
pub(super) struct Listeners {
    /// By number; numbers are not used again.
    sockets: Vec<Option<Socket>>,
    /// Some are to be accepted from and are not.
    unarmed: bool,
    /// Accepted before the kernel learnt that no more is to be accepted.
    waiting: VecDeque<(u32, OwnedFd)>,
}

struct Socket {
    listening: Listening,
    accepting: Multi,
    generation: u32,
}

impl Driver {
    pub(super) fn start_accepting(&mut self, listening: Listening) -> io::Result<Listener> {
        let number = u32::try_from(self.listeners.sockets.len()).map_err(|_| io::ErrorKind::OutOfMemory)?;
        self.listeners.sockets.push(Some(Socket { listening, accepting: Multi::Idle, generation: 0 }));
        self.listeners.unarmed = true;
        Ok(Listener(number))
    }

    pub(super) fn close_listeners(&mut self) {
        for number in 0..self.listeners.sockets.len() {
            self.stop(number);
            // The request keeps the socket until it is cancelled, which the next turn does.
            if let Some(socket) = self.listeners.sockets[number].take() {
                let _ = net::shutdown(&socket.listening.fd, Shutdown::Both);
            }
        }
        self.listeners.waiting.clear();
    }

    pub(super) fn pause_accepting(&mut self, pause: bool) {
        if self.chores.pause_accept(pause) {
            self.apply_pause();
        }
    }

    /// Whether accepting rests may have changed.
    pub(super) fn apply_pause(&mut self) {
        if self.chores.accept_rests() {
            (0..self.listeners.sockets.len()).for_each(|number| self.stop(number));
        } else {
            self.listeners.unarmed = true;
        }
    }

    fn stop(&mut self, number: usize) {
        if let (Some(Some(socket)), Ok(listener)) = (self.listeners.sockets.get_mut(number), u32::try_from(number))
            && socket.accepting == Multi::Armed
        {
            socket.accepting = Multi::Cancelled;
            self.ring.cancel(Source::Accept { listener, generation: socket.generation });
        }
    }

    /// Whether connections wait that can be delivered.
    pub(super) fn accepted_wait(&self) -> bool {
        !self.listeners.waiting.is_empty() && !self.chores.accept_rests()
    }

    /// Asks for connections where it is to be done. Only right before the kernel is entered, so that no listening
    /// socket is closed before the kernel has seen the request.
    pub(super) fn arm_listeners(&mut self) -> io::Result<()> {
        if !self.listeners.unarmed || self.chores.accept_rests() {
            return Ok(());
        }
        self.listeners.unarmed = false;
        for (listener, socket) in (0..).zip(&mut self.listeners.sockets) {
            let Some(socket) = socket else { continue };
            if socket.accepting == Multi::Idle {
                socket.generation = socket.generation.wrapping_add(1);
                self.ring.accept(&socket.listening.fd, listener, socket.generation, socket::FLAGS)?;
                socket.accepting = Multi::Armed;
            }
        }
        Ok(())
    }

    pub(super) fn accept_completed<S: Sink<Self>>(&mut self, completion: Completion, sink: &mut S) {
        let Source::Accept { listener, generation } = completion.source else { return };
        // What was accepted from a listener that is closed is closed.
        let Some(Some(socket)) = self.listeners.sockets.get_mut(listener as usize) else { return };
        if !completion.more && generation == socket.generation {
            socket.accepting = Multi::Idle;
            self.listeners.unarmed = true;
        }
        match (completion.with, completion.result) {
            (With::Accepted(fd), _) if self.chores.accept_rests() => self.listeners.waiting.push_back((listener, fd)),
            (With::Accepted(fd), _) => self.accepted(listener, fd, sink),
            (_, Err(Errno::CANCELED | Errno::AGAIN)) => {}
            (_, Err(errno)) if !socket::concerns_one_connection(errno) => self.accept_failed(errno.into(), sink),
            _ => {}
        }
    }

    pub(super) fn deliver_waiting<S: Sink<Self>>(&mut self, sink: &mut S) {
        for _ in 0..self.listeners.waiting.len() {
            if self.chores.accept_rests() {
                return;
            }
            let Some((listener, fd)) = self.listeners.waiting.pop_front() else { return };
            self.accepted(listener, fd, sink);
        }
    }

    fn accepted<S: Sink<Self>>(&mut self, listener: u32, fd: OwnedFd, sink: &mut S) {
        self.arrivals.watch(&fd);
        match self.slots.insert(self.conn(fd, Phase::Open)) {
            Ok(token) => {
                self.chores.accepted();
                sink.accepted(self, token, Listener(listener));
                self.update(token);
            }
            Err(error) => self.accept_failed(error, sink),
        }
    }

    fn accept_failed<S: Sink<Self>>(&mut self, error: io::Error, sink: &mut S) {
        let is_new = self.chores.accept_failed();
        self.apply_pause();
        if is_new {
            sink.accept_failed(self, error);
        }
    }
}
