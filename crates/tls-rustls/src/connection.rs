//! rustls' unbuffered connections, driven to where they need the peer or the caller.

use crate::error::describe;
use crate::record::MAX_PLAIN;
use crate::serving::Serving;
use rustls::client::{ClientConnectionData, UnbufferedClientConnection};
use rustls::kernel::KernelConnection;
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{ConnectionState, EncodeError, EncryptError, UnbufferedStatus};
use rustls::{ClientConfig, CommonState, ExtractedSecrets};
use std::sync::Arc;
use tautline_tls::Error;
use tautline_window::Buf;

/// Header, explicit nonce (TLS 1.2), tag and content type: no suite adds more to a record.
const MAX_OVERHEAD: usize = 5 + 8 + 16 + 1;

/// A connection of either role.
pub(crate) enum Connection {
    /// A server that has not seen a record yet: accepting costs no more than this.
    Waiting(Arc<Serving>),
    Server(Box<UnbufferedServerConnection>),
    Client(Box<UnbufferedClientConnection>),
}

/// What rustls still does for a client that gave its keys away: it takes tickets.
pub(crate) struct Tickets(pub(crate) KernelConnection<ClientConnectionData>);

/// Where rustls stopped.
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

    /// What both roles know; `None` before the first record.
    pub(crate) fn common(&self) -> Option<&CommonState> {
        match self {
            Self::Waiting(_) => None,
            Self::Server(connection) => Some(connection),
            Self::Client(connection) => Some(connection),
        }
    }

    /// Lets rustls work on `wire`, which holds whole records, and says how much of it is done with. What it wants to
    /// send, after an error too, is appended to `out`; application data to `plain`.
    pub(crate) fn process(&mut self, wire: &mut [u8], plain: &mut Buf, out: &mut Buf) -> Result<(usize, Step), Error> {
        if let Self::Waiting(serving) = self {
            let config = Arc::clone(serving.acceptor().config(wire));
            let connection = UnbufferedServerConnection::new(config).map_err(|error| describe(&error))?;
            *self = Self::Server(Box::new(connection));
        }
        match self {
            Self::Waiting(_) => Ok((0, Step::Blocked)),
            Self::Server(connection) => process(&mut **connection, wire, plain, out),
            Self::Client(connection) => process(&mut **connection, wire, plain, out),
        }
    }

    /// Seals `plain` into `out`. `held` is what [`process`](Self::process) left of the wire.
    pub(crate) fn seal(&mut self, held: &mut [u8], plain: &[u8], out: &mut Buf) -> Result<(), Error> {
        match self {
            Self::Waiting(_) => Err(NOT_OPEN),
            Self::Server(connection) => write(&mut **connection, held, Some(plain), out),
            Self::Client(connection) => write(&mut **connection, held, Some(plain), out),
        }
    }

    /// Hands over the keys of an established TLS 1.3 connection.
    pub(crate) fn into_keys(self) -> Result<(ExtractedSecrets, Option<Tickets>), Error> {
        match self {
            Self::Waiting(_) => Err(NOT_OPEN),
            Self::Server(connection) => {
                let (secrets, _) = connection.dangerous_into_kernel_connection().map_err(|error| describe(&error))?;
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
            Self::Server(connection) => write(&mut **connection, held, None, out),
            Self::Client(connection) => write(&mut **connection, held, None, out),
        }
    }
}

const NOT_OPEN: Error = Error::ApiMisuse("no data can be sent before the handshake is complete or after the close");

/// What the two roles' connections have in common but for their types.
trait Role {
    type Data;

    fn next<'c, 'i>(&'c mut self, wire: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data>;

    fn state(&self) -> &CommonState;
}

impl Role for UnbufferedServerConnection {
    type Data = ServerConnectionData;

    fn next<'c, 'i>(&'c mut self, wire: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data> {
        self.process_tls_records(wire)
    }

    fn state(&self) -> &CommonState {
        self
    }
}

impl Role for UnbufferedClientConnection {
    type Data = ClientConnectionData;

    fn next<'c, 'i>(&'c mut self, wire: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data> {
        self.process_tls_records(wire)
    }

    fn state(&self) -> &CommonState {
        self
    }
}

fn process<R: Role>(
    connection: &mut R,
    wire: &mut [u8],
    plain: &mut Buf,
    out: &mut Buf,
) -> Result<(usize, Step), Error> {
    let mut used = 0;
    loop {
        let UnbufferedStatus { discard, state } = connection.next(&mut wire[used..]);
        let step = match state {
            Ok(ConnectionState::EncodeTlsData(mut encode)) => {
                append(out, 0, |free| encode.encode(free).map_err(Full::from))?;
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
            // Early data is never accepted, and rustls has no other states now.
            Ok(_) => return Err(Error::Library("rustls is in an unknown state".to_owned())),
            Err(error) => {
                let error = describe(&error);
                encode_alert(connection, &mut wire[used..], out)?;
                return Err(error);
            }
        };
        used += discard;
        if let Some(step) = step {
            return Ok((used, step));
        }
    }
}

/// Appends what is still to be sent after an error: the alert. rustls reads nothing while it has something to send.
fn encode_alert<R: Role>(connection: &mut R, wire: &mut [u8], out: &mut Buf) -> Result<(), Error> {
    while connection.state().wants_write() {
        let Ok(ConnectionState::EncodeTlsData(mut encode)) = connection.next(wire).state else { break };
        append(out, 0, |free| encode.encode(free).map_err(Full::from))?;
    }
    Ok(())
}

/// Seals `plain`, or close_notify where there is none.
fn write<R: Role>(connection: &mut R, held: &mut [u8], plain: Option<&[u8]>, out: &mut Buf) -> Result<(), Error> {
    loop {
        match connection.next(held).state {
            Ok(ConnectionState::EncodeTlsData(mut encode)) => {
                append(out, 0, |free| encode.encode(free).map_err(Full::from))?;
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

/// Why nothing was written.
enum Full {
    /// This many bytes are needed.
    Needs(usize),
    /// It never will be.
    Never(&'static str),
}

impl From<EncodeError> for Full {
    fn from(error: EncodeError) -> Self {
        match error {
            EncodeError::InsufficientSize(size) => Self::Needs(size.required_size),
            EncodeError::AlreadyEncoded => Self::Never("handshake message encoded twice"),
        }
    }
}

impl From<EncryptError> for Full {
    fn from(error: EncryptError) -> Self {
        match error {
            EncryptError::InsufficientSize(size) => Self::Needs(size.required_size),
            EncryptError::EncryptExhausted => Self::Never("the connection's keys are used up: open a new one"),
        }
    }
}

/// Has `write` write into the free part of `out`, which it gives at least `room` bytes, or as many as it asks for.
fn append(out: &mut Buf, room: usize, mut write: impl FnMut(&mut [u8]) -> Result<usize, Full>) -> Result<(), Error> {
    let mut room = room;
    loop {
        match write(out.reserve(room)) {
            Ok(written) => {
                out.commit(written);
                return Ok(());
            }
            Err(Full::Needs(needed)) if needed > room => room = needed,
            Err(Full::Needs(_)) => return Err(Error::Library("rustls refuses room enough".to_owned())),
            Err(Full::Never(why)) => return Err(Error::Library(why.to_owned())),
        }
    }
}
