/* One connection over the caller's buffers. */
#include "shim.h"

#include "mbedtls/platform_util.h"

#include <stdlib.h>
#include <string.h>

_Thread_local const tl_conn *tl_current;

static int window_read(void *user, unsigned char *to, size_t cap)
{
    tl_conn *conn = user;
    if (conn->windows.in_len == 0) {
        return MBEDTLS_ERR_SSL_WANT_READ;
    }
    size_t len = tl_windows_read(&conn->windows, to, cap);
    return (int) len;
}

static int window_write(void *user, const unsigned char *from, size_t size)
{
    tl_conn *conn = user;
    return tl_windows_write(&conn->windows, from, size) ? (int) size : MBEDTLS_ERR_SSL_ALLOC_FAILED;
}

static tl_conn *conn_new(const tl_context *context)
{
    tl_conn *conn = calloc(1, sizeof(*conn));
    if (conn == NULL) {
        return NULL;
    }
    conn->context = context;
    conn->alert = -1;
    mbedtls_ssl_init(&conn->ssl);
    if (mbedtls_ssl_setup(&conn->ssl, &context->conf) != 0) {
        tl_conn_free(conn);
        return NULL;
    }
    mbedtls_ssl_set_bio(&conn->ssl, conn, window_write, window_read, NULL);
    mbedtls_ssl_set_user_data_p(&conn->ssl, conn);
    mbedtls_ssl_set_verify(&conn->ssl, tl_on_verify, conn);
    if (context->key_log >= 0) {
        mbedtls_ssl_set_export_keys_cb(&conn->ssl, tl_on_secret, conn);
    }
    return conn;
}

tl_conn *tl_conn_accept(const tl_context *context)
{
    return conn_new(context);
}

/*
 * Makes a client's connection to the host `name`, or to the address `ip` (4 or 16 bytes) if there is no name. It offers to
 * resume `session` if there is one.
 */
tl_conn *tl_conn_connect(const tl_context *context, const char *name, const uint8_t *ip, size_t ip_len,
                         mbedtls_ssl_session *session)
{
    tl_conn *conn = conn_new(context);
    if (conn == NULL) {
        return NULL;
    }
    if (name == NULL) {
        memcpy(conn->ip, ip, ip_len <= sizeof(conn->ip) ? ip_len : 0);
        conn->ip_len = ip_len;
    } else {
        size_t len = strlen(name);
        memcpy(conn->server_name, name, len < sizeof(conn->server_name) ? len + 1 : 0);
    }
    /* With a null name, no server name is sent. `tl_on_verify` compares the address. */
    if (mbedtls_ssl_set_hostname(&conn->ssl, name) != 0) {
        tl_conn_free(conn);
        return NULL;
    }
    /* A session that does not fit any more is not offered. */
    if (session != NULL && mbedtls_ssl_set_session(&conn->ssl, session) != 0) {
        mbedtls_ssl_session_init(conn->ssl.session_negotiate);
    }
    return conn;
}

void tl_conn_free(tl_conn *conn)
{
    if (conn == NULL) {
        return;
    }
    mbedtls_ssl_free(&conn->ssl);
    for (size_t at = 0; at < conn->sessions_len; at++) {
        tl_session_free(conn->sessions[at]);
    }
    free(conn->message);
    free(conn->refused);
    free(conn->windows.spill);
    free(conn);
}

void tl_keep_session(tl_conn *conn)
{
    if (!conn->context->resume) {
        return;
    }
    mbedtls_ssl_session *session = calloc(1, sizeof(*session));
    if (session == NULL) {
        return;
    }
    mbedtls_ssl_session_init(session);
    if (mbedtls_ssl_get_session(&conn->ssl, session) != 0) {
        tl_session_free(session);
        return;
    }
    if (conn->sessions_len == TL_SESSIONS) {
        tl_session_free(conn->sessions[0]);
        memmove(conn->sessions, conn->sessions + 1, (TL_SESSIONS - 1) * sizeof(conn->sessions[0]));
        conn->sessions_len--;
    }
    conn->sessions[conn->sessions_len++] = session;
}

/* Lends the caller's windows to the connection. Returns whether it can be used. */
static int arm(tl_conn *conn, const uint8_t *in, size_t in_len, uint8_t *out, size_t out_cap)
{
    tl_current = conn;
    return tl_windows_arm(&conn->windows, in, in_len, out, out_cap);
}

static size_t sent(const tl_conn *conn)
{
    return conn->windows.out_len + conn->windows.spill_len;
}

