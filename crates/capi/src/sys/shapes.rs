//! The structs of connections, servers and clients. Each one that can grow begins with its size.

use super::types::Slice;
use core::ffi::c_char;

/// One header of a request or a response. The name is in lower case, the value any bytes.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Header {
    /// Name.
    pub name: Slice,
    /// Value.
    pub value: Slice,
}

/// The head of a request or a response. The library makes it, and it is valid as long as the struct that has it.
#[repr(C)]
pub struct Head {
    /// Size of this struct. A library that is newer than the program may have more behind.
    pub size: usize,
    /// Method of a request, such as `GET`; empty for a response.
    pub method: Slice,
    /// Path of a request, with its query; empty for a response.
    pub target: Slice,
    /// Status of a response; 0 for a request.
    pub status: u32,
    /// Headers, in no particular order.
    pub headers: *const Header,
    /// Number of headers.
    pub headers_count: usize,
}

/// The result of an opening handshake.
#[repr(C)]
pub struct Opening {
    /// Size of this struct. A library that is newer than the program may have more behind.
    pub size: usize,
    /// The client's request; null on a client.
    pub request: *const Head,
    /// The server's response; null on a server.
    pub response: *const Head,
    /// The subprotocol that both ends speak; empty for none.
    pub subprotocol: Slice,
    /// 1 if messages may be compressed (permessage-deflate), else 0.
    pub deflate: u32,
}

/// The end of a connection, or of an attempt to make one.
#[repr(C)]
pub struct Closed {
    /// Size of this struct. A library that is newer than the program may have more behind.
    pub size: usize,
    /// One of TAUT_CAUSE_….
    pub cause: u32,
    /// Close code that the peer sent; 1005 if its close frame had none, 1006 if it sent no close frame.
    pub code: u32,
    /// Reason in the peer's close frame.
    pub reason: Slice,
    /// The cause in words, in one line.
    pub text: Slice,
    /// The response of a server that refused the upgrade; else null.
    pub response: *const Head,
}

/// The next thing that happened on a `taut_ws`. The caller sets `size`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct WsEvent {
    /// sizeof(taut_ws_event).
    pub size: usize,
    /// Result: one of TAUT_EVENT_….
    pub kind: u32,
    /// Result: TAUT_TEXT for a text message; TAUT_FIRST and TAUT_LAST for pieces of one, with TAUT_SET_STREAMING; else 0.
    pub flags: u32,
    /// Result: the bytes of a message or a pong, where they were decrypted, or the body of a request. Valid until the next call
    /// of `taut_ws_next`, `taut_ws_window`, `taut_ws_upgrade` or `taut_ws_respond`.
    pub data: Slice,
    /// Result: the head of a request; else null. Valid until the next call of `taut_ws_next`, like all below.
    pub request: *const Head,
    /// Result: with TAUT_EVENT_REQUEST, 1 if the client asks for a WebSocket.
    pub is_upgrade: u32,
    /// Result: with TAUT_EVENT_OPEN, its terms; else null.
    pub opening: *const Opening,
    /// Result: with TAUT_EVENT_CLOSED and TAUT_EVENT_FAILED, the reason; else null.
    pub closed: *const Closed,
}

/// The state of a `taut_ws`. The caller sets `size`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct WsStatus {
    /// sizeof(taut_ws_status).
    pub size: usize,
    /// Result: 1 if messages can be sent and received.
    pub is_open: u32,
    /// Result: 1 if nothing is read any more.
    pub is_over: u32,
    /// Result: 1 if all output was written and nothing follows: shut the stream down.
    pub is_finished: u32,
    /// Result: 1 if input waits until output is written, or a request is answered: do not read meanwhile.
    pub holds_back: u32,
    /// Result: bytes that wait to be written.
    pub waiting: usize,
}

/// A message.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Message {
    /// sizeof(taut_message).
    pub size: usize,
    /// Any of TAUT_TEXT, TAUT_UNCOMPRESSED, TAUT_KEYED; pieces have TAUT_FIRST and TAUT_LAST, and no TAUT_KEYED. Others are
    /// refused with TAUT_ERR_VALUE.
    pub flags: u32,
    /// Bytes.
    pub data: *const u8,
    /// Number of bytes.
    pub len: usize,
    /// With TAUT_KEYED, the key.
    pub key: u64,
}

/// The destination of an outgoing connection. Fields that are zero have their defaults.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Target {
    /// sizeof(taut_target).
    pub size: usize,
    /// `wss://HOST[:PORT]/PATH`, or `ws://…`.
    pub uri: *const c_char,
    /// Address to connect to instead of that of the host: `IP:PORT` or `unix:PATH`; may be null. Not for `taut_ws`.
    pub address: *const c_char,
    /// `Origin` of the request; may be null.
    pub origin: *const c_char,
    /// Proxy to tunnel through: `http://[USER:PASSWORD@]HOST:PORT` or `socks5://…`; may be null.
    pub proxy: *const c_char,
    /// Further headers of the request.
    pub headers: *const Header,
    /// Number of headers.
    pub headers_count: usize,
    /// Subprotocols to offer, the preferred first.
    pub subprotocols: *const Slice,
    /// Number of subprotocols.
    pub subprotocols_count: usize,
    /// 1 offers permessage-deflate.
    pub deflate: u32,
    /// Longest wait in milliseconds before another attempt; 0 connects once. For clients with callbacks only.
    pub reconnect_longest_ms: u32,
    /// First wait in milliseconds; 0 for 250. Waits double, minus a random part of up to half.
    pub reconnect_first_ms: u32,
    /// Further attempts before giving up; 0 never gives up.
    pub reconnect_attempts: u32,
    /// Name of the server in TLS (SNI), which its certificate must have, instead of the URI's host; may be null.
    pub server_name: *const c_char,
}

/// A number that a server or client counts. The names are those of `Counters` in Rust.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Counter {
    /// Name, such as `messages_in`, without a zero byte behind it. It stays valid.
    pub name: Slice,
    /// Value.
    pub value: u64,
}
