//! Framed messages with descriptors over a Unix socket.
//!
//! A frame is its kind (1 byte), the number of descriptors (1), the length of its content (4, big-endian), and the content.
//! Descriptors come with the first byte (`SCM_RIGHTS`, unix(7)).

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg, sockopt,
};
use rustix::process::{Pid, PidfdFlags, geteuid, pidfd_open};
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;
use zeroize::Zeroizing;

/// The version of the protocol. Two builds of different versions cannot hand over to each other.
pub(super) const VERSION: u8 = 1;
/// The additions to the protocol that this build knows, the third byte of its greeting. Builds without that byte know none.
///
/// Since 1: many connections in a frame, totals, and `Resumed`. Since 2: connections that are sent ahead.
pub(super) const ADDITIONS: u8 = 2;
/// Most descriptors of a frame (`SCM_MAX_FD`).
pub(super) const MOST_FDS: usize = 253;
/// Longest content in bytes: a connection with a queue of this size.
const MOST: usize = 256 << 20;
/// Bytes of a frame's head.
const HEAD: usize = 6;

/// The purpose of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// New to old: the version of the protocol, the latest format of a saved connection that the new process reads, and the
    /// [additions](ADDITIONS) that it knows.
    Hello = 1,
    /// Old to new: the version, and a socket for each loop.
    Loops = 2,
    /// Old to new: listening sockets.
    Listening = 3,
    /// Old to new: all listening sockets were sent. The content is the ticket keys.
    Offered = 4,
    /// New to old: the loops have begun, and wait for connections.
    Started = 5,
    /// Old to new, on a loop's socket: a connection.
    Connection = 6,
    /// Old to new, on a loop's socket: there are no further ones. The content is the loop's totals, if it knows this addition.
    End = 7,
    /// New to old, on a loop's socket: numbers of the connections that were refused. Without content after a frame of
    /// connections ahead: the next one may come.
    Taken = 8,
    /// New to old: all loops have taken their connections.
    Ready = 9,
    /// Old to new: go on with them. The content is the server's totals, for a new process with additions.
    Commit = 10,
    /// New to old: they go on here.
    Running = 11,
    /// Either: everything stays as it was. The content says why.
    Abort = 12,
    /// Old to new, on a loop's socket: connections, each with its length in front.
    Connections = 13,
    /// New to old: all connections go on here. The content is the time in nanoseconds since `Commit` arrived.
    Resumed = 14,
    /// Old to new, on a loop's socket: connections as in `Connections`, which go on there for now. Their numbers count on from
    /// those before.
    Ahead = 15,
    /// Old to new, on a loop's socket: later states of such connections, each with its number in front.
    AheadAgain = 16,
    /// Old to new, on a loop's socket: last states of such connections. From the first frame of this kind, of `Gone` or of
    /// `Connections` on, no connection of this loop goes on there.
    Changed = 17,
    /// Old to new, on a loop's socket: numbers of connections ahead that stay there after all.
    Gone = 18,
}

impl Kind {
    const ALL: [Self; 18] = [
        Self::Hello,
        Self::Loops,
        Self::Listening,
        Self::Offered,
        Self::Started,
        Self::Connection,
        Self::End,
        Self::Taken,
        Self::Ready,
        Self::Commit,
        Self::Running,
        Self::Abort,
        Self::Connections,
        Self::Resumed,
        Self::Ahead,
        Self::AheadAgain,
        Self::Changed,
        Self::Gone,
    ];

    fn of(byte: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == byte)
    }
}

/// One end of a connection between the two processes.
#[derive(Debug)]
pub(super) struct Channel(UnixStream);

/// A frame. Its content may have keys, and is wiped.
pub(super) struct Frame {
    pub(super) kind: Kind,
    pub(super) content: Zeroizing<Vec<u8>>,
    pub(super) fds: Vec<OwnedFd>,
}

impl Channel {
    /// Each call waits at most for `patience`.
    pub(super) fn new(stream: UnixStream, patience: Duration) -> io::Result<Self> {
        stream.set_nonblocking(false)?;
        let channel = Self(stream);
        channel.wait_at_most(Some(patience))?;
        Ok(channel)
    }

