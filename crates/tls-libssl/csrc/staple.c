/* Stapled OCSP responses (RFC 6066, section 8). wolfSSL, whose shim shares the other files, has none. */
#include "shim.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

static tl_staple *staple_new(X509 *leaf, const uint8_t *response, size_t len, uint64_t until)
{
    tl_staple *staple = malloc(sizeof(*staple) + len);
    if (staple == NULL) {
        return NULL;
    }
    X509_up_ref(leaf);
    staple->next = NULL;
    staple->leaf = leaf;
    staple->until = until;
    staple->len = len;
    memcpy(staple->response, response, len);
    return staple;
}

void tl_staples_free(tl_staple *staple)
{
    while (staple != NULL) {
        tl_staple *next = staple->next;
        X509_free(staple->leaf);
        free(staple);
        staple = next;
    }
}

/*
 * Gives an identity the response that goes with its certificate, in DER. It is not sent from the second `until` since 1970 on.
 * It must be called before the identity is added to a context. Returns whether there was memory.
 */
int32_t tl_identity_staple(tl_identity *identity, const uint8_t *response, size_t len, uint64_t until)
{
    tl_staples_free(identity->staple);
    identity->staple = staple_new(identity->leaf, response, len, until);
    return identity->staple != NULL;
}

static int is_current(const tl_staple *staple)
{
    struct timespec now;
    /* time(2) may still give the second before, for as long as a tick of the kernel. */
    if (timespec_get(&now, TIME_UTC) == 0) {
        return 0;
    }
    return now.tv_sec >= 0 && (uint64_t)now.tv_sec < staple->until;
}

#ifdef OPENSSL_IS_BORINGSSL
/* Decides before the library chooses a certificate, which has its response with it: one that has expired holds back all. */
static int on_status(SSL *ssl, void *user)
{
    (void)ssl;
    for (const tl_staple *staple = user; staple != NULL; staple = staple->next) {
        if (!is_current(staple)) {
            return SSL_TLSEXT_ERR_NOACK;
        }
    }
    return SSL_TLSEXT_ERR_OK;
}
#else
/* Staples the response for the certificate that the library has chosen. */
static int on_status(SSL *ssl, void *user)
{
    const X509 *chosen = SSL_get_certificate(ssl);
    const tl_staple *staple = user;
    while (chosen != NULL && staple != NULL && X509_cmp(staple->leaf, chosen) != 0) {
        staple = staple->next;
    }
    if (chosen == NULL || staple == NULL || !is_current(staple)) {
        return SSL_TLSEXT_ERR_NOACK;
    }
    uint8_t *response = OPENSSL_malloc(staple->len);
    if (response == NULL) {
        return SSL_TLSEXT_ERR_NOACK;
    }
    memcpy(response, staple->response, staple->len);
    /* The library frees it if it takes it. */
    if (!SSL_set_tlsext_status_ocsp_resp(ssl, response, (long)staple->len)) {
        OPENSSL_free(response);
        return SSL_TLSEXT_ERR_NOACK;
    }
    return SSL_TLSEXT_ERR_OK;
}
#endif

int32_t tl_staple_use(tl_context *context, size_t group, const tl_identity *identity)
{
    const tl_staple *own = identity->staple;
    if (own == NULL) {
        return 1;
    }
    tl_staple *staple = staple_new(own->leaf, own->response, own->len, own->until);
    if (staple == NULL) {
        return 0;
    }
    staple->next = context->staples[group];
    context->staples[group] = staple;
    SSL_CTX *ctx = context->groups[group];
    return SSL_CTX_set_tlsext_status_cb(ctx, on_status) && SSL_CTX_set_tlsext_status_arg(ctx, staple);
}
