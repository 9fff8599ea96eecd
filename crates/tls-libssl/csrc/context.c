/* Converts certificates, trust and settings from the caller's bytes to the library's objects. */
#define _GNU_SOURCE
#include "shim.h"

#include <openssl/crypto.h>
#if TL_BORING_FAMILY
#include <openssl/mem.h>
#endif

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

/* The offered suites, by preference: AES-128 first, the fastest with AES instructions. */
#define SUITES_13 "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256"
#define SUITES_12                                                                                                       \
    "ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256:ECDHE-ECDSA-AES256-GCM-SHA384:"                          \
    "ECDHE-RSA-AES256-GCM-SHA384:ECDHE-ECDSA-CHACHA20-POLY1305:ECDHE-RSA-CHACHA20-POLY1305"

/* The first list that the library knows is used; the last is classical. `*` has OpenSSL 3.5 send a key share at once. */
static const char *const GROUPS[] = {
    "*X25519MLKEM768:*X25519:P-256:P-384",
    "X25519MLKEM768:X25519:P-256:P-384",
    "X25519:P-256:P-384",
};

#ifndef LIBRESSL_VERSION_NUMBER
/* ECDSA before Ed25519 before RSA, so that clients that can verify the cheapest certificate receive it. */
static const char *const SIGNATURES[] = {
    "ecdsa_secp256r1_sha256:ecdsa_secp384r1_sha384:ed25519:rsa_pss_rsae_sha256:rsa_pss_rsae_sha384:rsa_pss_rsae_sha512:"
    "rsa_pkcs1_sha256:rsa_pkcs1_sha384:rsa_pkcs1_sha512",
    "ECDSA+SHA256:ECDSA+SHA384:ed25519:RSA-PSS+SHA256:RSA-PSS+SHA384:RSA-PSS+SHA512:RSA+SHA256:RSA+SHA384:RSA+SHA512",
    "ECDSA+SHA256:ECDSA+SHA384:RSA-PSS+SHA256:RSA-PSS+SHA384:RSA-PSS+SHA512:RSA+SHA256:RSA+SHA384:RSA+SHA512",
};
#endif

void tl_reason(unsigned long code, char *reason)
{
    if (code == 0) {
        code = ERR_peek_error();
    }
    const char *text = code == 0 ? "no reason given" : ERR_reason_error_string(code);
    if (text == NULL) {
        text = "unknown reason";
    }
    /* The newer libraries write reasons as CERTIFICATE_VERIFY_FAILED. */
    int upper = 1;
    size_t len = 0;
    for (; text[len] != '\0' && len + 1 < TL_REASON; len++) {
        upper = upper && !(text[len] >= 'a' && text[len] <= 'z');
    }
    for (size_t at = 0; at < len; at++) {
        char c = text[at];
        if (upper && c == '_') {
            c = ' ';
        } else if (upper && c >= 'A' && c <= 'Z') {
            c = (char)(c + ('a' - 'A'));
        }
        reason[at] = c;
    }
    reason[len] = '\0';
}

static void refuse(tl_refusal *refusal, int32_t kind)
{
    refusal->kind = kind;
    tl_reason(0, refusal->reason);
    ERR_clear_error();
}

/* Otherwise an encrypted key would prompt at the terminal. */
static int no_passphrase(char *buffer, int size, int writing, void *user)
{
    (void)buffer;
    (void)size;
    (void)writing;
    (void)user;
    return -1;
}

/* Parses every certificate in `pem`; null on error. */
static STACK_OF(X509) *read_chain(const uint8_t *pem, size_t len, tl_refusal *refusal)
{
    BIO *bio = BIO_new_mem_buf(pem, (int)len);
    STACK_OF(X509) *chain = sk_X509_new_null();
    if (bio == NULL || chain == NULL) {
        refuse(refusal, TL_CONFIG_LIBRARY);
        goto fail;
    }
    for (;;) {
        X509 *certificate = PEM_read_bio_X509(bio, NULL, no_passphrase, NULL);
        if (certificate == NULL) {
            break;
        }
        if (!sk_X509_push(chain, certificate)) {
            X509_free(certificate);
            refuse(refusal, TL_CONFIG_LIBRARY);
            goto fail;
        }
    }
    /* "no start line" is the normal end; all else is damage. */
    unsigned long error = ERR_peek_last_error();
    if (ERR_GET_LIB(error) != ERR_LIB_PEM || ERR_GET_REASON(error) != PEM_R_NO_START_LINE) {
        refuse(refusal, TL_CONFIG_BAD_CERTIFICATE);
        goto fail;
    }
    if (sk_X509_num(chain) == 0) {
        refuse(refusal, TL_CONFIG_NO_CERTIFICATE);
        goto fail;
    }
    ERR_clear_error();
    BIO_free(bio);
    return chain;
fail:
    BIO_free(bio);
    sk_X509_pop_free(chain, X509_free);
    return NULL;
}

