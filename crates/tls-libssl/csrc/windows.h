/* What a connection has of the caller's buffers during one operation, and what did not fit there. For the shims of all libraries. */
#ifndef TAUTLINE_WINDOWS_H
#define TAUTLINE_WINDOWS_H

#include "table.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
    /* Armed for one operation. */
    const uint8_t *in;
    size_t in_len;
    uint8_t *out;
    size_t out_cap;
    size_t out_len;
    /* What did not fit the window. */
    uint8_t *spill;
    size_t spill_len;
    size_t spill_cap;
    int broken; /* spilling failed: what was to be sent is lost, and nothing may follow it */
    int spill_fails; /* for tests */
} tl_windows;

/* Lends the caller's buffers to the connection. Says whether it is fit for an operation. */
static inline int tl_windows_arm(tl_windows *windows, const uint8_t *in, size_t in_len, uint8_t *out, size_t out_cap)
{
    windows->in = in;
    windows->in_len = in_len;
    windows->out = out;
    windows->out_cap = out_cap;
    windows->out_len = 0;
    return !windows->broken;
}

/* Takes the buffers back, of which `in_len` bytes were to be read, and says what became of them. */
static inline void tl_windows_disarm(tl_windows *windows, size_t in_len, tl_result *result)
{
    result->used = in_len - windows->in_len;
    result->written = windows->out_len;
    result->spilled = windows->spill_len;
    (void)tl_windows_arm(windows, NULL, 0, NULL, 0);
}

/* Reads at most `cap` bytes; gives how many. */
static inline size_t tl_windows_read(tl_windows *windows, void *to, size_t cap)
{
    size_t len = windows->in_len < cap ? windows->in_len : cap;
    if (len > 0) {
        memcpy(to, windows->in, len);
        windows->in += len;
        windows->in_len -= len;
    }
    return len;
}

/* Writes all of `from`, or says that there was no memory for it. */
static inline int tl_windows_write(tl_windows *windows, const void *from, size_t size)
{
    /* Once something has spilled, all that follows must, to keep the order. */
    if (windows->spill_len == 0 && size <= windows->out_cap - windows->out_len) {
        memcpy(windows->out + windows->out_len, from, size);
        windows->out_len += size;
        return 1;
    }
    if (size > windows->spill_cap - windows->spill_len) {
        size_t needed = windows->spill_len + size;
        size_t cap = windows->spill_cap * 2 > needed ? windows->spill_cap * 2 : needed;
        uint8_t *spill = windows->spill_fails || cap < size ? NULL : realloc(windows->spill, cap);
        if (spill == NULL) {
            windows->broken = 1;
            return 0;
        }
        windows->spill = spill;
        windows->spill_cap = cap;
    }
    memcpy(windows->spill + windows->spill_len, from, size);
    windows->spill_len += size;
    return 1;
}

/* Moves what spilled to `out`, which has room for all of it. */
static inline void tl_windows_spill(tl_windows *windows, uint8_t *out)
{
    memcpy(out, windows->spill, windows->spill_len);
    free(windows->spill);
    windows->spill = NULL;
    windows->spill_len = 0;
    windows->spill_cap = 0;
}

#endif
