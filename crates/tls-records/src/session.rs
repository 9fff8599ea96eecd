use crate::records::Records;
use crate::snapshot::Snapshot;
use tautline_tls::{Error, Facts, Handshake, Opened, Team};
use tautline_window::Buf;
use tautline_window::kernel::{Direction, TrafficKeys};

/// A session of a library that gives its keys away.
pub trait Library: tautline_tls::Session {
    /// Whether it does so now. Asked when the handshake is complete, and after each record that it opens from then on; one
    /// that never is ready, as in TLS 1.2, goes on by itself.
    fn is_ready(&self) -> bool;

    /// Gives the keys away: whatever comes behind the bytes that were used so far is for [`Records`]. What is to leave before
    /// theirs is appended to `out`.
    ///
    /// # Errors
    /// Where there is something of the stream that the keys would miss, or the library tells no secrets after all.
    fn into_records(self: Box<Self>, out: &mut Buf) -> Result<Records, Error>;
}

/// One connection: a library's handshake, then our own records.
pub struct Session<L>(State<L>);

/// Records lie in the session itself, since connections mostly stand: the shard's own state of a connection is in the same
/// piece of memory.
#[expect(clippy::large_enum_variant, reason = "the large one is the common one")]
enum State<L> {
    /// The handshake, and records for as long as the library does not give its keys away.
    Library(Box<L>),
    /// TLS 1.3 after the handshake.
    Records(Records),
    Failed,
}

impl<L: Library> Session<L> {
    /// A session that begins with the library's.
    #[must_use]
    pub fn new(library: L) -> Self {
        Self(State::Library(Box::new(library)))
    }

    /// All there is to this connection, so that another session goes on with it, in another process perhaps. This one is
    /// dead afterwards, for two that seal with the same keys would break both.
    ///
    /// Between two calls a session holds nothing of the stream but whole records' worth: bytes that the caller did not
    /// get used go with the snapshot, to be presented to the session made of it.
    ///
    /// # Errors
    /// [`Error::ApiMisuse`] before the handshake is complete, after an error, for TLS 1.2, as long as a library keeps its
    /// keys, and once the kernel has them; the session stays as it is.
    pub fn export(&mut self) -> Result<Snapshot, Error> {
        match core::mem::replace(&mut self.0, State::Failed) {
            State::Records(records) if !records.is_in_kernel() => Ok(records.export()),
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

    /// Appends a KeyUpdate to `out` and seals with new keys from then on (RFC 8446, section 4.6.3); `ask` asks the peer to do
    /// the same. What happens by itself needs no call: new keys long before those in use are worn out, and where the peer
    /// asks for them.
    ///
    /// # Errors
    /// [`Error::ApiMisuse`] where the session does not seal by itself: before the handshake is complete, after the close or
    /// an error, for TLS 1.2, as long as a library keeps its keys, and once the kernel has them.
    pub fn update_keys(&mut self, ask: bool, out: &mut Buf) -> Result<(), Error> {
        match &mut self.0 {
            State::Records(records) => records.update_keys_now(ask, out),
            _ => Err(Error::ApiMisuse("only an established session of TLS 1.3 can change its keys")),
        }
    }

    /// Takes the keys over, where the library gives them away.
    fn take_over(&mut self, out: &mut Buf) -> Result<(), Error> {
        if let State::Library(library) = &mut self.0
            && library.is_ready()
            && let State::Library(library) = core::mem::replace(&mut self.0, State::Failed)
        {
            self.0 = State::Records(library.into_records(out)?);
        }
        Ok(())
    }
}

impl<L: Library> tautline_tls::Session for Session<L> {
    fn handshake(&mut self, wire: &mut [u8], out: &mut Buf) -> Result<(usize, Handshake), Error> {
        match &mut self.0 {
            State::Library(library) => {
                let progress = library.handshake(wire, out)?;
                if progress.1 == Handshake::Complete {
                    self.take_over(out)?;
                }
                Ok(progress)
            }
            State::Records(_) => Ok((0, Handshake::Complete)),
            State::Failed => Err(DEAD),
        }
    }

    fn open<'b>(&mut self, wire: &'b mut [u8], scratch: &'b mut Buf, out: &mut Buf) -> Result<Opened<'b>, Error> {
        match &mut self.0 {
            State::Records(records) => match records.open(wire, out) {
                Err(error) => {
                    // The session is dead, and its keys are wiped.
                    self.0 = State::Failed;
                    Err(error)
                }
                opened => opened,
            },
            State::Library(library) => {
                let opened = library.open(wire, scratch, out)?;
                self.take_over(out)?;
                Ok(opened)
            }
            State::Failed => Err(DEAD),
        }
    }

    fn seal(&mut self, plain: &[&[u8]], out: &mut Buf) -> Result<(), Error> {
        match &mut self.0 {
            State::Records(records) => records.seal(plain, out),
            State::Library(library) => library.seal(plain, out),
            State::Failed => Err(DEAD),
        }
    }

    fn seal_with(&mut self, plain: &[&[u8]], out: &mut Buf, team: &dyn Team) -> Result<(), Error> {
        match &mut self.0 {
            State::Records(records) => records.seal_with(plain, out, team),
            _ => self.seal(plain, out),
        }
    }

    fn close(&mut self, out: &mut Buf) {
        match &mut self.0 {
            State::Records(records) => {
                if let Err(error) = records.close(out) {
                    log::debug!("no close_notify: {error}");
                }
            }
            State::Library(library) => library.close(out),
            State::Failed => {}
        }
    }

    fn kernel_keys(&self, direction: Direction) -> Option<TrafficKeys> {
        if let State::Records(records) = &self.0 { records.kernel_keys(direction) } else { None }
    }

    fn kernel_took(&mut self, direction: Direction, rekeys: bool) {
        if let State::Records(records) = &mut self.0 {
            records.kernel_took(direction, rekeys);
        }
    }

    #[inline]
    fn next_kernel_keys(&mut self) -> Option<TrafficKeys> {
        if let State::Records(records) = &mut self.0 { records.next_kernel_keys() } else { None }
    }

    fn is_kernel_worn_out(&self) -> bool {
        matches!(&self.0, State::Records(records) if records.is_kernel_worn_out())
    }

    fn facts(&self) -> Facts {
        match &self.0 {
            State::Records(records) => records.agreed().facts(),
            State::Library(library) => library.facts(),
            State::Failed => Facts::default(),
        }
    }
}

const DEAD: Error = Error::ApiMisuse("the session has failed before");
