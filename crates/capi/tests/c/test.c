/* The interface, used well and badly by a program in C.
 *
 * Arguments: the authority's certificate, the server's chain and its key, all in PEM. It prints "passed" at the end. */
#define _POSIX_C_SOURCE 200112L

#include <sys/socket.h>

#include "support.h"

static taut_tls_io new_io(void) {
    taut_tls_io io;
    memset(&io, 0, sizeof io);
    io.size = sizeof io;
    return io;
}

static taut_tls *session(const taut_tls_config *config, const char *host) {
    taut_tls *tls = NULL;
    CHECK(taut_tls_new(config, host, &tls, detail()) == TAUT_OK);
    return tls;
}

/* One step of a handshake: from `in` to `out`. Returns the code. */
static taut_code step(taut_tls *tls, uint8_t *in, size_t *in_len, uint8_t *out, size_t *out_len, uint32_t *want) {
    taut_tls_io io = new_io();
    io.in.data = in;
    io.in.len = *in_len;
    io.out.data = out;
    io.out.len = 16384;
    taut_code code = taut_tls_handshake(tls, &io);
    memmove(in, in + io.taken, *in_len - io.taken);
    *in_len -= io.taken;
    *out_len = io.written;
    *want = io.want;
    return code;
}

/* Completes a handshake in memory. Returns the code of the end that fails, or TAUT_OK. */
static taut_code shake(taut_tls *client, taut_tls *server) {
    static uint8_t up[16384], down[16384];
    size_t up_len = 0, down_len = 0, len;
    uint32_t client_wants = TAUT_WANT_READ, server_wants = TAUT_WANT_READ;
    int turns;
    for (turns = 0; turns < 10; turns++) {
        taut_code code = TAUT_OK;
        if (client_wants != TAUT_WANT_NONE) code = step(client, down, &down_len, up, &up_len, &client_wants);
        if (code != TAUT_OK) return code;
        if (server_wants != TAUT_WANT_NONE) {
            code = step(server, up, &up_len, down + down_len, &len, &server_wants);
            down_len += len;
        }
        if (code != TAUT_OK) return code;
        if (client_wants == TAUT_WANT_NONE && server_wants == TAUT_WANT_NONE) {
            /* The tickets behind the handshake. */
            taut_tls_io io = new_io();
            io.in.data = io.plain.data = down;
            io.in.len = io.plain.len = down_len;
            return taut_tls_open(client, &io);
        }
    }
    return TAUT_ERR_INTERNAL;
}

struct pair {
    const taut_tls_config *server_config, *client_config;
    taut_tls *client, *server;
};

static struct pair open_pair(void) {
    struct pair pair;
    pair.server_config = server_config();
    pair.client_config = client_config();
    pair.client = session(pair.client_config, "localhost");
    pair.server = session(pair.server_config, NULL);
    CHECK(shake(pair.client, pair.server) == TAUT_OK);
    return pair;
}

static void close_pair(struct pair pair) {
    CHECK(taut_tls_free(pair.client) == TAUT_OK && taut_tls_free(pair.server) == TAUT_OK);
    taut_tls_config_release(pair.client_config);
    taut_tls_config_release(pair.server_config);
}

static void seal(taut_tls *tls, const char *data, uint8_t *out, size_t *len) {
    taut_slice slice;
    taut_tls_io io = new_io();
    slice.data = (const uint8_t *)data;
    slice.len = strlen(data);
    io.data = &slice;
    io.data_count = 1;
    io.out.data = out + *len;
    io.out.len = 8192 - *len;
    CHECK(taut_tls_seal(tls, &io) == TAUT_OK && io.taken == slice.len && io.want == TAUT_WANT_NONE);
    *len += io.written;
}

