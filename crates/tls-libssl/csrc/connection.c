/* One connection over the caller's buffers. */
#include "shim.h"

#include <openssl/crypto.h>
#if TL_BORING_FAMILY
#include <openssl/mem.h>
#endif

#include <limits.h>
#include <stdlib.h>
#include <string.h>

static BIO_METHOD *window_method;

static int window_read(BIO *bio, char *to, int cap)
{
    tl_conn *conn = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
    if (to == NULL || cap <= 0) {
        return 0;
    }
    if (conn->windows.in_len == 0) {
        BIO_set_retry_read(bio);
        return -1;
    }
    size_t len = tl_windows_read(&conn->windows, to, (size_t)cap);
    return (int)len;
}

static int window_write(BIO *bio, const char *from, int len)
{
    tl_conn *conn = BIO_get_data(bio);
    BIO_clear_retry_flags(bio);
    if (from == NULL || len <= 0) {
        return 0;
    }
    return tl_windows_write(&conn->windows, from, (size_t)len) ? len : -1;
}

static long window_ctrl(BIO *bio, int command, long number, void *pointer)
{
    (void)bio;
    (void)number;
    (void)pointer;
    /* A failed flush would fail the handshake. All other commands are ignored. */
    return command == BIO_CTRL_FLUSH;
}

/* Must be called once, before all else. Returns whether it succeeded. */
int32_t tl_init(void)
{
#if !TL_BORING_FAMILY && !defined(LIBRESSL_VERSION_NUMBER)
    tl_memory_init();
#endif
#ifdef OPENSSL_INIT_NO_ATEXIT
    /* Threads may still run when the process exits. */
    if (!OPENSSL_init_ssl(OPENSSL_INIT_NO_ATEXIT, NULL)) {
        return 0;
    }
#endif
    int type = BIO_get_new_index();
    window_method = type < 0 ? NULL : BIO_meth_new(type | BIO_TYPE_SOURCE_SINK, "windows");
    return window_method != NULL && BIO_meth_set_read(window_method, window_read)
           && BIO_meth_set_write(window_method, window_write) && BIO_meth_set_ctrl(window_method, window_ctrl);
}

static tl_conn *conn_new(const tl_context *context)
{
    tl_conn *conn = calloc(1, sizeof(*conn));
    if (conn == NULL) {
        return NULL;
    }
    conn->ssl = SSL_new(context->groups[0]);
    BIO *bio = BIO_new(window_method);
    ERR_clear_error();
    if (conn->ssl == NULL || bio == NULL) {
        BIO_free(bio);
        tl_conn_free(conn);
        return NULL;
    }
    BIO_set_data(bio, conn);
    BIO_set_init(bio, 1);
    SSL_set_bio(conn->ssl, bio, bio);
    SSL_set_app_data(conn->ssl, conn);
    return conn;
}

tl_conn *tl_conn_accept(const tl_context *context)
{
    tl_conn *conn = conn_new(context);
    if (conn != NULL) {
        SSL_set_accept_state(conn->ssl);
    }
    return conn;
}

/*
 * Makes a client's connection to the host `name`, or to the address `ip` (4 or 16 bytes) if there is no name. It offers to
 * resume `session` if there is one.
 */
tl_conn *tl_conn_connect(const tl_context *context, const char *name, const uint8_t *ip, size_t ip_len,
                         SSL_SESSION *session)
{
    tl_conn *conn = conn_new(context);
    if (conn == NULL) {
        return NULL;
    }
    SSL_set_connect_state(conn->ssl);
    int good = 1;
    if (context->verify > 0) {
        X509_VERIFY_PARAM *param = SSL_get0_param(conn->ssl);
        unsigned int flags = X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS;
#ifdef X509_CHECK_FLAG_NEVER_CHECK_SUBJECT
        flags |= X509_CHECK_FLAG_NEVER_CHECK_SUBJECT;
#endif
        X509_VERIFY_PARAM_set_hostflags(param, flags);
        good = name != NULL ? X509_VERIFY_PARAM_set1_host(param, name, strlen(name))
                            : X509_VERIFY_PARAM_set1_ip(param, ip, ip_len);
    }
    if (good && name != NULL) {
        good = (int)SSL_set_tlsext_host_name(conn->ssl, name);
        size_t len = strlen(name);
        memcpy(conn->server_name, name, len < sizeof(conn->server_name) ? len + 1 : 0);
    }
    if (good && session != NULL) {
        good = SSL_set_session(conn->ssl, session);
    }
    ERR_clear_error();
    if (!good) {
        tl_conn_free(conn);
        return NULL;
    }
    return conn;
}

