//! A whole WebSocket connection without I/O.

use super::border::{code, free, free_exclusive, report};
use super::exclusive::{Entered, Exclusive};
use super::heads::{Held, header_map, status, target};
use super::memory::{bytes, check, give, put, str_of};
use super::message::message;
use super::settings::Settings;
use super::shapes::{Header, Message, Target, WsEvent, WsStatus};
use super::sized;
use super::tls::certificate;
use super::types::{ErrorDetail, Slice, TlsConfig, TlsFacts, Window};
use crate::codes::{
    Code, TAUT_EVENT_CLOSED, TAUT_EVENT_FAILED, TAUT_EVENT_MESSAGE, TAUT_EVENT_NONE, TAUT_EVENT_OPEN, TAUT_EVENT_PONG,
    TAUT_EVENT_REQUEST, TAUT_FIRST, TAUT_LAST, TAUT_TEXT,
};
use crate::failure::{Fail, Failure};
use crate::ws::{self, Ws};
use core::any::Any;
use core::ptr::from_ref;
use std::io;
use std::sync::Arc;
use tautline::http::Response;
use tautline::layers::engine::connection::{Context, Event};
use tautline::{Config, Kind};
use tautline_tls::TlsInfo;

/// Unused buffers that connections share. Any thread may use it, in one call at a time.
pub struct WsContext(Arc<Exclusive<Context>>);

/// One WebSocket connection without I/O. Any thread may use it, one call at a time.
pub struct WsSession {
    context: Arc<Exclusive<Context>>,
    parts: Exclusive<Parts>,
}

/// A connection and the last event.
struct Parts {
    ws: Ws,
    /// The memory that the pointers of the last event point to.
    event: Option<Box<dyn Any + Send>>,
}

impl Fail for Parts {
    fn fail(&mut self, failure: Failure) {
        self.ws.fail(failure);
    }
}

/// Makes a context and sets `*context` to it. `taut_ws_context_free` frees it.
///
/// Connections of one thread share a context, so that idle ones hold no buffer. It keeps at most `limit` bytes of unused
/// buffers; 0 is for 4 MiB.
///
/// Any thread may call this at any time.
///
/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_ws_context_new(
    limit: usize,
    context: *mut *mut WsContext,
    error: *mut ErrorDetail,
) -> Code {
    let made = || Ok(WsContext(Arc::new(Exclusive::new(ws::context(limit)?))));
    // SAFETY: the caller gives null, or lets it be written.
    let make = || unsafe { give(context, made) };
    // SAFETY: the caller gives null or a `taut_error`.
    unsafe { report(error, make) }
}

/// Frees a context; null is ignored. Connections that have it go on.
///
/// Any thread may call this, once.
///
/// # Safety
/// `context` is null or a context.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_ws_context_free(context: *mut WsContext) {
    // SAFETY: the caller gives null, or a context for the last time.
    let _ = unsafe { free(context) };
}

/// Makes the server's end of a connection that a client has opened, and sets `*ws` to it. `taut_ws_free` frees it.
///
/// `tls` is a configuration for servers that was applied; null is for connections without TLS. `settings` may be null, for
/// the defaults. `context` may be null: the connection then has one of its own. `now_ms` is the time in milliseconds, from
/// any clock that never runs backwards; all calls on the connection take it from the same clock.
///
/// Any thread may call this at any time.
///
/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_ws_server(
    tls: *const TlsConfig,
    settings: *const Settings,
    context: *const WsContext,
    now_ms: u64,
    ws: *mut *mut WsSession,
    error: *mut ErrorDetail,
) -> Code {
    let made = || {
        // SAFETY: the caller gives null or a configuration.
        let tls = unsafe { tls.as_ref() };
        // SAFETY: the caller gives null or valid pointers.
        let (config, context) = unsafe { shared(settings, context) }?;
        Ok(session(Ws::server(tls.map(|tls| &tls.0), config, now_ms)?, context))
    };
    // SAFETY: the caller gives null, or lets it be written.
    let make = || unsafe { give(ws, made) };
    // SAFETY: the caller gives null or a `taut_error`.
    unsafe { report(error, make) }
}