static void data_goes_both_ways(void) {
    struct pair pair = open_pair();
    uint8_t wire[8192], plain[8192];
    size_t len = 0;
    taut_tls_io io = new_io();
    taut_tls_facts facts;
    taut_tls_counters counters;
    /* Three records in one call: in place, their plaintext is moved together. */
    seal(pair.client, "one ", wire, &len);
    seal(pair.client, "two ", wire, &len);
    seal(pair.client, "three", wire, &len);
    io.in.data = io.plain.data = wire;
    io.in.len = io.plain.len = len;
    CHECK(taut_tls_open(pair.server, &io) == TAUT_OK);
    CHECK(io.records == 3 && io.taken == len && io.plain_len == 13 && io.want == TAUT_WANT_READ);
    CHECK(memcmp(wire + io.plain_offset, "one two three", 13) == 0);
    /* Straight into memory of its own. */
    len = 0;
    seal(pair.server, "answer", wire, &len);
    io = new_io();
    io.in.data = wire;
    io.in.len = len;
    io.plain.data = plain;
    io.plain.len = sizeof plain;
    CHECK(taut_tls_open(pair.client, &io) == TAUT_OK);
    CHECK(io.plain_offset == 0 && io.plain_len == 6 && memcmp(plain, "answer", 6) == 0);
    memset(&facts, 0, sizeof facts);
    facts.size = sizeof facts;
    CHECK(taut_tls_get_facts(pair.client, &facts) == TAUT_OK);
    CHECK(strcmp(facts.version, "TLSv1.3") == 0 && facts.peer_certificates >= 1 && !facts.resumed);
    memset(&counters, 0, sizeof counters);
    counters.size = sizeof counters;
    CHECK(taut_tls_get_counters(pair.client, &counters) == TAUT_OK && counters.spills + counters.carries == 0);
    /* The end. */
    io = new_io();
    io.out.data = wire;
    io.out.len = sizeof wire;
    CHECK(taut_tls_close(pair.client, &io) == TAUT_OK && io.written > 0);
    len = io.written;
    io = new_io();
    io.in.data = io.plain.data = wire;
    io.in.len = io.plain.len = len;
    CHECK(taut_tls_open(pair.server, &io) == TAUT_OK && io.want == TAUT_WANT_CLOSED);
    close_pair(pair);
}