void tl_conn_free(tl_conn *conn)
{
    if (conn == NULL) {
        return;
    }
    if (conn->ssl != NULL) {
        /* Otherwise OpenSSL would mark a session as bad if it did not end by close_notify. */
        SSL_set_shutdown(conn->ssl, SSL_SENT_SHUTDOWN | SSL_RECEIVED_SHUTDOWN);
        SSL_free(conn->ssl);
        ERR_clear_error();
    }
    for (size_t at = 0; at < conn->sessions_len; at++) {
        SSL_SESSION_free(conn->sessions[at]);
    }
    X509_free(conn->refused);
    free(conn->windows.spill);
    OPENSSL_cleanse(conn->secrets, sizeof(conn->secrets));
    free(conn);
}

/* The reason why the certificate was rejected. */
static int32_t verify_kind(long error)
{
    switch (error) {
    case X509_V_ERR_CERT_HAS_EXPIRED:
        return TL_VERIFY_EXPIRED;
    case X509_V_ERR_CERT_NOT_YET_VALID:
        return TL_VERIFY_NOT_YET;
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
        return TL_VERIFY_ISSUER;
    case X509_V_ERR_HOSTNAME_MISMATCH:
    case X509_V_ERR_IP_ADDRESS_MISMATCH:
        return TL_VERIFY_NAME;
    case X509_V_ERR_INVALID_PURPOSE:
        return TL_VERIFY_PURPOSE;
    case X509_V_ERR_CERT_SIGNATURE_FAILURE:
        return TL_VERIFY_SIGNATURE;
    case X509_V_ERR_INVALID_CA:
        return TL_VERIFY_AUTHORITY;
    case X509_V_ERR_CERT_REVOKED:
        return TL_VERIFY_REVOKED;
    default:
        return TL_VERIFY_OTHER;
    }
}

/*
 * Whether the library failed on its own: a key that does not sign, no randomness, no memory. Errors of the parts that parse
 * the peer's input (ASN.1, X.509, points of curves) are not among them.
 */
static int is_library_fault(unsigned long error)
{
    switch (ERR_GET_REASON(error)) {
    case ERR_R_MALLOC_FAILURE:
    case ERR_R_INTERNAL_ERROR:
    case ERR_R_SHOULD_NOT_HAVE_BEEN_CALLED:
    case ERR_R_PASSED_NULL_PARAMETER:
    case ERR_R_EVP_LIB:
    case ERR_R_RSA_LIB:
    case ERR_R_CRYPTO_LIB:
    case ERR_R_RAND_LIB:
    case ERR_R_BUF_LIB:
    case ERR_R_BIO_LIB:
    case ERR_R_SSL_LIB:
#ifdef LIBRESSL_VERSION_NUMBER
    /* The alert that it sends then. A received alert is recognised before. */
    case SSL_AD_REASON_OFFSET + SSL_AD_INTERNAL_ERROR:
#endif
        return 1;
    default:
        return ERR_GET_LIB(error) == ERR_LIB_RSA || ERR_GET_LIB(error) == ERR_LIB_RAND;
    }
}

