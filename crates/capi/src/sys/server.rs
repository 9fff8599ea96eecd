use super::border::{put_text, report};
use super::callbacks::Callbacks;
use super::conn::{chars, refused};
use super::loops::{Calls, Program};
use super::memory::{array, check, give, put, str_of, text};
use super::message::message;
use super::owner::Loop;
use super::running::{self, Loops, Runs, apart, driver, not_started, program, settings};
use super::settings::Settings;
use super::shapes::{Counter, Message};
use super::sized;
use super::types::{ErrorDetail, TlsConfig};
use crate::codes::{Code, TAUT_ERR_VALUE};
use crate::failure::Failure;
use core::ffi::c_char;
use core::mem::offset_of;
use std::sync::Arc;
use tautline::{Config, ServerConfig, Tls, TlsEngine};

/// As the number of loops: one for each CPU that the process may use.
pub const TAUT_ALL_CPUS: u32 = u32::MAX;

/// A running server.
pub struct Server(pub(super) Loops);

impl Runs for Server {
    fn loops(&self) -> &Loops {
        &self.0
    }

    fn into_loops(self) -> Loops {
        self.0
    }
}

/// The settings of a server. Fields that are zero have their defaults.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct ServerOptions {
    /// sizeof(taut_server_options).
    pub size: usize,
    /// The callbacks, which are copied.
    pub callbacks: *const Callbacks,
    /// Addresses to listen at: `IP:PORT` or `unix:PATH`. Port 0 is any free port.
    pub listen: *const *const c_char,
    /// Number of addresses.
    pub listen_count: usize,
    /// Configuration for servers that was applied; null serves without TLS.
    pub tls: *const TlsConfig,
    /// Limits, deadlines and policies; null for the defaults.
    pub settings: *const Settings,
    /// Number of loops, each on a thread of its own; 0 for one, TAUT_ALL_CPUS for one on each CPU.
    pub loops: u32,
    /// 1 lets other servers of the same user listen at the same addresses, to take over from each other.
    pub beside_others: u32,
    /// CPUs to which the loops are pinned, in turn; null pins none.
    pub cpus: *const usize,
    /// Number of CPUs.
    pub cpus_count: usize,
    /// Driver, such as "epoll" or "uring"; null for the default.
    pub driver: *const c_char,
}

sized::versioned! {
    ServerOptions: offset_of!(ServerOptions, tls);
}

/// Starts a server and sets `*server` to it. `taut_server_free` ends and frees it.
///
/// Callbacks may run before this returns, on the threads of the loops.
///
/// Any thread may call this at any time.
///
/// # Safety
/// The pointers are null or valid, and any thread may call the callbacks with their user pointer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_server_start(
    options: *const ServerOptions,
    server: *mut *mut Server,
    error: *mut ErrorDetail,
) -> Code {
    let start = || {
        // SAFETY: the caller gives null or a `taut_server_options`.
        let options = unsafe { sized::read(options) }?;
        // SAFETY: the caller gives null or callbacks.
        let program = unsafe { program(options.callbacks) }?;
        // SAFETY: the pointers in the options are null or valid.
        let made = || unsafe { plan(&options) }?.start(program).map(Server);
        // SAFETY: the caller gives null, or lets it be written.
        unsafe { give(server, made) }
    };
    // SAFETY: the caller gives null or a `taut_error`.
    unsafe { report(error, start) }
}

/// The options of a server in Rust's types.
struct Plan {
    tls: Tls<ServerConfig, TlsEngine>,
    config: Config,
    listen: Vec<tautline::Address>,
    loops: u32,
    beside_others: bool,
    cpus: Vec<usize>,
    driver: tautline::DriverConfig,
}

