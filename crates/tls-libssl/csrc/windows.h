/* The caller's buffers during one operation, and output that does not fit them. For the shims of all libraries. */
#ifndef TAUTLINE_WINDOWS_H
#define TAUTLINE_WINDOWS_H

#include "table.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
    /* Set for one operation. */
    const uint8_t *in;
    size_t in_len;
    uint8_t *out;
    size_t out_cap;
    size_t out_len;
    /* Output that did not fit the window. */
    uint8_t *spill;
    size_t spill_len;
    size_t spill_cap;
    int broken; /* spilling failed: output is lost, and nothing may follow it */
    int spill_fails; /* for tests */
} tl_windows;

/* Lends the caller's buffers to the connection. Returns whether it can be used. */
static inline int tl_windows_arm(tl_windows *windows, const uint8_t *in, size_t in_len, uint8_t *out, size_t out_cap)
{
    windows->in = in;
    windows->in_len = in_len;
    windows->out = out;
    windows->out_cap = out_cap;
    windows->out_len = 0;
    return !windows->broken;
}

/* Takes the buffers back and fills the result. `in_len` is the number of bytes that were to be read. */
static inline void tl_windows_disarm(tl_windows *windows, size_t in_len, tl_result *result)
{
    result->used = in_len - windows->in_len;
    result->written = windows->out_len;
    result->spilled = windows->spill_len;
    (void)tl_windows_arm(windows, NULL, 0, NULL, 0);
}

/* Reads at most `cap` bytes. Returns their number. */
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

/* Writes all of `from`. Returns whether there was memory. */
static inline int tl_windows_write(tl_windows *windows, const void *from, size_t size)
{
    /* After a spill all further output spills too, to keep the order. */
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

/* Moves the spilled output to `out`, which has room for all of it. */
static inline void tl_windows_spill(tl_windows *windows, uint8_t *out)
{
    memcpy(out, windows->spill, windows->spill_len);
    free(windows->spill);
    windows->spill = NULL;
    windows->spill_len = 0;
    windows->spill_cap = 0;
}

#endif
