use super::records::Records;
use super::snapshot::{Role, Snapshot};
use super::tap::Tapped;
use tautline_tls::{Error, Facts, Handshake, Opened};
use tautline_window::Buf;

/// One connection: rustls' handshake, then our own records.
pub struct Session(State);

/// Records lie in the session itself, since connections mostly stand: the shard's own state of a connection is in the same
/// piece of memory.
#[expect(clippy::large_enum_variant, reason = "the large one is the common one")]
enum State {
    Handshake(Box<Handshaking>),
    /// TLS 1.2, which stays with rustls.
    Library(Box<crate::Session>),
    /// TLS 1.3 after the handshake.
    Records(Records),
    Failed,
}

struct Handshaking {
    role: Role,
    session: crate::Session,
    tapped: Tapped,
}

impl Session {
    pub(super) fn new(role: Role, session: crate::Session) -> Self {
        Self(State::Handshake(Box::new(Handshaking { role, session, tapped: Tapped::default() })))
    }

    /// All there is to this connection, so that another session goes on with it, in another process perhaps. This one is
    /// dead afterwards, for two that seal with the same keys would break both.
    ///
    /// Between two calls a session holds nothing of the stream but whole records' worth: bytes that the caller did not
    /// get used go with the snapshot, to be presented to the session made of it.
    ///
    /// # Errors
    /// [`Error::ApiMisuse`] before the handshake is complete, after an error, and for TLS 1.2; the session stays as it is.
    pub fn export(&mut self) -> Result<Snapshot, Error> {
        match core::mem::replace(&mut self.0, State::Failed) {
            State::Records(records) => Ok(records.export()),
            other => {
                self.0 = other;
                Err(Error::ApiMisuse("only an established session of TLS 1.3 can be exported"))
            }
        }
    }

    /// Goes on with a connection that was [exported](Self::export). A client takes no more tickets on it.
    ///
    /// # Errors
    /// [`Error::ApiMisuse`] for a snapshot that no session made.
    pub fn import(snapshot: &Snapshot) -> Result<Self, Error> {
        Ok(Self(State::Records(Records::import(snapshot)?)))
    }

    #[cfg(test)]
    pub(super) fn into_records(self) -> Option<Records> {
        if let State::Records(records) = self.0 { Some(records) } else { None }
    }

    /// The session is dead, and its keys are wiped.
    #[cold]
    fn fail(&mut self, error: Error) -> Error {
        self.0 = State::Failed;
        error
    }

    /// The handshake is complete: takes the keys over, where it is TLS 1.3.
    fn take_over(&mut self) -> Result<(), Error> {
        if let State::Handshake(handshaking) = core::mem::replace(&mut self.0, State::Failed) {
            let Handshaking { role, session, tapped } = *handshaking;
            self.0 = if session.is_open_tls13() {
                let (agreed, secrets, tickets) = session.into_keys()?;
                State::Records(Records::new(role, agreed, &secrets, tapped, tickets)?)
            } else {
                State::Library(Box::new(session))
            };
        }
        Ok(())
    }
}

impl tautline_tls::Session for Session {
    fn handshake(&mut self, wire: &mut [u8], out: &mut Buf) -> Result<(usize, Handshake), Error> {
        match &mut self.0 {
            State::Handshake(handshaking) => {
                Tapped::discard();
                let progress = handshaking.session.handshake(wire, out);
                handshaking.tapped.collect();
                let progress = progress?;
                if progress.1 == Handshake::Complete {
                    self.take_over()?;
                }
                Ok(progress)
            }
            State::Library(_) | State::Records(_) => Ok((0, Handshake::Complete)),
            State::Failed => Err(DEAD),
        }
    }

    fn open<'b>(&mut self, wire: &'b mut [u8], scratch: &'b mut Buf, out: &mut Buf) -> Result<Opened<'b>, Error> {
        match &mut self.0 {
            State::Records(records) => match records.open(wire, out) {
                Err(error) => Err(self.fail(error)),
                opened => opened,
            },
            State::Library(session) => session.open(wire, scratch, out),
            State::Handshake(_) => Err(TOO_EARLY),
            State::Failed => Err(DEAD),
        }
    }

    fn seal(&mut self, plain: &[&[u8]], out: &mut Buf) -> Result<(), Error> {
        match &mut self.0 {
            State::Records(records) => records.seal(plain, out),
            State::Library(session) => session.seal(plain, out),
            State::Handshake(_) => Err(TOO_EARLY),
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
            State::Handshake(handshaking) => handshaking.session.close(out),
            State::Failed => {}
        }
    }

    fn facts(&self) -> Facts {
        match &self.0 {
            State::Records(records) => records.agreed().facts(),
            State::Library(session) => session.facts(),
            State::Handshake(handshaking) => handshaking.session.facts(),
            State::Failed => Facts::default(),
        }
    }
}

const TOO_EARLY: Error = Error::ApiMisuse("the handshake is not complete");
const DEAD: Error = Error::ApiMisuse("the session has failed before");
