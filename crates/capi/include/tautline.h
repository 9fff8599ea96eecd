/* Tautline: secure WebSockets, and TLS in one call.
 *
 * docs/c.md explains the interface. This file is written by `TAUTLINE_WRITE_HEADER=1 cargo test -p tautline-capi
 * --test header`; the source is crates/capi/src.
 *
 * Licensed under MIT or Apache-2.0, at your choice. */

#ifndef TAUTLINE_H
#define TAUTLINE_H

#include <stddef.h>
#include <stdint.h>

// Role of a configuration: it opens connections.
#define TAUT_CLIENT 0

// Role of a configuration: it accepts connections.
#define TAUT_SERVER 1

// Wanted next: nothing. The operation is complete, or more whole records lie in the input.
#define TAUT_WANT_NONE 0

// Wanted next: more bytes of the peer. Bytes that were not taken are presented again, in front of them.
#define TAUT_WANT_READ 1

// Wanted next: room in `out`, since bytes for the peer wait. Call again, even without input.
#define TAUT_WANT_WRITE 2

// Wanted next: room in `plain`, since plaintext waits or the next record may not fit. Call again.
#define TAUT_WANT_ROOM 3

// Wanted next: nothing more, since the peer has closed its direction. This end can still send.
#define TAUT_WANT_CLOSED 4

// Clients need no certificate.
#define TAUT_CLIENT_AUTH_NONE 0

// Clients may show a certificate, which must then be valid.
#define TAUT_CLIENT_AUTH_OPTIONAL 1

// Clients must show a valid certificate.
#define TAUT_CLIENT_AUTH_REQUIRED 2

// Option, versions of TLS: 0 for all (the default), 12 for 1.2 alone, 13 for 1.3 alone.
#define TAUT_OPTION_VERSIONS 1

// Option, 1 writes secrets to the file that the environment variable `SSLKEYLOGFILE` names. Default 0.
#define TAUT_OPTION_KEY_LOG 2

// Option, 1 keeps a secret of each connection for `taut_tls_export`. Default 0.
#define TAUT_OPTION_EXPORTER 3

// Option of a server, period of the ticket keys in seconds; 0 for no tickets. Default 43200.
#define TAUT_OPTION_TICKETS 4

// Option of a server, tickets for each TLS 1.3 handshake, 1 to 16. Default 2.
#define TAUT_OPTION_TICKETS_PER_HANDSHAKE 5

// Option of a client, 0 resumes no session. Default 1.
#define TAUT_OPTION_RESUMPTION 6

// Option of a client, 0 offers no key exchange with ML-KEM. Default 1.
#define TAUT_OPTION_POST_QUANTUM 7

// Decision of a verification callback: the certificate is accepted.
#define TAUT_ACCEPT 1

// Decision of a verification callback: the certificate is rejected.
#define TAUT_REJECT 2

// The value of `taut_error.alert` if there is no alert, or if it is not known.
#define TAUT_NO_ALERT -1

// Event: none. More bytes of the peer are needed, or output must be written first.
#define TAUT_EVENT_NONE 0

// Event of a server: a request waits for `taut_ws_upgrade` or `taut_ws_respond`. No other event comes before.
#define TAUT_EVENT_REQUEST 1

// Event: the opening handshake is complete, and messages can be sent.
#define TAUT_EVENT_OPEN 2

// Event: a whole message.
#define TAUT_EVENT_MESSAGE 3

// Event: a pong, also one without a ping. Pings are answered without an event.
#define TAUT_EVENT_PONG 4

// Event: the connection ended. No other event follows; output may remain.
#define TAUT_EVENT_CLOSED 5

// Event: the connection ended before it was open. No other event follows; output may remain.
#define TAUT_EVENT_FAILED 6

// Cause of an end: the peer sent a close frame first.
#define TAUT_CAUSE_PEER 1

// Cause of an end: this end sent a close frame first, and the peer answered it.
#define TAUT_CAUSE_LOCAL 2

// Cause of an end: the peer hung up without a close frame, or without close_notify.
#define TAUT_CAUSE_CUT 3

// Cause of an end: the connection broke.
#define TAUT_CAUSE_IO 4

// Cause of an end: the peer broke the WebSocket protocol or a limit.
#define TAUT_CAUSE_PROTOCOL 5

// Cause of an end: TLS failed.
#define TAUT_CAUSE_TLS 6

// Cause of an end: the peer missed a deadline.
#define TAUT_CAUSE_TIMEOUT 7

// Cause of an end: the peer did not read what was sent to it, and more waited than the limit.
#define TAUT_CAUSE_SLOW 8

// Cause of an end: this end was short of memory or time.
#define TAUT_CAUSE_OVERLOAD 9

// Cause of an end: a callback failed.
#define TAUT_CAUSE_CALLBACK 10

// Cause of an end: the loop stopped.
#define TAUT_CAUSE_STOPPED 11

// Cause of a failure: the target cannot be used, or its name has no address.
#define TAUT_CAUSE_TARGET 12

// Cause of a failure: the opening handshake was refused. A client finds the server's response in the event.
#define TAUT_CAUSE_REFUSED 13

// No deadline runs.
#define TAUT_NEVER UINT64_MAX

// Preset of limits and deadlines: servers that are open to anyone. The default.
#define TAUT_PRESET_UNTRUSTED_INTERNET 0

// Preset of limits and deadlines: few connections with short deadlines, small queues and large messages.
#define TAUT_PRESET_LOW_LATENCY 1

// Preset of limits and deadlines: up to a million connections, most of them idle.
#define TAUT_PRESET_MANY_CONNECTIONS 2

// Setting: bytes of the longest message accepted.
#define TAUT_SET_MAX_MESSAGE 1

// Setting of a server: most connections.
#define TAUT_SET_MAX_CONNECTIONS 2

// Setting of a server: most connections whose opening handshake waits for the client.
#define TAUT_SET_MAX_HANDSHAKES 3

// Setting of a server: bytes of memory for all connections.
#define TAUT_SET_MEMORY 4

// Setting of a server: bytes of the longest body of a request.
#define TAUT_SET_MAX_BODY 5

// Setting: most subscriptions of a connection.
#define TAUT_SET_MAX_SUBSCRIPTIONS 6

// Setting: milliseconds for a client to resolve a name, and again to reach one of its addresses.
#define TAUT_SET_CONNECT_MS 7

// Setting: milliseconds for the opening handshake.
#define TAUT_SET_HANDSHAKE_MS 8

// Setting of a server: milliseconds in which a request must be answered by its ticket.
#define TAUT_SET_ANSWER_MS 9

// Setting: milliseconds without input after which a ping is sent; 0 for none.
#define TAUT_SET_PING_MS 10

// Setting: milliseconds without input after which a connection is closed; 0 for none.
#define TAUT_SET_IDLE_MS 11

// Setting: milliseconds without a message after which a connection is closed; 0 for none.
#define TAUT_SET_SILENCE_MS 12

// Setting: milliseconds that the peer may take to answer a close frame.
#define TAUT_SET_CLOSE_MS 13

// Setting: milliseconds in which a peer must take some of the bytes that wait for it.
#define TAUT_SET_SEND_MS 14

// Setting: bytes that may wait for a peer. TAUT_SET_SLOW_POLICY says what happens above.
#define TAUT_SET_SLOW_LIMIT 15

// Setting: the policy for a peer that does not read, one of TAUT_SLOW_….
#define TAUT_SET_SLOW_POLICY 16

// Setting of a server: 1 accepts permessage-deflate. Default 0.
#define TAUT_SET_DEFLATE 17

// Setting: 1 delivers messages in pieces, to the callback `chunk`, or as TAUT_EVENT_MESSAGE with TAUT_FIRST and TAUT_LAST.
// Default 0.
#define TAUT_SET_STREAMING 18

// Setting: milliseconds from which a turn of a loop counts as slow, since a callback blocked it; 0 for never.
#define TAUT_SET_SLOW_TURN_MS 19

// Setting of a server: threads for expensive handshakes; 0 keeps all of them in their loops.
#define TAUT_SET_HANDSHAKE_THREADS 20

// Setting of a server: 1 refuses clients that offer none of its subprotocols. Default 0.
#define TAUT_SET_REQUIRE_SUBPROTOCOL 21

// Setting of a server: 1 serves peers that `taut_settings_proxy_protocol_from` does not name, without a header. With 0, the
// default, their connections are reset, if it names some.
#define TAUT_SET_OTHERS_WITHOUT_HEADER 22

// Setting of a server: 1 has the proxies of `taut_settings_forwarded_from` name clients in `Forwarded` (RFC 7239). With 0, the
// default, they do in `X-Forwarded-For`.
#define TAUT_SET_FORWARDED 23

// Policy for slow peers: close the connection with 1008.
#define TAUT_SLOW_DISCONNECT 0

