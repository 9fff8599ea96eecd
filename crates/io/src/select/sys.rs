//! The unsafe part: sets and lists of descriptors, which the kernel takes by number.
#![expect(unsafe_code, reason = "select(2) and poll(2) name descriptors by number")]

use crate::readiness::{Config, Poll};
use rustix::event::epoll::EventFlags;
use rustix::event::{FdSetElement, FdSetIter, PollFd, PollFlags, Timespec};
use rustix::event::{fd_set_insert, fd_set_num_elements, fd_set_remove, poll, select};
use rustix::fd::{AsRawFd, BorrowedFd, RawFd};
use rustix::io::Errno;
use std::io;
use std::time::{Duration, Instant};

/// Interval at which sockets that nobody wants to read from are checked for errors.
const LOOK: Duration = Duration::from_millis(20);

/// Longest single wait; the caller waits again.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

const NOW: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

/// The data and the interest of one descriptor.
#[derive(Clone, Copy)]
struct Entry {
    data: u64,
    interest: EventFlags,
}

/// Descriptors by number, as select(2) takes them.
///
/// INVARIANT: an entry's descriptor is open, as its owner removes it before closing it ([`Poll`]).
pub struct Select {
    /// Entries by descriptor number.
    entries: Vec<Option<Entry>>,
    most: usize,
    /// Descriptors that the next wait asks for.
    read: Vec<FdSetElement>,
    write: Vec<FdSetElement>,
    /// The kernel's answer to the last wait.
    readable: Vec<FdSetElement>,
    writable: Vec<FdSetElement>,
    /// Descriptors that are watched for errors alone.
    silent: Vec<RawFd>,
    looked: Instant,
    events: Vec<(u64, EventFlags)>,
}

impl Select {
    fn entry(&mut self, fd: RawFd) -> Option<&mut Option<Entry>> {
        self.entries.get_mut(usize::try_from(fd).ok()?)
    }

    /// Has the next wait ask for `what` again.
    fn arm(&mut self, fd: RawFd, what: EventFlags) {
        if what.contains(EventFlags::IN) {
            fd_set_insert(&mut self.read, fd);
            self.silent.retain(|&silent| silent != fd);
        }
        if what.contains(EventFlags::OUT) {
            fd_set_insert(&mut self.write, fd);
        }
    }

    fn disarm(&mut self, fd: RawFd, what: EventFlags) {
        if what.contains(EventFlags::IN) {
            fd_set_remove(&mut self.read, fd);
            self.silent.push(fd);
        }
        if what.contains(EventFlags::OUT) {
            fd_set_remove(&mut self.write, fd);
        }
    }

    fn select(&mut self, timeout: Option<Duration>) -> Result<(), Errno> {
        self.readable.clone_from(&self.read);
        self.writable.clone_from(&self.write);
        #[cfg(test)]
        if crate::faults::Call::Wait.may_fail().is_err() {
            return self.interrupted();
        }
        let timeout = timeout.map(timespec);
        let bound = i32::try_from(self.entries.len()).unwrap_or(i32::MAX);
        // SAFETY: all in the sets are open (see the type); the sets have room for as many as there are entries.
        let waited =
            unsafe { select(bound, Some(&mut self.readable), Some(&mut self.writable), None, timeout.as_ref()) };
        if let Err(errno) = waited {
            return if errno == Errno::INTR { self.interrupted() } else { Err(errno) };
        }
        Ok(())
    }

    /// Has nothing be ready: a failed call leaves the sets unchanged.
    fn interrupted(&mut self) -> Result<(), Errno> {
        self.readable.fill(FdSetElement::default());
        self.writable.fill(FdSetElement::default());
        Ok(())
    }

    /// Makes events of the kernel's answer.
    fn collect(&mut self) {
        let (readable, writable) = (std::mem::take(&mut self.readable), std::mem::take(&mut self.writable));
        // Room to send comes first: it reports a new connection as established, before bytes are received from it.
        for fd in FdSetIter::new(&writable) {
            self.happened(fd, EventFlags::OUT);
        }
        for fd in FdSetIter::new(&readable) {
            self.happened(fd, EventFlags::IN);
        }
        (self.readable, self.writable) = (readable, writable);
    }

    fn happened(&mut self, fd: RawFd, what: EventFlags) {
        let Some(&mut Some(Entry { data, interest })) = self.entry(fd) else { return };
        self.events.push((data, what));
        if interest.contains(EventFlags::ET) {
            self.disarm(fd, what);
        }
    }

