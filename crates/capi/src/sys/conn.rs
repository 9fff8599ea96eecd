//! Calls on connections and loops of servers and clients.

use super::border::{code, put_text};
use super::callbacks::Conn;
use super::guard::guard;
use super::lent::{in_conn, in_loop, with_conn};
use super::memory::{bytes, check, put, room, str_of};
use super::message::{self, message};
use super::owner::{Loop, State};
use super::shapes::Message;
use super::sized;
use super::tls::certificate;
use super::types::TlsFacts;
use crate::codes::{Code, TAUT_ERR_CLOSED, TAUT_ERR_FULL, TAUT_ERR_STATE, TAUT_ERR_VALUE};
use crate::failure::Failure;
use crate::ws::close_code;
use core::ffi::{c_char, c_void};
use core::time::Duration;
use tautline::{ConnId, Delivery, ShardHandle, ShardHandleError};

const CLOSED: Failure = Failure::new(TAUT_ERR_CLOSED, "the connection has ended");
const DROPPED: Failure = Failure::new(TAUT_ERR_FULL, "too much waits for the peer, and the message was dropped");

/// Sends a message, whose bytes are copied.
///
/// In a callback of the connection it leaves with all others when the callback has returned. From anywhere else it goes
/// by way of the connection's loop. TAUT_ERR_FULL says that it was dropped, since too much waits.
///
/// Any thread may call this at any time, until the server or client is freed.
///
/// # Safety
/// `conn` is from a callback of a server or client that was not freed, and the pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_conn_send(conn: Conn, outgoing: *const Message) -> Code {
    let call = || {
        // SAFETY: the caller gives null or a `taut_message`.
        let outgoing = unsafe { message(outgoing) }?;
        match with_conn(conn, |conn| conn.send(outgoing)) {
            Some(delivery) => delivered(delivery),
            // SAFETY: the caller gives a connection of a live loop.
            None => unsafe { elsewhere(conn, |shard, id| shard.send(id, outgoing)) },
        }
    };
    code(guard(call))
}

/// Begins to close a connection, with a code and a reason of at most 123 bytes of UTF-8. The callback `close` follows.
///
/// Any thread may call this at any time, until the server or client is freed.
///
/// # Safety
/// `conn` is from a callback of a server or client that was not freed, and the pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_conn_close(conn: Conn, close: u32, reason: *const u8, reason_len: usize) -> Code {
    let call = || {
        // SAFETY: the caller gives bytes that can be read.
        let reason = unsafe { str_of(reason, reason_len) }?;
        let close = close_code(close, reason)?;
        match with_conn(conn, |conn| conn.close(close, reason)) {
            Some(()) => Ok(()),
            // SAFETY: the caller gives a connection of a live loop.
            None => unsafe { elsewhere(conn, |shard, id| shard.close(id, close, reason)) },
        }
    };
    code(guard(call))
}

/// 1 if the connection is open, else 0. It can end at any moment, unless this is a callback of it.
///
/// Any thread may call this at any time, until the server or client is freed.
///
/// # Safety
/// `conn` is from a callback of a server or client that was not freed, and the pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_conn_is_open(conn: Conn) -> u32 {
    // SAFETY: the caller gives a connection of a live loop.
    let found = guard(|| unsafe { find(conn) });
    found.is_ok().into()
}

/// Sends a piece of a message. TAUT_LAST among its flags ends the message; each piece of text is UTF-8 by itself.
///
/// Until the end, other messages are refused with TAUT_ERR_FULL.
///
/// Only inside a callback of the connection; elsewhere the result is TAUT_ERR_STATE.
///
/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_conn_send_piece(conn: Conn, piece: *const Message) -> Code {
    on_conn(conn, |conn| {
        // SAFETY: the caller gives null or a `taut_message`.
        let (piece, last) = unsafe { message::piece(piece) }?;
        delivered(conn.fragment(piece.kind, piece.payload, last))
    })
}

/// Sends a ping of at most 125 bytes. The callback `pong` gets the answer.
///
/// Only inside a callback of the connection; elsewhere the result is TAUT_ERR_STATE.
///
/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_conn_ping(conn: Conn, data: *const u8, len: usize) -> Code {
    on_conn(conn, |conn| {
        // SAFETY: the caller gives bytes that can be read.
        let data = unsafe { bytes(data, len) }?;
        conn.ping(data).map_err(|error| Failure::with_text(TAUT_ERR_VALUE, error.to_string()))
    })
}