// Policy for slow peers: drop new messages.
#define TAUT_SLOW_DROP_NEWEST 1

// Policy for slow peers: drop the oldest messages.
#define TAUT_SLOW_DROP_OLDEST 2

// Policy for slow peers: keep only the latest of messages with the same key, and drop the oldest.
#define TAUT_SLOW_KEEP_LATEST 3

// Flag of a message: it is text, and must be UTF-8. Without it the message is binary.
#define TAUT_TEXT 1

// Flag of a message: it is not compressed, whatever was negotiated.
#define TAUT_UNCOMPRESSED 2

// Flag of a message: `key` counts. Under TAUT_SLOW_KEEP_LATEST it replaces a waiting message with the same key.
#define TAUT_KEYED 4

// Flag of a piece of a message: the message begins with it.
#define TAUT_FIRST 8

// Flag of a piece of a message: the message ends with it.
#define TAUT_LAST 16

// As the number of loops: one for each CPU that the process may use.
#define TAUT_ALL_CPUS UINT32_MAX

// A running loop for outgoing connections.
typedef struct taut_client taut_client;

// One loop of a server or a client. It is valid until that is freed.
typedef struct taut_loop taut_loop;

// A target that is about to be connected to again, valid during the callback that gets it.
typedef struct taut_redial taut_redial;

// A running server.
typedef struct taut_server taut_server;

// Limits, deadlines and policies. All functions on it may be called from any thread at any time.
typedef struct taut_settings taut_settings;

// A blocking connection of a client. Only the thread that made it may use it; any thread may free it.
typedef struct taut_socket taut_socket;

// The right and the duty to answer one request later. Any thread may use it.
typedef struct taut_ticket taut_ticket;

// A configuration for any number of sessions. All functions on it may be called from any thread at any time.
typedef struct taut_tls_config taut_tls_config;

// One TLS connection. Any thread may use it, one call at a time.
typedef struct taut_tls taut_tls;

// Unused buffers that connections share. Any thread may use it, in one call at a time.
typedef struct taut_ws_context taut_ws_context;

// One WebSocket connection without I/O. Any thread may use it, one call at a time.
typedef struct taut_ws taut_ws;

// The result of a call: [`TAUT_OK`], or one of the errors below.
typedef int32_t taut_code;

// An error in detail. The caller sets `size`, `text` and `room`.
typedef struct taut_error {
    // sizeof(taut_error).
    size_t size;
    // Room for the text, which ends with a zero byte and is cut if `room` is too small; may be null.
    char *text;
    // Bytes in `text`.
    size_t room;
    // Result: length of the whole text, without the zero byte.
    size_t len;
    // Result: the code, one of TAUT_ERR_…, or TAUT_OK if there is no error.
    taut_code code;
    // Result: the TLS alert that was received or sent (RFC 8446, section 6), or TAUT_NO_ALERT.
    int32_t alert;
} taut_error;

// Bytes that a call reads.
typedef struct taut_slice {
    // May be null if `len` is 0.
    const uint8_t *data;
    // Number of bytes.
    size_t len;
} taut_slice;

// A certificate chain with its key.
typedef struct taut_certificate {
    // sizeof(taut_certificate).
    size_t size;
    // Chain in PEM, end entity first.
    struct taut_slice chain;
    // Private key in PEM: PKCS#8, PKCS#1 or SEC1.
    struct taut_slice key;
    // OCSP response to staple, in DER; empty for none.
    struct taut_slice ocsp;
    // Name in errors, such as the file's name; may be null.
    const char *name;
} taut_certificate;

// The certificates that a peer shows, for a verification callback. All of it is valid during the call only.
typedef struct taut_tls_peer {
    // Size of this struct. A library that is newer than the program may have more behind.
    size_t size;
    // The chain in DER, end entity first.
    const struct taut_slice *certificates;
    // Number of certificates.
    size_t certificates_count;
    // The host that a client connects to, without a zero byte behind it; empty for servers.
    struct taut_slice host;
    // 1 if the library accepts the chain, else 0.
    uint32_t accepted;
    // The reason why the library rejects the chain, without a zero byte behind it; empty if it accepts it.
    struct taut_slice reason;
} taut_tls_peer;

// Decides whether a handshake goes on: TAUT_ACCEPT or TAUT_REJECT. Every other value fails the handshake.
//
// The decision replaces the library's, in both directions. The callback runs in the thread that calls
// `taut_tls_handshake`, possibly in several threads at once for different sessions. No runtime's exception may leave
// it, and it must not call a function on the session of the handshake, which answers TAUT_ERR_BUSY.
typedef uint32_t (*taut_tls_verify)(void *user, const struct taut_tls_peer *peer);

// Called once when no configuration and no session needs the user pointer any more, in the thread that released the
// last one. It must not call a function on a configuration.
typedef void (*taut_destroy)(void *user);

// Memory that a call reads or writes.
typedef struct taut_window {
    // May be null if `len` is 0.
    uint8_t *data;
    // Number of bytes.
    size_t len;
} taut_window;

// The windows of a call, and what the call did with them.
//
// A program keeps one per session or thread, sets the windows and passes it to call after call. No windows may overlap,
// with one exception: `plain` may be exactly the memory of `in`. Plaintext then stays where its records were.
typedef struct taut_tls_io {
    // sizeof(taut_tls_io).
    size_t size;
    // Bytes of the peer, for `taut_tls_handshake` and `taut_tls_open`. The bytes that are taken may be changed.
    struct taut_window in;
    // Room for plaintext, for `taut_tls_open`: 16384 bytes hold that of any record.
    struct taut_window plain;
    // Room for bytes for the peer. The length of the data, 30 bytes for each 16384 bytes of it or part of them, and
    // 64 bytes for a KeyUpdate that may be due, are always enough for `taut_tls_seal`.
    struct taut_window out;
    // The data for `taut_tls_seal`: an array of slices, sealed as one stream.
    const struct taut_slice *data;
    // Number of slices in `data`. More than 64 may cost an allocation.
    size_t data_count;
    // Most records that `taut_tls_open` opens; 0 for as many as there are.
    size_t max_records;
    // Result: bytes of `in` that were used, or bytes of `data` that were sealed. Present the others again.
    size_t taken;
    // Result: bytes written to the front of `out`. Send them, also after an error.
    size_t written;
    // Result: the plaintext begins at this offset in `plain`.
    size_t plain_offset;
    // Result: bytes of plaintext.
    size_t plain_len;
    // Result: records that were opened or sealed.
    size_t records;
    // Result: one of TAUT_WANT_….
    uint32_t want;
    // Result: bytes of plaintext that wait for room in `plain`.
    size_t plain_waiting;
    // Result: bytes for the peer that wait for room in `out`.
    size_t out_waiting;
} taut_tls_io;

// The result of a handshake. Texts end with a zero byte.
typedef struct taut_tls_facts {
    // sizeof(taut_tls_facts).
    size_t size;
    // `TLSv1.3` or `TLSv1.2`; empty before the handshake.
    char version[16];
    // Cipher suite by its IANA name.
    char suite[64];
    // Key exchange group.
    char group[32];
    // Host name that the client sent (SNI); empty for none.
    char server_name[256];
    // Application protocol (ALPN).
    uint8_t alpn[256];
    // Length of the application protocol; 0 for none.
    size_t alpn_len;
    // Number of the peer's certificates.
    size_t peer_certificates;
    // 1 if the handshake resumed an earlier session, else 0.
    uint32_t resumed;
} taut_tls_facts;

// How often a window was too small. Both counts stay 0 on the normal path.
typedef struct taut_tls_counters {
    // sizeof(taut_tls_counters).
    size_t size;
    // Calls that left bytes for the peer behind, because `out` was too small.
    uint64_t spills;
    // Records of which plaintext was left behind, because `plain` was too small.
    uint64_t carries;
} taut_tls_counters;

// One header of a request or a response. The name is in lower case, the value any bytes.
typedef struct taut_header {
    // Name.
    struct taut_slice name;
    // Value.
    struct taut_slice value;
} taut_header;

// The destination of an outgoing connection. Fields that are zero have their defaults.
typedef struct taut_target {
    // sizeof(taut_target).
    size_t size;
    // `wss://HOST[:PORT]/PATH`, or `ws://…`.
    const char *uri;
    // Address to connect to instead of that of the host: `IP:PORT` or `unix:PATH`; may be null. Not for `taut_ws`.
    const char *address;
    // `Origin` of the request; may be null.
    const char *origin;
    // Proxy to tunnel through: `http://[USER:PASSWORD@]HOST:PORT` or `socks5://…`; may be null.
    const char *proxy;
    // Further headers of the request.
    const struct taut_header *headers;
    // Number of headers.
    size_t headers_count;
    // Subprotocols to offer, the preferred first.
    const struct taut_slice *subprotocols;
    // Number of subprotocols.
    size_t subprotocols_count;
    // 1 offers permessage-deflate.
    uint32_t deflate;
    // Longest wait in milliseconds before another attempt; 0 connects once. For clients with callbacks only.
    uint32_t reconnect_longest_ms;
    // First wait in milliseconds; 0 for 250. Waits double, minus a random part of up to half.
    uint32_t reconnect_first_ms;
    // Further attempts before giving up; 0 never gives up.
    uint32_t reconnect_attempts;
    // Name of the server in TLS (SNI), which its certificate must have, instead of the URI's host; may be null.
    const char *server_name;
} taut_target;

