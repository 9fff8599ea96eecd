/* The keys that seal a server's tickets: AES-256-GCM, three of them. */
#include "shim.h"

#include "mbedtls/gcm.h"
#include "mbedtls/platform_util.h"

#include <stdlib.h>
#include <string.h>

enum { CURRENT, NEXT, PREVIOUS };

/* A ticket: the key's name, a nonce, the sealed session, a tag. */
#define NAME 16
#define NONCE 12
#define TAG 16
#define OVERHEAD (NAME + NONCE + TAG)

/* Seconds for which clients may keep a ticket: no key lives for longer than twice as long. */
#define LIFETIME (12 * 60 * 60)

/* Keys, all random; null where that fails. */
tl_tickets *tl_tickets_new(void)
{
    tl_tickets *tickets = calloc(1, sizeof(*tickets));
    if (tickets == NULL || pthread_rwlock_init(&tickets->lock, NULL) != 0) {
        free(tickets);
        return NULL;
    }
    if (psa_generate_random((uint8_t *) tickets->keys, sizeof(tickets->keys)) != PSA_SUCCESS) {
        tl_tickets_free(tickets);
        return NULL;
    }
    return tickets;
}

void tl_tickets_free(tl_tickets *tickets)
{
    if (tickets != NULL) {
        mbedtls_platform_zeroize(tickets->keys, sizeof(tickets->keys));
        pthread_rwlock_destroy(&tickets->lock);
        free(tickets);
    }
}

/* Has the keys move up: the previous one is erased, a new one follows the next. Says whether there was randomness. */
int32_t tl_tickets_rotate(tl_tickets *tickets)
{
    tl_ticket_key fresh;
    if (psa_generate_random((uint8_t *) &fresh, sizeof(fresh)) != PSA_SUCCESS) {
        return 0;
    }
    pthread_rwlock_wrlock(&tickets->lock);
    tickets->keys[PREVIOUS] = tickets->keys[CURRENT];
    tickets->keys[CURRENT] = tickets->keys[NEXT];
    tickets->keys[NEXT] = fresh;
    pthread_rwlock_unlock(&tickets->lock);
    mbedtls_platform_zeroize(&fresh, sizeof(fresh));
    return 1;
}

/* Copies the key of this name, or the current one where there is no name. Says whether there is such a key. */
static int find_key(tl_tickets *tickets, const uint8_t *name, tl_ticket_key *key)
{
    int found = 0;
    pthread_rwlock_rdlock(&tickets->lock);
    for (int at = CURRENT; at <= PREVIOUS && !found; at++) {
        found = name == NULL || memcmp(tickets->keys[at].name, name, NAME) == 0;
        if (found) {
            *key = tickets->keys[at];
        }
    }
    pthread_rwlock_unlock(&tickets->lock);
    return found;
}

int tl_ticket_seal(void *user, const mbedtls_ssl_session *session, unsigned char *start, const unsigned char *end,
                   size_t *len, uint32_t *lifetime)
{
    size_t room = (size_t) (end - start);
    *len = 0;
    *lifetime = LIFETIME;
    if (room < OVERHEAD) {
        return MBEDTLS_ERR_SSL_BUFFER_TOO_SMALL;
    }
    unsigned char *nonce = start + NAME;
    unsigned char *sealed = nonce + NONCE;
    size_t sealed_len = 0;
    int code = mbedtls_ssl_session_save(session, sealed, room - OVERHEAD, &sealed_len);
    if (code != 0) {
        return code;
    }
    tl_ticket_key key;
    mbedtls_gcm_context gcm;
    mbedtls_gcm_init(&gcm);
    (void) find_key(user, NULL, &key);
    memcpy(start, key.name, NAME);
    code = psa_generate_random(nonce, NONCE) == PSA_SUCCESS ? 0 : MBEDTLS_ERR_SSL_INTERNAL_ERROR;
    if (code == 0) {
        code = mbedtls_gcm_setkey(&gcm, MBEDTLS_CIPHER_ID_AES, key.key, 256);
    }
    if (code == 0) {
        code = mbedtls_gcm_crypt_and_tag(&gcm, MBEDTLS_GCM_ENCRYPT, sealed_len, nonce, NONCE, start, NAME, sealed, sealed,
                                         TAG, sealed + sealed_len);
    }
    mbedtls_gcm_free(&gcm);
    mbedtls_platform_zeroize(&key, sizeof(key));
    if (code != 0) {
        mbedtls_platform_zeroize(start, room);
        return code;
    }
    *len = OVERHEAD + sealed_len;
    return 0;
}

int tl_ticket_open(void *user, mbedtls_ssl_session *session, unsigned char *ticket, size_t len)
{
    tl_ticket_key key;
    if (len < OVERHEAD || !find_key(user, ticket, &key)) {
        return MBEDTLS_ERR_SSL_INVALID_MAC;
    }
    unsigned char *nonce = ticket + NAME;
    unsigned char *sealed = nonce + NONCE;
    size_t sealed_len = len - OVERHEAD;
    mbedtls_gcm_context gcm;
    mbedtls_gcm_init(&gcm);
    int code = mbedtls_gcm_setkey(&gcm, MBEDTLS_CIPHER_ID_AES, key.key, 256);
    if (code == 0) {
        code = mbedtls_gcm_auth_decrypt(&gcm, sealed_len, nonce, NONCE, ticket, NAME, sealed + sealed_len, TAG, sealed,
                                        sealed);
    }
    mbedtls_gcm_free(&gcm);
    mbedtls_platform_zeroize(&key, sizeof(key));
    if (code != 0) {
        return MBEDTLS_ERR_SSL_INVALID_MAC;
    }
    code = mbedtls_ssl_session_load(session, sealed, sealed_len);
    mbedtls_platform_zeroize(sealed, sealed_len);
    return code;
}
