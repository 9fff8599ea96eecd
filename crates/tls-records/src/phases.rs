use tautline_tls::alert::Alert;
use tautline_tls::record::BadHeader;
use tautline_tls::{Content, Error, Opened};

/// Most records in a row without application data. Each library has limits of its own for some kinds of them.
const MAX_CONTROL_RECORDS: u8 = 64;

/// The phase of a library's session, which decides what may be called.
#[derive(Clone, Copy, Debug, Default)]
pub struct Phases {
    phase: Phase,
    sent_close: bool,
    received_close: bool,
    /// Number of records since the last one that held application data.
    control_records: u8,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    /// Nothing was sent yet.
    #[default]
    Fresh,
    Handshaking,
    /// The handshake is complete.
    Open,
    /// After an error.
    Failed,
}

impl Phases {
    /// Whether the handshake is complete, for its next step.
    ///
    /// # Errors
    /// The session has failed.
    pub fn is_complete(&self) -> Result<bool, Error> {
        if self.phase == Phase::Failed { Err(FAILED) } else { Ok(self.is_open()) }
    }

    /// Begins the handshake. Returns `false` if it has begun before.
    pub fn begin(&mut self) -> bool {
        let is_fresh = self.phase == Phase::Fresh;
        if is_fresh {
            self.phase = Phase::Handshaking;
        }
        is_fresh
    }

    /// Notes that the handshake is complete.
    pub const fn complete(&mut self) {
        self.phase = Phase::Open;
    }

    /// Whether the handshake is complete and no error followed.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.phase == Phase::Open
    }

    /// Whether one of the ends has closed.
    #[must_use]
    pub const fn is_closing(&self) -> bool {
        self.sent_close || self.received_close
    }

    /// Called before a record is opened. Returns the result if the peer has closed: later data is ignored (RFC 8446,
    /// section 6.1).
    ///
    /// # Errors
    /// The handshake is not complete, or the session has failed.
    pub fn check_open(&self, wire: &[u8]) -> Result<Option<Opened>, Error> {
        match self.phase {
            Phase::Open => {}
            Phase::Failed => return Err(FAILED),
            Phase::Fresh | Phase::Handshaking => return Err(Error::ApiMisuse("open before the handshake is complete")),
        }
        Ok(self.received_close.then_some(Opened { used: wire.len(), content: Content::Closed }))
    }

    /// Called before data is sealed.
    ///
    /// # Errors
    /// The handshake is not complete, the session has failed, or this end has closed.
    pub fn check_seal(&self) -> Result<(), Error> {
        if self.is_open() && !self.sent_close {
            return Ok(());
        }
        Err(Error::ApiMisuse("seal before the handshake is complete or after the close"))
    }

    /// Notes that this end closes. Returns whether it sends close_notify: once, after the handshake.
    pub fn close(&mut self) -> bool {
        let sends = self.is_open() && !self.sent_close;
        self.sent_close |= sends;
        sends
    }

    /// Notes the peer's close_notify.
    pub const fn note_close(&mut self) {
        self.received_close = true;
    }

    /// Notes a record with application data.
    pub const fn note_data(&mut self) {
        self.control_records = 0;
    }

    /// Notes a record without application data.
    ///
    /// # Errors
    /// There were too many in a row.
    pub const fn note_control(&mut self) -> Result<(), BadHeader> {
        if self.control_records == MAX_CONTROL_RECORDS {
            let what = "it floods the connection with records that hold no data";
            return Err(BadHeader { alert: Alert::UNEXPECTED_MESSAGE, what });
        }
        self.control_records += 1;
        Ok(())
    }

    /// Marks the session as failed if `result` is an error.
    ///
    /// # Errors
    /// Those of `result`.
    pub fn check<T>(&mut self, result: Result<T, Error>) -> Result<T, Error> {
        if result.is_err() {
            self.phase = Phase::Failed;
        }
        result
    }
}

/// The error of a session after its first.
pub(crate) const FAILED: Error = Error::ApiMisuse("the session has failed before");
