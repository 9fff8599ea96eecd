//! Locks and threads of the queues between threads. `tests/interleavings` compiles these queues with a scheduler's own.

pub(crate) use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, TryLockError};
pub(crate) use std::thread::sleep;
