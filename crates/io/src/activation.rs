//! Listening sockets that others have made: systemd by socket activation, a parent process, or the program itself.
//!
//! [`take`] returns the sockets that systemd has passed to this process (`sd_listen_fds(3)`). [`listen`] makes one, for
//! programs that need it before they start a server: to give up privileges, or to pass it to a child.
//!
//! ```
//! # mod tautline { pub use tautline_io::activation; }
//! use tautline::activation;
//!
//! let passed = activation::take()?; // nothing, unless a supervisor started this program
//! assert!(passed.is_empty());
//! # Ok::<(), std::io::Error>(())
//! ```

mod sys;

use crate::{Address, ListenOptions, socket};
use rustix::fd::{AsFd, OwnedFd, RawFd};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicBool, Ordering};

/// The first descriptor that is passed (`SD_LISTEN_FDS_START`).
const FIRST: RawFd = 3;

/// A socket that was passed to this process.
#[derive(Debug)]
#[non_exhaustive]
pub struct Passed {
    /// Its name: `FileDescriptorName=` of systemd's socket unit. Empty if the supervisor gives no names.
    pub name: String,
    /// The socket.
    pub socket: OwnedFd,
}

/// Takes the sockets that systemd or another supervisor has opened for this process, in the order of its configuration.
///
/// The supervisor describes them in `LISTEN_PID`, `LISTEN_FDS` and `LISTEN_FDNAMES`. Without these, or if they are meant
/// for another process, the result is empty. So it is at every call but the first.
///
/// # Errors
/// The variables are malformed, or a descriptor was closed or taken before.
pub fn take() -> io::Result<Vec<Passed>> {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    if TAKEN.swap(true, Ordering::SeqCst) {
        return Ok(Vec::new());
    }
    let Some((count, names)) = passed(std::process::id(), |name| std::env::var(name).ok())? else {
        return Ok(Vec::new());
    };
    let mut names = names.split(':');
    (FIRST..)
        .take(count)
        .map(|number| {
            let name = names.next().unwrap_or_default().to_owned();
            let socket = sys::take(number).map_err(|error| {
                io::Error::new(error.kind(), format!("LISTEN_FDS={count}, but descriptor {number}: {error}"))
            })?;
            Ok(Passed { name, socket })
        })
        .collect()
}

/// Makes a listening TCP socket, as the drivers do.
///
/// With [`ListenOptions::reuse_port`] further sockets may listen at the same address (`SO_REUSEPORT`), and the kernel
/// spreads connections over them. All must have the option, and belong to one user.
///
/// # Errors
/// `socket(2)`, `bind(2)` or `listen(2)` fails.
pub fn listen(at: SocketAddr, options: &ListenOptions) -> io::Result<TcpListener> {
    socket::listen(&Address::Tcp(at), options).map(|listening| TcpListener::from(listening.fd))
}

/// The address at which a socket listens.
///
/// # Errors
/// The socket has none: it is no socket of TCP or Unix.
pub fn address(socket: impl AsFd) -> io::Result<Address> {
    socket::local(socket.as_fd())
}

/// The number of descriptors and their names, if there are some for the process `pid`.
fn passed(pid: u32, variable: impl Fn(&str) -> Option<String>) -> io::Result<Option<(usize, String)>> {
    let number = |name: &str| {
        let Some(text) = variable(name) else { return Ok(None) };
        text.parse::<u32>().map(Some).map_err(|_| {
            let what = format!("{name}={text:?} is no number: the supervisor that started this program must set it");
            io::Error::new(io::ErrorKind::InvalidInput, what)
        })
    };
    if number("LISTEN_PID")? != Some(pid) {
        return Ok(None);
    }
    let Some(count) = number("LISTEN_FDS")? else { return Ok(None) };
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    Ok(Some((count, variable("LISTEN_FDNAMES").unwrap_or_default())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(variables: &[(&str, &str)]) -> io::Result<Option<(usize, String)>> {
        passed(7, |name| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned()))
    }

    #[test]
    fn variables_count_only_for_their_process() {
        assert_eq!(read(&[]).unwrap(), None);
        assert_eq!(read(&[("LISTEN_FDS", "2")]).unwrap(), None);
        assert_eq!(read(&[("LISTEN_PID", "8"), ("LISTEN_FDS", "2")]).unwrap(), None);
        assert_eq!(read(&[("LISTEN_PID", "7")]).unwrap(), None);
        assert_eq!(read(&[("LISTEN_PID", "7"), ("LISTEN_FDS", "2")]).unwrap(), Some((2, String::new())));
        let named = [("LISTEN_PID", "7"), ("LISTEN_FDS", "2"), ("LISTEN_FDNAMES", "web:admin")];
        assert_eq!(read(&named).unwrap(), Some((2, "web:admin".to_owned())));
    }

    #[test]
    fn malformed_variables_are_named() {
        for [pid, fds] in [["seven", "1"], ["7", "-1"], ["7", "4294967296"], ["7", ""]] {
            let error = read(&[("LISTEN_PID", pid), ("LISTEN_FDS", fds)]).unwrap_err().to_string();
            assert!(error.contains("is no number"), "{error}");
        }
    }

    #[test]
    fn a_descriptor_of_this_process_is_not_taken() {
        // Rust opens descriptors that a new program does not get, so this one was not passed.
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let number = rustix::fd::AsRawFd::as_raw_fd(&socket);
        let error = sys::take(number).unwrap_err().to_string();
        assert!(error.contains("not passed"), "{error}");
        assert!(sys::take(1 << 20).unwrap_err().to_string().contains("not open"));
    }

    #[test]
    fn sockets_share_a_port_if_all_allow_it() {
        let mut options = ListenOptions { reuse_port: true, ..ListenOptions::default() };
        let first = listen("127.0.0.1:0".parse().unwrap(), &options).unwrap();
        let at = first.local_addr().unwrap();
        let second = listen(at, &options).unwrap();
        assert_eq!(address(&second).unwrap(), Address::Tcp(at));
        options.reuse_port = false;
        assert_eq!(listen(at, &options).unwrap_err().kind(), io::ErrorKind::AddrInUse);
    }
}
