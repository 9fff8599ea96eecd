use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};

/// A message of the callback interface.
#[pyclass(frozen, module = "tautline._native")]
pub(crate) struct Frame {
    /// 1 text, 2 binary, 10 pong: the opcodes of RFC 6455.
    #[pyo3(get)]
    msg_type: u8,
    payload: Py<PyBytes>,
}

impl Frame {
    pub(crate) const fn new(msg_type: u8, payload: Py<PyBytes>) -> Self {
        Self { msg_type, payload }
    }
}

#[pymethods]
impl Frame {
    /// Whole messages are delivered.
    #[getter]
    fn fin(&self) -> bool {
        true
    }

    /// The payload.
    fn get_payload_as_bytes(&self, py: Python<'_>) -> Py<PyBytes> {
        self.payload.clone_ref(py)
    }

    /// The payload as text.
    fn get_payload_as_utf8_text<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyString>> {
        PyString::from_bytes(py, self.payload.bind(py).as_bytes())
    }

    /// The payload as text without characters above 127.
    fn get_payload_as_ascii_text<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyString>> {
        self.get_payload_as_utf8_text(py)
    }

    /// The payload, without a copy.
    fn get_payload_as_memoryview<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        py.import("builtins")?.getattr("memoryview")?.call1((&self.payload,))
    }

    fn __len__(&self, py: Python<'_>) -> usize {
        self.payload.bind(py).as_bytes().len()
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        format!("Frame(msg_type={}, {} bytes)", self.msg_type, self.__len__(py))
    }
}