/* Reads an ASN.1 header with this tag at `*at`, and moves `*at` to the content. Returns the content's length, or -1. */
static long der_enter(const uint8_t **at, const uint8_t *end, uint8_t tag)
{
    const uint8_t *p = *at;
    if (end - p < 2 || p[0] != tag) {
        return -1;
    }
    long len = p[1];
    p += 2;
    if (len > 127) {
        int bytes = (int)(len & 127);
        if (bytes < 1 || bytes > 2 || end - p < bytes) {
            return -1;
        }
        for (len = 0; bytes > 0; bytes--) {
            len = len << 8 | *p++;
        }
    }
    *at = p;
    return end - p < len ? -1 : len;
}

/*
 * Converts a key's DER from the second version of PKCS#8 (RFC 5958) to the first, in place. The second version has the public
 * key after the private one, which some libraries cannot parse. Returns the new length, or -1 if it is another format.
 */
static long to_pkcs8_v1(uint8_t *der, long len)
{
    const uint8_t *at = der;
    const uint8_t *end = der + len;
    if (der_enter(&at, end, 0x30) < 0) {
        return -1;
    }
    const uint8_t *inner = at;
    if (der_enter(&at, end, 0x02) != 1 || *at != 1) {
        return -1;
    }
    uint8_t *version = der + (at - der);
    at++;
    long algorithm = der_enter(&at, end, 0x30);
    if (algorithm < 0) {
        return -1;
    }
    at += algorithm;
    long secret = der_enter(&at, end, 0x04);
    if (secret < 0) {
        return -1;
    }
    /* Only short keys such as Ed25519's have this version. */
    long content = at + secret - inner;
    if (content > 127) {
        return -1;
    }
    *version = 0;
    memmove(der + 2, inner, (size_t)content);
    der[1] = (uint8_t)content;
    return content + 2;
}

/* Parses a key in the second version of PKCS#8; null on error. */
static EVP_PKEY *read_pkcs8_v2(const uint8_t *pem, size_t len)
{
    char *name = NULL;
    char *header = NULL;
    unsigned char *der = NULL;
    long der_len = 0;
    EVP_PKEY *key = NULL;
    BIO *bio = BIO_new_mem_buf(pem, (int)len);
    if (bio != NULL && PEM_read_bio(bio, &name, &header, &der, &der_len)) {
        const unsigned char *at = der;
        long first = to_pkcs8_v1(der, der_len);
        if (first > 0) {
            key = d2i_AutoPrivateKey(NULL, &at, first);
        }
        OPENSSL_cleanse(der, (size_t)der_len);
    }
    BIO_free(bio);
    OPENSSL_free(name);
    OPENSSL_free(header);
    OPENSSL_free(der);
    return key;
}

static EVP_PKEY *read_key(const uint8_t *pem, size_t len, tl_refusal *refusal)
{
    BIO *bio = BIO_new_mem_buf(pem, (int)len);
    if (bio == NULL) {
        refuse(refusal, TL_CONFIG_LIBRARY);
        return NULL;
    }
    EVP_PKEY *key = PEM_read_bio_PrivateKey(bio, NULL, no_passphrase, NULL);
    if (key == NULL) {
        key = read_pkcs8_v2(pem, len);
    }
    if (key == NULL) {
        /* The libraries' errors for a missing key are less clear. */
        static const char LABEL[] = "PRIVATE KEY-----";
        int none = memmem(pem, len, LABEL, sizeof(LABEL) - 1) == NULL;
        refuse(refusal, none ? TL_CONFIG_NO_KEY : TL_CONFIG_BAD_KEY);
    }
    BIO_free(bio);
    return key;
}

/* Parses a chain and the key that belongs to it, in PEM; null with a refusal on error. */
tl_identity *tl_identity_new(const uint8_t *chain, size_t chain_len, const uint8_t *key, size_t key_len,
                             tl_refusal *refusal)
{
    ERR_clear_error();
    tl_identity *identity = calloc(1, sizeof(*identity));
    if (identity == NULL) {
        refuse(refusal, TL_CONFIG_LIBRARY);
        return NULL;
    }
    identity->chain = read_chain(chain, chain_len, refusal);
    if (identity->chain == NULL) {
        goto fail;
    }
    identity->leaf = sk_X509_shift(identity->chain);
    identity->key = read_key(key, key_len, refusal);
    if (identity->key == NULL) {
        goto fail;
    }
    if (X509_check_private_key(identity->leaf, identity->key) != 1) {
        refuse(refusal, TL_CONFIG_MISMATCH);
        goto fail;
    }
    ERR_clear_error();
    return identity;
fail:
    tl_identity_free(identity);
    return NULL;
}

void tl_identity_free(tl_identity *identity)
{
    if (identity != NULL) {
        X509_free(identity->leaf);
        sk_X509_pop_free(identity->chain, X509_free);
        EVP_PKEY_free(identity->key);
#ifndef TL_WOLFSSL
        tl_staples_free(identity->staple);
#endif
        free(identity);
    }
}

