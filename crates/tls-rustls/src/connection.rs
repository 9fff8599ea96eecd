//! rustls' unbuffered connections, each driven until it needs the peer or the caller.

use crate::config::Serving;
use crate::error::{alert_of, describe};
use crate::guard::take_verdict;
use crate::server_configs::Chosen;
use core::ops::Deref;
use rustls::client::{ClientConnectionData, UnbufferedClientConnection};
use rustls::kernel::KernelConnection;
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{ConnectionState, EncodeError, EncryptError, UnbufferedStatus};
use rustls::{ClientConfig, CommonState, ExtractedSecrets};
use std::sync::Arc;
use tautline_buf::Buf;
use tautline_tls::Error;
use tautline_tls::alert::Alert;
use tautline_tls::record::MAX_PLAIN;
use tautline_tls_tickets::LiveConfig;

/// Most bytes that a suite adds to a record: header, explicit nonce (TLS 1.2), tag and content type.
const MAX_OVERHEAD: usize = 5 + 8 + 16 + 1;

/// A connection of either role.
pub(crate) enum Connection {
    /// A server that has not received a record yet. It holds no rustls connection.
    Waiting(LiveConfig<Serving>),
    Server(Box<Accepted>),
    Client(Box<UnbufferedClientConnection>),
}

/// A server's connection whose ClientHello has come.
pub(crate) struct Accepted {
    connection: UnbufferedServerConnection,
    /// The name of the rule about clients by which it was accepted.
    rule: Option<Arc<str>>,
}

/// The rest of a client's connection whose keys were exported: it accepts tickets.
pub(crate) struct Tickets(pub(crate) KernelConnection<ClientConnectionData>);

/// An error, and the alert that rustls made of it if the error tells which.
pub(crate) struct Fault {
    pub(crate) error: Error,
    pub(crate) alert: Option<Alert>,
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self { error, alert: None }
    }
}

/// The state in which rustls stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The handshake needs the peer's next record.
    Blocked,
    /// Application data may flow.
    Ready,
    /// Application data was appended to `plain`.
    Data,
    /// The peer's close_notify came.
    Closed,
}

impl Connection {
    pub(crate) fn client(
        config: &Arc<ClientConfig>,
        name: rustls::pki_types::ServerName<'static>,
    ) -> Result<Self, Error> {
        let connection = UnbufferedClientConnection::new(Arc::clone(config), name).map_err(|error| describe(&error))?;
        Ok(Self::Client(Box::new(connection)))
    }

    /// The state that both roles share; `None` before the first record.
    pub(crate) fn common(&self) -> Option<&CommonState> {
        match self {
            Self::Waiting(_) => None,
            Self::Server(accepted) => Some(&accepted.connection),
            Self::Client(connection) => Some(connection),
        }
    }

    /// The name of the rule about clients by which a server accepted the connection.
    pub(crate) fn client_rule(&self) -> Option<&str> {
        match self {
            Self::Server(accepted) => accepted.rule.as_deref(),
            Self::Waiting(_) | Self::Client(_) => None,
        }
    }

    /// Has rustls process `wire`, which holds whole records, and returns how many bytes it consumed.
    ///
    /// Bytes for the peer are appended to `out`, also after an error. Application data is appended to `plain`.
    pub(crate) fn process(&mut self, wire: &mut [u8], plain: &mut Buf, out: &mut Buf) -> Result<(usize, Step), Fault> {
        if let Self::Waiting(live) = self {
            let Some(Chosen { config, rule }) = live.current()?.choose(wire) else { return Ok((0, Step::Blocked)) };
            let connection = UnbufferedServerConnection::new(config).map_err(|error| describe(&error))?;
            *self = Self::Server(Box::new(Accepted { connection, rule }));
        }
        match self {
            Self::Waiting(_) => Ok((0, Step::Blocked)),
            Self::Server(accepted) => process(&mut accepted.connection, wire, plain, out),
            Self::Client(connection) => process(&mut **connection, wire, plain, out),
        }
    }

    /// Seals `plain` into `out`. `held` is the part of the wire that [`process`](Self::process) did not consume.
    pub(crate) fn seal(&mut self, held: &mut [u8], plain: &[u8], out: &mut Buf) -> Result<(), Error> {
        match self {
            Self::Waiting(_) => Err(NOT_OPEN),
            Self::Server(accepted) => write(&mut accepted.connection, held, Some(plain), out),
            Self::Client(connection) => write(&mut **connection, held, Some(plain), out),
        }
    }

