/* Seals a server's tickets with AES-256-GCM. A ticket is valid only for the client's server name, which the tag covers. */
#include "shim.h"

#include "mbedtls/gcm.h"
#include "mbedtls/platform_util.h"

#include <string.h>

/* A ticket: the key's name, a nonce, the sealed session, a tag. */
#define NAME 16
#define NONCE 12
#define TAG 16
#define OVERHEAD (NAME + NONCE + TAG)

/* The additional data of a ticket: the key's name and the server name. */
typedef struct {
    unsigned char text[NAME + TL_NAME];
    size_t len;
} binding;

static binding bind(const unsigned char *key, const char *server)
{
    binding to;
    memcpy(to.text, key, NAME);
    to.len = NAME + tl_name_lowercase((char *) to.text + NAME, server);
    return to;
}

/* Fills `bytes` with random numbers. Returns whether it succeeded. */
int32_t tl_random(uint8_t *bytes, size_t len)
{
    return psa_generate_random(bytes, len) == PSA_SUCCESS;
}

int tl_ticket_seal(void *user, const mbedtls_ssl_session *session, unsigned char *start, const unsigned char *end,
                   size_t *len, uint32_t *lifetime)
{
    const tl_context *context = user;
    size_t room = (size_t) (end - start);
    *len = 0;
    *lifetime = context->tickets_last;
    if (room < OVERHEAD) {
        return MBEDTLS_ERR_SSL_BUFFER_TOO_SMALL;
    }
    tl_ticket_key key;
    unsigned char *nonce = start + NAME;
    unsigned char *sealed = nonce + NONCE;
    size_t sealed_len = 0;
    int code = mbedtls_ssl_session_save(session, sealed, room - OVERHEAD, &sealed_len);
    if (code != 0) {
        return code;
    }
    if (context->find_key(context->ticket_keys, NULL, &key) == TL_NO_KEY) {
        mbedtls_platform_zeroize(start, room);
        return MBEDTLS_ERR_SSL_INTERNAL_ERROR;
    }
    mbedtls_gcm_context gcm;
    mbedtls_gcm_init(&gcm);
    memcpy(start, key.name, NAME);
    code = psa_generate_random(nonce, NONCE) == PSA_SUCCESS ? 0 : MBEDTLS_ERR_SSL_INTERNAL_ERROR;
    if (code == 0) {
        code = mbedtls_gcm_setkey(&gcm, MBEDTLS_CIPHER_ID_AES, key.cipher, 256);
    }
    if (code == 0) {
        binding to = bind(start, tl_current->server_name);
        code = mbedtls_gcm_crypt_and_tag(&gcm, MBEDTLS_GCM_ENCRYPT, sealed_len, nonce, NONCE, to.text, to.len, sealed,
                                         sealed, TAG, sealed + sealed_len);
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
    const tl_context *context = user;
    tl_ticket_key key;
    if (len < OVERHEAD || context->find_key(context->ticket_keys, ticket, &key) == TL_NO_KEY) {
        return MBEDTLS_ERR_SSL_INVALID_MAC;
    }
    unsigned char *nonce = ticket + NAME;
    unsigned char *sealed = nonce + NONCE;
    size_t sealed_len = len - OVERHEAD;
    mbedtls_gcm_context gcm;
    mbedtls_gcm_init(&gcm);
    int code = mbedtls_gcm_setkey(&gcm, MBEDTLS_CIPHER_ID_AES, key.cipher, 256);
    if (code == 0) {
        /* The library may reach the ticket before the server name. It has checked the message's length. */
        const unsigned char *hello = tl_current->ssl.in_msg;
        size_t hello_len = 4 + ((size_t) hello[1] << 16 | (size_t) hello[2] << 8 | hello[3]);
        char asked[TL_NAME] = "";
        if (hello_len <= MBEDTLS_SSL_IN_CONTENT_LEN) {
            tl_name_of_hello(hello, hello_len, asked);
        }
        binding to = bind(ticket, asked);
        code = mbedtls_gcm_auth_decrypt(&gcm, sealed_len, nonce, NONCE, to.text, to.len, sealed + sealed_len, TAG, sealed,
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