    /// Checks the silent descriptors for errors.
    fn look(&mut self) -> Result<(), Errno> {
        self.looked = Instant::now();
        let mut asked: Vec<PollFd<'_>> = self
            .silent
            .iter()
            // SAFETY: they have entries, so they are open (see the type).
            .map(|&fd| PollFd::from_borrowed_fd(unsafe { BorrowedFd::borrow_raw(fd) }, PollFlags::empty()))
            .collect();
        #[cfg(test)]
        if crate::faults::Call::Wait.may_fail().is_err() {
            return Ok(());
        }
        match poll(&mut asked, Some(&NOW)) {
            Err(Errno::INTR) => return Ok(()),
            result => result?,
        };
        let told: Vec<_> = asked.iter().zip(&self.silent).map(|(asked, fd)| (*fd, asked.revents())).collect();
        for (fd, told) in told {
            let Some(&mut Some(Entry { data, interest })) = self.entry(fd) else { continue };
            if told.contains(PollFlags::ERR) {
                self.events.push((data, EventFlags::ERR));
            } else if told.contains(PollFlags::HUP) && interest.contains(EventFlags::OUT) {
                // Pending bytes may never get room: only an attempt to send says so.
                self.events.push((data, EventFlags::HUP));
            }
        }
        Ok(())
    }
}

impl Poll for Select {
    const NAME: &'static str = "select";
    const EDGES: bool = false;

    fn new(config: &Config) -> io::Result<Self> {
        Ok(Self {
            entries: Vec::new(),
            most: config.descriptors,
            read: Vec::new(),
            write: Vec::new(),
            readable: Vec::new(),
            writable: Vec::new(),
            silent: Vec::new(),
            looked: Instant::now(),
            events: Vec::new(),
        })
    }

    fn add(&mut self, fd: BorrowedFd<'_>, data: u64, interest: EventFlags) -> io::Result<()> {
        let number = usize::try_from(fd.as_raw_fd()).map_err(|_| Errno::BADF)?;
        if number >= self.most {
            let most = self.most;
            let text =
                format!("select(2) takes descriptors below {most}, and this one is {number}: use epoll or uring");
            return Err(io::Error::other(text));
        }
        if number >= self.entries.len() {
            self.entries.resize(number + 1, None);
            let bound = fd_set_num_elements(number + 1, fd.as_raw_fd() + 1);
            for set in [&mut self.read, &mut self.write] {
                set.resize(bound, FdSetElement::default());
            }
        }
        self.modify(fd, data, interest)
    }

    fn modify(&mut self, fd: BorrowedFd<'_>, data: u64, interest: EventFlags) -> io::Result<()> {
        let fd = fd.as_raw_fd();
        let entry = self.entry(fd).ok_or(Errno::NOENT)?;
        *entry = Some(Entry { data, interest });
        self.silent.retain(|&silent| silent != fd);
        fd_set_remove(&mut self.read, fd);
        fd_set_remove(&mut self.write, fd);
        self.arm(fd, interest);
        Ok(())
    }

    fn remove(&mut self, fd: BorrowedFd<'_>) {
        let fd = fd.as_raw_fd();
        if let Some(entry @ Some(_)) = self.entry(fd) {
            *entry = None;
            self.silent.retain(|&silent| silent != fd);
            fd_set_remove(&mut self.read, fd);
            fd_set_remove(&mut self.write, fd);
        }
    }

    fn rearm(&mut self, fd: BorrowedFd<'_>, what: EventFlags) {
        let fd = fd.as_raw_fd();
        if let Some(&mut Some(Entry { interest, .. })) = self.entry(fd) {
            self.arm(fd, what & interest);
        }
    }

    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<usize> {
        self.events.clear();
        let start = Instant::now();
        loop {
            let left = timeout.map(|timeout| timeout.saturating_sub(start.elapsed()));
            let due = (!self.silent.is_empty()).then(|| LOOK.saturating_sub(self.looked.elapsed()));
            let sleep = [left, due].into_iter().flatten().min();
            self.select(sleep)?;
            self.collect();
            if !self.silent.is_empty() && self.looked.elapsed() >= LOOK {
                self.look()?;
            }
            if !self.events.is_empty() || due.is_none() || left.is_some_and(|left| left <= due.unwrap_or(left)) {
                return Ok(self.events.len());
            }
        }
    }

    fn event(&self, number: usize) -> (u64, EventFlags) {
        self.events[number]
    }
}

fn timespec(duration: Duration) -> Timespec {
    let duration = duration.min(LONGEST);
    Timespec { tv_sec: i64::try_from(duration.as_secs()).unwrap_or(i64::MAX), tv_nsec: duration.subsec_nanos().into() }
}
