/* The negotiated parameters of a connection, and the reason of its failure. */
#include "shim.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The reason why the certificate was rejected. */
static int32_t verify_kind(uint32_t flags)
{
    if (flags & MBEDTLS_X509_BADCERT_NOT_TRUSTED) {
        return TL_VERIFY_ISSUER;
    }
    if (flags & MBEDTLS_X509_BADCERT_EXPIRED) {
        return TL_VERIFY_EXPIRED;
    }
    if (flags & MBEDTLS_X509_BADCERT_FUTURE) {
        return TL_VERIFY_NOT_YET;
    }
    if (flags & MBEDTLS_X509_BADCERT_CN_MISMATCH) {
        return TL_VERIFY_NAME;
    }
    if (flags & (MBEDTLS_X509_BADCERT_EXT_KEY_USAGE | MBEDTLS_X509_BADCERT_KEY_USAGE)) {
        return TL_VERIFY_PURPOSE;
    }
    return flags & MBEDTLS_X509_BADCERT_REVOKED ? TL_VERIFY_REVOKED : TL_VERIFY_OTHER;
}

/* Whether the connection is in a state in which it signs, without input of the peer. */
static int is_signing(const mbedtls_ssl_context *ssl)
{
    int server = ssl->conf->endpoint == MBEDTLS_SSL_IS_SERVER;
    if (ssl->tls_version == MBEDTLS_SSL_VERSION_TLS1_3) {
        return ssl->state == (server ? MBEDTLS_SSL_CERTIFICATE_VERIFY : MBEDTLS_SSL_CLIENT_CERTIFICATE_VERIFY);
    }
    return ssl->state == (server ? MBEDTLS_SSL_SERVER_KEY_EXCHANGE : MBEDTLS_SSL_CERTIFICATE_VERIFY);
}

/* Maps an error of the library to a kind of failure. */
static int32_t failure_kind(const tl_conn *conn, int code)
{
    switch (code) {
    case MBEDTLS_ERR_SSL_FATAL_ALERT_MESSAGE:
        return TL_ALERT;
    case MBEDTLS_ERR_X509_CERT_VERIFY_FAILED:
        return TL_CERTIFICATE;
    case MBEDTLS_ERR_SSL_BAD_CERTIFICATE:
        return conn->verify != 0 ? TL_CERTIFICATE : TL_PROTOCOL;
    case MBEDTLS_ERR_SSL_NO_CLIENT_CERTIFICATE:
        return TL_NO_CERTIFICATE;
    case MBEDTLS_ERR_SSL_NO_APPLICATION_PROTOCOL:
        return TL_NO_ALPN;
    case MBEDTLS_ERR_SSL_INVALID_MAC:
        return TL_BAD_RECORD;
    case MBEDTLS_ERR_SSL_BAD_PROTOCOL_VERSION:
        return TL_VERSION;
    case MBEDTLS_ERR_SSL_HANDSHAKE_FAILURE:
        return TL_NO_CIPHER;
    case MBEDTLS_ERR_SSL_ALLOC_FAILED:
    case MBEDTLS_ERR_SSL_INTERNAL_ERROR:
    case MBEDTLS_ERR_SSL_COUNTER_WRAPPING:
        return TL_LIBRARY;
    default:
        return is_signing(&conn->ssl) ? TL_LIBRARY : TL_PROTOCOL;
    }
}

void tl_explain(const tl_conn *conn, int code, tl_result *result)
{
    result->status = TL_FAILED;
    result->failure = failure_kind(conn, code);
    tl_reason(code, result->reason);
    if (result->failure == TL_ALERT) {
        result->alert = conn->alert >= 0 ? conn->alert : conn->ssl.in_msg[1];
    } else if (result->failure == TL_CERTIFICATE) {
        result->verify = verify_kind(conn->verify);
        if (result->verify == TL_VERIFY_OTHER
            && mbedtls_x509_crt_verify_info(result->reason, TL_REASON, "", conn->verify) > 0) {
            result->reason[strcspn(result->reason, "\n")] = '\0';
        }
    }
    /* A close_notify of any level. */
    if (code == MBEDTLS_ERR_SSL_PEER_CLOSE_NOTIFY || (result->failure == TL_ALERT && result->alert == 0)) {
        result->status = TL_CLOSED;
    }
}

static const char *group_name(uint16_t group)
{
    switch (group) {
    case MBEDTLS_SSL_IANA_TLS_GROUP_X25519:
        return "X25519";
    case MBEDTLS_SSL_IANA_TLS_GROUP_SECP256R1:
        return "secp256r1";
    case MBEDTLS_SSL_IANA_TLS_GROUP_SECP384R1:
        return "secp384r1";
    default:
        return "";
    }
}

/* Copies the negotiated parameters. The pointers are valid until the connection is used again. */
void tl_conn_info(const tl_conn *conn, tl_info *info)
{
    const char *alpn = mbedtls_ssl_get_alpn_protocol(&conn->ssl);
    info->version = (int32_t) mbedtls_ssl_get_version_number(&conn->ssl);
    info->suite = mbedtls_ssl_get_ciphersuite_id_from_ssl(&conn->ssl);
    info->resumed = conn->resumed;
    info->alpn = (const uint8_t *) alpn;
    info->alpn_len = alpn == NULL ? 0 : strlen(alpn);
    info->server_name = conn->server_name[0] == '\0' ? NULL : conn->server_name;
    (void) snprintf(info->group, sizeof(info->group), "%s", group_name(conn->group));
}

/* Copies the peer's certificate at `index` as DER for `bytes_free`; its own is the first. Returns the length, or 0 for none. */
size_t tl_conn_peer_certificate(const tl_conn *conn, size_t index, uint8_t **der)
{
    const mbedtls_x509_crt *certificate = mbedtls_ssl_get_peer_cert(&conn->ssl);
    *der = NULL;
    for (; certificate != NULL && index > 0; index--) {
        certificate = certificate->next;
    }
    if (certificate == NULL || certificate->raw.len == 0) {
        return 0;
    }
    *der = malloc(certificate->raw.len);
    if (*der == NULL) {
        return 0;
    }
    memcpy(*der, certificate->raw.p, certificate->raw.len);
    return certificate->raw.len;
}

size_t tl_conn_refused_names(const tl_conn *conn, char *text, size_t cap)
{
    size_t len = conn->refused == NULL ? 0 : conn->refused->names_len;
    len = len < cap ? len : cap;
    if (len > 0) {
        memcpy(text, conn->refused->names, len);
    }
    return len;
}

int32_t tl_conn_refused_validity(const tl_conn *conn, char *from, char *until, size_t cap)
{
    if (conn->refused == NULL) {
        return -1;
    }
    (void) snprintf(from, cap, "%s", conn->refused->from);
    (void) snprintf(until, cap, "%s", conn->refused->until);
    return conn->refused->validity;
}

/* Must be called when a client's handshake is complete, which in TLS 1.2 makes the session available. */
void tl_conn_keep_session(tl_conn *conn)
{
    if (conn->ssl.tls_version == MBEDTLS_SSL_VERSION_TLS1_2) {
        tl_keep_session(conn);
    }
}

/* Takes a session to resume, for `session_free`; null if there is none. */
mbedtls_ssl_session *tl_conn_session(tl_conn *conn)
{
    return conn->sessions_len == 0 ? NULL : conn->sessions[--conn->sessions_len];
}

void tl_session_free(mbedtls_ssl_session *session)
{
    if (session != NULL) {
        mbedtls_ssl_session_free(session);
        free(session);
    }
}
