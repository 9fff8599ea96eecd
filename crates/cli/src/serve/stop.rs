//! The end of a server that was asked to stop.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;
use tautline::{CloseCode, Restart, ServerHandle};

/// How a server stops.
#[derive(Clone)]
pub(super) struct Stop {
    pub(super) handle: ServerHandle,
    /// Time for which it serves on after it was asked to stop.
    pub(super) delay: Duration,
    pub(super) lame_duck: LameDuck,
    /// Time that connections have to close.
    pub(super) deadline: Duration,
    /// How a stop is announced, if the server restarts.
    pub(super) restart: Option<Restart>,
}

impl Stop {
    /// The time until its end, at most.
    pub(super) const fn longest(&self) -> Duration {
        self.delay.saturating_add(self.deadline)
    }

    /// Serves on for the delay, while the server is not ready any more, and then does this.
    pub(super) fn after_delay(&self, then: impl FnOnce() + Clone + Send + 'static) {
        self.lame_duck.0.store(true, Ordering::Relaxed);
        let (delay, delayed) = (self.delay, then.clone());
        let thread = thread::Builder::new().name("drain-delay".to_owned());
        let started = thread.spawn(move || {
            thread::sleep(delay);
            delayed();
        });
        if let Err(error) = started {
            log::error!("--drain-delay: cannot start a thread, so there is no delay: {error}");
            then();
        }
    }

    /// Closes all connections.
    pub(super) fn drain(&self) {
        match &self.restart {
            Some(restart) => self.handle.drain_for_restart(restart, self.deadline),
            None => self.handle.drain(CloseCode::GOING_AWAY, "the server is stopping", self.deadline),
        }
    }
}

/// Whether a server that still serves is about to stop. Clones are the same one.
#[derive(Clone, Default)]
pub(super) struct LameDuck(Arc<AtomicBool>);

impl LameDuck {
    /// Why the server should get no new connections.
    pub(super) fn unreadiness(&self) -> Option<String> {
        self.0.load(Ordering::Relaxed).then(|| "the server stops soon (--drain-delay)".to_owned())
    }
}
