use std::fmt;
use std::io::ErrorKind;
use std::process::ExitCode;

/// What a shell sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A run failed, or replies were wrong.
    Failed = 1,
    /// Arguments, files or configuration cannot work.
    Usage = 2,
    /// The network or TLS failed.
    Network = 3,
}

/// Why a command failed: one line, which says what happened and what to do.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) kind: Kind,
    what: String,
}

impl Failure {
    pub(crate) fn failed(what: impl Into<String>) -> Self {
        Self { kind: Kind::Failed, what: what.into() }
    }

    pub(crate) fn usage(what: impl Into<String>) -> Self {
        Self { kind: Kind::Usage, what: what.into() }
    }

    pub(crate) fn network(what: impl Into<String>) -> Self {
        Self { kind: Kind::Network, what: what.into() }
    }

    /// Says it on standard error.
    pub(crate) fn report(&self) -> ExitCode {
        eprintln!("taut: {self}");
        ExitCode::from(self.kind as u8)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl From<tautline_lab::Error> for Failure {
    fn from(error: tautline_lab::Error) -> Self {
        use tautline_lab::Error;
        let what = error.to_string();
        match error {
            Error::Usage(_) => Self::usage(what),
            Error::Network(_) => Self::network(what),
            _ => Self::failed(what),
        }
    }
}

impl From<tautline::Error> for Failure {
    fn from(error: tautline::Error) -> Self {
        use tautline::{Address, Error};
        match &error {
            Error::Listen { address: Address::Tcp(address), error: io } if io.kind() == ErrorKind::AddrInUse => {
                let by = crate::occupant::of(*address).map_or_else(String::new, |occupant| format!(" by {occupant}"));
                Self::network(format!(
                    "cannot listen at {address}: it is in use{by}; stop that or pass another --listen"
                ))
            }
            Error::Tls(_) | Error::NothingToListenAt => Self::usage(error.to_string()),
            Error::Connect(error) => Self::from(error),
            Error::Loop(_) => Self::failed(error.to_string()),
            _ => Self::network(error.to_string()),
        }
    }
}

impl From<&tautline::ConnectError> for Failure {
    fn from(error: &tautline::ConnectError) -> Self {
        let what = tautline_lab::load::explain(error);
        match error {
            tautline::ConnectError::Target(_) => Self::usage(what),
            _ => Self::network(what),
        }
    }
}
