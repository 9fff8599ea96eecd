//! Framed messages with descriptors over a Unix socket.
//!
//! A frame is its kind (1 byte), the number of descriptors (1), the length of its content (4, big-endian), and the content.
//! Descriptors come with the first byte (`SCM_RIGHTS`, unix(7)).

use super::kind::Kind;
use super::protocol::{Input, Wrote};
use rustix::fs::{Mode, OFlags, fstat, open};
use rustix::io::{Errno, FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags,
    recvmsg, sendmsg, sockopt,
};
use rustix::process::geteuid;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::{self, MaybeUninit};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;
use zeroize::Zeroizing;

/// How long one process waits for the other, while connections wait for both.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);
/// The version of the protocol. Two builds of different versions cannot hand over to each other.
pub(super) const VERSION: u8 = 2;
/// Most descriptors of a frame (`SCM_MAX_FD`).
pub(super) const MOST_FDS: usize = 253;
/// Longest content in bytes: a connection with a queue of this size.
pub(super) const MOST: usize = if cfg!(test) { 8 << 20 } else { 256 << 20 };
/// Bytes of a frame's head.
const HEAD: usize = 6;

/// One end of a connection between the two processes.
#[derive(Debug)]
pub(super) struct Channel {
    stream: UnixStream,
    arriving: Arriving,
    /// A part of a frame was sent and the rest was not: a further frame would count as that rest.
    broken: bool,
}

/// A frame. Its content may have keys, and is wiped.
pub(super) struct Frame {
    pub(super) kind: Kind,
    pub(super) content: Zeroizing<Vec<u8>>,
    pub(super) fds: Vec<OwnedFd>,
}

/// The part of a frame that has come. It is kept if the rest is late.
#[derive(Default)]
struct Arriving {
    head: [u8; HEAD],
    /// Bytes of the head.
    got: usize,
    content: Zeroizing<Vec<u8>>,
    /// Bytes of the content.
    filled: usize,
    fds: Vec<OwnedFd>,
}

impl std::fmt::Debug for Arriving {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} bytes", self.got + self.filled)
    }
}

/// The result of a wait for a frame.
pub(super) enum Heard {
    Frame(Frame),
    /// The end of the stream, perhaps within a frame of this kind.
    End {
        within: Option<Kind>,
    },
    /// Bytes that are no frame, or a socket that fails.
    Garbage(io::Error),
    Late,
}

impl Heard {
    /// This for the state machines.
    pub(super) const fn input(&self) -> Input {
        match self {
            Self::Frame(frame) => Input::Frame(frame.kind),
            Self::End { within } => Input::End { within: *within },
            Self::Garbage(_) => Input::Garbage,
            Self::Late => Input::Late,
        }
    }

    /// A frame that is not the other side's last one; everything else as an error.
    pub(super) fn frame(self) -> io::Result<Frame> {
        match self {
            Self::Frame(Frame { kind: Kind::Abort, content, .. }) => {
                Err(io::Error::other(format!("the other process gave up: {}", String::from_utf8_lossy(&content))))
            }
            Self::Frame(frame) => Ok(frame),
            Self::End { .. } => {
                let what = "the other process has ended, or closed its socket, without a reason";
                Err(io::Error::new(io::ErrorKind::UnexpectedEof, what))
            }
            Self::Garbage(error) => Err(error),
            Self::Late => Err(late()),
        }
    }
}

impl Channel {
    /// Each call waits at most for `patience`.
    pub(super) fn new(stream: UnixStream, patience: Duration) -> io::Result<Self> {
        stream.set_nonblocking(false)?;
        let channel = Self { stream, arriving: Arriving::default(), broken: false };
        channel.wait_at_most(patience)?;
        Ok(channel)
    }

