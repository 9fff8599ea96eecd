use crate::crossing::{Batch, Event, Inbox, News};
use crate::frame::Frame;
use crate::freed;
use crate::later::FlushLater;
use crate::link::Link;
use crate::lock::lock;
use crate::options::time;
use crate::relay::Opened;
use crate::request::{Asked, Question};
use crate::tls::tls_dict;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use tautline::Kind;

/// The end of loops' events in Python: one for each server, and one for the clients of each event loop.
///
/// Its descriptor is readable when events wait, and [`drain`](Self::drain) delivers them. Messages go to their
/// [`Link`]s. All other events go to `on_event(name, key, value)`.
#[pyclass(frozen, weakref, module = "tautline._native")]
pub(crate) struct Hub {
    inbox: Arc<Inbox>,
    on_event: Py<PyAny>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    links: HashMap<u64, Py<Link>>,
    /// Memory for the next batch.
    spare: Batch,
}

impl Hub {
    pub(crate) fn inbox(&self) -> Arc<Inbox> {
        self.inbox.clone()
    }

    fn link(&self, py: Python<'_>, key: u64) -> Option<Py<Link>> {
        lock(&self.state).links.get(&key).map(|link| link.clone_ref(py))
    }

    /// Delivers all events that wait. Returns their number.
    pub(crate) fn deliver_all(&self, py: Python<'_>) -> PyResult<usize> {
        let flush = FlushLater::begin();
        let mut batch = std::mem::take(&mut lock(&self.state).spare);
        self.inbox.take(&mut batch);
        let mut bytes: &[u8] = &batch.bytes;
        let mut result = Ok(batch.events.len());
        for event in batch.events.drain(..) {
            match self.handle(py, event, &mut bytes) {
                Err(error) if error.is_instance_of::<PyException>(py) => {
                    error.write_unraisable(py, Some(self.on_event.bind(py)));
                }
                // KeyboardInterrupt and SystemExit end the event loop.
                Err(error) => result = Err(error),
                Ok(()) => {}
            }
        }
        drop(flush);
        batch.clear();
        lock(&self.state).spare = batch;
        result
    }

    fn tell<'py>(&self, py: Python<'py>, name: &str, key: u64, value: impl IntoPyObject<'py>) -> PyResult<()> {
        self.on_event.call1(py, (name, key, value)).map(drop)
    }

    fn deliver(&self, py: Python<'_>, key: u64, kind: Kind, payload: PayloadOf<'_>) -> PyResult<()> {
        let Some(link) = self.link(py, key) else { return Ok(()) };
        let link = link.get();
        if let Some(sink) = link.sink(py) {
            let msg_type = if kind == Kind::Text { 1 } else { 2 };
            link.taken();
            let frame = Frame::new(msg_type, payload.object(py));
            return sink.call1(py, (frame,)).map(drop);
        }
        let message = match kind {
            Kind::Text => PyString::from_bytes(py, payload.bytes(py))?.into_any().unbind(),
            Kind::Binary => payload.object(py).into_any(),
        };
        link.deliver(py, message)
    }

    fn open(&self, py: Python<'_>, key: u64, opened: Opened) -> PyResult<()> {
        let Opened { shared, request, response, subprotocol, deflate, tls, peer, direct } = opened;
        let link = Py::new(py, Link::new(shared))?;
        lock(&self.state).links.insert(key, link.clone_ref(py));
        let info = PyDict::new(py);
        info.set_item("request", request)?;
        info.set_item("response", response)?;
        info.set_item("subprotocol", subprotocol)?;
        info.set_item("deflate", deflate)?;
        info.set_item("peer", peer)?;
        info.set_item("direct_peer", direct)?;
        info.set_item("tls", tls_dict(py, &tls)?)?;
        self.tell(py, "open", key, (link, info))
    }

    fn handle(&self, py: Python<'_>, event: Event, bytes: &mut &[u8]) -> PyResult<()> {
        let Event { key, news } = event;
        let mut payload = |len: usize| {
            let (payload, rest) = bytes.split_at(len);
            *bytes = rest;
            payload
        };
        match news {
            News::Message { kind, len } => self.deliver(py, key, kind, PayloadOf::Batch(payload(len))),
            News::Whole(bytes, kind) => self.deliver(py, key, kind, PayloadOf::Object(bytes)),
            News::Pong { len } => self.tell(py, "pong", key, PyBytes::new(py, payload(len)).unbind()),
            News::Latency(seconds) => self.tell(py, "latency", key, seconds),
            News::Room => self.tell(py, "room", key, py.None()),
            News::Request(question) => {
                let Ok(question) = question.downcast::<Question>() else { return Ok(()) };
                let asked = Py::new(py, Asked::from(*question))?;
                self.tell(py, "request", key, asked)
            }
            News::Open(opened) => opened.downcast::<Opened>().map_or(Ok(()), |opened| self.open(py, key, *opened)),
            News::Closed(ended) => {
                let link = lock(&self.state).links.remove(&key);
                let value = (ended.received, ended.sent, ended.received_first, ended.error);
                let told = self.tell(py, "closed", key, value);
                link.map_or(Ok(()), |link| link.get().end(py)).and(told)
            }
            News::Failed(failure) => {
                let body = PyBytes::new(py, &failure.body).unbind();
                let value = (failure.kind, failure.text, failure.errno, failure.response, body, failure.retry_after);
                self.tell(py, "failed", key, value)
            }
            News::Stopped => self.tell(py, "stopped", key, py.None()),
        }
    }
}

/// The payload of a message: bytes of a batch, or an object already.
enum PayloadOf<'b> {
    Batch(&'b [u8]),
    Object(Py<PyBytes>),
}

impl PayloadOf<'_> {
    fn bytes<'a>(&'a self, py: Python<'a>) -> &'a [u8] {
        match self {
            Self::Batch(bytes) => bytes,
            Self::Object(object) => object.bind(py).as_bytes(),
        }
    }

    fn object(self, py: Python<'_>) -> Py<PyBytes> {
        match self {
            Self::Batch(bytes) => PyBytes::new(py, bytes).unbind(),
            Self::Object(object) => object,
        }
    }
}

#[pymethods]
impl Hub {
    #[new]
    fn new(on_event: Py<PyAny>) -> PyResult<Self> {
        freed::keep();
        let inbox = Arc::new(Inbox::new()?);
        Ok(Self { inbox, on_event, state: Mutex::default() })
    }

    /// Its descriptor, which is readable when events wait.
    fn fileno(&self) -> i32 {
        self.inbox.descriptor()
    }

    /// Waits until events are there, at most `longest` seconds. Other threads run meanwhile.
    #[pyo3(signature = (longest = None))]
    fn wait(&self, py: Python<'_>, longest: Option<f64>) -> PyResult<bool> {
        let ready = py.detach(|| self.inbox.wait(time(longest)))?;
        py.check_signals()?;
        Ok(ready)
    }

    /// Delivers all events that wait. An exception of a callback is reported, and the others go on.
    fn drain(&self, py: Python<'_>) -> PyResult<()> {
        self.deliver_all(py).map(drop)
    }

    /// Closes its connections, and delivers nothing more.
    fn close(&self) {
        self.inbox.close();
        let links = std::mem::take(&mut lock(&self.state).links);
        for link in links.values() {
            link.get().abandon();
        }
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        self.close();
    }
}
