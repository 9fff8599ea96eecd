use std::error::Error as StdError;
use std::{fmt, io};
use tautline_engine::connection::Unsent;
use tautline_engine::{Closed, ConnectError};

/// The reason why a socket could not be opened, or why it ended.
///
/// `{}` prints the error's own text. `{:#}` appends the text of its sources. So does `{:?}`, which a `main` prints that returns
/// the error.
#[non_exhaustive]
pub enum Error {
    /// The TLS configuration cannot work.
    Tls(tautline_tls::Error),
    /// The configuration asks for something that this crate does not do. The text names the remedy.
    Config(&'static str),
    /// The connection could not be opened, by this end or by the other.
    Connect(ConnectError),
    /// The open connection ended otherwise than by close frames.
    Closed(Closed),
    /// A message was not taken. The connection goes on, unless it is closed.
    Unsent(Unsent),
    /// The system has no random numbers or refused a socket.
    Io(io::Error),
}

impl Error {
    /// Whether a further attempt to connect must fail in the same way, as [`ConnectError::is_permanent`] says.
    #[must_use]
    pub fn is_permanent(&self) -> bool {
        match self {
            Self::Tls(_) | Self::Config(_) => true,
            Self::Connect(error) => error.is_permanent(),
            Self::Closed(_) | Self::Unsent(_) | Self::Io(_) => false,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tls(error) => write!(f, "{error}"),
            Self::Config(error) => f.write_str(error),
            Self::Connect(error) => fmt::Display::fmt(error, f),
            Self::Closed(closed) => {
                write!(f, "connection closed ({}): ", closed.code.get())?;
                fmt::Display::fmt(&closed.cause, f)
            }
            Self::Unsent(error) => write!(f, "the message was not sent: {error}"),
            Self::Io(error) => write!(f, "{error}"),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:#}")
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        match self {
            Self::Tls(error) => error.source(),
            Self::Connect(error) => error.source(),
            Self::Closed(closed) => closed.cause.source(),
            Self::Config(_) | Self::Unsent(_) => None,
            Self::Io(error) => error.source(),
        }
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<Unsent> for Error {
    fn from(error: Unsent) -> Self {
        Self::Unsent(error)
    }
}

impl From<ConnectError> for Error {
    fn from(error: ConnectError) -> Self {
        Self::Connect(error)
    }
}

impl From<tautline_tls::Error> for Error {
    fn from(error: tautline_tls::Error) -> Self {
        Self::Tls(error)
    }
}

#[cfg(test)]
mod tests {
    use super::Error;
    use std::io;
    use std::sync::Arc;
    use tautline_engine::ConnectError;

    #[test]
    fn the_debug_form_is_for_people_too() {
        let refused = Arc::new(io::Error::from(io::ErrorKind::ConnectionRefused));
        let error = Error::Connect(ConnectError::of_attempts([("127.0.0.1:1".parse().unwrap(), refused)]).unwrap());
        assert_eq!(format!("{error:?}"), "cannot connect to 127.0.0.1:1: connection refused");
        assert_eq!(format!("{error}"), format!("{error:?}"));
    }
}
