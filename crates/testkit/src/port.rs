//! A port where nobody listens.

use rustix::net::{self, AddressFamily, SocketFlags, SocketType, sockopt};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;

/// A port of the loopback interface that refuses connections while this lives.
///
/// A socket that does not listen has it, so the kernel gives it to nobody else. One that was listened on and let go may be
/// another test's a moment later, or be where the socket that dials it is put, which then connects to itself. A server that is
/// told this port and sets `SO_REUSEADDR`, as ours do, can listen there (socket(7)).
#[derive(Debug)]
pub struct ClosedPort {
    address: SocketAddr,
    _socket: OwnedFd,
}

impl ClosedPort {
    /// Takes a port that is free.
    ///
    /// # Errors
    /// The system has no port or no descriptor left.
    pub fn new() -> io::Result<Self> {
        let socket = net::socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        sockopt::set_socket_reuseaddr(&socket, true)?;
        net::bind(&socket, &SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
        Ok(Self { address: net::getsockname(&socket)?.try_into()?, _socket: socket })
    }

    /// Where it is.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }
}

#[cfg(test)]
mod tests {
    use super::ClosedPort;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn connections_are_refused_until_somebody_listens_who_was_told() {
        let port = ClosedPort::new().unwrap();
        let refused = TcpStream::connect(port.address()).unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
        let _listener = TcpListener::bind(port.address()).unwrap();
        TcpStream::connect(port.address()).unwrap();
    }
}
