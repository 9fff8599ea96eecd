use crate::config::Serving;
use crate::connection::{Connection, Fault, Step, Tickets};
use crate::guard;
use crate::resolver;
use crate::secret_log::Secrets;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ExtractedSecrets, HandshakeKind, ProtocolVersion};
use std::sync::Arc;
use tautline_buf::Buf;
use tautline_tls::alert::Alert;
use tautline_tls::record::{self, BadHeader, Front, HEADER, Stage};
use tautline_tls::{ACME_TLS, Content, Error, Handshake, NO_EXPORTER, Opened, Plain, TlsInfo};
use tautline_tls_records::{Phases, Secret, Suite, gather};
use tautline_tls_tickets::LiveConfig;

/// Most bytes of a handshake message that spans records: rustls' longest message, with the headers and tags of records
/// of a sensible size.
const MAX_HELD: usize = 128 * 1024;

/// One connection through rustls.
///
/// After an error `out` holds an alert if rustls makes one. It makes none for a few floods: warnings, key updates, and tiny
/// pieces of handshake messages.
pub struct Session {
    connection: Connection,
    /// Whole records of an incomplete handshake message, which rustls has to see again.
    held: Vec<u8>,
    /// The host name of the ClientHello.
    server_name: Option<Box<str>>,
    phases: Phases,
    /// The stage of the connection, for the next record's header.
    stage: Stage,
    /// The secret of exporters, if the configuration asks for one.
    exporter: Option<Box<(Suite, Secret)>>,
    /// The fatal alert that was sent, if it is known.
    sent_alert: Option<Alert>,
}

/// The parts of a session that continue without rustls.
pub(crate) struct Exported {
    pub(crate) info: TlsInfo,
    pub(crate) exporter: Option<Secret>,
    pub(crate) secrets: ExtractedSecrets,
    pub(crate) tickets: Option<Tickets>,
}

impl Session {
    pub(crate) fn accept(live: LiveConfig<Serving>) -> Self {
        Self::new(Connection::Waiting(live), None)
    }

    pub(crate) fn connect(config: &Arc<ClientConfig>, name: ServerName<'static>) -> Result<Self, Error> {
        let server_name = match &name {
            ServerName::DnsName(name) => Some(Box::from(name.as_ref())),
            _ => None,
        };
        Ok(Self::new(Connection::client(config, name)?, server_name))
    }

    fn new(connection: Connection, server_name: Option<Box<str>>) -> Self {
        Self {
            connection,
            held: Vec::new(),
            server_name,
            phases: Phases::default(),
            stage: Stage::Handshake,
            exporter: None,
            sent_alert: None,
        }
    }

    /// Whether the handshake is complete and negotiated TLS 1.3.
    pub(crate) fn is_open_tls13(&self) -> bool {
        let version = self.connection.common().and_then(|common| common.protocol_version());
        self.phases.is_open() && version == Some(ProtocolVersion::TLSv1_3)
    }

    /// Exports the keys, for the caller to seal and open all later records.
    ///
    /// With them come the negotiated parameters and the secret of exporters.
    pub(crate) fn into_keys(self) -> Result<Exported, Error> {
        // RFC 8446, section 5.1: a message must not span a change of keys.
        if !self.held.is_empty() {
            return Err(Error::Peer("the beginning of another message behind Finished".to_owned()));
        }
        let info = tautline_tls::Session::tls_info(&self);
        let exporter = self.exporter.map(|exporter| exporter.1);
        let (secrets, tickets) = self.connection.into_keys()?;
        Ok(Exported { info, exporter, secrets, tickets })
    }

