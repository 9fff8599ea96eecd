//! A shard within a loop of others, and connections that others have accepted.

use crate::handler::Handler;
use crate::shard::Shard;
use crate::turn::reactor::Reactor;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;
use tautline_io::{Address, Driver};
use tautline_tls::Engine;

impl<E: Engine, H: Handler> Shard<E, H> {
    /// A descriptor that is readable when [`turn`](Self::turn) has something to do, for the loop of somebody else.
    ///
    /// Wait for it, at most for [`next_deadline`](Self::next_deadline), and then call `turn(Some(Duration::ZERO))`.
    ///
    /// # Errors
    /// The driver has no such descriptor. The default driver has one.
    pub fn poll_fd(&self) -> io::Result<BorrowedFd<'_>> {
        self.driver.poll_fd().ok_or_else(|| {
            let what = format!("no other loop can wait for the driver {}; take epoll", self.driver.name());
            io::Error::new(io::ErrorKind::Unsupported, what)
        })
    }

    /// The time until a turn has something to do without a report by [`poll_fd`](Self::poll_fd); `None` if there is none.
    ///
    /// Ask after each turn, and after calls outside of a turn.
    pub fn next_deadline(&mut self) -> Option<Duration> {
        self.reactor.core.shared.refresh();
        let first_turn = (!self.reactor.is_started).then_some(Duration::ZERO);
        first_turn.or_else(|| self.reactor.wait(self.driver.next_work()))
    }

    /// Accepts connections from a listening socket that something else has made: systemd, a parent process, the program
    /// itself. Others may accept from it too. Returns its address.
    ///
    /// # Errors
    /// The socket is no listening stream socket, or the driver cannot take it.
    pub fn listen_on(&mut self, socket: OwnedFd) -> io::Result<Address> {
        self.driver.listen_on(socket).map(|(_, address)| address)
    }

    /// Serves a connected stream socket that something else has accepted: a helper process, another loop, systemd.
    ///
    /// Nothing may have been read from it. `peer` is the client's address, if it is another than that of the socket.
    ///
    /// # Errors
    /// The socket is no connected stream socket, the driver cannot take it, or `limits.max_connections` is reached.
    pub fn adopt(&mut self, socket: OwnedFd, peer: Option<Address>) -> io::Result<()> {
        self.reactor.core.shared.refresh();
        self.reactor.adopt(&mut *self.driver, socket, peer)
    }
}

impl<E: Engine, H: Handler> Reactor<E, H> {
    pub(crate) fn adopt(&mut self, driver: &mut dyn Driver, socket: OwnedFd, peer: Option<Address>) -> io::Result<()> {
        if self.core.admission.paused || self.core.shared.drain_end.is_some() {
            let why = if self.core.shared.drain_end.is_some() {
                "the shard drains"
            } else {
                "limits.max_connections is reached"
            };
            return Err(io::Error::new(io::ErrorKind::QuotaExceeded, why));
        }
        let token = driver.adopt(socket)?;
        match peer.or_else(|| driver.peer(token)) {
            Some(peer) => {
                self.core.shared.counters.accepted.add(1);
                self.accept_from(driver, token, peer);
            }
            // It was reset meanwhile.
            None => driver.close(token, true),
        }
        Ok(())
    }
}
