//! Locks that outlive panics.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex. One whose holder has panicked goes on: no lock of a hub is held while its state is half changed.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
