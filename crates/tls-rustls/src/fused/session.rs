use super::records::Records;
use tautline_tls::{Error, Facts, Handshake, Opened};
use tautline_window::Buf;

/// One connection: rustls' handshake, then our own records.
pub struct Session(State);

enum State {
    /// The handshake, and all of a TLS 1.2 connection.
    Library(crate::Session),
    /// TLS 1.3 after the handshake.
    Records(Box<Records>),
    Failed,
}

impl Session {
    pub(super) const fn new(session: crate::Session) -> Self {
        Self(State::Library(session))
    }

    /// Marks the session dead where `result` is an error.
    fn check<T>(&mut self, result: Result<T, Error>) -> Result<T, Error> {
        if result.is_err() {
            self.0 = State::Failed;
        }
        result
    }

    /// Takes the keys over where a TLS 1.3 handshake is complete.
    fn take_over(&mut self) -> Result<(), Error> {
        match core::mem::replace(&mut self.0, State::Failed) {
            State::Library(session) if session.is_open_tls13() => {
                let (agreed, secrets, kernel) = session.into_keys()?;
                self.0 = State::Records(Box::new(Records::new(agreed, secrets, kernel)?));
            }
            other => self.0 = other,
        }
        Ok(())
    }
}

impl tautline_tls::Session for Session {
    fn handshake(&mut self, wire: &mut [u8], out: &mut Buf) -> Result<(usize, Handshake), Error> {
        match &mut self.0 {
            State::Library(session) => {
                let progress = session.handshake(wire, out)?;
                if progress.1 == Handshake::Complete {
                    self.take_over()?;
                }
                Ok(progress)
            }
            State::Records(_) => Ok((0, Handshake::Complete)),
            State::Failed => Err(DEAD),
        }
    }

    fn open<'b>(&mut self, wire: &'b mut [u8], scratch: &'b mut Buf, out: &mut Buf) -> Result<Opened<'b>, Error> {
        match &mut self.0 {
            State::Records(records) => {
                let result = records.open(wire, out);
                self.check(result)
            }
            State::Library(session) => session.open(wire, scratch, out),
            State::Failed => Err(DEAD),
        }
    }

    fn seal(&mut self, plain: &[&[u8]], out: &mut Buf) -> Result<(), Error> {
        match &mut self.0 {
            State::Records(records) => records.seal(plain, out),
            State::Library(session) => session.seal(plain, out),
            State::Failed => Err(DEAD),
        }
    }

    fn close(&mut self, out: &mut Buf) {
        match &mut self.0 {
            State::Records(records) => {
                if let Err(error) = records.close(out) {
                    log::debug!("no close_notify: {error}");
                }
            }
            State::Library(session) => session.close(out),
            State::Failed => {}
        }
    }

    fn facts(&self) -> Facts {
        match &self.0 {
            State::Records(records) => records.agreed().facts(),
            State::Library(session) => session.facts(),
            State::Failed => Facts::default(),
        }
    }
}

const DEAD: Error = Error::ApiMisuse("the session has failed before");
