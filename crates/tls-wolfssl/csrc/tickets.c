/* The keys that seal a server's tickets: AES-256-GCM, three of them. */
#include "shim.h"

#include <wolfssl/wolfcrypt/aes.h>

#include <stdlib.h>
#include <string.h>

enum { CURRENT, NEXT, PREVIOUS };

#define NAME 16
#define NONCE 12
#define TAG 16

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

/* Copies the key of this name, or the current one where there is no name; gives its place, or -1. */
static int find_key(tl_tickets *tickets, const uint8_t *name, tl_ticket_key *key)
{
    int found = -1;
    pthread_rwlock_rdlock(&tickets->lock);
    for (int at = CURRENT; at <= PREVIOUS && found < 0; at++) {
        if (name == NULL || memcmp(tickets->keys[at].name, name, NAME) == 0) {
            *key = tickets->keys[at];
            found = at;
        }
    }
    pthread_rwlock_unlock(&tickets->lock);
    return found;
}

/* Seals or opens the ticket in place. The library's iv and mac are longer than a nonce and a tag. */
static int on_ticket(WOLFSSL *ssl, unsigned char *name, unsigned char *iv, unsigned char *mac, int seals,
                     unsigned char *ticket, int len, int *out_len, void *user)
{
    tl_ticket_key key;
    int place = find_key(user, seals ? NULL : name, &key);
    int result = seals ? WOLFSSL_TICKET_RET_FATAL : WOLFSSL_TICKET_RET_REJECT;
    if (place < 0) {
        return result;
    }
    Aes aes;
    int code = wc_AesInit(&aes, NULL, INVALID_DEVID);
    if (code == 0) {
        code = wc_AesGcmSetKey(&aes, key.cipher, sizeof(key.cipher));
    }
    if (code == 0 && seals) {
        memcpy(name, key.name, NAME);
        memset(iv, 0, WOLFSSL_TICKET_IV_SZ);
        memset(mac, 0, WOLFSSL_TICKET_MAC_SZ);
        code = RAND_bytes(iv, NONCE) == 1
                   ? wc_AesGcmEncrypt(&aes, ticket, ticket, (word32)len, iv, NONCE, mac, TAG, name, NAME)
                   : -1;
    } else if (code == 0) {
        code = wc_AesGcmDecrypt(&aes, ticket, ticket, (word32)len, iv, NONCE, mac, TAG, name, NAME);
    }
    wc_AesFree(&aes);
    OPENSSL_cleanse(&key, sizeof(key));
    if (code == 0) {
        *out_len = len;
        /* A server of TLS 1.3 sends new tickets at any rate, and takes no word of it here. */
        int keeps = seals || place == CURRENT || wolfSSL_version(ssl) >= TLS1_3_VERSION;
        result = keeps ? WOLFSSL_TICKET_RET_OK : WOLFSSL_TICKET_RET_CREATE;
    }
    return result;
}

int32_t tl_tickets_use(SSL_CTX *ctx)
{
    const tl_context *context = SSL_CTX_get_app_data(ctx);
    return wolfSSL_CTX_set_TicketEncCb(ctx, on_ticket) == WOLFSSL_SUCCESS
           && wolfSSL_CTX_set_TicketEncCtx(ctx, context->tickets) == WOLFSSL_SUCCESS;
}
