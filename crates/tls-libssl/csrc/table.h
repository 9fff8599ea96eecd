/*
 * The interface to the Rust side of this crate: a table of functions over one TLS library, filled by that library's shim.
 *
 * Only the symbol TL_TABLE stays visible, so that libraries can stand side by side in one program.
 * The functions call back into Rust only for a ticket's key. They keep no pointer of the caller's after the call, except the
 * ticket keys.
 * src/sys/table.rs mirrors the types: change both together. Every shim fills every field that is not optional.
 */
#ifndef TAUTLINE_TABLE_H
#define TAUTLINE_TABLE_H

#include <stddef.h>
#include <stdint.h>

/* The outcome of an operation. */
enum {
    TL_DONE = 0,   /* complete; a read has opened `plain` bytes */
    TL_WANT = 1,   /* the library needs the peer's next record */
    TL_CLOSED = 2, /* the peer's close_notify arrived */
    TL_FAILED = 3, /* `failure` has the reason */
};

/* The reason why an operation failed. */
enum {
    TL_PROTOCOL = 1,       /* the peer broke the protocol; `reason` says how */
    TL_ALERT = 2,          /* the peer sent the fatal alert `alert` */
    TL_CERTIFICATE = 3,    /* the peer's certificate was rejected; `verify` says why */
    TL_NO_CERTIFICATE = 4, /* the peer sent no certificate, but one is required */
    TL_NO_ALPN = 5,        /* no application protocol in common */
    TL_BAD_RECORD = 6,     /* a record does not authenticate */
    TL_VERSION = 7,        /* no version in common */
    TL_NO_CIPHER = 8,      /* no suite, group or signature in common */
    TL_LIBRARY = 9,        /* the library failed on its own; `reason` says how */
    TL_MEMORY = 10,        /* no memory for output; the connection cannot be used again */
};

/* The reason why a certificate was rejected. */
enum {
    TL_VERIFY_OTHER = 0, /* `reason` says why */
    TL_VERIFY_EXPIRED = 1,
    TL_VERIFY_NOT_YET = 2,
    TL_VERIFY_ISSUER = 3,
    TL_VERIFY_NAME = 4,
    TL_VERIFY_PURPOSE = 5,
    TL_VERIFY_SIGNATURE = 6,
    TL_VERIFY_AUTHORITY = 7,
    TL_VERIFY_REVOKED = 8,
};

/* The reason why a configuration was rejected. */
enum {
    TL_CONFIG_LIBRARY = 1,
    TL_CONFIG_NO_CERTIFICATE = 2,
    TL_CONFIG_BAD_CERTIFICATE = 3,
    TL_CONFIG_NO_KEY = 4,
    TL_CONFIG_BAD_KEY = 5,
    TL_CONFIG_MISMATCH = 6,
    TL_CONFIG_KEY_LOG = 7,
    TL_CONFIG_ED25519 = 8, /* the library lacks Ed25519 */
};

#define TL_REASON 120

/* Longest output of a TLS 1.3 hash, and so most bytes of a traffic secret. */
#define TL_SECRET 48

/* Each shim defines these types. */
typedef struct tl_identity tl_identity;
typedef struct tl_context tl_context;
typedef struct tl_conn tl_conn;
#ifdef TL_SESSION
typedef TL_SESSION tl_session;
#else
typedef struct tl_session tl_session;
#endif

typedef struct {
    int32_t status;
    int32_t failure;
    int32_t alert;
    int32_t verify;
    size_t used;     /* bytes of the input that the library consumed */
    size_t written;  /* bytes in the output window */
    size_t spilled;  /* further output, for `conn_spill` */
    size_t plain;    /* bytes of application data */
    int32_t rekeyed; /* whether the peer has changed its keys; known only if the options have `secrets` */
    char reason[TL_REASON];
} tl_result;

typedef struct {
    int32_t kind;
    char reason[TL_REASON];
} tl_refusal;

/* A key that seals tickets. */
typedef struct {
    uint8_t name[16];
    uint8_t cipher[32];
    uint8_t mac[32]; /* for ciphers that do not authenticate */
} tl_ticket_key;

enum {
    TL_NO_KEY = 0,
    TL_CURRENT_KEY = 1, /* seals and opens */
    TL_OTHER_KEY = 2,   /* only opens */
};

/*
 * Copies the key of this name, or the current key if `name` is null, to `key`. Returns TL_CURRENT_KEY and so on.
 *
 * Any thread may call it. The caller must erase `key`.
 */
typedef int32_t (*tl_find_key)(const void *keys, const uint8_t *name, tl_ticket_key *key);

