use super::border::report;
use super::callbacks::Callbacks;
use super::conn::refused;
use super::heads::target;
use super::loops::Calls;
use super::memory::{check, give, str_of};
use super::owner::Loop;
use super::running::{self, Loops, Runs, driver, not_started, program, settings};
use super::settings::Settings;
use super::shapes::{Counter, Target};
use super::sized;
use super::types::{ErrorDetail, TlsConfig};
use crate::codes::{Code, TAUT_ERR_CLOSED, TAUT_ERR_VALUE};
use crate::failure::Failure;
use crate::ws::close_code;
use core::ffi::c_char;
use core::mem::offset_of;
use std::sync::Arc;
use tautline::{ClientConfig, ShardHandle, Tls, TlsEngine};

/// A running loop for outgoing connections.
pub struct Client {
    loops: Loops,
    owner: Arc<Loop>,
    is_secure: bool,
}

impl Runs for Client {
    fn loops(&self) -> &Loops {
        &self.loops
    }

    fn into_loops(self) -> Loops {
        self.loops
    }
}

/// The settings of a client. Fields that are zero have their defaults.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ClientOptions {
    /// sizeof(taut_client_options).
    pub size: usize,
    /// The callbacks, which are copied.
    pub callbacks: *const Callbacks,
    /// Configuration for clients that was applied; null is for targets that begin with `ws://`.
    pub tls: *const TlsConfig,
    /// Limits, deadlines and policies; null for the defaults.
    pub settings: *const Settings,
    /// Driver, such as "epoll" or "uring"; null for the default.
    pub driver: *const c_char,
    /// Number of the CPU that the loop is pinned to; null for any.
    pub cpu: *const usize,
}

sized::versioned! {
    ClientOptions: offset_of!(ClientOptions, tls);
}

/// Starts a loop for outgoing connections and sets `*client` to it. `taut_client_free` ends and frees it.
///
/// Any thread may call this at any time.
///
/// # Safety
/// The pointers are null or valid, and any thread may call the callbacks with their user pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_client_start(
    options: *const ClientOptions,
    client: *mut *mut Client,
    error: *mut ErrorDetail,
) -> Code {
    let start = || {
        // SAFETY: the caller gives null or a `taut_client_options`.
        let options = unsafe { sized::read(options) }?;
        // SAFETY: the caller gives null or callbacks.
        let program = unsafe { program(options.callbacks) }?;
        let made = || {
            // SAFETY: the caller gives null or a configuration.
            let tls = unsafe { options.tls.as_ref() };
            let plain = Tls { engine: TlsEngine::Plain, config: ClientConfig::default() };
            let engine = tls.map_or(Ok(plain), |tls| tls.0.for_client())?;
            // SAFETY: the caller gives null or settings.
            let config = unsafe { settings(options.settings) };
            // SAFETY: the caller gives null or a text.
            let driver = unsafe { driver(options.driver) }?;
            let owner = Loop::new(0);
            let mut made = tautline::Client::new(engine).config(config).driver(driver).stay();
            // SAFETY: the caller gives null or a number.
            if let Some(cpu) = unsafe { options.cpu.as_ref() } {
                made = made.pin(*cpu);
            }
            let (calls, loops, own) = (program.clone(), vec![owner.clone()], owner.clone());
            let handle = made.start(move |_| Calls::new(calls, own)).map_err(not_started)?;
            Ok(Client { loops: Loops { handle, loops, program }, owner, is_secure: tls.is_some() })
        };
        // SAFETY: the caller gives null, or lets it be written.
        unsafe { give(client, made) }
    };
    // SAFETY: the caller gives null or a `taut_error`.
    unsafe { report(error, start) }
}

