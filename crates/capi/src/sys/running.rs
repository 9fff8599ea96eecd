//! Running loops: the part of the interface that servers and clients share.

use super::border::{code, report};
use super::callbacks::Callbacks;
use super::guard::guard;
use super::lent::in_callback;
use super::loops::Program;
use super::memory::{check, put, str_of, text};
use super::owner::Loop;
use super::settings::Settings;
use super::shapes::Counter;
use super::sized;
use super::types::ErrorDetail;
use crate::codes::{
    Code, TAUT_ERR_CONFIG, TAUT_ERR_SIZE, TAUT_ERR_STATE, TAUT_ERR_SYSTEM, TAUT_ERR_TIMEOUT, TAUT_ERR_VALUE,
    TAUT_NEVER, TAUT_OK,
};
use crate::failure::Failure;
use crate::ws::{close_code, connect_failure};
use core::ffi::c_char;
use core::sync::atomic::Ordering;
use core::time::Duration;
use std::sync::Arc;
use tautline::{CloseCode, Config, Counters, Error, ServerHandle};

/// Loops that run, and what their callbacks need.
pub(super) struct Loops {
    pub(super) handle: ServerHandle,
    pub(super) loops: Vec<Arc<Loop>>,
    pub(super) program: Arc<Program>,
}

/// A server or a client.
pub(super) trait Runs {
    fn loops(&self) -> &Loops;
    fn into_loops(self) -> Loops;
}

/// The callbacks of a program. They are dropped, and their `destroy` is called, also if the start fails.
///
/// # Safety
/// `callbacks` is null or a `taut_callbacks`.
pub(super) unsafe fn program(callbacks: *const Callbacks) -> Result<Arc<Program>, Failure> {
    // SAFETY: the caller keeps the contract.
    unsafe { sized::read(callbacks) }.map(Program::new)
}

/// A copy of settings, or the defaults.
///
/// # Safety
/// `settings` is null or settings.
pub(super) unsafe fn settings(settings: *const Settings) -> Config {
    // SAFETY: the caller keeps the contract.
    unsafe { settings.as_ref() }.map_or_else(Config::default, |settings| settings.0.copy())
}

/// The driver of a name, or the default.
///
/// # Safety
/// `name` is null or a text.
pub(super) unsafe fn driver(name: *const c_char) -> Result<tautline::DriverConfig, Failure> {
    // SAFETY: the caller keeps the contract.
    let name = unsafe { text(name) }?;
    let unknown = |why| Failure::with_text(TAUT_ERR_VALUE, why);
    name.map_or_else(|| Ok(Default::default()), |name| tautline::driver_named(name).map_err(unknown))
}

/// The failure of a server or client that cannot start.
pub(super) fn not_started(error: Error) -> Failure {
    match error {
        Error::Tls(error) => error.into(),
        Error::Connect(error) => connect_failure(&error),
        Error::NothingToListenAt => Failure::with_text(TAUT_ERR_CONFIG, error.to_string()),
        other => Failure::with_text(TAUT_ERR_SYSTEM, format!("{other:#}")),
    }
}

/// Runs a call on a server or a client.
///
/// # Safety
/// `object` is null or one of these, which nothing frees meanwhile.
pub(super) unsafe fn on<T: Runs>(object: *const T, call: impl FnOnce(&T) -> Result<(), Failure>) -> Code {
    let run = || {
        check(object)?;
        // SAFETY: not null, so it lives during this call.
        call(unsafe { &*object })
    };
    code(guard(run))
}

/// Fails inside of callbacks, where nothing may wait for loops.
pub(super) fn apart() -> Result<(), Failure> {
    let inside = Failure::new(TAUT_ERR_STATE, "a callback must not wait for the loop that runs it");
    if in_callback() { Err(inside) } else { Ok(()) }
}

/// Begins to close all connections.
///
/// # Safety
/// That of [`on`]; and the reason can be read.
pub(super) unsafe fn drain<T: Runs>(
    object: *const T,
    close: u32,
    (reason, len): (*const u8, usize),
    deadline_ms: u64,
) -> Code {
    let call = |object: &T| {
        // SAFETY: the caller keeps the contract.
        let reason = unsafe { str_of(reason, len) }?;
        // A century is as good as for ever.
        let deadline = Duration::from_millis(deadline_ms.min(3_155_760_000_000));
        object.loops().handle.drain(close_code(close, reason)?, reason, deadline);
        Ok(())
    };
    // SAFETY: the caller keeps the contract.
    unsafe { on(object, call) }
}