/* taut_tls_open_into and taut_tls_seal_into: the windows as arguments, and their misuse. */
static void windows_as_arguments(void) {
    struct pair pair = open_pair();
    static uint8_t wire[8192], plain[64];
    static const uint8_t data[100] = "one two three";
    size_t len = 0, got = 0;
    taut_tls_io io = new_io();
    taut_tls_counters counters;
    CHECK(taut_tls_seal_into(pair.client, data, 7, wire, sizeof wire, &io) == TAUT_OK);
    CHECK(io.taken == 7 && io.records == 1 && io.want == TAUT_WANT_NONE && io.written == 7 + 22);
    len = io.written;
    CHECK(taut_tls_seal_into(pair.client, data + 7, 6, wire + len, sizeof wire - len, &io) == TAUT_OK);
    len += io.written;
    /* Those of `io` are not read. */
    io = new_io();
    io.in.data = io.plain.data = wire;
    io.in.len = io.plain.len = SIZE_MAX;
    CHECK(taut_tls_open_into(pair.server, wire, len, plain, sizeof plain, &io) == TAUT_OK);
    CHECK(io.taken == len && io.records == 2 && io.plain_offset == 0 && io.plain_len == 13);
    CHECK(io.want == TAUT_WANT_READ && memcmp(plain, data, 13) == 0);
    /* One record, then no more than the caller asked for. */
    len = 0;
    seal(pair.server, "a", wire, &len);
    seal(pair.server, "b", wire, &len);
    io = new_io();
    io.max_records = 1;
    CHECK(taut_tls_open_into(pair.client, wire, len, plain, sizeof plain, &io) == TAUT_OK);
    CHECK(io.records == 1 && io.plain_len == 1 && plain[0] == 'a' && io.want == TAUT_WANT_NONE);
    got = io.taken;
    io = new_io();
    CHECK(taut_tls_open_into(pair.client, wire + got, len - got, plain, sizeof plain, &io) == TAUT_OK);
    CHECK(io.plain_len == 1 && plain[0] == 'b');
    /* A window that is too small: the rest waits, and is counted. */
    CHECK(taut_tls_seal_into(pair.client, data, sizeof data, wire, sizeof wire, &io) == TAUT_OK);
    len = io.written;
    io = new_io();
    CHECK(taut_tls_open_into(pair.server, wire, len, plain, 60, &io) == TAUT_OK);
    CHECK(io.plain_len == 60 && io.plain_waiting == 40 && io.want == TAUT_WANT_ROOM);
    CHECK(taut_tls_open_into(pair.server, wire, 0, plain, 60, &io) == TAUT_OK);
    CHECK(io.plain_len == 40 && io.plain_waiting == 0 && memcmp(plain, data + 60, 40) == 0);
    CHECK(taut_tls_seal_into(pair.client, data, sizeof data, wire, 50, &io) == TAUT_OK);
    CHECK(io.taken == 100 && io.written == 50 && io.out_waiting == 72 && io.want == TAUT_WANT_WRITE);
    CHECK(taut_tls_seal_into(pair.client, NULL, 0, wire + 50, sizeof wire - 50, &io) == TAUT_OK);
    CHECK(io.written == 72 && io.out_waiting == 0);
    io = new_io();
    CHECK(taut_tls_open_into(pair.server, wire, 122, plain, sizeof plain, &io) == TAUT_OK && io.plain_len == 64);
    CHECK(taut_tls_open_into(pair.server, NULL, 0, plain, sizeof plain, &io) == TAUT_OK && io.plain_len == 36);
    memset(&counters, 0, sizeof counters);
    counters.size = sizeof counters;
    CHECK(taut_tls_get_counters(pair.server, &counters) == TAUT_OK && counters.carries == 2);
    /* Misuse. */
    io = new_io();
    CHECK(taut_tls_open_into(NULL, wire, 10, plain, 10, &io) == TAUT_ERR_NULL);
    CHECK(taut_tls_open_into(pair.client, NULL, 10, plain, 10, &io) == TAUT_ERR_NULL);
    CHECK(taut_tls_open_into(pair.client, wire, 10, NULL, 10, &io) == TAUT_ERR_NULL);
    CHECK(taut_tls_open_into(pair.client, wire, 10, plain, 10, NULL) == TAUT_ERR_NULL);
    CHECK(taut_tls_open_into(pair.client, wire, SIZE_MAX, plain, 10, &io) != TAUT_OK);
    CHECK(taut_tls_open_into(pair.client, wire, 100, wire, 100, &io) == TAUT_ERR_OVERLAP);
    CHECK(taut_tls_open_into(pair.client, wire, 100, wire + 99, 100, &io) == TAUT_ERR_OVERLAP);
    CHECK(taut_tls_seal_into(pair.client, wire + 99, 10, wire, 100, &io) == TAUT_ERR_OVERLAP);
    CHECK(taut_tls_seal_into(NULL, data, 1, wire, 100, &io) == TAUT_ERR_NULL);
    CHECK(taut_tls_seal_into(pair.client, NULL, 1, wire, 100, &io) == TAUT_ERR_NULL);
    CHECK(taut_tls_seal_into(pair.client, data, 1, NULL, 100, &io) == TAUT_ERR_NULL);
    io.size = 3;
    CHECK(taut_tls_seal_into(pair.client, data, 1, wire, 100, &io) == TAUT_ERR_SIZE);
    CHECK(taut_tls_open_into(pair.client, wire, 10, plain, 10, &io) == TAUT_ERR_SIZE);
    close_pair(pair);
}

