use super::slots::{Conn, Phase, Source};
use super::{ACCEPT_PAUSE, Driver};
use crate::socket::{self, Listening};
use crate::{Listener, Sink, Token};
use rustix::event::epoll::{self, EventFlags};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::net;
use std::io;
use std::time::Instant;

/// The listening sockets of one driver.
#[derive(Default)]
pub(super) struct Listeners {
    /// By number; numbers are not used again.
    sockets: Vec<Option<Listening>>,
    /// The user wants no connections for now.
    paused: bool,
    /// Accepting failed, the sink was told, and nothing was accepted since.
    failing: bool,
}

impl Listeners {
    /// Closes all of them.
    pub(super) fn close(&mut self) {
        self.sockets.fill_with(|| None);
    }

    fn watch(&self, epoll: &OwnedFd, interest: EventFlags) {
        for (number, socket) in (0..).zip(&self.sockets) {
            if let Some(socket) = socket
                && let Err(error) = epoll::modify(epoll, &socket.fd, Source::Listener(number).data(), interest)
            {
                log::error!("cannot change what epoll reports of {}: {error}", socket.address);
            }
        }
    }
}

impl Driver {
    pub(super) fn start_accepting(&mut self, socket: Listening) -> io::Result<Listener> {
        let number = u32::try_from(self.listeners.sockets.len()).map_err(|_| io::ErrorKind::OutOfMemory)?;
        epoll::add(&self.epoll, &socket.fd, Source::Listener(number).data(), self.accept_interest())?;
        self.listeners.sockets.push(Some(socket));
        Ok(Listener(number))
    }

    pub(super) fn pause_accepting(&mut self, pause: bool) {
        if self.listeners.paused != pause {
            self.listeners.paused = pause;
            self.watch_listeners();
        }
    }

    /// The pause after a failure is over.
    pub(super) fn accept_again(&mut self) {
        self.chores.accept = None;
        self.watch_listeners();
    }

    fn watch_listeners(&self) {
        self.listeners.watch(&self.epoll, self.accept_interest());
    }

    fn accept_interest(&self) -> EventFlags {
        if self.accept_rests() { EventFlags::empty() } else { EventFlags::IN }
    }

    const fn accept_rests(&self) -> bool {
        self.listeners.paused || self.chores.accept.is_some()
    }

    pub(super) fn accept<S: Sink<Self>>(&mut self, number: u32, sink: &mut S) {
        for _ in 0..self.config.accepts_per_turn {
            // The sink may have closed or paused them meanwhile.
            let Some(Some(socket)) = self.listeners.sockets.get(number as usize) else { return };
            if self.accept_rests() {
                return;
            }
            let token = match net::accept_with(&socket.fd, socket::FLAGS) {
                Ok(fd) => self.insert(Conn::new(fd, Phase::Open)),
                Err(Errno::AGAIN) => return,
                Err(errno) if socket::concerns_one_connection(errno) => continue,
                Err(errno) => Err(errno.into()),
            };
            match token {
                Ok(token) => {
                    self.listeners.failing = false;
                    sink.accepted(self, token, Listener(number));
                }
                Err(error) => return self.accept_failed(error, sink),
            }
        }
    }

    /// Descriptors or memory ran out: retrying at once would spin, as the connection stays in the backlog.
    fn accept_failed<S: Sink<Self>>(&mut self, error: io::Error, sink: &mut S) {
        self.chores.accept = Some(Instant::now() + ACCEPT_PAUSE);
        self.watch_listeners();
        if !std::mem::replace(&mut self.listeners.failing, true) {
            sink.accept_failed(self, error);
        }
    }

    /// Gives a connection a slot and watches it.
    pub(super) fn insert(&mut self, conn: Conn) -> io::Result<Token> {
        let token = self.slots.insert(conn)?;
        let watched = self.slots.get_mut(token).map_or(Ok(()), |conn| conn.watch(&self.epoll, token));
        if let Err(error) = watched {
            self.slots.remove(token);
            return Err(error);
        }
        Ok(token)
    }
}