/* 0: ECDSA, 1: Ed25519, 2: RSA, 3: something else. */
int32_t tl_identity_kind(const tl_identity *identity)
{
    switch (EVP_PKEY_id(identity->key)) {
    case EVP_PKEY_EC:
        return 0;
    case EVP_PKEY_ED25519:
        return 1;
    case EVP_PKEY_RSA:
        return 2;
    default:
        return 3;
    }
}

size_t tl_identity_names(const tl_identity *identity, char *text, size_t cap)
{
    return tl_x509_names(identity->leaf, text, cap);
}

int32_t tl_identity_validity(const tl_identity *identity, char *from, char *until, size_t cap)
{
    return tl_x509_validity(identity->leaf, from, until, cap);
}

/*
 * Whether another certificate of the chain issued the first; true if there is no other. Peers sort the chain themselves, so
 * the order does not matter.
 */
int32_t tl_identity_linked(const tl_identity *identity)
{
    size_t len = (size_t)sk_X509_num(identity->chain);
    int linked = len == 0;
    for (size_t at = 0; !linked && at < len; at++) {
        X509 *issuer = sk_X509_value(identity->chain, (int)at);
        EVP_PKEY *key = X509_get_pubkey(issuer);
        linked = key != NULL && X509_check_issued(issuer, identity->leaf) == X509_V_OK
                 && X509_verify(identity->leaf, key) == 1;
        EVP_PKEY_free(key);
    }
    ERR_clear_error();
    return linked;
}

/* Whether the certificate's usage allows a server, or a client (RFC 5280, section 4.2.1.12). */
int32_t tl_identity_fits(const tl_identity *identity, int32_t server)
{
    uint32_t uses = X509_get_extended_key_usage(identity->leaf);
    ERR_clear_error();
#ifdef TL_WOLFSSL
    /* wolfSSL returns 0 if the extension is missing, which allows every usage. */
    uses = uses == 0 ? UINT32_MAX : uses;
#endif
    return (uses & (XKU_ANYEKU | (server ? XKU_SSL_SERVER : XKU_SSL_CLIENT))) != 0;
}

/* The length of the key in bits. */
int32_t tl_identity_bits(const tl_identity *identity)
{
    return EVP_PKEY_bits(identity->key);
}

/* Signs fixed bytes, so that the caller can measure the time. Returns whether it succeeded. */
int32_t tl_identity_sign(const tl_identity *identity)
{
    static const unsigned char MESSAGE[64];
    unsigned char signature[1024];
    size_t len = sizeof(signature);
    /* Ed25519 has its own hash. */
    const EVP_MD *digest = EVP_PKEY_id(identity->key) == EVP_PKEY_ED25519 ? NULL : EVP_sha256();
    EVP_MD_CTX *ctx = EVP_MD_CTX_new();
    int done = ctx != NULL && EVP_DigestSignInit(ctx, NULL, digest, NULL, identity->key) == 1
               && EVP_DigestSign(ctx, signature, &len, MESSAGE, sizeof(MESSAGE)) == 1;
    EVP_MD_CTX_free(ctx);
    ERR_clear_error();
    return done;
}

/*
 * Writes a line for each name that the certificate is valid for: `D` and a DNS name, or `I` and an address in hexadecimal.
 * Names that are not printable ASCII are left out, and so are names that do not fit. Returns the length.
 */
size_t tl_x509_names(X509 *certificate, char *text, size_t cap)
{
    static const char HEX[] = "0123456789abcdef";
    size_t len = 0;
    GENERAL_NAMES *names = X509_get_ext_d2i(certificate, NID_subject_alt_name, NULL, NULL);
    for (size_t i = 0; names != NULL && i < (size_t)sk_GENERAL_NAME_num(names); i++) {
        size_t at_name = i;
#ifdef TL_WOLFSSL
        /* wolfSSL has the names in reverse order. */
        at_name = sk_GENERAL_NAME_num(names) - 1 - i;
#endif
        const GENERAL_NAME *name = sk_GENERAL_NAME_value(names, (int)at_name);
        if (name->type != GEN_DNS && name->type != GEN_IPADD) {
            continue;
        }
        const ASN1_STRING *string = name->type == GEN_DNS ? name->d.dNSName : name->d.iPAddress;
        const unsigned char *data = ASN1_STRING_get0_data(string);
        size_t data_len = (size_t)ASN1_STRING_length(string);
        if (len + 2 * data_len + 2 > cap) {
            break;
        }
        size_t start = len;
        text[len++] = name->type == GEN_DNS ? 'D' : 'I';
        for (size_t at = 0; at < data_len; at++) {
            if (name->type == GEN_IPADD) {
                text[len++] = HEX[data[at] >> 4];
                text[len++] = HEX[data[at] & 15];
            } else if (data[at] > ' ' && data[at] < 127) {
                text[len++] = (char)data[at];
            } else {
                len = start;
                break;
            }
        }
        if (len > start) {
            text[len++] = '\n';
        }
    }
    sk_GENERAL_NAME_pop_free(names, GENERAL_NAME_free);
    ERR_clear_error();
    return len;
}

