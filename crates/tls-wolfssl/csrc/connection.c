/* One connection over the caller's buffers, through wolfSSL's I/O callbacks. */
#include "shim.h"

#include <wolfssl/error-ssl.h>
#include <wolfssl/internal.h>

#include <limits.h>
#include <stdlib.h>
#include <string.h>

static int window_read(WOLFSSL *ssl, char *to, int cap, void *user)
{
    tl_conn *conn = user;
    (void)ssl;
    if (conn->windows.in_len == 0) {
        return WOLFSSL_CBIO_ERR_WANT_READ;
    }
    size_t len = tl_windows_read(&conn->windows, to, (size_t)cap);
    return (int)len;
}

static int window_write(WOLFSSL *ssl, char *from, int len, void *user)
{
    tl_conn *conn = user;
    (void)ssl;
    return tl_windows_write(&conn->windows, from, (size_t)len) ? len : WOLFSSL_CBIO_ERR_GENERAL;
}

/* Must be called once, before all else. Returns whether it succeeded. */
int32_t tl_init(void)
{
#if defined(__x86_64__)
    /* The library's ciphers are compiled with these instructions. */
    if (!__builtin_cpu_supports("aes") || !__builtin_cpu_supports("pclmul") || !__builtin_cpu_supports("sse4.1")) {
        return 0;
    }
#endif
    return wolfSSL_Init() == WOLFSSL_SUCCESS;
}

int tl_tls13_message(WOLFSSL *ssl, byte *input, word32 *at, word32 end);

/*
 * Replaces DoTls13HandShakeMsg. It is called with the handshake messages of a record, from `at` to `end`.
 *
 * It accepts the header of a message in pieces. It rejects bytes that follow a message after which keys change (RFC 8446,
 * section 5.1).
 */
int tl_tls13_message(WOLFSSL *ssl, byte *input, word32 *at, word32 end)
{
    tl_conn *conn = SSL_get_app_data(ssl);
    word32 len = *at < end ? end - *at : 0;
    int code;
    byte type;
    if (ssl->pendingMsgSz > 0) {
        type = ssl->pendingMsgType;
        code = DoTls13HandShakeMsg(ssl, input, at, end);
    } else if (len > 0 && (conn->header_len > 0 || len < sizeof(conn->header))) {
        size_t lacks = sizeof(conn->header) - conn->header_len;
        size_t piece = len < lacks ? len : lacks;
        memcpy(conn->header + conn->header_len, input + *at, piece);
        conn->header_len += piece;
        *at += (word32)piece;
        if (conn->header_len < sizeof(conn->header)) {
            return 0;
        }
        /* The library gets the header alone, and then waits for the rest. */
        word32 start = 0;
        conn->header_len = 0;
        type = conn->header[0];
        code = DoTls13HandShakeMsg(ssl, conn->header, &start, sizeof(conn->header));
    } else {
        type = len > 0 ? input[*at] : 0;
        if (type == finished && SSL_is_server(ssl) && ssl->session != NULL) {
            /* Otherwise the nonce would continue from the client's ticket, and fail when its byte overflows. */
            ssl->session->ticketNonce.len = 0;
        }
        code = DoTls13HandShakeMsg(ssl, input, at, end);
    }
    int changes_keys = type == server_hello || type == finished || type == key_update;
    int is_whole = code == 0 && ssl->pendingMsgSz == 0;
    return is_whole && changes_keys && *at < end && SSL_version(ssl) >= TLS1_3_VERSION ? OUT_OF_ORDER_E : code;
}

static tl_conn *conn_new(const tl_context *context)
{
    ERR_clear_error();
    tl_conn *conn = calloc(1, sizeof(*conn));
    if (conn == NULL) {
        return NULL;
    }
    conn->ssl = SSL_new(context->groups[0]);
    if (conn->ssl == NULL) {
        tl_conn_free(conn);
        return NULL;
    }
    wolfSSL_SSLSetIORecv(conn->ssl, window_read);
    wolfSSL_SSLSetIOSend(conn->ssl, window_write);
    wolfSSL_SetIOReadCtx(conn->ssl, conn);
    wolfSSL_SetIOWriteCtx(conn->ssl, conn);
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
        /* A copy, because the library stores received tickets in it. */
        SSL_SESSION *own = tl_session_copy(session);
        /* An expired session is rejected here, and not offered. */
        (void)(own != NULL && SSL_set_session(conn->ssl, own));
        SSL_SESSION_free(own);
        conn->offered = tl_session_copy(session);
    }
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
        /* Otherwise the library would mark a session as bad if it did not end by close_notify. */
        SSL_set_shutdown(conn->ssl, SSL_SENT_SHUTDOWN | SSL_RECEIVED_SHUTDOWN);
        SSL_free(conn->ssl);
    }
    for (size_t at = 0; at < conn->sessions_len; at++) {
        SSL_SESSION_free(conn->sessions[at]);
    }
    SSL_SESSION_free(conn->offered);
    X509_free(conn->refused);
    free(conn->windows.spill);
    free(conn);
}

