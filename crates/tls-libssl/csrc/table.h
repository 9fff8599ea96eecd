/*
 * What the Rust side of this crate calls: a table of functions over one TLS library. A shim, written for that library, fills
 * it; of all symbols, only the table's name (TL_TABLE) stays visible, so that libraries can stand side by side in one program.
 *
 * Nothing behind it calls back into Rust but for a ticket's key, and nothing keeps a pointer of the caller's beyond the call
 * that brought it but for the ticket keys.
 * src/sys/table.rs mirrors the types; both say so where one changes, and every shim fills every field.
 */
#ifndef TAUTLINE_TABLE_H
#define TAUTLINE_TABLE_H

#include <stddef.h>
#include <stdint.h>

/* What became of an operation. */
enum {
    TL_DONE = 0,   /* complete; for a read: `plain` bytes were opened */
    TL_WANT = 1,   /* the peer's next record is needed */
    TL_CLOSED = 2, /* the peer's close_notify came */
    TL_FAILED = 3, /* see `failure` */
};

/* Why an operation failed. */
enum {
    TL_PROTOCOL = 1,       /* the peer broke the protocol: `reason` */
    TL_ALERT = 2,          /* the peer sent the fatal alert `alert` */
    TL_CERTIFICATE = 3,    /* the peer's certificate was refused: `verify` */
    TL_NO_CERTIFICATE = 4, /* the peer showed none, and one is required */
    TL_NO_ALPN = 5,        /* no application protocol in common */
    TL_BAD_RECORD = 6,     /* a record does not authenticate */
    TL_VERSION = 7,        /* no version in common */
    TL_NO_CIPHER = 8,      /* no suite, group or signature in common */
    TL_LIBRARY = 9,        /* the library failed on its own: `reason` */
    TL_MEMORY = 10,        /* no memory for what must be sent; the connection is dead for good */
};

/* Why a certificate was refused. */
enum {
    TL_VERIFY_OTHER = 0, /* `reason` */
    TL_VERIFY_EXPIRED = 1,
    TL_VERIFY_NOT_YET = 2,
    TL_VERIFY_ISSUER = 3,
    TL_VERIFY_NAME = 4,
    TL_VERIFY_PURPOSE = 5,
    TL_VERIFY_SIGNATURE = 6,
    TL_VERIFY_AUTHORITY = 7,
    TL_VERIFY_REVOKED = 8,
};

/* Why a configuration was refused. */
enum {
    TL_CONFIG_LIBRARY = 1,
    TL_CONFIG_NO_CERTIFICATE = 2,
    TL_CONFIG_BAD_CERTIFICATE = 3,
    TL_CONFIG_NO_KEY = 4,
    TL_CONFIG_BAD_KEY = 5,
    TL_CONFIG_MISMATCH = 6,
    TL_CONFIG_KEY_LOG = 7,
    TL_CONFIG_ED25519 = 8, /* the library has no Ed25519 */
};

#define TL_REASON 120

/* Longest output of a hash of TLS 1.3, which is a traffic secret's length. */
#define TL_SECRET 48

/* What is behind these is the library's. */
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
    size_t used;    /* bytes of the input that the library took */
    size_t written; /* bytes that lie in the output window */
    size_t spilled; /* bytes behind them, for `conn_spill` */
    size_t plain;   /* bytes of application data */
    int32_t rekeyed; /* whether the peer has changed its keys so far; looked for where `secrets` are wanted */
    char reason[TL_REASON];
} tl_result;

typedef struct {
    int32_t kind;
    char reason[TL_REASON];
} tl_refusal;

/* What seals a ticket. */
typedef struct {
    uint8_t name[16];
    uint8_t cipher[32];
    uint8_t mac[32]; /* where the cipher does not authenticate */
} tl_ticket_key;

enum {
    TL_NO_KEY = 0,
    TL_CURRENT_KEY = 1, /* which seals */
    TL_OTHER_KEY = 2,   /* which only opens */
};

/*
 * Gives the key of this name, or where there is no name, the current one: TL_CURRENT_KEY and the like. Any thread may call it.
 * Whoever calls it erases `key`.
 */
typedef int32_t (*tl_find_key)(const void *keys, const uint8_t *name, tl_ticket_key *key);

typedef struct {
    int32_t server;
    int32_t lowest;  /* 0x0303, 0x0304 */
    int32_t highest;
    int32_t verify;  /* 0: not at all, 1: where the peer has a certificate, 2: it must have one */
    int32_t resume;  /* whether tickets are issued, or sessions kept */
    size_t groups;   /* groups of certificates that a server chooses from by name */
    int32_t classical; /* no key exchange with ML-KEM */
    const uint8_t *alpn; /* each protocol behind its length */
    size_t alpn_len;
    const char *key_log; /* a file's name, or null */
    tl_find_key find_key;    /* a server's, where it resumes */
    const void *ticket_keys; /* what `find_key` is called with, for as long as the context lives */
    size_t tickets_each; /* for each handshake of TLS 1.3 */
    uint32_t tickets_last; /* seconds for which a ticket can be opened at least, which it is announced with */
    int32_t secrets; /* connections keep their traffic secrets, for `conn_secrets` */
} tl_options;

typedef struct {
    int32_t version;
    int32_t suite; /* its number in the registry */
    int32_t resumed;
    const uint8_t *alpn;
    size_t alpn_len;
    const char *server_name; /* null where there is none */
    char group[48];
} tl_facts;

typedef struct {
    const char *name; /* lower case, perhaps `*.` at the front */
    uint32_t group;
} tl_name;

/*
 * The table; its functions' comments stand at their definitions. Where the library has a queue of errors for each thread, every
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
    void (*conn_facts)(const tl_conn *conn, tl_facts *facts);
    size_t (*conn_peer_certificate)(const tl_conn *conn, size_t index, uint8_t **der);
    size_t (*conn_refused_names)(const tl_conn *conn, char *text, size_t cap);
    int32_t (*conn_refused_validity)(const tl_conn *conn, char *from, char *until, size_t cap);
    void (*conn_keep_session)(tl_conn *conn);
    tl_session *(*conn_session)(tl_conn *conn);
    void (*conn_faults)(tl_conn *conn, int32_t spill_fails);

    void (*session_free)(tl_session *session);
    void (*bytes_free)(uint8_t *bytes);

    /* From here on they may be null: TL_OPTIONAL of them. */
    void (*conn_flush)(tl_conn *conn, uint8_t *out, size_t out_cap, tl_result *result);
    size_t (*conn_secrets)(tl_conn *conn, uint8_t *client, uint8_t *server);
    int32_t (*conn_memory)(tl_conn *conn);
} tl_table;

#define TL_OPTIONAL 3

extern const tl_table TL_TABLE;

#endif