static void bad_use_is_answered(void) {
    struct pair pair = open_pair();
    uint8_t wire[8192];
    size_t len = 0;
    taut_slice slice;
    taut_tls_io io = new_io();
    taut_tls *none = NULL;
    const taut_tls_config *config = NULL;
    /* Null. */
    CHECK(taut_tls_handshake(NULL, &io) == TAUT_ERR_NULL);
    CHECK(taut_tls_open(pair.client, NULL) == TAUT_ERR_NULL);
    CHECK(taut_tls_new(NULL, NULL, &none, detail()) == TAUT_ERR_NULL && none == NULL && text[0] != 0);
    CHECK(taut_tls_new(pair.server_config, NULL, NULL, NULL) == TAUT_ERR_NULL);
    CHECK(taut_tls_config_new(TAUT_SERVER, NULL, NULL, NULL) == TAUT_ERR_NULL);
    CHECK(taut_tls_config_set(NULL, TAUT_OPTION_VERSIONS, 13, NULL) == TAUT_ERR_NULL);
    CHECK(taut_tls_free(NULL) == TAUT_OK);
    taut_tls_config_release(NULL);
    taut_tls_config_retain(NULL);
    io.in.len = 5;
    CHECK(taut_tls_open(pair.client, &io) == TAUT_ERR_NULL);
    /* Sizes. */
    io = new_io();
    io.size = 8;
    CHECK(taut_tls_open(pair.client, &io) == TAUT_ERR_SIZE);
    io.size = 0;
    CHECK(taut_tls_open(pair.client, &io) == TAUT_ERR_SIZE);
    io = new_io();
    io.in.data = wire;
    io.in.len = SIZE_MAX;
    CHECK(taut_tls_open(pair.client, &io) == TAUT_ERR_SIZE);
    io = new_io();
    io.data = &slice;
    io.data_count = SIZE_MAX / 2;
    CHECK(taut_tls_seal(pair.client, &io) == TAUT_ERR_SIZE);
    /* Windows that overlap. */
    slice.data = wire + 10;
    slice.len = 100;
    io = new_io();
    io.data = &slice;
    io.data_count = 1;
    io.out.data = wire;
    io.out.len = 1000;
    CHECK(taut_tls_seal(pair.client, &io) == TAUT_ERR_OVERLAP);
    io.in.data = wire + 500;
    io.in.len = 1000;
    CHECK(taut_tls_open(pair.client, &io) == TAUT_ERR_OVERLAP);
    CHECK(taut_tls_handshake(pair.client, &io) == TAUT_ERR_OVERLAP);
    io = new_io();
    io.in.data = wire;
    io.in.len = 1000;
    io.plain.data = wire + 1;
    io.plain.len = 1000;
    CHECK(taut_tls_open(pair.client, &io) == TAUT_ERR_OVERLAP);
    /* Values, texts and roles. */
    CHECK(taut_tls_config_new(7, NULL, &config, detail()) == TAUT_ERR_VALUE);
    CHECK(taut_tls_config_new(TAUT_SERVER, "schannel", &config, detail()) == TAUT_ERR_VALUE);
    CHECK(strstr(text, "fused") != NULL);
    CHECK(taut_tls_config_new(TAUT_SERVER, "\xff", &config, detail()) == TAUT_ERR_VALUE && config == NULL);
    CHECK(taut_tls_config_set(pair.client_config, 99, 0, detail()) == TAUT_ERR_VALUE);
    CHECK(taut_tls_config_set(pair.client_config, TAUT_OPTION_TICKETS, 0, detail()) == TAUT_ERR_STATE);
    CHECK(taut_tls_config_roots_file(pair.client_config, "/no/such/file", detail()) == TAUT_ERR_CONFIG);
    CHECK(taut_tls_config_roots_file(pair.client_config, NULL, detail()) == TAUT_ERR_NULL);
    CHECK(taut_tls_new(pair.client_config, NULL, &none, detail()) == TAUT_ERR_VALUE);
    CHECK(taut_tls_new(pair.server_config, "localhost", &none, detail()) == TAUT_ERR_VALUE);
    CHECK(taut_tls_config_new(TAUT_SERVER, NULL, &config, detail()) == TAUT_OK);
    CHECK(taut_tls_new(config, NULL, &none, detail()) == TAUT_ERR_STATE && none == NULL);
    CHECK(taut_tls_config_apply(config, detail()) == TAUT_ERR_CONFIG && strstr(text, "certificate") != NULL);
    /* A key that is not that of the certificate fails where it is given, and changes nothing. */
    CHECK(taut_tls_config_certificate_files(config, ca, key, detail()) == TAUT_ERR_CONFIG);
    CHECK(strstr(text, ca) != NULL && strstr(text, "key does not belong to the certificate") != NULL);
    CHECK(taut_tls_config_certificate_files(config, chain, key, detail()) == TAUT_OK);
    CHECK(taut_tls_config_apply(config, detail()) == TAUT_OK);
    taut_tls_config_release(config);
    CHECK(taut_tls_config_new(TAUT_CLIENT, NULL, &config, detail()) == TAUT_OK);
    CHECK(taut_tls_config_certificate_files(config, ca, key, detail()) == TAUT_ERR_CONFIG);
    taut_tls_config_release(config);
    /* States. */
    none = session(pair.client_config, "localhost");
    io = new_io();
    CHECK(taut_tls_open(none, &io) == TAUT_ERR_STATE && taut_tls_seal(none, &io) == TAUT_ERR_STATE);
    CHECK(taut_tls_key_update(none, 1, &io) == TAUT_ERR_STATE);
    CHECK(taut_tls_export(none, (const uint8_t *)"l", 1, NULL, 0, wire, 32) == TAUT_ERR_STATE);
    CHECK(taut_tls_free(none) == TAUT_OK);
    io.out.data = wire;
    io.out.len = sizeof wire;
    CHECK(taut_tls_close(pair.client, &io) == TAUT_OK);
    CHECK(taut_tls_seal(pair.client, &io) == TAUT_ERR_STATE);
    CHECK(taut_tls_close(pair.client, &io) == TAUT_OK && io.written == 0);
    /* A record that does not authenticate ends the session, with an alert for the peer. */
    len = 0;
    seal(pair.server, "changed", wire, &len);
    wire[len - 1] ^= 1;
    none = session(pair.client_config, "localhost");
    CHECK(taut_tls_free(none) == TAUT_OK);
    io = new_io();
    io.in.data = io.plain.data = wire;
    io.in.len = io.plain.len = len;
    CHECK(taut_tls_open(pair.client, &io) == TAUT_ERR_PEER);
    CHECK(taut_tls_open(pair.client, &io) == TAUT_ERR_FAILED);
    CHECK(taut_tls_error(pair.client, detail()) == TAUT_OK && text[0] != 0);
    CHECK(strcmp(taut_code_text(12345), "not a code of this version") == 0 && taut_version()[0] != 0);
    close_pair(pair);
}

