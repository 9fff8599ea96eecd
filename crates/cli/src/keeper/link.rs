//! The words between the keeper and a worker: one packet each, of a byte for its kind, a text, and at most one descriptor.

use rustix::io::retry_on_intr;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

/// Most bytes of a packet.
const MOST: usize = 4096;

/// One end of the socket between the keeper and a worker.
#[derive(Debug)]
pub(super) struct Link(pub(super) OwnedFd);

/// A packet as it came.
struct Packet {
    kind: u8,
    text: String,
    fd: Option<OwnedFd>,
}

/// A word of a worker.
#[derive(Debug)]
pub(crate) enum Request {
    /// It serves.
    Serves,
    /// Start a successor, and give it this socket to its predecessor. The answer repeats the number.
    Successor(u32, OwnedFd),
    /// Notify the service manager.
    Notify(String),
    /// It goes on, and refuses an upgrade for this reason, which `taut upgrade` is told.
    Refused(String),
    /// All connections that can move are at this process, which serves them. `taut upgrade` is told.
    Moved(u32),
    /// End a successor that has not taken over.
    Abandon,
    /// Stop: a signal came to the worker, and not to the keeper.
    Stop,
}

/// A word of the keeper.
#[derive(Debug)]
pub(super) enum Answer {
    /// A socket to listen at, which the service manager has opened.
    Socket(OwnedFd),
    /// The socket to the predecessor.
    TakeOver(OwnedFd),
    /// There are no more sockets.
    Begin,
    /// To the request of this number: the successor is this process.
    Started(u32, u32),
    /// To the request of this number: no successor was started, for this reason.
    NotStarted(u32, String),
    /// This process, a successor, has ended so.
    Ended(u32, String),
}

impl Link {
    pub(super) fn pair() -> io::Result<(Self, Self)> {
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        Ok((Self(ours), Self(theirs)))
    }

    pub(super) fn ask(&self, request: &Request) -> io::Result<()> {
        // A keeper that is stopped must not stop a worker. Only a queue of hundreds of words is full.
        let flags = SendFlags::DONTWAIT;
        match request {
            Request::Serves => self.send(flags, b'R', "", None),
            Request::Successor(number, stream) => self.send(flags, b'U', &number.to_string(), Some(stream.as_fd())),
            Request::Notify(state) => self.send(flags, b'N', state, None),
            Request::Refused(why) => self.send(flags, b'F', why, None),
            Request::Moved(process) => self.send(flags, b'M', &process.to_string(), None),
            Request::Abandon => self.send(flags, b'A', "", None),
            Request::Stop => self.send(flags, b'Q', "", None),
        }
    }