    pub(super) fn wait_at_most(&self, patience: Duration) -> io::Result<()> {
        // Zero would be no limit.
        let patience = Some(patience.max(Duration::from_millis(1)));
        self.stream.set_read_timeout(patience)?;
        self.stream.set_write_timeout(patience)
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
        self.is_whole()?;
        let parts = [IoSlice::new(&head), IoSlice::new(content)];
        let sent = retry(|| sendmsg(&self.stream, &parts, &mut control, SendFlags::NOSIGNAL))?;
        self.broken = true;
        if sent < HEAD {
            self.stream.write_all(&head[sent..])?;
        }
        self.stream.write_all(&content[sent.saturating_sub(HEAD)..])?;
        self.broken = false;
        Ok(())
    }

    /// The socket, for tests.
    #[cfg(test)]
    pub(super) const fn raw(&self) -> &UnixStream {
        &self.stream
    }

    fn is_whole(&self) -> io::Result<()> {
        if self.broken {
            Err(io::Error::new(io::ErrorKind::BrokenPipe, "a frame was sent in part only"))
        } else {
            Ok(())
        }
    }

    /// Sends a frame without content, and returns how far that came.
    pub(super) fn write(&mut self, kind: Kind) -> Wrote {
        let head = [kind as u8, 0, 0, 0, 0, 0];
        let mut sent = 0;
        while sent < HEAD {
            let mut none = SendAncillaryBuffer::default();
            match retry(|| sendmsg(&self.stream, &[IoSlice::new(&head[sent..])], &mut none, SendFlags::NOSIGNAL)) {
                Ok(more) => sent += more,
                Err(_) if sent > 0 => {
                    self.broken = true;
                    break;
                }
                Err(error) if is_closed(&error) => return Wrote::Closed,
                Err(error) => {
                    log::warn!("the word that this process goes on cannot be written: {error}");
                    return Wrote::Nothing;
                }
            }
        }
        Wrote::Some
    }

    /// Waits for the next frame. If only a part of it comes in time, the next call goes on with that.
    pub(super) fn hear(&mut self) -> Heard {
        match self.fill() {
            Ok(true) => {
                let Arriving { head, content, fds, .. } = mem::take(&mut self.arriving);
                // `fill` has checked the kind.
                Kind::of(head[0])
                    .map_or_else(|| Heard::Garbage(misbehaves()), |kind| Heard::Frame(Frame { kind, content, fds }))
            }
            Ok(false) => self.end(),
            Err(error) if is_closed(&error) => self.end(),
            Err(error) if error.kind() == io::ErrorKind::TimedOut => Heard::Late,
            Err(error) => Heard::Garbage(error),
        }
    }

    fn end(&self) -> Heard {
        let within = (self.arriving.got > 0).then_some(self.arriving.head[0]);
        match within.map(Kind::of) {
            Some(None) => Heard::Garbage(misbehaves()),
            within => Heard::End { within: within.flatten() },
        }
    }

    /// Completes the frame that arrives. False if the stream ends before.
    fn fill(&mut self) -> io::Result<bool> {
        let Self { stream, arriving: Arriving { head, got, content, filled, fds }, .. } = self;
        while *got < HEAD {
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_FDS))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let mut parts = [IoSliceMut::new(&mut head[*got..])];
            let more = retry(|| recvmsg(&*stream, &mut parts, &mut control, RecvFlags::CMSG_CLOEXEC))?.bytes;
            if more == 0 {
                return Ok(false);
            }
            for message in control.drain() {
                if let RecvAncillaryMessage::ScmRights(rights) = message {
                    fds.extend(rights);
                }
            }
            *got += more;
        }
        let [kind, count, a, b, c, d] = *head;
        let len = u32::from_be_bytes([a, b, c, d]) as usize;
        if Kind::of(kind).is_none() || len > MOST {
            return Err(misbehaves());
        }
        if fds.len() != usize::from(count) {
            // The kernel drops descriptors for which this process has no room.
            let what = "descriptors were lost on their way; raise the limit of open files (ulimit -n)";
            return Err(io::Error::other(what));
        }
        if content.len() != len {
            *content = Zeroizing::new(vec![0; len]);
        }
        while *filled < len {
            match (&*stream).read(&mut content[*filled..]) {
                Ok(0) => return Ok(false),
                Ok(more) => *filled += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Err(late()),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }

    /// The next frame. An [`Abort`](Kind::Abort) of the other process is an error.
    pub(super) fn receive(&mut self) -> io::Result<Frame> {
        self.hear().frame()
    }

    /// The next frame, of this kind.
    pub(super) fn expect(&mut self, kind: Kind) -> io::Result<Frame> {
        let frame = self.receive()?;
        if frame.kind == kind { Ok(frame) } else { Err(misbehaves()) }
    }

    /// Tells the other process that everything stays as it was.
    pub(super) fn abort(&mut self, why: &dyn std::fmt::Display) {
        // If the other process is gone, it knows.
        let _ = self.send(Kind::Abort, why.to_string().as_bytes(), &[]);
    }

    /// Refuses the process at the other end, unless it has this user (default: the user of this process).
    pub(super) fn check_peer(&self, user: Option<u32>) -> io::Result<()> {
        let peer = sockopt::socket_peercred(&self.stream)?;
        let expected = user.unwrap_or_else(|| geteuid().as_raw());
        if peer.uid.as_raw() == expected {
            return Ok(());
        }
        let what = format!("the other process has user {}, and not {expected}", peer.uid.as_raw());
        Err(io::Error::new(io::ErrorKind::PermissionDenied, what))
    }
}

