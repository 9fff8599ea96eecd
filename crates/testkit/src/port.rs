//! A port on which nothing listens.

use rustix::net::{self, AddressFamily, SocketFlags, SocketType, sockopt};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;

/// A port of the loopback interface that refuses connections while this value lives.
///
/// A socket that is bound but does not listen holds the port, so the kernel assigns it to no other socket. A port whose
/// listener was closed is not as safe. Another test may get it, or a socket that connects to it, which then connects to
/// itself. A server can still listen on a held port if it sets `SO_REUSEADDR`, as ours do (socket(7)).
#[derive(Debug)]
pub struct ClosedPort {
    address: SocketAddr,
    _socket: OwnedFd,
}

impl ClosedPort {
    /// Takes a free port.
    ///
    /// # Errors
    /// The system has no free port or descriptor.
    pub fn new() -> io::Result<Self> {
        let socket = net::socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        sockopt::set_socket_reuseaddr(&socket, true)?;
        net::bind(&socket, &SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
        Ok(Self { address: net::getsockname(&socket)?.try_into()?, _socket: socket })
    }

    /// The port, with the address of the loopback interface.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }
}

#[cfg(test)]
mod tests {
    use super::ClosedPort;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn refuses_connections_until_a_server_listens_there() {
        let port = ClosedPort::new().unwrap();
        let refused = TcpStream::connect(port.address()).unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
        let _listener = TcpListener::bind(port.address()).unwrap();
        TcpStream::connect(port.address()).unwrap();
    }
}
