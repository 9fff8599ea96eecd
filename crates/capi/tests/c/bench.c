/* The cost of one call from C: prints the nanoseconds of taut_tls_seal and of taut_tls_open, for records of one size.
 *
 * Arguments: the authority's certificate, the server's chain and its key in PEM, bytes per record, milliseconds to run.
 * crates/capi/examples/cost.rs runs it beside the Rust calls. */
#define _POSIX_C_SOURCE 200112L

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tautline.h"

#define BATCH 256

static void need(int good) {
    if (!good) exit(1);
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static const taut_tls_config *config(uint32_t role, const char *first, const char *second) {
    const taut_tls_config *made = NULL;
    need(taut_tls_config_new(role, NULL, &made, NULL) == TAUT_OK);
    if (role == TAUT_SERVER) {
        need(taut_tls_config_certificate_files(made, first, second, NULL) == TAUT_OK);
    } else {
        need(taut_tls_config_roots_file(made, first, NULL) == TAUT_OK);
    }
    need(taut_tls_config_apply(made, NULL) == TAUT_OK);
    return made;
}

/* Runs `function` of one end, and moves its output to the other end's input. */
static uint32_t turn(taut_code (*function)(taut_tls *, taut_tls_io *), taut_tls *tls, uint8_t *in, size_t *in_len,
                     uint8_t *out, size_t *out_len) {
    taut_tls_io io;
    memset(&io, 0, sizeof io);
    io.size = sizeof io;
    io.in.data = io.plain.data = in;
    io.in.len = io.plain.len = *in_len;
    io.out.data = out + *out_len;
    io.out.len = 32768 - *out_len;
    need(function(tls, &io) == TAUT_OK);
    memmove(in, in + io.taken, *in_len - io.taken);
    *in_len -= io.taken;
    *out_len += io.written;
    return io.want;
}

int main(int argc, char **argv) {
    static uint8_t up[32768], down[32768];
    size_t up_len = 0, down_len = 0, i;
    uint32_t wants = TAUT_WANT_READ;
    taut_tls *client = NULL, *server = NULL;
    need(argc == 6);
    size_t len = (size_t)atol(argv[4]), room = BATCH * (len + 64);
    double budget = atof(argv[5]) * 1e6, sealing = 0, opening = 0, calls = 0;
    uint8_t *data = calloc(1, len), *wire = calloc(1, room);
    taut_slice slice;
    taut_tls_io io;
    need(data != NULL && wire != NULL);
    need(taut_tls_new(config(TAUT_CLIENT, argv[1], NULL), "localhost", &client, NULL) == TAUT_OK);
    need(taut_tls_new(config(TAUT_SERVER, argv[2], argv[3]), NULL, &server, NULL) == TAUT_OK);
    turn(taut_tls_handshake, client, down, &down_len, up, &up_len);
    turn(taut_tls_handshake, server, up, &up_len, down, &down_len);
    turn(taut_tls_handshake, client, down, &down_len, up, &up_len);
    wants = turn(taut_tls_handshake, server, up, &up_len, down, &down_len);
    need(wants == TAUT_WANT_NONE);
    turn(taut_tls_open, client, down, &down_len, up, &up_len);
    slice.data = data;
    slice.len = len;
    while (sealing + opening < budget) {
        size_t used = 0, all;
        double start = now(), middle;
        memset(&io, 0, sizeof io);
        io.size = sizeof io;
        io.data = &slice;
        io.data_count = 1;
        for (i = 0; i < BATCH; i++) {
            io.out.data = wire + used;
            io.out.len = room - used;
            need(taut_tls_seal(client, &io) == TAUT_OK);
            used += io.written;
        }
        all = used;
        used = 0;
        middle = now();
        memset(&io, 0, sizeof io);
        io.size = sizeof io;
        io.max_records = 1;
        for (i = 0; i < BATCH; i++) {
            io.in.data = io.plain.data = wire + used;
            io.in.len = io.plain.len = all - used;
            need(taut_tls_open(server, &io) == TAUT_OK && io.plain_len == len);
            used += io.taken;
        }
        opening += now() - middle;
        sealing += middle - start;
        calls += BATCH;
    }
    printf("%.2f %.2f\n", sealing / calls, opening / calls);
    taut_tls_free(client);
    taut_tls_free(server);
    return 0;
}
