//! The buffers and the generator of mask keys of the thread that polls.

use std::cell::Cell;
use std::io;
use std::ops::{Deref, DerefMut};
use tautline_engine::connection::Context;

thread_local! {
    static CONTEXT: Cell<Option<Box<Context>>> = const { Cell::new(None) };
}

/// The thread's context, for one poll.
///
/// It is taken out of the thread's cell meanwhile. A stream below a socket may thus use a socket itself, which then has
/// another context.
pub(crate) struct Borrowed(Option<Box<Context>>);

/// Takes the thread's context, or makes one.
pub(crate) fn borrow() -> io::Result<Borrowed> {
    let context = match CONTEXT.take() {
        Some(context) => context,
        None => Box::new(Context::new()?),
    };
    Ok(Borrowed(Some(context)))
}

#[expect(clippy::expect_used, reason = "only `drop` takes the context")]
impl Deref for Borrowed {
    type Target = Context;

    fn deref(&self) -> &Context {
        self.0.as_ref().expect("a context until it is dropped")
    }
}

#[expect(clippy::expect_used, reason = "only `drop` takes the context")]
impl DerefMut for Borrowed {
    fn deref_mut(&mut self) -> &mut Context {
        self.0.as_mut().expect("a context until it is dropped")
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        CONTEXT.set(self.0.take());
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn contexts_may_be_borrowed_within_each_other() {
        let outer = super::borrow().unwrap();
        let inner = super::borrow().unwrap();
        drop(outer);
        drop(inner);
        drop(super::borrow().unwrap());
    }
}
