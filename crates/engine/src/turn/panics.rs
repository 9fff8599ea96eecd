//! Calls of the application where no connection is at stake, and the policy for panics.

use crate::config::OnPanic;
use crate::context::ShardContext;
use crate::handler::Handler;
use crate::turn::shared::Shared;
use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use tautline_io::Address;

/// The payload of a panic.
pub(crate) type Payload = Box<dyn Any + Send>;

/// The application, and whether a panic of it ends the loop.
pub(crate) struct Application<H> {
    pub(crate) handler: H,
    is_ending: bool,
}

impl<H: Handler> Application<H> {
    pub(crate) const fn new(handler: H) -> Self {
        Self { handler, is_ending: false }
    }

    /// Calls the application where no connection is at stake but `of`. `None` if it panicked.
    pub(crate) fn guard<R>(
        &mut self,
        shared: &mut Shared,
        of: fmt::Arguments<'_>,
        act: impl FnOnce(&mut H, &mut Shared) -> R,
    ) -> Option<R> {
        match catch_unwind(AssertUnwindSafe(|| act(&mut self.handler, shared))) {
            Ok(result) => Some(result),
            Err(panic) => {
                self.on_panic(shared, None, of, panic);
                None
            }
        }
    }

    /// Counts and logs a panic, and goes on, unless the policy asks for more.
    pub(crate) fn on_panic(
        &mut self,
        shared: &mut Shared,
        peer: Option<&Address>,
        of: fmt::Arguments<'_>,
        panic: Payload,
    ) {
        if self.is_ending {
            resume_unwind(panic);
        }
        shared.counters.panics.add(1);
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("(no text)");
        let policy = shared.config.on_panic;
        let then = match policy {
            OnPanic::CloseConnection => "the loop goes on",
            OnPanic::EndLoop => "the loop ends",
            OnPanic::Abort => "the process aborts",
        };
        let line = format_args!("{of}: a panic, mostly of the application: {text:?}; {then}");
        match peer {
            // A peer that knows how can make it panic again and again.
            Some(peer) => shared.log_peer(log::Level::Error, peer, line),
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

    /// Calls the application with all that it may do to the shard.
    pub(crate) fn guard_shard(
        &mut self,
        shared: &mut Shared,
        of: fmt::Arguments<'_>,
        act: impl FnOnce(&mut H, &mut ShardContext<'_>),
    ) {
        self.guard(shared, of, |handler, shared| act(handler, &mut ShardContext { shared }));
    }

    /// Passes the times of sends to the application.
    pub(crate) fn report_sends(&mut self, shared: &mut Shared) {
        while let Some(times) = shared.sends.as_mut().and_then(|sends| sends.next_ended()) {
            self.guard_shard(shared, format_args!("the times of a send"), |handler, shard| {
                handler.on_sent(shard, &times)
            });
        }
    }
}

/// Drops a payload. One of a type of the application's own could panic again, and is leaked.
fn drop_payload(panic: Payload) {
    if !panic.is::<String>() && !panic.is::<&str>() {
        std::mem::forget(panic);
    }
}
