use crate::crossing::{Peer, Shared};
use crate::head::Head;
use crate::lock::lock;
use crate::windows::Windows;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use std::sync::{Arc, Mutex};
use tautline::http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};
use tautline::{Request, Ticket, Upgrade};

/// A request of a client that Python decides about.
pub(crate) struct Question {
    pub(crate) head: Head,
    pub(crate) peer: String,
    pub(crate) is_upgrade: bool,
    shared: Arc<Shared>,
    windows: Arc<Windows>,
    ticket: Ticket<Peer>,
}

impl Question {
    pub(crate) fn new(request: &Request<'_>, shared: Arc<Shared>, windows: Arc<Windows>, ticket: Ticket<Peer>) -> Self {
        let head = Head::of_request(request.http);
        Self { head, peer: request.peer.to_string(), is_upgrade: request.is_upgrade, shared, windows, ticket }
    }
}

/// A request that waits for an answer. One that is dropped is answered with status 500.
#[pyclass(frozen, module = "tautline._native")]
pub(crate) struct Asked {
    #[pyo3(get)]
    head: Head,
    #[pyo3(get)]
    peer: String,
    #[pyo3(get)]
    is_upgrade: bool,
    windows: Arc<Windows>,
    waiting: Mutex<Option<(Arc<Shared>, Ticket<Peer>)>>,
}

impl From<Question> for Asked {
    fn from(question: Question) -> Self {
        let Question { head, peer, is_upgrade, shared, windows, ticket } = question;
        Self { head, peer, is_upgrade, windows, waiting: Mutex::new(Some((shared, ticket))) }
    }
}

#[pymethods]
impl Asked {
    /// Accepts the WebSocket. False if the client has left.
    fn accept(&self, headers: Vec<(String, String)>, subprotocol: Option<String>) -> PyResult<bool> {
        let headers = header_map(headers)?;
        let (shared, ticket) = self.take()?;
        let mut upgrade = upgrade_of(Some(shared), &self.windows);
        upgrade.headers = headers;
        upgrade.subprotocol = subprotocol;
        Ok(ticket.upgrade(upgrade).is_ok())
    }

    /// Answers as plain HTTP. False if the client has left.
    fn respond(&self, status: u16, headers: Vec<(String, String)>, body: Vec<u8>) -> PyResult<bool> {
        let mut response = Response::new(body);
        *response.status_mut() = StatusCode::from_u16(status)
            .map_err(|_| PyValueError::new_err(format!("{status} is no HTTP status; give one of 100 to 999")))?;
        *response.headers_mut() = header_map(headers)?;
        let (_, ticket) = self.take()?;
        Ok(ticket.respond(response).is_ok())
    }
}

impl Asked {
    fn take(&self) -> PyResult<(Arc<Shared>, Ticket<Peer>)> {
        lock(&self.waiting).take().ok_or_else(|| PyRuntimeError::new_err("this request was answered already"))
    }
}

/// The terms of a connection, which keeps windows between messages as long as there is memory for them.
pub(crate) fn upgrade_of(shared: Option<Arc<Shared>>, windows: &Arc<Windows>) -> Upgrade<Peer> {
    let window = windows.take();
    let mut upgrade = Upgrade::new();
    upgrade.context_takeover = window.is_some();
    upgrade.with_state(Peer::new(shared, window))
}

/// Headers of Python, whose values are ISO-8859-1 or, failing that, UTF-8.
pub(crate) fn header_map(headers: Vec<(String, String)>) -> PyResult<HeaderMap> {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        let unusable = || PyValueError::new_err(format!("unusable HTTP header {name:?}: {value:?}"));
        let latin1: Option<Vec<u8>> = value.chars().map(|c| u8::try_from(u32::from(c)).ok()).collect();
        let bytes = latin1.unwrap_or_else(|| value.clone().into_bytes());
        let parsed = HeaderName::from_bytes(name.as_bytes()).ok().zip(HeaderValue::from_bytes(&bytes).ok());
        let (name, value) = parsed.ok_or_else(unusable)?;
        map.append(name, value);
    }
    Ok(map)
}
