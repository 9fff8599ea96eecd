use super::conn::Source;
use super::poll::Poll;
use crate::socket::Listening;
use rustix::event::epoll::EventFlags;
use rustix::fd::AsFd;

/// The listening sockets of one driver.
#[derive(Default)]
pub(super) struct Listeners {
    /// Sockets by number; numbers are not reused.
    pub(super) sockets: Vec<Option<Listening>>,
}

impl Listeners {
    /// Closes all of them. Other processes may have copies.
    pub(super) fn close(&mut self, poll: &mut impl Poll) {
        for socket in self.sockets.iter_mut().filter_map(Option::take) {
            poll.give_away(socket.fd.as_fd());
        }
    }

    pub(super) fn watch(&self, poll: &mut impl Poll, interest: EventFlags) {
        for (number, socket) in (0..).zip(&self.sockets) {
            if let Some(socket) = socket
                && let Err(error) = poll.modify(socket.fd.as_fd(), Source::Listener(number).data(), interest)
            {
                log::error!("cannot change what is reported of {}: {error}", socket.address);
            }
        }
    }
}