/* The reason why the certificate was rejected. */
static int32_t verify_kind(int error)
{
    switch (error) {
    case ASN_AFTER_DATE_E:
        return TL_VERIFY_EXPIRED;
    case ASN_BEFORE_DATE_E:
        return TL_VERIFY_NOT_YET;
    case ASN_NO_SIGNER_E:
    case ASN_SELF_SIGNED_E:
        return TL_VERIFY_ISSUER;
    case DOMAIN_NAME_MISMATCH:
    case IPADDR_MISMATCH:
        return TL_VERIFY_NAME;
    case EXTKEYUSE_AUTH_E:
    case KEYUSE_SIGNATURE_E:
        return TL_VERIFY_PURPOSE;
    case ASN_SIG_CONFIRM_E:
        return TL_VERIFY_SIGNATURE;
    case CRL_CERT_REVOKED:
        return TL_VERIFY_REVOKED;
    default:
        return TL_VERIFY_OTHER;
    }
}

/* Whether the connection is in a state in which it signs, without input of the peer. */
static int is_signing(WOLFSSL *ssl)
{
    int is_tls13 = wolfSSL_version(ssl) >= TLS1_3_VERSION;
    if (SSL_is_server(ssl)) {
        return ssl->options.acceptState == (is_tls13 ? (int)TLS13_CERT_SENT : (int)CERT_STATUS_SENT);
    }
    return ssl->options.connectState == (is_tls13 ? FIRST_REPLY_THIRD : FIRST_REPLY_SECOND);
}

/* Maps an error of the library to a kind of failure. */
static int32_t failure_kind(WOLFSSL *ssl, int error)
{
    if (verify_kind(error) != TL_VERIFY_OTHER) {
        return TL_CERTIFICATE;
    }
    switch (error) {
    case FATAL_ERROR:
        return TL_ALERT;
    case VERIFY_CERT_ERROR:
        return TL_CERTIFICATE;
    case NO_PEER_CERT:
        return TL_NO_CERTIFICATE;
    case UNKNOWN_ALPN_PROTOCOL_NAME_E:
        return TL_NO_ALPN;
    case VERIFY_MAC_ERROR:
    case DECRYPT_ERROR:
    case AES_GCM_AUTH_E:
    case MAC_CMP_FAILED_E:
        return TL_BAD_RECORD;
    case VERSION_ERROR:
    case UNSUPPORTED_PROTO_VERSION:
        return TL_VERSION;
    case MATCH_SUITE_ERROR:
    case UNSUPPORTED_SUITE:
        return TL_NO_CIPHER;
    case MEMORY_ERROR:
    case MEMORY_E:
        return TL_LIBRARY;
    default:
        return is_signing(ssl) ? TL_LIBRARY : TL_PROTOCOL;
    }
}

/* The alert for an error that the library has not reported to the peer. */
static int alert_for(int32_t failure)
{
    switch (failure) {
    case TL_BAD_RECORD:
        return bad_record_mac;
    case TL_CERTIFICATE:
        return bad_certificate;
    case TL_VERSION:
        return wolfssl_alert_protocol_version;
    case TL_NO_CIPHER:
        return handshake_failure;
    case TL_LIBRARY:
        return internal_error;
    default:
        return unexpected_message;
    }
}

/* Fills the result, and sends an alert unless the library has. */
static void explain(tl_conn *conn, int error, tl_result *result)
{
    WOLFSSL_ALERT_HISTORY alerts;
    result->status = TL_FAILED;
    result->failure = conn->windows.broken ? TL_MEMORY : failure_kind(conn->ssl, error);
    const char *text = wolfSSL_ERR_reason_error_string((unsigned long)(long)error);
    size_t len = text == NULL ? 0 : strnlen(text, TL_REASON - 1);
    memcpy(result->reason, len == 0 ? "" : text, len);
    result->reason[len] = '\0';
    if (conn->windows.broken || wolfSSL_get_alert_history(conn->ssl, &alerts) != WOLFSSL_SUCCESS) {
        return;
    }
    if (result->failure == TL_ALERT) {
        result->alert = alerts.last_rx.code;
        result->status = result->alert == close_notify ? TL_CLOSED : TL_FAILED;
    } else if (alerts.last_tx.level != alert_fatal) {
        (void)SendAlert(conn->ssl, alert_fatal, alert_for(result->failure));
    }
    if (result->failure == TL_CERTIFICATE) {
        result->verify = verify_kind(error);
    }
}

