use crate::crossing::{LARGE, Order, Shared};
use crate::fork;
use crate::frame::Frame;
use crate::later::flushes_later;
use crate::lock::lock;
use crate::waiter::Waiter;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyByteArray, PyBytes, PyMemoryView, PyString};
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use tautline::Kind;

/// Python's end of one open connection.
///
/// No method waits. Messages cross at the next [`flush`](Self::flush), or with an operation that flushes.
#[pyclass(frozen, weakref, module = "tautline._native")]
pub(crate) struct Link {
    pub(crate) shared: Arc<Shared>,
    /// Messages that nobody has taken yet.
    queue: Mutex<Queue>,
    /// Bytes that may wait for the peer before `send` waits.
    write_high: AtomicUsize,
    ended: AtomicBool,
}

#[derive(Default)]
struct Queue {
    messages: VecDeque<Py<PyAny>>,
    /// The object that a task awaits until a message or the end.
    waiter: Option<Py<Waiter>>,
    /// A callable that gets every message instead.
    sink: Option<Py<PyAny>>,
}

impl Link {
    pub(crate) fn new(shared: Arc<Shared>) -> Self {
        Self {
            shared,
            queue: Mutex::default(),
            write_high: AtomicUsize::new(usize::MAX),
            ended: AtomicBool::new(false),
        }
    }

    /// The callable that gets every message.
    pub(crate) fn sink(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        lock(&self.queue).sink.as_ref().map(|sink| sink.clone_ref(py))
    }

    /// A message arrived.
    pub(crate) fn deliver(&self, py: Python<'_>, message: Py<PyAny>) -> PyResult<()> {
        let waiter = {
            let mut queue = lock(&self.queue);
            queue.messages.push_back(message);
            queue.waiter.take()
        };
        waiter.map_or(Ok(()), |waiter| Waiter::complete(waiter.bind(py)))
    }

    /// The connection has ended.
    pub(crate) fn end(&self, py: Python<'_>) -> PyResult<()> {
        self.ended.store(true, Ordering::Release);
        let (waiter, sink) = {
            let mut queue = lock(&self.queue);
            (queue.waiter.take(), queue.sink.take())
        };
        drop(sink);
        waiter.map_or(Ok(()), |waiter| Waiter::complete(waiter.bind(py)))
    }

    /// Whether a task waits for a message.
    pub(crate) fn is_awaited(&self) -> bool {
        lock(&self.queue).waiter.is_some()
    }

    /// Has `waiter` woken by a message or the end.
    pub(crate) fn await_by(&self, waiter: &Bound<'_, Waiter>) {
        let before = lock(&self.queue).waiter.replace(waiter.clone().unbind());
        drop(before);
    }

    /// Python has taken a message.
    pub(crate) fn taken(&self) {
        if self.shared.remove_waiting() {
            self.shared.outbox.order(Order::Resume { to: self.shared.clone() }, &[]);
        }
    }

    /// Closes the connection, since nobody can use it any more.
    pub(crate) fn abandon(&self) {
        if !self.ended.load(Ordering::Acquire) && fork::generation() == self.shared.outbox.generation() {
            self.shared.outbox.order(Order::Close { to: self.shared.clone(), code: 1001, len: 0 }, &[]);
        }
    }

    fn put(&self, kind: Kind, payload: &Bound<'_, PyBytes>) -> u8 {
        let (shared, bytes) = (&self.shared, payload.as_bytes());
        let len = bytes.len();
        if len >= LARGE && shared.outbox.sends(shared, kind, bytes) {
            return self.must(false);
        }
        shared.unsent.fetch_add(len, Ordering::Relaxed);
        let to = shared.clone();
        self.must(if len >= LARGE {
            // No program can change the object, so a loop of another thread reads its memory.
            let payload = PyBackedBytes::from(payload.clone());
            shared.outbox.push(Order::SendWhole { to, kind, payload }, &[])
        } else {
            shared.outbox.push(Order::Send { to, kind, len }, bytes)
        })
    }

    /// The sender's next steps: 1 if it must flush soon, plus 2 if too much waits for the peer.
    fn must(&self, first: bool) -> u8 {
        let flush = first && !flushes_later(&self.shared.outbox);
        u8::from(flush) + 2 * u8::from(self.shared.backlog() > self.write_high.load(Ordering::Relaxed))
    }

    fn check(&self) -> PyResult<()> {
        fork::check(self.shared.outbox.generation())
    }
}

#[pymethods]
impl Link {
    /// Its number among all connections of the process.
    #[getter]
    fn key(&self) -> u64 {
        self.shared.key
    }

    /// Whether the connection has ended.
    #[getter]
    pub(crate) fn ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Whether a task waits for a message.
    #[getter]
    fn awaited(&self) -> bool {
        self.is_awaited()
    }

    /// The bytes that wait for the peer.
    #[getter]
    fn backlog(&self) -> usize {
        self.shared.backlog()
    }

    /// The next message that arrived, or `None`.
    pub(crate) fn pop(&self) -> Option<Py<PyAny>> {
        let message = lock(&self.queue).messages.pop_front()?;
        self.taken();
        Some(message)
    }

    /// An object that a task of `event_loop` awaits until a message or the end.
    fn wait(&self, py: Python<'_>, event_loop: Py<PyAny>) -> PyResult<Py<Waiter>> {
        let waiter = Py::new(py, Waiter::new(event_loop))?;
        self.await_by(waiter.bind(py));
        Ok(waiter)
    }

