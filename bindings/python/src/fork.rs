//! The generation of the process: a child of fork(2) has no loops.

use crate::local;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use std::sync::atomic::{AtomicU32, Ordering};

static GENERATION: AtomicU32 = AtomicU32::new(0);

/// The number of forks between the first process and this one.
pub(crate) fn generation() -> u32 {
    GENERATION.load(Ordering::Relaxed)
}

/// Notes that this process is a new child of fork(2). The package has Python call it.
#[pyfunction]
pub(crate) fn forked() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
    local::forked();
}

/// Refuses to use loops of another process.
pub(crate) fn check(made_in: u32) -> PyResult<()> {
    if made_in == generation() {
        return Ok(());
    }
    Err(PyRuntimeError::new_err(
        "this connection or server belongs to the process before fork(), whose threads this process does not have; open a new one",
    ))
}
