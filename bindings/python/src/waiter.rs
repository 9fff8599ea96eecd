use crate::lock::lock;
use pyo3::exceptions::PyRuntimeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::sync::Mutex;

/// The object that a task awaits until a message arrives.
///
/// It behaves to `asyncio.Task` as a future. Unlike one, it lets the task go on within [`Hub::drain`](crate::hub::Hub), in
/// the task's context, instead of by a callback of the event loop. That saves about a microsecond for each message.
#[pyclass(frozen, module = "tautline._native")]
pub(crate) struct Waiter {
    event_loop: Py<PyAny>,
    /// The source whose next message is awaited, if not only an event is.
    messages: Option<Box<dyn Source>>,
    state: Mutex<State>,
}

/// Where the messages come from that a task awaits.
pub(crate) trait Source: Send + Sync {
    /// Raises `StopIteration` with a message, or another exception at the end. Otherwise `waiter` waits from now on.
    fn next(&self, waiter: &Bound<'_, Waiter>, was_woken: bool) -> PyResult<()>;
    /// Forgets the waiter.
    fn forget(&self);
}

#[derive(Default)]
struct State {
    /// The task's callback, and its context.
    callback: Option<(Py<PyAny>, Option<Py<PyAny>>)>,
    blocking: bool,
    done: bool,
    cancelled: bool,
}

impl Waiter {
    pub(crate) fn new(event_loop: Py<PyAny>) -> Self {
        Self { event_loop, messages: None, state: Mutex::default() }
    }

    /// A waiter that is awaited for the next message.
    pub(crate) fn for_message(event_loop: Py<PyAny>, messages: Box<dyn Source>) -> Self {
        Self { event_loop, messages: Some(messages), state: Mutex::default() }
    }

    /// Lets the task go on.
    pub(crate) fn complete(slf: &Bound<'_, Self>) -> PyResult<()> {
        let callback = {
            let mut state = lock(&slf.get().state);
            if state.done {
                return Ok(());
            }
            state.done = true;
            state.callback.take()
        };
        match callback {
            Some((callback, Some(context))) => {
                context.call_method1(slf.py(), intern!(slf.py(), "run"), (callback, slf)).map(drop)
            }
            Some((callback, None)) => callback.call1(slf.py(), (slf,)).map(drop),
            None => Ok(()),
        }
    }
}

#[pymethods]
impl Waiter {
    fn __await__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(slf: &Bound<'_, Self>) -> PyResult<Option<Py<Self>>> {
        let is_done = lock(&slf.get().state).done;
        if is_done {
            slf.get().result(slf.py())?;
        }
        if let Some(messages) = &slf.get().messages {
            messages.next(slf, is_done)?;
        } else if is_done {
            return Ok(None);
        }
        lock(&slf.get().state).blocking = true;
        Ok(Some(slf.clone().unbind()))
    }

    #[getter(_asyncio_future_blocking)]
    fn blocking(&self) -> bool {
        lock(&self.state).blocking
    }

    #[setter(_asyncio_future_blocking)]
    fn set_blocking(&self, blocking: bool) {
        lock(&self.state).blocking = blocking;
    }

    fn get_loop(&self, py: Python<'_>) -> Py<PyAny> {
        self.event_loop.clone_ref(py)
    }

    #[pyo3(signature = (callback, *, context = None))]
    fn add_done_callback(slf: &Bound<'_, Self>, callback: Py<PyAny>, context: Option<Py<PyAny>>) -> PyResult<()> {
        let mut state = lock(&slf.get().state);
        if state.done {
            drop(state);
            return slf.get().schedule(slf, (callback, context));
        }
        if state.callback.is_some() {
            return Err(PyRuntimeError::new_err("one task alone can wait here"));
        }
        state.callback = Some((callback, context));
        Ok(())
    }

    fn remove_done_callback(&self, _callback: &Bound<'_, PyAny>) -> usize {
        let removed = lock(&self.state).callback.take();
        usize::from(removed.is_some())
    }

    #[pyo3(signature = (msg = None))]
    fn cancel(slf: &Bound<'_, Self>, msg: Option<Py<PyAny>>) -> PyResult<bool> {
        let callback = {
            let mut state = lock(&slf.get().state);
            if state.done {
                return Ok(false);
            }
            (state.done, state.cancelled) = (true, true);
            state.callback.take()
        };
        drop(msg);
        if let Some(messages) = &slf.get().messages {
            messages.forget();
        }
        // The task that cancels is running: this one goes on later.
        callback.map_or(Ok(()), |callback| slf.get().schedule(slf, callback)).map(|()| true)
    }

    fn done(&self) -> bool {
        lock(&self.state).done
    }

    fn cancelled(&self) -> bool {
        lock(&self.state).cancelled
    }

    fn result(&self, py: Python<'_>) -> PyResult<()> {
        if !lock(&self.state).cancelled {
            return Ok(());
        }
        let cancelled = py.import("asyncio")?.getattr("CancelledError")?;
        Err(PyErr::from_value(cancelled.call0()?))
    }

    fn exception(&self, py: Python<'_>) -> PyResult<Option<Py<PyAny>>> {
        self.result(py).map(|()| None)
    }
}

impl Waiter {
    fn schedule(&self, slf: &Bound<'_, Self>, callback: (Py<PyAny>, Option<Py<PyAny>>)) -> PyResult<()> {
        let py = slf.py();
        let (callback, context) = callback;
        let keywords = PyDict::new(py);
        keywords.set_item(intern!(py, "context"), context)?;
        self.event_loop.bind(py).call_method(intern!(py, "call_soon"), (callback, slf), Some(&keywords)).map(drop)
    }
}