/* Clears the queue of errors and lends the caller's windows to the connection. Returns whether it can be used. */
static int arm(tl_conn *conn, const uint8_t *in, size_t in_len, uint8_t *out, size_t out_cap)
{
    ERR_clear_error();
    return tl_windows_arm(&conn->windows, in, in_len, out, out_cap);
}

/* Takes the windows back and fills the result of the operation that returned `code`. */
static void disarm(tl_conn *conn, size_t in_len, int code, tl_result *result)
{
    int error = code > 0 ? 0 : wolfSSL_get_error(conn->ssl, code);
    if (conn->windows.broken) {
        explain(conn, error, result);
    } else if (code > 0) {
        result->status = TL_DONE;
    } else if (error == WOLFSSL_ERROR_WANT_READ) {
        result->status = TL_WANT;
    } else if (error == WOLFSSL_ERROR_ZERO_RETURN) {
        result->status = TL_CLOSED;
    } else {
        explain(conn, error, result);
    }
    tl_windows_disarm(&conn->windows, in_len, result);
}

/* Advances the handshake with one record, or begins it if `in_len` is 0. */
void tl_conn_handshake(tl_conn *conn, const uint8_t *in, size_t in_len, uint8_t *out, size_t out_cap, tl_result *result)
{
    result->plain = 0;
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
    size_t total = 0;
    size_t header_len = conn->header_len;
    int code = -1;
    if (arm(conn, in, in_len, out, out_cap)) {
        do {
            size_t room = plain_cap - total;
            code = SSL_read(conn->ssl, plain + total, room > INT_MAX ? INT_MAX : (int)room);
            total += code > 0 ? (size_t)code : 0;
        } while (code > 0 && total < plain_cap && SSL_pending(conn->ssl) > 0);
    }
    if (code > 0 && header_len > 0) {
        /* RFC 8446, section 5.1: no other record may come between the pieces of a message. */
        conn->ssl->error = OUT_OF_ORDER_E;
        code = -1;
        total = 0;
    }
    result->plain = total;
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
    ERR_clear_error();
    /* The library writes the KeyUpdate at once. No window is lent now, so it spills and leaves with the next output. */
    return wolfSSL_update_keys(conn->ssl) == WOLFSSL_SUCCESS;
}

static void group_name(const SSL *ssl, char *name, size_t cap)
{
    const char *text = wolfSSL_get_curve_name((SSL *)ssl);
    size_t len = text == NULL ? 0 : strnlen(text, cap - 1);
    /* The library writes SECP256R1. */
    int upper = len > 4 && memcmp(text, "SECP", 4) == 0;
    for (size_t at = 0; at < len; at++) {
        name[at] = upper && text[at] >= 'A' && text[at] <= 'Z' ? (char)(text[at] + ('a' - 'A')) : text[at];
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
    group_name(conn->ssl, info->group, sizeof(info->group));
}

/* Copies the peer's certificate at `index` as DER for `bytes_free`; its own is the first. Returns the length, or 0 for none. */
size_t tl_conn_peer_certificate(const tl_conn *conn, size_t index, uint8_t **der)
{
    X509 *leaf = SSL_get_peer_certificate(conn->ssl);
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
 * have a new ticket, which no callback reports. Without one the library drops it, and the offered session is kept.
 */
void tl_conn_keep_session(tl_conn *conn)
{
    if (SSL_version(conn->ssl) < TLS1_3_VERSION && SSL_session_reused(conn->ssl) && conn->sessions_len < TL_SESSIONS) {
        SSL_SESSION *session = tl_session_copy(SSL_get_session(conn->ssl));
        if (session == NULL) {
            session = conn->offered;
            conn->offered = NULL;
        }
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

/* For tests: makes spilling fail. */
void tl_conn_faults(tl_conn *conn, int32_t spill_fails)
{
    conn->windows.spill_fails = spill_fails;
}