/// Subscribes the connection to a topic. TAUT_ERR_FULL says that it has TAUT_SET_MAX_SUBSCRIPTIONS others.
///
/// Only inside a callback of the connection; elsewhere the result is TAUT_ERR_STATE.
///
/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_conn_subscribe(conn: Conn, topic: *const u8, topic_len: usize) -> Code {
    on_conn(conn, |conn| {
        // SAFETY: the caller gives bytes that can be read.
        let taken = conn.subscribe(unsafe { str_of(topic, topic_len) }?);
        taken.then_some(()).ok_or(Failure::new(TAUT_ERR_FULL, "the connection has too many subscriptions"))
    })
}

/// Subscribes the connection to all topics whose names begin with this text.
///
/// Only inside a callback of the connection; elsewhere the result is TAUT_ERR_STATE.
///
/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_conn_subscribe_prefix(conn: Conn, topic: *const u8, topic_len: usize) -> Code {
    on_conn(conn, |conn| {
        // SAFETY: the caller gives bytes that can be read.
        let taken = conn.subscribe_prefix(unsafe { str_of(topic, topic_len) }?);
        taken.then_some(()).ok_or(Failure::new(TAUT_ERR_FULL, "the connection has too many subscriptions"))
    })
}

/// Ends the subscription to a topic, if there is one.
///
/// Only inside a callback of the connection; elsewhere the result is TAUT_ERR_STATE.
///
/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_conn_unsubscribe(conn: Conn, topic: *const u8, topic_len: usize) -> Code {
    on_conn(conn, |conn| {
        // SAFETY: the caller gives bytes that can be read.
        conn.unsubscribe(unsafe { str_of(topic, topic_len) }?);
        Ok(())
    })
}

/// Ends the subscription to all topics that begin with this text, if there is one.
///
/// Only inside a callback of the connection; elsewhere the result is TAUT_ERR_STATE.
///
/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_conn_unsubscribe_prefix(conn: Conn, topic: *const u8, topic_len: usize) -> Code {
    on_conn(conn, |conn| {
        // SAFETY: the caller gives bytes that can be read.
        conn.unsubscribe_prefix(unsafe { str_of(topic, topic_len) }?);
        Ok(())
    })
}

/// Sends a message to every subscriber of a topic on every loop, also to this connection if it is one.
///
/// From other threads, use `taut_server_publish`.
///
/// Only inside a callback of the connection; elsewhere the result is TAUT_ERR_STATE.
///
/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_conn_publish(
    conn: Conn,
    topic: *const u8,
    topic_len: usize,
    outgoing: *const Message,
) -> Code {
    on_conn(conn, |conn| {
        // SAFETY: the caller gives bytes that can be read.
        let topic = unsafe { str_of(topic, topic_len) }?;
        // SAFETY: the caller gives null or a `taut_message`.
        conn.publish(topic, unsafe { message(outgoing) }?);
        Ok(())
    })
}

/// Publishes as `taut_conn_publish` does, but not to this connection.
///
/// Only inside a callback of the connection; elsewhere the result is TAUT_ERR_STATE.
///
/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_conn_publish_to_others(
    conn: Conn,
    topic: *const u8,
    topic_len: usize,
    outgoing: *const Message,
) -> Code {
    on_conn(conn, |conn| {
        // SAFETY: the caller gives bytes that can be read.
        let topic = unsafe { str_of(topic, topic_len) }?;
        // SAFETY: the caller gives null or a `taut_message`.
        conn.publish_to_others(topic, unsafe { message(outgoing) }?);
        Ok(())
    })
}

/// Calls the callback `timer` with `id` after this time, once, up to 64 ms late. A timer with the same id moves.
///
/// Only inside a callback of the connection; elsewhere the result is TAUT_ERR_STATE.
///
/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_conn_set_timer(conn: Conn, after_ms: u64, id: u64) -> Code {
    on_conn(conn, |conn| {
        conn.set_timer(Duration::from_millis(after_ms), id);
        Ok(())
    })
}

/// Cancels a timer of the connection. TAUT_ERR_VALUE says that it has none with this id.
///
/// Only inside a callback of the connection; elsewhere the result is TAUT_ERR_STATE.
///
/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_conn_cancel_timer(conn: Conn, id: u64) -> Code {
    on_conn(conn, |conn| conn.cancel_timer(id).then_some(()).ok_or(NO_TIMER))
}

/// Pauses reading from the peer if `pause` is 1, and resumes it if it is 0. Messages that arrived already still come.
///
/// Only inside a callback of the connection; elsewhere the result is TAUT_ERR_STATE.
///
/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_conn_pause(conn: Conn, pause: u32) -> Code {
    on_conn(conn, |conn| {
        conn.pause(pause != 0);
        Ok(())
    })
}

