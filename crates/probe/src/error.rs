use std::fmt;

/// A configuration of TLS that no client can use: the caller's fault.
#[derive(Clone, PartialEq, Eq)]
pub struct Unusable(pub(crate) String);

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<tautline::Error> for Unusable {
    fn from(error: tautline::Error) -> Self {
        Self(format!("{error:#}"))
    }
}

impl std::error::Error for Unusable {}
