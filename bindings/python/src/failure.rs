use crate::head::Head;
use std::time::SystemTime;
use tautline::http::{HeaderValue, Response, header};
use tautline::layers::ws::handshake::HandshakeError;
use tautline::{Cause, ConnectError, Deadline};

/// Why an attempt to connect failed.
pub(crate) struct Failure {
    /// `refused`, `resolve`, `timeout`, `status`, `tls`, `proxy`, `permanent`, `eof` or `handshake`.
    pub(crate) kind: &'static str,
    pub(crate) text: String,
    /// The operating system's error, or 0.
    pub(crate) errno: i32,
    /// The server's answer, and the front of its body.
    pub(crate) response: Option<Head>,
    pub(crate) body: Vec<u8>,
    /// Seconds after which the server wants its client back.
    pub(crate) retry_after: Option<f64>,
}

impl From<&ConnectError> for Failure {
    fn from(error: &ConnectError) -> Self {
        let mut failure = Self {
            kind: "handshake",
            text: format!("{error:#}"),
            errno: 0,
            response: None,
            body: Vec::new(),
            retry_after: error.retry_after(SystemTime::now()).map(|after| after.as_secs_f64()),
        };
        failure.kind = match error {
            _ if error.is_permanent() => "permanent",
            ConnectError::Resolve(_) => "resolve",
            ConnectError::Io { error, .. } => {
                failure.errno = error.raw_os_error().unwrap_or(0);
                "refused"
            }
            ConnectError::Proxy(_) => "proxy",
            ConnectError::Handshake(error) => match &**error {
                HandshakeError::Rejected { response } => {
                    failure.response = Some(Head::of_response(response));
                    failure.body.clone_from(response.body());
                    "status"
                }
                HandshakeError::Redirected { status, location } => {
                    failure.response = Some(redirect(*status, location.as_deref()));
                    "status"
                }
                _ => "handshake",
            },
            ConnectError::Ended(Cause::Timeout(Deadline::Connect | Deadline::Handshake)) => "timeout",
            ConnectError::Ended(Cause::Tls(_)) => "tls",
            ConnectError::Ended(Cause::Io(error)) => {
                failure.errno = error.raw_os_error().unwrap_or(0);
                "eof"
            }
            ConnectError::Ended(_) => "eof",
            _ => "handshake",
        };
        failure
    }
}

/// The head of a redirecting answer.
fn redirect(status: tautline::http::StatusCode, location: Option<&str>) -> Head {
    let mut response = Response::new(());
    *response.status_mut() = status;
    if let Some(value) = location.and_then(|location| HeaderValue::from_str(location).ok()) {
        response.headers_mut().insert(header::LOCATION, value);
    }
    Head::of_response(&response)
}
