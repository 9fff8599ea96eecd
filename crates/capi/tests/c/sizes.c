/* Structs of older and newer programs: smaller and larger ones than the library has. It prints "passed" at the end. */
#define _POSIX_C_SOURCE 200112L

#include <stddef.h>

#include "support.h"

#define MORE 24

/* A struct with room for what a newer version has behind it. */
#define GROWN(type)                \
    union {                        \
        type one;                  \
        size_t size;               \
        unsigned char bytes[sizeof(type) + MORE]; \
    }

/* Sets all bytes of a struct to `byte`, and its size. */
#define FILL(grown, byte, bytes_of_it)                     \
    do {                                                   \
        memset(&(grown), byte, sizeof(grown));             \
        (grown).size = bytes_of_it;                        \
    } while (0)

static int all(const unsigned char *bytes, size_t from, size_t to, unsigned char expected) {
    for (; from < to; from++) {
        if (bytes[from] != expected) return 0;
    }
    return 1;
}

/* Results of `call`, which writes to `grown`: an older struct keeps what lies behind it, a newer one has zeros there. */
#define RESULTS(grown, type, least, call)                                            \
    do {                                                                             \
        FILL(grown, 0xAA, least);                                                    \
        CHECK((call) == TAUT_OK);                                                    \
        CHECK((grown).size == (least) && all((grown).bytes, least, sizeof(grown), 0xAA)); \
        FILL(grown, 0xAA, sizeof(type) + MORE);                                      \
        CHECK((call) == TAUT_OK);                                                    \
        CHECK((grown).size == sizeof(type) + MORE && all((grown).bytes, sizeof(type), sizeof(grown), 0)); \
        SIZES(grown, type, least, call);                                             \
    } while (0)

/* Sizes that no version has. */
#define SIZES(grown, type, least, call)                      \
    do {                                                     \
        (grown).size = (least) - sizeof(size_t);             \
        CHECK((call) == TAUT_ERR_SIZE);                      \
        (grown).size = (least) + 1;                          \
        CHECK((call) == TAUT_ERR_SIZE);                      \
        (grown).size = SIZE_MAX;                             \
        CHECK((call) == TAUT_ERR_SIZE);                      \
        (grown).size = 0;                                    \
        CHECK((call) == TAUT_ERR_SIZE);                      \
    } while (0)

/* Options in `grown`, which are whole and valid, given by `call`: newer ones pass if they set nothing that is unknown. */
#define OPTIONS(grown, type, least, call)                       \
    do {                                                        \
        (grown).size = sizeof(type) + MORE;                     \
        memset((grown).bytes + sizeof(type), 0, MORE);          \
        CHECK((call) == TAUT_OK);                               \
        (grown).bytes[sizeof(type) + MORE - 1] = 1;             \
        CHECK((call) == TAUT_ERR_SIZE);                         \
        SIZES(grown, type, least, call);                        \
    } while (0)

/* Options without the fields behind `least`, of which the memory holds nonsense. */
#define OLDER(grown, type, least)                                        \
    do {                                                                 \
        memset((grown).bytes + (least), 0xAA, sizeof(grown) - (least));  \
        (grown).size = least;                                            \
    } while (0)

static taut_ws *a_server(taut_ws_context *context) {
    taut_ws *ws = NULL;
    CHECK(taut_ws_server(NULL, NULL, context, 0, &ws, detail()) == TAUT_OK);
    return ws;
}

static taut_code a_client(const taut_target *target, taut_ws_context *context) {
    taut_ws *ws = NULL;
    taut_code code = taut_ws_client(NULL, target, NULL, context, 0, &ws, detail());
    if (code == TAUT_OK) CHECK(taut_ws_free(ws) == TAUT_OK);
    return code;
}