/* Maps an error of the library to a kind of failure. */
static int32_t failure_kind(unsigned long error)
{
    if (is_library_fault(error)) {
        return TL_LIBRARY;
    }
    if (ERR_GET_LIB(error) != ERR_LIB_SSL) {
        return TL_PROTOCOL;
    }
    switch (ERR_GET_REASON(error)) {
    case SSL_R_CERTIFICATE_VERIFY_FAILED:
#ifdef LIBRESSL_VERSION_NUMBER
    case SSL_R_NO_CERTIFICATE_RETURNED: /* from servers of TLS 1.2 */
#endif
        return TL_CERTIFICATE;
    case SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE:
        return TL_NO_CERTIFICATE;
    case SSL_R_NO_APPLICATION_PROTOCOL:
        return TL_NO_ALPN;
    case SSL_R_DECRYPTION_FAILED_OR_BAD_RECORD_MAC:
        return TL_BAD_RECORD;
    case SSL_R_UNSUPPORTED_PROTOCOL:
#ifdef SSL_R_VERSION_TOO_LOW
    case SSL_R_VERSION_TOO_LOW:
#endif
        return TL_VERSION;
    case SSL_R_NO_SHARED_CIPHER:
#ifdef SSL_R_NO_SUITABLE_SIGNATURE_ALGORITHM
    case SSL_R_NO_SUITABLE_SIGNATURE_ALGORITHM:
#endif
#ifdef SSL_R_NO_COMMON_SIGNATURE_ALGORITHMS
    case SSL_R_NO_COMMON_SIGNATURE_ALGORITHMS:
#endif
#ifdef SSL_R_NO_SUITABLE_KEY_SHARE
    case SSL_R_NO_SUITABLE_KEY_SHARE:
#endif
#ifdef SSL_R_NO_SHARED_GROUP
    case SSL_R_NO_SHARED_GROUP:
#endif
        return TL_NO_CIPHER;
    default:
        return TL_PROTOCOL;
    }
}

/* Whether an error with the number of an alert means that the peer sent that alert. */
static int is_alert(const tl_conn *conn)
{
#ifdef LIBRESSL_VERSION_NUMBER
    return conn->alert_received;
#else
    (void)conn;
    return 1;
#endif
}

/* Fills the result with the first error of the library's TLS part, or else with the first error. */
static void explain(tl_conn *conn, tl_result *result)
{
    unsigned long first = ERR_peek_error();
    unsigned long chosen = 0;
    unsigned long error;
    while ((error = ERR_get_error()) != 0) {
        if (chosen == 0 || (ERR_GET_LIB(chosen) != ERR_LIB_SSL && ERR_GET_LIB(error) == ERR_LIB_SSL)) {
            chosen = error;
        }
    }
    result->status = TL_FAILED;
    if (conn->windows.broken) {
        result->failure = TL_MEMORY;
    } else if (is_alert(conn) && ERR_GET_LIB(chosen) == ERR_LIB_SSL && ERR_GET_REASON(chosen) >= SSL_AD_REASON_OFFSET
               && ERR_GET_REASON(chosen) < SSL_AD_REASON_OFFSET + 256) {
        result->failure = TL_ALERT;
        result->alert = ERR_GET_REASON(chosen) - SSL_AD_REASON_OFFSET;
        if (result->alert == SSL3_AD_CLOSE_NOTIFY) {
            /* AWS-LC and BoringSSL check the level, which TLS 1.3 ignores (RFC 8446, section 6). */
            result->status = TL_CLOSED;
        }
    } else {
        result->failure = chosen == 0 ? TL_PROTOCOL : failure_kind(chosen);
    }
    /* The first of the library's own failures says most; the others are its callers. */
    tl_reason(result->failure == TL_LIBRARY ? first : chosen, result->reason);
    if (result->failure == TL_CERTIFICATE) {
        result->verify = verify_kind(conn->verify);
        const char *text = X509_verify_cert_error_string(conn->verify);
        size_t len = strnlen(text, TL_REASON - 1);
        memcpy(result->reason, text, len);
        result->reason[len] = '\0';
    }
}

