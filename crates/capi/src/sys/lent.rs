//! The objects that the callback running on this thread may use.

use super::callbacks::Conn;
use super::owner::{Loop, State};
use crate::codes::TAUT_ERR_STATE;
use crate::failure::Failure;
use core::cell::Cell;
use core::mem::replace;
use core::ptr::null_mut;
use tautline::{Reply, ShardContext, Target};

/// The objects of one callback. The lifetimes are those of the call, which `lend` keeps.
pub(super) enum Lent {
    Conn {
        conn: Conn,
        at: *mut tautline::Conn<'static, State>,
    },
    Loop {
        owner: *const Loop,
        at: *mut ShardContext<'static>,
    },
    Request {
        shown: *const super::callbacks::Request,
        at: *const tautline::Request<'static>,
        reply: Option<Reply<State>>,
    },
    Redial {
        at: *mut Target,
    },
    /// None: only calls that work everywhere.
    Nothing,
}

thread_local! {
    static LENT: Cell<*mut Lent> = const { Cell::new(null_mut()) };
}

/// Restores the objects of the outer callback, also after a panic.
struct Restore(*mut Lent);

impl Drop for Restore {
    fn drop(&mut self) {
        LENT.set(self.0);
    }
}

/// Runs a callback that may use `lent`.
#[inline]
pub(super) fn lend<R>(lent: &mut Lent, call: impl FnOnce() -> R) -> R {
    let _restore = Restore(LENT.replace(lent));
    call()
}

/// Whether a callback runs on this thread.
pub(super) fn in_callback() -> bool {
    !LENT.get().is_null()
}

/// Calls `act` with the objects of the callback that runs on this thread.
///
/// If `act` calls the program, such as by dropping what has a function of it, calls of that function find nothing lent.
#[inline]
fn with<R>(act: impl FnOnce(&mut Lent) -> Option<R>) -> Option<R> {
    let lent = LENT.get();
    if lent.is_null() {
        return None;
    }
    // SAFETY: `lend` has set it, and its call has not returned. This is the only reference: the inner `lend` hides the objects
    // until `act` has returned.
    lend(&mut Lent::Nothing, || act(unsafe { &mut *lent }))
}

/// Calls `act` with a connection, if this is a callback of it.
#[inline]
pub(super) fn with_conn<R>(conn: Conn, act: impl FnOnce(&mut tautline::Conn<'_, State>) -> R) -> Option<R> {
    with(|lent| match lent {
        Lent::Conn { conn: own, at } if own.id == conn.id && own.owner == conn.owner => {
            // SAFETY: the callback borrows the connection for its whole length, and only through here.
            Some(act(unsafe { &mut **at }))
        }
        _ => None,
    })
}

/// As [`with_conn`], for calls that work nowhere else.
pub(super) fn in_conn<R>(
    conn: Conn,
    act: impl FnOnce(&mut tautline::Conn<'_, State>) -> Result<R, Failure>,
) -> Result<R, Failure> {
    let elsewhere = Failure::new(TAUT_ERR_STATE, "this call works only inside a callback of the connection");
    with_conn(conn, act).unwrap_or(Err(elsewhere))
}

/// Calls `act` with a loop, inside any callback of it that has a connection or the loop itself.
pub(super) fn in_loop<R>(owner: *const Loop, act: impl FnOnce(&mut ShardContext<'_>) -> R) -> Result<R, Failure> {
    let elsewhere = Failure::new(TAUT_ERR_STATE, "this call works only inside a callback of the loop");
    with(|lent| match lent {
        // SAFETY: the callback borrows the connection for its whole length, and only through here.
        Lent::Conn { conn, at } if conn.owner == owner => Some(act(&mut unsafe { &mut **at }.shard())),
        // SAFETY: as above, for the loop.
        Lent::Loop { owner: own, at } if *own == owner => Some(act(unsafe { &mut **at })),
        _ => None,
    })
    .ok_or(elsewhere)
}

/// Calls `act` with a request that has no answer, inside its callback.
pub(super) fn in_request<R>(
    shown: *const super::callbacks::Request,
    act: impl FnOnce(&tautline::Request<'_>, &mut Option<Reply<State>>) -> Result<R, Failure>,
) -> Result<R, Failure> {
    let elsewhere = Failure::new(TAUT_ERR_STATE, "this call works only inside the callback of the request");
    with(|lent| match lent {
        // SAFETY: the callback borrows the request for its whole length.
        Lent::Request { shown: own, at, reply } if *own == shown => Some(act(unsafe { &**at }, reply)),
        _ => None,
    })
    .unwrap_or(Err(elsewhere))
}

/// Replaces the target that is about to be connected to again.
pub(super) fn set_redial(target: Target) -> Result<(), Failure> {
    let elsewhere = Failure::new(TAUT_ERR_STATE, "this call works only inside the callback `redial`");
    let old = with(|lent| match lent {
        // SAFETY: the callback borrows the target for its whole length, and only through here.
        Lent::Redial { at } => Some(replace(unsafe { &mut **at }, target)),
        _ => None,
    });
    // The last one may hold what calls the program when it is dropped, which may then call this again.
    old.map(drop).ok_or(elsewhere)
}

#[cfg(test)]
mod tests {
    use super::{Lent, in_callback, lend, set_redial, with};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use tautline::{Lookup, Resolver, Target};

    /// Sets the target when it is dropped, as a function of a program may.
    #[derive(Debug)]
    struct Calls(Arc<AtomicU32>);

    impl Resolver for Calls {
        fn resolve(&self, _: Lookup) {}
    }

    impl Drop for Calls {
        fn drop(&mut self) {
            assert!(in_callback());
            if set_redial(Target::new("ws://inner/").unwrap()).is_ok() {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// A target that calls `set_redial` when it is dropped, and how often that worked.
    fn calling() -> (Target, Arc<AtomicU32>) {
        let worked = Arc::default();
        (Target::new("ws://first/").unwrap().with_resolver(Calls(Arc::clone(&worked))), worked)
    }

    #[test]
    fn the_end_of_a_replaced_target_may_replace_it_again() {
        let (mut target, worked) = calling();
        lend(&mut Lent::Redial { at: &raw mut target }, || {
            set_redial(Target::new("ws://second/").unwrap()).unwrap();
        });
        assert_eq!((worked.load(Ordering::Relaxed), target.host()), (1, "inner"));
        assert!(!in_callback() && set_redial(target).is_err());
    }

    #[test]
    fn a_call_within_a_call_finds_nothing_lent() {
        let mut target = Target::new("ws://outer/").unwrap();
        let (other, worked) = calling();
        lend(&mut Lent::Redial { at: &raw mut target }, || {
            // The reference to the objects lives while the program is called.
            let act = |_: &mut Lent| {
                drop(other);
                Some(())
            };
            with(act).unwrap();
            assert_eq!(worked.load(Ordering::Relaxed), 0);
            set_redial(Target::new("ws://after/").unwrap()).unwrap();
        });
        assert_eq!(target.host(), "after");
    }
}
