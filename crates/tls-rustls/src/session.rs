use crate::connection::{Connection, Fault, Step, Tickets};
use crate::live_config::LiveConfig;
use crate::resolver;
use crate::secret_log::Secrets;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, CommonState, ExtractedSecrets, HandshakeKind, ProtocolVersion};
use std::sync::Arc;
use tautline_buf::Buf;
use tautline_tls::record::{self, BadHeader, Front, HEADER, RECORD_OVERFLOW, Stage, UNEXPECTED_MESSAGE};
use tautline_tls::{Content, Error, Handshake, NO_EXPORTER, Opened, TlsInfo, registry};
use tautline_tls_records::{Secret, Suite, gather};

/// Most bytes of a handshake message that spans records: rustls' longest message, with the headers and tags of records
/// of a sensible size.
const MAX_HELD: usize = 128 * 1024;

/// Most records in a row without application data. rustls has limits of its own for some kinds of them.
const MAX_CONTROL_RECORDS: u8 = 64;

/// One connection through rustls.
///
/// After an error `out` holds an alert if rustls makes one. It makes none for a few floods: empty records, warnings, and
/// tiny pieces of handshake messages.
pub struct Session {
    connection: Connection,
    /// Whole records of an incomplete handshake message, which rustls has to see again.
    held: Vec<u8>,
    /// The host name of the ClientHello.
    server_name: Option<Box<str>>,
    phase: Phase,
    /// Number of records since the last one that held application data.
    control_records: u8,
    /// The stage of the connection, for the next record's header.
    stage: Stage,
    sent_close: bool,
    received_close: bool,
    /// The secret of exporters, if the configuration asks for one.
    exporter: Option<Box<(Suite, Secret)>>,
    /// The fatal alert that was sent, if it is known.
    sent_alert: Option<u8>,
}

/// The parts of a session that continue without rustls.
pub(crate) struct Exported {
    pub(crate) group: u16,
    pub(crate) info: TlsInfo,
    pub(crate) exporter: Option<Secret>,
    pub(crate) secrets: ExtractedSecrets,
    pub(crate) tickets: Option<Tickets>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Nothing was sent yet.
    Fresh,
    Handshaking,
    Open,
    Failed,
}

impl Session {
    pub(crate) fn accept(live: Arc<LiveConfig>) -> Self {
        Self::new(Connection::Waiting(live), None)
    }

    pub(crate) fn connect(config: &Arc<ClientConfig>, name: ServerName<'static>) -> Result<Self, Error> {
        let server_name = match &name {
            ServerName::DnsName(name) => Some(Box::from(name.as_ref())),
            _ => None,
        };
        Ok(Self::new(Connection::client(config, name)?, server_name))
    }

    const fn new(connection: Connection, server_name: Option<Box<str>>) -> Self {
        Self {
            connection,
            held: Vec::new(),
            server_name,
            phase: Phase::Fresh,
            control_records: 0,
            stage: Stage::Handshake,
            sent_close: false,
            received_close: false,
            exporter: None,
            sent_alert: None,
        }
    }

    /// Whether the handshake is complete and negotiated TLS 1.3.
    pub(crate) fn is_open_tls13(&self) -> bool {
        let version = self.connection.common().and_then(|common| common.protocol_version());
        self.phase == Phase::Open && version == Some(ProtocolVersion::TLSv1_3)
    }

    /// Exports the keys, for the caller to seal and open all later records.
    ///
    /// With them come the number of the group, the negotiated parameters except version and suite, and the secret of
    /// exporters.
    pub(crate) fn into_keys(self) -> Result<Exported, Error> {
        let Some(common) = self.connection.common() else { return Err(Error::ApiMisuse("no handshake yet")) };
        // RFC 8446, section 5.1: a message must not span a change of keys.
        if !self.held.is_empty() {
            return Err(Error::Peer("the beginning of another message behind Finished".to_owned()));
        }
        let (group, info) = (group(common), self.names(common));
        let exporter = self.exporter.map(|exporter| exporter.1);
        let (secrets, tickets) = self.connection.into_keys()?;
        Ok(Exported { group, info, exporter, secrets, tickets })
    }

    /// The negotiated parameters except version, suite and group.
    fn names(&self, common: &CommonState) -> TlsInfo {
        let certificates = common.peer_certificates().unwrap_or_default();
        let mut info = TlsInfo::default();
        info.alpn = common.alpn_protocol().map(<[u8]>::to_vec);
        info.server_name = self.server_name.as_deref().map(str::to_owned);
        info.resumed = common.handshake_kind() == Some(HandshakeKind::Resumed);
        info.peer_certificates = certificates.iter().map(|certificate| certificate.to_vec()).collect();
        info
    }

    /// Marks the session as failed if `result` is an error.
    fn check<T>(&mut self, result: Result<T, Error>) -> Result<T, Error> {
        if result.is_err() {
            self.phase = Phase::Failed;
        }
        result
    }

