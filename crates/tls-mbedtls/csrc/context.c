/* Trust and settings, which all connections of one role share. */
#define _GNU_SOURCE
#include "shim.h"

#include "mbedtls/platform_util.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The offered suites, by preference: AES-128 first, the fastest with AES instructions. */
static const int SUITES[] = {
    MBEDTLS_TLS1_3_AES_128_GCM_SHA256,
    MBEDTLS_TLS1_3_AES_256_GCM_SHA384,
    MBEDTLS_TLS1_3_CHACHA20_POLY1305_SHA256,
    MBEDTLS_TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
    MBEDTLS_TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
    MBEDTLS_TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
    MBEDTLS_TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
    MBEDTLS_TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
    MBEDTLS_TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
    0,
};

static const uint16_t GROUPS[] = {
    MBEDTLS_SSL_IANA_TLS_GROUP_X25519,
    MBEDTLS_SSL_IANA_TLS_GROUP_SECP256R1,
    MBEDTLS_SSL_IANA_TLS_GROUP_SECP384R1,
    MBEDTLS_SSL_IANA_TLS_GROUP_NONE,
};

/* ECDSA before RSA, so that clients that can verify the cheaper certificate receive it. */
static const uint16_t SIGNATURES[] = {
    MBEDTLS_TLS1_3_SIG_ECDSA_SECP256R1_SHA256,
    MBEDTLS_TLS1_3_SIG_ECDSA_SECP384R1_SHA384,
    MBEDTLS_TLS1_3_SIG_RSA_PSS_RSAE_SHA256,
    MBEDTLS_TLS1_3_SIG_RSA_PSS_RSAE_SHA384,
    MBEDTLS_TLS1_3_SIG_RSA_PSS_RSAE_SHA512,
    MBEDTLS_TLS1_3_SIG_RSA_PKCS1_SHA256,
    MBEDTLS_TLS1_3_SIG_RSA_PKCS1_SHA384,
    MBEDTLS_TLS1_3_SIG_RSA_PKCS1_SHA512,
    MBEDTLS_TLS1_3_SIG_NONE,
};

static void refuse(tl_refusal *refusal, int32_t kind, int code)
{
    refusal->kind = kind;
    tl_reason(code, refusal->reason);
}

/* Whether the certificate is valid for an address. */
static int has_address(const mbedtls_x509_crt *certificate, const uint8_t *ip, size_t len)
{
    for (const mbedtls_x509_sequence *name = &certificate->subject_alt_names; name != NULL; name = name->next) {
        if ((name->buf.tag & MBEDTLS_ASN1_TAG_VALUE_MASK) == MBEDTLS_X509_SAN_IP_ADDRESS && name->buf.len == len
            && memcmp(name->buf.p, ip, len) == 0) {
            return 1;
        }
    }
    return 0;
}

/*
 * Completes the verification of a peer's certificate, which the library has checked, with its name if there is one.
 *
 * It compares the address, ignores names in the subject (RFC 9525, section 2), and notes the first error.
 */
int tl_on_verify(void *user, mbedtls_x509_crt *certificate, int depth, uint32_t *flags)
{
    tl_conn *conn = user;
    if (depth == 0 && !conn->context->server) {
        int good = conn->ip_len > 0 ? has_address(certificate, conn->ip, conn->ip_len)
                                    : certificate->subject_alt_names.buf.p != NULL;
        if (!good) {
            *flags |= MBEDTLS_X509_BADCERT_CN_MISMATCH;
        }
    }
    if (*flags != 0 && conn->refused == NULL) {
        conn->refused = calloc(1, sizeof(*conn->refused));
        if (conn->refused != NULL) {
            tl_refused *refused = conn->refused;
            refused->validity = tl_crt_validity(certificate, refused->from, refused->until, TL_TIME);
            refused->names_len = tl_crt_names(certificate, refused->names, TL_NAMES);
        }
    }
    return 0;
}

