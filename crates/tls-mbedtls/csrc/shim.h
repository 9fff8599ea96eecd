/* A shim over Mbed TLS 3.6: the declarations that its files share. */
#ifndef TAUTLINE_SHIM_H
#define TAUTLINE_SHIM_H

/* The library's private headers. KeyUpdate, which it lacks, needs the keys of its records. */
#include "ssl_misc.h"
#include "ssl_tls13_keys.h"

#include "mbedtls/error.h"
#include "mbedtls/oid.h"
#include "mbedtls/pk.h"
#include "mbedtls/psa_util.h"
#include "mbedtls/ssl.h"
#include "mbedtls/x509_crt.h"
#include "psa/crypto.h"

#define TL_SESSION mbedtls_ssl_session
#include "names.h"
#include "table.h"
#include "windows.h"

/* The random generator of PSA, which all threads share. */
#define TL_RANDOM mbedtls_psa_get_random, MBEDTLS_PSA_RANDOM_STATE

#define TL_NAMES 4096
#define TL_TIME 24

struct tl_identity {
    unsigned references;
    mbedtls_x509_crt chain; /* the leaf first */
    mbedtls_pk_context key;
};

typedef struct {
    tl_identity **members;
    size_t len;
} tl_group;

struct tl_context {
    int server;
    int verify;
    int resume;
    tl_find_key find_key;
    const void *ticket_keys;
    uint32_t tickets_last;
    int key_log; /* a file descriptor, or -1 */
    mbedtls_ssl_config conf;
    mbedtls_x509_crt trusted;
    size_t groups_len;
    tl_group *groups; /* the first serves clients that send no name, or an unknown one */
    size_t names_len;
    tl_name *names; /* sorted */
    char *alpn;     /* protocols, each with a terminating zero */
    const char **alpn_list;
};

/* The properties of a rejected certificate, which the library drops at once. */
typedef struct {
    int32_t validity;
    char from[TL_TIME];
    char until[TL_TIME];
    size_t names_len;
    char names[TL_NAMES];
} tl_refused;

#define TL_SESSIONS 8

/* The longest content of a record. */
#define TL_PLAIN 16384

/* RFC 8446, section 6.2; the library lacks it. */
#define TL_ALERT_CERTIFICATE_REQUIRED 116

/* Longest handshake message that is accepted after the handshake: a ticket. */
#define TL_MESSAGE 16384

struct tl_conn {
    mbedtls_ssl_context ssl;
    const tl_context *context;
    tl_windows windows;
    /* TLS 1.3 after the handshake: an incomplete handshake message, and whether our keys must change. */
    uint8_t *message;
    size_t message_len;
    int update;
    int alert;  /* the received alert, or -1 */
    int closed; /* whether close_notify was sent */
    /* Negotiated parameters that the library drops. */
    uint16_t group;
    int resumed;
    uint32_t verify; /* the library's flags of verification */
    tl_refused *refused;
    uint8_t ip[16]; /* the host that a client expects, if it has no name */
    size_t ip_len;
    size_t sessions_len;
    mbedtls_ssl_session *sessions[TL_SESSIONS];
    char server_name[TL_NAME];
};

/* identity.c */
tl_identity *tl_identity_new(const uint8_t *chain, size_t chain_len, const uint8_t *key, size_t key_len,
                             tl_refusal *refusal);
tl_identity *tl_identity_share(tl_identity *identity);
void tl_identity_free(tl_identity *identity);
int32_t tl_identity_kind(const tl_identity *identity);
int32_t tl_identity_bits(const tl_identity *identity);
size_t tl_identity_names(const tl_identity *identity, char *text, size_t cap);
int32_t tl_identity_validity(const tl_identity *identity, char *from, char *until, size_t cap);
int32_t tl_identity_linked(const tl_identity *identity);
int32_t tl_identity_fits(const tl_identity *identity, int32_t server);
int32_t tl_identity_sign(const tl_identity *identity);
size_t tl_crt_names(const mbedtls_x509_crt *certificate, char *text, size_t cap);
int32_t tl_crt_validity(const mbedtls_x509_crt *certificate, char *from, char *until, size_t cap);
/* Copies the library's text for an error. */
void tl_reason(int code, char *reason);
/* Adds every certificate in `pem` to `chain`. Returns whether it succeeded. */
int tl_read_chain(mbedtls_x509_crt *chain, const uint8_t *pem, size_t len, tl_refusal *refusal);

