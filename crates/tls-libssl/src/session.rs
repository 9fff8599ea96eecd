use crate::client::ClientContext;
use crate::error::describe;
use crate::host::Host;
use crate::sys::{Connection, Context, Failure, Status};
use core::net::IpAddr;
use std::sync::Arc;
use tautline_buf::Buf;
use tautline_tls::alert::Alert;
use tautline_tls::record::{self, BadHeader, Front, HEADER, MAX_PLAIN, Stage};
use tautline_tls::{Content, Error, Handshake, Opened, Plain, TlsInfo};
use tautline_tls_records::{Phases, Secret, Suite, gather};

/// Most bytes of a handshake: the longest messages that the libraries take, in records of a sensible size.
const MAX_HANDSHAKE: usize = 128 * 1024;

/// Longest body of a TLS 1.3 record of any offered suite: content, content type and tag (RFC 8446, section 5.2).
const MAX_BODY_TLS13: usize = MAX_PLAIN + 1 + 16;

/// Most bytes that an offered suite adds to a record: header, explicit nonce (TLS 1.2), tag and content type.
const MAX_OVERHEAD: usize = HEADER + 8 + 16 + 1;

/// Most bytes of plaintext that are held back until the peer completes a handshake message.
const MAX_HELD: usize = 64 * 1024;

/// Records that one key protects before the next one replaces it: a third of AES-GCM's limit (RFC 8446, section 5.5).
const REKEY_AFTER: u64 = 1 << 23;

/// Most records that one key may protect (RFC 8446, section 5.5), for LibreSSL, which cannot change keys.
const MAX_SEALED: u64 = 23_726_566;

/// One connection through a library of the OpenSSL family.
///
/// After an error `out` holds the library's alert, unless memory ran out.
pub struct Session {
    connection: Connection,
    context: Arc<Context>,
    client: Option<Arc<ClientContext>>,
    /// The host that a client expects. Its sessions are stored under it, and errors name it.
    host: Box<str>,
    phases: Phases,
    is_tls13: bool,
    /// Number of bytes received in the handshake.
    received: usize,
    /// Whether a server has answered, which ends the client's first flight.
    answered: bool,
    /// Number of records that our current key has protected.
    sealed: u64,
    /// Number of records that were opened since the handshake.
    opened: u64,
    /// Whether a record held application data.
    has_data: bool,
    /// Whether keys changed, so that the first traffic secrets may be out of use.
    is_rekeyed: bool,
    /// Plaintext that is held back until the peer completes a handshake message.
    held: Vec<u8>,
}

/// The content of a record.
enum Found {
    Data(usize),
    Control,
    Partial,
    Closed,
}

/// The state with which our own records continue a connection.
pub(crate) struct ExportedKeys {
    pub(crate) is_client: bool,
    pub(crate) suite: Suite,
    pub(crate) info: TlsInfo,
    /// The first traffic secrets of client and server.
    pub(crate) client: Secret,
    pub(crate) server: Secret,
    /// Number of received records, and of sent records, that they protected.
    pub(crate) opened: u64,
    pub(crate) sealed: u64,
}

impl Session {
    pub(crate) fn accept(context: &Arc<Context>) -> Result<Self, Error> {
        let connection = Connection::accept(Arc::clone(context)).ok_or_else(no_memory)?;
        Ok(Self::new(connection, Arc::clone(context), None, ""))
    }

    pub(crate) fn connect(client: &Arc<ClientContext>, host: &str) -> Result<Self, Error> {
        let parsed = Host::parse(host)?;
        let session = client.sessions.as_ref().and_then(|sessions| sessions.take(host));
        let context = Arc::clone(&client.context);
        let connection = match &parsed {
            Host::Name(name) => Connection::connect(context, Some(name), &[], session),
            Host::Address(IpAddr::V4(ip)) => Connection::connect(context, None, &ip.octets(), session),
            Host::Address(IpAddr::V6(ip)) => Connection::connect(context, None, &ip.octets(), session),
        };
        let connection = connection.ok_or_else(no_memory)?;
        Ok(Self::new(connection, Arc::clone(&client.context), Some(Arc::clone(client)), host))
    }