/// Sets `*waiting` to the number of bytes that wait for the peer.
///
/// Only inside a callback of the connection; elsewhere the result is TAUT_ERR_STATE.
///
/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_conn_buffered(conn: Conn, waiting: *mut usize) -> Code {
    on_conn(conn, |conn| {
        // SAFETY: the caller gives null, or lets it be written.
        unsafe { put(waiting, || Ok(conn.buffered())) }
    })
}

/// Asks for the callback `drain` once no bytes wait for the peer, also if none wait now.
///
/// Only inside a callback of the connection; elsewhere the result is TAUT_ERR_STATE.
///
/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_conn_notify_drain(conn: Conn) -> Code {
    on_conn(conn, |conn| {
        conn.notify_drain();
        Ok(())
    })
}

/// Closes a client's connection, and has it connect again after its wait.
///
/// Only inside a callback of the connection; elsewhere the result is TAUT_ERR_STATE.
///
/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_conn_reconnect(conn: Conn) -> Code {
    on_conn(conn, |conn| {
        conn.reconnect();
        Ok(())
    })
}

/// Sets the program's pointer of the connection. It is null at first, unless `taut_request_upgrade` has set it.
///
/// Only inside a callback of the connection; elsewhere the result is TAUT_ERR_STATE.
///
/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_conn_set_user(conn: Conn, user: *mut c_void) -> Code {
    on_conn(conn, |conn| {
        conn.state().user = user;
        Ok(())
    })
}

/// Sets `*user` to the program's pointer of the connection.
///
/// Only inside a callback of the connection; elsewhere the result is TAUT_ERR_STATE.
///
/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_conn_get_user(conn: Conn, user: *mut *mut c_void) -> Code {
    on_conn(conn, |conn| {
        // SAFETY: the caller gives null, or lets it be written.
        unsafe { put(user, || Ok(conn.state().user)) }
    })
}

/// Sets `*dial` to the number of the target that a client's connection belongs to.
///
/// Only inside a callback of the connection; elsewhere the result is TAUT_ERR_STATE.
///
/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_conn_get_dial(conn: Conn, dial: *mut u64) -> Code {
    on_conn(conn, |conn| {
        let own = || conn.dial().ok_or(Failure::new(TAUT_ERR_STATE, "a server's connection has no target"));
        // SAFETY: the caller gives null, or lets it be written.
        unsafe { put(dial, || Ok(own()?.index() as u64)) }
    })
}

/// Writes the peer's address into `text`, with a zero byte behind it, cut if `text_room` is too small.
///
/// Only inside a callback of the connection; elsewhere the result is TAUT_ERR_STATE.
///
/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_conn_get_peer(conn: Conn, text: *mut c_char, text_room: usize) -> Code {
    on_conn(conn, |conn| {
        // SAFETY: the caller gives the memory away for this call, and characters are bytes.
        put_text(unsafe { chars(text, text_room) }?, &conn.peer().to_string());
        Ok(())
    })
}

/// Writes the address of the socket's peer into `text`, as `taut_conn_get_peer` does: the client, or the proxy next to the server
/// (`taut_settings_proxy_protocol_from`, `taut_settings_forwarded_from`).
///
/// Only inside a callback of the connection; elsewhere the result is TAUT_ERR_STATE.
///
/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_conn_get_direct_peer(conn: Conn, text: *mut c_char, text_room: usize) -> Code {
    on_conn(conn, |conn| {
        // SAFETY: the caller gives the memory away for this call, and characters are bytes.
        put_text(unsafe { chars(text, text_room) }?, &conn.direct_peer().to_string());
        Ok(())
    })
}

/// Writes the result of the TLS handshake into `facts`. Without TLS they are empty.
///
/// Only inside a callback of the connection; elsewhere the result is TAUT_ERR_STATE.
///
/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_conn_get_facts(conn: Conn, facts: *mut TlsFacts) -> Code {
    on_conn(conn, |conn| {
        // SAFETY: the caller gives null or a `taut_tls_facts`.
        unsafe { sized::write(facts, &TlsFacts::new(conn.tls())) }
    })
}

/// Copies a certificate of the peer, as `taut_tls_peer_certificate` does.
///
/// Only inside a callback of the connection; elsewhere the result is TAUT_ERR_STATE.
///
/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_conn_peer_certificate(
    conn: Conn,
    number: usize,
    der: *mut u8,
    der_room: usize,
    der_len: *mut usize,
) -> Code {
    on_conn(conn, |conn| {
        // SAFETY: the caller keeps the contract of `certificate`.
        unsafe { certificate(&conn.tls(), number, (der, der_room), der_len) }
    })
}