/// # Safety
/// The pointers in the options are null or valid.
unsafe fn plan(options: &ServerOptions) -> Result<Plan, Failure> {
    // SAFETY: the caller gives null or a configuration.
    let tls = match unsafe { options.tls.as_ref() } {
        Some(tls) => tls.0.for_server()?,
        None => Tls { engine: TlsEngine::Plain, config: ServerConfig::default() },
    };
    // SAFETY: the caller gives an array of texts.
    let addresses = unsafe { array(options.listen, options.listen_count) }?;
    let address = |given: &*const c_char| {
        // SAFETY: as above.
        let given = unsafe { text(*given) }?.unwrap_or_default();
        let unusable = |error| Failure::with_text(TAUT_ERR_VALUE, format!("{given:?} is no address: {error}"));
        given.parse().map_err(unusable)
    };
    let cpus = || std::thread::available_parallelism().map_or(1, |cpus| u32::try_from(cpus.get()).unwrap_or(1));
    Ok(Plan {
        tls,
        // SAFETY: the caller gives null or settings.
        config: unsafe { settings(options.settings) },
        listen: addresses.iter().map(address).collect::<Result<_, _>>()?,
        loops: if options.loops == TAUT_ALL_CPUS { cpus() } else { options.loops.clamp(1, 1024) },
        beside_others: options.beside_others != 0,
        // SAFETY: the caller gives an array.
        cpus: unsafe { array(options.cpus, options.cpus_count) }?.to_vec(),
        // SAFETY: the caller gives null or a text.
        driver: unsafe { driver(options.driver) }?,
    })
}

impl Plan {
    fn start(self, program: Arc<Program>) -> Result<Loops, Failure> {
        let loops: Vec<_> = (0..self.loops).map(Loop::new).collect();
        let (owners, calls) = (loops.clone(), program.clone());
        let mut server = tautline::Server::new(self.tls).config(self.config).driver(self.driver).pin(self.cpus);
        for address in self.listen {
            server = server.listen(address);
        }
        let server = server.shards(loops.len()).beside_others(self.beside_others);
        let handle = server.start(move |number| Calls::new(calls.clone(), owners[number as usize].clone()));
        Ok(Loops { handle: handle.map_err(not_started)?, loops, program })
    }
}

/// Writes an address at which a server listens into `text`, with a zero byte behind it, cut if `text_room` is too small.
///
/// `number` counts from 0, in the order of the options. The port is the actual one. TAUT_ERR_VALUE says that there are
/// fewer.
///
/// Any thread may call this at any time.
///
/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_server_address(
    server: *const Server,
    number: usize,
    text: *mut c_char,
    text_room: usize,
) -> Code {
    let call = |server: &Server| {
        let address = server.0.handle.addresses().get(number);
        let address = address.ok_or(Failure::new(TAUT_ERR_VALUE, "the server listens at fewer addresses"))?;
        // SAFETY: the caller gives the memory away for this call.
        put_text(unsafe { chars(text, text_room) }?, &address.to_string());
        Ok(())
    };
    // SAFETY: the caller gives null or a server.
    unsafe { running::on(server, call) }
}

/// Sends a message to every subscriber of a topic.
///
/// TAUT_ERR_FULL says that a loop does not keep up and did not take the message; all others were tried too.
///
/// Any thread may call this at any time.
///
/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_server_publish(
    server: *const Server,
    topic: *const u8,
    topic_len: usize,
    outgoing: *const Message,
) -> Code {
    let call = |server: &Server| {
        // SAFETY: the caller gives bytes that can be read.
        let topic = unsafe { str_of(topic, topic_len) }?;
        // SAFETY: the caller gives null or a `taut_message`.
        server.0.handle.publish(topic, unsafe { message(outgoing) }?).map_err(refused)
    };
    // SAFETY: the caller gives null or a server.
    unsafe { running::on(server, call) }
}

/// Sends a message to every open connection, as `taut_server_publish` does.
///
/// Any thread may call this at any time.
///
/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_server_broadcast(server: *const Server, outgoing: *const Message) -> Code {
    // SAFETY: the caller gives null or a `taut_message`.
    let call = |server: &Server| server.0.handle.broadcast(unsafe { message(outgoing) }?).map_err(refused);
    // SAFETY: the caller gives null or a server.
    unsafe { running::on(server, call) }
}

