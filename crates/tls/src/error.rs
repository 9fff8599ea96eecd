use std::fmt;

/// Why a session or a configuration failed, by who is at fault.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// The calling code used the API wrongly.
    ApiMisuse(&'static str),
    /// The configuration cannot work: which part, and what to do.
    Config(String),
    /// The peer broke the protocol or did not authenticate.
    Peer(String),
    /// The peer sent a fatal alert: its name in RFC 8446, section 6.
    Alert(String),
    /// The peer's certificate was refused: why.
    Certificate(String),
    /// The TLS library failed on its own.
    Library(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ApiMisuse(what) => write!(f, "TLS API misuse: {what}"),
            Self::Config(what) => write!(f, "TLS configuration: {what}"),
            Self::Peer(what) => write!(f, "TLS peer misbehaved: {what}"),
            Self::Alert(name) => write!(f, "TLS peer sent the alert {name}"),
            Self::Certificate(what) => write!(f, "peer certificate refused: {what}"),
            Self::Library(what) => write!(f, "TLS library: {what}"),
        }
    }
}

impl std::error::Error for Error {}
