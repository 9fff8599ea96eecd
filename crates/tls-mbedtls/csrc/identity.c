/* Parses certificates and keys, and reads their properties. */
#define _GNU_SOURCE
#include "shim.h"

#include "mbedtls/pem.h"
#include "mbedtls/platform_util.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void tl_reason(int code, char *reason)
{
    const char *high = mbedtls_high_level_strerr(code);
    const char *low = mbedtls_low_level_strerr(code);
    const char *text = high != NULL ? high : low;
    /* "SSL - Verification of the message MAC failed": the module's name does not help. */
    const char *dash = text == NULL ? NULL : strstr(text, " - ");
    if (dash != NULL) {
        text = dash + 3;
    }
    (void) snprintf(reason, TL_REASON, "%s", text == NULL ? "no reason given" : text);
}

static void refuse(tl_refusal *refusal, int32_t kind, int code)
{
    refusal->kind = kind;
    tl_reason(code, refusal->reason);
}

/* Whether it has the object identifier of Ed25519 (RFC 8410, section 3), which the library cannot parse. */
static int is_ed25519(const uint8_t *pem)
{
    static const uint8_t OID[] = {0x06, 0x03, 0x2b, 0x65, 0x70};
    static const char *const LABELS[] = {"CERTIFICATE", "PRIVATE KEY"};
    int found = 0;
    for (size_t at = 0; !found && at < sizeof(LABELS) / sizeof(LABELS[0]); at++) {
        char begin[48];
        char end[48];
        (void) snprintf(begin, sizeof(begin), "-----BEGIN %s-----", LABELS[at]);
        (void) snprintf(end, sizeof(end), "-----END %s-----", LABELS[at]);
        mbedtls_pem_context context;
        mbedtls_pem_init(&context);
        size_t used = 0;
        if (mbedtls_pem_read_buffer(&context, begin, end, pem, NULL, 0, &used) == 0) {
            size_t der_len = 0;
            const unsigned char *der = mbedtls_pem_get_buffer(&context, &der_len);
            found = memmem(der, der_len, OID, sizeof(OID)) != NULL;
        }
        mbedtls_pem_free(&context);
    }
    return found;
}

/* Copies PEM with a terminating zero, without which the library does not recognise it. */
static uint8_t *terminated(const uint8_t *pem, size_t len)
{
    uint8_t *copy = malloc(len + 1);
    if (copy != NULL) {
        if (len > 0) {
            memcpy(copy, pem, len);
        }
        copy[len] = 0;
    }
    return copy;
}

static void forget(uint8_t *copy, size_t len)
{
    if (copy != NULL) {
        mbedtls_platform_zeroize(copy, len);
        free(copy);
    }
}

int tl_read_chain(mbedtls_x509_crt *chain, const uint8_t *pem, size_t len, tl_refusal *refusal)
{
    static const char LABEL[] = "-----BEGIN CERTIFICATE-----";
    if (memmem(pem, len, LABEL, sizeof(LABEL) - 1) == NULL) {
        refuse(refusal, TL_CONFIG_NO_CERTIFICATE, 0);
        return 0;
    }
    uint8_t *copy = terminated(pem, len);
    if (copy == NULL) {
        refuse(refusal, TL_CONFIG_LIBRARY, MBEDTLS_ERR_X509_ALLOC_FAILED);
        return 0;
    }
    /* A positive code is the number of certificates that could not be parsed. */
    int code = mbedtls_x509_crt_parse(chain, copy, len + 1);
    if (code != 0) {
        refuse(refusal, is_ed25519(copy) ? TL_CONFIG_ED25519 : TL_CONFIG_BAD_CERTIFICATE,
               code < 0 ? code : MBEDTLS_ERR_X509_INVALID_FORMAT);
    }
    free(copy);
    return code == 0;
}

