//! The way by which a server tells `taut upgrade` at once that it goes on.
//!
//! `taut upgrade` has a socket in the abstract namespace whose name is that of the server's process. The server sends the reason
//! there. Without such a socket nothing happens: SIGUSR2 may come from anybody.

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg, sockopt};
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Most bytes of a reason.
const MOST: usize = 4096;

/// The address at which `taut upgrade` hears of a process.
fn address(process: i32) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("taut-upgrade-{process}"))
}

/// The end of `taut upgrade`.
pub(crate) struct Refusals {
    socket: UnixDatagram,
    process: i32,
}

impl Refusals {
    /// Listens for the refusal of a process.
    pub(crate) fn listen(process: i32) -> io::Result<Self> {
        let socket = UnixDatagram::bind_addr(&address(process)?)?;
        socket.set_nonblocking(true)?;
        sockopt::set_socket_passcred(&socket, true)?;
        Ok(Self { socket, process })
    }

    /// The reason that the process has sent. `None` if another process has sent something.
    pub(crate) fn next(&self) -> Option<String> {
        let mut content = [0; MOST];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmCredentials(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(&mut content)];
        let got = recvmsg(&self.socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC).ok()?.bytes;
        let is_sender = control.drain().any(|message| {
            matches!(message, RecvAncillaryMessage::ScmCredentials(from) if from.pid.as_raw_nonzero().get() == self.process)
        });
        is_sender.then(|| String::from_utf8_lossy(&content[..got]).into_owned())
    }
}

impl AsFd for Refusals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// The server's end. It is made before the process gives up that right.
pub(crate) struct Teller(Option<UnixDatagram>);

impl Teller {
    pub(crate) fn new() -> Self {
        let socket = UnixDatagram::unbound().and_then(|socket| {
            socket.set_nonblocking(true)?;
            Ok(socket)
        });
        Self(socket.inspect_err(|error| log::debug!("refusals of upgrades are not sent: {error}")).ok())
    }

    /// Sends a reason to the `taut upgrade` that waits for this process, if there is one.
    pub(crate) fn tell(&self, why: &str) {
        let own = i32::try_from(std::process::id()).ok().and_then(|own| address(own).ok());
        if let (Some(socket), Some(address)) = (&self.0, own) {
            let _ = socket.send_to_addr(&why.as_bytes()[..why.len().min(MOST)], &address);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Refusals, Teller};
    use std::time::Duration;

    #[test]
    fn a_refusal_arrives_and_other_processes_are_not_believed() {
        let own = i32::try_from(std::process::id()).unwrap();
        let teller = Teller::new();
        teller.tell("nobody waits");
        let refusals = Refusals::listen(own).unwrap();
        teller.tell("no upgrade: not today");
        assert_eq!(refusals.next().as_deref(), Some("no upgrade: not today"));
        assert_eq!(refusals.next(), None);
        // This process is not that one.
        let other = Refusals { process: own + 1, ..refusals };
        teller.tell("no upgrade: another");
        std::thread::sleep(Duration::from_millis(1));
        assert_eq!(other.next(), None);
    }
}
