/*
 * Records of TLS 1.3 after the handshake. The library opens and seals them. Their content is handled here, because the library
 * lacks KeyUpdate (RFC 8446, section 4.6.3), which every peer may send.
 */
#include "shim.h"

#include "mbedtls/platform_util.h"

#include <stdlib.h>
#include <string.h>

#define HEADER 5
#define KEY_UPDATE 24

/* Derives the next secret, key and nonce of one direction from its current secret. */
static int next_keys(tl_conn *conn, int outgoing)
{
    mbedtls_ssl_context *ssl = &conn->ssl;
    mbedtls_ssl_transform *transform = ssl->transform_application;
    const mbedtls_ssl_ciphersuite_t *suite = mbedtls_ssl_ciphersuite_from_id(ssl->session->ciphersuite);
    const mbedtls_cipher_info_t *cipher = suite == NULL ? NULL : mbedtls_cipher_info_from_type(suite->cipher);
    if (transform == NULL || cipher == NULL) {
        return MBEDTLS_ERR_SSL_INTERNAL_ERROR;
    }
    psa_algorithm_t hash = mbedtls_md_psa_alg_from_type((mbedtls_md_type_t) suite->mac);
    size_t hash_len = PSA_HASH_LENGTH(hash);
    size_t key_bits = mbedtls_cipher_info_get_key_bitlen(cipher);
    mbedtls_ssl_tls13_application_secrets *secrets = &ssl->session->app_secrets;
    unsigned char *secret = outgoing == conn->context->server ? secrets->server_application_traffic_secret_N
                                                              : secrets->client_application_traffic_secret_N;
    unsigned char next[MBEDTLS_TLS1_3_MD_MAX_SIZE];
    unsigned char key[32];
    unsigned char nonce[12];
    int code = mbedtls_ssl_tls13_hkdf_expand_label(hash, secret, hash_len, MBEDTLS_SSL_TLS1_3_LBL_WITH_LEN(traffic_upd),
                                                   NULL, 0, next, hash_len);
    if (code == 0) {
        code = mbedtls_ssl_tls13_hkdf_expand_label(hash, next, hash_len, MBEDTLS_SSL_TLS1_3_LBL_WITH_LEN(key), NULL, 0, key,
                                                   key_bits / 8);
    }
    if (code == 0) {
        code = mbedtls_ssl_tls13_hkdf_expand_label(hash, next, hash_len, MBEDTLS_SSL_TLS1_3_LBL_WITH_LEN(iv), NULL, 0, nonce,
                                                   sizeof(nonce));
    }
    if (code == 0) {
        code = outgoing ? mbedtls_cipher_setkey(&transform->cipher_ctx_enc, key, (int) key_bits, MBEDTLS_ENCRYPT)
                        : mbedtls_cipher_setkey(&transform->cipher_ctx_dec, key, (int) key_bits, MBEDTLS_DECRYPT);
    }
    if (code == 0) {
        memcpy(secret, next, hash_len);
        memcpy(outgoing ? transform->iv_enc : transform->iv_dec, nonce, sizeof(nonce));
        memset(outgoing ? ssl->cur_out_ctr : ssl->in_ctr, 0, MBEDTLS_SSL_SEQUENCE_NUMBER_LEN);
    }
    mbedtls_platform_zeroize(next, sizeof(next));
    mbedtls_platform_zeroize(key, sizeof(key));
    return code;
}

int tl_record_update(tl_conn *conn)
{
    static const unsigned char MESSAGE[] = {KEY_UPDATE, 0, 0, 1, 0};
    mbedtls_ssl_context *ssl = &conn->ssl;
    conn->update = 0;
    ssl->out_msgtype = MBEDTLS_SSL_MSG_HANDSHAKE;
    ssl->out_msglen = sizeof(MESSAGE);
    memcpy(ssl->out_msg, MESSAGE, sizeof(MESSAGE));
    int code = mbedtls_ssl_write_record(ssl, 1);
    return code == 0 ? next_keys(conn, 1) : code;
}

/* Changes the peer's keys, and ours if the peer asks for it. */
static int on_key_update(tl_conn *conn, const uint8_t *message, size_t len, int is_last)
{
    if (len != 5) {
        return MBEDTLS_ERR_SSL_DECODE_ERROR;
    }
    if (message[4] > 1) {
        return MBEDTLS_ERR_SSL_ILLEGAL_PARAMETER;
    }
    if (!is_last) {
        /* RFC 8446, section 5.1: keys do not change within a record. */
        return MBEDTLS_ERR_SSL_UNEXPECTED_MESSAGE;
    }
    int asked = message[4];
    int code = next_keys(conn, 0);
    if (code == 0 && asked && !conn->closed) {
        code = tl_record_update(conn);
    }
    return code;
}

/* Has the library read a ticket, as if it had just opened its record. */
static int on_ticket(tl_conn *conn, const uint8_t *message, size_t len)
{
    mbedtls_ssl_context *ssl = &conn->ssl;
    memcpy(ssl->in_msg, message, len);
    ssl->in_msgtype = MBEDTLS_SSL_MSG_HANDSHAKE;
    ssl->in_msglen = len;
    ssl->in_hslen = len;
    ssl->keep_current_message = 1;
    mbedtls_ssl_handshake_set_state(ssl, MBEDTLS_SSL_TLS1_3_NEW_SESSION_TICKET);
    int code = mbedtls_ssl_handshake_step(ssl);
    ssl->in_msglen = 0;
    ssl->in_hslen = 0;
    if (code == MBEDTLS_ERR_SSL_RECEIVED_NEW_SESSION_TICKET) {
        tl_keep_session(conn);
        code = 0;
    }
    return code;
}

