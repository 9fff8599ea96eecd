//! The callbacks of servers and clients, and the handles that they get.

use super::owner::Loop;
use super::shapes::{Closed, Head, Message, Opening};
use super::types::{Destroy, Slice};
use crate::codes::Code;
use core::ffi::c_void;

/// A connection of a server or a client. It is a value: copy it freely, it is never freed.
///
/// It may be used until its server or client is freed, from any thread: after the end of the connection, calls answer
/// TAUT_ERR_CLOSED. Each function says whether it works only inside a callback of the connection.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Conn {
    /// The loop of the connection.
    pub owner: *const Loop,
    /// Number of the connection in its loop; never 0.
    pub id: u64,
}

/// A request to a server, valid during the callback that gets it.
#[repr(C)]
pub struct Request {
    /// Size of this struct. A library that is newer than the program may have more behind.
    pub size: usize,
    /// Method, path and headers.
    pub head: *const Head,
    /// The body of a plain request, if it has one.
    pub body: Slice,
    /// The client's address.
    pub peer: Slice,
    /// 1 if the client asks for a WebSocket, else 0.
    pub is_upgrade: u32,
}

/// A target that is about to be connected to again, valid during the callback that gets it.
pub struct Redial {
    _private: [u8; 0],
}

/// A loop begins. `number` counts from 0. Timers of the loop can be set.
pub type OnStart = Option<unsafe extern "C" fn(user: *mut c_void, owner: *const Loop, number: u32) -> Code>;
/// A request arrived at a server. One that this call does not answer is upgraded, or answered with status 404.
pub type OnRequest = Option<unsafe extern "C" fn(user: *mut c_void, request: *const Request) -> Code>;
/// The opening handshake is complete.
pub type OnOpen = Option<unsafe extern "C" fn(user: *mut c_void, conn: Conn, opening: *const Opening) -> Code>;
/// A message, or a piece of one, arrived. Its bytes are valid during the call.
pub type OnMessage = Option<unsafe extern "C" fn(user: *mut c_void, conn: Conn, message: *const Message) -> Code>;
/// A pong arrived. Its bytes are valid during the call.
pub type OnPong = Option<unsafe extern "C" fn(user: *mut c_void, conn: Conn, data: *const u8, len: usize) -> Code>;
/// Something happened on a connection.
pub type OnConn = Option<unsafe extern "C" fn(user: *mut c_void, conn: Conn) -> Code>;
/// A policy has dropped messages to a connection: `count` of them since the last call.
pub type OnDropped = Option<unsafe extern "C" fn(user: *mut c_void, conn: Conn, count: u32) -> Code>;
/// A timer of a connection is due.
pub type OnTimer = Option<unsafe extern "C" fn(user: *mut c_void, conn: Conn, id: u64) -> Code>;
/// An open connection ended.
pub type OnClose = Option<unsafe extern "C" fn(user: *mut c_void, conn: Conn, closed: *const Closed) -> Code>;
/// A timer of a loop is due.
pub type OnLoopTimer = Option<unsafe extern "C" fn(user: *mut c_void, owner: *const Loop, id: u64) -> Code>;
/// A client is about to connect again. `taut_redial_set` changes the target.
pub type OnRedial = Option<unsafe extern "C" fn(user: *mut c_void, dial: u64, redial: *mut Redial) -> Code>;
/// An attempt to connect failed. The next one follows after `retry_ms`, or never if that is TAUT_NEVER.
pub type OnConnectFailed =
    Option<unsafe extern "C" fn(user: *mut c_void, dial: u64, closed: *const Closed, retry_ms: u64) -> Code>;
/// A client has given up a target for ever.
pub type OnDialEnd = Option<unsafe extern "C" fn(user: *mut c_void, dial: u64) -> Code>;

/// The callbacks of a server or a client. Each may be null.
///
/// Loops call them on their own threads: with several loops, several threads at once. A callback must not block, since all
/// connections of its loop wait for it, and no runtime's exception may leave it: catch it, and return TAUT_ERR_CALLBACK. One
/// that returns another code than TAUT_OK has its connection closed with 1011, or its request answered with status 500. The
/// counter `callbacks_failed` counts that.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Callbacks {
    /// sizeof(taut_callbacks).
    pub size: usize,
    /// First argument of each callback.
    pub user: *mut c_void,
    /// A loop begins.
    pub start: OnStart,
    /// A request arrived (server).
    pub request: OnRequest,
    /// A connection is open.
    pub open: OnOpen,
    /// A whole message arrived.
    pub message: OnMessage,
    /// A piece of a message arrived. Called instead of `message` with TAUT_SET_STREAMING.
    pub chunk: OnMessage,
    /// A pong arrived.
    pub pong: OnPong,
    /// The queue for a slow peer is empty again.
    pub drain: OnConn,
    /// A timer of a connection is due.
    pub timer: OnTimer,
    /// An open connection ended. Called once for each `open`.
    pub close: OnClose,
    /// A timer of a loop is due.
    pub loop_timer: OnLoopTimer,
    /// An attempt to connect failed (client).
    pub connect_failed: OnConnectFailed,
    /// A further attempt to connect begins (client).
    pub redial: OnRedial,
    /// A target was given up (client).
    pub dial_end: OnDialEnd,
    /// Called once with `user` after the last callback, also if the start fails.
    pub destroy: Destroy,
    /// Messages to a connection were dropped, after they were taken, or instead of it.
    pub dropped: OnDropped,
}