    fn advance(&mut self, wire: &mut [u8], out: &mut Buf) -> Result<(usize, Handshake), Error> {
        // The handshake feeds rustls one record at a time, so it returns no application data.
        let mut plain = Buf::new();
        let mut used = 0;
        let mut step = Step::Blocked;
        if self.phase == Phase::Fresh {
            self.phase = Phase::Handshaking;
            if matches!(self.connection, Connection::Client(_)) {
                step = self.feed(&mut [], &mut plain, out)?;
            } else {
                self.stage = Stage::Hello;
            }
        }
        while step != Step::Ready {
            let rest = &mut wire[used..];
            self.check_header(rest, out)?;
            let Front::Whole(len) = record::front(rest) else { return Ok((used, Handshake::Pending)) };
            let said = out.len();
            step = self.feed(&mut rest[..len], &mut plain, out)?;
            used += len;
            if out.len() > said {
                // The server has answered, so the client's first flight is over.
                self.stage = Stage::Handshake;
            }
            if matches!(step, Step::Data | Step::Closed) {
                return Err(Error::Library(
                    "rustls passed application data before the handshake was complete".to_owned(),
                ));
            }
        }
        self.phase = Phase::Open;
        self.stage = if self.is_open_tls13() { Stage::Open13 } else { Stage::Open12 };
        Ok((used, Handshake::Complete))
    }

    /// Keeps the secret of exporters, if rustls logged it in this call.
    fn keep_exporter(&mut self) {
        let logged = Secrets::take_exporter();
        let suite = self.connection.common().and_then(|common| common.negotiated_cipher_suite());
        let suite = suite.and_then(|suite| Suite::from_code(suite.suite().into()));
        if let (Some(secret), Some(suite)) = (logged, suite) {
            self.exporter = Some(Box::new((suite, secret)));
        }
    }

    /// Has rustls process one whole record. A record that rustls has to see again is kept here, so it counts as used.
    fn feed(&mut self, record: &mut [u8], plain: &mut Buf, out: &mut Buf) -> Result<Step, Error> {
        let step = if self.held.is_empty() {
            let processed = self.connection.process(record, plain, out);
            let (used, step) = self.note_alert(processed)?;
            self.held.extend_from_slice(&record[used..]);
            step
        } else {
            self.held.extend_from_slice(record);
            let processed = self.connection.process(&mut self.held, plain, out);
            let (used, step) = self.note_alert(processed)?;
            if used == self.held.len() {
                self.held = Vec::new();
            } else {
                self.held.drain(..used);
            }
            step
        };
        if self.held.len() > MAX_HELD {
            return Err(Error::Peer("a handshake message in far too many pieces".to_owned()));
        }
        Ok(step)
    }

    /// Remembers the alert of a fault.
    fn note_alert<T>(&mut self, result: Result<T, Fault>) -> Result<T, Error> {
        result.map_err(|Fault { error, alert }| {
            self.sent_alert = alert;
            error
        })
    }

    /// Checks the header at the front of `wire`, as soon as it is whole.
    fn check_header(&mut self, wire: &[u8], out: &mut Buf) -> Result<(), Error> {
        match record::check(wire, self.stage) {
            // rustls alone can seal the right alert, and makes it for a record that is authentic. It is not waited for.
            Err(bad) if self.stage == Stage::Open13 && bad.alert == RECORD_OVERFLOW && is_whole(wire) => Ok(()),
            Err(bad) => Err(self.reject(bad, out)),
            Ok(()) => Ok(()),
        }
    }

    /// Refuses a header, with an alert for the peer.
    ///
    /// Before the first record nothing is protected, and the alert is ours. Later rustls has to make one: it is given a
    /// record for which it sends unexpected_message, or a header for which it sends decode_error.
    fn reject(&mut self, BadHeader { alert, what }: BadHeader, out: &mut Buf) -> Error {
        if matches!(self.connection, Connection::Waiting(_)) {
            out.put(&[21, 3, 3, 0, 2, 2, alert]);
            self.sent_alert = Some(alert);
            return Error::Peer(what.to_owned());
        }
        let cause = match self.phase {
            _ if alert != UNEXPECTED_MESSAGE => &BAD_LENGTH[..],
            Phase::Open => &CHANGE_CIPHER_SPEC,
            _ => &BAD_CHANGE_CIPHER_SPEC,
        };
        self.held.extend_from_slice(cause);
        let refused = self.connection.process(&mut self.held, &mut Buf::new(), out);
        let _ = self.note_alert(refused);
        Error::Peer(what.to_owned())
    }