// The head of a request or a response. The library makes it, and it is valid as long as the struct that has it.
typedef struct taut_head {
    // Size of this struct. A library that is newer than the program may have more behind.
    size_t size;
    // Method of a request, such as `GET`; empty for a response.
    struct taut_slice method;
    // Path of a request, with its query; empty for a response.
    struct taut_slice target;
    // Status of a response; 0 for a request.
    uint32_t status;
    // Headers, in no particular order.
    const struct taut_header *headers;
    // Number of headers.
    size_t headers_count;
} taut_head;

// The result of an opening handshake.
typedef struct taut_opening {
    // Size of this struct. A library that is newer than the program may have more behind.
    size_t size;
    // The client's request; null on a client.
    const struct taut_head *request;
    // The server's response; null on a server.
    const struct taut_head *response;
    // The subprotocol that both ends speak; empty for none.
    struct taut_slice subprotocol;
    // 1 if messages may be compressed (permessage-deflate), else 0.
    uint32_t deflate;
} taut_opening;

// The end of a connection, or of an attempt to make one.
typedef struct taut_closed {
    // Size of this struct. A library that is newer than the program may have more behind.
    size_t size;
    // One of TAUT_CAUSE_….
    uint32_t cause;
    // Close code that the peer sent; 1005 if its close frame had none, 1006 if it sent no close frame.
    uint32_t code;
    // Reason in the peer's close frame.
    struct taut_slice reason;
    // The cause in words, in one line.
    struct taut_slice text;
    // The response of a server that refused the upgrade; else null.
    const struct taut_head *response;
} taut_closed;

// The next thing that happened on a `taut_ws`. The caller sets `size`.
typedef struct taut_ws_event {
    // sizeof(taut_ws_event).
    size_t size;
    // Result: one of TAUT_EVENT_….
    uint32_t kind;
    // Result: TAUT_TEXT for a text message; TAUT_FIRST and TAUT_LAST for pieces of one, with TAUT_SET_STREAMING; else 0.
    uint32_t flags;
    // Result: the bytes of a message or a pong, where they were decrypted, or the body of a request. Valid until the next call
    // of `taut_ws_next`, `taut_ws_window`, `taut_ws_upgrade` or `taut_ws_respond`.
    struct taut_slice data;
    // Result: the head of a request; else null. Valid until the next call of `taut_ws_next`, like all below.
    const struct taut_head *request;
    // Result: with TAUT_EVENT_REQUEST, 1 if the client asks for a WebSocket.
    uint32_t is_upgrade;
    // Result: with TAUT_EVENT_OPEN, its terms; else null.
    const struct taut_opening *opening;
    // Result: with TAUT_EVENT_CLOSED and TAUT_EVENT_FAILED, the reason; else null.
    const struct taut_closed *closed;
} taut_ws_event;

// A message.
typedef struct taut_message {
    // sizeof(taut_message).
    size_t size;
    // Any of TAUT_TEXT, TAUT_UNCOMPRESSED, TAUT_KEYED; pieces have TAUT_FIRST and TAUT_LAST, and no TAUT_KEYED. Others are
    // refused with TAUT_ERR_VALUE.
    uint32_t flags;
    // Bytes.
    const uint8_t *data;
    // Number of bytes.
    size_t len;
    // With TAUT_KEYED, the key.
    uint64_t key;
} taut_message;

// The state of a `taut_ws`. The caller sets `size`.
typedef struct taut_ws_status {
    // sizeof(taut_ws_status).
    size_t size;
    // Result: 1 if messages can be sent and received.
    uint32_t is_open;
    // Result: 1 if nothing is read any more.
    uint32_t is_over;
    // Result: 1 if all output was written and nothing follows: shut the stream down.
    uint32_t is_finished;
    // Result: 1 if input waits until output is written, or a request is answered: do not read meanwhile.
    uint32_t holds_back;
    // Result: bytes that wait to be written.
    size_t waiting;
} taut_ws_status;

// A request to a server, valid during the callback that gets it.
typedef struct taut_request {
    // Size of this struct. A library that is newer than the program may have more behind.
    size_t size;
    // Method, path and headers.
    const struct taut_head *head;
    // The body of a plain request, if it has one.
    struct taut_slice body;
    // The client's address.
    struct taut_slice peer;
    // 1 if the client asks for a WebSocket, else 0.
    uint32_t is_upgrade;
} taut_request;

// A connection of a server or a client. It is a value: copy it freely, it is never freed.
//
// It may be used until its server or client is freed, from any thread: after the end of the connection, calls answer
// TAUT_ERR_CLOSED. Each function says whether it works only inside a callback of the connection.
typedef struct taut_conn {
    // The loop of the connection.
    const struct taut_loop *owner;
    // Number of the connection in its loop; never 0.
    uint64_t id;
} taut_conn;

// A loop begins. `number` counts from 0. Timers of the loop can be set.
typedef taut_code (*taut_on_start)(void *user, const struct taut_loop *owner, uint32_t number);

// A request arrived at a server. One that this call does not answer is upgraded, or answered with status 404.
typedef taut_code (*taut_on_request)(void *user, const struct taut_request *request);

// The opening handshake is complete.
typedef taut_code (*taut_on_open)(void *user, struct taut_conn conn, const struct taut_opening *opening);

// A message, or a piece of one, arrived. Its bytes are valid during the call.
typedef taut_code (*taut_on_message)(void *user, struct taut_conn conn, const struct taut_message *message);

// A pong arrived. Its bytes are valid during the call.
typedef taut_code (*taut_on_pong)(void *user, struct taut_conn conn, const uint8_t *data, size_t len);

// Something happened on a connection.
typedef taut_code (*taut_on_conn)(void *user, struct taut_conn conn);

// A timer of a connection is due.
typedef taut_code (*taut_on_timer)(void *user, struct taut_conn conn, uint64_t id);

// An open connection ended.
typedef taut_code (*taut_on_close)(void *user, struct taut_conn conn, const struct taut_closed *closed);

// A timer of a loop is due.
typedef taut_code (*taut_on_loop_timer)(void *user, const struct taut_loop *owner, uint64_t id);

// An attempt to connect failed. The next one follows after `retry_ms`, or never if that is TAUT_NEVER.
typedef taut_code (*taut_on_connect_failed)(void *user,
                                            uint64_t dial,
                                            const struct taut_closed *closed,
                                            uint64_t retry_ms);

// A client is about to connect again. `taut_redial_set` changes the target.
typedef taut_code (*taut_on_redial)(void *user, uint64_t dial, struct taut_redial *redial);

// A client has given up a target for ever.
typedef taut_code (*taut_on_dial_end)(void *user, uint64_t dial);

// A policy has dropped messages to a connection: `count` of them since the last call.
typedef taut_code (*taut_on_dropped)(void *user, struct taut_conn conn, uint32_t count);

// The callbacks of a server or a client. Each may be null.
//
// Loops call them on their own threads: with several loops, several threads at once. A callback must not block, since all
// connections of its loop wait for it, and no runtime's exception may leave it: catch it, and return TAUT_ERR_CALLBACK. One
// that returns another code than TAUT_OK has its connection closed with 1011, or its request answered with status 500. The
// counter `callbacks_failed` counts that.
typedef struct taut_callbacks {
    // sizeof(taut_callbacks).
    size_t size;
    // First argument of each callback.
    void *user;
    // A loop begins.
    taut_on_start start;
    // A request arrived (server).
    taut_on_request request;
    // A connection is open.
    taut_on_open open;
    // A whole message arrived.
    taut_on_message message;
    // A piece of a message arrived. Called instead of `message` with TAUT_SET_STREAMING.
    taut_on_message chunk;
    // A pong arrived.
    taut_on_pong pong;
    // The queue for a slow peer is empty again.
    taut_on_conn drain;
    // A timer of a connection is due.
    taut_on_timer timer;
    // An open connection ended. Called once for each `open`.
    taut_on_close close;
    // A timer of a loop is due.
    taut_on_loop_timer loop_timer;
    // An attempt to connect failed (client).
    taut_on_connect_failed connect_failed;
    // A further attempt to connect begins (client).
    taut_on_redial redial;
    // A target was given up (client).
    taut_on_dial_end dial_end;
    // Called once with `user` after the last callback, also if the start fails.
    taut_destroy destroy;
    // Messages to a connection were dropped, after they were taken, or instead of it.
    taut_on_dropped dropped;
} taut_callbacks;

