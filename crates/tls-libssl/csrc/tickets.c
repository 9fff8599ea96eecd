/* The keys that seal a server's tickets (RFC 5077, section 4): AES-256-CBC and HMAC-SHA-256, three of each. */
#define _GNU_SOURCE
#include "shim.h"

#include <openssl/crypto.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <stdlib.h>
#include <string.h>

#if !TL_BORING_FAMILY && !defined(LIBRESSL_VERSION_NUMBER)
#include <openssl/core_names.h>
#include <openssl/params.h>
#define MAC_CTX EVP_MAC_CTX
#else
#define MAC_CTX HMAC_CTX
#endif

enum { CURRENT, NEXT, PREVIOUS };

/* Keys, all random; null where that fails. */
tl_tickets *tl_tickets_new(void)
{
    tl_tickets *tickets = calloc(1, sizeof(*tickets));
    if (tickets == NULL || pthread_rwlock_init(&tickets->lock, NULL) != 0) {
        free(tickets);
        return NULL;
    }
    if (RAND_bytes((uint8_t *)tickets->keys, sizeof(tickets->keys)) != 1) {
        tl_tickets_free(tickets);
        return NULL;
    }
    return tickets;
}

void tl_tickets_free(tl_tickets *tickets)
{
    if (tickets != NULL) {
        OPENSSL_cleanse(tickets->keys, sizeof(tickets->keys));
        pthread_rwlock_destroy(&tickets->lock);
        free(tickets);
    }
}

/* Has the keys move up: the previous one is erased, a new one follows the next. Says whether there was randomness. */
int32_t tl_tickets_rotate(tl_tickets *tickets)
{
    tl_ticket_key fresh;
    if (RAND_bytes((uint8_t *)&fresh, sizeof(fresh)) != 1) {
        return 0;
    }
    pthread_rwlock_wrlock(&tickets->lock);
    tickets->keys[PREVIOUS] = tickets->keys[CURRENT];
    tickets->keys[CURRENT] = tickets->keys[NEXT];
    tickets->keys[NEXT] = fresh;
    pthread_rwlock_unlock(&tickets->lock);
    OPENSSL_cleanse(&fresh, sizeof(fresh));
    return 1;
}

static int set_mac(MAC_CTX *mac, const tl_ticket_key *key)
{
#if !TL_BORING_FAMILY && !defined(LIBRESSL_VERSION_NUMBER)
    OSSL_PARAM params[] = {
        OSSL_PARAM_construct_octet_string(OSSL_MAC_PARAM_KEY, (void *)key->mac, sizeof(key->mac)),
        OSSL_PARAM_construct_utf8_string(OSSL_MAC_PARAM_DIGEST, (char *)"SHA256", 0),
        OSSL_PARAM_construct_end(),
    };
    return EVP_MAC_CTX_set_params(mac, params);
#else
    return HMAC_Init_ex(mac, key->mac, sizeof(key->mac), EVP_sha256(), NULL);
#endif
}

/* 0: no key of ours; 1: go on; 2: go on and issue a new ticket. */
static int on_ticket(SSL *ssl, unsigned char *name, unsigned char *iv, EVP_CIPHER_CTX *cipher, MAC_CTX *mac, int seals)
{
    const tl_context *context = SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl));
    tl_tickets *tickets = context->tickets;
    int result = seals ? -1 : 0;
    pthread_rwlock_rdlock(&tickets->lock);
    for (int at = CURRENT; at <= PREVIOUS; at++) {
        const tl_ticket_key *key = &tickets->keys[at];
        if (seals) {
            memcpy(name, key->name, sizeof(key->name));
            if (RAND_bytes(iv, 16) == 1 && EVP_EncryptInit_ex(cipher, EVP_aes_256_cbc(), NULL, key->cipher, iv)
                && set_mac(mac, key)) {
                result = 1;
            }
            break;
        }
        if (CRYPTO_memcmp(name, key->name, sizeof(key->name)) == 0) {
            if (EVP_DecryptInit_ex(cipher, EVP_aes_256_cbc(), NULL, key->cipher, iv) && set_mac(mac, key)) {
                /* Clients use a ticket of TLS 1.3 once. */
                result = at == CURRENT && SSL_version(ssl) < TLS1_3_VERSION ? 1 : 2;
            }
            break;
        }
    }
    pthread_rwlock_unlock(&tickets->lock);
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