    pub(super) fn wait_at_most(&self, patience: Option<Duration>) -> io::Result<()> {
        self.0.set_read_timeout(patience)?;
        self.0.set_write_timeout(patience)
    }

    pub(super) fn send(&mut self, kind: Kind, content: &[u8], fds: &[BorrowedFd<'_>]) -> io::Result<()> {
        let too_much = || io::Error::new(io::ErrorKind::InvalidInput, "a frame would be too long");
        if content.len() > MOST || fds.len() > MOST_FDS {
            return Err(too_much());
        }
        let [a, b, c, d] = u32::try_from(content.len()).map_err(|_| too_much())?.to_be_bytes();
        let head = [kind as u8, u8::try_from(fds.len()).map_err(|_| too_much())?, a, b, c, d];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FDS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
            return Err(too_much());
        }
        let parts = [IoSlice::new(&head), IoSlice::new(content)];
        let sent = retry(|| sendmsg(&self.0, &parts, &mut control, SendFlags::NOSIGNAL))?;
        if sent < HEAD {
            self.0.write_all(&head[sent..])?;
        }
        self.0.write_all(&content[sent.saturating_sub(HEAD)..])
    }

    /// The next frame. An [`Abort`](Kind::Abort) of the other process is an error.
    pub(super) fn receive(&mut self) -> io::Result<Frame> {
        let mut head = [0; HEAD];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FDS))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut parts = [IoSliceMut::new(&mut head)];
        let got = retry(|| recvmsg(&self.0, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC))?;
        if got.bytes == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut fds = Vec::new();
        for message in control.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                fds.extend(rights);
            }
        }
        self.0.read_exact(&mut head[got.bytes..])?;
        let [kind, count, a, b, c, d] = head;
        let len = u32::from_be_bytes([a, b, c, d]) as usize;
        let (Some(kind), true) = (Kind::of(kind), len <= MOST) else { return Err(misbehaves()) };
        if fds.len() != usize::from(count) {
            // The kernel drops descriptors for which this process has no room.
            let what = "descriptors were lost on their way; raise the limit of open files (ulimit -n)";
            return Err(io::Error::other(what));
        }
        let mut content = Zeroizing::new(vec![0; len]);
        self.0.read_exact(&mut content)?;
        if kind == Kind::Abort {
            return Err(io::Error::other(format!("the other process gave up: {}", String::from_utf8_lossy(&content))));
        }
        Ok(Frame { kind, content, fds })
    }

    /// The next frame, of this kind.
    pub(super) fn expect(&mut self, kind: Kind) -> io::Result<Frame> {
        let frame = self.receive()?;
        if frame.kind == kind { Ok(frame) } else { Err(misbehaves()) }
    }

    /// Tells the other process that everything stays as it was.
    pub(super) fn abort(&mut self, why: &io::Error) {
        // If the other process is gone, it knows.
        let _ = self.send(Kind::Abort, why.to_string().as_bytes(), &[]);
    }

    /// Refuses the process at the other end, unless it has this user (default: the user of this process).
    pub(super) fn check_peer(&self, user: Option<u32>) -> io::Result<Peer> {
        let peer = sockopt::socket_peercred(&self.0)?;
        let expected = user.unwrap_or_else(|| geteuid().as_raw());
        if peer.uid.as_raw() != expected {
            let what = format!("the other process has user {}, and not {expected}", peer.uid.as_raw());
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
        }
        Peer::watch(peer.pid)
    }
}

/// Waits until one of these has something to receive, and returns its number.
pub(super) fn wait_for_any<'c>(channels: impl Iterator<Item = &'c Channel>, patience: Duration) -> io::Result<usize> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut fds: Vec<_> = channels.map(|channel| PollFd::new(channel, PollFlags::IN)).collect();
    let patience = Timespec::try_from(patience).map_err(io::Error::other)?;
    while rustix::io::retry_on_intr(|| poll(&mut fds, Some(&patience)))? > 0 {
        if let Some(number) = fds.iter().position(|fd| !fd.revents().is_empty()) {
            return Ok(number);
        }
    }
    Err(late())
}

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// The process at the other end.
#[derive(Debug)]
pub(super) struct Peer(OwnedFd);

