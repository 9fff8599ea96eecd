//! System calls and requests that fail, made up for tests: the drivers call [`strike`] and [`Call::may_fail`] in front
//! of each, in tests alone.

mod tests;

use rustix::io::Errno;
use std::cell::{Cell, RefCell};

thread_local! {
    static COMING: RefCell<Vec<Errno>> = const { RefCell::new(Vec::new()) };
}

/// Lets the next calls of this thread that send or accept fail so often.
fn begin(errno: Errno, times: usize) {
    COMING.with_borrow_mut(|coming| *coming = vec![errno; times]);
}

fn is_over() -> bool {
    COMING.with_borrow(Vec::is_empty)
}

/// Fails where it is time to.
pub(crate) fn strike() -> Result<(), Errno> {
    COMING.with_borrow_mut(Vec::pop).map_or(Ok(()), Err)
}

thread_local! {
    /// The state of the generator that decides which calls fail, and with which error. 0 lets all succeed.
    static SEED: Cell<u64> = const { Cell::new(0) };
    static WEATHER: Cell<Weather> = const { Cell::new(Weather::Rough) };
}

/// Has calls of this thread fail from now on, as the seed says; 0 ends it.
pub(crate) fn rage(weather: Weather, seed: u64) {
    WEATHER.set(weather);
    SEED.set(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
}

/// Faults that happen. Each kind includes the ones before it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Weather {
    /// Nobody notices: signals interrupt calls, and the kernel gives requests up.
    Rough,
    /// The process lacks descriptors or the kernel memory for a moment, so that something happens later.
    Scarce,
    /// Connections break.
    Breaking,
}

/// A system call, or a request of io_uring.
#[derive(Clone, Copy)]
pub(crate) enum Call {
    Socket,
    Connect,
    Accept,
    Receive,
    Send,
    /// epoll_ctl(2) with a new descriptor.
    Watch,
    /// epoll_wait(2), select(2), poll(2).
    Wait,
    /// io_uring_enter(2).
    Enter,
    AcceptRequest,
    ReceiveRequest,
    SendRequest,
    PollRequest,
    /// Not a call: the kernel cancels a request that it has taken.
    Cancel,
}

impl Call {
    /// The errors of each kind of weather.
    const fn errors(self) -> [&'static [Errno]; 3] {
        match self {
            Self::Socket => [&[], &[Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM], &[]],
            Self::Connect => [&[], &[Errno::ADDRNOTAVAIL, Errno::NOMEM], &[Errno::NETUNREACH, Errno::TIMEDOUT]],
            Self::Accept => {
                [&[Errno::INTR, Errno::CONNABORTED], &[Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM], &[]]
            }
            Self::Receive => [&[Errno::INTR], &[], &[Errno::CONNRESET, Errno::TIMEDOUT, Errno::NOMEM]],
            Self::Send => [&[Errno::INTR], &[Errno::NOBUFS, Errno::NOMEM], &[Errno::PIPE, Errno::CONNRESET]],
            Self::Watch => [&[], &[], &[Errno::NOMEM, Errno::NOSPC]],
            Self::Wait => [&[Errno::INTR], &[], &[]],
            Self::Enter => [&[Errno::INTR, Errno::BUSY, Errno::AGAIN], &[], &[]],
            Self::AcceptRequest => [
                &[Errno::INTR, Errno::AGAIN, Errno::CANCELED, Errno::CONNABORTED],
                &[Errno::MFILE, Errno::NFILE, Errno::NOBUFS, Errno::NOMEM],
                &[],
            ],
            Self::ReceiveRequest => [
                &[Errno::NOBUFS, Errno::INTR, Errno::AGAIN, Errno::CANCELED, Errno::NOMEM],
                &[],
                &[Errno::CONNRESET, Errno::TIMEDOUT],
            ],
            Self::SendRequest => [
                &[Errno::INTR, Errno::AGAIN, Errno::CANCELED],
                &[Errno::NOBUFS, Errno::NOMEM],
                &[Errno::PIPE, Errno::CONNRESET],
            ],
            Self::PollRequest => [&[Errno::CANCELED, Errno::NOMEM, Errno::INTR], &[], &[]],
            Self::Cancel => [&[Errno::CANCELED], &[], &[]],
        }
    }

    /// Fails if the seed says so.
    pub(crate) fn may_fail(self) -> Result<(), Errno> {
        let mut seed = SEED.get();
        if seed == 0 {
            return Ok(());
        }
        // xorshift64, for which 0 is a fixed point.
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        SEED.set(seed);
        let errors = &self.errors()[..=WEATHER.get() as usize];
        let count: usize = errors.iter().map(|errors| errors.len()).sum();
        let at = usize::try_from(seed >> 33).unwrap();
        if count == 0 || at % 4 > 0 {
            return Ok(());
        }
        errors.iter().copied().flatten().nth(at / 4 % count).map_or(Ok(()), |errno| Err(*errno))
    }
}
