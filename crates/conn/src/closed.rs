//! How a connection ends, as the application hears it.

use crate::retry_after;
use std::error::Error;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tautline_io::Address;
use tautline_ws::handshake::HandshakeError;
use tautline_ws::{CloseCode, RetryAfter};

/// How an open connection ended.
///
/// ```
/// # mod tautline { pub use tautline_conn::closed::{Cause, Closed}; }
/// use tautline::{Cause, Closed};
///
/// fn is_worth_a_retry(closed: &Closed) -> bool {
///     matches!(closed.cause, Cause::Io(_) | Cause::Timeout(_)) || closed.code.get() == 1012
/// }
/// # use tautline_ws::CloseCode;
/// # assert!(is_worth_a_retry(&Closed::new(CloseCode::SERVICE_RESTART, Cause::Peer)));
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Closed {
    /// The close code that the peer sent; 1005 if its close frame had none, 1006 if it sent no close frame.
    pub code: CloseCode,
    /// The reason in the peer's close frame.
    pub reason: String,
    /// The event that ended the connection.
    pub cause: Cause,
}

impl Closed {
    /// An end without a reason from the peer.
    #[must_use]
    pub const fn new(code: CloseCode, cause: Cause) -> Self {
        Self { code, reason: String::new(), cause }
    }

    /// The time after which the server wants its client back, if it [said so](RetryAfter) in the reason.
    ///
    /// `Reconnect` obeys it.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        RetryAfter::read(self.code, &self.reason).map(|after| after.0)
    }
}

/// The event that ended a connection.
///
/// Like every error here it is one line. `{}` prints its own text, and `{:#}` appends the text of its sources, which
/// [`source`](Error::source) returns. A variant that only holds another error has the text and the source of that error.
///
/// ```
/// # mod tautline { pub use tautline_conn::closed::Cause; }
/// use std::error::Error;
/// use std::{io, sync::Arc};
/// use tautline::Cause;
///
/// let cause = Cause::Io(Arc::new(io::ErrorKind::ConnectionReset.into()));
/// let below = cause.source().unwrap();
/// assert_eq!(format!("{cause:#}"), format!("{cause}: {below}"));
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub enum Cause {
    /// The peer sent a close frame first.
    Peer,
    /// We sent a close frame first, and the peer answered it.
    Local,
    /// The peer ended the connection without a close frame.
    Finished,
    /// The stream ended without close_notify, so its end may be missing (RFC 8446, section 6.1).
    Truncated,
    /// The connection broke.
    Io(Arc<io::Error>),
    /// The peer violated the WebSocket protocol or a limit. A close code tells it which.
    WebSocket(tautline_ws::Error),
    /// TLS failed. An alert tells the peer why, if one could be sent.
    Tls(tautline_tls::Error),
    /// The peer missed a deadline.
    Timeout(Deadline),
    /// The queue for the peer exceeded its limit ([`SlowConsumer::Disconnect`](crate::config::SlowConsumer)); closed with 1008.
    SlowConsumer,
    /// Too many handshakes waited, and the connection was reset.
    Overloaded,
    /// Memory was short (`Limits::memory`), and this connection held much of it. It was closed with
    /// 1008 if most of that waited for the peer to read, or else with 1013.
    OutOfMemory,
    /// The application panicked, and the connection was closed with 1011 (`OnPanic`).
    Panicked,
    /// The shard stopped before the peer answered our close frame.
    Stopped,
    /// The peer violated HTTP/2 or a limit of it: for the connection that carries this one, or on its stream.
    Http2(&'static str),
}

impl Cause {
    /// The names of all causes, by their [number](Self::number).
    pub const NAMES: [&str; 14] = [
        "peer",
        "local",
        "finished",
        "truncated",
        "io",
        "websocket",
        "tls",
        "timeout",
        "slow_consumer",
        "overloaded",
        "out_of_memory",
        "panicked",
        "stopped",
        "http2",
    ];

    /// The name of the cause, for metrics.
    ///
    /// ```
    /// # mod tautline { pub use tautline_conn::closed::Cause; }
    /// assert_eq!(tautline::Cause::SlowConsumer.name(), "slow_consumer");
    /// ```
    #[must_use]
    pub const fn name(&self) -> &'static str {
        Self::NAMES[self.number()]
    }

    /// The place of the cause's name in [`NAMES`](Self::NAMES).
    #[must_use]
    pub const fn number(&self) -> usize {
        match self {
            Self::Peer => 0,
            Self::Local => 1,
            Self::Finished => 2,
            Self::Truncated => 3,
            Self::Io(_) => 4,
            Self::WebSocket(_) => 5,
            Self::Tls(_) => 6,
            Self::Timeout(_) => 7,
            Self::SlowConsumer => 8,
            Self::Overloaded => 9,
            Self::OutOfMemory => 10,
            Self::Panicked => 11,
            Self::Stopped => 12,
            Self::Http2(_) => 13,
        }
    }
}