/* The alert for an error that the library has not reported to the peer. */
static unsigned char alert_for(const tl_conn *conn, int code)
{
    switch (code) {
    case MBEDTLS_ERR_SSL_UNEXPECTED_MESSAGE:
        return MBEDTLS_SSL_ALERT_MSG_UNEXPECTED_MESSAGE;
    case MBEDTLS_ERR_SSL_INVALID_MAC:
        return MBEDTLS_SSL_ALERT_MSG_BAD_RECORD_MAC;
    case MBEDTLS_ERR_SSL_BUFFER_TOO_SMALL:
        return MBEDTLS_SSL_ALERT_MSG_RECORD_OVERFLOW;
    case MBEDTLS_ERR_SSL_INVALID_RECORD:
    case MBEDTLS_ERR_SSL_DECODE_ERROR:
        return MBEDTLS_SSL_ALERT_MSG_DECODE_ERROR;
    case MBEDTLS_ERR_SSL_ILLEGAL_PARAMETER:
        return MBEDTLS_SSL_ALERT_MSG_ILLEGAL_PARAMETER;
    case MBEDTLS_ERR_SSL_BAD_PROTOCOL_VERSION:
        return MBEDTLS_SSL_ALERT_MSG_PROTOCOL_VERSION;
    case MBEDTLS_ERR_SSL_NO_CLIENT_CERTIFICATE:
        return conn->ssl.tls_version == MBEDTLS_SSL_VERSION_TLS1_3 ? TL_ALERT_CERTIFICATE_REQUIRED
                                                                   : MBEDTLS_SSL_ALERT_MSG_HANDSHAKE_FAILURE;
    case MBEDTLS_ERR_SSL_HANDSHAKE_FAILURE:
        return MBEDTLS_SSL_ALERT_MSG_HANDSHAKE_FAILURE;
    case MBEDTLS_ERR_SSL_BAD_CERTIFICATE:
    case MBEDTLS_ERR_X509_CERT_VERIFY_FAILED:
        return MBEDTLS_SSL_ALERT_MSG_BAD_CERT;
    default:
        return MBEDTLS_SSL_ALERT_MSG_INTERNAL_ERROR;
    }
}

/*
 * Takes the windows back and fills the result of the operation that returned `code`. `before` is the number of bytes of output
 * before the failed step.
 */
static void disarm(tl_conn *conn, size_t in_len, size_t before, int code, tl_result *result)
{
    if (code == MBEDTLS_ERR_SSL_WANT_READ && conn->ssl.in_left > 0) {
        /* The library takes a malformed record for the beginning of a longer one. It was given a whole record. */
        code = MBEDTLS_ERR_SSL_INVALID_RECORD;
    }
    int is_alert = code == MBEDTLS_ERR_SSL_FATAL_ALERT_MESSAGE || code == MBEDTLS_ERR_SSL_PEER_CLOSE_NOTIFY;
    if (conn->windows.broken) {
        result->status = TL_FAILED;
        result->failure = TL_MEMORY;
    } else if (code >= 0) {
        result->status = TL_DONE;
    } else if (code == MBEDTLS_ERR_SSL_WANT_READ) {
        result->status = TL_WANT;
    } else {
        if (!is_alert && sent(conn) == before && !conn->closed) {
            (void) mbedtls_ssl_send_alert_message(&conn->ssl, MBEDTLS_SSL_ALERT_LEVEL_FATAL, alert_for(conn, code));
        }
        tl_explain(conn, code, result);
    }
    tl_windows_disarm(&conn->windows, in_len, result);
    tl_current = NULL;
}

/* Notes what the library drops when the handshake is complete. */
static void note(tl_conn *conn)
{
    const mbedtls_ssl_context *ssl = &conn->ssl;
    if (ssl->session_negotiate != NULL) {
        conn->verify = ssl->session_negotiate->verify_result;
    }
    if (ssl->handshake == NULL) {
        return;
    }
    if (ssl->tls_version == MBEDTLS_SSL_VERSION_TLS1_3) {
        if (ssl->handshake->offered_group_id != 0) {
            conn->group = ssl->handshake->offered_group_id;
        }
        conn->resumed = mbedtls_ssl_tls13_key_exchange_mode_with_psk((mbedtls_ssl_context *) ssl);
    } else if (ssl->state > MBEDTLS_SSL_SERVER_HELLO) {
        mbedtls_ecp_group_id group = ssl->handshake->ecdh_ctx.grp_id;
        if (group != MBEDTLS_ECP_DP_NONE) {
            conn->group = mbedtls_ssl_get_tls_id_from_ecp_group_id(group);
        }
        conn->resumed = ssl->handshake->resume;
    }
}

