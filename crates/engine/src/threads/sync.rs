//! Locks, atomics, channels and threads of what threads share. `tests/interleavings` compiles it with a scheduler's own.

pub(crate) use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
pub(crate) use std::sync::mpsc::{Receiver, Sender, channel};
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard, PoisonError, RwLock, TryLockError};
pub(crate) use std::thread::sleep;