/* Writes a line of the key log (https://www.ietf.org/archive/id/draft-ietf-tls-keylogfile-02.html). */
void tl_on_secret(void *user, mbedtls_ssl_key_export_type type, const unsigned char *secret, size_t secret_len,
                  const unsigned char client_random[32], const unsigned char server_random[32],
                  mbedtls_tls_prf_types prf)
{
    const tl_conn *conn = user;
    const char *label = NULL;
    (void) server_random;
    (void) prf;
    switch (type) {
    case MBEDTLS_SSL_KEY_EXPORT_TLS12_MASTER_SECRET:
        label = "CLIENT_RANDOM";
        break;
    case MBEDTLS_SSL_KEY_EXPORT_TLS1_3_CLIENT_HANDSHAKE_TRAFFIC_SECRET:
        label = "CLIENT_HANDSHAKE_TRAFFIC_SECRET";
        break;
    case MBEDTLS_SSL_KEY_EXPORT_TLS1_3_SERVER_HANDSHAKE_TRAFFIC_SECRET:
        label = "SERVER_HANDSHAKE_TRAFFIC_SECRET";
        break;
    case MBEDTLS_SSL_KEY_EXPORT_TLS1_3_CLIENT_APPLICATION_TRAFFIC_SECRET:
        label = "CLIENT_TRAFFIC_SECRET_0";
        break;
    case MBEDTLS_SSL_KEY_EXPORT_TLS1_3_SERVER_APPLICATION_TRAFFIC_SECRET:
        label = "SERVER_TRAFFIC_SECRET_0";
        break;
    default:
        return;
    }
    char line[40 + 2 * 32 + 2 * MBEDTLS_MD_MAX_SIZE];
    int len = snprintf(line, sizeof(line), "%s ", label);
    for (size_t at = 0; at < 32; at++) {
        len += snprintf(line + len, sizeof(line) - (size_t) len, "%02x", client_random[at]);
    }
    line[len++] = ' ';
    for (size_t at = 0; at < secret_len && at < MBEDTLS_MD_MAX_SIZE; at++) {
        len += snprintf(line + len, sizeof(line) - (size_t) len, "%02x", secret[at]);
    }
    line[len++] = '\n';
    /* One call, so that lines of several threads do not mix. A failure cannot be reported. */
    ssize_t written = write(conn->context->key_log, line, (size_t) len);
    (void) written;
    mbedtls_platform_zeroize(line, sizeof(line));
}

/* Selects the certificates for the client's server name: an exact name, else a wildcard, else the first group. */
static int on_name(void *user, mbedtls_ssl_context *ssl, const unsigned char *asked, size_t len)
{
    const tl_context *context = user;
    tl_conn *conn = mbedtls_ssl_get_user_data_p(ssl);
    if (!tl_name_copy(conn->server_name, asked, len)) {
        return 0;
    }
    const tl_name *found = tl_names_find(context->names, context->names_len, conn->server_name);
    if (found == NULL || found->group == 0) {
        return 0;
    }
    const tl_group *group = &context->groups[found->group];
    for (size_t at = 0; at < group->len; at++) {
        int code = mbedtls_ssl_set_hs_own_cert(ssl, &group->members[at]->chain, &group->members[at]->key);
        if (code != 0) {
            return code;
        }
    }
    return 0;
}

/* Sets the protocols in the library's form: a list of strings. */
static int set_alpn(tl_context *context, const tl_options *options)
{
    size_t count = 0;
    for (size_t at = 0; at < options->alpn_len; at += 1 + (size_t) options->alpn[at]) {
        count++;
    }
    context->alpn = calloc(1, options->alpn_len + 1);
    context->alpn_list = calloc(count + 1, sizeof(*context->alpn_list));
    if (context->alpn == NULL || context->alpn_list == NULL) {
        return MBEDTLS_ERR_SSL_ALLOC_FAILED;
    }
    char *to = context->alpn;
    for (size_t at = 0, index = 0; at < options->alpn_len; at += 1 + (size_t) options->alpn[at], index++) {
        size_t len = options->alpn[at];
        if (memchr(options->alpn + at + 1, 0, len) != NULL) {
            return MBEDTLS_ERR_SSL_BAD_INPUT_DATA;
        }
        memcpy(to, options->alpn + at + 1, len);
        context->alpn_list[index] = to;
        to += len + 1;
    }
    return mbedtls_ssl_conf_alpn_protocols(&context->conf, context->alpn_list);
}

static int configure(tl_context *context, const tl_options *options)
{
    mbedtls_ssl_config *conf = &context->conf;
    int endpoint = options->server ? MBEDTLS_SSL_IS_SERVER : MBEDTLS_SSL_IS_CLIENT;
    int code = mbedtls_ssl_config_defaults(conf, endpoint, MBEDTLS_SSL_TRANSPORT_STREAM, MBEDTLS_SSL_PRESET_DEFAULT);
    if (code != 0) {
        return code;
    }
    mbedtls_ssl_conf_rng(conf, TL_RANDOM);
    mbedtls_ssl_conf_min_tls_version(conf, (mbedtls_ssl_protocol_version) options->lowest);
    mbedtls_ssl_conf_max_tls_version(conf, (mbedtls_ssl_protocol_version) options->highest);
    mbedtls_ssl_conf_ciphersuites(conf, SUITES);
    mbedtls_ssl_conf_groups(conf, GROUPS);
    mbedtls_ssl_conf_sig_algs(conf, SIGNATURES);
    /* Resumed sessions have forward secrecy too. */
    mbedtls_ssl_conf_tls13_key_exchange_modes(conf, MBEDTLS_SSL_TLS1_3_KEY_EXCHANGE_MODE_EPHEMERAL_ALL);
    /* With VERIFY_OPTIONAL the library continues after a bad certificate; connection.c rejects it. */
    static const int MODES[] = {MBEDTLS_SSL_VERIFY_NONE, MBEDTLS_SSL_VERIFY_OPTIONAL, MBEDTLS_SSL_VERIFY_REQUIRED};
    mbedtls_ssl_conf_authmode(conf, MODES[options->verify]);
    if (options->server) {
        mbedtls_ssl_conf_sni(conf, on_name, context);
        if (options->find_key != NULL) {
            mbedtls_ssl_conf_session_tickets_cb(conf, tl_ticket_seal, tl_ticket_open, context);
            mbedtls_ssl_conf_new_session_tickets(conf, (uint16_t) options->tickets_each);
        }
    } else {
        mbedtls_ssl_conf_session_tickets(conf, options->resume ? MBEDTLS_SSL_SESSION_TICKETS_ENABLED
                                                               : MBEDTLS_SSL_SESSION_TICKETS_DISABLED);
        mbedtls_ssl_conf_tls13_enable_signal_new_session_tickets(
            conf, MBEDTLS_SSL_TLS1_3_SIGNAL_NEW_SESSION_TICKETS_ENABLED);
    }
    return options->alpn_len > 0 ? set_alpn(context, options) : 0;
}