// The settings of a server. Fields that are zero have their defaults.
typedef struct taut_server_options {
    // sizeof(taut_server_options).
    size_t size;
    // The callbacks, which are copied.
    const struct taut_callbacks *callbacks;
    // Addresses to listen at: `IP:PORT` or `unix:PATH`. Port 0 is any free port.
    const char *const *listen;
    // Number of addresses.
    size_t listen_count;
    // Configuration for servers that was applied; null serves without TLS.
    const struct taut_tls_config *tls;
    // Limits, deadlines and policies; null for the defaults.
    const struct taut_settings *settings;
    // Number of loops, each on a thread of its own; 0 for one, TAUT_ALL_CPUS for one on each CPU.
    uint32_t loops;
    // 1 lets other servers of the same user listen at the same addresses, to take over from each other.
    uint32_t beside_others;
    // CPUs to which the loops are pinned, in turn; null pins none.
    const size_t *cpus;
    // Number of CPUs.
    size_t cpus_count;
    // Driver, such as "epoll" or "uring"; null for the default.
    const char *driver;
} taut_server_options;

// A number that a server or client counts. The names are those of `Counters` in Rust.
typedef struct taut_counter {
    // Name, such as `messages_in`, without a zero byte behind it. It stays valid.
    struct taut_slice name;
    // Value.
    uint64_t value;
} taut_counter;

// The settings of a client. Fields that are zero have their defaults.
typedef struct taut_client_options {
    // sizeof(taut_client_options).
    size_t size;
    // The callbacks, which are copied.
    const struct taut_callbacks *callbacks;
    // Configuration for clients that was applied; null is for targets that begin with `ws://`.
    const struct taut_tls_config *tls;
    // Limits, deadlines and policies; null for the defaults.
    const struct taut_settings *settings;
    // Driver, such as "epoll" or "uring"; null for the default.
    const char *driver;
    // Number of the CPU that the loop is pinned to; null for any.
    const size_t *cpu;
} taut_client_options;

// The call did what it says.
#define TAUT_OK 0

// A pointer is null, or is not aligned, that must not be.
#define TAUT_ERR_NULL 1

// A struct's `size` is smaller than that of any version of this library, or a length is impossible.
#define TAUT_ERR_SIZE 2

// Windows overlap that must not.
#define TAUT_ERR_OVERLAP 3

// Another call uses this session at the same time, in another thread or below this one on the stack.
#define TAUT_ERR_BUSY 4

// A number or a text has no meaning here.
#define TAUT_ERR_VALUE 5

// The call does not fit the state: before the handshake, after the close, or in the wrong role.
#define TAUT_ERR_STATE 6

// The session has failed in an earlier call. Free it.
#define TAUT_ERR_FAILED 7

// The configuration cannot be used. The text names the part and the remedy.
#define TAUT_ERR_CONFIG 8

// The peer broke the protocol, or a record does not authenticate.
#define TAUT_ERR_PEER 9

// The peer sent a fatal alert.
#define TAUT_ERR_ALERT 10

// This end rejected the peer's certificate.
#define TAUT_ERR_CERTIFICATE 11

// The TLS library failed on its own.
#define TAUT_ERR_LIBRARY 12

// This library has a defect. The session is dead, the process is not.
#define TAUT_ERR_INTERNAL 13

// The connection has ended, or its loop has stopped.
#define TAUT_ERR_CLOSED 14

// Too much waits already. The message was not taken.
#define TAUT_ERR_FULL 15

// The time is over.
#define TAUT_ERR_TIMEOUT 16

// The system refused: an address, a thread, a descriptor. The text names it.
#define TAUT_ERR_SYSTEM 17

// The connection could not be made. The text says which step failed.
#define TAUT_ERR_CONNECT 18

// For callbacks of the program: they could not do their work. The connection is closed with 1011.
#define TAUT_ERR_CALLBACK 19

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// The version of the library, such as `0.1.0`: a text that stays valid.
//
// Any thread may call this at any time.
const char *taut_version(void);

// The meaning of a code, in English: a text that stays valid.
//
// Any thread may call this at any time.
const char *taut_code_text(taut_code code);

// Makes a configuration for one role, TAUT_CLIENT or TAUT_SERVER, and sets `*config` to it.
//
// `engine` is the name of a TLS engine, such as "fused" or "rustls"; null is for the default. The configuration has one
// reference, which `taut_tls_config_release` gives back. `error` may be null, here and below.
//
// Any thread may call this at any time.
taut_code taut_tls_config_new(uint32_t role,
                              const char *engine,
                              const struct taut_tls_config **config,
                              struct taut_error *error);

// Adds a reference to a configuration.
//
// Any thread that holds a reference may call this at any time. Null is ignored.
void taut_tls_config_retain(const struct taut_tls_config *config);

// Gives a reference back. The last one frees the configuration. Sessions that it made go on.
//
// Any thread may call this at any time. Null is ignored.
void taut_tls_config_release(const struct taut_tls_config *config);

// Restores the defaults of all settings. They count from the next `taut_tls_config_apply` on.
//
// Any thread that holds a reference may call this at any time.
taut_code taut_tls_config_reset(const struct taut_tls_config *config, struct taut_error *error);

// Adds a certificate to a server, or replaces that of a client. The bytes are copied.
//
// A chain that cannot be read, or a key that does not belong to it, is TAUT_ERR_CONFIG, and nothing has changed.
//
// Any thread that holds a reference may call this at any time.
taut_code taut_tls_config_certificate(const struct taut_tls_config *config,
                                      const struct taut_certificate *certificate,
                                      struct taut_error *error);

// Adds a certificate as `taut_tls_config_certificate` does, from files with the chain and the key in PEM.
//
// Any thread that holds a reference may call this at any time. It reads files, and so may block.
taut_code taut_tls_config_certificate_files(const struct taut_tls_config *config,
                                            const char *chain,
                                            const char *key,
                                            struct taut_error *error);

// Has a client trust these authorities and no others (PEM). The bytes are copied. The default is the platform's store.
//
// Any thread that holds a reference may call this at any time.
taut_code taut_tls_config_roots(const struct taut_tls_config *config,
                                const uint8_t *pem,
                                size_t pem_len,
                                struct taut_error *error);

// Has a client trust the authorities in a file and no others (PEM).
//
// Any thread that holds a reference may call this at any time. It reads a file, and so may block.
taut_code taut_tls_config_roots_file(const struct taut_tls_config *config,
                                     const char *path,
                                     struct taut_error *error);

// Has a client verify no certificate: anyone can read and change the traffic. For experiments, or for a verification
// callback that decides alone.
//
// Any thread that holds a reference may call this at any time.
taut_code taut_tls_config_danger_no_roots(const struct taut_tls_config *config,
                                          struct taut_error *error);

// Has a server request certificates of its clients: `demand` is one of TAUT_CLIENT_AUTH_…, and the certificates must
// chain to one of these roots (PEM). The bytes are copied. Without roots, a verification callback decides alone; the
// engines "fused" and "rustls" can do so.
//
// Any thread that holds a reference may call this at any time.
taut_code taut_tls_config_client_auth(const struct taut_tls_config *config,
                                      uint32_t demand,
                                      const uint8_t *pem,
                                      size_t pem_len,
                                      struct taut_error *error);

// Sets the application protocols (ALPN) by preference, such as "h2" and "http/1.1". The bytes are copied.
//
// Any thread that holds a reference may call this at any time.
taut_code taut_tls_config_alpn(const struct taut_tls_config *config,
                               const struct taut_slice *names,
                               size_t names_count,
                               struct taut_error *error);

// Sets a number: `option` is one of TAUT_OPTION_….
//
// Any thread that holds a reference may call this at any time.
taut_code taut_tls_config_set(const struct taut_tls_config *config,
                              uint32_t option,
                              uint64_t value,
                              struct taut_error *error);

// Has a server derive its ticket keys from a secret of 32 random bytes or more. All hosts of a fleet share it, so that each
// resumes the sessions of all. Keys change every `epoch_seconds`. The bytes are copied.
//
// Any thread that holds a reference may call this at any time.
taut_code taut_tls_config_ticket_secret(const struct taut_tls_config *config,
                                        const uint8_t *secret,
                                        size_t secret_len,
                                        uint64_t epoch_seconds,
                                        struct taut_error *error);

// Sets the callback that decides about certificates of peers; null leaves the decision to the library.
//
// `destroy` may be null. It is called in every case, also if this function fails.
//
// Any thread that holds a reference may call this at any time. The callback runs in threads that handshake.
taut_code taut_tls_config_verify(const struct taut_tls_config *config,
                                 taut_tls_verify verify,
                                 void *user,
                                 taut_destroy destroy,
                                 struct taut_error *error);

