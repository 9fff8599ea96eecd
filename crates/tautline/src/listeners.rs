//! Where the loops of a server listen.

use crate::Error;
use crate::erased::Loop;
use std::io;
use std::os::fd::OwnedFd;
use tautline_io::{Address, Driver, ListenOptions, activation, epoll};

/// How the loops of a server listen, and at which sockets beside their addresses.
#[doc(hidden)]
#[derive(Debug)]
pub struct Listeners {
    /// Listening sockets that something else has made.
    pub sockets: Vec<OwnedFd>,
    /// Whether other servers may listen at the same addresses.
    pub beside_others: bool,
    /// Options of the sockets that the loops make.
    pub options: ListenOptions,
}

impl Default for Listeners {
    fn default() -> Self {
        let mut options = ListenOptions::default();
        options.backlog = 4096;
        Self { sockets: Vec::new(), beside_others: false, options }
    }
}

impl Listeners {
    /// Has loop `number` of so many `loops` listen at these addresses, and at its part of the sockets. Returns the addresses with
    /// actual ports.
    ///
    /// # Errors
    /// If it cannot, or if another server listens at an address already.
    pub fn begin(
        &self,
        (number, loops): (u32, usize),
        shard: &mut dyn Loop,
        addresses: &[Address],
    ) -> Result<Vec<Address>, Error> {
        let mut options = self.options.clone();
        options.reuse_port = loops > 1 || self.beside_others;
        let mut actual = Vec::new();
        for address in addresses {
            if number == 0 && options.reuse_port && !self.beside_others {
                refuse_occupied(address)?;
            }
            // Loops cannot share the address of a Unix socket, so the first loop has it.
            if number > 0 && !matches!(address, Address::Tcp(_)) {
                actual.push(address.clone());
                continue;
            }
            let bound = shard.listen(address, &options);
            actual.push(bound.map_err(|error| Error::Listen { address: address.clone(), error })?);
        }
        for socket in self.sockets_of(number, loops).map_err(not_to_listen_on)? {
            shard.listen_on(socket).map_err(not_to_listen_on)?;
        }
        Ok(actual)
    }

    /// The addresses of the sockets, each once.
    ///
    /// # Errors
    /// If one is no listening socket.
    pub fn addresses_of_sockets(&self) -> Result<Vec<Address>, Error> {
        let mut addresses = Vec::new();
        for socket in &self.sockets {
            let address = activation::address(socket).map_err(not_to_listen_on)?;
            if !addresses.contains(&address) {
                addresses.push(address);
            }
        }
        Ok(addresses)
    }

    /// Copies of the listening sockets of others from which loop `number` accepts.
    ///
    /// Sockets at one address (`SO_REUSEPORT`) are dealt out to the loops. If there are fewer of them than loops, loops share
    /// them. So each loop accepts at each address, and from each socket some loop does.
    fn sockets_of(&self, number: u32, loops: usize) -> io::Result<Vec<OwnedFd>> {
        let addresses = self.sockets.iter().map(activation::address).collect::<io::Result<Vec<_>>>()?;
        let mut own = Vec::new();
        for (index, (socket, address)) in self.sockets.iter().zip(&addresses).enumerate() {
            let before = addresses[..index].iter().filter(|other| *other == address).count();
            let all = addresses.iter().filter(|other| *other == address).count();
            let turn = all.min(loops).max(1);
            if before % turn == number as usize % turn {
                own.push(socket.try_clone()?);
            }
        }
        Ok(own)
    }
}

fn not_to_listen_on(error: io::Error) -> Error {
    Error::Machine { what: "cannot listen on a socket that this server did not make", error }
}

/// Checks that no other server listens at an address that loops share by `SO_REUSEPORT`.
///
/// Another server of the same user could share it unnoticed, and the kernel would spread clients over both. Listening once
/// without that option fails then.
fn refuse_occupied(address: &Address) -> Result<(), Error> {
    if !matches!(address, Address::Tcp(at) if at.port() != 0) {
        return Ok(());
    }
    let mut alone = ListenOptions::default();
    alone.backlog = 0;
    let listened = epoll::Driver::new().and_then(|mut driver| driver.listen(address, &alone));
    listened.map(drop).map_err(|error| Error::Listen { address: address.clone(), error })
}