static void copy_time(const ASN1_TIME *time, char *text, size_t cap)
{
#ifdef TL_WOLFSSL
    size_t len = (size_t)wolfSSL_ASN1_TIME_get_length(time);
    const uint8_t *data = wolfSSL_ASN1_TIME_get_data(time);
    int type = time->type;
#else
    size_t len = (size_t)ASN1_STRING_length((const ASN1_STRING *)time);
    const uint8_t *data = ASN1_STRING_get0_data((const ASN1_STRING *)time);
    int type = ASN1_STRING_type((const ASN1_STRING *)time);
#endif
    if (len + 2 > cap) {
        len = cap - 2;
    }
    /* UTCTime has two digits for the year, GeneralizedTime four (RFC 5280, section 4.1.2.5). */
    text[0] = type == V_ASN1_UTCTIME ? '2' : '4';
    memcpy(text + 1, data, len);
    text[1 + len] = '\0';
}

/* Writes both ends of the certificate's validity. Returns 0 if it is valid now, 1 before, 2 after. */
int32_t tl_x509_validity(X509 *certificate, char *from, char *until, size_t cap)
{
    const ASN1_TIME *begins = X509_get0_notBefore(certificate);
    const ASN1_TIME *ends = X509_get0_notAfter(certificate);
    copy_time(begins, from, cap);
    copy_time(ends, until, cap);
    int state = X509_cmp_current_time(begins) > 0 ? 1 : X509_cmp_current_time(ends) < 0 ? 2 : 0;
    ERR_clear_error();
    return state;
}

static tl_context *context_of(const SSL *ssl)
{
    return SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl));
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Keeps the secret in `line` (label, client random, secret) if it is one of the two traffic secrets. */
static void keep_secret(tl_conn *conn, const char *line)
{
    static const char *const LABELS[2] = {"CLIENT_TRAFFIC_SECRET_0 ", "SERVER_TRAFFIC_SECRET_0 "};
    for (size_t end = 0; end < 2; end++) {
        size_t skip = strlen(LABELS[end]);
        const char *hex = strncmp(line, LABELS[end], skip) == 0 ? strchr(line + skip, ' ') : NULL;
        if (hex == NULL) {
            continue;
        }
        size_t len = 0;
        for (hex++; len < TL_SECRET && hex_digit(hex[0]) >= 0 && hex_digit(hex[1]) >= 0; hex += 2) {
            conn->secrets[end][len++] = (uint8_t)(hex_digit(hex[0]) << 4 | hex_digit(hex[1]));
        }
        conn->secret_lens[end] = hex[0] == '\0' ? len : 0;
    }
}

static void on_secret(const SSL *ssl, const char *line)
{
    const tl_context *context = context_of(ssl);
    tl_conn *conn = SSL_get_app_data(ssl);
    if (context->secrets && conn != NULL) {
        keep_secret(conn, line);
    }
    if (context->key_log >= 0) {
        struct iovec parts[2] = {{(void *)line, strlen(line)}, {(void *)"\n", 1}};
        /* One call, so that lines of several threads do not mix. A failure cannot be reported. */
        ssize_t written = writev(context->key_log, parts, 2);
        (void)written;
    }
}

/* Notes the first error of a chain, and does not change the result. */
static int on_verify(int ok, X509_STORE_CTX *store)
{
    const SSL *ssl = X509_STORE_CTX_get_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx());
    tl_conn *conn = ssl == NULL ? NULL : SSL_get_app_data(ssl);
    if (!ok && conn != NULL && conn->refused == NULL) {
        X509 *certificate = X509_STORE_CTX_get_current_cert(store);
        conn->verify = X509_STORE_CTX_get_error(store);
#ifdef TL_WOLFSSL
        /* A copy, because the certificate may be a part of the connection and be freed with it. */
        conn->refused = certificate == NULL ? NULL : X509_dup(certificate);
#else
        if (certificate != NULL && X509_up_ref(certificate)) {
            conn->refused = certificate;
        }
#endif
    }
    return ok;
}

#ifdef LIBRESSL_VERSION_NUMBER
/* The group in a ServerHello's key_share (RFC 8446, sections 4.1.3 and 4.2.8); 0 if there is none. */
static int group_of_hello(const uint8_t *message, size_t len)
{
    const size_t session_id = 4 + 2 + 32;
    size_t at = session_id < len ? session_id + 1 + message[session_id] + 2 + 1 + 2 : len;
    while (at + 4 <= len) {
        size_t extension = (size_t)(message[at] << 8 | message[at + 1]);
        size_t size = (size_t)(message[at + 2] << 8 | message[at + 3]);
        at += 4;
        if (extension == 51 && size >= 2 && at + 2 <= len) {
            return message[at] << 8 | message[at + 1];
        }
        at += size;
    }
    return 0;
}