/// Makes this process the only one with this end of a socket, for as long as it holds it: its end means something.
///
/// Programs that it starts do not inherit it. If it is a standard stream, or that is a copy of it, `/dev/null` takes its place.
pub(super) fn private(stream: UnixStream) -> io::Result<UnixStream> {
    let stream = if stream.as_raw_fd() < FIRST {
        let copy = fcntl_dupfd_cloexec(&stream, FIRST)?;
        // Its number stays in use: the next file of this process would get it.
        let _ = OwnedFd::from(stream).into_raw_fd();
        copy.into()
    } else {
        fcntl_setfd(&stream, FdFlags::CLOEXEC)?;
        stream
    };
    let own = fstat(&stream)?;
    let is_same =
        |other: BorrowedFd<'_>| fstat(other).is_ok_and(|it| (it.st_dev, it.st_ino) == (own.st_dev, own.st_ino));
    let null = || open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
    if is_same(io::stdin().as_fd()) {
        rustix::stdio::dup2_stdin(null()?)?;
    }
    if is_same(io::stdout().as_fd()) {
        rustix::stdio::dup2_stdout(null()?)?;
    }
    if is_same(io::stderr().as_fd()) {
        rustix::stdio::dup2_stderr(null()?)?;
    }
    Ok(stream)
}

/// The first descriptor behind the standard streams.
const FIRST: i32 = 3;

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
        self.stream.as_fd()
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

/// Whether the error says that the other end is closed.
pub(super) fn is_closed(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
    matches!(error.kind(), BrokenPipe | ConnectionReset | UnexpectedEof)
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
    use super::super::kind::Kind;
    use super::{Channel, MOST_FDS};
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
            one.send(Kind::Connections, &sent, &[null.as_fd()]).unwrap();
            one.send(Kind::Connections, b"short", &[null.as_fd(); MOST_FDS]).unwrap();
            assert!(one.send(Kind::Connections, b"", &[null.as_fd(); MOST_FDS + 1]).is_err());
            one.abort(&std::io::Error::other("no reason"));
        });
        assert!(two.expect(Kind::Hello).unwrap().content.is_empty());
        let frame = two.expect(Kind::Connections).unwrap();
        assert!(frame.content[..] == big[..] && frame.fds.len() == 1);
        let frame = two.expect(Kind::Connections).unwrap();
        assert_eq!((&frame.content[..], frame.fds.len()), (&b"short"[..], MOST_FDS));
        assert_eq!(File::from(frame.fds.into_iter().next().unwrap()).read(&mut [0]).unwrap(), 0);
        assert!(two.receive().err().unwrap().to_string().ends_with("gave up: no reason"));
        sender.join().unwrap();
        assert_eq!(two.receive().err().unwrap().kind(), std::io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn strangers_are_refused() {
        let (one, _two) = pair();
        one.check_peer(None).unwrap();
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
