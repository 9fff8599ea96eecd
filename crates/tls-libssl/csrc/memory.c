/*
 * OpenSSL's buffers. A connection has one for reading and one for writing only while there is something in them
 * (SSL_MODE_RELEASE_BUFFERS), so each record takes a block of some 16 KiB and gives it back: every thread keeps a few of them,
 * which are then in its cache too.
 */
#include "shim.h"

#if !TL_BORING_FAMILY && !defined(LIBRESSL_VERSION_NUMBER)

#include <malloc.h>
#include <stdlib.h>

#include <openssl/crypto.h>

/* What a record's buffer takes at least, and the blocks that are kept: they fit both directions. */
#define LEAST SSL3_RT_MAX_PLAIN_LENGTH
#define BLOCK (SSL3_RT_MAX_PLAIN_LENGTH + 1024)

/* As many as two connections use at a time. */
#define KEPT 4

typedef struct {
    size_t len;
    void *blocks[KEPT];
    int known; /* to `threads`: 1, or -1 when the thread ends */
} cache;

static _Thread_local cache mine;
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
    return mine.len > 0 ? mine.blocks[--mine.len] : malloc(BLOCK);
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
    if (size < BLOCK || size > 2 * BLOCK || mine.len == KEPT || mine.known < 0) {
        free(block);
        return;
    }
    if (mine.known == 0) {
        if (pthread_setspecific(threads, &mine) != 0) {
            free(block);
            return;
        }
        mine.known = 1;
    }
    mine.blocks[mine.len++] = block;
}

/* To be called before anything else of the library. Where it does not work, the library allocates as it always does. */
void tl_memory_init(void)
{
    if (pthread_key_create(&threads, give_back) == 0) {
        CRYPTO_set_mem_functions(take, grow, drop);
    }
}

#endif