impl Peer {
    fn watch(pid: Pid) -> io::Result<Self> {
        Ok(Self(pidfd_open(pid, PidfdFlags::empty())?))
    }

    /// Whether it has ended. A process that ends closes its sockets first, so this waits a little for its end.
    pub(super) fn has_ended(&self) -> bool {
        use rustix::event::{PollFd, PollFlags, Timespec, poll};
        let patience = Timespec { tv_sec: 1, tv_nsec: 0 };
        poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&patience)).is_ok_and(|ready| ready > 0)
    }
}

fn retry<T>(mut call: impl FnMut() -> rustix::io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Err(late()),
            other => return Ok(other?),
        }
    }
}

fn late() -> io::Error {
    io::Error::new(io::ErrorKind::TimedOut, "the other process does not answer in time")
}

/// The error for a process that does not keep to the protocol.
pub(super) fn misbehaves() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the other process does not speak this protocol")
}

/// The error for a process whose protocol is another one.
pub(super) fn other_version(version: u8) -> io::Error {
    let what = format!("the other process speaks version {version} of the protocol, and this build version {VERSION}");
    io::Error::new(io::ErrorKind::Unsupported, what)
}

#[cfg(test)]
mod tests {
    use super::{Channel, Kind, MOST_FDS};
    use std::fs::File;
    use std::io::{Read, Write};
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    fn pair() -> (Channel, Channel) {
        let (one, two) = UnixStream::pair().unwrap();
        let patience = Duration::from_secs(20);
        (Channel::new(one, patience).unwrap(), Channel::new(two, patience).unwrap())
    }

    #[test]
    fn frames_arrive_whole_and_with_their_descriptors() {
        let (mut one, mut two) = pair();
        let big: Vec<u8> = (0..3_000_000_u32).map(|at| at.to_le_bytes()[1]).collect();
        let sent = big.clone();
        let sender = std::thread::spawn(move || {
            let null = File::open("/dev/null").unwrap();
            one.send(Kind::Hello, b"", &[]).unwrap();
            one.send(Kind::Connection, &sent, &[null.as_fd()]).unwrap();
            one.send(Kind::Connection, b"short", &[null.as_fd(); MOST_FDS]).unwrap();
            assert!(one.send(Kind::Connection, b"", &[null.as_fd(); MOST_FDS + 1]).is_err());
            one.abort(&std::io::Error::other("no reason"));
        });
        assert!(two.expect(Kind::Hello).unwrap().content.is_empty());
        let frame = two.expect(Kind::Connection).unwrap();
        assert!(frame.content[..] == big[..] && frame.fds.len() == 1);
        let frame = two.expect(Kind::Connection).unwrap();
        assert_eq!((&frame.content[..], frame.fds.len()), (&b"short"[..], MOST_FDS));
        assert_eq!(File::from(frame.fds.into_iter().next().unwrap()).read(&mut [0]).unwrap(), 0);
        assert!(two.receive().err().unwrap().to_string().ends_with("gave up: no reason"));
        sender.join().unwrap();
        assert_eq!(two.receive().err().unwrap().kind(), std::io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn strangers_are_refused() {
        let (one, _two) = pair();
        assert!(!one.check_peer(None).unwrap().has_ended(), "this process runs");
        let other = rustix::process::geteuid().as_raw() + 1;
        assert_eq!(one.check_peer(Some(other)).unwrap_err().kind(), std::io::ErrorKind::PermissionDenied);
    }

    #[test]
    fn other_bytes_are_errors() {
        for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[6, 1, 0, 0, 0, 0], &[6, 0, 255, 0, 0, 0], &[99, 0, 0, 0, 0, 0]]
        {
            let (one, two) = UnixStream::pair().unwrap();
            (&one).write_all(bytes).unwrap();
            drop(one);
            assert!(Channel::new(two, Duration::from_secs(20)).unwrap().receive().is_err());
        }
    }
}
