use std::{fmt, io};

/// The reason why certificates cannot be ordered at all.
///
/// ```
/// use tautline_acme::{Acme, AcmeConfig};
///
/// let config = AcmeConfig::new(["one.example"], "/proc/no/folder")?;
/// let error = Acme::open(config).unwrap_err();
/// assert!(error.to_string().contains("cannot use the folder /proc/no/folder"));
/// # Ok::<(), String>(())
/// ```
#[non_exhaustive]
pub enum Error {
    /// The folder cannot be made, read or written.
    Folder(String),
    /// The roots for the authority's own server cannot be used.
    Roots(String),
    /// No key can be made.
    Key(String),
    /// The machine refused a thread.
    Thread(io::Error),
}

impl Error {
    pub(crate) fn folder(what: String, error: &io::Error) -> Self {
        Self::Folder(format!("{what}: {error}"))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Folder(what) => f.write_str(what),
            Self::Roots(why) => write!(f, "the roots for the authority's server cannot be used: {why}"),
            Self::Key(why) => write!(f, "cannot make a key: {why}"),
            Self::Thread(error) => write!(f, "cannot start a thread: {error}"),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Error {}
