//! The way by which a server tells `taut upgrade` at once how an upgrade has ended.
//!
//! `taut upgrade` has a socket in the abstract namespace whose name is that of the server's process. The server sends its verdict
//! there. Without such a socket nothing happens: SIGUSR2 may come from anybody.

use crate::keeper::{Request, Worker};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg, sockopt};
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

/// Most bytes of a verdict.
const MOST: usize = 4096;

/// The end of an upgrade.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The old process goes on, for this reason.
    Refused(String),
    /// The new process serves, and the old one closes what could not move.
    Moved { from: u32, to: u32 },
}

impl Verdict {
    fn encode(&self) -> String {
        match self {
            Self::Refused(why) => format!("refused {why}"),
            Self::Moved { from, to } => format!("moved {from} {to}"),
        }
    }

    fn decode(text: &str) -> Option<Self> {
        match text.split_once(' ')? {
            ("refused", why) => Some(Self::Refused(why.to_owned())),
            ("moved", processes) => {
                let (from, to) = processes.split_once(' ')?;
                Some(Self::Moved { from: from.parse().ok()?, to: to.parse().ok()? })
            }
            _ => None,
        }
    }
}

/// The address at which `taut upgrade` hears of a process.
fn address(process: u32) -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(format!("taut-upgrade-{process}"))
}

/// The end of `taut upgrade`.
pub(crate) struct Verdicts {
    socket: UnixDatagram,
    process: u32,
}

impl Verdicts {
    /// Listens for the verdict of a process.
    pub(crate) fn listen(process: u32) -> io::Result<Self> {
        let socket = UnixDatagram::bind_addr(&address(process)?)?;
        socket.set_nonblocking(true)?;
        sockopt::set_socket_passcred(&socket, true)?;
        Ok(Self { socket, process })
    }

    /// The verdict that the process has sent. `None` if another process has sent something.
    pub(crate) fn next(&self) -> Option<Verdict> {
        let mut content = [0; MOST];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmCredentials(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(&mut content)];
        let got = recvmsg(&self.socket, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC).ok()?.bytes;
        let is_sender = control.drain().any(|message| {
            matches!(message, RecvAncillaryMessage::ScmCredentials(from)
                if from.pid.as_raw_nonzero().get().unsigned_abs() == self.process)
        });
        is_sender.then(|| Verdict::decode(&String::from_utf8_lossy(&content[..got]))).flatten()
    }
}

impl AsFd for Verdicts {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// The server's end. It is made before the process gives up that right.
pub(crate) enum Teller {
    /// `taut upgrade` waits for this process.
    Own(Option<UnixDatagram>),
    /// `taut upgrade` waits for the keeper.
    Keeper(Worker),
}

impl Teller {
    pub(crate) fn new(worker: Option<Worker>) -> Self {
        if let Some(worker) = worker {
            return Self::Keeper(worker);
        }
        let socket = UnixDatagram::unbound().and_then(|socket| {
            socket.set_nonblocking(true)?;
            Ok(socket)
        });
        Self::Own(socket.inspect_err(|error| log::debug!("verdicts on upgrades are not sent: {error}")).ok())
    }

    /// Tells why this process goes on.
    pub(crate) fn refuse(&self, why: &str) {
        match self {
            Self::Own(_) => self.tell(&Verdict::Refused(why.to_owned())),
            Self::Keeper(worker) => worker.ask(&Request::Refused(why.to_owned())),
        }
    }

    /// Tells that the process `to` serves in place of `from`.
    pub(crate) fn moved(&self, from: u32, to: u32) {
        match self {
            Self::Own(_) => self.tell(&Verdict::Moved { from, to }),
            Self::Keeper(worker) => worker.ask(&Request::Moved(to)),
        }
    }

    /// Sends a verdict to the `taut upgrade` that waits for this process, if there is one.
    fn tell(&self, verdict: &Verdict) {
        if let (Self::Own(Some(socket)), Ok(address)) = (self, address(std::process::id())) {
            let text = verdict.encode();
            let _ = socket.send_to_addr(&text.as_bytes()[..text.len().min(MOST)], &address);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Teller, Verdict, Verdicts};
    use std::time::Duration;

    #[test]
    fn a_verdict_arrives_and_other_processes_are_not_believed() {
        let own = std::process::id();
        let teller = Teller::new(None);
        teller.refuse("nobody waits");
        let verdicts = Verdicts::listen(own).unwrap();
        teller.refuse("no upgrade: not today");
        assert_eq!(verdicts.next(), Some(Verdict::Refused("no upgrade: not today".to_owned())));
        teller.moved(7, 8);
        assert_eq!(verdicts.next(), Some(Verdict::Moved { from: 7, to: 8 }));
        assert_eq!(verdicts.next(), None);
        // This process is not that one.
        let other = Verdicts { process: own + 1, ..verdicts };
        teller.refuse("no upgrade: another");
        std::thread::sleep(Duration::from_millis(1));
        assert_eq!(other.next(), None);
    }
}
