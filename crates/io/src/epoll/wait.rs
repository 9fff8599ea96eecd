use rustix::event::epoll::{self, Event};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::io::{Errno, Result};
use std::time::Duration;

/// Shorter timeouts are kept to the nanosecond; longer ones are rounded up to the next millisecond.
const PRECISE: Duration = Duration::from_millis(10);

/// Longest single wait; the caller waits again. Keeps the millisecond count of epoll_wait(2) within 32 bits.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// Waits for events for at most `timeout`, or without end if it is `None`. A signal ends the wait without events.
///
/// epoll_wait(2) counts in milliseconds, and epoll_pwait2(2) needs Linux 5.11. A short wait is therefore done by
/// ppoll(2) on the epoll descriptor. It costs two more system calls, but only if nothing is ready and the loop idles.
pub(super) fn wait(epoll: &OwnedFd, events: &mut [Event], timeout: Option<Duration>) -> Result<usize> {
    #[cfg(test)]
    if let Err(errno) = crate::faults::Call::Wait.may_fail() {
        return interrupted(Err(errno));
    }
    interrupted(match timeout {
        None => epoll::wait(epoll, events, None),
        Some(Duration::ZERO) => epoll::wait(epoll, events, Some(&NOW)),
        Some(short) if short < PRECISE => precise(epoll, events, &timespec(short)),
        Some(long) => epoll::wait(epoll, events, Some(&timespec(long.min(LONGEST)))),
    })
}

fn interrupted(result: Result<usize>) -> Result<usize> {
    match result {
        Err(Errno::INTR) => Ok(0),
        other => other,
    }
}

fn precise(epoll: &OwnedFd, events: &mut [Event], timeout: &Timespec) -> Result<usize> {
    let ready = epoll::wait(epoll, &mut *events, Some(&NOW))?;
    if ready > 0 || poll(&mut [PollFd::new(epoll, PollFlags::IN)], Some(timeout))? == 0 {
        return Ok(ready);
    }
    epoll::wait(epoll, events, Some(&NOW))
}

fn timespec(duration: Duration) -> Timespec {
    Timespec { tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX), tv_nsec: duration.subsec_nanos().into() }
}