// Makes the settings those of sessions that are made from now on. Sessions that exist go on unchanged.
//
// The first call checks certificates and roots. A later one also demands that a server's certificates are valid now.
// After an error nothing has changed. A server's ticket keys stay unless their settings change.
//
// Any thread that holds a reference may call this at any time. It signs with each key once, and so takes milliseconds.
taut_code taut_tls_config_apply(const struct taut_tls_config *config,
                                struct taut_error *error);

// Makes a session and sets `*tls` to it. `taut_tls_free` frees it.
//
// `host` is the name or address that a client connects to, which the server's certificate must have; null for servers.
//
// Any thread that holds a reference of the configuration may call this at any time.
taut_code taut_tls_new(const struct taut_tls_config *config,
                       const char *host,
                       struct taut_tls **tls,
                       struct taut_error *error);

// Frees a session; null is ignored. If another call uses it, nothing is freed and the result is TAUT_ERR_BUSY.
//
// Any thread may call this, once and as the last call.
taut_code taut_tls_free(struct taut_tls *tls);

// Advances the handshake over `in` and `out`. A client's first call needs no input.
//
// TAUT_WANT_READ asks for more bytes of the peer, TAUT_WANT_NONE says that the handshake is complete. Bytes behind
// `taken` then belong to `taut_tls_open`.
//
// Any thread may call this, but no two threads at once for one session.
taut_code taut_tls_handshake(struct taut_tls *tls,
                             struct taut_tls_io *io);

// Opens whole records at the front of `in`. Their plaintext goes to `plain`, as much as it has room for.
//
// If `plain` is exactly the memory of `in`, plaintext stays there, at `plain_offset`. Alerts, key updates and other
// answers that a record causes go to `out`. TAUT_WANT_READ says that all whole records were opened.
//
// Any thread may call this, but no two threads at once for one session.
taut_code taut_tls_open(struct taut_tls *tls,
                        struct taut_tls_io *io);

// Seals `data` into `out`, in as few records as possible.
//
// If `out` has no room for all of it, `taken` bytes are sealed and the result wants TAUT_WANT_WRITE: send `out`, then
// call again with the others.
//
// Any thread may call this, but no two threads at once for one session.
taut_code taut_tls_seal(struct taut_tls *tls,
                        struct taut_tls_io *io);

// Opens records as `taut_tls_open` does, with `in` and `plain` as arguments: those of `io` are not read.
//
// Runtimes with a heap of their own, such as Java's, can lend memory of it only as an argument. `plain` must not overlap
// `in`: nothing is opened in place.
//
// Any thread may call this, but no two threads at once for one session.
taut_code taut_tls_open_into(struct taut_tls *tls,
                             uint8_t *in,
                             size_t in_len,
                             uint8_t *plain,
                             size_t plain_len,
                             struct taut_tls_io *io);

// Seals one piece of data as `taut_tls_seal` does, with `data` and `out` as arguments: those of `io` are not read.
//
// Any thread may call this, but no two threads at once for one session.
taut_code taut_tls_seal_into(struct taut_tls *tls,
                             const uint8_t *data,
                             size_t data_len,
                             uint8_t *out,
                             size_t out_len,
                             struct taut_tls_io *io);

// Writes close_notify to `out`, once. Nothing can be sealed afterwards, but records can be opened.
//
// Any thread may call this, but no two threads at once for one session.
taut_code taut_tls_close(struct taut_tls *tls, struct taut_tls_io *io);

// Writes a KeyUpdate to `out`, and seals with new keys from then on (TLS 1.3). `ask` is 1 to have the peer do so too.
//
// No call is needed for security: keys change long before their limit. Some engines have no such call, and answer
// TAUT_ERR_STATE.
//
// Any thread may call this, but no two threads at once for one session.
taut_code taut_tls_key_update(struct taut_tls *tls,
                              uint32_t ask,
                              struct taut_tls_io *io);

// Writes the error that ended the session into `error`; TAUT_OK if the session lives.
//
// Any thread may call this, but no two threads at once for one session.
taut_code taut_tls_error(struct taut_tls *tls, struct taut_error *error);

// Writes the result of the handshake into `facts`.
//
// Any thread may call this, but no two threads at once for one session.
taut_code taut_tls_get_facts(struct taut_tls *tls, struct taut_tls_facts *facts);

// Copies a certificate of the peer (DER, number 0 is the end entity) into `der`, and sets `*der_len` to its length.
//
// If `der_room` is smaller than that, nothing is copied and the result is TAUT_ERR_SIZE.
//
// Any thread may call this, but no two threads at once for one session.
taut_code taut_tls_peer_certificate(struct taut_tls *tls,
                                    size_t number,
                                    uint8_t *der,
                                    size_t der_room,
                                    size_t *der_len);

// Fills `out` with keying material of the connection (RFC 8446, section 7.5), for TLS 1.3.
//
// The configuration needs TAUT_OPTION_EXPORTER. Both ends get the same bytes for the same label and context.
//
// Any thread may call this, but no two threads at once for one session.
taut_code taut_tls_export(struct taut_tls *tls,
                          const uint8_t *label,
                          size_t label_len,
                          const uint8_t *context,
                          size_t context_len,
                          uint8_t *out,
                          size_t out_len);

// Writes into `counters` how often a window was too small.
//
// Any thread may call this, but no two threads at once for one session.
taut_code taut_tls_get_counters(struct taut_tls *tls, struct taut_tls_counters *counters);

// Makes settings with the values of a preset, one of TAUT_PRESET_…, and sets `*settings` to them.
//
// Connections, servers and clients that are made copy the settings. `taut_settings_free` frees them.
//
// Any thread may call this at any time.
taut_code taut_settings_new(uint32_t preset, struct taut_settings **settings, struct taut_error *error);

// Frees settings; null is ignored.
//
// Any thread may call this, once and as the last call.
void taut_settings_free(struct taut_settings *settings);

// Sets a number: `setting` is one of TAUT_SET_….
//
// Any thread may call this at any time.
taut_code taut_settings_set(const struct taut_settings *settings,
                            uint32_t setting,
                            uint64_t value,
                            struct taut_error *error);

// Sets the subprotocols that a server speaks, the preferred first. The bytes are copied.
//
// Any thread may call this at any time.
taut_code taut_settings_subprotocols(const struct taut_settings *settings,
                                     const struct taut_slice *names,
                                     size_t names_count,
                                     struct taut_error *error);

// Sets the web pages that may connect to a server: origins such as `https://app.example`, names below another such as
// `https://*.example.org`, `null` for pages without an origin, and `*` for any page.
//
// Any other text is an error (TAUT_ERR_VALUE) that says what to write. The default is pages of the server's own host.
// Programs that are no browsers send no origin, and may connect.
//
// Any thread may call this at any time.
taut_code taut_settings_origins(const struct taut_settings *settings,
                                const struct taut_slice *origins,
                                size_t origins_count,
                                struct taut_error *error);

// Sets the proxies whose connections begin with a header of the PROXY protocol, version 1 or 2, before TLS: addresses, networks
// such as `10.0.0.0/8`, or `unix` for Unix sockets.
//
// A connection of theirs without a right header is reset. Connections of others are reset too, unless
// TAUT_SET_OTHERS_WITHOUT_HEADER is 1. The client in the header is the peer everywhere, and `taut_conn_get_direct_peer` has the
// proxy. Any other text is an error (TAUT_ERR_VALUE) that says what to write. The default is none.
//
// Any thread may call this at any time.
taut_code taut_settings_proxy_protocol_from(const struct taut_settings *settings,
                                            const struct taut_slice *prefixes,
                                            size_t prefixes_count,
                                            struct taut_error *error);

// Sets the proxies whose requests name the client in `X-Forwarded-For`, or in `Forwarded` with TAUT_SET_FORWARDED: addresses,
// networks such as `10.0.0.0/8`, or `unix` for Unix sockets.
//
// The last address there that is none of these is the peer everywhere, and `taut_conn_get_direct_peer` has the proxy. Any other
// text is an error (TAUT_ERR_VALUE) that says what to write. The default is none.
//
// Any thread may call this at any time.
taut_code taut_settings_forwarded_from(const struct taut_settings *settings,
                                       const struct taut_slice *prefixes,
                                       size_t prefixes_count,
                                       struct taut_error *error);

// Makes a context and sets `*context` to it. `taut_ws_context_free` frees it.
//
// Connections of one thread share a context, so that idle ones hold no buffer. It keeps at most `limit` bytes of unused
// buffers; 0 is for 4 MiB.
//
// Any thread may call this at any time.
taut_code taut_ws_context_new(size_t limit,
                              struct taut_ws_context **context,
                              struct taut_error *error);