    fn advance(&mut self, wire: &mut [u8], out: &mut Buf) -> Result<(usize, Handshake), Error> {
        // The handshake feeds rustls one record at a time, so it returns no application data.
        let mut plain = Buf::new();
        let mut used = 0;
        let mut step = Step::Blocked;
        if self.phases.begin() {
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
        self.end_validation(out)?;
        self.phases.complete();
        self.stage = if self.is_open_tls13() { Stage::Open13 } else { Stage::Open12 };
        Ok((used, Handshake::Complete))
    }

    /// Closes the connection of an authority that has validated a name (RFC 8737, section 3): nothing follows its handshake, in
    /// which no client certificate was asked for.
    fn end_validation(&mut self, out: &mut Buf) -> Result<(), Error> {
        let protocol = self.connection.common().and_then(|common| common.alpn_protocol());
        if protocol != Some(ACME_TLS) || matches!(self.connection, Connection::Client(_)) {
            return Ok(());
        }
        self.connection.close(&mut self.held, out)?;
        Err(Error::Peer(
            "nothing follows the handshake of acme-tls/1, by which an authority validates a name".to_owned(),
        ))
    }

    /// Keeps the secret of exporters, if rustls logged it in this call.
    fn keep_exporter(&mut self) {
        let logged = Secrets::take_exporter();
        let suite = self.connection.common().and_then(|common| common.negotiated_cipher_suite());
        let suite = suite.and_then(|suite| Suite::negotiated(u16::from(suite.suite()).into()));
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
        record::check(wire, self.stage).map_err(|bad| self.reject(bad, out))
    }

    /// Refuses a record, with an alert for the peer.
    ///
    /// Before the first record the alert is ours. Later rustls makes it: it is given a record that its decrypter refuses.
    /// Without keys rustls has another alert for that record, whose code is replaced.
    fn reject(&mut self, bad: BadHeader, out: &mut Buf) -> Error {
        let BadHeader { alert, what } = bad;
        if matches!(self.connection, Connection::Waiting(_)) {
            out.put(&[21, 3, 3, 0, 2, 2, alert.0]);
            self.sent_alert = Some(alert);
            return Error::Peer(what.to_owned());
        }
        let said = out.len();
        guard::refuse_next(bad);
        self.held.extend_from_slice(&REFUSED);
        let refused = self.connection.process(&mut self.held, &mut Buf::new(), out);
        let _ = self.note_alert(refused);
        guard::forget();
        if let [21, 3, _, 0, 2, 2, code] = &mut out.filled_mut()[said..] {
            *code = alert.0;
            self.sent_alert = Some(alert);
        }
        Error::Peer(what.to_owned())
    }

    fn open_record(&mut self, wire: &mut [u8], scratch: &mut Buf, out: &mut Buf) -> Result<Opened, Error> {
        self.check_header(wire, out)?;
        let Front::Whole(used) = record::front(wire) else {
            return Ok(Opened { used: 0, content: Content::Partial });
        };
        let content = match self.feed(&mut wire[..used], scratch, out)? {
            Step::Data if !scratch.is_empty() => {
                self.phases.note_data();
                Content::Data(Plain::in_scratch(scratch.len()))
            }
            Step::Data | Step::Ready | Step::Blocked => {
                self.phases.note_control().map_err(|flood| self.reject(flood, out))?;
                Content::Control
            }
            Step::Closed => {
                self.phases.note_close();
                Content::Closed
            }
        };
        Ok(Opened { used, content })
    }
}

impl tautline_tls::Session for Session {
    fn handshake(&mut self, wire: &mut [u8], out: &mut Buf) -> Result<(usize, Handshake), Error> {
        if self.phases.is_complete()? {
            return Ok((0, Handshake::Complete));
        }
        let _ = (resolver::take_sni(), Secrets::take_exporter());
        let result = self.advance(wire, out);
        self.keep_exporter();
        if let Some(name) = resolver::take_sni() {
            self.server_name = Some(name);
        }
        self.phases.check(result)
    }

    fn open(&mut self, wire: &mut [u8], scratch: &mut Buf, out: &mut Buf) -> Result<Opened, Error> {
        if let Some(closed) = self.phases.check_open(wire)? {
            return Ok(closed);
        }
        scratch.clear();
        let result = self.open_record(wire, scratch, out);
        self.phases.check(result)
    }

    fn seal(&mut self, plain: &[&[u8]], out: &mut Buf) -> Result<(), Error> {
        self.phases.check_seal()?;
        let result = gather(plain, |piece| self.connection.seal(&mut self.held, piece, out));
        self.phases.check(result)
    }

    fn update_keys(&mut self, _ask: bool, out: &mut Buf) -> Result<(), Error> {
        if !self.is_open_tls13() || self.phases.check_seal().is_err() {
            return Err(Error::ApiMisuse("only an established session of TLS 1.3 can change its keys"));
        }
        let result = self.connection.update_keys(&mut self.held, out);
        self.phases.check(result)
    }

    fn export_keying_material(&self, label: &[u8], context: &[u8], out: &mut [u8]) -> Result<(), Error> {
        let (suite, secret) = self.exporter.as_deref().ok_or(NO_EXPORTER)?;
        secret.export(*suite, label, context, out)
    }

    fn sent_alert(&self) -> Option<Alert> {
        self.sent_alert
    }

    fn close(&mut self, out: &mut Buf) {
        if self.phases.close()
            && let Err(error) = self.connection.close(&mut self.held, out)
        {
            log::debug!("no close_notify: {error}");
        }
    }

    fn tls_info(&self) -> TlsInfo {
        let Some(common) = self.connection.common() else { return TlsInfo::default() };
        let mut info = TlsInfo::default();
        info.version = common.protocol_version().map(|version| u16::from(version).into());
        info.suite = common.negotiated_cipher_suite().map(|suite| u16::from(suite.suite()).into());
        info.group = common.negotiated_key_exchange_group().map(|group| u16::from(group.name()).into());
        info.alpn = common.alpn_protocol().map(<[u8]>::to_vec);
        info.server_name = self.server_name.as_deref().map(str::to_owned);
        info.resumed = common.handshake_kind() == Some(HandshakeKind::Resumed);
        let certificates = common.peer_certificates().unwrap_or_default();
        info.peer_certificates = certificates.iter().map(|certificate| certificate.to_vec()).collect();
        info.client_rule = self.connection.client_rule().map(str::to_owned);
        info
    }
}

/// A record that is refused whether or not there are keys.
const REFUSED: [u8; HEADER + 1] = [23, 3, 3, 0, 1, 0];
