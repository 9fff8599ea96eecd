//! Work for a loop's thread, between two turns.

use crate::erased::ThreadLoop;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tautline_engine::ShardHandle;

/// Work for a loop's thread.
type Job = Box<dyn FnOnce(&mut dyn ThreadLoop) + Send>;

/// The work that waits for a loop.
#[derive(Clone, Default)]
pub(crate) struct Jobs(Arc<Inner>);

#[derive(Default)]
struct Inner {
    /// Whether some waits. A loop looks at it once a turn.
    wait: AtomicBool,
    jobs: Mutex<Vec<Job>>,
}

impl Jobs {
    /// Has the loop of `shard` do this after its turn.
    pub(crate) fn push(&self, shard: &ShardHandle, job: impl FnOnce(&mut dyn ThreadLoop) + Send + 'static) {
        self.0.jobs.lock().unwrap_or_else(PoisonError::into_inner).push(Box::new(job));
        self.0.wait.store(true, Ordering::Release);
        shard.wake();
    }

    /// Does the work that waits.
    #[inline]
    pub(crate) fn run(&self, shard: &mut dyn ThreadLoop) {
        if self.0.wait.load(Ordering::Relaxed) {
            self.run_all(shard);
        }
    }

    #[cold]
    fn run_all(&self, shard: &mut dyn ThreadLoop) {
        self.0.wait.store(false, Ordering::Relaxed);
        let jobs = std::mem::take(&mut *self.0.jobs.lock().unwrap_or_else(PoisonError::into_inner));
        jobs.into_iter().for_each(|job| job(shard));
    }
}

impl std::fmt::Debug for Jobs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Jobs")
    }
}
