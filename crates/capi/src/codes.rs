//! The numbers of the interface. They never change their meaning.

/// The result of a call: [`TAUT_OK`], or one of the errors below.
pub type Code = i32;

/// The call did what it says.
pub const TAUT_OK: Code = 0;
/// A pointer is null, or is not aligned, that must not be.
pub const TAUT_ERR_NULL: Code = 1;
/// A struct's `size` is smaller than that of any version of this library, or a length is impossible.
pub const TAUT_ERR_SIZE: Code = 2;
/// Windows overlap that must not.
pub const TAUT_ERR_OVERLAP: Code = 3;
/// Another call uses this session at the same time, in another thread or below this one on the stack.
pub const TAUT_ERR_BUSY: Code = 4;
/// A number or a text has no meaning here.
pub const TAUT_ERR_VALUE: Code = 5;
/// The call does not fit the state: before the handshake, after the close, or in the wrong role.
pub const TAUT_ERR_STATE: Code = 6;
/// The session has failed in an earlier call. Free it.
pub const TAUT_ERR_FAILED: Code = 7;
/// The configuration cannot be used. The text names the part and the remedy.
pub const TAUT_ERR_CONFIG: Code = 8;
/// The peer broke the protocol, or a record does not authenticate.
pub const TAUT_ERR_PEER: Code = 9;
/// The peer sent a fatal alert.
pub const TAUT_ERR_ALERT: Code = 10;
/// This end rejected the peer's certificate.
pub const TAUT_ERR_CERTIFICATE: Code = 11;
/// The TLS library failed on its own.
pub const TAUT_ERR_LIBRARY: Code = 12;
/// This library has a defect. The session is dead, the process is not.
pub const TAUT_ERR_INTERNAL: Code = 13;
/// The connection has ended, or its loop has stopped.
pub const TAUT_ERR_CLOSED: Code = 14;
/// Too much waits already. The message was not taken.
pub const TAUT_ERR_FULL: Code = 15;
/// The time is over.
pub const TAUT_ERR_TIMEOUT: Code = 16;
/// The system refused: an address, a thread, a descriptor. The text names it.
pub const TAUT_ERR_SYSTEM: Code = 17;
/// The connection could not be made. The text says which step failed.
pub const TAUT_ERR_CONNECT: Code = 18;
/// For callbacks of the program: they could not do their work. The connection is closed with 1011.
pub const TAUT_ERR_CALLBACK: Code = 19;

/// Role of a configuration: it opens connections.
pub const TAUT_CLIENT: u32 = 0;
/// Role of a configuration: it accepts connections.
pub const TAUT_SERVER: u32 = 1;

/// Wanted next: nothing. The operation is complete, or more whole records lie in the input.
pub const TAUT_WANT_NONE: u32 = 0;
/// Wanted next: more bytes of the peer. Bytes that were not taken are presented again, in front of them.
pub const TAUT_WANT_READ: u32 = 1;
/// Wanted next: room in `out`, since bytes for the peer wait. Call again, even without input.
pub const TAUT_WANT_WRITE: u32 = 2;
/// Wanted next: room in `plain`, since plaintext waits or the next record may not fit. Call again.
pub const TAUT_WANT_ROOM: u32 = 3;
/// Wanted next: nothing more, since the peer has closed its direction. This end can still send.
pub const TAUT_WANT_CLOSED: u32 = 4;

/// Clients need no certificate.
pub const TAUT_CLIENT_AUTH_NONE: u32 = 0;
/// Clients may show a certificate, which must then be valid.
pub const TAUT_CLIENT_AUTH_OPTIONAL: u32 = 1;
/// Clients must show a valid certificate.
pub const TAUT_CLIENT_AUTH_REQUIRED: u32 = 2;

/// Option, versions of TLS: 0 for all (the default), 12 for 1.2 alone, 13 for 1.3 alone.
pub const TAUT_OPTION_VERSIONS: u32 = 1;
/// Option, 1 writes secrets to the file that the environment variable `SSLKEYLOGFILE` names. Default 0.
pub const TAUT_OPTION_KEY_LOG: u32 = 2;
/// Option, 1 keeps a secret of each connection for `taut_tls_export`. Default 0.
pub const TAUT_OPTION_EXPORTER: u32 = 3;
/// Option of a server, period of the ticket keys in seconds; 0 for no tickets. Default 43200.
pub const TAUT_OPTION_TICKETS: u32 = 4;
/// Option of a server, tickets for each TLS 1.3 handshake, 1 to 16. Default 2.
pub const TAUT_OPTION_TICKETS_PER_HANDSHAKE: u32 = 5;
/// Option of a client, 0 resumes no session. Default 1.
pub const TAUT_OPTION_RESUMPTION: u32 = 6;
/// Option of a client, 0 offers no key exchange with ML-KEM. Default 1.
pub const TAUT_OPTION_POST_QUANTUM: u32 = 7;