/// Calls the callback `loop_timer` with `id` after this time, once, up to a millisecond late. One with the same id moves.
///
/// Only inside a callback of the loop or of one of its connections; elsewhere the result is TAUT_ERR_STATE.
///
/// # Safety
/// None: the pointer is only compared.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_loop_set_timer(owner: *const Loop, after_ms: u64, id: u64) -> Code {
    let set = || in_loop(owner, |shard| shard.set_timer(Duration::from_millis(after_ms), id));
    code(guard(set))
}

/// Cancels a timer of the loop. TAUT_ERR_VALUE says that it has none with this id.
///
/// Only inside a callback of the loop or of one of its connections; elsewhere the result is TAUT_ERR_STATE.
///
/// # Safety
/// None: the pointer is only compared.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_loop_cancel_timer(owner: *const Loop, id: u64) -> Code {
    let cancel = || in_loop(owner, |shard| shard.cancel_timer(id))?.then_some(()).ok_or(NO_TIMER);
    code(guard(cancel))
}

/// Sends a message to every subscriber of a topic on every loop.
///
/// Only inside a callback of the loop or of one of its connections; elsewhere the result is TAUT_ERR_STATE.
///
/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn taut_loop_publish(
    owner: *const Loop,
    topic: *const u8,
    topic_len: usize,
    outgoing: *const Message,
) -> Code {
    let publish = || {
        // SAFETY: the caller gives bytes that can be read.
        let topic = unsafe { str_of(topic, topic_len) }?;
        // SAFETY: the caller gives null or a `taut_message`.
        let outgoing = unsafe { message(outgoing) }?;
        in_loop(owner, |shard| _ = shard.publish(topic, outgoing))
    };
    code(guard(publish))
}

const NO_TIMER: Failure = Failure::new(TAUT_ERR_VALUE, "there is no such timer");

/// Memory for a text.
///
/// # Safety
/// `text` is null, or points to `len` bytes that may be written.
pub(super) unsafe fn chars<'a>(text: *mut c_char, len: usize) -> Result<&'a mut [c_char], Failure> {
    // SAFETY: the caller gives the memory away.
    let bytes = unsafe { room(text.cast(), len) }?;
    let start = bytes.as_mut_ptr().cast();
    // SAFETY: a character is a byte, and the slice that this one replaces is not used again.
    Ok(unsafe { core::slice::from_raw_parts_mut(start, bytes.len()) })
}

/// Runs a call that works only inside a callback of the connection.
fn on_conn(conn: Conn, call: impl FnOnce(&mut tautline::Conn<'_, State>) -> Result<(), Failure>) -> Code {
    code(guard(|| in_conn(conn, call)))
}

/// Acts on a connection by way of its loop.
///
/// # Safety
/// `conn` is of a loop that lives.
unsafe fn elsewhere(
    conn: Conn,
    act: impl FnOnce(&ShardHandle, ConnId) -> Result<(), ShardHandleError>,
) -> Result<(), Failure> {
    // SAFETY: the caller keeps the contract.
    let (shard, id) = unsafe { find(conn) }?;
    act(shard, id).map_err(refused)
}

/// The loop of a connection, and the loop's own name for it.
///
/// # Safety
/// `conn` is of a loop that lives during `'a`.
unsafe fn find<'a>(conn: Conn) -> Result<(&'a ShardHandle, ConnId), Failure> {
    check(conn.owner)?;
    // SAFETY: not null, so it is a loop, which lives.
    let owner = unsafe { &*conn.owner };
    let id = owner.slots().get(conn.id).ok_or(CLOSED)?;
    let shard = owner.handle.get().filter(|shard| shard.is_running()).ok_or(CLOSED)?;
    Ok((shard, id))
}

fn delivered(delivery: Delivery) -> Result<(), Failure> {
    match delivery {
        Delivery::Dropped => Err(DROPPED),
        Delivery::Closed => Err(CLOSED),
        _ => Ok(()),
    }
}

/// The failure of a call into a loop.
pub(super) fn refused(error: ShardHandleError) -> Failure {
    let code = match error {
        ShardHandleError::Full | ShardHandleError::TooManyBytes => TAUT_ERR_FULL,
        ShardHandleError::Stopped | ShardHandleError::Ended => TAUT_ERR_CLOSED,
        _ => TAUT_ERR_STATE,
    };
    Failure::with_text(code, error.to_string())
}
