//! The generation of the process: a child of fork(2) has no loops.

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use std::sync::atomic::{AtomicU32, Ordering};

static GENERATION: AtomicU32 = AtomicU32::new(0);

/// The number of forks between the first process and this one.
pub(crate) fn generation() -> u32 {
    GENERATION.load(Ordering::Relaxed)
}

/// Counts a fork, in the child.
pub(crate) fn advance() {
    GENERATION.fetch_add(1, Ordering::Relaxed);
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
