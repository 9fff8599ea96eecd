//! The queues between threads under shuttle, a scheduler that tries thousands of interleavings of their threads.
//!
//! `cargo xtask interleavings` runs them. A failure prints a schedule, which `shuttle::replay` repeats.
#![forbid(unsafe_code)]
#![cfg(test)]

mod offload;

#[path = "../../../crates/engine/src/offload/job_queue.rs"]
mod job_queue;

/// The engine's configuration, as far as the queue knows it.
mod config {
    use std::time::Duration;

    #[derive(Clone, Debug)]
    pub(crate) struct Offload {
        pub(crate) max_waiting: usize,
        pub(crate) max_wait: Duration,
        pub(crate) max_stall: Option<Duration>,
    }

    impl Default for Offload {
        fn default() -> Self {
            Self { max_waiting: 4096, max_wait: Duration::from_secs(3600), max_stall: None }
        }
    }
}

/// The scheduler's locks, in the place of those of the standard library.
mod sync {
    pub(crate) use shuttle::sync::{Condvar, Mutex, MutexGuard};
    pub(crate) use std::sync::{PoisonError, TryLockError};

    /// Lets other threads run. Time does not pass.
    pub(crate) fn sleep(_: std::time::Duration) {
        shuttle::thread::yield_now();
    }
}
