use super::Driver;
use super::conn::{Multi, Phase};
use super::listeners::Socket;
use super::sys::{Completion, Source, With};
use crate::socket::{self, Listening};
use crate::{Address, Listener, Sink};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net::{self, Shutdown};
use std::io;

impl Driver {
    pub(super) fn start_accepting(&mut self, listening: Listening) -> io::Result<(Listener, Address)> {
        let number = u32::try_from(self.listeners.sockets.len()).map_err(|_| io::ErrorKind::OutOfMemory)?;
        let address = listening.address.clone();
        self.listeners.sockets.push(Some(Socket { listening, accepting: Multi::Idle, generation: 0 }));
        self.listeners.unarmed = true;
        Ok((Listener(number), address))
    }

    pub(super) fn close_listeners(&mut self) {
        for number in 0..self.listeners.sockets.len() {
            self.stop(number);
            // The request keeps the socket until it is cancelled, which the next turn does. A shared one stays open for others.
            if let Some(socket) = self.listeners.sockets[number].take()
                && !socket.listening.is_shared
            {
                let _ = net::shutdown(&socket.listening.fd, Shutdown::Both);
            }
        }
        self.listeners.waiting.clear();
    }

    pub(super) fn pause_accepting(&mut self, pause: bool) {
        if self.deferred.pause_accept(pause) {
            self.apply_pause();
        }
    }

    /// Stops or starts the accept requests, according to whether accepting rests.
    pub(super) fn apply_pause(&mut self) {
        if self.deferred.accept_rests() {
            (0..self.listeners.sockets.len()).for_each(|number| self.stop(number));
        } else {
            self.listeners.unarmed = true;
        }
    }

    pub(super) fn stop(&mut self, number: usize) {
        if let (Some(Some(socket)), Ok(listener)) = (self.listeners.sockets.get_mut(number), u32::try_from(number))
            && socket.accepting == Multi::Armed
        {
            socket.accepting = Multi::Cancelled;
            self.ring.cancel(Source::Accept { listener, generation: socket.generation });
        }
    }

    /// Whether accepted connections wait that can be delivered now.
    pub(super) fn accepted_wait(&self) -> bool {
        !self.listeners.waiting.is_empty() && !self.deferred.accept_rests()
    }

    /// Makes the accept requests of listeners that have none. This happens only right before the kernel is entered, so
    /// that no listening socket is closed before the kernel has seen its request.
    pub(super) fn arm_listeners(&mut self) {
        if !self.listeners.unarmed || self.deferred.accept_rests() {
            return;
        }
        self.listeners.unarmed = false;
        for (listener, socket) in (0..).zip(&mut self.listeners.sockets) {
            let Some(socket) = socket else { continue };
            if socket.accepting == Multi::Idle {
                socket.generation = socket.generation.wrapping_add(1);
                self.ring.accept(&socket.listening.fd, listener, socket.generation, socket::FLAGS);
                socket.accepting = Multi::Armed;
            }
        }
    }

    pub(super) fn accept_completed(&mut self, completion: Completion<'_>, sink: &mut dyn Sink) {
        let Source::Accept { listener, generation } = completion.source else { return };
        // The listener may be closed by now: the accepted connection is then closed too.
        let Some(Some(socket)) = self.listeners.sockets.get_mut(listener as usize) else { return };
        if !completion.more && generation == socket.generation {
            socket.accepting = Multi::Idle;
            self.listeners.unarmed = true;
        }
        let lacks =
            completion.result.is_err_and(socket::lacks_descriptors) && socket::has_waiting(&socket.listening.fd);
        match (completion.with, completion.result) {
            (With::Accepted(fd), _) if self.deferred.accept_rests() => self.listeners.waiting.push_back((listener, fd)),
            (With::Accepted(fd), _) => self.accepted(listener, fd, sink),
            (_, Err(Errno::CANCELED | Errno::AGAIN)) => {}
            (_, Err(errno)) if lacks && sink.make_room(self) => log::trace!("{errno}: another connection gave way"),
            (_, Err(errno)) if !socket::concerns_one_connection(errno) => self.accept_failed(errno.into(), sink),
            _ => {}
        }
    }

    pub(super) fn deliver_waiting(&mut self, sink: &mut dyn Sink) {
        for _ in 0..self.listeners.waiting.len() {
            if self.deferred.accept_rests() {
                return;
            }
            let Some((listener, fd)) = self.listeners.waiting.pop_front() else { return };
            self.accepted(listener, fd, sink);
        }
    }

    fn accepted(&mut self, listener: u32, fd: OwnedFd, sink: &mut dyn Sink) {
        socket::accepted(&fd, self.waiting);
        self.arrivals.watch(&fd);
        match self.slots.insert(self.conn(fd, Phase::Open)) {
            Ok(token) => {
                self.deferred.accepted();
                sink.accepted(self, token, Listener(listener));
                self.update(token);
            }
            Err(error) => self.accept_failed(error, sink),
        }
    }

    fn accept_failed(&mut self, error: io::Error, sink: &mut dyn Sink) {
        let is_new = self.deferred.accept_failed();
        self.apply_pause();
        if is_new {
            sink.accept_failed(self, error);
        }
    }
}