    /// Appends a KeyUpdate to `out`. rustls requests one from the peer with it.
    pub(crate) fn update_keys(&mut self, held: &mut [u8], out: &mut Buf) -> Result<(), Error> {
        match self {
            Self::Waiting(_) => Err(NOT_OPEN),
            Self::Server(accepted) => update_keys(&mut accepted.connection, held, out),
            Self::Client(connection) => update_keys(&mut **connection, held, out),
        }
    }

    /// Exports the keys of an established TLS 1.3 connection.
    pub(crate) fn into_keys(self) -> Result<(ExtractedSecrets, Option<Tickets>), Error> {
        match self {
            Self::Waiting(_) => Err(NOT_OPEN),
            Self::Server(accepted) => {
                let secrets = accepted.connection.dangerous_into_kernel_connection();
                let (secrets, _) = secrets.map_err(|error| describe(&error))?;
                Ok((secrets, None))
            }
            Self::Client(connection) => {
                let (secrets, kernel) =
                    connection.dangerous_into_kernel_connection().map_err(|error| describe(&error))?;
                Ok((secrets, Some(Tickets(kernel))))
            }
        }
    }

    /// Appends close_notify to `out`.
    pub(crate) fn close(&mut self, held: &mut [u8], out: &mut Buf) -> Result<(), Error> {
        match self {
            Self::Waiting(_) => Ok(()),
            Self::Server(accepted) => write(&mut accepted.connection, held, None, out),
            Self::Client(connection) => write(&mut **connection, held, None, out),
        }
    }
}

const NOT_OPEN: Error = Error::ApiMisuse("no data can be sent before the handshake is complete or after the close");

/// The methods that the connection types of both roles share.
trait Role: Deref<Target: Deref<Target = CommonState>> {
    type Data;

    fn next<'c, 'i>(&'c mut self, wire: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data>;
}

impl Role for UnbufferedServerConnection {
    type Data = ServerConnectionData;

    fn next<'c, 'i>(&'c mut self, wire: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data> {
        self.process_tls_records(wire)
    }
}

impl Role for UnbufferedClientConnection {
    type Data = ClientConnectionData;