static int on_message(tl_conn *conn, const uint8_t *message, size_t len, int is_last)
{
    switch (message[0]) {
    case KEY_UPDATE:
        return on_key_update(conn, message, len, is_last);
    case MBEDTLS_SSL_HS_NEW_SESSION_TICKET:
        return conn->context->server ? MBEDTLS_ERR_SSL_UNEXPECTED_MESSAGE : on_ticket(conn, message, len);
    default:
        return MBEDTLS_ERR_SSL_UNEXPECTED_MESSAGE;
    }
}

/* Appends a part of a handshake message, or several messages, and handles each complete one. */
static int on_handshake(tl_conn *conn, const uint8_t *part, size_t len)
{
    if (len == 0) {
        return MBEDTLS_ERR_SSL_UNEXPECTED_MESSAGE;
    }
    uint8_t *message = realloc(conn->message, conn->message_len + len);
    if (message == NULL) {
        return MBEDTLS_ERR_SSL_ALLOC_FAILED;
    }
    memcpy(message + conn->message_len, part, len);
    conn->message = message;
    conn->message_len += len;
    size_t done = 0;
    while (conn->message_len - done >= 4) {
        const uint8_t *next = message + done;
        size_t next_len = 4 + ((size_t) next[1] << 16 | (size_t) next[2] << 8 | next[3]);
        if (next_len > TL_MESSAGE) {
            return MBEDTLS_ERR_SSL_DECODE_ERROR;
        }
        if (next_len > conn->message_len - done) {
            break;
        }
        done += next_len;
        int code = on_message(conn, next, next_len, done == conn->message_len);
        if (code != 0) {
            return code;
        }
    }
    conn->message_len -= done;
    if (conn->message_len == 0) {
        free(conn->message);
        conn->message = NULL;
    } else {
        memmove(message, message + done, conn->message_len);
    }
    return 0;
}

static int on_alert(tl_conn *conn, const uint8_t *alert, size_t len)
{
    if (len != 2) {
        return MBEDTLS_ERR_SSL_DECODE_ERROR;
    }
    /* RFC 8446, section 6: all alerts but these two are fatal, of whatever level. */
    switch (alert[1]) {
    case MBEDTLS_SSL_ALERT_MSG_CLOSE_NOTIFY:
        return MBEDTLS_ERR_SSL_PEER_CLOSE_NOTIFY;
    case MBEDTLS_SSL_ALERT_MSG_USER_CANCELED:
        return 0;
    default:
        conn->alert = alert[1];
        return MBEDTLS_ERR_SSL_FATAL_ALERT_MESSAGE;
    }
}

int tl_record_open(tl_conn *conn, uint8_t *wire, size_t len, size_t *plain)
{
    mbedtls_ssl_context *ssl = &conn->ssl;
    *plain = 0;
    if (len < HEADER || wire[0] != MBEDTLS_SSL_MSG_APPLICATION_DATA) {
        return MBEDTLS_ERR_SSL_UNEXPECTED_MESSAGE;
    }
    if (len - HEADER != ((size_t) wire[3] << 8 | wire[4])) {
        return MBEDTLS_ERR_SSL_BUFFER_TOO_SMALL;
    }
    mbedtls_record record;
    memset(&record, 0, sizeof(record));
    memcpy(record.ctr, ssl->in_ctr, sizeof(record.ctr));
    record.type = wire[0];
    memcpy(record.ver, wire + 1, sizeof(record.ver));
    record.buf = wire;
    record.buf_len = len;
    record.data_offset = HEADER;
    record.data_len = len - HEADER;
    int code = mbedtls_ssl_decrypt_buf(ssl, ssl->transform_in, &record);
    if (code != 0) {
        /* An authentic record of padding alone is an unexpected message. */
        return code == MBEDTLS_ERR_SSL_INVALID_RECORD ? MBEDTLS_ERR_SSL_UNEXPECTED_MESSAGE : code;
    }
    int at = MBEDTLS_SSL_SEQUENCE_NUMBER_LEN;
    while (at > 0 && ++ssl->in_ctr[at - 1] == 0) {
        at--;
    }
    if (at == 0) {
        return MBEDTLS_ERR_SSL_COUNTER_WRAPPING;
    }
    const uint8_t *content = record.buf + record.data_offset;
    if (conn->message_len > 0 && record.type != MBEDTLS_SSL_MSG_HANDSHAKE) {
        return MBEDTLS_ERR_SSL_UNEXPECTED_MESSAGE;
    }
    switch (record.type) {
    case MBEDTLS_SSL_MSG_APPLICATION_DATA:
        memmove(wire, content, record.data_len);
        *plain = record.data_len;
        return 0;
    case MBEDTLS_SSL_MSG_ALERT:
        return on_alert(conn, content, record.data_len);
    case MBEDTLS_SSL_MSG_HANDSHAKE:
        return on_handshake(conn, content, record.data_len);
    default:
        return MBEDTLS_ERR_SSL_UNEXPECTED_MESSAGE;
    }
}
