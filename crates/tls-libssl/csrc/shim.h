/* A shim over one library of the OpenSSL family. It is compiled once for each library, against that library's headers. */
#ifndef TAUTLINE_SHIM_H
#define TAUTLINE_SHIM_H

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#if defined(OPENSSL_IS_BORINGSSL) || defined(OPENSSL_IS_AWSLC)
#define TL_BORING_FAMILY 1
#else
#define TL_BORING_FAMILY 0
#endif

#define TL_SESSION SSL_SESSION
#include "names.h"
#include "table.h"
#include "windows.h"

/* An OCSP response for the certificate of an identity. */
typedef struct tl_staple {
    struct tl_staple *next; /* of the same group */
    X509 *leaf;
    uint64_t until; /* the second since 1970 from which on it is not sent */
    size_t len;
    uint8_t response[];
} tl_staple;

struct tl_identity {
    X509 *leaf;
    STACK_OF(X509) *chain; /* without the leaf */
    EVP_PKEY *key;
    tl_staple *staple; /* null if there is none */
};

struct tl_context {
    int server;
    int verify;
    int key_log; /* a file descriptor, or -1 */
    int secrets;
    size_t groups_len;
    SSL_CTX **groups; /* connections are made of the first; the others hold the certificates of other names */
    tl_staple **staples; /* of each group */
    size_t names_len;
    tl_name *names; /* sorted */
    uint8_t *alpn;
    size_t alpn_len;
    tl_find_key find_key;
    const void *ticket_keys;
};

#define TL_SESSIONS 8

struct tl_conn {
    SSL *ssl;
    tl_windows windows;
    int may_have_errors; /* an operation may have left errors in the queue, or the next data may */
    int verify;          /* the first error of verification */
    /* Noted because the library does not report it. */
    int alert_received;
    int group;   /* the registry's number of the key exchange group, or 0 */
    int rekeyed; /* whether a KeyUpdate arrived */
    X509 *refused;
    size_t sessions_len;
    SSL_SESSION *sessions[TL_SESSIONS];
    char server_name[TL_NAME];
    /* The first traffic secrets of client and server, if the context keeps them. */
    size_t secret_lens[2];
    uint8_t secrets[2][TL_SECRET];
#ifdef TL_WOLFSSL
    /* The start of an incomplete header of a handshake message. */
    size_t header_len;
    uint8_t header[4];
    /* Kept because the library drops the ticket of a session that it resumes. */
    SSL_SESSION *offered;
#endif
    /* For benchmarks. */
    BIO *memory_in;
    BIO *memory_out;
};

/* context.c */
tl_identity *tl_identity_new(const uint8_t *chain, size_t chain_len, const uint8_t *key, size_t key_len,
                             tl_refusal *refusal);
void tl_identity_free(tl_identity *identity);
int32_t tl_identity_kind(const tl_identity *identity);
int32_t tl_identity_bits(const tl_identity *identity);
size_t tl_identity_names(const tl_identity *identity, char *text, size_t cap);
int32_t tl_identity_validity(const tl_identity *identity, char *from, char *until, size_t cap);
int32_t tl_identity_linked(const tl_identity *identity);
int32_t tl_identity_fits(const tl_identity *identity, int32_t server);
int32_t tl_identity_sign(const tl_identity *identity);
int32_t tl_identity_staple(tl_identity *identity, const uint8_t *response, size_t len, uint64_t until);
size_t tl_x509_names(X509 *certificate, char *text, size_t cap);
int32_t tl_x509_validity(X509 *certificate, char *from, char *until, size_t cap);

tl_context *tl_context_new(const tl_options *options, tl_refusal *refusal);
void tl_context_free(tl_context *context);
int32_t tl_context_trust_pem(tl_context *context, const uint8_t *pem, size_t len, tl_refusal *refusal);
int32_t tl_context_trust_der(tl_context *context, const uint8_t *der, size_t len);
int32_t tl_context_use(tl_context *context, size_t group, const tl_identity *identity, tl_refusal *refusal);
int32_t tl_context_names(tl_context *context, const tl_name *names, size_t len);
int32_t tl_context_seal(tl_context *context);

/* staple.c */
/* Has a group staple the response of an identity, which may have none. Returns whether there was memory. */
int32_t tl_staple_use(tl_context *context, size_t group, const tl_identity *identity);
/* Frees a list of responses. */
void tl_staples_free(tl_staple *staple);

/* tickets.c */
int32_t tl_random(uint8_t *bytes, size_t len);
/* Has `ctx` seal and open tickets with the keys of its context. */
int32_t tl_tickets_use(SSL_CTX *ctx);

/* memory.c */
void tl_memory_init(void);

/* Copies a session for the client that resumes it. A connection changes its own, for example marks it as failed. */
static inline SSL_SESSION *tl_session_copy(SSL_SESSION *session)
{
#if TL_BORING_FAMILY
    /* In these libraries sessions are immutable. */
    SSL_SESSION_up_ref(session);
    return session;
#else
    return SSL_SESSION_dup(session);
#endif
}

/* connection.c */
int32_t tl_init(void);
tl_conn *tl_conn_accept(const tl_context *context);
tl_conn *tl_conn_connect(const tl_context *context, const char *name, const uint8_t *ip, size_t ip_len,
                         SSL_SESSION *session);
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
void tl_conn_info(const tl_conn *conn, tl_info *info);
size_t tl_conn_peer_certificate(const tl_conn *conn, size_t index, uint8_t **der);
size_t tl_conn_refused_names(const tl_conn *conn, char *text, size_t cap);
int32_t tl_conn_refused_validity(const tl_conn *conn, char *from, char *until, size_t cap);
void tl_conn_keep_session(tl_conn *conn);
SSL_SESSION *tl_conn_session(tl_conn *conn);
void tl_conn_faults(tl_conn *conn, int32_t spill_fails);
void tl_conn_flush(tl_conn *conn, uint8_t *out, size_t out_cap, tl_result *result);
size_t tl_conn_secrets(tl_conn *conn, uint8_t *client, uint8_t *server);
int32_t tl_conn_memory(tl_conn *conn);

/* Copies the library's text for the error `code` (0: the oldest in the queue). */
void tl_reason(unsigned long code, char *reason);

#endif
