use std::fmt;
use std::io;

/// Reasons for a failed measurement, sorted by the user's remedy.
#[non_exhaustive]
pub enum Error {
    /// A reply was wrong, and how.
    WrongReply(String),
    /// The run cannot give a result, and why.
    Failed(String),
    /// A connection failed, and why.
    Network(String),
    /// The request cannot be measured, and what to change.
    Usage(String),
}

impl Error {
    /// A failed system call, preceded by its purpose.
    pub fn io(purpose: impl fmt::Display, error: impl Into<io::Error>) -> Self {
        Self::Network(format!("{purpose}: {}", error.into()))
    }

    /// [`Failed`](Self::Failed) with the text of any other error and of its causes.
    pub fn failed(error: impl fmt::Display) -> Self {
        Self::Failed(format!("{error:#}"))
    }

    /// [`Usage`](Self::Usage) with the text of any other error and of its causes.
    pub fn usage(error: impl fmt::Display) -> Self {
        Self::Usage(format!("{error:#}"))
    }

    /// This error, preceded by the name of the case that failed.
    pub fn in_case(self, name: &str) -> Self {
        let named = |text| format!("{name}: {text}");
        match self {
            Self::WrongReply(text) => Self::WrongReply(named(text)),
            Self::Failed(text) => Self::Failed(named(text)),
            Self::Network(text) => Self::Network(named(text)),
            Self::Usage(text) => Self::Usage(named(text)),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WrongReply(text) => write!(f, "wrong reply: {text}"),
            Self::Failed(text) | Self::Network(text) | Self::Usage(text) => f.write_str(text),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Error {}