/*
 * Notes what LibreSSL does not report: a received alert, the key exchange group, and the server name.
 *
 * The alert shows that an error in the library's queue came from the peer. In TLS 1.2 the group is in ServerKeyExchange
 * (RFC 8422, section 5.4). The server name is needed before a ticket is opened.
 */
static void on_message(int sent, int version, int type, const void *data, size_t len, SSL *ssl, void *user)
{
    tl_conn *conn = SSL_get_app_data(ssl);
    const uint8_t *message = data;
    const uint8_t named_curve = 3;
    (void)version;
    (void)user;
    if (conn == NULL) {
        return;
    }
    if (!sent && type == SSL3_RT_ALERT && len == 2) {
        conn->alert_received = 1;
    }
    if (!sent && type == SSL3_RT_HANDSHAKE && len > 0 && message[0] == SSL3_MT_CLIENT_HELLO) {
        tl_name_of_hello(message, len, conn->server_name);
    }
    if (type == SSL3_RT_HANDSHAKE && len >= 7 && message[0] == SSL3_MT_SERVER_HELLO) {
        conn->group = group_of_hello(message, len);
    }
    if (type == SSL3_RT_HANDSHAKE && len >= 7 && message[0] == SSL3_MT_SERVER_KEY_EXCHANGE && message[4] == named_curve) {
        conn->group = message[5] << 8 | message[6];
    }
}
#elif !defined(TL_WOLFSSL)
#define TL_KEY_UPDATE 24

/* Notes that the peer changes its keys, perhaps in one record with tickets (RFC 8446, section 5.1). */
static void on_message(int sent, int version, int type, const void *data, size_t len, SSL *ssl, void *user)
{
    tl_conn *conn = SSL_get_app_data(ssl);
    (void)version;
    (void)user;
    if (conn != NULL && !sent && type == SSL3_RT_HANDSHAKE && len > 0
        && *(const uint8_t *)data == TL_KEY_UPDATE) {
        conn->rekeyed = 1;
    }
}
#endif

/* Keeps a client's session until the caller collects it. If there are too many, the oldest is dropped. */
static int on_session(SSL *ssl, SSL_SESSION *session)
{
    tl_conn *conn = SSL_get_app_data(ssl);
    if (conn == NULL) {
        return 0;
    }
    session = tl_session_copy(session);
    if (session == NULL) {
        ERR_clear_error();
        return 0;
    }
#ifdef TL_WOLFSSL
    if (SSL_version(ssl) < TLS1_3_VERSION && conn->sessions_len > 0) {
        /* The last one is the same session before its ticket arrived. */
        SSL_SESSION_free(conn->sessions[--conn->sessions_len]);
    }
#endif
    if (conn->sessions_len == TL_SESSIONS) {
        SSL_SESSION_free(conn->sessions[0]);
        memmove(conn->sessions, conn->sessions + 1, (TL_SESSIONS - 1) * sizeof(conn->sessions[0]));
        conn->sessions_len--;
    }
    conn->sessions[conn->sessions_len++] = session;
    return 0;
}

/* Selects an application protocol by the server's order. */
static int on_alpn(SSL *ssl, const unsigned char **chosen, unsigned char *chosen_len, const unsigned char *offered,
                   unsigned int offered_len, void *user)
{
    const tl_context *context = user;
    (void)ssl;
    for (size_t at = 0; at < context->alpn_len; at += 1 + context->alpn[at]) {
        size_t len = context->alpn[at];
        for (size_t other = 0; other < offered_len; other += 1 + (size_t)offered[other]) {
            if (offered[other] == len && other + 1 + len <= offered_len
                && memcmp(context->alpn + at + 1, offered + other + 1, len) == 0) {
                *chosen = context->alpn + at + 1;
                *chosen_len = (unsigned char)len;
                return SSL_TLSEXT_ERR_OK;
            }
        }
    }
    return SSL_TLSEXT_ERR_ALERT_FATAL;
}

#if !TL_BORING_FAMILY && !defined(LIBRESSL_VERSION_NUMBER) && !defined(TL_WOLFSSL)
/* Notes the server name. Tickets are bound to it, and opened before `on_name` is called. */
static int on_hello(SSL *ssl, int *alert, void *user)
{
    tl_conn *conn = SSL_get_app_data(ssl);
    const unsigned char *extension = NULL;
    size_t len = 0;
    (void)alert;
    (void)user;
    if (conn != NULL && SSL_client_hello_get0_ext(ssl, TLSEXT_TYPE_server_name, &extension, &len)) {
        tl_name_of_extension(extension, len, conn->server_name);
    }
    return SSL_CLIENT_HELLO_SUCCESS;
}
#endif