    fn next<'c, 'i>(&'c mut self, wire: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data> {
        self.process_tls_records(wire)
    }
}

fn process<R: Role>(
    connection: &mut R,
    wire: &mut [u8],
    plain: &mut Buf,
    out: &mut Buf,
) -> Result<(usize, Step), Fault> {
    // One may be left of another connection that failed in this thread.
    take_verdict();
    let mut used = 0;
    loop {
        let UnbufferedStatus { discard, state } = connection.next(&mut wire[used..]);
        let step = match state {
            Ok(ConnectionState::EncodeTlsData(mut encode)) => {
                append(out, 0, |free| encode.encode(free).map_err(EncodeFailure::from))?;
                None
            }
            Ok(ConnectionState::TransmitTlsData(transmit)) => {
                transmit.done();
                None
            }
            Ok(ConnectionState::ReadTraffic(mut traffic)) => {
                while let Some(record) = traffic.next_record() {
                    plain.put(record.map_err(|error| describe(&error))?.payload);
                }
                Some(Step::Data)
            }
            Ok(ConnectionState::BlockedHandshake) => Some(Step::Blocked),
            Ok(ConnectionState::WriteTraffic(_)) => Some(Step::Ready),
            Ok(ConnectionState::PeerClosed | ConnectionState::Closed) => Some(Step::Closed),
            // Early data is never accepted, and rustls has no other states today.
            Ok(_) => return Err(Error::Library("rustls is in an unknown state".to_owned()).into()),
            Err(error) => {
                let fault = match take_verdict() {
                    Some(bad) => Fault { error: Error::Peer(bad.what.to_owned()), alert: Some(bad.alert) },
                    None => Fault { error: describe(&error), alert: alert_of(&error) },
                };
                encode_alert(connection, &mut wire[used..], out)?;
                return Err(fault);
            }
        };
        used += discard;
        if let Some(step) = step {
            return Ok((used, step));
        }
    }
}

/// Appends the pending alert after an error. rustls reads nothing while it has bytes to send.
fn encode_alert<R: Role>(connection: &mut R, wire: &mut [u8], out: &mut Buf) -> Result<(), Error> {
    while connection.wants_write() {
        let Ok(ConnectionState::EncodeTlsData(mut encode)) = connection.next(wire).state else { break };
        append(out, 0, |free| encode.encode(free).map_err(EncodeFailure::from))?;
    }
    Ok(())
}

/// Seals `plain`, or close_notify if it is `None`.
fn write<R: Role>(connection: &mut R, held: &mut [u8], plain: Option<&[u8]>, out: &mut Buf) -> Result<(), Error> {
    loop {
        match connection.next(held).state {
            Ok(ConnectionState::EncodeTlsData(mut encode)) => {
                append(out, 0, |free| encode.encode(free).map_err(EncodeFailure::from))?;
            }
            Ok(ConnectionState::TransmitTlsData(transmit)) => transmit.done(),
            Ok(ConnectionState::PeerClosed) => {}
            Ok(ConnectionState::WriteTraffic(mut traffic)) => {
                return match plain {
                    Some(plain) => {
                        let records = plain.len().div_ceil(MAX_PLAIN);
                        append(out, plain.len() + records * MAX_OVERHEAD, |free| Ok(traffic.encrypt(plain, free)?))
                    }
                    None => append(out, 64, |free| Ok(traffic.queue_close_notify(free)?)),
                };
            }
            Ok(_) => return Err(NOT_OPEN),
            Err(error) => return Err(describe(&error)),
        }
    }
}

/// Has rustls change its sending keys, and appends the KeyUpdate that announces them.
fn update_keys<R: Role>(connection: &mut R, held: &mut [u8], out: &mut Buf) -> Result<(), Error> {
    let mut asked = false;
    loop {
        match connection.next(held).state {
            Ok(ConnectionState::EncodeTlsData(mut encode)) => {
                append(out, 0, |free| encode.encode(free).map_err(EncodeFailure::from))?;
            }
            Ok(ConnectionState::TransmitTlsData(transmit)) => transmit.done(),
            Ok(ConnectionState::PeerClosed) => {}
            Ok(ConnectionState::WriteTraffic(_)) if asked => return Ok(()),
            Ok(ConnectionState::WriteTraffic(traffic)) => {
                traffic.refresh_traffic_keys().map_err(|error| describe(&error))?;
                asked = true;
            }
            Ok(_) => return Err(NOT_OPEN),
            Err(error) => return Err(describe(&error)),
        }
    }
}

/// A reason why rustls wrote nothing.
enum EncodeFailure {
    /// The buffer needs room for this many bytes.
    NeedsRoom(usize),
    /// More room does not help.
    Fatal(&'static str),
}

impl From<EncodeError> for EncodeFailure {
    fn from(error: EncodeError) -> Self {
        match error {
            EncodeError::InsufficientSize(size) => Self::NeedsRoom(size.required_size),
            EncodeError::AlreadyEncoded => Self::Fatal("handshake message encoded twice"),
        }
    }
}

impl From<EncryptError> for EncodeFailure {
    fn from(error: EncryptError) -> Self {
        match error {
            EncryptError::InsufficientSize(size) => Self::NeedsRoom(size.required_size),
            EncryptError::EncryptExhausted => Self::Fatal("the connection's keys are used up: open a new one"),
        }
    }
}

/// Has `write` write into the free part of `out`, which has at least `room` bytes, or as many as `write` asks for.
fn append(
    out: &mut Buf,
    room: usize,
    mut write: impl FnMut(&mut [u8]) -> Result<usize, EncodeFailure>,
) -> Result<(), Error> {
    let mut room = room;
    loop {
        match write(out.reserve(room)) {
            Ok(written) => {
                out.commit(written);
                return Ok(());
            }
            Err(EncodeFailure::NeedsRoom(needed)) if needed > room => room = needed,
            Err(EncodeFailure::NeedsRoom(_)) => {
                return Err(Error::Library("rustls rejects a buffer of the size that it asked for".to_owned()));
            }
            Err(EncodeFailure::Fatal(why)) => return Err(Error::Library(why.to_owned())),
        }
    }
}
