//! One TLS connection over buffers of its own.

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use std::io;
use std::ops::Range;
use std::os::fd::OwnedFd;
use tautline::layers::buf::Buf;
use tautline::layers::tls::{Content, Engine, Error, Handshake, Place, Session as _};
use tautline::{EngineKind, Fused};

/// Most bytes that one read takes from a socket, as in asyncio.
const READ: usize = 256 << 10;

/// Sessions of the engine.
pub(super) type FastSession = <<Fused as EngineKind>::Engine as Engine>::Session;

/// The findings of [`State::open`].
pub(super) enum Plain {
    /// The plaintext, at this place of [`State::wire`], and the bytes of `wire` that were used up.
    Data(Range<usize>, usize),
    /// More bytes of the peer are needed.
    Wait,
    /// The peer has sent close_notify.
    Closed,
}

/// How a read from a socket ended.
pub(super) enum Read {
    Some,
    Wait,
    End,
}

pub(super) struct State {
    session: FastSession,
    /// Bytes of the peer that are not opened.
    pub(super) wire: Buf,
    scratch: Buf,
    /// Bytes for the peer.
    pub(super) out: Buf,
    pub(super) socket: Option<OwnedFd>,
    pub(super) is_open: bool,
    pub(super) got_close: bool,
    sent_close: bool,
    /// Why the session is dead.
    failed: Option<Error>,
}

impl State {
    pub(super) fn new(session: FastSession) -> Self {
        Self {
            session,
            wire: Buf::new(),
            scratch: Buf::new(),
            out: Buf::new(),
            socket: None,
            is_open: false,
            got_close: false,
            sent_close: false,
            failed: None,
        }
    }

    pub(super) fn info(&self) -> tautline::TlsInfo {
        self.session.tls_info()
    }

    /// Advances the handshake. True once it is complete.
    pub(super) fn handshake(&mut self) -> Result<bool, Error> {
        self.check()?;
        if self.is_open {
            return Ok(true);
        }
        let result = self.session.handshake(self.wire.filled_mut(), &mut self.out);
        let (used, state) = self.noted(result)?;
        self.wire.take(used);
        self.is_open = matches!(state, Handshake::Complete);
        Ok(self.is_open)
    }

    /// Opens the whole records that wait, until `most` bytes of plaintext are there; one record may exceed that.
    pub(super) fn open(&mut self, most: usize) -> Result<Plain, Error> {
        self.check()?;
        if !self.is_open {
            return Err(Error::ApiMisuse("the handshake comes first"));
        }
        let (mut used, mut plain) = (0, 0..0);
        while !self.got_close && plain.len() < most {
            let wire = &mut self.wire.filled_mut()[used..];
            let opened = self.session.open(wire, &mut self.scratch, &mut self.out);
            let (len, data) = match opened {
                Ok(opened) => match opened.content {
                    Content::Partial => break,
                    Content::Control => (opened.used, None),
                    Content::Closed => {
                        self.got_close = true;
                        (opened.used, None)
                    }
                    Content::Data(data) => (opened.used, Some(data)),
                },
                Err(error) => return self.noted(Err(error)),
            };
            let start = used;
            used += len;
            let Some(data) = data else { continue };
            let len = data.range.len();
            let wire = self.wire.filled_mut();
            // A record is longer than its plaintext, so there is room in front of what is not opened.
            match data.place {
                Place::Wire if plain.is_empty() => plain = start + data.range.start..start + data.range.end,
                Place::Wire => {
                    let at = start + data.range.start;
                    wire.copy_within(at..at + len, plain.end);
                    plain.end += len;
                }
                Place::Scratch => {
                    if plain.is_empty() {
                        plain = start..start;
                    }
                    wire[plain.end..plain.end + len].copy_from_slice(&self.scratch.filled()[data.range]);
                    plain.end += len;
                }
            }
        }
        if !plain.is_empty() {
            return Ok(Plain::Data(plain, used));
        }
        self.wire.take(used);
        Ok(if self.got_close { Plain::Closed } else { Plain::Wait })
    }

    /// Seals into `out`.
    pub(super) fn seal(&mut self, plain: &[u8]) -> Result<(), Error> {
        self.check()?;
        if !self.is_open {
            return Err(Error::ApiMisuse("the handshake comes first"));
        }
        if self.sent_close {
            return Err(Error::ApiMisuse("nothing can be sent after the close"));
        }
        let result = self.session.seal(&[plain], &mut self.out);
        self.noted(result)
    }

    /// Appends close_notify, once.
    pub(super) fn close(&mut self) {
        if self.failed.is_none() && self.is_open && !self.sent_close {
            self.sent_close = true;
            self.session.close(&mut self.out);
        }
    }

    /// Reads from the socket what is there, up to a limit.
    pub(super) fn receive(&mut self) -> io::Result<Read> {
        let socket = self.socket.as_ref().ok_or_else(closed)?;
        let room = self.wire.reserve(READ);
        match rustix::net::recv(socket, &mut room[..READ], RecvFlags::DONTWAIT) {
            Ok((_, 0)) => Ok(Read::End),
            Ok((_, len)) => {
                self.wire.commit(len);
                Ok(Read::Some)
            }
            Err(Errno::AGAIN | Errno::INTR) => Ok(Read::Wait),
            Err(error) => Err(error.into()),
        }
    }

    /// Sends what waits for the peer. Returns the number of bytes that the kernel does not take yet.
    pub(super) fn flush(&mut self) -> io::Result<usize> {
        let socket = self.socket.as_ref().ok_or_else(closed)?;
        while !self.out.is_empty() {
            match rustix::net::send(socket, self.out.filled(), SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
                Ok(sent) => self.out.take(sent),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(self.out.len())
    }

    fn check(&self) -> Result<(), Error> {
        self.failed.clone().map_or(Ok(()), Err)
    }

    /// Notes that the session is dead after an error, except one of the caller's.
    fn noted<T>(&mut self, result: Result<T, Error>) -> Result<T, Error> {
        if let Err(error) = &result
            && !matches!(error, Error::ApiMisuse(_))
        {
            self.failed = Some(error.clone());
        }
        result
    }
}

fn closed() -> io::Error {
    io::Error::new(io::ErrorKind::NotConnected, "the socket is closed")
}
