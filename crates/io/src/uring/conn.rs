pub(super) use crate::slots::Phase;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use tautline_buf::Buf;

/// The state of a request that completes several times.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Multi {
    Idle,
    Armed,
    /// Cancelled, but its last completion was not taken.
    Cancelled,
}

/// The reason why no more bytes come, until the sink knows it.
#[derive(Clone, Copy)]
pub(super) enum Ending {
    Finished,
    Failed(Errno),
}

/// Number of receives in a row that changes how a connection is received from, see [`Conn::weigh`].
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
    /// The kernel watches for errors, because no receive would report them.
    pub(super) watching: bool,
    /// The watch reported an error or a hang-up that was not looked at yet.
    pub(super) alarm: bool,
    /// The sink wants no bytes for now.
    pub(super) paused: bool,
    /// Something is there that the driver has to receive itself: the kernel had no buffer for it, or only reported it.
    pub(super) hungry: bool,
    /// Messages are large: the kernel is to report bytes only, and the driver receives them itself.
    pub(super) bulk: bool,
    /// The request of `receiving` reports bytes and does not receive them.
    pub(super) polled: bool,
    /// Something lies behind the bytes that can be received: a short receive does not mean that all is received.
    pub(super) behind: bool,
    /// Rises with large receives and falls with others, from 0 to [`MOST_WEIGHT`].
    pub(super) weight: u8,
    /// A later turn looks at it without another report by the kernel.
    pub(super) queued: bool,
    /// The peer finished its direction, and the sink knows.
    pub(super) finished: bool,
    /// Our direction is to be finished once all is sent.
    pub(super) finishing: bool,
    /// The kernel cannot send from our buffers on this socket, as on Unix sockets.
    pub(super) copied: bool,
    /// The kernel did not take all bytes at once: the connection counts in [`Driver::waiting`](super::Driver).
    pub(super) full: bool,
    /// The kernel numbers sent bytes, and stamps some of them.
    pub(super) stamped: bool,
    /// Number of the last turn that delivered bytes of this connection.
    pub(super) turn: u64,
    /// [`Ring::flushes`](super::sys::Ring::flushes) when something was last asked of the socket.
    pub(super) flush: u32,
    /// The send that the kernel works on.
    pub(super) sending: Option<u32>,
    /// Bytes to send after it.
    pub(super) out: Buf,
    /// Bytes that arrived and cannot be delivered yet.
    pub(super) backlog: Option<Box<Backlog>>,
    /// The end of the stream, to be delivered after the backlog.
    pub(super) ending: Option<Ending>,
    /// The reason of a failure, until the sink knows it.
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
            full: false,
            stamped: false,
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

    /// Learns from a receive. Changing how a connection is received from costs as much as some messages, so that only
    /// several receives in a row change it.
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
}

/// Bytes that wait for the sink, with room in front.
pub(super) struct Backlog {
    bytes: Buf,
    start: usize,
}

impl Backlog {
    pub(super) fn new(headroom: usize) -> Self {
        let mut bytes = Buf::with_capacity(headroom);
        bytes.commit(headroom);
        Self { bytes, start: headroom }
    }

    pub(super) fn put(&mut self, bytes: &[u8]) {
        self.bytes.put(bytes);
    }

    pub(super) const fn len(&self) -> usize {
        self.bytes.len() - self.start
    }

    /// The bytes that wait.
    pub(super) fn rest(&self) -> &[u8] {
        &self.bytes.filled()[self.start..]
    }

    /// Takes at most `most` bytes, with the room in front of them. They begin at the returned index.
    pub(super) fn take(&mut self, most: usize) -> (&mut [u8], usize) {
        let start = self.start;
        self.start += self.len().min(most);
        (&mut self.bytes.filled_mut()[..self.start], start)
    }
}