/// A deadline that a peer missed; each is a field of [`Deadlines`](crate::config::Deadlines).
///
/// ```
/// # mod tautline { pub use tautline_conn::closed::{Cause, Deadline}; }
/// use tautline::{Cause, Deadline};
///
/// fn was_idle(cause: &Cause) -> bool {
///     matches!(cause, Cause::Timeout(Deadline::Idle))
/// }
/// # assert!(was_idle(&Cause::Timeout(Deadline::Idle)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Deadline {
    /// Connecting took too long.
    Connect,
    /// The opening handshake took too long.
    Handshake,
    /// The application did not answer a request in time.
    Answer,
    /// The peer sent nothing for too long.
    Idle,
    /// The peer sent no message for too long.
    Silence,
    /// The peer did not answer our close frame in time.
    Close,
    /// The peer took none of the waiting bytes for too long.
    Send,
}

impl fmt::Display for Deadline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Connect => "connect",
            Self::Handshake => "handshake",
            Self::Answer => "answer",
            Self::Idle => "idle",
            Self::Silence => "silence",
            Self::Close => "close",
            Self::Send => "send",
        })
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Peer => f.write_str("closed by the peer"),
            Self::Local => f.write_str("closed by us"),
            Self::Finished => f.write_str("the peer hung up without a close frame"),
            Self::Truncated => f.write_str("the peer hung up without close_notify"),
            Self::Io(error) => with_causes(f, format_args!("connection lost"), &**error),
            Self::WebSocket(error) => write!(f, "{error}"),
            Self::Tls(error) => write!(f, "{error}"),
            Self::Timeout(deadline) => write!(f, "the peer missed the {deadline} deadline"),
            Self::SlowConsumer => f.write_str("the peer does not read what is sent to it"),
            Self::Overloaded => f.write_str("too many handshakes wait"),
            Self::OutOfMemory => f.write_str("memory is short, and this connection held much of it"),
            Self::Panicked => f.write_str("the application panicked"),
            Self::Stopped => f.write_str("we stopped"),
            Self::Http2(why) => write!(f, "HTTP/2: {why}"),
        }
    }
}

impl fmt::Debug for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Error for Cause {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Io(error) => Some(&**error),
            Self::WebSocket(error) => error.source(),
            Self::Tls(error) => error.source(),
            _ => None,
        }
    }
}

/// The reason why a client could not connect. As with [`Cause`], `{:#}` appends the text of its sources. So does `{:?}`, which
/// a `main` prints that returns the error.
///
/// ```
/// # mod tautline { pub use tautline_conn::closed::{Cause, ConnectError, Deadline}; }
/// use tautline::{Cause, ConnectError, Deadline};
///
/// let error = ConnectError::Ended(Cause::Timeout(Deadline::Handshake));
/// assert_eq!(error.to_string(), "the peer missed the handshake deadline");
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub enum ConnectError {
    /// The target is unusable. The text names the part and the remedy.
    Target(String),
    /// The host name was not resolved.
    Resolve(String),
    /// No address could be reached.
    Io {
        /// The last address that was tried.
        address: Address,
        /// The error of that attempt.
        error: Arc<io::Error>,
        /// The addresses that were tried before, and their errors.
        others: Arc<[(Address, Arc<io::Error>)]>,
    },
    /// The proxy refused the tunnel or violated its protocol.
    Proxy(String),
    /// The server [refused](Self::refusal) the upgrade or sent an invalid response.
    Handshake(Arc<HandshakeError>),
    /// The connection ended before it was open.
    Ended(Cause),
}