/* Makes a configuration with `options->groups` groups, without certificates yet; null with a refusal on error. */
tl_context *tl_context_new(const tl_options *options, tl_refusal *refusal)
{
    tl_context *context = calloc(1, sizeof(*context));
    if (context == NULL) {
        refuse(refusal, TL_CONFIG_LIBRARY, MBEDTLS_ERR_SSL_ALLOC_FAILED);
        return NULL;
    }
    mbedtls_ssl_config_init(&context->conf);
    mbedtls_x509_crt_init(&context->trusted);
    context->server = options->server;
    context->verify = options->verify;
    context->resume = options->resume;
    context->find_key = options->find_key;
    context->ticket_keys = options->ticket_keys;
    context->tickets_last = options->tickets_last;
    context->key_log = -1;
    if (options->key_log != NULL) {
        context->key_log = open(options->key_log, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
        if (context->key_log < 0) {
            refuse(refusal, TL_CONFIG_KEY_LOG, 0);
            goto fail;
        }
    }
    context->groups_len = options->server ? options->groups : 1;
    context->groups = calloc(context->groups_len, sizeof(*context->groups));
    int code = context->groups == NULL ? MBEDTLS_ERR_SSL_ALLOC_FAILED : configure(context, options);
    if (code != 0) {
        refuse(refusal, TL_CONFIG_LIBRARY, code);
        goto fail;
    }
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
    mbedtls_ssl_config_free(&context->conf);
    mbedtls_x509_crt_free(&context->trusted);
    for (size_t at = 0; context->groups != NULL && at < context->groups_len; at++) {
        for (size_t member = 0; member < context->groups[at].len; member++) {
            tl_identity_free(context->groups[at].members[member]);
        }
        free(context->groups[at].members);
    }
    if (context->key_log >= 0) {
        close(context->key_log);
    }
    free(context->groups);
    tl_names_free(context->names, context->names_len);
    free(context->alpn);
    free(context->alpn_list);
    free(context);
}

/* Trusts every certificate in `pem`. Returns their number, or 0 with a refusal. */
int32_t tl_context_trust_pem(tl_context *context, const uint8_t *pem, size_t len, tl_refusal *refusal)
{
    if (!tl_read_chain(&context->trusted, pem, len, refusal)) {
        return 0;
    }
    int32_t count = 0;
    for (const mbedtls_x509_crt *root = &context->trusted; root != NULL; root = root->next) {
        count++;
    }
    return count;
}

/* Trusts one certificate. Returns whether it could be parsed. */
int32_t tl_context_trust_der(tl_context *context, const uint8_t *der, size_t len)
{
    return mbedtls_x509_crt_parse_der(&context->trusted, der, len) == 0;
}

/* Adds an identity to a group. The preferred one must come first; there is at most one for each kind of key. */
int32_t tl_context_use(tl_context *context, size_t group, const tl_identity *identity, tl_refusal *refusal)
{
    int code = MBEDTLS_ERR_SSL_BAD_INPUT_DATA;
    if (group < context->groups_len) {
        tl_group *place = &context->groups[group];
        tl_identity **members = realloc(place->members, (place->len + 1) * sizeof(*members));
        code = members == NULL ? MBEDTLS_ERR_SSL_ALLOC_FAILED : 0;
        if (code == 0) {
            tl_identity *shared = tl_identity_share((tl_identity *) identity);
            place->members = members;
            members[place->len++] = shared;
            if (group == 0) {
                code = mbedtls_ssl_conf_own_cert(&context->conf, &shared->chain, &shared->key);
            }
        }
    }
    if (code != 0) {
        refuse(refusal, TL_CONFIG_LIBRARY, code);
    }
    return code == 0;
}

/* Maps names to groups. */
int32_t tl_context_names(tl_context *context, const tl_name *names, size_t len)
{
    context->names = tl_names_new(names, len, context->groups_len);
    context->names_len = context->names == NULL ? 0 : len;
    return context->names != NULL;
}

/* Must be called after all additions. */
int32_t tl_context_seal(tl_context *context)
{
    if (context->trusted.version != 0) {
        mbedtls_ssl_conf_ca_chain(&context->conf, &context->trusted, NULL);
    }
    return 1;
}
