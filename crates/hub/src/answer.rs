//! Answers of the HTTP interface: JSON, also for errors, each with a code and a remedy.

use crate::repeats::Repeats;
use serde_json::json;
use std::sync::Arc;
use tautline::Ticket;
use tautline::http::{HeaderValue, Response, StatusCode, header};

/// The duty to answer a request.
pub(crate) struct Answer {
    ticket: Ticket<()>,
    /// The name that its sender gave it.
    repeat: Option<(Arc<Repeats>, String)>,
}

impl Answer {
    pub(crate) const fn new(ticket: Ticket<()>, repeat: Option<(Arc<Repeats>, String)>) -> Self {
        Self { ticket, repeat }
    }

    /// The name of the request, for the log: it stores a message of that name once. Names in here have no control characters.
    pub(crate) fn id(&self) -> Option<String> {
        let (_, id) = self.repeat.as_ref()?;
        Some(id.replace('\n', "/"))
    }

    pub(crate) fn give(self, result: Result<String, Fault>) {
        let (status, body) = match result {
            Ok(body) => (200, body),
            Err(fault) => (fault.status, fault.body()),
        };
        if let Some((repeats, id)) = self.repeat {
            repeats.end(&id, status, &body);
        }
        // Nobody has to wait for it any more.
        let _ = self.ticket.respond(response(status, body));
    }
}

/// The reason why a request was not done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) status: u16,
    pub(crate) code: &'static str,
    pub(crate) reason: &'static str,
    pub(crate) remedy: &'static str,
}

impl Fault {
    pub(crate) const fn new(status: u16, code: &'static str, reason: &'static str, remedy: &'static str) -> Self {
        Self { status, code, reason, remedy }
    }

    fn body(self) -> String {
        json!({ "error": { "code": self.code, "reason": self.reason, "remedy": self.remedy } }).to_string()
    }

    pub(crate) fn response(self) -> Response<Vec<u8>> {
        response(self.status, self.body())
    }
}

pub(crate) fn response(status: u16, mut body: String) -> Response<Vec<u8>> {
    body.push('\n');
    let mut response = of_type("application/json", status, body);
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    match status {
        401 => _ = headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer")),
        405 => _ = headers.insert(header::ALLOW, HeaderValue::from_static("POST")),
        429 | 503 => _ = headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1")),
        _ => {}
    }
    response
}

/// The reason of a status, for people.
pub(crate) fn plain(status: u16, reason: &str) -> Response<Vec<u8>> {
    of_type("text/plain; charset=utf-8", status, format!("{reason}\n"))
}

pub(crate) fn of_type(kind: &'static str, status: u16, body: String) -> Response<Vec<u8>> {
    let mut response = Response::new(body.into_bytes());
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