/// Decision of a verification callback: the certificate is accepted.
pub const TAUT_ACCEPT: u32 = 1;
/// Decision of a verification callback: the certificate is rejected.
pub const TAUT_REJECT: u32 = 2;

/// The value of `taut_error.alert` if there is no alert, or if it is not known.
pub const TAUT_NO_ALERT: i32 = -1;

/// Event: none. More bytes of the peer are needed, or output must be written first.
pub const TAUT_EVENT_NONE: u32 = 0;
/// Event of a server: a request waits for `taut_ws_upgrade` or `taut_ws_respond`. No other event comes before.
pub const TAUT_EVENT_REQUEST: u32 = 1;
/// Event: the opening handshake is complete, and messages can be sent.
pub const TAUT_EVENT_OPEN: u32 = 2;
/// Event: a whole message.
pub const TAUT_EVENT_MESSAGE: u32 = 3;
/// Event: a pong, also one without a ping. Pings are answered without an event.
pub const TAUT_EVENT_PONG: u32 = 4;
/// Event: the connection ended. No other event follows; output may remain.
pub const TAUT_EVENT_CLOSED: u32 = 5;
/// Event: the connection ended before it was open. No other event follows; output may remain.
pub const TAUT_EVENT_FAILED: u32 = 6;

/// Cause of an end: the peer sent a close frame first.
pub const TAUT_CAUSE_PEER: u32 = 1;
/// Cause of an end: this end sent a close frame first, and the peer answered it.
pub const TAUT_CAUSE_LOCAL: u32 = 2;
/// Cause of an end: the peer hung up without a close frame, or without close_notify.
pub const TAUT_CAUSE_CUT: u32 = 3;
/// Cause of an end: the connection broke.
pub const TAUT_CAUSE_IO: u32 = 4;
/// Cause of an end: the peer broke the WebSocket protocol or a limit.
pub const TAUT_CAUSE_PROTOCOL: u32 = 5;
/// Cause of an end: TLS failed.
pub const TAUT_CAUSE_TLS: u32 = 6;
/// Cause of an end: the peer missed a deadline.
pub const TAUT_CAUSE_TIMEOUT: u32 = 7;
/// Cause of an end: the peer did not read what was sent to it, and more waited than the limit.
pub const TAUT_CAUSE_SLOW: u32 = 8;
/// Cause of an end: this end was short of memory or time.
pub const TAUT_CAUSE_OVERLOAD: u32 = 9;
/// Cause of an end: a callback failed.
pub const TAUT_CAUSE_CALLBACK: u32 = 10;
/// Cause of an end: the loop stopped.
pub const TAUT_CAUSE_STOPPED: u32 = 11;
/// Cause of a failure: the target cannot be used, or its name has no address.
pub const TAUT_CAUSE_TARGET: u32 = 12;
/// Cause of a failure: the opening handshake was refused. A client finds the server's response in the event.
pub const TAUT_CAUSE_REFUSED: u32 = 13;

/// No deadline runs.
pub const TAUT_NEVER: u64 = u64::MAX;

/// Preset of limits and deadlines: servers that are open to anyone. The default.
pub const TAUT_PRESET_UNTRUSTED_INTERNET: u32 = 0;
/// Preset of limits and deadlines: few connections with short deadlines, small queues and large messages.
pub const TAUT_PRESET_LOW_LATENCY: u32 = 1;
/// Preset of limits and deadlines: up to a million connections, most of them idle.
pub const TAUT_PRESET_MANY_CONNECTIONS: u32 = 2;