    fn new(connection: Connection, context: Arc<Context>, client: Option<Arc<ClientContext>>, host: &str) -> Self {
        Self {
            connection,
            context,
            client,
            host: host.into(),
            phases: Phases::default(),
            is_tls13: false,
            received: 0,
            answered: false,
            sealed: 0,
            opened: 0,
            has_data: false,
            is_rekeyed: false,
            held: Vec::new(),
        }
    }

    /// For tests: with `spill_all` none of the library's output fits the caller's buffer. With `spill_fails` there is no memory
    /// for such output.
    #[doc(hidden)]
    pub fn inject(&mut self, spill_all: bool, spill_fails: bool) {
        self.connection.inject(if spill_all { 0 } else { usize::MAX }, spill_fails);
    }

    /// For tests: limits the room in the caller's buffer that the library sees.
    #[doc(hidden)]
    pub fn limit_window(&mut self, bytes: usize) {
        self.connection.inject(bytes, false);
    }

    /// For tests: ages the sealing key to its limit. It changes before the next record, if the library can change keys.
    #[doc(hidden)]
    pub fn wear_out(&mut self) {
        self.sealed = REKEY_AFTER;
    }

    /// For benchmarks, before the first operation: gives the library BIOs with memory of their own, as most programs do.
    ///
    /// # Errors
    /// There is no memory for the BIOs.
    #[doc(hidden)]
    pub fn use_memory_bio(&mut self) -> Result<(), Error> {
        if self.connection.use_memory() { Ok(()) } else { Err(no_memory()) }
    }

    /// For benchmarks: opens the record at the front of `wire` into `plain`, which must have room for a whole record.
    ///
    /// Returns the number of bytes used and of application data; `None` if the record is not whole.
    ///
    /// # Errors
    /// The errors of [`open`](tautline_tls::Session::open), and [`Error::ApiMisuse`] if `plain` is too short.
    #[doc(hidden)]
    pub fn open_into(
        &mut self,
        wire: &mut [u8],
        plain: &mut [u8],
        out: &mut Buf,
    ) -> Result<Option<(usize, usize)>, Error> {
        if !self.phases.is_open() || plain.len() < MAX_PLAIN {
            return Err(Error::ApiMisuse("the plaintext buffer is too short for a record, or no connection is open"));
        }
        let (used, found) = match self.open_record(wire, Some(plain), out) {
            Ok((used, found)) => (used, found),
            Err(error) => return self.phases.check(Err(error)),
        };
        Ok(match found {
            Found::Partial => None,
            Found::Data(len) => Some((used, len)),
            Found::Control | Found::Closed => Some((used, 0)),
        })
    }

    /// Whether our own records can continue with only the first traffic secrets and the numbers of records.
    pub(crate) fn can_export_keys(&self) -> bool {
        // Servers send tickets before their first data. A client that stores sessions waits for them.
        let has_tickets = self.has_data || self.client.as_ref().is_none_or(|client| client.sessions.is_none());
        self.phases.is_open()
            && self.is_tls13
            && has_tickets
            && !self.is_rekeyed
            && self.held.is_empty()
            && !self.phases.is_closing()
    }

    /// Exports the keys, for our own records to seal and open all later records.
    pub(crate) fn export_keys(mut self, out: &mut Buf) -> Result<ExportedKeys, Error> {
        if self.client.is_none() {
            let start = out.len();
            if let Status::Failed(failure) = self.connection.flush(out).status {
                return Err(self.failed(&failure));
            }
            self.sealed += records(&out.filled()[start..]);
        }
        let info = self.connection.tls_info();
        let suite = info
            .suite
            .and_then(Suite::negotiated)
            .ok_or_else(|| Error::Library("the library negotiated a cipher that is unknown here".to_owned()))?;
        let (client, server) = self.connection.secrets().ok_or_else(|| {
            Error::Library(format!("{} does not export secrets", self.context.library().flavour().title()))
        })?;
        let is_client = self.client.is_some();
        Ok(ExportedKeys { is_client, suite, info, client, server, opened: self.opened, sealed: self.sealed })
    }

    fn failed(&self, failure: &Failure) -> Error {
        describe(failure, &self.connection, &self.host, self.context.library().flavour())
    }

