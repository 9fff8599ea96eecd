//! The error of clients.

use std::fmt;

/// The reason why a client did not do what it was asked for.
#[non_exhaustive]
pub enum ClientError {
    /// The client has ended.
    Ended,
    /// No event came within the time.
    Timeout,
    /// The data is no JSON text.
    NotJson,
    /// Too many messages have no answer yet, or too much waits for the client's loop.
    Busy,
    /// There is no connection, and the message is to be sent now or not at all.
    Offline,
}

impl fmt::Display for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ended => "the client has ended",
            Self::Timeout => "no event came within the time",
            Self::NotJson => "the data is no JSON text",
            Self::Busy => "too many messages wait for an answer: publish this one later",
            Self::Offline => "there is no connection, so the message was not sent",
        })
    }
}

impl fmt::Debug for ClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for ClientError {}