/// Setting: bytes of the longest message accepted.
pub const TAUT_SET_MAX_MESSAGE: u32 = 1;
/// Setting of a server: most connections.
pub const TAUT_SET_MAX_CONNECTIONS: u32 = 2;
/// Setting of a server: most connections whose opening handshake waits for the client.
pub const TAUT_SET_MAX_HANDSHAKES: u32 = 3;
/// Setting of a server: bytes of memory for all connections.
pub const TAUT_SET_MEMORY: u32 = 4;
/// Setting of a server: bytes of the longest body of a request.
pub const TAUT_SET_MAX_BODY: u32 = 5;
/// Setting: most subscriptions of a connection.
pub const TAUT_SET_MAX_SUBSCRIPTIONS: u32 = 6;
/// Setting: milliseconds for a client to resolve a name, and again to reach one of its addresses.
pub const TAUT_SET_CONNECT_MS: u32 = 7;
/// Setting: milliseconds for the opening handshake.
pub const TAUT_SET_HANDSHAKE_MS: u32 = 8;
/// Setting of a server: milliseconds in which a request must be answered by its ticket.
pub const TAUT_SET_ANSWER_MS: u32 = 9;
/// Setting: milliseconds without input after which a ping is sent; 0 for none.
pub const TAUT_SET_PING_MS: u32 = 10;
/// Setting: milliseconds without input after which a connection is closed; 0 for none.
pub const TAUT_SET_IDLE_MS: u32 = 11;
/// Setting: milliseconds without a message after which a connection is closed; 0 for none.
pub const TAUT_SET_SILENCE_MS: u32 = 12;
/// Setting: milliseconds that the peer may take to answer a close frame.
pub const TAUT_SET_CLOSE_MS: u32 = 13;
/// Setting: milliseconds in which a peer must take some of the bytes that wait for it.
pub const TAUT_SET_SEND_MS: u32 = 14;
/// Setting: bytes that may wait for a peer. TAUT_SET_SLOW_POLICY says what happens above.
pub const TAUT_SET_SLOW_LIMIT: u32 = 15;
/// Setting: the policy for a peer that does not read, one of TAUT_SLOW_….
pub const TAUT_SET_SLOW_POLICY: u32 = 16;
/// Setting of a server: 1 accepts permessage-deflate. Default 0.
pub const TAUT_SET_DEFLATE: u32 = 17;
/// Setting: 1 delivers messages in pieces, to the callback `chunk`, or as TAUT_EVENT_MESSAGE with TAUT_FIRST and TAUT_LAST.
/// Default 0.
pub const TAUT_SET_STREAMING: u32 = 18;
/// Setting: milliseconds from which a turn of a loop counts as slow, since a callback blocked it; 0 for never.
pub const TAUT_SET_SLOW_TURN_MS: u32 = 19;
/// Setting of a server: threads for expensive handshakes; 0 keeps all of them in their loops.
pub const TAUT_SET_HANDSHAKE_THREADS: u32 = 20;
/// Setting of a server: 1 refuses clients that offer none of its subprotocols. Default 0.
pub const TAUT_SET_REQUIRE_SUBPROTOCOL: u32 = 21;
/// Setting of a server: 1 serves peers that `taut_settings_proxy_protocol_from` does not name, without a header. With 0, the
/// default, their connections are reset, if it names some.
pub const TAUT_SET_OTHERS_WITHOUT_HEADER: u32 = 22;
/// Setting of a server: 1 has the proxies of `taut_settings_forwarded_from` name clients in `Forwarded` (RFC 7239). With 0, the
/// default, they do in `X-Forwarded-For`.
pub const TAUT_SET_FORWARDED: u32 = 23;

/// Policy for slow peers: close the connection with 1008.
pub const TAUT_SLOW_DISCONNECT: u32 = 0;
/// Policy for slow peers: drop new messages.
pub const TAUT_SLOW_DROP_NEWEST: u32 = 1;
/// Policy for slow peers: drop the oldest messages.
pub const TAUT_SLOW_DROP_OLDEST: u32 = 2;
/// Policy for slow peers: keep only the latest of messages with the same key, and drop the oldest.
pub const TAUT_SLOW_KEEP_LATEST: u32 = 3;

/// Flag of a message: it is text, and must be UTF-8. Without it the message is binary.
pub const TAUT_TEXT: u32 = 1;
/// Flag of a message: it is not compressed, whatever was negotiated.
pub const TAUT_UNCOMPRESSED: u32 = 2;
/// Flag of a message: `key` counts. Under TAUT_SLOW_KEEP_LATEST it replaces a waiting message with the same key.
pub const TAUT_KEYED: u32 = 4;
/// Flag of a piece of a message: the message begins with it.
pub const TAUT_FIRST: u32 = 8;
/// Flag of a piece of a message: the message ends with it.
pub const TAUT_LAST: u32 = 16;