    /// Forgets the waiter.
    pub(crate) fn forget(&self) {
        let waiter = lock(&self.queue).waiter.take();
        drop(waiter);
    }

    /// A message as callbacks get it.
    #[staticmethod]
    fn frame(msg_type: u8, payload: Py<PyBytes>) -> Frame {
        Frame::new(msg_type, payload)
    }

    /// Has every further message passed to `sink`. Messages that wait are taken by `pop`.
    fn set_sink(&self, sink: Py<PyAny>) {
        let before = lock(&self.queue).sink.replace(sink);
        drop(before);
    }

    /// Sets the bytes that may wait for the peer before `send` asks to wait.
    fn set_write_limit(&self, bytes: usize) {
        self.write_high.store(bytes, Ordering::Relaxed);
    }

    /// Sends a message. Returns 1 if `flush` must be called soon, plus 2 if too much waits for the peer.
    #[pyo3(signature = (message, text = None))]
    fn send(&self, message: &Bound<'_, PyAny>, text: Option<bool>) -> PyResult<u8> {
        self.check()?;
        with_payload(message, text, |kind, payload| Ok(self.put(kind, payload)))
    }

    /// Sends a piece of a message, like `send`.
    fn fragment(&self, message: &Bound<'_, PyAny>, text: Option<bool>, last: bool) -> PyResult<u8> {
        self.check()?;
        with_payload(message, text, |kind, payload| {
            let (shared, payload) = (&self.shared, payload.as_bytes());
            let len = payload.len();
            shared.unsent.fetch_add(len, Ordering::Relaxed);
            Ok(self.must(shared.outbox.push(Order::Fragment { to: shared.clone(), kind, len, last }, payload)))
        })
    }

    /// Sends a ping.
    fn ping(&self, payload: &[u8]) -> PyResult<()> {
        self.check()?;
        if payload.len() > 125 {
            let what = format!("a ping has at most 125 bytes, and these are {}: shorten the payload", payload.len());
            return Err(PyValueError::new_err(what));
        }
        self.shared.outbox.order(Order::Ping { to: self.shared.clone(), len: payload.len() }, payload);
        Ok(())
    }

    /// Begins the closing handshake.
    fn close(&self, code: u16, reason: &str) -> PyResult<()> {
        self.check()?;
        let order = Order::Close { to: self.shared.clone(), code, len: reason.len() };
        self.shared.outbox.order(order, reason.as_bytes());
        Ok(())
    }

    /// Asks for an event `room` when at most `low` bytes wait for the peer.
    fn want_room(&self, low: usize) -> PyResult<()> {
        self.check()?;
        self.shared.outbox.order(Order::Room { to: self.shared.clone(), low }, &[]);
        Ok(())
    }

    /// Wakes the loop, so that it takes what was sent.
    fn flush(&self) {
        self.shared.outbox.flush();
    }
}

/// Calls `act` with the kind of a message, and an object that has its bytes.
fn with_payload<R>(
    message: &Bound<'_, PyAny>,
    text: Option<bool>,
    act: impl FnOnce(Kind, &Bound<'_, PyBytes>) -> PyResult<R>,
) -> PyResult<R> {
    let kind = |default: Kind| match text {
        None => default,
        Some(true) => Kind::Text,
        Some(false) => Kind::Binary,
    };
    if let Ok(string) = message.cast::<PyString>() {
        return act(kind(Kind::Text), &string.encode_utf8()?);
    }
    let copy;
    let bytes = if let Ok(bytes) = message.cast::<PyBytes>() {
        bytes
    } else if message.is_instance_of::<PyByteArray>() || message.is_instance_of::<PyMemoryView>() {
        copy = message.py().get_type::<PyBytes>().call1((message,))?;
        copy.cast::<PyBytes>()?
    } else {
        let what = message.get_type().name()?;
        return Err(PyTypeError::new_err(format!("data must be str or bytes-like, not {what}")));
    };
    let kind = kind(Kind::Binary);
    check_text(kind, bytes.as_bytes())?;
    act(kind, bytes)
}

/// Refuses to send text that is no UTF-8, which the peer would have to close the connection for.
fn check_text(kind: Kind, bytes: &[u8]) -> PyResult<()> {
    if kind == Kind::Text && std::str::from_utf8(bytes).is_err() {
        return Err(PyValueError::new_err("a text message must be UTF-8; send these bytes with text=False"));
    }
    Ok(())
}

/// Sends one message to many connections. It is framed once for each loop.
#[pyfunction]
pub(crate) fn broadcast(links: Vec<Bound<'_, Link>>, message: &Bound<'_, PyAny>, text: Option<bool>) -> PyResult<()> {
    with_payload(message, text, |kind, payload| {
        let payload = payload.as_bytes();
        let mut loops = HashMap::new();
        for link in &links {
            let shared = &link.get().shared;
            fork::check(shared.outbox.generation())?;
            if let Some(id) = shared.id.get().filter(|_| !link.get().ended()) {
                let (_, ids) = loops.entry(Arc::as_ptr(&shared.outbox)).or_insert_with(|| (&shared.outbox, Vec::new()));
                ids.push(*id);
            }
        }
        for (outbox, to) in loops.into_values() {
            outbox.order(Order::Broadcast { to, kind, len: payload.len() }, payload);
        }
        Ok(())
    })
}
