//! Calls of the application where no connection is at stake, and the policy for panics.

use crate::config::OnPanic;
use crate::handler::Handler;
use crate::turn::core::Core;
use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use tautline_io::Address;
use tautline_tls::Engine;

/// The payload of a panic.
pub(crate) type Payload = Box<dyn Any + Send>;

impl<E: Engine, H: Handler> Core<E, H> {
    /// Calls the application where no connection is at stake but `of`. `None` if it panicked.
    pub(crate) fn guard<R>(&mut self, of: fmt::Arguments<'_>, act: impl FnOnce(&mut Self) -> R) -> Option<R> {
        match catch_unwind(AssertUnwindSafe(|| act(self))) {
            Ok(result) => Some(result),
            Err(panic) => {
                self.on_panic(None, of, panic);
                None
            }
        }
    }

    /// Counts and logs a panic, and goes on, unless the policy asks for more.
    pub(crate) fn on_panic(&mut self, peer: Option<&Address>, of: fmt::Arguments<'_>, panic: Payload) {
        if self.is_ending {
            resume_unwind(panic);
        }
        self.shared.counters.panics.add(1);
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("(no text)");
        let policy = self.shared.config.on_panic;
        let then = match policy {
            OnPanic::CloseConnection => "the loop goes on",
            OnPanic::EndLoop => "the loop ends",
            OnPanic::Abort => "the process aborts",
        };
        let line = format_args!("{of}: a panic, mostly of the application: {text:?}; {then}");
        match peer {
            // A peer that knows how can make it panic again and again.
            Some(peer) => self.shared.log_peer(log::Level::Error, peer, line),
            None => log::error!("{line}"),
        }
        match policy {
            OnPanic::CloseConnection => drop_payload(panic),
            OnPanic::EndLoop => {
                self.is_ending = true;
                resume_unwind(panic)
            }
            OnPanic::Abort => {
                // A logger may have a queue, with the line above in it.
                log::logger().flush();
                std::process::abort()
            }
        }
    }
}

/// Drops a payload. One of a type of the application's own could panic again, and is leaked.
fn drop_payload(panic: Payload) {
    if !panic.is::<String>() && !panic.is::<&str>() {
        std::mem::forget(panic);
    }
}