    fn advance(&mut self, wire: &[u8], out: &mut Buf) -> Result<(usize, Handshake), Error> {
        if self.phases.begin() && self.client.is_some() {
            let _ = self.feed(&[], out)?;
        }
        let mut used = 0;
        loop {
            let rest = &wire[used..];
            let stage = if self.client.is_none() && !self.answered { Stage::Hello } else { Stage::Handshake };
            if let Err(bad) = record::check(rest, stage) {
                return Err(self.reject_header(&rest[..HEADER], bad, out));
            }
            let Front::Whole(len) = record::front(rest) else { return Ok((used, Handshake::Pending)) };
            self.received += len;
            if self.received > MAX_HANDSHAKE {
                return Err(self.reject(&UNEXPECTED, "a handshake of far too many bytes", out));
            }
            used += len;
            let start = out.len();
            let complete = self.feed(&rest[..len], out)? == Handshake::Complete;
            self.answered |= out.len() > start;
            if complete {
                self.phases.complete();
                self.is_tls13 = self.connection.is_tls13();
                if self.client.is_none() {
                    // A server sends tickets after the client's Finished, under the keys of application data.
                    self.sealed = records(&out.filled()[start..]);
                }
                if self.client.is_some() {
                    self.connection.keep_session();
                    self.collect_sessions();
                }
                return Ok((used, Handshake::Complete));
            }
        }
    }

    /// Has the library process one record of the handshake, or begin the handshake if `record` is empty.
    fn feed(&mut self, record: &[u8], out: &mut Buf) -> Result<Handshake, Error> {
        let outcome = self.connection.handshake(record, out);
        match outcome.status {
            Status::Failed(failure) => Err(self.failed(&failure)),
            Status::Closed => Err(Error::Peer("it closed the connection before the handshake was complete".to_owned())),
            Status::Done | Status::Want if outcome.used != record.len() => Err(left_over()),
            Status::Want => Ok(Handshake::Pending),
            Status::Done => Ok(Handshake::Complete),
        }
    }

    /// Gives the library bytes that it rejects, so that it makes an alert, and returns the error.
    fn reject(&mut self, wire: &[u8], what: &str, out: &mut Buf) -> Error {
        let _ = if self.phases.is_open() {
            self.connection.read(&mut wire.to_vec(), out)
        } else {
            self.connection.handshake(wire, out)
        };
        Error::Peer(what.to_owned())
    }

    /// Has the library make the alert for a header: it gets a record that makes it send that alert, or the header itself.
    fn reject_header(&mut self, header: &[u8], BadHeader { alert, what }: BadHeader, out: &mut Buf) -> Error {
        let is_other_protocol = !matches!(header, [20..=24, 3, ..]);
        let cause: &[u8] = match alert {
            Alert::UNEXPECTED_MESSAGE if !is_other_protocol => &UNEXPECTED,
            Alert::RECORD_OVERFLOW => &TOO_LONG,
            _ => header,
        };
        self.reject(cause, what, out)
    }

    /// Stores the sessions that a client can resume later.
    fn collect_sessions(&mut self) {
        let Some(sessions) = self.client.as_ref().and_then(|client| client.sessions.as_ref()) else { return };
        while let Some(session) = self.connection.session() {
            sessions.put(&self.host, session);
        }
    }

    /// Opens the record at the front of `wire`. Its content is then at the front of `plain`, or of `wire` if `plain` is `None`.
    fn open_record(
        &mut self,
        wire: &mut [u8],
        plain: Option<&mut [u8]>,
        out: &mut Buf,
    ) -> Result<(usize, Found), Error> {
        // OpenSSL would accept change_cipher_spec after the handshake, and padding beyond the length of a record.
        let stage = if self.is_tls13 { Stage::Open13 } else { Stage::Open12 };
        if let Err(bad) = record::check(wire, stage) {
            return Err(self.reject_header(&wire[..HEADER], bad, out));
        }
        let Front::Whole(used) = record::front(wire) else { return Ok((0, Found::Partial)) };
        if self.is_tls13 && used > HEADER + MAX_BODY_TLS13 {
            return Err(self.reject(&TOO_LONG, "a record that holds more than it may", out));
        }
        let outcome = match plain {
            Some(plain) => self.connection.read_into(&wire[..used], plain, out),
            None => self.connection.read(&mut wire[..used], out),
        };
        self.opened += 1;
        self.is_rekeyed |= outcome.rekeyed;
        let found = match outcome.status {
            Status::Failed(failure) => return Err(self.failed(&failure)),
            Status::Done | Status::Want if outcome.used != used => return Err(left_over()),
            Status::Closed => {
                self.phases.note_close();
                Found::Closed
            }
            Status::Want | Status::Done if outcome.plain == 0 => {
                self.phases.note_control().map_err(|flood| self.reject(&UNEXPECTED, flood.what, out))?;
                self.collect_sessions();
                Found::Control
            }
            Status::Want | Status::Done => {
                self.phases.note_data();
                self.has_data = true;
                Found::Data(outcome.plain)
            }
        };
        if !self.held.is_empty() {
            let held = core::mem::take(&mut self.held);
            self.seal_piece(&held, out)?;
        }
        Ok((used, found))
    }

