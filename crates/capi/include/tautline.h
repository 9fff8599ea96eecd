/* Tautline: TLS in one call.
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

// A configuration for any number of sessions. All functions on it may be called from any thread at any time.
typedef struct taut_tls_config taut_tls_config;

// One TLS connection. Any thread may use it, one call at a time.
typedef struct taut_tls taut_tls;

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
// `taut_tls_handshake`, possibly in several threads at once for different sessions. It must not throw, and it must not
// call a function on the session of the handshake, which answers TAUT_ERR_BUSY.
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
    // Result: bytes of plaintext that wait for room in `plain`.
    size_t plain_waiting;
    // Result: bytes for the peer that wait for room in `out`.
    size_t out_waiting;
    // Result: one of TAUT_WANT_….
    uint32_t want;
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

// Has a server derive its ticket keys from a secret of 32 random bytes or more, which all hosts of a fleet share, so that
// each resumes the sessions of all. Keys change every `epoch_seconds`. The bytes are copied.
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

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* TAUTLINE_H */