/* Checks what the library does not. */
static int check(tl_conn *conn)
{
    mbedtls_ssl_context *ssl = &conn->ssl;
    const mbedtls_ssl_session *session = ssl->session_negotiate;
    /* With VERIFY_OPTIONAL the library continues after a rejected certificate. */
    if (conn->context->server && conn->context->verify == 1 && session != NULL && session->peer_cert != NULL
        && session->verify_result != 0) {
        uint32_t flags = session->verify_result;
        unsigned char alert = MBEDTLS_SSL_ALERT_MSG_BAD_CERT;
        if (flags & (MBEDTLS_X509_BADCERT_EXT_KEY_USAGE | MBEDTLS_X509_BADCERT_KEY_USAGE)) {
            alert = MBEDTLS_SSL_ALERT_MSG_UNSUPPORTED_CERT;
        } else if (flags & MBEDTLS_X509_BADCERT_EXPIRED) {
            alert = MBEDTLS_SSL_ALERT_MSG_CERT_EXPIRED;
        } else if (flags & MBEDTLS_X509_BADCERT_NOT_TRUSTED) {
            alert = MBEDTLS_SSL_ALERT_MSG_UNKNOWN_CA;
        }
        (void) mbedtls_ssl_send_alert_message(ssl, MBEDTLS_SSL_ALERT_LEVEL_FATAL, alert);
        return MBEDTLS_ERR_X509_CERT_VERIFY_FAILED;
    }
    /* RFC 8446, section 5.1: no byte may follow the message after which keys change. */
    if (ssl->state == MBEDTLS_SSL_HANDSHAKE_OVER && ssl->tls_version == MBEDTLS_SSL_VERSION_TLS1_3
        && (ssl->badmac_seen_or_in_hsfraglen != 0 || (ssl->in_hslen != 0 && ssl->in_hslen < ssl->in_msglen))) {
        return MBEDTLS_ERR_SSL_UNEXPECTED_MESSAGE;
    }
    return 0;
}

/*
 * Changes the sealing keys of TLS 1.3 in time for alerts.
 *
 * The library changes them when it next sends. In these states it would send an alert under no key, or under one that the
 * peer has dropped. RFC 8446, section 6: alerts are protected like all else.
 */
static void protect(mbedtls_ssl_context *ssl)
{
    mbedtls_ssl_transform *transform = ssl->transform_out;
    if (ssl->handshake == NULL || ssl->tls_version != MBEDTLS_SSL_VERSION_TLS1_3) {
        return;
    }
    switch (ssl->state) {
    case MBEDTLS_SSL_CLIENT_CERTIFICATE:
    case MBEDTLS_SSL_CLIENT_CERTIFICATE_VERIFY:
    case MBEDTLS_SSL_CLIENT_FINISHED:
        if (ssl->conf->endpoint == MBEDTLS_SSL_IS_SERVER && ssl->transform_application != NULL) {
            transform = ssl->transform_application;
        }
        break;
    case MBEDTLS_SSL_ENCRYPTED_EXTENSIONS:
    case MBEDTLS_SSL_CERTIFICATE_REQUEST:
    case MBEDTLS_SSL_SERVER_CERTIFICATE:
    case MBEDTLS_SSL_CERTIFICATE_VERIFY:
    case MBEDTLS_SSL_SERVER_FINISHED:
        if (ssl->conf->endpoint == MBEDTLS_SSL_IS_CLIENT) {
            transform = ssl->handshake->transform_handshake;
        }
        break;
    case MBEDTLS_SSL_CLIENT_CCS_AFTER_SERVER_FINISHED:
        /* change_cipher_spec is the last unprotected record. */
        transform = NULL;
        break;
    default:
        break;
    }
    if (transform != ssl->transform_out) {
        mbedtls_ssl_set_outbound_transform(ssl, transform);
    }
}

static int step(mbedtls_ssl_context *ssl)
{
    protect(ssl);
    if (ssl->state != MBEDTLS_SSL_CLIENT_CERTIFICATE || ssl->conf->endpoint != MBEDTLS_SSL_IS_SERVER
        || ssl->tls_version != MBEDTLS_SSL_VERSION_TLS1_3) {
        return mbedtls_ssl_handshake_step(ssl);
    }
    int code = mbedtls_ssl_flush_output(ssl);
    if (code == 0) {
        code = mbedtls_ssl_tls13_handshake_server_step(ssl);
    }
    if (code != 0 && ssl->send_alert) {
        if (ssl->alert_type == MBEDTLS_SSL_ALERT_MSG_NO_CERT) {
            /* NO_CERT is an alert of SSL 3.0. */
            ssl->alert_type = TL_ALERT_CERTIFICATE_REQUIRED;
        }
        code = mbedtls_ssl_handle_pending_alert(ssl);
    }
    return code;
}

