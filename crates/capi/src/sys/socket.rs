use super::border::{code, free, report};
use super::guard::guard;
use super::heads::{Held, target};
use super::memory::{check, give, str_of};
use super::message::message;
use super::running::settings;
use super::settings::Settings;
use super::shapes::{Closed, Message, Target};
use super::sized;
use super::types::{ErrorDetail, TlsConfig, TlsFacts};
use crate::codes::{Code, TAUT_ERR_CLOSED, TAUT_ERR_STATE, TAUT_ERR_SYSTEM, TAUT_ERR_TIMEOUT, TAUT_NEVER, TAUT_TEXT};
use crate::failure::Failure;
use crate::ws::{check_tls, close_code, connect_failure};
use core::ptr::{from_ref, null};
use core::time::Duration;
use std::thread::{self, ThreadId};
use tautline::{ClientConfig, Error, Incoming, Kind, Tls, TlsEngine};

/// A blocking connection of a client. Only the thread that made it may use it; any thread may free it.
pub struct Socket {
    thread: ThreadId,
    /// `None` once it was closed.
    socket: Option<tautline::Socket>,
    /// The message that the caller has.
    last: Option<Incoming>,
    closed: Option<Box<Held<Closed>>>,
}

/// Connects to a target, waits until the connection is open, and sets `*socket` to it. `taut_socket_free` frees it.
///
/// `tls` is a configuration for clients that was applied; null is for targets that begin with `ws://`. `settings` may be
/// null. Unless `timeout_ms` is TAUT_NEVER, it replaces TAUT_SET_CONNECT_MS and TAUT_SET_HANDSHAKE_MS: the longest time for
/// each of these steps. Pings are answered and deadlines are kept only inside calls on the socket.
///
/// Any thread may call this at any time. No other thread may use the socket.
///
/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_socket_connect(
    tls: *const TlsConfig,
    to: *const Target,
    limits: *const Settings,
    timeout_ms: u64,
    socket: *mut *mut Socket,
    error: *mut ErrorDetail,
) -> Code {
    let made = || {
        // SAFETY: the caller gives null or a `taut_target`, whose pointers are valid.
        let target = unsafe { target(to) }?;
        // SAFETY: the caller gives null or a configuration.
        let tls = unsafe { tls.as_ref() };
        check_tls(&target, tls.is_some())?;
        let plain = Tls { engine: TlsEngine::Plain, config: ClientConfig::default() };
        let tls = tls.map_or(Ok(plain), |tls| tls.0.for_client())?;
        // SAFETY: the caller gives null or settings.
        let mut config = unsafe { settings(limits) };
        if timeout_ms != TAUT_NEVER {
            let most = Duration::from_millis(timeout_ms);
            (config.deadlines.connect, config.deadlines.handshake) = (most, most);
        }
        let made = tautline::Socket::connect(target, tls, config).map_err(|error| failure(&error))?;
        Ok(Socket { thread: thread::current().id(), socket: Some(made), last: None, closed: None })
    };
    // SAFETY: the caller gives null, or lets it be written.
    let connect = || unsafe { give(socket, made) };
    // SAFETY: the caller gives null or a `taut_error`.
    unsafe { report(error, connect) }
}

/// Sends a message, whose bytes are copied. While the peer is slow it waits, at most for TAUT_SET_SEND_MS.
///
/// Only the thread that made the socket may call this; others get TAUT_ERR_STATE.
///
/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_socket_send(
    socket: *mut Socket,
    outgoing: *const Message,
    error: *mut ErrorDetail,
) -> Code {
    let call = |socket: &mut Socket| {
        // SAFETY: the caller gives null or a `taut_message`.
        let outgoing = unsafe { message(outgoing) }?;
        let result = socket.live()?.send(outgoing);
        socket.note(result)
    };
    // SAFETY: the caller gives null or a socket.
    let run = || unsafe { on_socket(socket, call) };
    // SAFETY: the caller gives null or a `taut_error`.
    unsafe { report(error, run) }
}

/// Waits at most `timeout_ms` for a message, or for ever with TAUT_NEVER; 0 takes one that is there.
///
/// `incoming` gets the message. Its bytes are valid until the next call on this socket. The caller sets its `size`.
///
/// Only the thread that made the socket may call this; others get TAUT_ERR_STATE.
///
/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_socket_receive(
    socket: *mut Socket,
    timeout_ms: u64,
    incoming: *mut Message,
    error: *mut ErrorDetail,
) -> Code {
    let call = |socket: &mut Socket| {
        // SAFETY: the caller gives null or a `taut_message`.
        unsafe { sized::size(incoming.cast_const()) }?;
        socket.last = None;
        let result = match timeout_ms {
            TAUT_NEVER => socket.live()?.receive().map(Some),
            // A day is more than any caller waits for, and no clock overflows.
            ms => socket.live()?.receive_timeout(Duration::from_millis(ms.min(86_400_000))),
        };
        let received = socket.note(result)?.ok_or(Failure::new(TAUT_ERR_TIMEOUT, "no message arrived in time"))?;
        let received = socket.last.insert(received);
        let flags = if received.kind() == Kind::Text { TAUT_TEXT } else { 0 };
        let (data, len) = (received.data().as_ptr(), received.data().len());
        // SAFETY: as above.
        unsafe { sized::write(incoming, &Message { size: size_of::<Message>(), flags, data, len, key: 0 }) }
    };
    // SAFETY: the caller gives null or a socket.
    let run = || unsafe { on_socket(socket, call) };
    // SAFETY: the caller gives null or a `taut_error`.
    unsafe { report(error, run) }
}

