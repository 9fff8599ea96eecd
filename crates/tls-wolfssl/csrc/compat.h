/* Included before each source: functions of OpenSSL's interface that wolfSSL lacks, or has under another name. */
#ifndef TAUTLINE_COMPAT_H
#define TAUTLINE_COMPAT_H

#define _GNU_SOURCE

#include <wolfssl/wolfcrypt/settings.h>

#include <wolfssl/ssl.h>

#include <openssl/ssl.h>

/* Selects wolfSSL's variants in shared files. One of them is a single certificate for each group. */
#define TL_WOLFSSL

static inline int tl_set1_chain(SSL_CTX *ctx, STACK_OF(X509) *chain)
{
    int good = 1;
    for (int at = 0; good && at < sk_X509_num(chain); at++) {
        good = SSL_CTX_add1_chain_cert(ctx, sk_X509_value(chain, at)) == 1;
    }
    return good;
}

#define SSL_CTX_set1_chain(ctx, chain) tl_set1_chain((ctx), (chain))

/* OpenSSL's function returns 0 for success, wolfSSL's does not. */
static inline int tl_set_alpn(SSL_CTX *ctx, const unsigned char *list, unsigned int len)
{
    return wolfSSL_CTX_set_alpn_protos(ctx, list, len) == WOLFSSL_SUCCESS ? 0 : 1;
}

#undef SSL_CTX_set_alpn_protos
#define SSL_CTX_set_alpn_protos(ctx, list, len) tl_set_alpn((ctx), (list), (len))

#endif
