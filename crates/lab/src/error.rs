use std::fmt;
use std::io;

/// Why a measurement did not come about, by what the user can do.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// A reply was wrong: what differed.
    WrongReply(String),
    /// The run cannot give a result: why.
    Failed(String),
    /// A connection failed: which and why.
    Network(String),
    /// What was asked for cannot be measured: what to change.
    Usage(String),
}

impl Error {
    /// A failed system call, with what it was for.
    pub(crate) fn io(what: impl fmt::Display, error: impl Into<io::Error>) -> Self {
        Self::Network(format!("{what}: {}", error.into()))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WrongReply(what) => write!(f, "wrong reply: {what}"),
            Self::Failed(what) | Self::Network(what) | Self::Usage(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for Error {}