/* Selects the certificates for the client's server name: an exact name, else a wildcard, else the first group. */
static int on_name(SSL *ssl, int *alert, void *user)
{
    const tl_context *context = user;
    tl_conn *conn = SSL_get_app_data(ssl);
    const char *asked = SSL_get_servername(ssl, TLSEXT_NAMETYPE_host_name);
    (void)alert;
    if (asked == NULL || conn == NULL) {
        return SSL_TLSEXT_ERR_NOACK;
    }
    if (!tl_name_copy(conn->server_name, (const uint8_t *)asked, strlen(asked))) {
        return SSL_TLSEXT_ERR_NOACK;
    }
    const tl_name *found = tl_names_find(context->names, context->names_len, conn->server_name);
    if (found == NULL) {
        return SSL_TLSEXT_ERR_NOACK;
    }
    if (found->group > 0 && SSL_set_SSL_CTX(ssl, context->groups[found->group]) == NULL) {
        return SSL_TLSEXT_ERR_ALERT_FATAL;
    }
    return SSL_TLSEXT_ERR_OK;
}

static int first_known(int (*set)(SSL_CTX *, const char *), SSL_CTX *ctx, const char *const *lists, size_t len)
{
    for (size_t at = 0; at < len; at++) {
        if (set(ctx, lists[at]) == 1) {
            ERR_clear_error();
            return 1;
        }
    }
    return 0;
}

static int set_groups(SSL_CTX *ctx, const char *list)
{
    return (int)SSL_CTX_set1_groups_list(ctx, list);
}

static int set_any_groups(SSL_CTX *ctx, int classical)
{
    size_t len = sizeof(GROUPS) / sizeof(GROUPS[0]);
    /* ML-KEM requires TLS 1.3. LibreSSL would select it in TLS 1.2 too, and fail. */
    size_t first = classical ? len - 1 : 0;
    return first_known(set_groups, ctx, GROUPS + first, len - first);
}

#ifndef LIBRESSL_VERSION_NUMBER
static int set_signatures(SSL_CTX *ctx, const char *list)
{
    return (int)SSL_CTX_set1_sigalgs_list(ctx, list);
}
#endif

/* Applies the settings that all groups of certificates share. */
static int configure(SSL_CTX *ctx, const tl_context *context, const tl_options *options)
{
    SSL_CTX_set_app_data(ctx, (void *)context);
    SSL_CTX_set_options(ctx, SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION | SSL_OP_CIPHER_SERVER_PREFERENCE);
#ifdef SSL_OP_PRIORITIZE_CHACHA
    /* A client that lists ChaCha20 first has no AES instructions. */
    SSL_CTX_set_options(ctx, SSL_OP_PRIORITIZE_CHACHA);
#endif
#if !TL_BORING_FAMILY && !defined(LIBRESSL_VERSION_NUMBER)
    /* Reads header and body in one call. The BIO never has more than one record. */
    SSL_CTX_set_read_ahead(ctx, 1);
#endif
    SSL_CTX_set_mode(ctx, SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_AUTO_RETRY);
    if (!SSL_CTX_set_min_proto_version(ctx, (uint16_t)options->lowest)
        || !SSL_CTX_set_max_proto_version(ctx, (uint16_t)options->highest) || !SSL_CTX_set_cipher_list(ctx, SUITES_12)
        || !set_any_groups(ctx, options->classical || options->highest < TLS1_3_VERSION)) {
        return 0;
    }
#ifndef LIBRESSL_VERSION_NUMBER
    if (!first_known(set_signatures, ctx, SIGNATURES, sizeof(SIGNATURES) / sizeof(SIGNATURES[0]))) {
        return 0;
    }
#endif
#ifndef OPENSSL_IS_BORINGSSL
    if (!SSL_CTX_set_ciphersuites(ctx, SUITES_13)) {
        return 0;
    }
#endif
#ifdef LIBRESSL_VERSION_NUMBER
    SSL_CTX_set_msg_callback(ctx, on_message);
#elif !defined(TL_WOLFSSL)
    if (context->secrets) {
        SSL_CTX_set_msg_callback(ctx, on_message);
    }
#endif
    if (context->key_log >= 0 || context->secrets) {
        SSL_CTX_set_keylog_callback(ctx, on_secret);
    }
    int mode = SSL_VERIFY_NONE;
    if (options->verify > 0) {
        mode = SSL_VERIFY_PEER | (options->verify > 1 && options->server ? SSL_VERIFY_FAIL_IF_NO_PEER_CERT : 0);
    }
    SSL_CTX_set_verify(ctx, mode, on_verify);
    if (!options->resume) {
        SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
        SSL_CTX_set_options(ctx, SSL_OP_NO_TICKET);
#ifndef LIBRESSL_VERSION_NUMBER
        SSL_CTX_set_num_tickets(ctx, 0);
#endif
    } else if (options->server) {
        /* A ticket holds the whole session. So nothing is stored here, and every shard can resume it. */
        SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
        if (!tl_tickets_use(ctx)) {
            return 0;
        }
        SSL_CTX_set_timeout(ctx, options->tickets_last);
#if TL_BORING_FAMILY
        SSL_CTX_set_session_psk_dhe_timeout(ctx, options->tickets_last);
#endif
#if !TL_BORING_FAMILY && !defined(LIBRESSL_VERSION_NUMBER) && !defined(TL_WOLFSSL)
        SSL_CTX_set_client_hello_cb(ctx, on_hello, NULL);
#endif
#ifndef LIBRESSL_VERSION_NUMBER
        SSL_CTX_set_num_tickets(ctx, options->tickets_each);
#endif
    } else {
        SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_CLIENT | SSL_SESS_CACHE_NO_INTERNAL);
        SSL_CTX_sess_set_new_cb(ctx, on_session);
#ifdef TL_WOLFSSL
        /* In TLS 1.2 wolfSSL asks for tickets only after this call. */
        if (wolfSSL_CTX_UseSessionTicket(ctx) != WOLFSSL_SUCCESS) {
            return 0;
        }
#endif
    }
    if (options->server) {
        SSL_CTX_set_tlsext_servername_callback(ctx, on_name);
        SSL_CTX_set_tlsext_servername_arg(ctx, (void *)context);
        if (context->alpn_len > 0) {
            SSL_CTX_set_alpn_select_cb(ctx, on_alpn, (void *)context);
        }
        /* All groups resume one another's sessions; the certificates are selected anew each time. */
        static const unsigned char ID[] = "tautline";
        return SSL_CTX_set_session_id_context(ctx, ID, sizeof(ID) - 1);
    }
    /* This function, unlike the others, returns 0 for success. */
    return context->alpn_len == 0 || SSL_CTX_set_alpn_protos(ctx, context->alpn, (unsigned int)context->alpn_len) == 0;
}