/// Makes the client's end of a connection that was opened to `target` or to its proxy, as `taut_ws_server` does.
///
/// `tls` is a configuration for clients that was applied; null is for targets that begin with `ws://`.
///
/// Any thread may call this at any time.
///
/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_ws_client(
    tls: *const TlsConfig,
    to: *const Target,
    settings: *const Settings,
    context: *const WsContext,
    now_ms: u64,
    ws: *mut *mut WsSession,
    error: *mut ErrorDetail,
) -> Code {
    let made = || {
        // SAFETY: the caller gives null or a `taut_target`, whose pointers are valid.
        let target = unsafe { target(to) }?;
        // SAFETY: the caller gives null or a configuration.
        let tls = unsafe { tls.as_ref() };
        // SAFETY: the caller gives null or valid pointers.
        let (config, context) = unsafe { shared(settings, context) }?;
        let made = Ws::client(tls.map(|tls| &tls.0), target, config, context.enter()?.value, now_ms)?;
        Ok(session(made, context))
    };
    // SAFETY: the caller gives null, or lets it be written.
    let make = || unsafe { give(ws, made) };
    // SAFETY: the caller gives null or a `taut_error`.
    unsafe { report(error, make) }
}

/// Frees a connection; null is ignored. If another call uses it, nothing is freed and the result is TAUT_ERR_BUSY.
///
/// Any thread may call this, once and as the last call.
///
/// # Safety
/// `ws` is null or a connection.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_ws_free(ws: *mut WsSession) -> Code {
    // SAFETY: the caller gives null, or a connection for the last time.
    unsafe { free_exclusive(ws, |ws| &ws.parts) }
}

/// Sets `*window` to the memory into which the peer's next bytes are to be read: at least `least` bytes, and 16 KiB.
///
/// The window and the data of the last event are valid until the next call on this connection, but for `taut_ws_filled`.
///
/// Any thread may call this, but no two threads at once for connections of one context.
///
/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_ws_window(ws: *mut WsSession, least: usize, window: *mut Window) -> Code {
    let call = |parts: &mut Parts, context: &mut Context| {
        let made = || parts.ws.window(least, context).map(|made| Window { data: made.as_mut_ptr(), len: made.len() });
        // SAFETY: the caller gives null, or lets it be written.
        unsafe { put(window, made) }
    };
    // SAFETY: the caller keeps the contract of `run`.
    unsafe { run(ws, call) }
}

/// Takes the first `len` bytes of the window, which the caller has read from the peer.
///
/// Any thread may call this, but no two threads at once for connections of one context.
///
/// # Safety
/// `ws` is null or a connection.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_ws_filled(ws: *mut WsSession, len: usize, now_ms: u64) -> Code {
    // SAFETY: the caller keeps the contract of `run`.
    unsafe { run(ws, |parts, _| parts.ws.filled(len, now_ms)) }
}

/// The peer has ended the stream: no byte follows.
///
/// Any thread may call this, but no two threads at once for connections of one context.
///
/// # Safety
/// `ws` is null or a connection.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_ws_ended(ws: *mut WsSession) -> Code {
    // SAFETY: the caller keeps the contract of `run`.
    unsafe { run(ws, |parts, _| parts.ws.live().map(|connection| connection.ended())) }
}

/// The stream broke: a read or a write failed with this number of errno(3).
///
/// Any thread may call this, but no two threads at once for connections of one context.
///
/// # Safety
/// `ws` is null or a connection.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_ws_broken(ws: *mut WsSession, error_number: i32) -> Code {
    let error = io::Error::from_raw_os_error(error_number);
    // SAFETY: the caller keeps the contract of `run`.
    unsafe { run(ws, |parts, context| parts.ws.live().map(|connection| connection.broken(error, context))) }
}