static int read_key(mbedtls_pk_context *key, const uint8_t *pem, size_t len, tl_refusal *refusal)
{
    static const char LABEL[] = "PRIVATE KEY-----";
    if (memmem(pem, len, LABEL, sizeof(LABEL) - 1) == NULL) {
        refuse(refusal, TL_CONFIG_NO_KEY, 0);
        return 0;
    }
    uint8_t *copy = terminated(pem, len);
    if (copy == NULL) {
        refuse(refusal, TL_CONFIG_LIBRARY, MBEDTLS_ERR_PK_ALLOC_FAILED);
        return 0;
    }
    int code = mbedtls_pk_parse_key(key, copy, len + 1, NULL, 0, TL_RANDOM);
    if (code != 0) {
        refuse(refusal, is_ed25519(copy) ? TL_CONFIG_ED25519 : TL_CONFIG_BAD_KEY, code);
    }
    forget(copy, len);
    return code == 0;
}

/* Parses a chain and the key that belongs to it, in PEM; null with a refusal on error. */
tl_identity *tl_identity_new(const uint8_t *chain, size_t chain_len, const uint8_t *key, size_t key_len,
                             tl_refusal *refusal)
{
    tl_identity *identity = calloc(1, sizeof(*identity));
    if (identity == NULL) {
        refuse(refusal, TL_CONFIG_LIBRARY, MBEDTLS_ERR_X509_ALLOC_FAILED);
        return NULL;
    }
    identity->references = 1;
    mbedtls_x509_crt_init(&identity->chain);
    mbedtls_pk_init(&identity->key);
    if (!tl_read_chain(&identity->chain, chain, chain_len, refusal)
        || !read_key(&identity->key, key, key_len, refusal)) {
        tl_identity_free(identity);
        return NULL;
    }
    int code = mbedtls_pk_check_pair(&identity->chain.pk, &identity->key, TL_RANDOM);
    if (code != 0) {
        refuse(refusal, TL_CONFIG_MISMATCH, code);
        tl_identity_free(identity);
        return NULL;
    }
    return identity;
}

/* Adds a reference. */
tl_identity *tl_identity_share(tl_identity *identity)
{
    __atomic_add_fetch(&identity->references, 1, __ATOMIC_RELAXED);
    return identity;
}

void tl_identity_free(tl_identity *identity)
{
    if (identity != NULL && __atomic_sub_fetch(&identity->references, 1, __ATOMIC_ACQ_REL) == 0) {
        mbedtls_x509_crt_free(&identity->chain);
        mbedtls_pk_free(&identity->key);
        free(identity);
    }
}

/* 0: ECDSA, 2: RSA, 3: something else. */
int32_t tl_identity_kind(const tl_identity *identity)
{
    switch (mbedtls_pk_get_type(&identity->key)) {
    case MBEDTLS_PK_ECKEY:
    case MBEDTLS_PK_ECDSA:
        return 0;
    case MBEDTLS_PK_RSA:
        return 2;
    default:
        return 3;
    }
}

size_t tl_identity_names(const tl_identity *identity, char *text, size_t cap)
{
    return tl_crt_names(&identity->chain, text, cap);
}

int32_t tl_identity_validity(const tl_identity *identity, char *from, char *until, size_t cap)
{
    return tl_crt_validity(&identity->chain, from, until, cap);
}

/* Whether `issuer` signed `certificate`. */
static int is_issuer(const mbedtls_x509_crt *issuer, const mbedtls_x509_crt *certificate)
{
    unsigned char hash[MBEDTLS_MD_MAX_SIZE];
    const mbedtls_md_info_t *md = mbedtls_md_info_from_type(certificate->sig_md);
    mbedtls_pk_context *key = (mbedtls_pk_context *) &issuer->pk;
    return md != NULL && issuer->subject_raw.len == certificate->issuer_raw.len
           && memcmp(issuer->subject_raw.p, certificate->issuer_raw.p, issuer->subject_raw.len) == 0
           && mbedtls_md(md, certificate->tbs.p, certificate->tbs.len, hash) == 0
           && mbedtls_pk_verify_ext(certificate->sig_pk, certificate->sig_opts, key, certificate->sig_md, hash,
                                    mbedtls_md_get_size(md), certificate->sig.p, certificate->sig.len) == 0;
}

