//! The buffers and the generator of mask keys of the thread that polls.

use std::cell::RefCell;
use std::io;
use tautline_engine::connection::Context;

thread_local! {
    static CONTEXT: RefCell<Option<Box<Context>>> = const { RefCell::new(None) };
}

/// Calls `act` with the thread's context.
///
/// A stream below a socket may use a socket itself, within `act`. That one gets a context for this call alone.
///
/// # Errors
/// The system has no random numbers for a new context.
#[inline]
pub(crate) fn with<R>(act: impl FnOnce(&mut Context) -> R) -> io::Result<R> {
    CONTEXT.with(|context| match context.try_borrow_mut() {
        Ok(mut context) => match &mut *context {
            Some(context) => Ok(act(context)),
            None => Ok(act(context.insert(new()?))),
        },
        Err(_) => Ok(act(&mut *new()?)),
    })
}

#[cold]
fn new() -> io::Result<Box<Context>> {
    Context::new().map(Box::new)
}

#[cfg(test)]
mod tests {
    use super::with;

    #[test]
    fn a_call_within_another_has_a_context_of_its_own() {
        let address = |context: &mut super::Context| std::ptr::from_mut(context).addr();
        let outer = with(|outer| {
            let inner = with(address).unwrap();
            assert_ne!(inner, address(outer));
            address(outer)
        });
        assert_eq!(with(address).unwrap(), outer.unwrap(), "the thread keeps its context");
    }
}