impl ConnectError {
    /// The error of attempts at the addresses of one host, all of which failed with these errors. `None` if there was none.
    ///
    /// ```
    /// # mod tautline { pub use tautline_conn::closed::ConnectError; }
    /// use std::io;
    /// use std::sync::Arc;
    /// use tautline::ConnectError;
    ///
    /// let failed = |address: &str, kind: io::ErrorKind| (address.parse().unwrap(), Arc::new(io::Error::from(kind)));
    /// let refused = failed("[::1]:443", io::ErrorKind::ConnectionRefused);
    /// let error = ConnectError::of_attempts([refused, failed("127.0.0.1:443", io::ErrorKind::HostUnreachable)]).unwrap();
    /// let all = "cannot connect to 127.0.0.1:443: host unreachable; to [::1]:443: connection refused";
    /// assert_eq!(error.to_string(), all);
    /// ```
    #[must_use]
    pub fn of_attempts(failed: impl IntoIterator<Item = (Address, Arc<io::Error>)>) -> Option<Self> {
        let mut failed: Vec<_> = failed.into_iter().collect();
        // The last one speaks for all. One that no attempt can mend does so only if all are like that.
        let last = failed.iter().rposition(|(_, error)| !is_unsupported(error));
        let (address, error) = failed.remove(last.or_else(|| failed.len().checked_sub(1))?);
        Some(Self::Io { address, error, others: failed.into() })
    }

    /// The answer of a server that refused the upgrade: its status, its headers, and the first 16 KiB of its body.
    ///
    /// ```
    /// # mod tautline { pub use tautline_conn::closed::ConnectError; }
    /// use tautline::ConnectError;
    ///
    /// fn is_forbidden(error: &ConnectError) -> bool {
    ///     error.refusal().is_some_and(|response| response.status() == 403)
    /// }
    /// # assert!(!is_forbidden(&ConnectError::Resolve("no such host".into())));
    /// ```
    #[must_use]
    pub fn refusal(&self) -> Option<&http::Response<Vec<u8>>> {
        let Self::Handshake(error) = self else { return None };
        match &**error {
            HandshakeError::Rejected { response } => Some(response),
            _ => None,
        }
    }
}

/// Reconnection.
impl ConnectError {
    /// Whether further attempts must fail in the same way, because the caller's target or configuration is at fault.
    ///
    /// `Reconnect` gives up after such an error, in every interface:
    ///
    /// | error | permanent |
    /// |---|---|
    /// | a target, header, subprotocol or proxy that cannot be used, or a scheme that the loop does not speak | yes |
    /// | a TLS configuration or server name that cannot be used | yes |
    /// | a source or kind of address that the driver does not support | yes |
    /// | a name that is not resolved, an address that does not answer, a deadline that passed | no |
    /// | a certificate that this end refused, an alert, a broken protocol | no: certificates and servers are replaced |
    /// | an answer without an upgrade, such as 401, 403, 404 or 503; a redirect; a refusal by the proxy | no: tokens and servers change |
    ///
    /// A program that knows better gives up by `ShardHandle::disconnect`, or sends a fresh token from
    /// `Handler::on_redial`.
    #[must_use]
    pub fn is_permanent(&self) -> bool {
        use tautline_tls::Error as Tls;
        match self {
            Self::Target(_) | Self::Ended(Cause::Tls(Tls::Config(_) | Tls::ApiMisuse(_))) => true,
            Self::Io { error, .. } => is_unsupported(error),
            Self::Handshake(error) => matches!(
                **error,
                HandshakeError::Uri(_) | HandshakeError::Options(_) | HandshakeError::ReservedHeader(_)
            ),
            Self::Resolve(_) | Self::Proxy(_) | Self::Ended(_) => false,
        }
    }

