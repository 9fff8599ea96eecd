//! Counts of a published message, over all shards.

use crate::topics::reach::Reach;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use tautline_conn::message::Delivery;

/// The result of a published message on all shards.
///
/// Each connection that it was meant for counts once, unless it is closing.
///
/// ```
/// # mod tautline { pub use tautline_engine::{Conn, Outgoing}; }
/// use tautline::{Conn, Outgoing};
///
/// fn publish(conn: &mut Conn<'_, ()>, price: &str) {
///     conn.publish_counted("prices", Outgoing::text(price), |receipt| {
///         println!("{} of {} readers lag", receipt.queued, receipt.sent + receipt.queued + receipt.dropped);
///     });
/// }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Receipt {
    /// Connections to which it was sent at once.
    pub sent: u64,
    /// Connections for which it waits, since they read slowly.
    pub queued: u64,
    /// Connections for which it was dropped, by the policy for slow readers or inside a streamed message.
    pub dropped: u64,
    /// Shards that did not keep up and missed it.
    pub missed: u64,
    /// Whether other hosts get it. Their connections are not counted here.
    pub reach: Option<Reach>,
}

/// The part of an application that gets a receipt.
type Done = Box<dyn FnOnce(Receipt) + Send>;

/// The counts so far. The last shard that drops its share reports them.
pub(crate) struct Receipts {
    sent: AtomicU64,
    queued: AtomicU64,
    dropped: AtomicU64,
    missed: AtomicU64,
    reach: OnceLock<Reach>,
    done: Mutex<Option<Done>>,
}

impl Receipts {
    pub(crate) fn new(done: Done) -> Self {
        let zero = || AtomicU64::new(0);
        let (reach, done) = (OnceLock::new(), Mutex::new(Some(done)));
        Self { sent: zero(), queued: zero(), dropped: zero(), missed: zero(), reach, done }
    }

    pub(crate) fn count(&self, delivery: Delivery) {
        let counter = match delivery {
            Delivery::Sent => &self.sent,
            Delivery::Queued(_) => &self.queued,
            Delivery::Dropped => &self.dropped,
            _ => return,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn set_reach(&self, reach: Reach) {
        // It is known once.
        let _ = self.reach.set(reach);
    }

    /// A shard did not take the message.
    pub(crate) fn miss(&self) {
        self.missed.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for Receipts {
    fn drop(&mut self) {
        let Some(done) = self.done.get_mut().unwrap_or_else(PoisonError::into_inner).take() else { return };
        let [sent, queued, dropped, missed] =
            [&self.sent, &self.queued, &self.dropped, &self.missed].map(|counter| counter.load(Ordering::Relaxed));
        let reach = self.reach.get().copied();
        // The loop that happens to be last must not end because another application's part of it panics.
        let called = catch_unwind(AssertUnwindSafe(|| done(Receipt { sent, queued, dropped, missed, reach })));
        if let Err(panic) = called {
            log::error!("a receiver of a receipt panicked");
            std::mem::forget(panic);
        }
    }
}

impl fmt::Debug for Receipts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Receipts")
    }
}
