use std::error::Error as StdError;
use std::{fmt, io};
use tautline_engine::{Closed, ConnectError};
use tautline_io::Address;

/// The reason why a server or client could not start, or why a socket ended.
///
/// `{}` prints the error's own text. `{:#}` appends the text of its sources, in one line for people. So does `{:?}`, which a
/// `main` prints that returns the error. Programs get the sources by [`source`](StdError::source). A variant that only holds
/// another error has the text and the source of that error.
///
/// ```
/// use tautline::{ClientConfig, Config, Socket, Target};
///
/// let mut target = Target::new("ws://localhost/")?;
/// target.address = Some("unix:/nobody/listens/here".parse()?);
/// let error = Socket::connect(target, ClientConfig::default(), Config::default()).unwrap_err();
/// assert!(error.to_string().starts_with("cannot connect to unix:/nobody/listens/here: No such file"));
/// assert_eq!(format!("{error:?}"), format!("{error:#}"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[non_exhaustive]
pub enum Error {
    /// The server has no address to listen at.
    NothingToListenAt,
    /// The server cannot listen at an address.
    Listen {
        /// The address.
        address: Address,
        /// The system's error.
        error: io::Error,
    },
    /// The TLS configuration cannot work.
    Tls(tautline_tls::Error),
    /// The machine refused a thread, a driver or a CPU.
    Machine {
        /// The step that failed.
        what: &'static str,
        /// The system's error.
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
                let place = if matches!(address, Address::Tcp(_)) { "port" } else { "path" };
                write!(f, "cannot listen at {address}: it is in use; stop the other program or choose another {place}")
            }
            Self::Listen { address, error } if error.kind() == io::ErrorKind::PermissionDenied => {
                write!(f, "cannot listen at {address}: not permitted; ports below 1024 need CAP_NET_BIND_SERVICE")
            }
            Self::Listen { address, error } if error.kind() == io::ErrorKind::AddrNotAvailable => {
                write!(f, "cannot listen at {address}: this machine has no such address")
            }
            Self::Listen { address, error } => {
                write!(f, "cannot listen at {address}")?;
                below(error, f)
            }
            Self::Tls(error) => write!(f, "{error}"),
            Self::Machine { what, error } => {
                f.write_str(what)?;
                below(error, f)
            }
            Self::Connect(error) => fmt::Display::fmt(error, f),
            Self::Closed(Closed { code, reason, cause, .. }) => {
                let reason = if reason.is_empty() { String::new() } else { format!(" {reason:?}") };
                write!(f, "connection closed ({}{reason}): ", code.get())?;
                fmt::Display::fmt(cause, f)
            }
            Self::Loop(what) => write!(f, "a loop failed: {what}"),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:#}")
    }
}

/// Writes the source in the alternate form.
fn below(error: &io::Error, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    if f.alternate() { write!(f, ": {error}") } else { Ok(()) }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Self::Listen { error, .. } | Self::Machine { error, .. } => Some(error),
            Self::Tls(error) => error.source(),
            Self::Connect(error) => error.source(),
            Self::Closed(closed) => closed.cause.source(),
            Self::NothingToListenAt | Self::Loop(_) => None,
        }
    }
}

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