/* Adds one more SSL_CTX with the same settings. */
static int add_group(tl_context *context, const tl_options *options)
{
    SSL_CTX **groups = realloc(context->groups, (context->groups_len + 1) * sizeof(*groups));
    if (groups == NULL) {
        return 0;
    }
    context->groups = groups;
    tl_staple **staples = realloc(context->staples, (context->groups_len + 1) * sizeof(*staples));
    if (staples == NULL) {
        return 0;
    }
    context->staples = staples;
    staples[context->groups_len] = NULL;
    SSL_CTX *ctx = SSL_CTX_new(TLS_method());
    if (ctx == NULL) {
        return 0;
    }
    groups[context->groups_len++] = ctx;
    return configure(ctx, context, options);
}

/* Makes a configuration with `options->groups` groups, without certificates yet; null with a refusal on error. */
tl_context *tl_context_new(const tl_options *options, tl_refusal *refusal)
{
    ERR_clear_error();
    tl_context *context = calloc(1, sizeof(*context));
    if (context == NULL) {
        refuse(refusal, TL_CONFIG_LIBRARY);
        return NULL;
    }
    context->server = options->server;
    context->verify = options->verify;
    context->find_key = options->find_key;
    context->ticket_keys = options->ticket_keys;
    context->secrets = options->secrets;
    context->key_log = -1;
    if (options->key_log != NULL) {
        context->key_log = open(options->key_log, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
        if (context->key_log < 0) {
            refuse(refusal, TL_CONFIG_KEY_LOG);
            goto fail;
        }
    }
    if (options->alpn_len > 0) {
        context->alpn = malloc(options->alpn_len);
        if (context->alpn == NULL) {
            refuse(refusal, TL_CONFIG_LIBRARY);
            goto fail;
        }
        memcpy(context->alpn, options->alpn, options->alpn_len);
        context->alpn_len = options->alpn_len;
    }
    for (size_t group = 0; group < (options->server ? options->groups : 1); group++) {
        if (!add_group(context, options)) {
            refuse(refusal, TL_CONFIG_LIBRARY);
            goto fail;
        }
    }
    ERR_clear_error();
    return context;
fail:
    tl_context_free(context);
    return NULL;
}

void tl_context_free(tl_context *context)
{
    if (context == NULL) {
        return;
    }
    /* In reverse order: in wolfSSL the store that the others share is a part of the first. */
    for (size_t at = context->groups_len; at > 0; at--) {
        SSL_CTX_free(context->groups[at - 1]);
#ifndef TL_WOLFSSL
        tl_staples_free(context->staples[at - 1]);
#endif
    }
    if (context->key_log >= 0) {
        close(context->key_log);
    }
    free(context->groups);
    free(context->staples);
    tl_names_free(context->names, context->names_len);
    free(context->alpn);
    free(context);
}

static int trust(tl_context *context, X509 *root)
{
    X509_STORE *store = SSL_CTX_get_cert_store(context->groups[0]);
    if (!X509_STORE_add_cert(store, root)) {
        return 0;
    }
    for (size_t at = 0; context->server && at < context->groups_len; at++) {
        /* The authorities that a server names when it asks for a certificate. */
        if (!SSL_CTX_add_client_CA(context->groups[at], root)) {
            return 0;
        }
    }
    return 1;
}

/* Trusts every certificate in `pem`. Returns their number, or 0 with a refusal. */
int32_t tl_context_trust_pem(tl_context *context, const uint8_t *pem, size_t len, tl_refusal *refusal)
{
    ERR_clear_error();
    STACK_OF(X509) *roots = read_chain(pem, len, refusal);
    int32_t count = 0;
    for (size_t at = 0; roots != NULL && at < (size_t)sk_X509_num(roots); at++) {
        if (!trust(context, sk_X509_value(roots, (int)at))) {
            refuse(refusal, TL_CONFIG_BAD_CERTIFICATE);
            count = 0;
            break;
        }
        count++;
    }
    sk_X509_pop_free(roots, X509_free);
    return count;
}

/* Trusts one certificate. Returns whether it could be parsed. */
int32_t tl_context_trust_der(tl_context *context, const uint8_t *der, size_t len)
{
    X509 *root = d2i_X509(NULL, &der, (long)len);
    int trusted = root != NULL && trust(context, root);
    X509_free(root);
    ERR_clear_error();
    return trusted;
}

#ifdef OPENSSL_IS_BORINGSSL
/* Adds a credential; several stand side by side in the order in which they were added. */
static int use_identity(SSL_CTX *ctx, const tl_identity *identity)
{
    size_t len = 1 + sk_X509_num(identity->chain);
    CRYPTO_BUFFER **chain = calloc(len, sizeof(*chain));
    SSL_CREDENTIAL *credential = SSL_CREDENTIAL_new_x509();
    int good = chain != NULL && credential != NULL;
    for (size_t at = 0; good && at < len; at++) {
        X509 *certificate = at == 0 ? identity->leaf : sk_X509_value(identity->chain, at - 1);
        uint8_t *der = NULL;
        int der_len = i2d_X509(certificate, &der);
        good = der_len > 0 && (chain[at] = CRYPTO_BUFFER_new(der, (size_t)der_len, NULL)) != NULL;
        OPENSSL_free(der);
    }
    good = good && SSL_CREDENTIAL_set1_cert_chain(credential, chain, len)
           && SSL_CREDENTIAL_set1_private_key(credential, identity->key);
    if (good && identity->staple != NULL) {
        CRYPTO_BUFFER *response = CRYPTO_BUFFER_new(identity->staple->response, identity->staple->len, NULL);
        good = response != NULL && SSL_CREDENTIAL_set1_ocsp_response(credential, response);
        CRYPTO_BUFFER_free(response);
    }
    good = good && SSL_CTX_add1_credential(ctx, credential);
    for (size_t at = 0; chain != NULL && at < len; at++) {
        CRYPTO_BUFFER_free(chain[at]);
    }
    free(chain);
    SSL_CREDENTIAL_free(credential);
    return good;
}
#else
/* Uses the identity. There is one place for each kind of key, or one for all (wolfSSL), which the first one takes. */
static int use_identity(SSL_CTX *ctx, const tl_identity *identity)
{
#ifdef TL_WOLFSSL
    if (SSL_CTX_get0_certificate(ctx) != NULL) {
        return 1;
    }
#endif
    return SSL_CTX_use_certificate(ctx, identity->leaf) == 1 && SSL_CTX_use_PrivateKey(ctx, identity->key) == 1
           && SSL_CTX_set1_chain(ctx, identity->chain) == 1;
}
#endif

/* Adds an identity to a group. The preferred one must come first; there is at most one for each kind of key. */
int32_t tl_context_use(tl_context *context, size_t group, const tl_identity *identity, tl_refusal *refusal)
{
    ERR_clear_error();
    int done = group < context->groups_len && use_identity(context->groups[group], identity);
#ifndef TL_WOLFSSL
    done = done && tl_staple_use(context, group, identity);
#endif
    if (!done) {
        refuse(refusal, TL_CONFIG_LIBRARY);
        return 0;
    }
    ERR_clear_error();
    return 1;
}

/* Maps names to groups. */
int32_t tl_context_names(tl_context *context, const tl_name *names, size_t len)
{
    context->names = tl_names_new(names, len, context->groups_len);
    context->names_len = context->names == NULL ? 0 : len;
    return context->names != NULL;
}

/* Must be called after all additions. Has every group trust the authorities of the first. */
int32_t tl_context_seal(tl_context *context)
{
    X509_STORE *store = SSL_CTX_get_cert_store(context->groups[0]);
    for (size_t at = 1; at < context->groups_len; at++) {
        if (!X509_STORE_up_ref(store)) {
            return 0;
        }
        SSL_CTX_set_cert_store(context->groups[at], store);
    }
    return 1;
}
