/*
 * Seals a server's tickets with AES-256-CBC and HMAC-SHA-256 (RFC 5077, section 4).
 *
 * The MAC key is derived for the client's server name. So a ticket is valid only for that name, which not all libraries check.
 */
#define _GNU_SOURCE
#include "shim.h"

#include <openssl/crypto.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <limits.h>
#include <string.h>

#if !TL_BORING_FAMILY && !defined(LIBRESSL_VERSION_NUMBER)
#include <openssl/core_names.h>
#include <openssl/params.h>
#define MAC_CTX EVP_MAC_CTX
#else
#define MAC_CTX HMAC_CTX
#endif

/* Fills `bytes` with random numbers. Returns whether it succeeded. */
int32_t tl_random(uint8_t *bytes, size_t len)
{
    int filled = len <= INT_MAX && RAND_bytes(bytes, (int)len) == 1;
    if (!filled) {
        ERR_clear_error();
    }
    return filled;
}

static int set_mac(MAC_CTX *mac, const tl_ticket_key *key, const tl_conn *conn)
{
    char name[TL_NAME];
    uint8_t bound[32];
    unsigned int bound_len = 0;
    size_t name_len = tl_name_lowercase(name, conn->server_name);
    if (HMAC(EVP_sha256(), key->mac, sizeof(key->mac), (const uint8_t *)name, name_len, bound, &bound_len) == NULL) {
        return 0;
    }
#if !TL_BORING_FAMILY && !defined(LIBRESSL_VERSION_NUMBER)
    OSSL_PARAM params[] = {
        OSSL_PARAM_construct_octet_string(OSSL_MAC_PARAM_KEY, bound, bound_len),
        OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, (char *)"SHA256", 0),
        OSSL_PARAM_construct_end(),
    };
    int set = EVP_MAC_CTX_set_params(mac, params);
#else
    int set = HMAC_Init_ex(mac, bound, (int)bound_len, EVP_sha256(), NULL);
#endif
    OPENSSL_cleanse(bound, sizeof(bound));
    return set;
}

/* Returns 0 for an unknown key, 1 to continue, 2 to continue and issue a new ticket. */
static int on_ticket(SSL *ssl, unsigned char *name, unsigned char *iv, EVP_CIPHER_CTX *cipher, MAC_CTX *mac, int seals)
{
    const tl_context *context = SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl));
    const tl_conn *conn = SSL_get_app_data(ssl);
    tl_ticket_key key;
    int32_t which = context->find_key(context->ticket_keys, seals ? NULL : name, &key);
    int result = seals ? -1 : 0;
    if (which == TL_NO_KEY) {
        return result;
    }
    if (seals) {
        memcpy(name, key.name, sizeof(key.name));
        if (RAND_bytes(iv, 16) == 1 && EVP_EncryptInit_ex(cipher, EVP_aes_256_cbc(), NULL, key.cipher, iv)
            && set_mac(mac, &key, conn)) {
            result = 1;
        }
    } else if (EVP_DecryptInit_ex(cipher, EVP_aes_256_cbc(), NULL, key.cipher, iv) && set_mac(mac, &key, conn)) {
        /* Clients use a TLS 1.3 ticket once, so they receive a new one. */
        result = which == TL_CURRENT_KEY && SSL_version(ssl) < TLS1_3_VERSION ? 1 : 2;
    }
    OPENSSL_cleanse(&key, sizeof(key));
    return result;
}

int32_t tl_tickets_use(SSL_CTX *ctx)
{
#if !TL_BORING_FAMILY && !defined(LIBRESSL_VERSION_NUMBER)
    return (int32_t)SSL_CTX_set_tlsext_ticket_key_evp_cb(ctx, on_ticket);
#else
    return (int32_t)SSL_CTX_set_tlsext_ticket_key_cb(ctx, on_ticket);
#endif
}
