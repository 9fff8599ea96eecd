//! The scheduler's locks, atomics and channels, in the place of those of the standard library, and bugs that can be planted
//! in them.

pub(crate) use shuttle::sync::atomic::Ordering;
pub(crate) use shuttle::sync::mpsc::{Receiver, Sender, channel};
pub(crate) use shuttle::sync::{Condvar, Mutex, MutexGuard, RwLock, atomic};
use std::cell::Cell;
pub(crate) use std::sync::{PoisonError, TryLockError};

/// A bug of every atomic in an execution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    /// Reading and writing are two steps, between which other threads run.
    Torn,
    /// A plain store does not happen.
    LostStore,
}

thread_local! {
    /// The scheduler runs all threads of an execution on one thread of the system, so each test has its own.
    static PLANTED: Cell<Option<Bug>> = const { Cell::new(None) };
}

/// Runs `check` with a bug, and returns whether it failed.
pub(crate) fn finds(bug: Bug, check: impl FnOnce()) -> bool {
    PLANTED.set(Some(bug));
    let failed = std::panic::catch_unwind(std::panic::AssertUnwindSafe(check)).is_err();
    PLANTED.set(None);
    failed
}

fn has(bug: Bug) -> bool {
    PLANTED.get() == Some(bug)
}

/// Lets other threads run. Time does not pass.
pub(crate) fn sleep(_: std::time::Duration) {
    shuttle::thread::yield_now();
}

macro_rules! atomic {
    ($name:ident, $value:ty $(, $update:ident, $torn:expr)*) => {
        #[derive(Debug, Default)]
        pub(crate) struct $name(atomic::$name);

        impl $name {
            pub(crate) const fn new(value: $value) -> Self {
                Self(atomic::$name::new(value))
            }

            pub(crate) fn load(&self, order: Ordering) -> $value {
                self.0.load(order)
            }

            pub(crate) fn store(&self, value: $value, order: Ordering) {
                if !has(Bug::LostStore) {
                    self.0.store(value, order);
                }
            }

            $(pub(crate) fn $update(&self, value: $value, order: Ordering) -> $value {
                if !has(Bug::Torn) {
                    return self.0.$update(value, order);
                }
                let before = self.0.load(Ordering::SeqCst);
                self.0.store($torn(before, value), Ordering::SeqCst);
                before
            })*
        }
    };
}

atomic!(AtomicBool, bool, swap, |_, new| new);
atomic!(
    AtomicUsize,
    usize,
    fetch_add,
    usize::wrapping_add,
    fetch_sub,
    usize::wrapping_sub,
    fetch_min,
    std::cmp::Ord::min
);
