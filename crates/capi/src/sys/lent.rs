//! The objects that the callback running on this thread may use.

use super::callbacks::Conn;
use super::owner::{Loop, State};
use crate::codes::TAUT_ERR_STATE;
use crate::failure::Failure;
use core::cell::Cell;
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
#[inline]
fn with<R>(act: impl FnOnce(&mut Lent) -> Option<R>) -> Option<R> {
    let lent = LENT.get();
    if lent.is_null() {
        return None;
    }
    // SAFETY: `lend` has set it, and its call has not returned. Calls from the callback do not nest, since no `act` calls
    // the program, so this is the only reference.
    act(unsafe { &mut *lent })
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
    with(|lent| match lent {
        Lent::Redial { at } => {
            // SAFETY: the callback borrows the target for its whole length, and only through here.
            unsafe { **at = target };
            Some(())
        }
        _ => None,
    })
    .ok_or(elsewhere)
}
