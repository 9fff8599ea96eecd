use super::end::End;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;
use tautline::layers::buf::Buf;
use tautline_measure::Error;

/// Most bytes of one receive, and bytes that a reader wants at a time.
pub(super) const BUFFER: usize = 32 << 10;

/// One end on a non-blocking socket.
pub(super) struct Link {
    stream: TcpStream,
    pub(super) end: Box<dyn End>,
    /// Ciphertext received, and ciphertext to send.
    pub(super) inbox: Buf,
    pub(super) out: Buf,
    pub(super) is_open: bool,
    pub(super) is_over: bool,
}

impl Link {
    pub(super) fn new(stream: TcpStream, end: Box<dyn End>) -> Result<Self, Error> {
        let ready = stream.set_nonblocking(true).and_then(|()| stream.set_nodelay(true));
        ready.map_err(|error| Error::io("prepare a connection", error))?;
        Ok(Self { stream, end, inbox: Buf::new(), out: Buf::new(), is_open: false, is_over: false })
    }

    /// Sends, receives once and advances the handshake; returns whether any byte moved. The link ends with its peer.
    pub(super) fn exchange(&mut self) -> Result<bool, Error> {
        let mut moved = self.send()?;
        let free = self.inbox.reserve(BUFFER);
        let len = free.len().min(BUFFER);
        match self.stream.read(&mut free[..len]) {
            Ok(0) => self.is_over = true,
            Ok(read) => {
                self.inbox.commit(read);
                moved = true;
            }
            Err(error) => self.on_error(error)?,
        }
        self.handshake()?;
        Ok(moved)
    }

    /// Advances the handshake.
    pub(super) fn handshake(&mut self) -> Result<(), Error> {
        if self.is_open {
            return Ok(());
        }
        let (used, is_done) = self.end.handshake(self.inbox.filled_mut(), &mut self.out)?;
        self.inbox.take(used);
        self.is_open = is_done;
        self.send().map(drop)
    }

    /// Sends as much as the kernel takes; returns whether any byte moved.
    pub(super) fn send(&mut self) -> Result<bool, Error> {
        let mut moved = false;
        while !self.out.is_empty() && !self.is_over {
            match self.stream.write(self.out.filled()) {
                Ok(written) => {
                    self.out.take(written);
                    moved = true;
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => self.on_error(error)?,
            }
        }
        Ok(moved)
    }

    /// Ends the link if the peer has closed it.
    fn on_error(&mut self, error: std::io::Error) -> Result<(), Error> {
        match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::Interrupted => Ok(()),
            ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => {
                self.is_over = true;
                Ok(())
            }
            _ => Err(Error::io("use a connection", error)),
        }
    }

    /// Makes closing reset the connection, so that its port can be reused at once.
    pub(super) fn drop_at_once(&self) {
        let _ = rustix::net::sockopt::set_socket_linger(&self.stream, Some(Duration::ZERO));
    }

    fn wanted(&self) -> PollFd<'_> {
        let out = if self.out.is_empty() { PollFlags::empty() } else { PollFlags::OUT };
        PollFd::new(&self.stream, PollFlags::IN | out)
    }
}

/// Waits for any of the links or of `others`, at most 20 ms.
pub(super) fn wait<'a>(
    links: impl Iterator<Item = &'a Link>,
    others: impl Iterator<Item = PollFd<'a>>,
) -> Result<(), Error> {
    const LONGEST: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
    let mut waiting: Vec<PollFd<'_>> = links.map(Link::wanted).chain(others).collect();
    match poll(&mut waiting, Some(&LONGEST)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(Error::io("wait for connections", error)),
    }
}