/* Decisions of the verification callback. `user` is the answer. */
static uint32_t decide(void *user, const taut_tls_peer *peer) {
    CHECK(peer->size >= sizeof *peer && peer->certificates_count >= 1 && peer->host.len == 9);
    CHECK(peer->accepted == 1 && peer->reason.len == 0);
    return *(uint32_t *)user;
}

static int destroyed;

static void destroy(void *user) {
    (void)user;
    destroyed++;
}

static taut_tls *reentered;

/* Calls a function on the session that is in its handshake. */
static uint32_t reenter(void *user, const taut_tls_peer *peer) {
    taut_tls_io io = new_io();
    (void)user;
    (void)peer;
    CHECK(taut_tls_handshake(reentered, &io) == TAUT_ERR_BUSY);
    CHECK(taut_tls_free(reentered) == TAUT_ERR_BUSY);
    return TAUT_ACCEPT;
}

static void callbacks_decide(void) {
    static uint32_t answers[4];
    size_t i;
    answers[0] = TAUT_ACCEPT;
    answers[1] = TAUT_REJECT;
    answers[2] = 0;
    answers[3] = 0xdeadbeef;
    for (i = 0; i < 4; i++) {
        const taut_tls_config *server = server_config(), *config = client_config();
        taut_tls *accepting = session(server, NULL), *connecting;
        CHECK(taut_tls_config_verify(config, decide, &answers[i], destroy, detail()) == TAUT_OK);
        CHECK(taut_tls_config_apply(config, detail()) == TAUT_OK);
        connecting = session(config, "localhost");
        CHECK(shake(connecting, accepting) == (i == 0 ? TAUT_OK : TAUT_ERR_CERTIFICATE));
        if (i >= 2) {
            CHECK(taut_tls_error(connecting, detail()) == TAUT_OK && strstr(text, "callback") != NULL);
        }
        taut_tls_free(connecting);
        taut_tls_free(accepting);
        taut_tls_config_release(config);
        taut_tls_config_release(server);
        CHECK(destroyed == (int)i + 1);
    }
    CHECK(taut_tls_config_verify(NULL, decide, NULL, destroy, NULL) == TAUT_ERR_NULL && destroyed == 5);
    {
        const taut_tls_config *server = server_config(), *config = client_config();
        taut_tls *accepting = session(server, NULL);
        CHECK(taut_tls_config_verify(config, reenter, NULL, NULL, detail()) == TAUT_OK);
        CHECK(taut_tls_config_apply(config, detail()) == TAUT_OK);
        reentered = session(config, "localhost");
        CHECK(shake(reentered, accepting) == TAUT_OK);
        taut_tls_free(reentered);
        taut_tls_free(accepting);
        taut_tls_config_release(config);
        taut_tls_config_release(server);
    }
}

