/* The names that a server has certificates for, and the name that a client sends. For the shims of all libraries. */
#ifndef TAUTLINE_NAMES_H
#define TAUTLINE_NAMES_H

#include "table.h"

#include <stdlib.h>
#include <string.h>

/* Room for the longest host name (RFC 1035, section 2.3.4) and its terminating zero. */
#define TL_NAME 256

/* Copies the client's server name to `name` (TL_NAME). Returns whether it can be a name. */
static inline int tl_name_copy(char *name, const uint8_t *asked, size_t len)
{
    if (len >= TL_NAME || memchr(asked, 0, len) != NULL) {
        return 0;
    }
    memcpy(name, asked, len);
    name[len] = '\0';
    return 1;
}

/* Copies `name` in lower case to `lower` (TL_NAME), because names compare without case. Returns its length. */
static inline size_t tl_name_lowercase(char *lower, const char *name)
{
    size_t len = 0;
    for (; name[len] != '\0' && len + 1 < TL_NAME; len++) {
        lower[len] = name[len] >= 'A' && name[len] <= 'Z' ? (char)(name[len] + ('a' - 'A')) : name[len];
    }
    lower[len] = '\0';
    return len;
}

static inline size_t tl_two_bytes(const uint8_t *at)
{
    return (size_t)at[0] << 8 | at[1];
}

/* Copies the name in a server_name extension (RFC 6066, section 3) to `name` (TL_NAME), if there is one. */
static inline void tl_name_of_extension(const uint8_t *extension, size_t len, char *name)
{
    const size_t header = 2 + 1 + 2;
    if (len >= header && extension[2] == 0 && tl_two_bytes(extension + 3) <= len - header) {
        (void)tl_name_copy(name, extension + header, tl_two_bytes(extension + 3));
    }
}

/* Copies the server name in a ClientHello, which begins with its header, to `name` (TL_NAME), if there is one. */
static inline void tl_name_of_hello(const uint8_t *hello, size_t len, char *name)
{
    /* Header, version, random; then session id, suites, compression and extensions, each with its length first. */
    size_t at = 4 + 2 + 32;
    at += at < len ? 1 + (size_t)hello[at] : len;
    at += at + 2 <= len ? 2 + tl_two_bytes(hello + at) : len;
    at += at < len ? 1 + (size_t)hello[at] : len;
    at += 2;
    while (at + 4 <= len) {
        size_t extension_len = tl_two_bytes(hello + at + 2);
        if (extension_len > len - at - 4) {
            return;
        }
        if (tl_two_bytes(hello + at) == 0) {
            tl_name_of_extension(hello + at + 4, extension_len, name);
            return;
        }
        at += 4 + extension_len;
    }
}

static inline int tl_names_compare(const void *a, const void *b)
{
    return strcmp(((const tl_name *)a)->name, ((const tl_name *)b)->name);
}

/* Makes a sorted copy of `names`, whose groups must be below `groups`; null if memory runs out. */
static inline tl_name *tl_names_new(const tl_name *names, size_t len, size_t groups)
{
    tl_name *copy = calloc(len == 0 ? 1 : len, sizeof(*copy));
    for (size_t at = 0; copy != NULL && at < len; at++) {
        copy[at].name = names[at].group < groups ? strdup(names[at].name) : NULL;
        copy[at].group = names[at].group;
        if (copy[at].name == NULL) {
            while (at > 0) {
                free((char *)copy[--at].name);
            }
            free(copy);
            return NULL;
        }
    }
    if (copy != NULL) {
        qsort(copy, len, sizeof(*copy), tl_names_compare);
    }
    return copy;
}

static inline void tl_names_free(tl_name *names, size_t len)
{
    for (size_t at = 0; at < len; at++) {
        free((char *)names[at].name);
    }
    free(names);
}

/* Finds the entry for the client's server name: first an exact name, then a wildcard; null if there is none. */
static inline const tl_name *tl_names_find(const tl_name *names, size_t len, const char *asked)
{
    /* The first byte is room for the wildcard. */
    char name[TL_NAME + 1];
    size_t name_len = tl_name_lowercase(name + 1, asked);
    tl_name key = {name + 1, 0};
    if (len == 0) {
        return NULL;
    }
    if (name_len > 0 && name[name_len] == '.') {
        name[name_len] = '\0';
    }
    const tl_name *found = bsearch(&key, names, len, sizeof(key), tl_names_compare);
    /* RFC 6125, section 6.4.3: a wildcard stands for exactly one label, the leftmost. */
    char *dot = strchr(name + 1, '.');
    if (found == NULL && dot != NULL && dot > name + 1) {
        dot[-1] = '*';
        key.name = dot - 1;
        found = bsearch(&key, names, len, sizeof(key), tl_names_compare);
    }
    return found;
}

#endif