    /// The next word of a worker, if one has come.
    pub(super) fn next_request(&self) -> io::Result<Option<Request>> {
        loop {
            let packet = match self.receive(RecvFlags::DONTWAIT) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                packet => packet?,
            };
            let request = match (packet.kind, packet.fd) {
                (b'R', _) => Some(Request::Serves),
                (b'U', Some(stream)) => packet.text.parse().ok().map(|number| Request::Successor(number, stream)),
                (b'N', _) => Some(Request::Notify(packet.text)),
                (b'F', _) => Some(Request::Refused(packet.text)),
                (b'M', _) => packet.text.parse().ok().map(Request::Moved),
                (b'A', _) => Some(Request::Abandon),
                (b'Q', _) => Some(Request::Stop),
                // The worker may be of a newer build.
                _ => None,
            };
            if request.is_some() {
                return Ok(request);
            }
        }
    }

    pub(super) fn answer(&self, answer: &Answer) -> io::Result<()> {
        // Nor must a worker that is stopped stop the keeper.
        let flags = SendFlags::DONTWAIT;
        match answer {
            Answer::Socket(socket) => self.send(flags, b'L', "", Some(socket.as_fd())),
            Answer::TakeOver(stream) => self.send(flags, b'T', "", Some(stream.as_fd())),
            Answer::Begin => self.send(flags, b'B', "", None),
            Answer::Started(number, process) => self.send(flags, b'S', &format!("{number} {process}"), None),
            Answer::NotStarted(number, why) => self.send(flags, b'X', &format!("{number} {why}"), None),
            Answer::Ended(process, how) => self.send(flags, b'E', &format!("{process} {how}"), None),
        }
    }

    /// Waits for the next word of the keeper.
    pub(super) fn next_answer(&self) -> io::Result<Answer> {
        loop {
            let packet = self.receive(RecvFlags::empty())?;
            let answer = match (packet.kind, packet.fd) {
                (b'L', Some(socket)) => Some(Answer::Socket(socket)),
                (b'T', Some(stream)) => Some(Answer::TakeOver(stream)),
                (b'B', _) => Some(Answer::Begin),
                (b'S', _) => numbered(&packet.text)
                    .and_then(|(number, process)| Some(Answer::Started(number, process.parse().ok()?))),
                (b'X', _) => numbered(&packet.text).map(|(number, why)| Answer::NotStarted(number, why.to_owned())),
                (b'E', _) => numbered(&packet.text).map(|(process, how)| Answer::Ended(process, how.to_owned())),
                _ => None,
            };
            if let Some(answer) = answer {
                return Ok(answer);
            }
        }
    }

    fn send(&self, flags: SendFlags, kind: u8, text: &str, fd: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let text = &text.as_bytes()[..text.len().min(MOST - 1)];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let fds: Vec<_> = fd.into_iter().collect();
        if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(&fds)) {
            return Err(io::Error::other("no space for a descriptor"));
        }
        let kind = [kind];
        let parts = [IoSlice::new(&kind), IoSlice::new(text)];
        retry_on_intr(|| sendmsg(&self.0, &parts, &mut control, flags | SendFlags::NOSIGNAL))?;
        Ok(())
    }

    fn receive(&self, flags: RecvFlags) -> io::Result<Packet> {
        let mut content = [0; MOST];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let got = retry_on_intr(|| {
            recvmsg(&self.0, &mut [IoSliceMut::new(&mut content)], &mut control, flags | RecvFlags::CMSG_CLOEXEC)
        })?;
        let fd = control.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
            _ => None,
        });
        let Some((kind, text)) = content[..got.bytes].split_first() else {
            return Err(io::ErrorKind::UnexpectedEof.into());
        };
        Ok(Packet { kind: *kind, text: String::from_utf8_lossy(text).into_owned(), fd })
    }
}

impl AsFd for Link {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A number, and the text behind it.
fn numbered(text: &str) -> Option<(u32, &str)> {
    let (number, rest) = text.split_once(' ')?;
    Some((number.parse().ok()?, rest))
}

/// The end of a process, for a log: `process ended with status 2`.
pub(crate) fn described(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("process ended with status {code}"),
        (None, Some(signal)) => {
            let name = signal_hook::low_level::signal_name(signal).unwrap_or("unknown");
            format!("process was ended by signal {signal} ({name})")
        }
        (None, None) => "process has ended".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::{Answer, Link, MOST, Request};
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn words_and_descriptors_arrive_and_longer_ones_are_cut() {
        let (keeper, worker) = Link::pair().unwrap();
        let (stream, _other) = UnixStream::pair().unwrap();
        worker.ask(&Request::Successor(3, OwnedFd::from(stream))).unwrap();
        worker.ask(&Request::Notify("x".repeat(2 * MOST))).unwrap();
        assert!(matches!(keeper.next_request().unwrap(), Some(Request::Successor(3, _))));
        assert!(matches!(keeper.next_request().unwrap(), Some(Request::Notify(state)) if state.len() == MOST - 1));
        assert!(keeper.next_request().unwrap().is_none());
        keeper.answer(&Answer::Started(3, 7)).unwrap();
        assert!(matches!(worker.next_answer().unwrap(), Answer::Started(3, 7)));
        keeper.answer(&Answer::Ended(7, "process ended with status 2".to_owned())).unwrap();
        let answer = worker.next_answer().unwrap();
        assert!(matches!(answer, Answer::Ended(7, how) if how == "process ended with status 2"));
        drop(keeper);
        assert!(worker.next_answer().is_err());
    }

    #[test]
    fn words_of_another_build_are_skipped() {
        let (keeper, worker) = Link::pair().unwrap();
        let flags = rustix::net::SendFlags::DONTWAIT;
        for kind in *b"zMU" {
            worker.send(flags, kind, "no number, no descriptor", None).unwrap();
        }
        worker.ask(&Request::Serves).unwrap();
        assert!(matches!(keeper.next_request().unwrap(), Some(Request::Serves)));
        for kind in *b"zSXE" {
            keeper.send(flags, kind, "no number", None).unwrap();
        }
        keeper.answer(&Answer::Begin).unwrap();
        assert!(matches!(worker.next_answer().unwrap(), Answer::Begin));
    }
}
