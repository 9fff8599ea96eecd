use super::{Info, Socket as _, attach};
use rustix::fd::AsFd;
use rustix::io::Errno;
use std::io;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::OnceLock;
use tautline_buf::kernel_tls::{Cipher, Direction, TrafficKeys};

/// Abilities of the kernel's TLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Support {
    /// Keys can be replaced (Linux 6.14), as a KeyUpdate needs it.
    pub rekeys: bool,
}

/// Finds out the abilities of this kernel's TLS, once per process, on a connection over the loopback interface.
///
/// # Errors
/// The kernel has no TLS that can be used; the error says why.
pub fn probe() -> io::Result<Support> {
    static FOUND: OnceLock<Result<Support, Errno>> = OnceLock::new();
    match *FOUND.get_or_init(try_it) {
        Ok(support) => Ok(support),
        Err(Errno::NOENT) => Err(io::Error::new(
            io::ErrorKind::Unsupported,
            "the kernel has no TLS, or has not loaded it: `modprobe tls` as root, where it is built (CONFIG_TLS)",
        )),
        Err(errno) => Err(io::Error::new(errno.kind(), format!("the kernel's TLS cannot be used: {errno}"))),
    }
}

fn try_it() -> Result<Support, Errno> {
    let errno = |error: io::Error| Errno::from_io_error(&error).unwrap_or(Errno::IO);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(errno)?;
    let client = TcpStream::connect(listener.local_addr().map_err(errno)?).map_err(errno)?;
    let _server = listener.accept().map_err(errno)?;
    let socket = client.as_fd();
    attach(socket)?;
    let info = Info::new(&TrafficKeys {
        direction: Direction::Transmit,
        cipher: Cipher::Aes128Gcm,
        key: [0; 32],
        iv: [0; 12],
        sequence: 0,
    });
    socket.set(&info)?;
    Ok(Support { rekeys: socket.set(&info).is_ok() })
}