    fn open_record<'b>(&mut self, wire: &mut [u8], scratch: &'b mut Buf, out: &mut Buf) -> Result<Opened<'b>, Error> {
        self.check_header(wire, out)?;
        let Front::Whole(used) = record::front(wire) else {
            return Ok(Opened { used: 0, content: Content::Partial });
        };
        let content = match self.feed(&mut wire[..used], scratch, out)? {
            Step::Data if !scratch.is_empty() => {
                self.control_records = 0;
                Content::Data(scratch.filled_mut())
            }
            Step::Data | Step::Ready | Step::Blocked if self.control_records == MAX_CONTROL_RECORDS => {
                return Err(Error::Peer("it floods the connection with records that hold no data".to_owned()));
            }
            Step::Data | Step::Ready | Step::Blocked => {
                self.control_records += 1;
                Content::Control
            }
            Step::Closed => {
                self.received_close = true;
                Content::Closed
            }
        };
        Ok(Opened { used, content })
    }
}

impl tautline_tls::Session for Session {
    fn handshake(&mut self, wire: &mut [u8], out: &mut Buf) -> Result<(usize, Handshake), Error> {
        match self.phase {
            Phase::Open => return Ok((0, Handshake::Complete)),
            Phase::Failed => return Err(FAILED),
            Phase::Fresh | Phase::Handshaking => {}
        }
        let _ = (resolver::take_sni(), Secrets::take_exporter());
        let result = self.advance(wire, out);
        self.keep_exporter();
        if let Some(name) = resolver::take_sni() {
            self.server_name = Some(name);
        }
        self.check(result)
    }

    fn open<'b>(&mut self, wire: &'b mut [u8], scratch: &'b mut Buf, out: &mut Buf) -> Result<Opened<'b>, Error> {
        match self.phase {
            Phase::Open => {}
            Phase::Failed => return Err(FAILED),
            Phase::Fresh | Phase::Handshaking => return Err(Error::ApiMisuse("open before the handshake is complete")),
        }
        if self.received_close {
            // RFC 8446, section 6.1: data after a closure alert must be ignored.
            return Ok(Opened { used: wire.len(), content: Content::Closed });
        }
        scratch.clear();
        let result = self.open_record(wire, scratch, out);
        self.check(result)
    }

    fn seal(&mut self, plain: &[&[u8]], out: &mut Buf) -> Result<(), Error> {
        if self.phase != Phase::Open || self.sent_close {
            return Err(Error::ApiMisuse("seal before the handshake is complete or after the close"));
        }
        let result = gather(plain, |piece| self.connection.seal(&mut self.held, piece, out));
        self.check(result)
    }

    fn update_keys(&mut self, _ask: bool, out: &mut Buf) -> Result<(), Error> {
        if !self.is_open_tls13() || self.sent_close {
            return Err(Error::ApiMisuse("only an established session of TLS 1.3 can change its keys"));
        }
        let result = self.connection.update_keys(&mut self.held, out);
        self.check(result)
    }

    fn export_keying_material(&self, label: &[u8], context: &[u8], out: &mut [u8]) -> Result<(), Error> {
        let (suite, secret) = self.exporter.as_deref().ok_or(NO_EXPORTER)?;
        secret.export(*suite, label, context, out)
    }

    fn sent_alert(&self) -> Option<u8> {
        self.sent_alert
    }

    fn close(&mut self, out: &mut Buf) {
        if self.phase == Phase::Open && !self.sent_close {
            self.sent_close = true;
            if let Err(error) = self.connection.close(&mut self.held, out) {
                log::debug!("no close_notify: {error}");
            }
        }
    }

    fn tls_info(&self) -> TlsInfo {
        let Some(common) = self.connection.common() else { return TlsInfo::default() };
        let mut info = self.names(common);
        info.version = match common.protocol_version() {
            Some(ProtocolVersion::TLSv1_3) => "TLSv1.3",
            Some(ProtocolVersion::TLSv1_2) => "TLSv1.2",
            _ => "",
        };
        let suite = common.negotiated_cipher_suite();
        info.suite = suite.map_or_else(String::new, |suite| registry::suite(suite.suite().into()));
        let is_known = common.negotiated_key_exchange_group().is_some();
        info.group = if is_known { registry::group(group(common)) } else { String::new() };
        info
    }
}

/// The IANA number of the key exchange group, or 0 if there was none.
fn group(common: &CommonState) -> u16 {
    common.negotiated_key_exchange_group().map_or(0, |group| group.name().into())
}

/// Whether `wire` begins with a whole record, of a length that some version of TLS has.
fn is_whole(wire: &[u8]) -> bool {
    matches!(record::front(wire), Front::Whole(_))
}

/// A change_cipher_spec, for which rustls sends unexpected_message after the handshake.
const CHANGE_CIPHER_SPEC: [u8; HEADER + 1] = [20, 3, 3, 0, 1, 1];

/// A change_cipher_spec with another value than 1, for which rustls sends unexpected_message in the handshake.
const BAD_CHANGE_CIPHER_SPEC: [u8; HEADER + 1] = [20, 3, 3, 0, 1, 2];

/// A header with a length that no record has, for which rustls sends decode_error.
const BAD_LENGTH: [u8; HEADER] = [23, 3, 3, 0xff, 0xff];

const FAILED: Error = Error::ApiMisuse("the session has failed before");
