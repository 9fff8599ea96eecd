//! When received bytes reached this machine, and sent bytes left it.

mod arrival;
mod departure;
mod departures;
mod sys;
mod ticks;

pub use arrival::{Arrival, Clock};
pub(crate) use departures::{Departures, next as next_departure};
pub use ticks::{Anchor, Scale, Ticker};

use rustix::fd::{AsFd, BorrowedFd};
use rustix::io::Errno;
use rustix::net::{self, RecvFlags};
pub(crate) use sys::{CONTROL, stamp};
use sys::{enable, receive};

/// Arrival times of a driver's received bytes. There are none before [`ask`](Self::ask).
#[derive(Default)]
pub(crate) struct Arrivals {
    asked: Option<Ticker>,
    /// The next receive is to be stamped.
    wanted: bool,
    last: Option<Arrival>,
    began: Option<u64>,
}

impl Arrivals {
    /// Turns stamps on, for connections from now on.
    pub(crate) fn ask(&mut self) {
        (self.asked, self.wanted) = (Some(Ticker::here()), true);
    }

    /// Sets whether the next receive is to be stamped.
    pub(crate) const fn want(&mut self, wanted: bool) {
        self.wanted = wanted && self.asked.is_some();
    }

    /// Has the kernel stamp the packets of a new connection, once stamps were asked for.
    pub(crate) fn watch(&self, socket: impl AsFd) {
        if self.asked.is_some()
            && let Err(errno) = enable(socket)
        {
            log::warn!("the kernel does not stamp what arrives: {errno}");
        }
    }

    /// Notes when a receive begins. The arrival of its bytes is not known so far.
    pub(crate) fn begin(&mut self) {
        if let Some(ticker) = self.asked
            && self.wanted
        {
            (self.began, self.last) = (Some(ticker.now()), None);
        }
    }

    /// Notes the arrival of bytes that the kernel received by itself.
    pub(crate) const fn received(&mut self, arrival: Option<Arrival>) {
        (self.began, self.last) = (None, arrival);
    }

    /// Receives as recv(2) does.
    #[inline]
    pub(crate) fn receive(&mut self, socket: impl AsFd, buf: &mut [u8]) -> Result<usize, Errno> {
        if self.wanted {
            return self.receive_stamped(socket.as_fd(), buf);
        }
        #[cfg(test)]
        crate::faults::Call::Receive.may_fail()?;
        net::recv(socket, buf, RecvFlags::empty()).map(|(len, _)| len)
    }

    #[inline(never)]
    fn receive_stamped(&mut self, socket: BorrowedFd<'_>, buf: &mut [u8]) -> Result<usize, Errno> {
        self.begin();
        #[cfg(test)]
        crate::faults::Call::Receive.may_fail()?;
        let (len, arrival) = receive(socket, buf)?;
        self.last = arrival;
        Ok(len)
    }

    /// The arrival of the bytes received last.
    pub(crate) const fn last(&self) -> Option<Arrival> {
        if self.wanted { self.last } else { None }
    }

    /// When the last receive began, by [`Ticker`].
    pub(crate) const fn began(&self) -> Option<u64> {
        if self.wanted { self.began } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{self, Write};
    use std::net::{TcpListener, TcpStream};
    use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

    fn realtime() -> u64 {
        u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos()).unwrap()
    }

    #[test]
    fn the_kernel_stamps_what_arrives_over_loopback() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (receiver, _) = listener.accept().unwrap();
        enable(&receiver).unwrap();
        // The kernel begins to stamp packets a moment after the first socket asked for it.
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            let before = realtime();
            sender.write_all(b"hello").unwrap();
            let mut buf = [0; 16];
            let (len, arrival) = receive(&receiver, &mut buf).unwrap();
            assert_eq!(&buf[..len], b"hello");
            if let Some(arrival) = arrival {
                assert_eq!(arrival.clock, Clock::Realtime);
                assert!((before..=realtime()).contains(&arrival.nanos), "{arrival:?}");
                return;
            }
            assert!(Instant::now() < deadline, "no stamp came");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn only_what_is_wanted_is_told() {
        let (mut sender, receiver) = std::os::unix::net::UnixStream::pair().unwrap();
        let mut arrivals = Arrivals::default();
        for (ask, want, told) in [(false, true, false), (true, true, true), (true, false, false), (true, true, true)] {
            if ask {
                arrivals.ask();
            }
            arrivals.want(want);
            sender.write_all(b"hello").unwrap();
            assert_eq!(arrivals.receive(&receiver, &mut [0; 16]), Ok(5));
            assert_eq!(arrivals.began().is_some(), told, "asked {ask}, wanted {want}");
            assert_eq!(arrivals.last(), None, "Unix sockets have no stamps");
        }
    }

    #[test]
    fn without_asking_there_is_no_stamp() {
        let (mut sender, receiver) = std::os::unix::net::UnixStream::pair().unwrap();
        sender.write_all(b"hello").unwrap();
        let mut buf = [0; 3];
        assert_eq!(receive(&receiver, &mut buf), Ok((3, None)));
        drop(sender);
        assert_eq!(receive(&receiver, &mut buf), Ok((2, None)));
        assert_eq!(receive(&receiver, &mut buf), Ok((0, None)));
    }

    #[test]
    fn descriptors_that_a_peer_passes_are_closed() {
        use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
        let (ours, theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        let (mut reader, writer) = io::pipe().unwrap();
        let mut arrivals = Arrivals::default();
        arrivals.ask();
        let mut room = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
        for _ in 0..3 {
            let passed = [writer.as_fd(); 3];
            let mut control = SendAncillaryBuffer::new(&mut room);
            assert!(control.push(SendAncillaryMessage::ScmRights(&passed)));
            sendmsg(&theirs, &[io::IoSlice::new(b"with a gift")], &mut control, SendFlags::empty()).unwrap();
            assert_eq!(arrivals.receive(&ours, &mut [0; 100]), Ok(11));
        }
        // This was the pipe's last writing end: if another were open, the read would wait for ever.
        drop(writer);
        assert_eq!(io::Read::read(&mut reader, &mut [0]).unwrap(), 0);
    }
}