/* Two threads that use one session at once. Each call succeeds or is answered with TAUT_ERR_BUSY. */
static void *hammer(void *of) {
    taut_tls *tls = of;
    static const uint8_t data[64];
    uint8_t out[256];
    taut_slice slice;
    long busy = 0;
    int i;
    slice.data = data;
    slice.len = sizeof data;
    for (i = 0; i < 20000; i++) {
        taut_tls_io io = new_io();
        io.data = &slice;
        io.data_count = 1;
        io.out.data = out;
        io.out.len = sizeof out;
        taut_code code = taut_tls_seal(tls, &io);
        CHECK(code == TAUT_OK || code == TAUT_ERR_BUSY);
        CHECK(io.written == (code == TAUT_OK ? 64u + 22u : 0u));
        busy += code == TAUT_ERR_BUSY;
    }
    return (void *)busy;
}

static void two_threads_at_once(void) {
    struct pair pair = open_pair();
    pthread_t threads[2];
    int i;
    for (i = 0; i < 2; i++) CHECK(pthread_create(&threads[i], NULL, hammer, pair.client) == 0);
    for (i = 0; i < 2; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    close_pair(pair);
}

/* An echo over a socket pair, with a thread at each end. */
static void *echo(void *of) {
    int fd = *(int *)of;
    const taut_tls_config *config = server_config();
    taut_tls *tls = session(config, NULL);
    static uint8_t in[40000], out[80000];
    size_t in_len = 0;
    int is_open = 0, is_closed = 0;
    while (!is_closed) {
        ssize_t got = read(fd, in + in_len, sizeof in - in_len);
        uint32_t want;
        CHECK(got > 0);
        in_len += (size_t)got;
        do {
            taut_tls_io io = new_io();
            io.in.data = io.plain.data = in;
            io.in.len = io.plain.len = in_len;
            io.out.data = out;
            io.out.len = sizeof out;
            CHECK((is_open ? taut_tls_open(tls, &io) : taut_tls_handshake(tls, &io)) == TAUT_OK);
            want = io.want;
            CHECK(write(fd, out, io.written) == (ssize_t)io.written);
            is_closed = want == TAUT_WANT_CLOSED;
            if (io.plain_len > 0 || is_closed) {
                taut_slice slice;
                taut_tls_io answer = new_io();
                slice.data = in + io.plain_offset;
                slice.len = io.plain_len;
                answer.data = &slice;
                answer.data_count = 1;
                answer.out = io.out;
                CHECK((is_closed ? taut_tls_close(tls, &answer) : taut_tls_seal(tls, &answer)) == TAUT_OK);
                CHECK(write(fd, out, answer.written) == (ssize_t)answer.written);
            }
            is_open |= want == TAUT_WANT_NONE;
            memmove(in, in + io.taken, in_len - io.taken);
            in_len -= io.taken;
        } while (want != TAUT_WANT_READ && !is_closed);
    }
    taut_tls_free(tls);
    taut_tls_config_release(config);
    return NULL;
}

static void echo_over_a_socket_pair(void) {
    static uint8_t in[40000], out[40000], data[100000], back[100000];
    int fds[2], is_open = 0;
    size_t in_len = 0, sent = 0, received = 0, i;
    const taut_tls_config *config = client_config();
    taut_tls *tls = session(config, "localhost");
    pthread_t thread;
    uint32_t want = TAUT_WANT_READ;
    for (i = 0; i < sizeof data; i++) data[i] = (uint8_t)(i * 7 + i / 256);
    CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
    CHECK(pthread_create(&thread, NULL, echo, &fds[1]) == 0);
    while (want != TAUT_WANT_CLOSED) {
        taut_tls_io io = new_io();
        io.in.data = in;
        io.in.len = in_len;
        io.plain.data = back + received;
        io.plain.len = sizeof back - received;
        io.out.data = out;
        io.out.len = sizeof out;
        CHECK((is_open ? taut_tls_open(tls, &io) : taut_tls_handshake(tls, &io)) == TAUT_OK);
        CHECK(write(fds[0], out, io.written) == (ssize_t)io.written);
        want = io.want;
        received += io.plain_len;
        memmove(in, in + io.taken, in_len - io.taken);
        in_len -= io.taken;
        is_open |= want == TAUT_WANT_NONE;
        if (is_open && received == sent) {
            taut_tls_io more = new_io();
            taut_slice slice;
            slice.data = data + sent;
            slice.len = sizeof data - sent < 30000 ? sizeof data - sent : 30000;
            more.data = &slice;
            more.data_count = 1;
            more.out = io.out;
            if (slice.len > 0) {
                CHECK(taut_tls_seal(tls, &more) == TAUT_OK && more.taken == slice.len);
                sent += slice.len;
            } else {
                CHECK(taut_tls_close(tls, &more) == TAUT_OK);
            }
            CHECK(write(fds[0], out, more.written) == (ssize_t)more.written);
        }
        if (want == TAUT_WANT_READ || is_open) {
            ssize_t got = want == TAUT_WANT_CLOSED ? 0 : read(fds[0], in + in_len, sizeof in - in_len);
            CHECK(got > 0 || want == TAUT_WANT_CLOSED);
            in_len += (size_t)got;
        }
    }
    CHECK(received == sizeof data && memcmp(data, back, sizeof data) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    taut_tls_free(tls);
    taut_tls_config_release(config);
    close(fds[0]);
    close(fds[1]);
}

int main(int argc, char **argv) {
    arguments(argc, argv);
    data_goes_both_ways();
    windows_as_arguments();
    bad_use_is_answered();
    callbacks_decide();
    two_threads_at_once();
    echo_over_a_socket_pair();
    puts("passed");
    return 0;
}