/// Connects to a target, and sets `*dial` to its number, which callbacks get. `dial` may be null.
///
/// The callback `open` or `connect_failed` follows. `dial_end` ends the use of the number.
///
/// Any thread may call this at any time, callbacks too.
///
/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_client_connect(
    client: *const Client,
    to: *const Target,
    dial: *mut u64,
    error: *mut ErrorDetail,
) -> Code {
    let connect = || {
        check(client)?;
        // SAFETY: the caller gives null or a `taut_target`, whose pointers are valid.
        let target = unsafe { target(to) }?;
        // SAFETY: not null, so it is a client.
        let client = unsafe { &*client };
        if target.is_secure() != client.is_secure {
            let what = "a target that begins with wss:// needs a client with TLS, and one with ws:// one without";
            return Err(Failure::new(TAUT_ERR_VALUE, what));
        }
        // Held meanwhile, so that the loop cannot give the target up before it is known.
        let mut dials = client.owner.dials();
        let begun = client.shard()?.connect(target).map_err(refused)?;
        let number = begun.index() as u64;
        dials.insert(number, begun);
        if check(dial).is_ok() {
            // SAFETY: not null, and the caller lets it be written.
            unsafe { dial.write(number) };
        }
        Ok(())
    };
    // SAFETY: the caller gives null or a `taut_error`.
    unsafe { report(error, connect) }
}

/// Gives a target up, and closes its connection with a code and a reason, if there is one.
///
/// TAUT_ERR_CLOSED says that the target was given up already.
///
/// Any thread may call this at any time, callbacks too.
///
/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_client_disconnect(
    client: *const Client,
    dial: u64,
    close: u32,
    reason: *const u8,
    reason_len: usize,
) -> Code {
    let call = |client: &Client| {
        // SAFETY: the caller gives bytes that can be read.
        let reason = unsafe { str_of(reason, reason_len) }?;
        let close = close_code(close, reason)?;
        let known = client.owner.dials().remove(&dial);
        let known =
            known.ok_or(Failure::new(TAUT_ERR_CLOSED, "no target has this number, or it was given up already"))?;
        client.shard()?.disconnect(known, close, reason).map_err(refused)
    };
    // SAFETY: the caller gives null or a client.
    unsafe { running::on(client, call) }
}

/// Writes the counters, as `taut_server_counters` does.
///
/// Any thread may call this at any time.
///
/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_client_counters(
    client: *const Client,
    counters: *mut Counter,
    room: usize,
    count: *mut usize,
) -> Code {
    // SAFETY: the caller gives null or a client, and an array.
    unsafe { running::counters(client, counters, room, count) }
}

/// Sets `*value` to one counter, as `taut_server_counter` does.
///
/// Any thread may call this at any time.
///
/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_client_counter(client: *const Client, name: *const c_char, value: *mut u64) -> Code {
    // SAFETY: the caller gives null or a client, and pointers that are null or valid.
    unsafe { running::counter(client, name, value) }
}

/// Gives all targets up and closes all connections, as `taut_server_drain` does.
///
/// Any thread may call this at any time.
///
/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_client_drain(
    client: *const Client,
    close: u32,
    reason: *const u8,
    reason_len: usize,
    deadline_ms: u64,
) -> Code {
    // SAFETY: the caller gives null or a client, and bytes that can be read.
    unsafe { running::drain(client, close, (reason, reason_len), deadline_ms) }
}

/// Waits until the loop has ended, as `taut_server_join` does.
///
/// Any thread may call this at any time, but no callback, which gets TAUT_ERR_STATE.
///
/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_client_join(client: *const Client, timeout_ms: u64, error: *mut ErrorDetail) -> Code {
    // SAFETY: the caller gives null or a client, and null or a `taut_error`.
    unsafe { running::join(client, timeout_ms, error) }
}

/// Aborts all connections of a client, waits until its loop has ended, and frees it. Null is ignored.
///
/// Any thread may call this, once and as the last call, but no callback, which gets TAUT_ERR_STATE.
///
/// # Safety
/// `client` is null or a client.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_client_free(client: *mut Client) -> Code {
    // SAFETY: a client comes from `Box::into_raw`, and this is its last use.
    unsafe { running::free(client) }
}

impl Client {
    fn shard(&self) -> Result<&ShardHandle, Failure> {
        self.loops.handle.shards().first().ok_or(Failure::new(TAUT_ERR_CLOSED, "the client has no loop"))
    }
}
