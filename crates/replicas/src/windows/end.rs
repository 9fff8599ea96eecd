use tautline::layers::buf::Buf;
use tautline::layers::tls::{Content, Handshake, Session};
use tautline_measure::Error;
use tautline_measure::engine::check_suite;

/// One end of a connection, with any path of its records.
pub trait End: Send {
    /// Advances the handshake. Returns the bytes of `wire` that were used, and whether it is complete.
    fn handshake(&mut self, wire: &mut [u8], out: &mut Buf) -> Result<(usize, bool), Error>;

    /// Seals `plain` in as few records as possible, and appends them to `out`.
    fn seal(&mut self, plain: &[u8], out: &mut Buf) -> Result<(), Error>;

    /// Opens the record at the front of `wire`, and passes its content to `take` in the place where the library left it.
    ///
    /// Returns the bytes used, which are 0 if the record is incomplete.
    fn open(&mut self, wire: &mut [u8], out: &mut Buf, take: &mut dyn FnMut(&[u8])) -> Result<usize, Error>;

    /// Opens the record at the front of `wire` into `place`, which has room for at least 16 KiB.
    ///
    /// Returns the bytes of `wire` used, and the bytes written to `place`.
    fn read(&mut self, wire: &mut [u8], place: &mut [u8], out: &mut Buf) -> Result<(usize, usize), Error> {
        let mut len = 0;
        let used = self.open(wire, out, &mut |plain| {
            place[len..len + plain.len()].copy_from_slice(plain);
            len += plain.len();
        })?;
        Ok((used, len))
    }

    /// Makes the library write outside its caller's buffers; its output is collected afterwards.
    fn spill_all(&mut self) {}
}

/// Largest plaintext of a record.
pub(super) const RECORD: usize = 1 << 14;

/// An end whose records are those of an engine's session.
pub struct EngineEnd<S> {
    /// The session.
    pub session: S,
    scratch: Buf,
}

impl<S> EngineEnd<S> {
    /// The end of a new session.
    pub const fn new(session: S) -> Self {
        Self { session, scratch: Buf::new() }
    }
}

impl<S: Session> End for EngineEnd<S> {
    fn handshake(&mut self, wire: &mut [u8], out: &mut Buf) -> Result<(usize, bool), Error> {
        let (used, progress) = self.session.handshake(wire, out).map_err(Error::failed)?;
        let is_done = progress == Handshake::Complete;
        if is_done {
            check_suite(&self.session)?;
        }
        Ok((used, is_done))
    }

    fn seal(&mut self, plain: &[u8], out: &mut Buf) -> Result<(), Error> {
        self.session.seal(&[plain], out).map_err(Error::failed)
    }

    fn open(&mut self, wire: &mut [u8], out: &mut Buf, take: &mut dyn FnMut(&[u8])) -> Result<usize, Error> {
        let opened = self.session.open(wire, &mut self.scratch, out).map_err(Error::failed)?;
        if let Content::Data(plain) = opened.content {
            take(plain.bytes(wire, &mut self.scratch));
        }
        Ok(opened.used)
    }
}
