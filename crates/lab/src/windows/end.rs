use super::failed;
use crate::Error;
use tautline::layers::tls::{Content, Handshake, Session};
use tautline::layers::window::Buf;

/// The suite that all compared work uses.
const SUITE: &str = "TLS13_AES_128_GCM_SHA256";

/// One end of a connection, whatever way its records take.
pub trait End: Send {
    /// Advances the handshake; gives the bytes of `wire` that are done with, and whether it is complete.
    ///
    /// # Errors
    /// The handshake failed, or agreed on another cipher than all others.
    fn handshake(&mut self, wire: &mut [u8], out: &mut Buf) -> Result<(usize, bool), Error>;

    /// Seals `plain` in as few records as fit, and appends them to `out`.
    ///
    /// # Errors
    /// The library refuses.
    fn seal(&mut self, plain: &[u8], out: &mut Buf) -> Result<(), Error>;

    /// Opens the record at the front of `wire` and shows what it held to `take`, where the library leaves it. Gives the bytes
    /// that are done with: 0 where the record is not whole.
    ///
    /// # Errors
    /// The record does not authenticate.
    fn open(&mut self, wire: &mut [u8], out: &mut Buf, take: &mut dyn FnMut(&[u8])) -> Result<usize, Error>;

    /// Opens the record at the front of `wire` for somebody who wants what it held in `place`, at least
    /// 16 KiB. Gives the bytes that are done with, and those that are in `place`.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    fn read(&mut self, wire: &mut [u8], place: &mut [u8], out: &mut Buf) -> Result<(usize, usize), Error> {
        let mut len = 0;
        let used = self.open(wire, out, &mut |plain| {
            place[len..len + plain.len()].copy_from_slice(plain);
            len += plain.len();
        })?;
        Ok((used, len))
    }

    /// Has all that the library writes miss the caller's buffers, and be collected afterwards.
    fn spill_all(&mut self) {}
}

/// Most plaintext of a record.
pub(super) const RECORD: usize = 1 << 14;

/// A session of an engine.
pub(super) struct Own<S> {
    pub(super) session: S,
    scratch: Buf,
}

impl<S> Own<S> {
    pub(super) const fn new(session: S) -> Self {
        Self { session, scratch: Buf::new() }
    }
}

impl<S: Session> End for Own<S> {
    fn handshake(&mut self, wire: &mut [u8], out: &mut Buf) -> Result<(usize, bool), Error> {
        let (used, progress) = self.session.handshake(wire, out).map_err(|error| failed(&error))?;
        let is_done = progress == Handshake::Complete;
        if is_done {
            let suite = self.session.facts().suite;
            if suite != SUITE {
                return Err(Error::Failed(format!("the sessions agreed on {suite}, not on {SUITE}")));
            }
        }
        Ok((used, is_done))
    }

    fn seal(&mut self, plain: &[u8], out: &mut Buf) -> Result<(), Error> {
        self.session.seal(&[plain], out).map_err(|error| failed(&error))
    }

    fn open(&mut self, wire: &mut [u8], out: &mut Buf, take: &mut dyn FnMut(&[u8])) -> Result<usize, Error> {
        let opened = self.session.open(wire, &mut self.scratch, out).map_err(|error| failed(&error))?;
        if let Content::Data(plain) = opened.content {
            take(plain);
        }
        Ok(opened.used)
    }
}