/// Takes the next event. TAUT_EVENT_NONE says that more bytes of the peer are needed, or that too much output waits.
///
/// Write the output then at the latest. Pings and close frames are answered by themselves.
///
/// Any thread may call this, but no two threads at once for connections of one context.
///
/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_ws_next(ws: *mut WsSession, event: *mut WsEvent) -> Code {
    let call = |parts: &mut Parts, context: &mut Context| {
        // The event stays if it cannot be written. SAFETY: the caller gives null or a `taut_ws_event`.
        unsafe { sized::size(event.cast_const()) }?;
        let next = parts.ws.next(context)?;
        parts.event = None;
        let mut taken = sized::zeroed::<WsEvent>();
        match next {
            None => taken.kind = TAUT_EVENT_NONE,
            Some(Event::Message(kind)) => {
                taken.kind = TAUT_EVENT_MESSAGE;
                taken.flags = if kind == Kind::Text { TAUT_TEXT } else { 0 };
                taken.data = parts.ws.live()?.payload().data().into();
            }
            Some(Event::Chunk { kind, first, last }) => {
                taken.kind = TAUT_EVENT_MESSAGE;
                taken.flags = if kind == Kind::Text { TAUT_TEXT } else { 0 }
                    | if first { TAUT_FIRST } else { 0 }
                    | if last { TAUT_LAST } else { 0 };
                taken.data = parts.ws.live()?.payload().data().into();
            }
            Some(Event::Pong) => {
                taken.kind = TAUT_EVENT_PONG;
                taken.data = parts.ws.live()?.payload().data().into();
            }
            Some(rare) => parts.show(rare, &mut taken)?,
        }
        // SAFETY: as above.
        unsafe { sized::write(event, &taken) }
    };
    // SAFETY: the caller keeps the contract of `run`.
    unsafe { run(ws, call) }
}

impl Parts {
    /// Shows an event that has more than bytes.
    #[cold]
    fn show(&mut self, next: Event, event: &mut WsEvent) -> Result<(), Failure> {
        match next {
            Event::Request => {
                let Some(request) = self.ws.live()?.request() else { return Ok(()) };
                let held = Held::request(request);
                event.is_upgrade = tautline::layers::ws::handshake::is_upgrade(request).into();
                (event.kind, event.request) = (TAUT_EVENT_REQUEST, from_ref(&held.shape));
                self.event = Some(held);
                event.data = self.ws.live()?.body().into();
            }
            Event::Open(opened) => {
                let held = Held::opening(opened);
                (event.kind, event.opening) = (TAUT_EVENT_OPEN, from_ref(&held.shape));
                self.event = Some(held);
            }
            Event::Closed(closed) => {
                let held = Held::closed(&closed);
                (event.kind, event.closed) = (TAUT_EVENT_CLOSED, from_ref(&held.shape));
                self.event = Some(held);
            }
            Event::Failed(error) => {
                let held = Held::failed(&error);
                (event.kind, event.closed) = (TAUT_EVENT_FAILED, from_ref(&held.shape));
                self.event = Some(held);
            }
            // Events of a later version have no number.
            _ => {}
        }
        Ok(())
    }
}

/// Accepts the WebSocket that the request asks for, with further headers in the response (server).
///
/// If the request breaks a rule, it is refused by a response that says why. `taut_ws_next` reports either.
///
/// Any thread may call this, but no two threads at once for connections of one context.
///
/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_ws_upgrade(ws: *mut WsSession, headers: *const Header, headers_count: usize) -> Code {
    let call = |parts: &mut Parts, context: &mut Context| {
        // SAFETY: the caller gives an array of headers.
        let headers = unsafe { header_map(headers, headers_count) }?;
        parts.ws.upgrade(headers, context)
    };
    // SAFETY: the caller keeps the contract of `run`.
    unsafe { run(ws, call) }
}

/// Answers the request as plain HTTP (server). Another request may follow on the connection.
///
/// Any thread may call this, but no two threads at once for connections of one context.
///
/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_ws_respond(
    ws: *mut WsSession,
    http_status: u32,
    headers: *const Header,
    headers_count: usize,
    body: *const u8,
    body_len: usize,
) -> Code {
    let call = |parts: &mut Parts, context: &mut Context| {
        // SAFETY: the caller gives bytes that can be read.
        let mut response = Response::new(unsafe { bytes(body, body_len) }?);
        *response.status_mut() = status(http_status)?;
        // SAFETY: the caller gives an array of headers.
        *response.headers_mut() = unsafe { header_map(headers, headers_count) }?;
        parts.ws.respond(&response, context)
    };
    // SAFETY: the caller keeps the contract of `run`.
    unsafe { run(ws, call) }
}

