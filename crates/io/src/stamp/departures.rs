//! Stamps of sent bytes.
//!
//! The kernel numbers the bytes of a TCP connection from the moment at which stamps were asked for
//! (`SOF_TIMESTAMPING_OPT_ID_TCP`, Documentation/networking/timestamping.rst). A send that asks for a stamp gets one for
//! its last byte, in the socket's error queue and without the packet (`SOF_TIMESTAMPING_OPT_TSONLY`). Other sends cost
//! nothing more, except that their bytes are counted.

use super::departure::Departure;
use super::sys;
use rustix::fd::{AsFd, BorrowedFd};
use rustix::io::Errno;
use rustix::net::{AddressFamily, sockopt};
use tautline_buf::Buf;

/// Bytes of stamped connections, by the connections' indices.
#[derive(Default)]
pub(crate) struct Departures {
    /// Bytes that the kernel has taken since it numbers them. Like the kernel's numbers, they begin anew at 2^32.
    taken: Vec<u32>,
    /// The kernel cannot do it.
    is_refused: bool,
}

impl Departures {
    /// Has the kernel number a connection's bytes. Returns whether it does.
    #[cold]
    pub(crate) fn begin(&mut self, index: u32, socket: impl AsFd) -> bool {
        // Unix sockets take the option and give no stamps.
        if self.is_refused || matches!(sockopt::socket_domain(&socket), Err(_) | Ok(AddressFamily::UNIX)) {
            return false;
        }
        if let Err(errno) = sys::number_bytes(socket.as_fd()) {
            self.is_refused = errno == Errno::INVAL;
            log::warn!("the kernel does not stamp what is sent: {errno}; it takes Linux 6.2");
            return false;
        }
        let index = index as usize;
        if index >= self.taken.len() {
            self.taken.resize(index + 1, 0);
        }
        self.taken[index] = 0;
        true
    }

    /// The kernel took bytes of a connection that has [begun](Self::begin).
    pub(crate) fn add(&mut self, index: u32, bytes: usize) {
        if let Some(taken) = self.taken.get_mut(index as usize) {
            #[expect(clippy::cast_possible_truncation, reason = "the kernel's numbers have 32 bits")]
            let bytes = bytes as u32;
            *taken = taken.wrapping_add(bytes);
        }
    }

    /// Sends what the kernel takes. Returns the number of the last byte if that is all. An error is found again by the
    /// next send.
    pub(crate) fn send(&mut self, index: u32, socket: impl AsFd, buf: &mut Buf) -> Option<u32> {
        let sent = sys::send_stamped(socket.as_fd(), buf.filled()).ok()?;
        buf.take(sent);
        self.add(index, sent);
        let taken = self.taken.get(index as usize).filter(|_| buf.is_empty())?;
        Some(taken.wrapping_sub(1))
    }
}

/// The next stamp of a socket; `None` if there is no further one.
pub(crate) fn next(socket: BorrowedFd<'_>) -> Option<Departure> {
    loop {
        match sys::departed(socket) {
            Ok(Some(departure)) => return Some(departure),
            // Something else was in the queue.
            Ok(None) | Err(Errno::INTR) => {}
            Err(_) => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::UnixStream;
    use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

    fn realtime() -> u64 {
        u64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos()).unwrap()
    }

    fn buf(bytes: &[u8]) -> Buf {
        let mut buf = Buf::new();
        buf.put(bytes);
        buf
    }

    #[test]
    fn the_kernel_stamps_the_last_byte_of_a_send() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut receiver, _) = listener.accept().unwrap();
        let mut departures = Departures::default();
        assert!(departures.begin(3, &sender));
        let mut sent = 0;
        for round in 0..50_u32 {
            // These bytes are counted, and have no stamp.
            crate::socket::send(&sender, &mut buf(b"before"), rustix::net::SendFlags::empty()).unwrap();
            departures.add(3, 6);
            let before = realtime();
            let mut order = buf(b"order");
            assert_eq!(departures.send(3, &sender, &mut order), Some(11 * round + 10));
            sent += 11;
            let deadline = Instant::now() + Duration::from_secs(20);
            let departure = loop {
                if let Some(departure) = next(sender.as_fd()) {
                    break departure;
                }
                assert!(Instant::now() < deadline, "no stamp came");
                std::thread::sleep(Duration::from_millis(1));
            };
            assert_eq!(departure.number, 11 * round + 10);
            assert!((before..=realtime()).contains(&departure.nanos), "{departure:?}");
            assert_eq!(next(sender.as_fd()), None);
        }
        let mut got = vec![0; sent];
        receiver.read_exact(&mut got).unwrap();
        assert_eq!(got, b"beforeorder".repeat(50));
        // Another driver, to which the connection has moved, begins anew.
        let mut others = Departures::default();
        assert!(others.begin(0, &sender));
        assert_eq!(others.send(0, &sender, &mut buf(b"x")), Some(0));
    }

    #[test]
    fn unix_sockets_have_no_stamps() {
        let (near, _far) = UnixStream::pair().unwrap();
        assert!(!Departures::default().begin(0, &near));
    }
}