// Frees a context; null is ignored. Connections that have it go on.
//
// Any thread may call this, once.
void taut_ws_context_free(struct taut_ws_context *context);

// Makes the server's end of a connection that a client has opened, and sets `*ws` to it. `taut_ws_free` frees it.
//
// `tls` is a configuration for servers that was applied; null is for connections without TLS. `settings` may be null, for
// the defaults. `context` may be null: the connection then has one of its own. `now_ms` is the time in milliseconds, from
// any clock that never runs backwards; all calls on the connection take it from the same clock.
//
// Any thread may call this at any time.
taut_code taut_ws_server(const struct taut_tls_config *tls,
                         const struct taut_settings *settings,
                         const struct taut_ws_context *context,
                         uint64_t now_ms,
                         struct taut_ws **ws,
                         struct taut_error *error);

// Makes the client's end of a connection that was opened to `target` or to its proxy, as `taut_ws_server` does.
//
// `tls` is a configuration for clients that was applied; null is for targets that begin with `ws://`.
//
// Any thread may call this at any time.
taut_code taut_ws_client(const struct taut_tls_config *tls,
                         const struct taut_target *to,
                         const struct taut_settings *settings,
                         const struct taut_ws_context *context,
                         uint64_t now_ms,
                         struct taut_ws **ws,
                         struct taut_error *error);

// Frees a connection; null is ignored. If another call uses it, nothing is freed and the result is TAUT_ERR_BUSY.
//
// Any thread may call this, once and as the last call.
taut_code taut_ws_free(struct taut_ws *ws);

// Sets `*window` to the memory into which the peer's next bytes are to be read: at least `least` bytes, and 16 KiB.
//
// The window and the data of the last event are valid until the next call on this connection, but for `taut_ws_filled`.
//
// Any thread may call this, but no two threads at once for connections of one context.
taut_code taut_ws_window(struct taut_ws *ws,
                         size_t least,
                         struct taut_window *window);

// Takes the first `len` bytes of the window, which the caller has read from the peer.
//
// Any thread may call this, but no two threads at once for connections of one context.
taut_code taut_ws_filled(struct taut_ws *ws, size_t len, uint64_t now_ms);

// The peer has ended the stream: no byte follows.
//
// Any thread may call this, but no two threads at once for connections of one context.
taut_code taut_ws_ended(struct taut_ws *ws);

// The stream broke: a read or a write failed with this number of errno(3).
//
// Any thread may call this, but no two threads at once for connections of one context.
taut_code taut_ws_broken(struct taut_ws *ws, int32_t error_number);

// Takes the next event. TAUT_EVENT_NONE says that more bytes of the peer are needed, or that too much output waits.
//
// Write the output then at the latest. Pings and close frames are answered by themselves.
//
// Any thread may call this, but no two threads at once for connections of one context.
taut_code taut_ws_next(struct taut_ws *ws,
                       struct taut_ws_event *event);

// Accepts the WebSocket that the request asks for, with further headers in the response (server).
//
// If the request breaks a rule, it is refused by a response that says why. `taut_ws_next` reports either.
//
// Any thread may call this, but no two threads at once for connections of one context.
taut_code taut_ws_upgrade(struct taut_ws *ws, const struct taut_header *headers, size_t headers_count);

// Answers the request as plain HTTP (server). Another request may follow on the connection.
//
// Any thread may call this, but no two threads at once for connections of one context.
taut_code taut_ws_respond(struct taut_ws *ws,
                          uint32_t http_status,
                          const struct taut_header *headers,
                          size_t headers_count,
                          const uint8_t *body,
                          size_t body_len);

// Takes a message, whose bytes are copied. It leaves with the next output. The data of the last event may be sent.
//
// TAUT_ERR_FULL says that more bytes wait than TAUT_SET_SLOW_LIMIT, and that the message was not taken.
//
// Any thread may call this, but no two threads at once for connections of one context.
taut_code taut_ws_send(struct taut_ws *ws,
                       const struct taut_message *outgoing);

// Takes a ping of at most 125 bytes.
//
// Any thread may call this, but no two threads at once for connections of one context.
taut_code taut_ws_ping(struct taut_ws *ws, const uint8_t *data, size_t len);

// Sends a close frame behind all messages, with a reason of at most 123 bytes of UTF-8.
//
// TAUT_EVENT_CLOSED follows when the peer answers it, or at the deadline.
//
// Any thread may call this, but no two threads at once for connections of one context.
taut_code taut_ws_close(struct taut_ws *ws,
                        uint32_t close_code,
                        const uint8_t *reason,
                        size_t reason_len,
                        uint64_t now_ms);

// Sets `*output` to the bytes for the peer; empty if none wait. Messages that were taken meanwhile share records.
//
// They are valid until the next call on this connection.
//
// Any thread may call this, but no two threads at once for connections of one context.
taut_code taut_ws_output(struct taut_ws *ws,
                         struct taut_slice *output);

// The first `len` bytes of the output were written.
//
// Any thread may call this, but no two threads at once for connections of one context.
taut_code taut_ws_written(struct taut_ws *ws, size_t len);

// The stream takes no more bytes now: the deadline to send runs until some are written.
//
// Any thread may call this, but no two threads at once for connections of one context.
taut_code taut_ws_blocked(struct taut_ws *ws, uint64_t now_ms);

// Sets `*at_ms` to the time of the next deadline, or to TAUT_NEVER. `taut_ws_on_time` is due then.
//
// Any thread may call this, but no two threads at once for connections of one context.
taut_code taut_ws_deadline(struct taut_ws *ws, uint64_t *at_ms);

// Acts on deadlines that have passed: sends a ping, or ends the connection, which `taut_ws_next` reports.
//
// Read what the peer has sent before this call.
//
// Any thread may call this, but no two threads at once for connections of one context.
taut_code taut_ws_on_time(struct taut_ws *ws, uint64_t now_ms);

// Gives buffers back to the context: the caller is going to wait for the peer.
//
// Any thread may call this, but no two threads at once for connections of one context.
taut_code taut_ws_rest(struct taut_ws *ws);

// Writes the state of the connection into `status`.
//
// Any thread may call this, but no two threads at once for connections of one context.
taut_code taut_ws_get_status(struct taut_ws *ws, struct taut_ws_status *state);

// Writes the result of the TLS handshake into `facts`. Without TLS they are empty.
//
// Any thread may call this, but no two threads at once for connections of one context.
taut_code taut_ws_get_facts(struct taut_ws *ws, struct taut_tls_facts *facts);

// Copies a certificate of the peer, as `taut_tls_peer_certificate` does.
//
// Any thread may call this, but no two threads at once for connections of one context.
taut_code taut_ws_peer_certificate(struct taut_ws *ws,
                                   size_t number,
                                   uint8_t *der,
                                   size_t der_room,
                                   size_t *der_len);

// Accepts the WebSocket that a request asks for.
//
// The response gets these headers, and `subprotocol` if it is not null: one that the client offers. `conn_user` becomes the
// program's pointer of the connection.
//
// Only inside the callback of the request; elsewhere the result is TAUT_ERR_STATE.
taut_code taut_request_upgrade(const struct taut_request *request,
                               const struct taut_header *headers,
                               size_t headers_count,
                               const char *subprotocol,
                               void *conn_user);

// Answers a request as plain HTTP.
//
// Only inside the callback of the request; elsewhere the result is TAUT_ERR_STATE.
taut_code taut_request_respond(const struct taut_request *request,
                               uint32_t http_status,
                               const struct taut_header *headers,
                               size_t headers_count,
                               const uint8_t *body,
                               size_t body_len);

// Takes the right to answer a request later, from any thread, and sets `*ticket` to it. `taut_ticket_free` frees it.
//
// Nothing more is read from the client meanwhile. After TAUT_SET_ANSWER_MS it gets status 408. TAUT_ERR_FULL says that
// too many requests wait, and that this one is answered with status 503.
//
// Only inside the callback of the request; elsewhere the result is TAUT_ERR_STATE.
taut_code taut_request_later(const struct taut_request *request,
                             struct taut_ticket **ticket);

// Writes the result of the TLS handshake into `facts`. Without TLS they are empty.
//
// Only inside the callback of the request; elsewhere the result is TAUT_ERR_STATE.
taut_code taut_request_get_facts(const struct taut_request *request, struct taut_tls_facts *facts);

// 1 if the client still waits, else 0. It may leave, or the time may be over, at any moment.
//
// Any thread may call this at any time.
uint32_t taut_ticket_is_wanted(const struct taut_ticket *ticket);