/// Sends a close frame, and waits for the peer's, at most for TAUT_SET_CLOSE_MS. Messages that were not taken are lost.
///
/// Only the thread that made the socket may call this; others get TAUT_ERR_STATE.
///
/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_socket_close(
    socket: *mut Socket,
    close: u32,
    reason: *const u8,
    reason_len: usize,
    error: *mut ErrorDetail,
) -> Code {
    let call = |socket: &mut Socket| {
        // SAFETY: the caller gives bytes that can be read.
        let reason = unsafe { str_of(reason, reason_len) }?;
        let close = close_code(close, reason)?;
        socket.live()?;
        let Some(open) = socket.socket.take() else { return Err(ENDED) };
        let result = open.close(close, reason);
        socket.note(result)
    };
    // SAFETY: the caller gives null or a socket.
    let run = || unsafe { on_socket(socket, call) };
    // SAFETY: the caller gives null or a `taut_error`.
    unsafe { report(error, run) }
}

/// The end of the connection, once a call has answered TAUT_ERR_CLOSED because of the peer; else null.
///
/// It is valid until the socket is freed. Only the thread that made the socket may call this; others get null.
///
/// # Safety
/// `socket` is null or a socket.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_socket_closed(socket: *mut Socket) -> *const Closed {
    let mut shown = null();
    let call = |socket: &mut Socket| {
        shown = socket.closed.as_ref().map_or(null(), |held| from_ref(&held.shape));
        Ok(())
    };
    // SAFETY: the caller gives null or a socket.
    let _ = guard(|| unsafe { on_socket(socket, call) });
    shown
}

/// Writes the result of the TLS handshake into `facts`. Without TLS they are empty.
///
/// Only the thread that made the socket may call this; others get TAUT_ERR_STATE.
///
/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_socket_get_facts(socket: *mut Socket, facts: *mut TlsFacts) -> Code {
    let call = |socket: &mut Socket| {
        // SAFETY: the caller gives null or a `taut_tls_facts`.
        unsafe { sized::write(facts, &TlsFacts::new(socket.live()?.tls().clone())) }
    };
    // SAFETY: the caller keeps the contract of `on_socket`.
    code(guard(|| unsafe { on_socket(socket, call) }))
}

/// Frees a socket; null is ignored. A connection that is open is cut.
///
/// Any thread may call this, such as one that collects garbage: once, as the last call, and while no other call runs.
///
/// # Safety
/// `socket` is null or a socket that no thread uses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_socket_free(socket: *mut Socket) -> Code {
    // SAFETY: the caller gives null, or a socket for the last time. It may end on any thread: nothing of it is shared with the
    // thread that made it. `taut_socket_connect` makes it over the driver epoll, without a probe. Of the driver, only the
    // kernel's events are not `Send`: numbers that rustix keeps in the type of a pointer. The rest is.
    code(unsafe { free(socket) })
}

const ENDED: Failure = Failure::new(TAUT_ERR_CLOSED, "the connection has ended");

impl Socket {
    fn live(&mut self) -> Result<&mut tautline::Socket, Failure> {
        self.socket.as_mut().ok_or(ENDED)
    }

    /// Keeps the end of the connection.
    fn note<T>(&mut self, result: Result<T, Error>) -> Result<T, Failure> {
        result.map_err(|error| {
            if let Error::Closed(closed) = &error {
                self.closed.get_or_insert_with(|| Held::closed(closed));
            }
            failure(&error)
        })
    }
}

fn failure(error: &Error) -> Failure {
    match error {
        Error::Connect(error) => connect_failure(error),
        Error::Closed(_) => Failure::with_text(TAUT_ERR_CLOSED, format!("{error:#}")),
        Error::Tls(error) => error.clone().into(),
        _ => Failure::with_text(TAUT_ERR_SYSTEM, format!("{error:#}")),
    }
}

/// Runs a call on a socket, on the thread that made it.
///
/// # Safety
/// `socket` is null or a socket.
unsafe fn on_socket<R>(
    socket: *mut Socket,
    call: impl FnOnce(&mut Socket) -> Result<R, Failure>,
) -> Result<R, Failure> {
    check(socket)?;
    // SAFETY: not null, so it is a socket, whose thread never changes.
    if unsafe { (*socket).thread } != thread::current().id() {
        return Err(Failure::new(TAUT_ERR_STATE, "only the thread that made a socket may use it"));
    }
    // SAFETY: this thread alone uses it, and calls do not nest: a verification callback runs only while it is being made.
    call(unsafe { &mut *socket })
}

#[cfg(test)]
mod tests {
    /// A socket's parts may end on another thread than that which made them. The proof in `taut_socket_free` has the driver.
    #[test]
    fn the_parts_of_a_socket_may_change_threads() {
        fn is_send<T: Send + ?Sized>() {}
        is_send::<dyn tautline_tls::Session>();
        is_send::<Box<super::Held<super::Closed>>>();
        is_send::<super::Incoming>();
    }
}