typedef struct {
    int32_t server;
    int32_t lowest; /* 0x0303, 0x0304 */
    int32_t highest;
    int32_t verify;          /* 0: never, 1: if the peer sends a certificate, 2: the peer must send one */
    int32_t resume;          /* whether a server issues tickets, or a client stores sessions */
    size_t groups;           /* number of groups of certificates, which a server selects by name */
    int32_t classical;       /* whether key exchanges with ML-KEM are left out */
    const uint8_t *alpn;     /* protocols, each with its length first */
    size_t alpn_len;
    const char *key_log;     /* the name of a file, or null */
    tl_find_key find_key;    /* for a server that resumes */
    const void *ticket_keys; /* the first argument of `find_key`; must outlive the context */
    size_t tickets_each;     /* tickets for each handshake of TLS 1.3 */
    uint32_t tickets_last;   /* seconds for which a ticket can be opened at least; its announced lifetime */
    int32_t secrets;         /* whether connections keep their traffic secrets, for `conn_secrets` */
} tl_options;

typedef struct {
    int32_t version;
    int32_t suite; /* the registry's number */
    int32_t resumed;
    const uint8_t *alpn;
    size_t alpn_len;
    const char *server_name; /* null if there is none */
    char group[48];
} tl_info;

typedef struct {
    const char *name; /* lower case, perhaps `*.` at the front */
    uint32_t group;
} tl_name;

/*
 * The table. Its functions are documented at their definitions. If the library has a queue of errors for each thread, every
 * function leaves it empty.
 */
typedef struct {
    size_t size;
    int32_t (*init)(void);
    const char *(*version)(void);

    tl_identity *(*identity_new)(const uint8_t *chain, size_t chain_len, const uint8_t *key, size_t key_len,
                                 tl_refusal *refusal);
    void (*identity_free)(tl_identity *identity);
    int32_t (*identity_kind)(const tl_identity *identity);
    int32_t (*identity_bits)(const tl_identity *identity);
    size_t (*identity_names)(const tl_identity *identity, char *text, size_t cap);
    int32_t (*identity_validity)(const tl_identity *identity, char *from, char *until, size_t cap);
    int32_t (*identity_linked)(const tl_identity *identity);
    int32_t (*identity_fits)(const tl_identity *identity, int32_t server);
    int32_t (*identity_sign)(const tl_identity *identity);

    int32_t (*random)(uint8_t *bytes, size_t len);

    tl_context *(*context_new)(const tl_options *options, tl_refusal *refusal);
    void (*context_free)(tl_context *context);
    int32_t (*context_trust_pem)(tl_context *context, const uint8_t *pem, size_t len, tl_refusal *refusal);
    int32_t (*context_trust_der)(tl_context *context, const uint8_t *der, size_t len);
    int32_t (*context_use)(tl_context *context, size_t group, const tl_identity *identity, tl_refusal *refusal);
    int32_t (*context_names)(tl_context *context, const tl_name *names, size_t len);
    int32_t (*context_seal)(tl_context *context);

    tl_conn *(*conn_accept)(const tl_context *context);
    tl_conn *(*conn_connect)(const tl_context *context, const char *name, const uint8_t *ip, size_t ip_len,
                             tl_session *session);
    void (*conn_free)(tl_conn *conn);
    void (*conn_handshake)(tl_conn *conn, const uint8_t *in, size_t in_len, uint8_t *out, size_t out_cap,
                           tl_result *result);
    void (*conn_read)(tl_conn *conn, const uint8_t *in, size_t in_len, uint8_t *plain, size_t plain_cap, uint8_t *out,
                      size_t out_cap, tl_result *result);
    void (*conn_write)(tl_conn *conn, const uint8_t *plain, size_t plain_len, uint8_t *out, size_t out_cap,
                       tl_result *result);
    void (*conn_close)(tl_conn *conn, uint8_t *out, size_t out_cap, tl_result *result);
    void (*conn_spill)(tl_conn *conn, uint8_t *out);
    int32_t (*conn_update_keys)(tl_conn *conn);
    void (*conn_info)(const tl_conn *conn, tl_info *info);
    size_t (*conn_peer_certificate)(const tl_conn *conn, size_t index, uint8_t **der);
    size_t (*conn_refused_names)(const tl_conn *conn, char *text, size_t cap);
    int32_t (*conn_refused_validity)(const tl_conn *conn, char *from, char *until, size_t cap);
    void (*conn_keep_session)(tl_conn *conn);
    tl_session *(*conn_session)(tl_conn *conn);
    void (*conn_faults)(tl_conn *conn, int32_t spill_fails);

    void (*session_free)(tl_session *session);
    void (*bytes_free)(uint8_t *bytes);

    /* The following TL_OPTIONAL fields may be null. */
    void (*conn_flush)(tl_conn *conn, uint8_t *out, size_t out_cap, tl_result *result);
    size_t (*conn_secrets)(tl_conn *conn, uint8_t *client, uint8_t *server);
    int32_t (*conn_memory)(tl_conn *conn);
    int32_t (*identity_staple)(tl_identity *identity, const uint8_t *response, size_t len, uint64_t until);
} tl_table;

#define TL_OPTIONAL 4

extern const tl_table TL_TABLE;

#endif