/// Waits until all loops have ended.
///
/// # Safety
/// That of [`on`]; and `error` is null or a `taut_error`.
pub(super) unsafe fn join<T: Runs>(object: *const T, timeout_ms: u64, error: *mut ErrorDetail) -> Code {
    let wait = || {
        check(object)?;
        apart()?;
        // SAFETY: not null, so it lives during this call.
        let loops = unsafe { &*object }.loops();
        let most = (timeout_ms != TAUT_NEVER).then(|| Duration::from_millis(timeout_ms));
        if !loops.program.wait(most) {
            return Err(Failure::new(TAUT_ERR_TIMEOUT, "a loop still runs: drain it, or wait for its callback"));
        }
        loops.handle.clone().join().map_err(not_started)
    };
    // SAFETY: the caller gives null or a `taut_error`.
    unsafe { report(error, wait) }
}

/// Ends all loops, waits for them, and frees the object. Null is ignored.
///
/// # Safety
/// `object` is null, or comes from `Box::into_raw` and is used for the last time.
pub(super) unsafe fn free<T: Runs>(object: *mut T) -> Code {
    if object.is_null() {
        return TAUT_OK;
    }
    let free = || {
        apart()?;
        // SAFETY: the caller keeps the contract.
        let loops = unsafe { Box::from_raw(object) }.into_loops();
        loops.handle.drain(CloseCode::GOING_AWAY, "", Duration::ZERO);
        loops.program.wait(None);
        // The caller gets failures of loops from `join`.
        let _ = loops.handle.join();
        Ok(())
    };
    code(guard(free))
}

/// Writes all counters.
///
/// # Safety
/// That of [`on`]; and the pointers are null or valid, with `room` elements at `counters`.
pub(super) unsafe fn counters<T: Runs>(
    object: *const T,
    counters: *mut Counter,
    room: usize,
    count: *mut usize,
) -> Code {
    let call = |object: &T| {
        check(count)?;
        let all = total(object.loops()).map(|(name, value)| Counter { name: name.into(), value });
        let all: Vec<Counter> = all.collect();
        // SAFETY: not null, and the caller lets it be written.
        unsafe { count.write(all.len()) };
        let fits = room.min(all.len());
        if fits > 0 {
            check(counters)?;
            // SAFETY: the caller gives an array of `room` elements, which shares no byte with ours.
            unsafe { counters.copy_from_nonoverlapping(all.as_ptr(), fits) };
        }
        if fits < all.len() { Err(Failure::new(TAUT_ERR_SIZE, "there are more counters")) } else { Ok(()) }
    };
    // SAFETY: the caller keeps the contract.
    unsafe { on(object, call) }
}

/// Writes one counter.
///
/// # Safety
/// That of [`on`]; and the pointers are null or valid.
pub(super) unsafe fn counter<T: Runs>(object: *const T, name: *const c_char, value: *mut u64) -> Code {
    let call = |object: &T| {
        check(name)?;
        // SAFETY: the caller gives a text.
        let name = unsafe { text(name) }?;
        let found = total(object.loops()).find(|(one, _)| Some(*one) == name).map(|(_, value)| value);
        // SAFETY: the caller gives null, or lets it be written.
        unsafe { put(value, || found.ok_or(Failure::new(TAUT_ERR_VALUE, "there is no such counter"))) }
    };
    // SAFETY: the caller keeps the contract.
    unsafe { on(object, call) }
}

/// The counters of all loops, added up.
fn total(loops: &Loops) -> impl Iterator<Item = (&'static str, u64)> {
    let mut sum = Counters::default();
    loops.handle.shards().iter().for_each(|shard| sum.merge(&shard.counters()));
    let failed = loops.loops.iter().map(|one| one.failed.load(Ordering::Relaxed)).sum();
    sum.named().into_iter().chain([("callbacks_failed", failed)])
}
