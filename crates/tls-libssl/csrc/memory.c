/*
 * Memory for OpenSSL's record buffers.
 *
 * A connection has them only while they hold something (SSL_MODE_RELEASE_BUFFERS). So each record allocates a block of about
 * 16 KiB and frees it. Every thread keeps a few such blocks, which then stay in the processor's cache.
 */
#include "shim.h"

#if !TL_BORING_FAMILY && !defined(LIBRESSL_VERSION_NUMBER)

#include <malloc.h>
#include <stdlib.h>

#include <openssl/crypto.h>

/* Requests of more than LEAST bytes, up to BLOCK, receive blocks of BLOCK bytes, which fit both directions. */
#define LEAST SSL3_RT_MAX_PLAIN_LENGTH
#define BLOCK (SSL3_RT_MAX_PLAIN_LENGTH + 1024)

/* Two connections use this number of blocks at a time. */
#define KEPT 4

typedef struct {
    size_t len;
    void *blocks[KEPT];
    int known; /* 1 if `threads` has this cache, -1 when the thread ends */
} cache;

static _Thread_local cache own_cache;
static pthread_key_t threads;

static void give_back(void *ended)
{
    cache *own = ended;
    own->known = -1;
    while (own->len > 0) {
        free(own->blocks[--own->len]);
    }
}

static void *take(size_t size, const char *file, int line)
{
    (void)file;
    (void)line;
    if (size <= LEAST || size > BLOCK) {
        return size == 0 ? NULL : malloc(size);
    }
    return own_cache.len > 0 ? own_cache.blocks[--own_cache.len] : malloc(BLOCK);
}

static void *grow(void *block, size_t size, const char *file, int line)
{
    (void)file;
    (void)line;
    if (size == 0) {
        free(block);
        return NULL;
    }
    return realloc(block, size);
}

static void drop(void *block, const char *file, int line)
{
    (void)file;
    (void)line;
    if (block == NULL) {
        return;
    }
    size_t size = malloc_usable_size(block);
    if (size < BLOCK || size > 2 * BLOCK || own_cache.len == KEPT || own_cache.known < 0) {
        free(block);
        return;
    }
    if (own_cache.known == 0) {
        if (pthread_setspecific(threads, &own_cache) != 0) {
            free(block);
            return;
        }
        own_cache.known = 1;
    }
    own_cache.blocks[own_cache.len++] = block;
}

/* Must be called before all else of the library. If it fails, the library allocates as usual. */
void tl_memory_init(void)
{
    if (pthread_key_create(&threads, give_back) == 0) {
        CRYPTO_set_mem_functions(take, grow, drop);
    }
}

#endif