static void connections(void) {
    taut_ws_context *context = NULL;
    taut_ws *ws;
    GROWN(taut_target) target;
    GROWN(taut_message) message;
    GROWN(taut_ws_event) event;
    GROWN(taut_ws_status) status;
    GROWN(taut_tls_facts) facts;
    CHECK(taut_ws_context_new(0, &context, detail()) == TAUT_OK);
    FILL(target, 0, sizeof(taut_target));
    target.one.uri = "ws://localhost/";
    OPTIONS(target, taut_target, offsetof(taut_target, address), a_client(&target.one, context));
    CHECK(strstr(text, "sizeof") != NULL);
    OLDER(target, taut_target, offsetof(taut_target, address));
    CHECK(a_client(&target.one, context) == TAUT_OK);
    /* A program from before there was a name of the server, with nonsense behind its struct. */
    FILL(target, 0, sizeof(taut_target));
    target.one.uri = "ws://localhost/";
    OLDER(target, taut_target, offsetof(taut_target, server_name));
    CHECK(a_client(&target.one, context) == TAUT_OK);
    target.size = sizeof(taut_target) + MORE;
    CHECK(a_client(&target.one, context) == TAUT_ERR_SIZE && strstr(text, "update the library") != NULL);
    ws = a_server(context);
    RESULTS(event, taut_ws_event, offsetof(taut_ws_event, request), taut_ws_next(ws, &event.one));
    event.size = sizeof(taut_ws_event);
    CHECK(taut_ws_next(ws, &event.one) == TAUT_OK && event.one.kind == TAUT_EVENT_NONE && event.one.closed == NULL);
    RESULTS(status, taut_ws_status, offsetof(taut_ws_status, waiting), taut_ws_get_status(ws, &status.one));
    RESULTS(facts, taut_tls_facts, offsetof(taut_tls_facts, alpn), taut_ws_get_facts(ws, &facts.one));
    /* A connection that is not open refuses messages of a right size by another code. */
    FILL(message, 0, offsetof(taut_message, key));
    CHECK(taut_ws_send(ws, &message.one) == TAUT_ERR_CLOSED);
    SIZES(message, taut_message, offsetof(taut_message, key), taut_ws_send(ws, &message.one));
    message.size = sizeof(taut_message) + MORE;
    CHECK(taut_ws_send(ws, &message.one) == TAUT_ERR_CLOSED);
    message.bytes[sizeof(taut_message)] = 1;
    CHECK(taut_ws_send(ws, &message.one) == TAUT_ERR_SIZE);
    CHECK(taut_ws_free(ws) == TAUT_OK);
    taut_ws_context_free(context);
}

static void tls(void) {
    const taut_tls_config *server = NULL, *client = client_config();
    taut_tls *session = NULL;
    GROWN(taut_certificate) certificate;
    GROWN(taut_error) error;
    GROWN(taut_tls_io) io;
    GROWN(taut_tls_facts) facts;
    GROWN(taut_tls_counters) counters;
    static uint8_t out[32768], pem[2][32768];
    const char *names[2];
    size_t i;
    names[0] = chain;
    names[1] = key;
    CHECK(taut_tls_config_new(TAUT_SERVER, NULL, &server, detail()) == TAUT_OK);
    FILL(certificate, 0, sizeof(taut_certificate));
    for (i = 0; i < 2; i++) {
        FILE *file = fopen(names[i], "r");
        taut_slice *slice = i == 0 ? &certificate.one.chain : &certificate.one.key;
        CHECK(file != NULL);
        slice->data = pem[i];
        slice->len = fread(pem[i], 1, sizeof pem[i], file);
        CHECK(fclose(file) == 0);
    }
    OPTIONS(certificate, taut_certificate, offsetof(taut_certificate, ocsp),
            taut_tls_config_certificate(server, &certificate.one, detail()));
    OLDER(certificate, taut_certificate, offsetof(taut_certificate, ocsp));
    CHECK(taut_tls_config_certificate(server, &certificate.one, detail()) == TAUT_OK);
    CHECK(taut_tls_config_apply(server, detail()) == TAUT_OK);
    CHECK(taut_tls_new(client, "localhost", &session, NULL) == TAUT_OK);
    RESULTS(facts, taut_tls_facts, offsetof(taut_tls_facts, alpn), taut_tls_get_facts(session, &facts.one));
    RESULTS(counters, taut_tls_counters, offsetof(taut_tls_counters, carries), taut_tls_get_counters(session, &counters.one));
    /* An error without a code and an alert still has its text. */
    FILL(error, 0, sizeof(taut_error));
    error.one.text = text;
    error.one.room = sizeof text;
    OPTIONS(error, taut_error, offsetof(taut_error, code), taut_tls_error(session, &error.one));
    OLDER(error, taut_error, offsetof(taut_error, code));
    text[0] = 0;
    CHECK(taut_tls_config_apply(NULL, &error.one) == TAUT_ERR_NULL && text[0] != 0 && error.one.len == strlen(text));
    CHECK(all(error.bytes, offsetof(taut_error, code), sizeof error, 0xAA));
    error.size = 8;
    CHECK(taut_tls_config_apply(server, &error.one) == TAUT_ERR_SIZE);
    /* Calls of a wrong size have no effect: the first one of a right size has the whole ClientHello. */
    FILL(io, 0, 0);
    io.one.out.data = out;
    io.one.out.len = sizeof out;
    SIZES(io, taut_tls_io, offsetof(taut_tls_io, plain_waiting), taut_tls_handshake(session, &io.one));
    io.size = sizeof(taut_tls_io) + MORE;
    io.bytes[sizeof io - 1] = 1;
    CHECK(taut_tls_handshake(session, &io.one) == TAUT_ERR_SIZE);
    io.bytes[sizeof io - 1] = 0;
    io.one.out.len = 100;
    CHECK(taut_tls_handshake(session, &io.one) == TAUT_OK && io.one.written == 100 && io.one.out_waiting > 0);
    CHECK(io.one.want == TAUT_WANT_WRITE && io.size == sizeof(taut_tls_io) + MORE);
    OLDER(io, taut_tls_io, offsetof(taut_tls_io, plain_waiting));
    CHECK(taut_tls_handshake(session, &io.one) == TAUT_OK && io.one.written == 100 && io.one.want == TAUT_WANT_WRITE);
    CHECK(io.size == offsetof(taut_tls_io, plain_waiting) && all(io.bytes, io.size, sizeof io, 0xAA));
    io.one.out.len = sizeof out;
    CHECK(taut_tls_handshake(session, &io.one) == TAUT_OK && io.one.written > 0 && io.one.want == TAUT_WANT_READ);
    CHECK(taut_tls_free(session) == TAUT_OK);
    taut_tls_config_release(server);
    taut_tls_config_release(client);
}