/* context.c */
tl_context *tl_context_new(const tl_options *options, tl_refusal *refusal);
void tl_context_free(tl_context *context);
int32_t tl_context_trust_pem(tl_context *context, const uint8_t *pem, size_t len, tl_refusal *refusal);
int32_t tl_context_trust_der(tl_context *context, const uint8_t *der, size_t len);
int32_t tl_context_use(tl_context *context, size_t group, const tl_identity *identity, tl_refusal *refusal);
int32_t tl_context_names(tl_context *context, const tl_name *names, size_t len);
int32_t tl_context_seal(tl_context *context);
/* Callbacks of each connection, which note what the connection needs. */
int tl_on_verify(void *user, mbedtls_x509_crt *certificate, int depth, uint32_t *flags);
void tl_on_secret(void *user, mbedtls_ssl_key_export_type type, const unsigned char *secret, size_t secret_len,
                  const unsigned char client_random[32], const unsigned char server_random[32],
                  mbedtls_tls_prf_types prf);

/* tickets.c */
int32_t tl_random(uint8_t *bytes, size_t len);
/* Seals or opens a ticket; `user` is the context. */
int tl_ticket_seal(void *user, const mbedtls_ssl_session *session, unsigned char *start, const unsigned char *end,
                   size_t *len, uint32_t *lifetime);
int tl_ticket_open(void *user, mbedtls_ssl_session *session, unsigned char *ticket, size_t len);

/* connection.c */
/* The connection in use on this thread. Callbacks for tickets do not receive it. */
extern _Thread_local const tl_conn *tl_current;
tl_conn *tl_conn_accept(const tl_context *context);
tl_conn *tl_conn_connect(const tl_context *context, const char *name, const uint8_t *ip, size_t ip_len,
                         mbedtls_ssl_session *session);
void tl_conn_free(tl_conn *conn);
void tl_conn_handshake(tl_conn *conn, const uint8_t *in, size_t in_len, uint8_t *out, size_t out_cap,
                       tl_result *result);
void tl_conn_read(tl_conn *conn, const uint8_t *in, size_t in_len, uint8_t *plain, size_t plain_cap, uint8_t *out,
                  size_t out_cap, tl_result *result);
void tl_conn_write(tl_conn *conn, const uint8_t *plain, size_t plain_len, uint8_t *out, size_t out_cap,
                   tl_result *result);
void tl_conn_close(tl_conn *conn, uint8_t *out, size_t out_cap, tl_result *result);
void tl_conn_spill(tl_conn *conn, uint8_t *out);
int32_t tl_conn_update_keys(tl_conn *conn);
void tl_conn_faults(tl_conn *conn, int32_t spill_fails);
/* Keeps the client's session if the context stores sessions. */
void tl_keep_session(tl_conn *conn);

/* info.c */
void tl_conn_info(const tl_conn *conn, tl_info *info);
size_t tl_conn_peer_certificate(const tl_conn *conn, size_t index, uint8_t **der);
size_t tl_conn_refused_names(const tl_conn *conn, char *text, size_t cap);
int32_t tl_conn_refused_validity(const tl_conn *conn, char *from, char *until, size_t cap);
void tl_conn_keep_session(tl_conn *conn);
mbedtls_ssl_session *tl_conn_session(tl_conn *conn);
void tl_session_free(mbedtls_ssl_session *session);
/* Fills the result for the failure `code` of an operation. */
void tl_explain(const tl_conn *conn, int code, tl_result *result);

/* records.c */
/* Opens the one record of TLS 1.3 in `wire` in place, and moves its content to the front. Returns 0 or an error. */
int tl_record_open(tl_conn *conn, uint8_t *wire, size_t len, size_t *plain);
/* Sends a KeyUpdate and changes the sealing keys. */
int tl_record_update(tl_conn *conn);

#endif
