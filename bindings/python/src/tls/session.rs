use super::info::tls_dict;
use super::state::{FastSession, Plain, Read, State};
use crate::sys;
use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyDict, PyMemoryView};
use std::os::fd::AsRawFd;
use std::sync::{Mutex, MutexGuard, TryLockError};
use tautline::layers::tls::Error;

/// Plaintext that one call returns at most.
const MOST: usize = 256 << 10;

/// One TLS connection, over bytes that Python passes, or over a socket of its own.
#[pyclass(frozen, module = "tautline._native")]
pub(crate) struct Session {
    state: Mutex<State>,
}

impl Session {
    pub(super) fn new(session: FastSession) -> Self {
        Self { state: Mutex::new(State::new(session)) }
    }

    /// The state, for a caller that is alone.
    fn state(&self) -> PyResult<MutexGuard<'_, State>> {
        match self.state.try_lock() {
            Ok(state) => Ok(state),
            Err(TryLockError::Poisoned(state)) => Ok(state.into_inner()),
            Err(TryLockError::WouldBlock) => Err(PyRuntimeError::new_err(
                "another thread uses this TLS connection: one thread at a time may call it",
            )),
        }
    }
}

#[pymethods]
impl Session {
    /// Appends bytes of the peer.
    fn feed(&self, data: &[u8]) -> PyResult<()> {
        self.state()?.wire.put(data);
        Ok(())
    }

    /// Takes the bytes for the peer.
    fn take<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let mut state = self.state()?;
        let bytes = PyBytes::new(py, state.out.filled());
        state.out.clear();
        Ok(bytes)
    }

    /// Takes bytes of the peer that were not opened back.
    fn rest<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let mut state = self.state()?;
        let bytes = PyBytes::new(py, state.wire.filled());
        state.wire.clear();
        Ok(bytes)
    }

    /// Advances the handshake, while other threads of Python run. True once it is complete.
    fn handshake(&self, py: Python<'_>) -> PyResult<bool> {
        let mut guard = self.state()?;
        let state: &mut State = &mut guard;
        let result = py.detach(|| state.handshake());
        drop(guard);
        result.map_err(|error| ssl_error(py, &error))
    }

    /// Plaintext that arrived, about `most` bytes of it; `None` if there is none yet, empty after the peer's close.
    fn read<'py>(&self, py: Python<'py>, most: usize) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let mut state = self.state()?;
        plaintext(py, &mut state, most.min(MOST))
    }

    /// Whether the peer's close_notify has arrived.
    #[getter]
    fn ended(&self) -> PyResult<bool> {
        Ok(self.state()?.got_close)
    }

    /// Seals data for the peer.
    fn write(&self, data: &Bound<'_, PyAny>) -> PyResult<()> {
        let mut state = self.state()?;
        with_bytes(data, |bytes| state.seal(bytes).map_err(|error| ssl_error(data.py(), &error)))
    }

    /// Appends close_notify, once. True if that of the peer has arrived.
    fn close(&self) -> PyResult<bool> {
        let mut state = self.state()?;
        state.close();
        Ok(state.got_close)
    }

    /// The results of the handshake; `None` before it is complete.
    fn info<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        let state = self.state()?;
        if state.is_open { tls_dict(py, &state.info()) } else { Ok(None) }
    }

    /// Takes a connected `socket.socket` over, and returns its descriptor. Python's object is closed by that.
    fn attach(&self, socket: &Bound<'_, PyAny>) -> PyResult<i32> {
        let mut state = self.state()?;
        if state.socket.is_some() {
            return Err(PyRuntimeError::new_err("this TLS connection has a socket already"));
        }
        let fd = sys::take(socket)?;
        rustix::io::ioctl_fionbio(&fd, true).map_err(std::io::Error::from)?;
        // Not for sockets of Unix.
        let _ = rustix::net::sockopt::set_tcp_nodelay(&fd, true);
        let number = fd.as_raw_fd();
        state.socket = Some(fd);
        Ok(number)
    }

    /// Advances the handshake over the socket: 0 wants to read, 1 is complete, 2 is the peer's early end.
    ///
    /// The second number is that of the bytes that the kernel does not take yet.
    fn shake(&self, py: Python<'_>, readable: bool) -> PyResult<(u8, usize)> {
        let mut guard = self.state()?;
        let state: &mut State = &mut guard;
        if readable {
            match state.receive()? {
                Read::Some => {}
                Read::Wait => return Ok((0, state.flush()?)),
                Read::End => return Ok((2, 0)),
            }
        }
        let result = py.detach(|| state.handshake());
        // An alert, too.
        let flushed = state.flush();
        drop(guard);
        let is_done = result.map_err(|error| ssl_error(py, &error))?;
        Ok((u8::from(is_done), flushed?))
    }

    /// Plaintext from the socket; `None` if there is none yet, empty at the peer's end.
    fn receive<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let mut state = self.state()?;
        match state.receive()? {
            Read::Some => {}
            Read::Wait => return Ok(None),
            Read::End if state.got_close => return Ok(Some(PyBytes::new(py, &[]))),
            Read::End => {
                let cut = Error::Peer("the connection ended without close_notify, so data may be missing".to_owned());
                return Err(ssl_error(py, &cut));
            }
        }
        let result = plaintext(py, &mut state, usize::MAX);
        if !state.out.is_empty() {
            // A KeyUpdate or an alert.
            state.flush()?;
        }
        result
    }

    /// Seals and sends. Returns the number of bytes that the kernel does not take yet.
    fn send(&self, data: &Bound<'_, PyAny>) -> PyResult<usize> {
        let mut state = self.state()?;
        with_bytes(data, |bytes| state.seal(bytes).map_err(|error| ssl_error(data.py(), &error)))?;
        // Bytes of earlier calls wait until the socket is writable.
        Ok(state.flush()?)
    }

    /// Sends what waits. Returns the number of bytes that the kernel does not take yet.
    fn flush(&self) -> PyResult<usize> {
        Ok(self.state()?.flush()?)
    }

    /// Ends sending on the socket.
    fn shut(&self) -> PyResult<()> {
        if let Some(socket) = &self.state()?.socket {
            // The peer may have reset the connection.
            let _ = rustix::net::shutdown(socket, rustix::net::Shutdown::Write);
        }
        Ok(())
    }

    /// Closes the socket.
    fn drop_socket(&self) -> PyResult<()> {
        let socket = self.state()?.socket.take();
        drop(socket);
        Ok(())
    }
}

