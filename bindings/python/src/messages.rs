use crate::link::Link;
use crate::waiter::{Source, Waiter};
use pyo3::exceptions::PyStopIteration;
use pyo3::intern;
use pyo3::prelude::*;

/// The messages of a connection, for `async for`.
///
/// It does what `recv` does, without a coroutine for each message.
#[pyclass(frozen, module = "tautline._native")]
pub(crate) struct Messages {
    link: Py<Link>,
    /// The `Connection`, for everything that is rare.
    connection: Py<PyAny>,
    event_loop: Py<PyAny>,
}

impl Source for Py<Messages> {
    fn next(&self, waiter: &Bound<'_, Waiter>, was_woken: bool) -> PyResult<()> {
        let (py, link) = (waiter.py(), self.get().link.get());
        if link.is_awaited() {
            return Err(self.get().raised(py, intern!(py, "_receives_twice")));
        }
        if let Some(message) = link.pop() {
            return Err(PyStopIteration::new_err((message,)));
        }
        // A waiter is done once.
        if was_woken || link.ended() {
            return Err(self.get().raised(py, intern!(py, "_iteration_ended")));
        }
        link.await_by(waiter);
        Ok(())
    }

    fn forget(&self) {
        self.get().link.get().forget();
    }
}

impl Messages {
    /// The exception of a method that raises.
    fn raised(&self, py: Python<'_>, method: &Bound<'_, pyo3::types::PyString>) -> PyErr {
        match self.connection.call_method0(py, method) {
            Err(error) => error,
            Ok(_) => pyo3::exceptions::PyRuntimeError::new_err("the connection raised no exception"),
        }
    }
}

#[pymethods]
impl Messages {
    #[new]
    fn new(link: Py<Link>, connection: Py<PyAny>, event_loop: Py<PyAny>) -> Self {
        Self { link, connection, event_loop }
    }

    fn __aiter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __anext__(slf: Bound<'_, Self>) -> PyResult<Option<Py<Waiter>>> {
        let py = slf.py();
        Py::new(py, Waiter::for_message(slf.get().event_loop.clone_ref(py), Box::new(slf.clone().unbind()))).map(Some)
    }
}