/// Sets `*count` to the number of subscriptions that match a topic. It waits for the loops.
///
/// Any thread may call this at any time, but no callback, which gets TAUT_ERR_STATE.
///
/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_server_subscribers(
    server: *const Server,
    topic: *const u8,
    topic_len: usize,
    count: *mut usize,
) -> Code {
    let call = |server: &Server| {
        apart()?;
        // SAFETY: the caller gives bytes that can be read.
        let topic = unsafe { str_of(topic, topic_len) }?;
        // SAFETY: the caller gives null, or lets it be written.
        unsafe { put(count, || server.0.handle.subscribers(topic).map_err(refused)) }
    };
    // SAFETY: the caller gives null or a server.
    unsafe { running::on(server, call) }
}

/// Has new connections use the applied settings of this configuration. Others go on, and after an error nothing has changed.
///
/// A server keeps the settings that it started with until then, whatever is applied. Certificates must be valid now.
///
/// Any thread may call this at any time. It signs with each key once, and so takes milliseconds.
///
/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_server_reload(
    server: *const Server,
    tls: *const TlsConfig,
    error: *mut ErrorDetail,
) -> Code {
    let reload = || {
        check(server)?;
        check(tls)?;
        // SAFETY: not null, so it is a configuration, and the caller holds a reference.
        let config = unsafe { &*tls }.0.for_server()?.config;
        // SAFETY: not null, so it is a server.
        unsafe { &*server }.0.handle.reload(&config).map_err(not_started)
    };
    // SAFETY: the caller gives null or a `taut_error`.
    unsafe { report(error, reload) }
}

/// Writes the counters of all loops, added up, into an array of `room` elements, and sets `*count` to their number.
///
/// If `room` is smaller, the first ones are written and the result is TAUT_ERR_SIZE.
///
/// Any thread may call this at any time.
///
/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_server_counters(
    server: *const Server,
    counters: *mut Counter,
    room: usize,
    count: *mut usize,
) -> Code {
    // SAFETY: the caller gives null or a server, and an array.
    unsafe { running::counters(server, counters, room, count) }
}

/// Sets `*value` to one counter of all loops, added up. TAUT_ERR_VALUE says that none has this name.
///
/// Any thread may call this at any time.
///
/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_server_counter(server: *const Server, name: *const c_char, value: *mut u64) -> Code {
    // SAFETY: the caller gives null or a server, and pointers that are null or valid.
    unsafe { running::counter(server, name, value) }
}

/// Stops accepting, and closes all connections with a code such as 1001 (going away) and a reason.
///
/// Connections that are not closed after `deadline_ms` are aborted. This returns at once; `taut_server_join` waits.
///
/// Any thread may call this at any time.
///
/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_server_drain(
    server: *const Server,
    close: u32,
    reason: *const u8,
    reason_len: usize,
    deadline_ms: u64,
) -> Code {
    // SAFETY: the caller gives null or a server, and bytes that can be read.
    unsafe { running::drain(server, close, (reason, reason_len), deadline_ms) }
}

/// Waits until every loop has ended, after a drain or a failure. TAUT_NEVER waits for ever.
///
/// TAUT_ERR_TIMEOUT says that a loop still runs: a connection, or a callback that does not return. The text names the error of
/// a loop that failed.
///
/// Any thread may call this at any time, but no callback, which gets TAUT_ERR_STATE.
///
/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_server_join(server: *const Server, timeout_ms: u64, error: *mut ErrorDetail) -> Code {
    // SAFETY: the caller gives null or a server, and null or a `taut_error`.
    unsafe { running::join(server, timeout_ms, error) }
}

/// Aborts all connections of a server, waits until its loops have ended, and frees it. Null is ignored.
///
/// It waits as long as a callback runs: drain and join before, if one may not return. No callback runs after this.
///
/// Any thread may call this, once and as the last call, but no callback, which gets TAUT_ERR_STATE.
///
/// # Safety
/// `server` is null or a server.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_server_free(server: *mut Server) -> Code {
    // SAFETY: a server comes from `Box::into_raw`, and this is its last use.
    unsafe { running::free(server) }
}