fn plaintext<'py>(py: Python<'py>, state: &mut State, most: usize) -> PyResult<Option<Bound<'py, PyBytes>>> {
    match state.open(most).map_err(|error| ssl_error(py, &error))? {
        Plain::Data(place, used) => {
            let bytes = PyBytes::new(py, &state.wire.filled()[place]);
            state.wire.take(used);
            Ok(Some(bytes))
        }
        Plain::Wait => Ok(None),
        Plain::Closed => Ok(Some(PyBytes::new(py, &[]))),
    }
}

/// Calls `act` with the bytes of an object.
fn with_bytes<R>(data: &Bound<'_, PyAny>, act: impl FnOnce(&[u8]) -> PyResult<R>) -> PyResult<R> {
    if let Ok(bytes) = data.cast::<PyBytes>() {
        return act(bytes.as_bytes());
    }
    if data.is_instance_of::<PyByteArray>() || data.is_instance_of::<PyMemoryView>() {
        let copy = data.py().get_type::<PyBytes>().call1((data,))?;
        return act(copy.cast::<PyBytes>()?.as_bytes());
    }
    Err(PyTypeError::new_err(format!("data must be bytes-like, not {}", data.get_type().name()?)))
}

/// The exception of the module `ssl` for an error.
fn ssl_error(py: Python<'_>, error: &Error) -> PyErr {
    let name = match error {
        Error::ApiMisuse(_) => return PyRuntimeError::new_err(error.to_string()),
        Error::Certificate(_) => "SSLCertVerificationError",
        _ => "SSLError",
    };
    let made = py.import("ssl").and_then(|ssl| ssl.getattr(name)).and_then(|class| class.call1((1, error.to_string())));
    made.map_or_else(|failed| failed, PyErr::from_value)
}
