/* What the programs of tests share. Each includes this once. */
#ifndef SUPPORT_H
#define SUPPORT_H

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tautline.h"

#define CHECK(condition)                                                            \
    do {                                                                            \
        if (!(condition)) {                                                         \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);         \
            exit(1);                                                                \
        }                                                                           \
    } while (0)

static const char *ca, *chain, *key;

static char text[256];

/* An error struct that the next call fills. */
static taut_error *detail(void) {
    static taut_error error;
    memset(&error, 0, sizeof error);
    error.size = sizeof error;
    error.text = text;
    error.room = sizeof text;
    return &error;
}

static const taut_tls_config *server_config(void) {
    const taut_tls_config *config = NULL;
    CHECK(taut_tls_config_new(TAUT_SERVER, "fused", &config, detail()) == TAUT_OK);
    CHECK(taut_tls_config_certificate_files(config, chain, key, detail()) == TAUT_OK);
    CHECK(taut_tls_config_apply(config, detail()) == TAUT_OK);
    return config;
}

static const taut_tls_config *client_config(void) {
    const taut_tls_config *config = NULL;
    CHECK(taut_tls_config_new(TAUT_CLIENT, NULL, &config, detail()) == TAUT_OK);
    CHECK(taut_tls_config_roots_file(config, ca, detail()) == TAUT_OK);
    CHECK(taut_tls_config_apply(config, detail()) == TAUT_OK);
    return config;
}

/* Takes the arguments of every program: the authority's certificate, the server's chain and its key, all in PEM. */
static void arguments(int argc, char **argv) {
    CHECK(argc == 4);
    ca = argv[1];
    chain = argv[2];
    key = argv[3];
}

#endif