/* Lends the caller's windows to the connection. Returns whether it can be used. */
static int arm(tl_conn *conn, const uint8_t *in, size_t in_len, uint8_t *out, size_t out_cap)
{
    int fit = tl_windows_arm(&conn->windows, in, in_len, out, out_cap);
    if (conn->memory_in != NULL && in_len > 0) {
        conn->windows.in_len = 0;
        return fit && BIO_write(conn->memory_in, in, (int)in_len) == (int)in_len;
    }
    return fit;
}

/* Moves the output of a BIO with memory of its own to the window. */
static void collect(tl_conn *conn)
{
    size_t len = BIO_pending(conn->memory_out);
    uint8_t *to = conn->windows.out;
    if (len > conn->windows.out_cap) {
        to = conn->windows.spill = malloc(len);
        conn->windows.spill_cap = len;
        conn->windows.broken = to == NULL;
    }
    if (len > 0 && to != NULL) {
        BIO_read(conn->memory_out, to, (int)len);
        *(to == conn->windows.out ? &conn->windows.out_len : &conn->windows.spill_len) = len;
    }
}

/*
 * Takes the windows back and fills the result of the operation that returned `code`.
 *
 * The queue of errors must be empty when an operation begins, or it would report errors of another. To inspect the queue
 * costs OpenSSL more than all else here. So every call leaves it empty, and calls that only pass data, which add no errors,
 * do not inspect it.
 */
static void disarm(tl_conn *conn, size_t in_len, int code, tl_result *result)
{
    if (conn->memory_out != NULL) {
        collect(conn);
    }
    if (conn->windows.broken) {
        explain(conn, result);
    } else if (code > 0) {
        result->status = TL_DONE;
    } else {
        conn->may_have_errors = 1;
        switch (SSL_get_error(conn->ssl, code)) {
        case SSL_ERROR_WANT_READ:
            result->status = TL_WANT;
            break;
        case SSL_ERROR_ZERO_RETURN:
            result->status = TL_CLOSED;
            break;
        default:
            explain(conn, result);
        }
    }
    tl_windows_disarm(&conn->windows, in_len, result);
    result->rekeyed = conn->rekeyed;
    if (conn->may_have_errors) {
        ERR_clear_error();
        /* After a read without data, the next data may come with something else, such as the answer to a KeyUpdate. */
        conn->may_have_errors = code <= 0;
    }
}

/* Advances the handshake with one record, or begins it if `in_len` is 0. */
void tl_conn_handshake(tl_conn *conn, const uint8_t *in, size_t in_len, uint8_t *out, size_t out_cap, tl_result *result)
{
    result->plain = 0;
    conn->may_have_errors = 1;
    int code = arm(conn, in, in_len, out, out_cap) ? SSL_do_handshake(conn->ssl) : -1;
    disarm(conn, in_len, code, result);
}

/*
 * Opens one record. `plain` may be the memory of the record, which the library copies before it writes there. It must have
 * room for the record's content.
 */
void tl_conn_read(tl_conn *conn, const uint8_t *in, size_t in_len, uint8_t *plain, size_t plain_cap, uint8_t *out,
                  size_t out_cap, tl_result *result)
{
    int code = -1;
    if (arm(conn, in, in_len, out, out_cap)) {
        /* All libraries return the whole content of a record if there is room. */
        code = SSL_read(conn->ssl, plain, plain_cap > INT_MAX ? INT_MAX : (int)plain_cap);
    }
    result->plain = code > 0 ? (size_t)code : 0;
    disarm(conn, in_len, code, result);
}

/* Seals `plain`, at least one byte, in as few records as possible. If the library has to read first, nothing is sealed. */
void tl_conn_write(tl_conn *conn, const uint8_t *plain, size_t plain_len, uint8_t *out, size_t out_cap,
                   tl_result *result)
{
    size_t total = 0;
    int code = -1;
    if (arm(conn, NULL, 0, out, out_cap)) {
        do {
            size_t left = plain_len - total;
            code = SSL_write(conn->ssl, plain + total, left > (1 << 30) ? 1 << 30 : (int)left);
            total += code > 0 ? (size_t)code : 0;
        } while (code > 0 && total < plain_len);
    }
    result->plain = total;
    disarm(conn, 0, code, result);
}