/// Takes a message, whose bytes are copied. It leaves with the next output. The data of the last event may be sent.
///
/// TAUT_ERR_FULL says that more bytes wait than TAUT_SET_SLOW_LIMIT, and that the message was not taken.
///
/// Any thread may call this, but no two threads at once for connections of one context.
///
/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_ws_send(ws: *mut WsSession, outgoing: *const Message) -> Code {
    // SAFETY: the caller gives null or a `taut_message`. Its bytes are the caller's, or those of the last event, which no
    // call that sends changes.
    let call = |parts: &mut Parts, context: &mut Context| parts.ws.send(unsafe { message(outgoing) }?, context);
    // SAFETY: the caller keeps the contract of `run`.
    unsafe { run(ws, call) }
}

/// Takes a ping of at most 125 bytes.
///
/// Any thread may call this, but no two threads at once for connections of one context.
///
/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_ws_ping(ws: *mut WsSession, data: *const u8, len: usize) -> Code {
    // SAFETY: the caller gives bytes that can be read.
    let call = |parts: &mut Parts, context: &mut Context| parts.ws.ping(unsafe { bytes(data, len) }?, context);
    // SAFETY: the caller keeps the contract of `run`.
    unsafe { run(ws, call) }
}

/// Sends a close frame behind all messages, with a reason of at most 123 bytes of UTF-8.
///
/// TAUT_EVENT_CLOSED follows when the peer answers it, or at the deadline.
///
/// Any thread may call this, but no two threads at once for connections of one context.
///
/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_ws_close(
    ws: *mut WsSession,
    close_code: u32,
    reason: *const u8,
    reason_len: usize,
    now_ms: u64,
) -> Code {
    let call = |parts: &mut Parts, context: &mut Context| {
        // SAFETY: the caller gives bytes that can be read.
        let reason = unsafe { str_of(reason, reason_len) }?;
        parts.ws.close(ws::close_code(close_code, reason)?, reason, context, now_ms)
    };
    // SAFETY: the caller keeps the contract of `run`.
    unsafe { run(ws, call) }
}

/// Sets `*output` to the bytes for the peer; empty if none wait. Messages that were taken meanwhile share records.
///
/// They are valid until the next call on this connection.
///
/// Any thread may call this, but no two threads at once for connections of one context.
///
/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_ws_output(ws: *mut WsSession, output: *mut Slice) -> Code {
    let call = |parts: &mut Parts, context: &mut Context| {
        // SAFETY: the caller gives null, or lets it be written.
        unsafe { put(output, || parts.ws.output(context).map(Into::into)) }
    };
    // SAFETY: the caller keeps the contract of `run`.
    unsafe { run(ws, call) }
}

/// The first `len` bytes of the output were written.
///
/// Any thread may call this, but no two threads at once for connections of one context.
///
/// # Safety
/// `ws` is null or a connection.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_ws_written(ws: *mut WsSession, len: usize) -> Code {
    // SAFETY: the caller keeps the contract of `run`.
    unsafe { run(ws, |parts, context| parts.ws.written(len, context)) }
}

/// The stream takes no more bytes now: the deadline to send runs until some are written.
///
/// Any thread may call this, but no two threads at once for connections of one context.
///
/// # Safety
/// `ws` is null or a connection.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_ws_blocked(ws: *mut WsSession, now_ms: u64) -> Code {
    // SAFETY: the caller keeps the contract of `run`.
    unsafe { run(ws, |parts, _| parts.ws.blocked(now_ms)) }
}

/// Sets `*at_ms` to the time of the next deadline, or to TAUT_NEVER. `taut_ws_on_time` is due then.
///
/// Any thread may call this, but no two threads at once for connections of one context.
///
/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_ws_deadline(ws: *mut WsSession, at_ms: *mut u64) -> Code {
    let call = |parts: &mut Parts, _: &mut Context| {
        // SAFETY: the caller gives null, or lets it be written.
        unsafe { put(at_ms, || parts.ws.deadline()) }
    };
    // SAFETY: the caller keeps the contract of `run`.
    unsafe { run(ws, call) }
}

/// Acts on deadlines that have passed: sends a ping, or ends the connection, which `taut_ws_next` reports.
///
/// Read what the peer has sent before this call.
///
/// Any thread may call this, but no two threads at once for connections of one context.
///
/// # Safety
/// `ws` is null or a connection.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_ws_on_time(ws: *mut WsSession, now_ms: u64) -> Code {
    // SAFETY: the caller keeps the contract of `run`.
    unsafe { run(ws, |parts, context| parts.ws.on_time(now_ms, context)) }
}