/* Advances the handshake with one record, or begins it if `in_len` is 0. */
void tl_conn_handshake(tl_conn *conn, const uint8_t *in, size_t in_len, uint8_t *out, size_t out_cap, tl_result *result)
{
    size_t before = 0;
    int code = arm(conn, in, in_len, out, out_cap) ? 0 : -1;
    conn->ssl.nb_zero = 0;
    while (code == 0 && conn->ssl.state != MBEDTLS_SSL_HANDSHAKE_OVER) {
        before = sent(conn);
        code = step(&conn->ssl);
        note(conn);
        if (code == 0) {
            code = check(conn);
        }
    }
    result->plain = 0;
    disarm(conn, in_len, before, code, result);
}

/* Opens one record of TLS 1.2. */
static int read_tls12(tl_conn *conn, uint8_t *plain, size_t cap, size_t *total)
{
    /* The caller limits the number of empty records. */
    conn->ssl.nb_zero = 0;
    int code;
    do {
        code = mbedtls_ssl_read(&conn->ssl, plain + *total, cap - *total);
        *total += code > 0 ? (size_t) code : 0;
    } while (code > 0 && *total < cap);
    return code;
}

/* Opens one record of TLS 1.3 in the library's buffer, and copies its content. */
static int read_aside(tl_conn *conn, const uint8_t *in, size_t in_len, uint8_t *plain, size_t cap, size_t *total)
{
    uint8_t *record = conn->ssl.in_hdr;
    size_t room = MBEDTLS_SSL_IN_BUFFER_LEN - (size_t) (record - conn->ssl.in_buf);
    if (in_len > room) {
        return MBEDTLS_ERR_SSL_BUFFER_TOO_SMALL;
    }
    memcpy(record, in, in_len);
    int code = tl_record_open(conn, record, in_len, total);
    if (code == 0 && *total > cap) {
        *total = 0;
        return MBEDTLS_ERR_SSL_BUFFER_TOO_SMALL;
    }
    memcpy(plain, record, *total);
    return code;
}

/*
 * Opens one record. In TLS 1.3 `plain` may be the memory of the record. It must have room for the record's content.
 */
void tl_conn_read(tl_conn *conn, const uint8_t *in, size_t in_len, uint8_t *plain, size_t plain_cap, uint8_t *out,
                  size_t out_cap, tl_result *result)
{
    size_t total = 0;
    int code = -1;
    if (arm(conn, in, in_len, out, out_cap)) {
        if (conn->ssl.tls_version == MBEDTLS_SSL_VERSION_TLS1_3) {
            conn->windows.in_len = 0;
            code = plain == in ? tl_record_open(conn, plain, in_len, &total)
                               : read_aside(conn, in, in_len, plain, plain_cap, &total);
        } else {
            code = read_tls12(conn, plain, plain_cap, &total);
        }
    }
    result->plain = total;
    disarm(conn, in_len, 0, code, result);
}

/* Seals one record of up to the full length. mbedtls_ssl_write allows one byte less in TLS 1.3. */
static int write_record(mbedtls_ssl_context *ssl, const uint8_t *plain, size_t len)
{
    ssl->out_msgtype = MBEDTLS_SSL_MSG_APPLICATION_DATA;
    ssl->out_msglen = len;
    memcpy(ssl->out_msg, plain, len);
    return mbedtls_ssl_write_record(ssl, 1);
}

/* Seals `plain`, at least one byte, in as few records as possible. */
void tl_conn_write(tl_conn *conn, const uint8_t *plain, size_t plain_len, uint8_t *out, size_t out_cap,
                   tl_result *result)
{
    size_t total = 0;
    int code = -1;
    if (arm(conn, NULL, 0, out, out_cap)) {
        code = conn->update ? tl_record_update(conn) : 0;
        while (code >= 0 && total < plain_len) {
            size_t left = plain_len - total;
            size_t len = left < TL_PLAIN ? left : TL_PLAIN;
            code = write_record(&conn->ssl, plain + total, len);
            total += len;
        }
    }
    result->plain = total;
    disarm(conn, 0, 0, code, result);
}

/* Seals close_notify. */
void tl_conn_close(tl_conn *conn, uint8_t *out, size_t out_cap, tl_result *result)
{
    int code = arm(conn, NULL, 0, out, out_cap) ? mbedtls_ssl_close_notify(&conn->ssl) : -1;
    conn->closed = 1;
    result->plain = 0;
    disarm(conn, 0, 0, code, result);
}

/* Moves the spilled output to `out`, which has room for all of it. */
void tl_conn_spill(tl_conn *conn, uint8_t *out)
{
    tl_windows_spill(&conn->windows, out);
}

/* Has the next write change the keys first (TLS 1.3). Returns whether the library can. */
int32_t tl_conn_update_keys(tl_conn *conn)
{
    conn->update = conn->ssl.tls_version == MBEDTLS_SSL_VERSION_TLS1_3;
    return conn->update;
}

/* For tests: makes spilling fail. */
void tl_conn_faults(tl_conn *conn, int32_t spill_fails)
{
    conn->windows.spill_fails = spill_fails;
}
