use super::{Info, Socket as _, attach};
use rustix::fd::AsFd;
use rustix::io::Errno;
use std::io;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::OnceLock;
use tautline_window::kernel::{Cipher, Direction, TrafficKeys};

/// What the kernel's TLS can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Support {
    /// Keys can be replaced (Linux 6.14), as a KeyUpdate wants it.
    pub rekeys: bool,
}

/// What this kernel's TLS can do, tried once on a connection over the loopback interface.
///
/// # Errors
/// It has none: why, and what to do.
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