/*
 * Whether another certificate of the chain issued the first; true if there is no other. Peers sort the chain themselves, so
 * the order does not matter.
 */
int32_t tl_identity_linked(const tl_identity *identity)
{
    int linked = identity->chain.next == NULL;
    for (const mbedtls_x509_crt *issuer = identity->chain.next; !linked && issuer != NULL; issuer = issuer->next) {
        linked = is_issuer(issuer, &identity->chain);
    }
    return linked;
}

/* Whether the certificate's usage allows a server, or a client (RFC 5280, section 4.2.1.12). */
int32_t tl_identity_fits(const tl_identity *identity, int32_t server)
{
    const char *use = server ? MBEDTLS_OID_SERVER_AUTH : MBEDTLS_OID_CLIENT_AUTH;
    return mbedtls_x509_crt_check_extended_key_usage(&identity->chain, use, strlen(use)) == 0;
}

/* The length of the key in bits. */
int32_t tl_identity_bits(const tl_identity *identity)
{
    return (int32_t)mbedtls_pk_get_bitlen(&identity->key);
}

/* Signs fixed bytes, so that the caller can measure the time. Returns whether it succeeded. */
int32_t tl_identity_sign(const tl_identity *identity)
{
    static const unsigned char HASH[32];
    unsigned char signature[MBEDTLS_PK_SIGNATURE_MAX_SIZE];
    size_t len = 0;
    mbedtls_pk_context *key = (mbedtls_pk_context *) &identity->key;
    return mbedtls_pk_sign(key, MBEDTLS_MD_SHA256, HASH, sizeof(HASH), signature, sizeof(signature), &len, TL_RANDOM)
           == 0;
}

/*
 * Writes a line for each name that the certificate is valid for: `D` and a DNS name, or `I` and an address in hexadecimal.
 * Names that are not printable ASCII are left out, and so are names that do not fit. Returns the length.
 */
size_t tl_crt_names(const mbedtls_x509_crt *certificate, char *text, size_t cap)
{
    static const char HEX[] = "0123456789abcdef";
    size_t len = 0;
    for (const mbedtls_x509_sequence *name = &certificate->subject_alt_names; name != NULL; name = name->next) {
        int tag = name->buf.tag & MBEDTLS_ASN1_TAG_VALUE_MASK;
        int is_ip = tag == MBEDTLS_X509_SAN_IP_ADDRESS;
        if (name->buf.p == NULL || (!is_ip && tag != MBEDTLS_X509_SAN_DNS_NAME)) {
            continue;
        }
        if (len + 2 * name->buf.len + 2 > cap) {
            break;
        }
        size_t start = len;
        text[len++] = is_ip ? 'I' : 'D';
        for (size_t at = 0; at < name->buf.len; at++) {
            uint8_t byte = name->buf.p[at];
            if (is_ip) {
                text[len++] = HEX[byte >> 4];
                text[len++] = HEX[byte & 15];
            } else if (byte > ' ' && byte < 127) {
                text[len++] = (char) byte;
            } else {
                len = start;
                break;
            }
        }
        if (len > start) {
            text[len++] = '\n';
        }
    }
    return len;
}

static void copy_time(const mbedtls_x509_time *time, char *text, size_t cap)
{
    (void) snprintf(text, cap, "4%04d%02d%02d%02d%02d%02dZ", time->year, time->mon, time->day, time->hour, time->min,
                    time->sec);
}

/* Writes both ends of the certificate's validity. Returns 0 if it is valid now, 1 before, 2 after. */
int32_t tl_crt_validity(const mbedtls_x509_crt *certificate, char *from, char *until, size_t cap)
{
    copy_time(&certificate->valid_from, from, cap);
    copy_time(&certificate->valid_to, until, cap);
    if (mbedtls_x509_time_is_future(&certificate->valid_from)) {
        return 1;
    }
    return mbedtls_x509_time_is_past(&certificate->valid_to) ? 2 : 0;
}
