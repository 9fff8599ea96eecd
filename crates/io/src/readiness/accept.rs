use super::conn::{Conn, Phase, Source};
use super::driver::Driver;
use super::poll::Poll;
use crate::socket::{self, Listening};
use crate::{Address, Listener, Sink, Token};
use rustix::event::epoll::EventFlags;
use rustix::fd::AsFd;
use rustix::io::Errno;
use std::io;

impl<P: Poll> Driver<P> {
    pub(super) fn start_accepting(&mut self, socket: Listening) -> io::Result<(Listener, Address)> {
        let number = u32::try_from(self.listeners.sockets.len()).map_err(|_| io::ErrorKind::OutOfMemory)?;
        self.poll.add(socket.fd.as_fd(), Source::Listener(number).data(), self.accept_interest())?;
        let address = socket.address.clone();
        self.listeners.sockets.push(Some(socket));
        Ok((Listener(number), address))
    }

    pub(super) fn pause_accepting(&mut self, pause: bool) {
        if self.deferred.pause_accept(pause) {
            self.watch_listeners();
        }
    }

    /// Watches the listeners according to whether accepting rests.
    pub(super) fn watch_listeners(&mut self) {
        let interest = self.accept_interest();
        self.listeners.watch(&mut self.poll, interest);
    }

    const fn accept_interest(&self) -> EventFlags {
        if self.deferred.accept_rests() { EventFlags::empty() } else { EventFlags::IN }
    }

    pub(super) fn accept(&mut self, number: u32, sink: &mut dyn Sink) {
        // No call in vain: the kernel reports the listener again while somebody waits.
        let most = self.expected.min(self.config.accepts_per_turn);
        for taken in 0..most {
            // The sink may have closed or paused the listeners meanwhile.
            let Some(Some(socket)) = self.listeners.sockets.get(number as usize) else { return };
            if self.deferred.accept_rests() || !sink.may_accept() {
                return;
            }
            let token = match socket::accept(&socket.fd) {
                Ok((fd, from)) => {
                    socket::accepted(&fd, self.waiting);
                    self.arrivals.watch(&fd);
                    let token = self.insert(Conn::new(fd, Phase::Open));
                    self.newest = token.as_ref().ok().map(|&token| (token, from));
                    token
                }
                Err(Errno::AGAIN) => {
                    self.expected = taken.max(1);
                    return;
                }
                Err(errno) if socket::concerns_one_connection(errno) => continue,
                Err(errno) if socket::lacks_descriptors(errno) => {
                    // The kernel says so also if none waits.
                    if !socket::has_waiting(&socket.fd) {
                        return;
                    }
                    if sink.make_room(self) {
                        continue;
                    }
                    Err(errno.into())
                }
                Err(errno) => Err(errno.into()),
            };
            match token {
                Ok(token) => {
                    self.deferred.accepted();
                    sink.accepted(self, token, Listener(number));
                }
                Err(error) => return self.accept_failed(error, sink),
            }
        }
        self.expected = most.saturating_add(1);
    }

    fn accept_failed(&mut self, error: io::Error, sink: &mut dyn Sink) {
        let is_new = self.deferred.accept_failed();
        self.watch_listeners();
        if is_new {
            sink.accept_failed(self, error);
        }
    }

    /// Gives a connection a slot and watches it.
    pub(super) fn insert(&mut self, conn: Conn) -> io::Result<Token> {
        let token = self.slots.insert(conn)?;
        let watched = self.slots.get_mut(token).map_or(Ok(()), |conn| conn.watch(&mut self.poll, token));
        if let Err(error) = watched {
            self.slots.remove(token);
            return Err(error);
        }
        Ok(token)
    }
}