static int destroyed;

static void on_destroy(void *user) {
    CHECK(user == &destroyed);
    destroyed++;
}

static taut_code a_server_of(const taut_server_options *options) {
    taut_server *server = NULL;
    taut_code code = taut_server_start(options, &server, detail());
    if (code == TAUT_OK) CHECK(taut_server_free(server) == TAUT_OK);
    return code;
}

static taut_code a_client_of(const taut_client_options *options) {
    taut_client *client = NULL;
    taut_code code = taut_client_start(options, &client, detail());
    if (code == TAUT_OK) CHECK(taut_client_free(client) == TAUT_OK);
    return code;
}

static void servers_and_clients(void) {
    static const char *listen[] = {"127.0.0.1:0"};
    GROWN(taut_server_options) options;
    GROWN(taut_client_options) outgoing;
    GROWN(taut_callbacks) callbacks;
    const taut_tls_config *config = server_config();
    FILL(callbacks, 0, sizeof(taut_callbacks));
    callbacks.one.user = &destroyed;
    callbacks.one.destroy = on_destroy;
    FILL(options, 0, sizeof(taut_server_options));
    options.one.tls = config;
    options.one.listen = listen;
    options.one.listen_count = 1;
    options.one.callbacks = &callbacks.one;
    FILL(outgoing, 0, sizeof(taut_client_options));
    outgoing.one.callbacks = &callbacks.one;
    OPTIONS(options, taut_server_options, offsetof(taut_server_options, tls), a_server_of(&options.one));
    CHECK(destroyed == 1);
    OPTIONS(outgoing, taut_client_options, offsetof(taut_client_options, tls), a_client_of(&outgoing.one));
    CHECK(destroyed == 2);
    /* Older options serve without TLS, and the client has the defaults. */
    OLDER(options, taut_server_options, offsetof(taut_server_options, tls));
    CHECK(a_server_of(&options.one) == TAUT_OK && destroyed == 3);
    OLDER(outgoing, taut_client_options, offsetof(taut_client_options, tls));
    CHECK(a_client_of(&outgoing.one) == TAUT_OK && destroyed == 4);
    OPTIONS(callbacks, taut_callbacks, offsetof(taut_callbacks, start), a_server_of(&options.one));
    CHECK(destroyed == 5);
    OLDER(callbacks, taut_callbacks, offsetof(taut_callbacks, start));
    CHECK(a_server_of(&options.one) == TAUT_OK && destroyed == 5);
    taut_tls_config_release(config);
}

int main(int argc, char **argv) {
    arguments(argc, argv);
    connections();
    tls();
    servers_and_clients();
    puts("passed");
    return 0;
}