/// Gives buffers back to the context: the caller is going to wait for the peer.
///
/// Any thread may call this, but no two threads at once for connections of one context.
///
/// # Safety
/// `ws` is null or a connection.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_ws_rest(ws: *mut WsSession) -> Code {
    // SAFETY: the caller keeps the contract of `run`.
    unsafe { run(ws, |parts, context| parts.ws.live().map(|connection| connection.rest(context))) }
}

/// Writes the state of the connection into `status`.
///
/// Any thread may call this, but no two threads at once for connections of one context.
///
/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_ws_get_status(ws: *mut WsSession, state: *mut WsStatus) -> Code {
    let call = |parts: &mut Parts, _: &mut Context| {
        let connection = parts.ws.live()?;
        let found = WsStatus {
            size: size_of::<WsStatus>(),
            is_open: connection.is_open().into(),
            is_over: connection.is_over().into(),
            is_finished: connection.is_finished().into(),
            holds_back: connection.holds_back().into(),
            waiting: connection.sending().len(),
        };
        // SAFETY: the caller gives null or a `taut_ws_status`.
        unsafe { sized::write(state, &found) }
    };
    // SAFETY: the caller keeps the contract of `run`.
    unsafe { run(ws, call) }
}

/// Writes the result of the TLS handshake into `facts`. Without TLS they are empty.
///
/// Any thread may call this, but no two threads at once for connections of one context.
///
/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_ws_get_facts(ws: *mut WsSession, facts: *mut TlsFacts) -> Code {
    let call = |parts: &mut Parts, _: &mut Context| {
        // SAFETY: the caller gives null or a `taut_tls_facts`.
        unsafe { sized::write(facts, &TlsFacts::new(parts.ws.live()?.tls_info())) }
    };
    // SAFETY: the caller keeps the contract of `run`.
    unsafe { run(ws, call) }
}

/// Copies a certificate of the peer, as `taut_tls_peer_certificate` does.
///
/// Any thread may call this, but no two threads at once for connections of one context.
///
/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_ws_peer_certificate(
    ws: *mut WsSession,
    number: usize,
    der: *mut u8,
    der_room: usize,
    der_len: *mut usize,
) -> Code {
    let call = |parts: &mut Parts, _: &mut Context| {
        let info: TlsInfo = parts.ws.live()?.tls_info();
        // SAFETY: the caller keeps the contract of `certificate`.
        unsafe { certificate(&info, number, (der, der_room), der_len) }
    };
    // SAFETY: the caller keeps the contract of `run`.
    unsafe { run(ws, call) }
}

/// The settings and the context of a connection that is being made.
///
/// # Safety
/// The pointers are null or valid.
unsafe fn shared(
    settings: *const Settings,
    context: *const WsContext,
) -> Result<(Config, Arc<Exclusive<Context>>), Failure> {
    // SAFETY: the caller gives null or settings.
    let config = unsafe { settings.as_ref() }.map_or_else(Config::default, |settings| settings.0.copy());
    // SAFETY: the caller gives null or a context.
    let context = match unsafe { context.as_ref() } {
        Some(context) => context.0.clone(),
        None => Arc::new(Exclusive::new(ws::context(0)?)),
    };
    Ok((config, context))
}

fn session(ws: Ws, context: Arc<Exclusive<Context>>) -> WsSession {
    WsSession { context, parts: Exclusive::new(Parts { ws, event: None }) }
}

/// Runs a call on a connection with its context.
///
/// # Safety
/// `ws` is null or a connection.
#[inline]
unsafe fn run(ws: *mut WsSession, call: impl FnOnce(&mut Parts, &mut Context) -> Result<(), Failure>) -> Code {
    if let Err(failure) = check(ws) {
        return failure.code;
    }
    // SAFETY: not null, so it is a connection, which lives during this call.
    let session = unsafe { &*ws };
    let entered = |mut parts: Entered<'_, Parts>| {
        let context = session.context.enter()?;
        parts.run(|parts| call(parts, context.value))
    };
    code(session.parts.enter().and_then(entered))
}