    /// Seals `plain` as full records and one for the rest.
    fn seal_piece(&mut self, plain: &[u8], out: &mut Buf) -> Result<(), Error> {
        if !self.held.is_empty() {
            return self.hold(plain);
        }
        let records = plain.len().div_ceil(MAX_PLAIN);
        self.sealed = self.sealed.saturating_add(records as u64);
        if self.is_tls13 && self.sealed > REKEY_AFTER {
            if self.connection.update_keys() {
                self.sealed = 0;
                self.is_rekeyed = true;
            } else if self.sealed > MAX_SEALED {
                return Err(Error::Library(
                    "its key has protected the most records that it may, and cannot change".to_owned(),
                ));
            }
        }
        // A KeyUpdate may precede the data.
        let room = plain.len() + (records + 2) * MAX_OVERHEAD;
        let outcome = self.connection.write(plain, room, out);
        match outcome.status {
            Status::Failed(failure) => Err(self.failed(&failure)),
            Status::Done => Ok(()),
            Status::Want | Status::Closed => self.hold(&plain[outcome.plain..]),
        }
    }

    fn hold(&mut self, plain: &[u8]) -> Result<(), Error> {
        if self.held.len() + plain.len() > MAX_HELD {
            return Err(Error::Peer("it began a handshake message and does not end it".to_owned()));
        }
        self.held.extend_from_slice(plain);
        Ok(())
    }
}

impl tautline_tls::Session for Session {
    fn handshake(&mut self, wire: &mut [u8], out: &mut Buf) -> Result<(usize, Handshake), Error> {
        if self.phases.is_complete()? {
            return Ok((0, Handshake::Complete));
        }
        let result = self.advance(wire, out);
        self.phases.check(result)
    }

    fn open(&mut self, wire: &mut [u8], _scratch: &mut Buf, out: &mut Buf) -> Result<Opened, Error> {
        if let Some(closed) = self.phases.check_open(wire)? {
            return Ok(closed);
        }
        let result = self.open_record(wire, None, out);
        let (used, found) = self.phases.check(result)?;
        let content = match found {
            Found::Data(len) => Content::Data(Plain::in_wire(0..len)),
            Found::Control => Content::Control,
            Found::Partial => Content::Partial,
            Found::Closed => Content::Closed,
        };
        Ok(Opened { used, content })
    }

    fn seal(&mut self, plain: &[&[u8]], out: &mut Buf) -> Result<(), Error> {
        self.phases.check_seal()?;
        let result = gather(plain, |piece| self.seal_piece(piece, out));
        self.phases.check(result)
    }

    fn close(&mut self, out: &mut Buf) {
        if self.phases.close()
            && let Status::Failed(failure) = self.connection.close(out).status
        {
            log::debug!("no close_notify: {}", failure.reason);
        }
    }

    fn tls_info(&self) -> TlsInfo {
        if self.phases.is_open() { self.connection.tls_info() } else { TlsInfo::default() }
    }
}

/// application_data
const DATA: u8 = 23;

/// An unprotected handshake message, which every library rejects after the handshake with the alert unexpected_message.
const UNEXPECTED: [u8; HEADER + 1] = [22, 3, 3, 0, 1, 0];

/// A header with a length that no record has. The alert is record_overflow.
const TOO_LONG: [u8; HEADER] = [DATA, 3, 3, 0xff, 0xff];

/// The number of whole records at the front of `wire`.
fn records(mut wire: &[u8]) -> u64 {
    let mut count = 0;
    while let Front::Whole(len) = record::front(wire) {
        wire = &wire[len..];
        count += 1;
    }
    count
}

fn no_memory() -> Error {
    Error::Library("no memory for another connection".to_owned())
}

fn left_over() -> Error {
    Error::Library("the library left a part of a record".to_owned())
}

#[cfg(test)]
mod tests;
