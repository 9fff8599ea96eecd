//! Panics end at the border.

use crate::codes::TAUT_ERR_INTERNAL;
use crate::failure::Failure;
use std::panic::{AssertUnwindSafe, catch_unwind};

const PANICKED: Failure = Failure::new(TAUT_ERR_INTERNAL, "a defect of this library ended the call: please report it");

/// Runs `call`; a panic becomes an error.
pub(super) fn guard<T>(call: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    // Nothing that a panic left half done is used again: the callers end the session, or change one field at a time.
    catch_unwind(AssertUnwindSafe(call)).unwrap_or(Err(PANICKED))
}

#[cfg(test)]
mod tests {
    use super::guard;
    use crate::codes::TAUT_ERR_INTERNAL;

    #[test]
    fn a_panic_becomes_a_code() {
        let result = guard::<()>(|| panic!("on purpose"));
        assert_eq!(result.unwrap_err().code, TAUT_ERR_INTERNAL);
    }
}
