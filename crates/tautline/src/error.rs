use std::{fmt, io};
use tautline_engine::{Closed, ConnectError};
use tautline_io::Address;

/// Why a server or client could not start, or a socket ended.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// A server without an address to listen at.
    NothingToListenAt,
    /// Listening failed.
    Listen {
        /// Where.
        address: Address,
        /// Why.
        error: io::Error,
    },
    /// The TLS configuration cannot work.
    Tls(tautline_tls::Error),
    /// The machine refused: threads, drivers, CPUs.
    Machine {
        /// What was asked of it.
        what: &'static str,
        /// Its answer.
        error: io::Error,
    },
    /// A client could not connect.
    Connect(ConnectError),
    /// The connection ended.
    Closed(Closed),
    /// A loop panicked or failed.
    Loop(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NothingToListenAt => f.write_str("no address to listen at was given"),
            Self::Listen { address, error } if error.kind() == io::ErrorKind::AddrInUse => {
                write!(f, "cannot listen at {address}: it is in use; stop the other program or choose another port")
            }
            Self::Listen { address, error } if error.kind() == io::ErrorKind::PermissionDenied => {
                write!(f, "cannot listen at {address}: not permitted; ports below 1024 need CAP_NET_BIND_SERVICE")
            }
            Self::Listen { address, error } if error.kind() == io::ErrorKind::AddrNotAvailable => {
                write!(f, "cannot listen at {address}: this machine has no such address")
            }
            Self::Listen { address, error } => write!(f, "cannot listen at {address}: {error}"),
            Self::Tls(error) => write!(f, "{error}"),
            Self::Machine { what, error } => write!(f, "{what}: {error}"),
            Self::Connect(error) => write!(f, "{error}"),
            Self::Closed(closed) if closed.reason.is_empty() => {
                write!(f, "connection closed ({}): {}", closed.code.get(), closed.cause)
            }
            Self::Closed(closed) => {
                write!(f, "connection closed ({} {:?}): {}", closed.code.get(), closed.reason, closed.cause)
            }
            Self::Loop(what) => write!(f, "a loop failed: {what}"),
        }
    }
}

impl std::error::Error for Error {}

impl From<tautline_tls::Error> for Error {
    fn from(error: tautline_tls::Error) -> Self {
        Self::Tls(error)
    }
}

impl From<ConnectError> for Error {
    fn from(error: ConnectError) -> Self {
        Self::Connect(error)
    }
}