/* Seals close_notify. */
void tl_conn_close(tl_conn *conn, uint8_t *out, size_t out_cap, tl_result *result)
{
    result->plain = 0;
    conn->may_have_errors = 1;
    /* 0 means that our close_notify is sent and the peer's has not arrived. */
    int code = arm(conn, NULL, 0, out, out_cap) ? SSL_shutdown(conn->ssl) : -1;
    disarm(conn, 0, code == 0 ? 1 : code, result);
}

/* Moves the spilled output to `out`, which has room for all of it. */
void tl_conn_spill(tl_conn *conn, uint8_t *out)
{
    tl_windows_spill(&conn->windows, out);
}

/* Has the next write change the keys first (TLS 1.3). Returns whether the library can. */
int32_t tl_conn_update_keys(tl_conn *conn)
{
#ifdef LIBRESSL_VERSION_NUMBER
    (void)conn;
    return 0;
#else
    int updates = SSL_key_update(conn->ssl, SSL_KEY_UPDATE_NOT_REQUESTED);
    ERR_clear_error();
    conn->may_have_errors = 1;
    return updates;
#endif
}

static void group_name(const tl_conn *conn, char *name, size_t cap)
{
    const SSL *ssl = conn->ssl;
    const char *text = NULL;
#if TL_BORING_FAMILY
    text = SSL_get_group_name(SSL_get_group_id(ssl));
#elif defined(LIBRESSL_VERSION_NUMBER)
    (void)ssl;
    switch (conn->group) {
    case 23:
        text = SN_X9_62_prime256v1;
        break;
    case 24:
        text = SN_secp384r1;
        break;
    case 29:
        text = SN_X25519;
        break;
    case 4588:
        text = "X25519MLKEM768";
        break;
    default:
        break;
    }
#elif OPENSSL_VERSION_NUMBER >= 0x30200000L
    text = SSL_get0_group_name((SSL *)ssl);
#else
    text = SSL_group_to_name((SSL *)ssl, (int)SSL_get_negotiated_group((SSL *)ssl));
#endif
    size_t len = text == NULL ? 0 : strlen(text);
    if (len >= cap) {
        len = cap - 1;
    }
    if (len > 0) {
        memcpy(name, text, len);
    }
    name[len] = '\0';
}

/* Copies the negotiated parameters. The pointers are valid until the connection is used again. */
void tl_conn_info(const tl_conn *conn, tl_info *info)
{
    const unsigned char *alpn = NULL;
    unsigned int alpn_len = 0;
    const SSL_CIPHER *cipher = SSL_get_current_cipher(conn->ssl);
    info->version = SSL_version(conn->ssl);
    info->suite = cipher == NULL ? 0 : (int32_t)(SSL_CIPHER_get_id(cipher) & 0xffff);
    info->resumed = SSL_session_reused((SSL *)conn->ssl);
    SSL_get0_alpn_selected(conn->ssl, &alpn, &alpn_len);
    info->alpn = alpn;
    info->alpn_len = alpn_len;
    info->server_name = conn->server_name[0] == '\0' ? NULL : conn->server_name;
    group_name(conn, info->group, sizeof(info->group));
    ERR_clear_error();
}

/* Copies the peer's certificate at `index` as DER for `bytes_free`; its own is the first. Returns the length, or 0 for none. */
size_t tl_conn_peer_certificate(const tl_conn *conn, size_t index, uint8_t **der)
{
#if !TL_BORING_FAMILY && !defined(LIBRESSL_VERSION_NUMBER)
    X509 *leaf = SSL_get1_peer_certificate(conn->ssl);
#else
    X509 *leaf = SSL_get_peer_certificate(conn->ssl);
#endif
    X509 *certificate = index == 0 ? leaf : NULL;
    if (leaf != NULL && index > 0) {
        STACK_OF(X509) *chain = SSL_get_peer_cert_chain(conn->ssl);
        size_t len = chain == NULL ? 0 : (size_t)sk_X509_num(chain);
        /* In a client the chain contains the leaf, in a server it does not. */
        size_t at = len > 0 && X509_cmp(sk_X509_value(chain, 0), leaf) == 0 ? index : index - 1;
        certificate = at < len ? sk_X509_value(chain, (int)at) : NULL;
    }
    *der = NULL;
    int len = certificate == NULL ? 0 : i2d_X509(certificate, der);
    X509_free(leaf);
    ERR_clear_error();
    return len > 0 ? (size_t)len : 0;
}