// Accepts the WebSocket, as `taut_request_upgrade` does. TAUT_ERR_CLOSED says that nobody waits any more.
//
// Any thread may call this at any time. The ticket is used up, and still to be freed.
taut_code taut_ticket_upgrade(const struct taut_ticket *ticket,
                              const struct taut_header *headers,
                              size_t headers_count,
                              const char *subprotocol,
                              void *conn_user);

// Answers as plain HTTP, as `taut_request_respond` does. TAUT_ERR_CLOSED says that nobody waits any more.
//
// Any thread may call this at any time. The ticket is used up, and still to be freed.
taut_code taut_ticket_respond(const struct taut_ticket *ticket,
                              uint32_t http_status,
                              const struct taut_header *headers,
                              size_t headers_count,
                              const uint8_t *body,
                              size_t body_len);

// Frees a ticket; null is ignored. A request that has no answer gets status 500.
//
// Any thread may call this, once and as the last call.
void taut_ticket_free(struct taut_ticket *ticket);

// Replaces the target that a client is about to connect to again: a new token in a header, another URI.
//
// Only inside the callback `redial`; elsewhere the result is TAUT_ERR_STATE.
taut_code taut_redial_set(struct taut_redial *redial, const struct taut_target *to, struct taut_error *error);

// Sends a message, whose bytes are copied.
//
// In a callback of the connection it leaves with all others when the callback has returned. From anywhere else it goes
// by way of the connection's loop. TAUT_ERR_FULL says that it was dropped, since too much waits.
//
// Any thread may call this at any time, until the server or client is freed.
taut_code taut_conn_send(struct taut_conn conn,
                         const struct taut_message *outgoing);

// Begins to close a connection, with a code and a reason of at most 123 bytes of UTF-8. The callback `close` follows.
//
// Any thread may call this at any time, until the server or client is freed.
taut_code taut_conn_close(struct taut_conn conn,
                          uint32_t close,
                          const uint8_t *reason,
                          size_t reason_len);

// 1 if the connection is open, else 0. It can end at any moment, unless this is a callback of it.
//
// Any thread may call this at any time, until the server or client is freed.
uint32_t taut_conn_is_open(struct taut_conn conn);

// Sends a piece of a message. TAUT_LAST among its flags ends the message; each piece of text is UTF-8 by itself.
//
// Until the end, other messages are refused with TAUT_ERR_FULL.
//
// Only inside a callback of the connection; elsewhere the result is TAUT_ERR_STATE.
taut_code taut_conn_send_piece(struct taut_conn conn,
                               const struct taut_message *piece);

// Sends a ping of at most 125 bytes. The callback `pong` gets the answer.
//
// Only inside a callback of the connection; elsewhere the result is TAUT_ERR_STATE.
taut_code taut_conn_ping(struct taut_conn conn, const uint8_t *data, size_t len);

// Subscribes the connection to a topic. TAUT_ERR_FULL says that it has TAUT_SET_MAX_SUBSCRIPTIONS others.
//
// Only inside a callback of the connection; elsewhere the result is TAUT_ERR_STATE.
taut_code taut_conn_subscribe(struct taut_conn conn, const uint8_t *topic, size_t topic_len);

// Subscribes the connection to all topics whose names begin with this text.
//
// Only inside a callback of the connection; elsewhere the result is TAUT_ERR_STATE.
taut_code taut_conn_subscribe_prefix(struct taut_conn conn, const uint8_t *topic, size_t topic_len);

// Ends the subscription to a topic, if there is one.
//
// Only inside a callback of the connection; elsewhere the result is TAUT_ERR_STATE.
taut_code taut_conn_unsubscribe(struct taut_conn conn, const uint8_t *topic, size_t topic_len);

// Ends the subscription to all topics that begin with this text, if there is one.
//
// Only inside a callback of the connection; elsewhere the result is TAUT_ERR_STATE.
taut_code taut_conn_unsubscribe_prefix(struct taut_conn conn, const uint8_t *topic, size_t topic_len);

// Sends a message to every subscriber of a topic on every loop, also to this connection if it is one.
//
// From other threads, use `taut_server_publish`.
//
// Only inside a callback of the connection; elsewhere the result is TAUT_ERR_STATE.
taut_code taut_conn_publish(struct taut_conn conn,
                            const uint8_t *topic,
                            size_t topic_len,
                            const struct taut_message *outgoing);

// Publishes as `taut_conn_publish` does, but not to this connection.
//
// Only inside a callback of the connection; elsewhere the result is TAUT_ERR_STATE.
taut_code taut_conn_publish_to_others(struct taut_conn conn,
                                      const uint8_t *topic,
                                      size_t topic_len,
                                      const struct taut_message *outgoing);

// Calls the callback `timer` with `id` after this time, once, up to 64 ms late. A timer with the same id moves.
//
// Only inside a callback of the connection; elsewhere the result is TAUT_ERR_STATE.
taut_code taut_conn_set_timer(struct taut_conn conn,
                              uint64_t after_ms,
                              uint64_t id);

// Cancels a timer of the connection. TAUT_ERR_VALUE says that it has none with this id.
//
// Only inside a callback of the connection; elsewhere the result is TAUT_ERR_STATE.
taut_code taut_conn_cancel_timer(struct taut_conn conn, uint64_t id);

// Pauses reading from the peer if `pause` is 1, and resumes it if it is 0. Messages that arrived already still come.
//
// Only inside a callback of the connection; elsewhere the result is TAUT_ERR_STATE.
taut_code taut_conn_pause(struct taut_conn conn,
                          uint32_t pause);

// Sets `*waiting` to the number of bytes that wait for the peer.
//
// Only inside a callback of the connection; elsewhere the result is TAUT_ERR_STATE.
taut_code taut_conn_buffered(struct taut_conn conn, size_t *waiting);

// Asks for the callback `drain` once no bytes wait for the peer, also if none wait now.
//
// Only inside a callback of the connection; elsewhere the result is TAUT_ERR_STATE.
taut_code taut_conn_notify_drain(struct taut_conn conn);

// Closes a client's connection, and has it connect again after its wait.
//
// Only inside a callback of the connection; elsewhere the result is TAUT_ERR_STATE.
taut_code taut_conn_reconnect(struct taut_conn conn);

// Sets the program's pointer of the connection. It is null at first, unless `taut_request_upgrade` has set it.
//
// Only inside a callback of the connection; elsewhere the result is TAUT_ERR_STATE.
taut_code taut_conn_set_user(struct taut_conn conn,
                             void *user);

// Sets `*user` to the program's pointer of the connection.
//
// Only inside a callback of the connection; elsewhere the result is TAUT_ERR_STATE.
taut_code taut_conn_get_user(struct taut_conn conn, void **user);

// Sets `*dial` to the number of the target that a client's connection belongs to.
//
// Only inside a callback of the connection; elsewhere the result is TAUT_ERR_STATE.
taut_code taut_conn_get_dial(struct taut_conn conn, uint64_t *dial);

// Writes the peer's address into `text`, with a zero byte behind it, cut if `text_room` is too small.
//
// Only inside a callback of the connection; elsewhere the result is TAUT_ERR_STATE.
taut_code taut_conn_get_peer(struct taut_conn conn, char *text, size_t text_room);

// Writes the address of the socket's peer into `text`, as `taut_conn_get_peer` does: the client, or the proxy next to the server
// (`taut_settings_proxy_protocol_from`, `taut_settings_forwarded_from`).
//
// Only inside a callback of the connection; elsewhere the result is TAUT_ERR_STATE.
taut_code taut_conn_get_direct_peer(struct taut_conn conn,
                                    char *text,
                                    size_t text_room);

// Writes the result of the TLS handshake into `facts`. Without TLS they are empty.
//
// Only inside a callback of the connection; elsewhere the result is TAUT_ERR_STATE.
taut_code taut_conn_get_facts(struct taut_conn conn, struct taut_tls_facts *facts);

// Copies a certificate of the peer, as `taut_tls_peer_certificate` does.
//
// Only inside a callback of the connection; elsewhere the result is TAUT_ERR_STATE.
taut_code taut_conn_peer_certificate(struct taut_conn conn,
                                     size_t number,
                                     uint8_t *der,
                                     size_t der_room,
                                     size_t *der_len);

// Calls the callback `loop_timer` with `id` after this time, once, up to a millisecond late. One with the same id moves.
//
// Only inside a callback of the loop or of one of its connections; elsewhere the result is TAUT_ERR_STATE.
taut_code taut_loop_set_timer(const struct taut_loop *owner,
                              uint64_t after_ms,
                              uint64_t id);

// Cancels a timer of the loop. TAUT_ERR_VALUE says that it has none with this id.
//
// Only inside a callback of the loop or of one of its connections; elsewhere the result is TAUT_ERR_STATE.
taut_code taut_loop_cancel_timer(const struct taut_loop *owner, uint64_t id);

