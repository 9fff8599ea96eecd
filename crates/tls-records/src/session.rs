use crate::phases::FAILED;
use crate::records::Records;
use crate::snapshot::Snapshot;
use tautline_buf::Buf;
use tautline_buf::kernel_tls::{Direction, TrafficKeys};
use tautline_tls::alert::Alert;
use tautline_tls::{Error, Handshake, Helpers, NO_EXPORTER, Opened, TlsInfo};

/// A session of a TLS library that can export its keys.
pub trait Library: tautline_tls::Session {
    /// Whether the library can export its keys now.
    ///
    /// It is asked when the handshake is complete, and then after each record that it opens. A session that is never
    /// ready, as in TLS 1.2, keeps its records.
    fn is_ready(&self) -> bool;

    /// Exports the keys: [`Records`] takes over behind the bytes used so far.
    ///
    /// Bytes that the library still has to send are appended to `out`.
    ///
    /// # Errors
    /// The library holds bytes of the stream that `Records` would miss, or it exports no secrets after all.
    fn into_records(self: Box<Self>, out: &mut Buf) -> Result<Records, Error>;
}

/// One connection: a library's handshake, then our own records.
pub struct Session<L>(State<L>);

/// The state of a session.
///
/// `Records` is not boxed, since most connections are established. It lies in one piece of memory with the shard's
/// state of the connection.
#[expect(clippy::large_enum_variant, reason = "the large one is the common one")]
enum State<L> {
    /// The handshake, and the library's records until it exports its keys.
    Library(Box<L>),
    /// TLS 1.3 after the handshake.
    Records(Records),
    /// After an error, with the fatal alert that was sent, if it is known.
    Failed(Option<Alert>),
}

impl<L: Library> Session<L> {
    /// Makes a session that begins with the handshake of `library`.
    #[must_use]
    pub fn new(library: L) -> Self {
        Self(State::Library(Box::new(library)))
    }

    /// Exports the state of the connection, for a session that continues it, possibly in another process.
    ///
    /// This session is dead afterwards: two sessions with the same keys would reuse nonces, which exposes the traffic.
    ///
    /// Between two calls a session holds no bytes of the wire. The caller moves the bytes that were not used along with
    /// the snapshot, and presents them to the new session.
    ///
    /// # Errors
    /// [`Error::ApiMisuse`] before the handshake is complete, for TLS 1.2, until the library exports its keys, once the
    /// kernel has them, and after an error. The session then stays as it is.
    pub fn export(&mut self) -> Result<Snapshot, Error> {
        match core::mem::replace(&mut self.0, State::Failed(None)) {
            State::Records(records) if !records.is_in_kernel() => Ok(records.snapshot()),
            other => {
                self.0 = other;
                Err(Error::ApiMisuse("only an established session of TLS 1.3 can be exported"))
            }
        }
    }

    /// The state of the connection, for a session that may take this one's place. Until then this one can go on.
    ///
    /// The caller must ensure that only one of the two is used from now on: two sessions with the same keys would reuse
    /// nonces, which exposes the traffic.
    ///
    /// # Errors
    /// Those of [`export`](Self::export), and [`Error::ApiMisuse`] if the session has a secret for exporters.
    pub fn snapshot(&self) -> Result<Snapshot, Error> {
        match &self.0 {
            State::Records(records) if records.info().has_exporter() => {
                Err(Error::ApiMisuse("a session with a secret for exporters (`exporter`) cannot move"))
            }
            State::Records(records) if !records.is_in_kernel() => Ok(records.snapshot()),
            _ => Err(Error::ApiMisuse("only an established session of TLS 1.3 can be exported")),
        }
    }

    /// Continues a connection that was [exported](Self::export). A client accepts no more tickets on it.
    ///
    /// # Errors
    /// [`Error::ApiMisuse`] if no session can be in the snapshot's state.
    pub fn import(snapshot: &Snapshot) -> Result<Self, Error> {
        Ok(Self(State::Records(Records::import(snapshot)?)))
    }

    /// Takes the keys over if the library can export them.
    fn take_over(&mut self, out: &mut Buf) -> Result<(), Error> {
        if let State::Library(library) = &mut self.0
            && library.is_ready()
            && let State::Library(library) = core::mem::replace(&mut self.0, State::Failed(None))
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
            State::Failed(_) => Err(FAILED),
        }
    }

    fn open(&mut self, wire: &mut [u8], scratch: &mut Buf, out: &mut Buf) -> Result<Opened, Error> {
        match &mut self.0 {
            State::Records(records) => match records.open(wire, out) {
                Err(error) => {
                    // Dropping the records wipes their keys.
                    self.0 = State::Failed(records.sent_alert());
                    Err(error)
                }
                opened => opened,
            },
            State::Library(library) => {
                let opened = library.open(wire, scratch, out)?;
                self.take_over(out)?;
                Ok(opened)
            }
            State::Failed(_) => Err(FAILED),
        }
    }

    fn seal(&mut self, plain: &[&[u8]], out: &mut Buf) -> Result<(), Error> {
        match &mut self.0 {
            State::Records(records) => records.seal(plain, out),
            State::Library(library) => library.seal(plain, out),
            State::Failed(_) => Err(FAILED),
        }
    }

    fn seal_with(&mut self, plain: &[&[u8]], out: &mut Buf, helpers: &dyn Helpers) -> Result<(), Error> {
        match &mut self.0 {
            State::Records(records) => records.seal_with(plain, out, helpers),
            _ => self.seal(plain, out),
        }
    }

    #[inline]
    fn seal_into(&mut self, plain: &[&[u8]], out: &mut [u8]) -> Result<Option<usize>, Error> {
        match &mut self.0 {
            State::Records(records) => records.seal_into(plain, out),
            State::Library(library) => library.seal_into(plain, out),
            State::Failed(_) => Err(FAILED),
        }
    }

    fn update_keys(&mut self, ask: bool, out: &mut Buf) -> Result<(), Error> {
        match &mut self.0 {
            State::Records(records) => records.update_keys_now(ask, out),
            _ => Err(Error::ApiMisuse("only an established session of TLS 1.3 can change its keys")),
        }
    }

    fn export_keying_material(&self, label: &[u8], context: &[u8], out: &mut [u8]) -> Result<(), Error> {
        match &self.0 {
            State::Records(records) => records.export_keying_material(label, context, out),
            _ => Err(NO_EXPORTER),
        }
    }

    fn save(&self, out: &mut Vec<u8>) -> Result<(), Error> {
        self.snapshot()?.encode(out);
        Ok(())
    }

    fn sent_alert(&self) -> Option<Alert> {
        match &self.0 {
            State::Records(records) => records.sent_alert(),
            State::Library(library) => library.sent_alert(),
            State::Failed(alert) => *alert,
        }
    }

    fn close(&mut self, out: &mut Buf) {
        match &mut self.0 {
            State::Records(records) => {
                if let Err(error) = records.close(out) {
                    log::debug!("no close_notify was sent: {error}");
                }
            }
            State::Library(library) => library.close(out),
            State::Failed(_) => {}
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

    fn tls_info(&self) -> TlsInfo {
        match &self.0 {
            State::Records(records) => records.info().expand(),
            State::Library(library) => library.tls_info(),
            State::Failed(_) => TlsInfo::default(),
        }
    }
}
