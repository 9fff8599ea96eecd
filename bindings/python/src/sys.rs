//! The only unsafe code of the package: a socket that Python gives away.

#![expect(unsafe_code, reason = "Python names descriptors by their numbers")]

use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;
use std::os::fd::{FromRawFd, OwnedFd};

/// Takes the descriptor of a `socket.socket`, which is closed to Python from then on.
pub(crate) fn take(socket: &Bound<'_, PyAny>) -> PyResult<OwnedFd> {
    let kind = socket.py().import(intern!(socket.py(), "socket"))?.getattr(intern!(socket.py(), "socket"))?;
    if !socket.is_instance(&kind)? {
        return Err(PyTypeError::new_err(format!("a socket.socket is needed, not {}", socket.get_type().name()?)));
    }
    // The method of the class itself: one of a subclass could return any number.
    let fd: i32 = kind.getattr(intern!(socket.py(), "detach"))?.call1((socket,))?.extract()?;
    if fd < 0 {
        return Err(PyTypeError::new_err("the socket is closed"));
    }
    // SAFETY: `detach` has just returned the open descriptor that the socket owned, and the socket has forgotten it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}