// Sends a message to every subscriber of a topic on every loop.
//
// Only inside a callback of the loop or of one of its connections; elsewhere the result is TAUT_ERR_STATE.
taut_code taut_loop_publish(const struct taut_loop *owner,
                            const uint8_t *topic,
                            size_t topic_len,
                            const struct taut_message *outgoing);

// Starts a server and sets `*server` to it. `taut_server_free` ends and frees it.
//
// Callbacks may run before this returns, on the threads of the loops.
//
// Any thread may call this at any time.
taut_code taut_server_start(const struct taut_server_options *options,
                            struct taut_server **server,
                            struct taut_error *error);

// Writes an address at which a server listens into `text`, with a zero byte behind it, cut if `text_room` is too small.
//
// `number` counts from 0, in the order of the options. The port is the actual one. TAUT_ERR_VALUE says that there are
// fewer.
//
// Any thread may call this at any time.
taut_code taut_server_address(const struct taut_server *server,
                              size_t number,
                              char *text,
                              size_t text_room);

// Sends a message to every subscriber of a topic.
//
// TAUT_ERR_FULL says that a loop does not keep up and did not take the message; all others were tried too.
//
// Any thread may call this at any time.
taut_code taut_server_publish(const struct taut_server *server,
                              const uint8_t *topic,
                              size_t topic_len,
                              const struct taut_message *outgoing);

// Sends a message to every open connection, as `taut_server_publish` does.
//
// Any thread may call this at any time.
taut_code taut_server_broadcast(const struct taut_server *server, const struct taut_message *outgoing);

// Sets `*count` to the number of subscriptions that match a topic. It waits for the loops.
//
// Any thread may call this at any time, but no callback, which gets TAUT_ERR_STATE.
taut_code taut_server_subscribers(const struct taut_server *server,
                                  const uint8_t *topic,
                                  size_t topic_len,
                                  size_t *count);

// Has new connections use the applied settings of this configuration. Others go on, and after an error nothing has changed.
//
// A server keeps the settings that it started with until then, whatever is applied. Certificates must be valid now.
//
// Any thread may call this at any time. It signs with each key once, and so takes milliseconds.
taut_code taut_server_reload(const struct taut_server *server,
                             const struct taut_tls_config *tls,
                             struct taut_error *error);

// Writes the counters of all loops, added up, into an array of `room` elements, and sets `*count` to their number.
//
// If `room` is smaller, the first ones are written and the result is TAUT_ERR_SIZE.
//
// Any thread may call this at any time.
taut_code taut_server_counters(const struct taut_server *server,
                               struct taut_counter *counters,
                               size_t room,
                               size_t *count);

// Sets `*value` to one counter of all loops, added up. TAUT_ERR_VALUE says that none has this name.
//
// Any thread may call this at any time.
taut_code taut_server_counter(const struct taut_server *server, const char *name, uint64_t *value);

// Stops accepting, and closes all connections with a code such as 1001 (going away) and a reason.
//
// Connections that are not closed after `deadline_ms` are aborted. This returns at once; `taut_server_join` waits.
//
// Any thread may call this at any time.
taut_code taut_server_drain(const struct taut_server *server,
                            uint32_t close,
                            const uint8_t *reason,
                            size_t reason_len,
                            uint64_t deadline_ms);

// Waits until every loop has ended, after a drain or a failure. TAUT_NEVER waits for ever.
//
// TAUT_ERR_TIMEOUT says that a loop still runs: a connection, or a callback that does not return. The text names the error of
// a loop that failed.
//
// Any thread may call this at any time, but no callback, which gets TAUT_ERR_STATE.
taut_code taut_server_join(const struct taut_server *server,
                           uint64_t timeout_ms,
                           struct taut_error *error);

// Aborts all connections of a server, waits until its loops have ended, and frees it. Null is ignored.
//
// It waits as long as a callback runs: drain and join before, if one may not return. No callback runs after this.
//
// Any thread may call this, once and as the last call, but no callback, which gets TAUT_ERR_STATE.
taut_code taut_server_free(struct taut_server *server);

// Starts a loop for outgoing connections and sets `*client` to it. `taut_client_free` ends and frees it.
//
// Any thread may call this at any time.
taut_code taut_client_start(const struct taut_client_options *options,
                            struct taut_client **client,
                            struct taut_error *error);

// Connects to a target, and sets `*dial` to its number, which callbacks get. `dial` may be null.
//
// The callback `open` or `connect_failed` follows. `dial_end` ends the use of the number.
//
// Any thread may call this at any time, callbacks too.
taut_code taut_client_connect(const struct taut_client *client,
                              const struct taut_target *to,
                              uint64_t *dial,
                              struct taut_error *error);

// Gives a target up, and closes its connection with a code and a reason, if there is one.
//
// TAUT_ERR_CLOSED says that the target was given up already.
//
// Any thread may call this at any time, callbacks too.
taut_code taut_client_disconnect(const struct taut_client *client,
                                 uint64_t dial,
                                 uint32_t close,
                                 const uint8_t *reason,
                                 size_t reason_len);

// Writes the counters, as `taut_server_counters` does.
//
// Any thread may call this at any time.
taut_code taut_client_counters(const struct taut_client *client,
                               struct taut_counter *counters,
                               size_t room,
                               size_t *count);

// Sets `*value` to one counter, as `taut_server_counter` does.
//
// Any thread may call this at any time.
taut_code taut_client_counter(const struct taut_client *client, const char *name, uint64_t *value);

// Gives all targets up and closes all connections, as `taut_server_drain` does.
//
// Any thread may call this at any time.
taut_code taut_client_drain(const struct taut_client *client,
                            uint32_t close,
                            const uint8_t *reason,
                            size_t reason_len,
                            uint64_t deadline_ms);

// Waits until the loop has ended, as `taut_server_join` does.
//
// Any thread may call this at any time, but no callback, which gets TAUT_ERR_STATE.
taut_code taut_client_join(const struct taut_client *client, uint64_t timeout_ms, struct taut_error *error);

// Aborts all connections of a client, waits until its loop has ended, and frees it. Null is ignored.
//
// Any thread may call this, once and as the last call, but no callback, which gets TAUT_ERR_STATE.
taut_code taut_client_free(struct taut_client *client);

// Connects to a target, waits until the connection is open, and sets `*socket` to it. `taut_socket_free` frees it.
//
// `tls` is a configuration for clients that was applied; null is for targets that begin with `ws://`. `settings` may be
// null. Unless `timeout_ms` is TAUT_NEVER, it replaces TAUT_SET_CONNECT_MS and TAUT_SET_HANDSHAKE_MS: the longest time for
// each of these steps. Pings are answered and deadlines are kept only inside calls on the socket.
//
// Any thread may call this at any time. No other thread may use the socket.
taut_code taut_socket_connect(const struct taut_tls_config *tls,
                              const struct taut_target *to,
                              const struct taut_settings *limits,
                              uint64_t timeout_ms,
                              struct taut_socket **socket,
                              struct taut_error *error);

// Sends a message, whose bytes are copied. While the peer is slow it waits, at most for TAUT_SET_SEND_MS.
//
// Only the thread that made the socket may call this; others get TAUT_ERR_STATE.
taut_code taut_socket_send(struct taut_socket *socket,
                           const struct taut_message *outgoing,
                           struct taut_error *error);

// Waits at most `timeout_ms` for a message, or for ever with TAUT_NEVER; 0 takes one that is there.
//
// `incoming` gets the message. Its bytes are valid until the next call on this socket. The caller sets its `size`.
//
// Only the thread that made the socket may call this; others get TAUT_ERR_STATE.
taut_code taut_socket_receive(struct taut_socket *socket,
                              uint64_t timeout_ms,
                              struct taut_message *incoming,
                              struct taut_error *error);

// Sends a close frame, and waits for the peer's, at most for TAUT_SET_CLOSE_MS. Messages that were not taken are lost.
//
// Only the thread that made the socket may call this; others get TAUT_ERR_STATE.
taut_code taut_socket_close(struct taut_socket *socket,
                            uint32_t close,
                            const uint8_t *reason,
                            size_t reason_len,
                            struct taut_error *error);

// The end of the connection, once a call has answered TAUT_ERR_CLOSED because of the peer; else null.
//
// It is valid until the socket is freed. Only the thread that made the socket may call this; others get null.
const struct taut_closed *taut_socket_closed(struct taut_socket *socket);

// Writes the result of the TLS handshake into `facts`. Without TLS they are empty.
//
// Only the thread that made the socket may call this; others get TAUT_ERR_STATE.
taut_code taut_socket_get_facts(struct taut_socket *socket, struct taut_tls_facts *facts);

// Frees a socket; null is ignored. A connection that is open is cut.
//
// Any thread may call this, such as one that collects garbage: once, as the last call, and while no other call runs.
taut_code taut_socket_free(struct taut_socket *socket);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* TAUTLINE_H */
