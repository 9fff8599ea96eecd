/* Seals a server's tickets with AES-256-GCM. */
#include "shim.h"

#include <wolfssl/wolfcrypt/aes.h>

#include <limits.h>
#include <string.h>

#define NAME 16
#define NONCE 12
#define TAG 16

/* Fills `bytes` with random numbers. Returns whether it succeeded. */
int32_t tl_random(uint8_t *bytes, size_t len)
{
    return len <= INT_MAX && RAND_bytes(bytes, (int)len) == 1;
}

/* Seals or opens a ticket in place. The library's iv and mac are longer than the nonce and the tag. */
static int on_ticket(WOLFSSL *ssl, unsigned char *name, unsigned char *iv, unsigned char *mac, int seals,
                     unsigned char *ticket, int len, int *out_len, void *user)
{
    const tl_context *context = user;
    tl_ticket_key key;
    int result = seals ? WOLFSSL_TICKET_RET_FATAL : WOLFSSL_TICKET_RET_REJECT;
    if (context->find_key(context->ticket_keys, seals ? NULL : name, &key) == TL_NO_KEY) {
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
        /*
         * A server of TLS 1.3 always sends new tickets. In TLS 1.2 the library checks the server name later, and would send no
         * ticket if that differs. So the result asks for a new one.
         */
        int keeps = seals || wolfSSL_version(ssl) >= TLS1_3_VERSION;
        result = keeps ? WOLFSSL_TICKET_RET_OK : WOLFSSL_TICKET_RET_CREATE;
    }
    return result;
}

int32_t tl_tickets_use(SSL_CTX *ctx)
{
    return wolfSSL_CTX_set_TicketEncCb(ctx, on_ticket) == WOLFSSL_SUCCESS
           && wolfSSL_CTX_set_TicketEncCtx(ctx, SSL_CTX_get_app_data(ctx)) == WOLFSSL_SUCCESS;
}