size_t tl_conn_refused_names(const tl_conn *conn, char *text, size_t cap)
{
    return conn->refused == NULL ? 0 : tl_x509_names(conn->refused, text, cap);
}

int32_t tl_conn_refused_validity(const tl_conn *conn, char *from, char *until, size_t cap)
{
    return conn->refused == NULL ? -1 : tl_x509_validity(conn->refused, from, until, cap);
}

/*
 * Must be called when a client's handshake is complete. Keeps the session of a resumed connection of TLS 1.2 once more: it may
 * have a new ticket, which OpenSSL reports to no callback.
 */
void tl_conn_keep_session(tl_conn *conn)
{
    if (SSL_version(conn->ssl) < TLS1_3_VERSION && SSL_session_reused(conn->ssl) && conn->sessions_len < TL_SESSIONS) {
        SSL_SESSION *session = tl_session_copy(SSL_get_session(conn->ssl));
        ERR_clear_error();
        if (session != NULL) {
            conn->sessions[conn->sessions_len++] = session;
        }
    }
}

/* Takes a session to resume, for `session_free`; null if there is none. */
SSL_SESSION *tl_conn_session(tl_conn *conn)
{
    return conn->sessions_len == 0 ? NULL : conn->sessions[--conn->sessions_len];
}

/*
 * Seals the records that a server holds back until its first write. AWS-LC and BoringSSL hold back tickets; the others send
 * theirs in the handshake.
 */
void tl_conn_flush(tl_conn *conn, uint8_t *out, size_t out_cap, tl_result *result)
{
    result->plain = 0;
    conn->may_have_errors = 1;
    int ready = arm(conn, NULL, 0, out, out_cap);
#if TL_BORING_FAMILY
    /* A write of 0 bytes is no error. */
    int code = ready ? SSL_write(conn->ssl, "", 0) : -1;
    disarm(conn, 0, code == 0 ? 1 : code, result);
#else
    disarm(conn, 0, ready ? 1 : -1, result);
#endif
}

/* Moves the first traffic secrets to buffers of `TL_SECRET` bytes. Returns their length, or 0 if they are not known. */
size_t tl_conn_secrets(tl_conn *conn, uint8_t *client, uint8_t *server)
{
    size_t len = conn->secret_lens[0] == conn->secret_lens[1] ? conn->secret_lens[0] : 0;
    memcpy(client, conn->secrets[0], len);
    memcpy(server, conn->secrets[1], len);
    OPENSSL_cleanse(conn->secrets, sizeof(conn->secrets));
    conn->secret_lens[0] = conn->secret_lens[1] = 0;
    return len;
}

/*
 * For benchmarks, before the first operation: puts BIOs with memory of their own between the library and the windows, as most
 * programs do. Returns whether there was memory.
 */
int32_t tl_conn_memory(tl_conn *conn)
{
    BIO *in = BIO_new(BIO_s_mem());
    BIO *out = BIO_new(BIO_s_mem());
    if (in == NULL || out == NULL) {
        BIO_free(in);
        BIO_free(out);
        return 0;
    }
    BIO_set_mem_eof_return(in, -1);
    BIO_set_mem_eof_return(out, -1);
    SSL_set_bio(conn->ssl, in, out);
    conn->memory_in = in;
    conn->memory_out = out;
    return 1;
}

/* For tests: makes spilling fail. */
void tl_conn_faults(tl_conn *conn, int32_t spill_fails)
{
    conn->windows.spill_fails = spill_fails;
}
