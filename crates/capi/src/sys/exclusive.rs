//! A value that serves one call at a time, from whichever threads the calls come.

use super::guard::guard;
use crate::codes::{TAUT_ERR_BUSY, TAUT_ERR_INTERNAL};
use crate::failure::{Fail, Failure};
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, Ordering};

/// A value with a mark that a call uses it.
pub(crate) struct Exclusive<T> {
    busy: AtomicBool,
    value: UnsafeCell<T>,
}

// SAFETY: the value is reached only through `Entered`, of which there is one at a time.
unsafe impl<T: Send> Sync for Exclusive<T> {}

impl<T> Exclusive<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self { busy: AtomicBool::new(false), value: UnsafeCell::new(value) }
    }

    /// Begins a call, unless another one is running.
    #[inline]
    pub(crate) fn enter(&self) -> Result<Entered<'_, T>, Failure> {
        if self.busy.swap(true, Ordering::Acquire) {
            return Err(Failure::new(TAUT_ERR_BUSY, "another call uses this session"));
        }
        // SAFETY: the flag was clear and is set now, so this is the only reference until `Drop` clears it.
        let value = unsafe { &mut *self.value.get() };
        Ok(Entered { busy: &self.busy, value })
    }
}

/// The only call on a value.
pub(crate) struct Entered<'s, T> {
    busy: &'s AtomicBool,
    pub(crate) value: &'s mut T,
}

impl<T: Fail> Entered<'_, T> {
    /// Runs `call`. A panic ends the value.
    #[inline]
    pub(crate) fn run<R>(&mut self, call: impl FnOnce(&mut T) -> Result<R, Failure>) -> Result<R, Failure> {
        let result = guard(|| call(self.value));
        if let Err(failure) = &result
            && failure.code == TAUT_ERR_INTERNAL
        {
            self.value.fail(failure.clone());
        }
        result
    }
}

impl<T> Drop for Entered<'_, T> {
    fn drop(&mut self) {
        self.busy.store(false, Ordering::Release);
    }
}