    /// The time from `now` after which a server that answered 429 or 503 wants its client back (`Retry-After`).
    ///
    /// It is seconds, or a date (RFC 9110, section 10.2.3). `Reconnect` obeys it within its own bounds.
    #[must_use]
    pub fn retry_after(&self, now: SystemTime) -> Option<Duration> {
        let response = self.refusal().filter(|response| matches!(response.status().as_u16(), 429 | 503))?;
        retry_after::read(response.headers(), now)
    }
}

/// Whether a driver lacks what was asked of it. The system's own errors have a number: they come and go with networks and interfaces.
fn is_unsupported(error: &io::Error) -> bool {
    error.raw_os_error().is_none() && error.kind() == io::ErrorKind::Unsupported
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Target(what) | Self::Resolve(what) | Self::Proxy(what) => f.write_str(what),
            // Without the reason nobody can act.
            Self::Io { address, error, others } => {
                write!(f, "cannot connect to {address}: {error}")?;
                others.iter().try_for_each(|(address, error)| write!(f, "; to {address}: {error}"))
            }
            Self::Handshake(error) => write!(f, "{error}"),
            Self::Ended(cause) => fmt::Display::fmt(cause, f),
        }
    }
}

impl fmt::Debug for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:#}")
    }
}

impl Error for ConnectError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Handshake(error) => error.source(),
            Self::Ended(cause) => cause.source(),
            Self::Io { .. } | Self::Target(_) | Self::Resolve(_) | Self::Proxy(_) => None,
        }
    }
}

/// Writes an error's own text, and in the alternate form also the text of each source.
fn with_causes(f: &mut fmt::Formatter<'_>, words: fmt::Arguments<'_>, below: &dyn Error) -> fmt::Result {
    f.write_fmt(words)?;
    let mut next = Some(below).filter(|_| f.alternate());
    while let Some(error) = next {
        write!(f, ": {error}")?;
        next = error.source();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain(error: &(dyn Error + 'static)) -> Vec<String> {
        std::iter::successors(Some(error), |&error| error.source()).map(ToString::to_string).collect()
    }

    #[test]
    fn every_error_tells_its_own_part_of_one_line() {
        let reset = Arc::new(io::Error::from_raw_os_error(104));
        let lost = Cause::Io(reset.clone());
        assert_eq!(chain(&lost), ["connection lost".to_owned(), reset.to_string()]);
        assert_eq!(chain(&ConnectError::Ended(lost.clone())), chain(&lost));
        assert_eq!(format!("{lost:#}"), format!("connection lost: {reset}"));
        let address = "127.0.0.1:1".parse().unwrap();
        let unreachable = ConnectError::of_attempts([(address, reset)]).unwrap();
        for error in [unreachable, ConnectError::Ended(lost)] {
            assert_eq!(format!("{error:#}"), chain(&error).join(": "));
            assert_eq!(format!("{error:?}"), format!("{error:#}"));
        }
    }

    #[test]
    fn an_address_that_is_not_reached_is_told_with_its_reason() {
        let failed = |address: &str, kind: io::ErrorKind| (address.parse().unwrap(), Arc::new(io::Error::from(kind)));
        let refused = ConnectError::of_attempts([failed("127.0.0.1:1", io::ErrorKind::ConnectionRefused)]).unwrap();
        assert_eq!(refused.to_string(), "cannot connect to 127.0.0.1:1: connection refused");
        assert!(refused.source().is_none(), "reports that print all sources would have the reason twice");
    }

    #[test]
    fn a_variant_without_words_of_its_own_speaks_for_the_error_in_it() {
        let alert = tautline_tls::Error::Alert(tautline_tls::alert::Alert::UNKNOWN_CA);
        let text = alert.to_string();
        assert_eq!(chain(&ConnectError::Ended(Cause::Tls(alert))), [text]);
    }
}
