use rustix::fd::OwnedFd;
use rustix::io::Errno;
use tautline_window::Buf;

/// How far a connection is.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// connect(2) is not answered yet.
    Connecting,
    Open,
    /// Broken. The sink was told, or will be.
    Failed,
    /// The user closed it, but what is pending is still to be sent.
    Orphan,
}

/// What becomes of a request that completes several times.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Multi {
    Idle,
    Armed,
    /// Cancelled, but its last completion was not taken.
    Cancelled,
}

/// Why no more bytes come, as long as the sink does not know.
#[derive(Clone, Copy)]
pub(super) enum Ending {
    Finished,
    Failed(Errno),
}

/// So many receives in a row change how a connection is received from, see [`Conn::weigh`].
const MOST_WEIGHT: u8 = 8;

/// One connection.
#[expect(
    clippy::struct_excessive_bools,
    reason = "independent facts about one socket; packed they fill two cache lines"
)]
pub(super) struct Conn {
    pub(super) fd: OwnedFd,
    pub(super) phase: Phase,
    pub(super) receiving: Multi,
    /// Errors are watched for, as nothing is received that would tell of them.
    pub(super) watching: bool,
    /// An error was told of while something was received.
    pub(super) alarm: bool,
    /// The sink wants no bytes for now.
    pub(super) paused: bool,
    /// Something is there that the driver has to receive by itself: the kernel had no buffer for it, or only tells of it.
    pub(super) hungry: bool,
    /// It is better told of what arrives, and received from by the driver itself: messages are large.
    pub(super) bulk: bool,
    /// What `receiving` is: told of, and not received for.
    pub(super) polled: bool,
    /// Something lies behind the bytes that can be received: a short receive does not mean that all is received.
    pub(super) behind: bool,
    /// How many of the last receives were large.
    pub(super) weight: u8,
    /// A later turn looks at it without being told by the kernel.
    pub(super) queued: bool,
    /// The peer finished its direction, and the sink was told.
    pub(super) finished: bool,
    /// Our direction is to be finished once all is sent.
    pub(super) finishing: bool,
    /// The kernel cannot send from our buffers here: a Unix socket.
    pub(super) copied: bool,
    /// The turn that delivered bytes last.
    pub(super) turn: u64,
    /// [`Ring::flushes`](super::sys::Ring::flushes) when something was last asked of the socket.
    pub(super) flush: u32,
    /// The send that the kernel works on.
    pub(super) sending: Option<u32>,
    /// What is to be sent after it.
    pub(super) out: Buf,
    /// What arrived and cannot be delivered yet.
    pub(super) backlog: Option<Box<Backlog>>,
    /// What comes behind the backlog.
    pub(super) ending: Option<Ending>,
    /// Why it is broken, until the sink knows.
    pub(super) error: Option<Errno>,
}

const _: () = assert!(size_of::<Option<Conn>>() <= 128);

impl Conn {
    pub(super) const fn new(fd: OwnedFd, phase: Phase) -> Self {
        Self {
            fd,
            phase,
            receiving: Multi::Idle,
            watching: false,
            alarm: false,
            paused: false,
            hungry: false,
            bulk: false,
            polled: false,
            behind: false,
            weight: 0,
            queued: false,
            finished: false,
            finishing: false,
            copied: false,
            turn: 0,
            flush: 0,
            sending: None,
            out: Buf::new(),
            backlog: None,
            ending: None,
            error: None,
        }
    }

    /// Whether nothing given to send is left.
    pub(super) fn drained(&self) -> bool {
        self.sending.is_none() && self.out.is_empty()
    }

    /// Learns from a receive. Changing how a connection is received from costs as much as some messages, so it takes
    /// several.
    pub(super) fn weigh(&mut self, large: bool) {
        if !large {
            self.weight = self.weight.saturating_sub(1);
        } else if self.weight < MOST_WEIGHT {
            self.weight += 1;
        }
        match self.weight {
            0 => self.bulk = false,
            MOST_WEIGHT => self.bulk = true,
            _ => {}
        }
    }

    pub(super) fn backlog_len(&self) -> usize {
        self.backlog.as_ref().map_or(0, |backlog| backlog.len())
    }
}

/// Bytes that wait for the sink, with room in front.
pub(super) struct Backlog {
    bytes: Vec<u8>,
    start: usize,
}

impl Backlog {
    pub(super) fn new(headroom: usize) -> Self {
        Self { bytes: vec![0; headroom], start: headroom }
    }

    pub(super) fn put(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    pub(super) const fn len(&self) -> usize {
        self.bytes.len() - self.start
    }

    /// Takes at most `most` bytes: they begin behind the returned number.
    pub(super) fn take(&mut self, most: usize) -> (&mut [u8], usize) {
        let start = self.start;
        self.start += self.len().min(most);
        (&mut self.bytes[..self.start], start)
    }
}
