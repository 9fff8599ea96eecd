/* Whole connections without I/O, used well and badly by a program in C. It prints "passed" at the end. */
#define _POSIX_C_SOURCE 200112L

#include "support.h"

/* The clock of both ends. */
static uint64_t now;

struct ends {
    const taut_tls_config *server_config, *client_config;
    taut_ws_context *context;
    taut_ws *client, *server;
};

static taut_target target(const char *uri) {
    taut_target target;
    memset(&target, 0, sizeof target);
    target.size = sizeof target;
    target.uri = uri;
    return target;
}

static taut_message message(uint32_t flags, const void *data, size_t len) {
    taut_message message;
    memset(&message, 0, sizeof message);
    message.size = sizeof message;
    message.flags = flags;
    message.data = data;
    message.len = len;
    return message;
}

static taut_slice slice(const char *of) {
    taut_slice slice;
    slice.data = (const uint8_t *)of;
    slice.len = strlen(of);
    return slice;
}

static int is(taut_slice slice, const char *expected) {
    return slice.len == strlen(expected) && memcmp(slice.data, expected, slice.len) == 0;
}

static taut_ws_event event(taut_ws *ws) {
    taut_ws_event event;
    memset(&event, 0, sizeof event);
    event.size = sizeof event;
    CHECK(taut_ws_next(ws, &event) == TAUT_OK);
    return event;
}

static taut_ws_status status(taut_ws *ws) {
    taut_ws_status status;
    memset(&status, 0, sizeof status);
    status.size = sizeof status;
    CHECK(taut_ws_get_status(ws, &status) == TAUT_OK);
    return status;
}

/* Moves all bytes of one end to the other, at most `most` at once. Returns their number. */
static size_t carry(taut_ws *from, taut_ws *to, size_t most) {
    size_t all = 0;
    for (;;) {
        taut_slice output;
        taut_window window;
        size_t len;
        CHECK(taut_ws_output(from, &output) == TAUT_OK);
        if (output.len == 0) return all;
        CHECK(taut_ws_window(to, 0, &window) == TAUT_OK && window.len >= 16384);
        len = output.len < most ? output.len : most;
        len = len < window.len ? len : window.len;
        memcpy(window.data, output.data, len);
        CHECK(taut_ws_filled(to, len, now) == TAUT_OK);
        CHECK(taut_ws_written(from, len) == TAUT_OK);
        all += len;
    }
}

static struct ends make(const char *uri, const taut_settings *settings) {
    struct ends ends;
    taut_target to = target(uri);
    int secure = strncmp(uri, "wss", 3) == 0;
    memset(&ends, 0, sizeof ends);
    if (secure) {
        ends.server_config = server_config();
        ends.client_config = client_config();
    }
    CHECK(taut_ws_context_new(0, &ends.context, detail()) == TAUT_OK);
    CHECK(taut_ws_server(ends.server_config, settings, ends.context, now, &ends.server, detail()) == TAUT_OK);
    to.deflate = 1;
    CHECK(taut_ws_client(ends.client_config, &to, settings, NULL, now, &ends.client, detail()) == TAUT_OK);
    return ends;
}

/* Carries bytes both ways until the server has a request. */
static taut_ws_event asked(struct ends *ends) {
    int turns;
    for (turns = 0; turns < 10; turns++) {
        taut_ws_event next;
        carry(ends->client, ends->server, 1000);
        next = event(ends->server);
        if (next.kind == TAUT_EVENT_REQUEST) return next;
        CHECK(next.kind == TAUT_EVENT_NONE);
        carry(ends->server, ends->client, 1000);
        CHECK(event(ends->client).kind == TAUT_EVENT_NONE);
    }
    CHECK(0);
    return event(ends->server);
}

static void open_ends(struct ends *ends) {
    CHECK(asked(ends).is_upgrade == 1);
    CHECK(taut_ws_upgrade(ends->server, NULL, 0) == TAUT_OK);
    CHECK(event(ends->server).kind == TAUT_EVENT_OPEN);
    carry(ends->server, ends->client, 1000);
    CHECK(event(ends->client).kind == TAUT_EVENT_OPEN);
}

static void end(struct ends ends) {
    taut_ws_context_free(ends.context);
    CHECK(taut_ws_free(ends.client) == TAUT_OK && taut_ws_free(ends.server) == TAUT_OK);
    taut_tls_config_release(ends.server_config);
    taut_tls_config_release(ends.client_config);
}

static void a_connection_lives_and_ends(const char *uri) {
    struct ends ends = make(uri, NULL);
    taut_header cookie;
    taut_message hello = message(TAUT_TEXT, "hello", 5), back;
    taut_tls_facts facts;
    taut_ws_event next = asked(&ends);
    size_t i, seen = 0;
    CHECK(next.is_upgrade == 1 && is(next.request->method, "GET") && is(next.request->target, "/feed?x=1"));
    for (i = 0; i < next.request->headers_count; i++) seen += is(next.request->headers[i].name, "sec-websocket-key");
    CHECK(seen == 1 && status(ends.server).holds_back == 1);
    cookie.name = slice("set-cookie");
    cookie.value = slice("seen=1");
    CHECK(taut_ws_upgrade(ends.server, &cookie, 1) == TAUT_OK);
    next = event(ends.server);
    CHECK(next.kind == TAUT_EVENT_OPEN && next.opening->request != NULL && next.opening->response == NULL);
    carry(ends.server, ends.client, 1);
    next = event(ends.client);
    CHECK(next.kind == TAUT_EVENT_OPEN && next.opening->response->status == 101 && next.opening->deflate == 0);
    for (i = 0, seen = 0; i < next.opening->response->headers_count; i++) {
        seen += is(next.opening->response->headers[i].value, "seen=1");
    }
    CHECK(seen == 1 && status(ends.client).is_open == 1 && status(ends.client).is_over == 0);
    memset(&facts, 0, sizeof facts);
    facts.size = sizeof facts;
    CHECK(taut_ws_get_facts(ends.client, &facts) == TAUT_OK);
    CHECK(strcmp(facts.version, strncmp(uri, "wss", 3) == 0 ? "TLSv1.3" : "") == 0);
    /* Two messages share their way; the server echoes the first from where it was decrypted. */
    CHECK(taut_ws_send(ends.client, &hello) == TAUT_OK);
    CHECK(taut_ws_ping(ends.client, (const uint8_t *)"p", 1) == TAUT_OK);
    carry(ends.client, ends.server, 1 << 20);
    next = event(ends.server);
    CHECK(next.kind == TAUT_EVENT_MESSAGE && next.flags == TAUT_TEXT && is(next.data, "hello"));
    back = message(next.flags, next.data.data, next.data.len);
    CHECK(taut_ws_send(ends.server, &back) == TAUT_OK);
    CHECK(event(ends.server).kind == TAUT_EVENT_NONE);
    carry(ends.server, ends.client, 1 << 20);
    next = event(ends.client);
    CHECK(next.kind == TAUT_EVENT_MESSAGE && is(next.data, "hello"));
    next = event(ends.client);
    CHECK(next.kind == TAUT_EVENT_PONG && is(next.data, "p"));
    CHECK(taut_ws_rest(ends.client) == TAUT_OK && taut_ws_rest(ends.server) == TAUT_OK);
    /* The end, with its code and reason. */
    CHECK(taut_ws_close(ends.client, 4001, (const uint8_t *)"bye", 3, now) == TAUT_OK);
    CHECK(taut_ws_close(ends.client, 4001, NULL, 0, now) == TAUT_ERR_CLOSED);
    CHECK(taut_ws_send(ends.client, &hello) == TAUT_ERR_CLOSED);
    carry(ends.client, ends.server, 1 << 20);
    next = event(ends.server);
    CHECK(next.kind == TAUT_EVENT_CLOSED && next.closed->cause == TAUT_CAUSE_PEER && next.closed->code == 4001);
    CHECK(is(next.closed->reason, "bye") && next.closed->text.len > 0 && next.closed->response == NULL);
    carry(ends.server, ends.client, 1 << 20);
    next = event(ends.client);
    CHECK(next.kind == TAUT_EVENT_CLOSED && next.closed->cause == TAUT_CAUSE_LOCAL);
    CHECK(status(ends.server).is_over == 1 && status(ends.server).is_finished == 1);
    CHECK(event(ends.client).kind == TAUT_EVENT_NONE && taut_ws_send(ends.server, &hello) == TAUT_ERR_CLOSED);
    end(ends);
}

static void a_refusal_reaches_the_client(void) {
    struct ends ends = make("wss://localhost/", NULL);
    taut_ws_event next = asked(&ends);
    CHECK(taut_ws_respond(ends.server, 403, NULL, 0, (const uint8_t *)"no", 2) == TAUT_OK);
    CHECK(taut_ws_respond(ends.server, 403, NULL, 0, NULL, 0) == TAUT_ERR_STATE);
    carry(ends.server, ends.client, 100);
    next = event(ends.client);
    CHECK(next.kind == TAUT_EVENT_FAILED && next.closed->cause == TAUT_CAUSE_REFUSED);
    CHECK(next.closed->response != NULL && next.closed->response->status == 403 && next.closed->text.len > 0);
    end(ends);
}

static void deadlines_follow_the_callers_clock(void) {
    taut_settings *settings = NULL;
    struct ends ends;
    uint64_t at = 0;
    taut_ws_event next;
    now = 5000;
    CHECK(taut_settings_new(TAUT_PRESET_UNTRUSTED_INTERNET, &settings, detail()) == TAUT_OK);
    CHECK(taut_settings_set(settings, TAUT_SET_HANDSHAKE_MS, 1000, detail()) == TAUT_OK);
    CHECK(taut_settings_set(settings, TAUT_SET_PING_MS, 2000, detail()) == TAUT_OK);
    CHECK(taut_settings_set(settings, TAUT_SET_IDLE_MS, 3000, detail()) == TAUT_OK);
    ends = make("wss://localhost/", settings);
    CHECK(taut_ws_deadline(ends.server, &at) == TAUT_OK && at == 6000);
    CHECK(taut_ws_on_time(ends.server, 5999) == TAUT_OK && event(ends.server).kind == TAUT_EVENT_NONE);
    CHECK(taut_ws_on_time(ends.server, 6000) == TAUT_OK);
    next = event(ends.server);
    CHECK(next.kind == TAUT_EVENT_FAILED && next.closed->cause == TAUT_CAUSE_TIMEOUT);
    end(ends);
    ends = make("wss://localhost/", settings);
    open_ends(&ends);
    CHECK(taut_ws_deadline(ends.server, &at) == TAUT_OK && at == 7000);
    CHECK(taut_ws_on_time(ends.server, 7000) == TAUT_OK && status(ends.server).waiting > 0);
    CHECK(taut_ws_deadline(ends.server, &at) == TAUT_OK && at == 8000);
    now = 7500;
    carry(ends.server, ends.client, 1 << 20);
    CHECK(event(ends.client).kind == TAUT_EVENT_NONE);
    carry(ends.client, ends.server, 1 << 20);
    CHECK(event(ends.server).kind == TAUT_EVENT_PONG);
    CHECK(taut_ws_deadline(ends.server, &at) == TAUT_OK && at == 9500);
    CHECK(taut_ws_blocked(ends.server, now) == TAUT_OK && taut_ws_on_time(ends.server, 60000) == TAUT_OK);
    next = event(ends.server);
    CHECK(next.kind == TAUT_EVENT_CLOSED && next.closed->cause == TAUT_CAUSE_TIMEOUT && next.closed->code == 1006);
    end(ends);
    taut_settings_free(settings);
    now = 0;
}

static void streams_break_and_end(void) {
    struct ends ends = make("wss://localhost/", NULL);
    taut_ws_event next;
    open_ends(&ends);
    CHECK(taut_ws_ended(ends.server) == TAUT_OK);
    next = event(ends.server);
    CHECK(next.kind == TAUT_EVENT_CLOSED && next.closed->cause == TAUT_CAUSE_CUT);
    CHECK(taut_ws_broken(ends.client, 104) == TAUT_OK);
    next = event(ends.client);
    CHECK(next.kind == TAUT_EVENT_CLOSED && next.closed->cause == TAUT_CAUSE_IO);
    end(ends);
}

static void a_full_queue_refuses_messages(void) {
    static uint8_t data[1000];
    taut_settings *settings = NULL;
    taut_message one = message(0, data, sizeof data);
    struct ends ends;
    int taken = 0;
    CHECK(taut_settings_new(TAUT_PRESET_LOW_LATENCY, &settings, detail()) == TAUT_OK);
    CHECK(taut_settings_set(settings, TAUT_SET_SLOW_LIMIT, 10000, detail()) == TAUT_OK);
    ends = make("wss://localhost/", settings);
    open_ends(&ends);
    while (taut_ws_send(ends.server, &one) == TAUT_OK) taken++;
    CHECK(taken == 10 && taut_ws_send(ends.server, &one) == TAUT_ERR_FULL);
    carry(ends.server, ends.client, 1 << 20);
    CHECK(taut_ws_send(ends.server, &one) == TAUT_OK);
    end(ends);
    taut_settings_free(settings);
}

static void bad_use_is_answered(void) {
    struct ends ends = make("wss://localhost/", NULL);
    taut_ws *none = NULL;
    taut_settings *settings = NULL;
    taut_message bad = message(TAUT_TEXT, "\xff", 1), good = message(TAUT_TEXT, "a", 1);
    taut_target to = target("https://localhost/");
    taut_window window;
    taut_slice output;
    taut_header header;
    taut_ws_event next;
    uint64_t at;
    uint8_t long_ping[126] = {0};
    char reason[124];
    /* Null, sizes and values. */
    CHECK(taut_ws_server(NULL, NULL, NULL, 0, NULL, detail()) == TAUT_ERR_NULL && text[0] != 0);
    CHECK(taut_ws_client(NULL, NULL, NULL, NULL, 0, &none, detail()) == TAUT_ERR_NULL);
    CHECK(taut_ws_client(NULL, &to, NULL, NULL, 0, &none, detail()) == TAUT_ERR_VALUE && strstr(text, "wss://"));
    to.uri = NULL;
    CHECK(taut_ws_client(NULL, &to, NULL, NULL, 0, &none, detail()) == TAUT_ERR_VALUE);
    to.uri = "wss://localhost/";
    CHECK(taut_ws_client(NULL, &to, NULL, NULL, 0, &none, detail()) == TAUT_ERR_VALUE && strstr(text, "TLS"));
    CHECK(taut_ws_client(ends.server_config, &to, NULL, NULL, 0, &none, detail()) == TAUT_ERR_STATE);
    CHECK(taut_ws_server(ends.client_config, NULL, NULL, 0, &none, detail()) == TAUT_ERR_STATE);
    to.proxy = "ftp://x";
    CHECK(taut_ws_client(ends.client_config, &to, NULL, NULL, 0, &none, detail()) == TAUT_ERR_VALUE);
    to.size = 8;
    CHECK(taut_ws_client(ends.client_config, &to, NULL, NULL, 0, &none, detail()) == TAUT_ERR_SIZE && none == NULL);
    CHECK(taut_ws_free(NULL) == TAUT_OK && taut_ws_ended(NULL) == TAUT_ERR_NULL);
    taut_ws_context_free(NULL);
    taut_settings_free(NULL);
    CHECK(taut_settings_new(99, &settings, detail()) == TAUT_ERR_VALUE && settings == NULL);
    CHECK(taut_settings_set(NULL, TAUT_SET_MAX_MESSAGE, 1, detail()) == TAUT_ERR_NULL);
    CHECK(taut_ws_next(ends.client, NULL) == TAUT_ERR_NULL);
    next.size = 1;
    CHECK(taut_ws_next(ends.client, &next) == TAUT_ERR_SIZE);
    CHECK(taut_ws_window(ends.client, SIZE_MAX, &window) == TAUT_ERR_SIZE);
    CHECK(taut_ws_window(ends.client, 0, NULL) == TAUT_ERR_NULL && taut_ws_deadline(ends.client, NULL) == TAUT_ERR_NULL);
    /* More bytes than a window or an output has. */
    CHECK(taut_ws_filled(ends.client, 1, 0) == TAUT_ERR_SIZE);
    CHECK(taut_ws_window(ends.client, 0, &window) == TAUT_OK);
    CHECK(taut_ws_filled(ends.client, window.len + 1, 0) == TAUT_ERR_SIZE);
    CHECK(taut_ws_written(ends.client, 1) == TAUT_ERR_SIZE);
    CHECK(taut_ws_output(ends.client, &output) == TAUT_OK && output.len > 0);
    CHECK(taut_ws_written(ends.client, output.len + 1) == TAUT_ERR_SIZE);
    /* States. */
    CHECK(taut_ws_send(ends.client, &good) == TAUT_ERR_CLOSED);
    CHECK(taut_ws_upgrade(ends.client, NULL, 0) == TAUT_ERR_STATE);
    CHECK(taut_ws_respond(ends.server, 200, NULL, 0, NULL, 0) == TAUT_ERR_STATE);
    CHECK(taut_ws_close(ends.server, 1000, NULL, 0, 0) == TAUT_ERR_CLOSED);
    (void)asked(&ends);
    header.name = slice("bad name");
    header.value = slice("x");
    CHECK(taut_ws_upgrade(ends.server, &header, 1) == TAUT_ERR_VALUE);
    header.name = slice("name");
    header.value = slice("a\nb");
    CHECK(taut_ws_upgrade(ends.server, &header, 1) == TAUT_ERR_VALUE);
    CHECK(taut_ws_upgrade(ends.server, NULL, 1) == TAUT_ERR_NULL);
    CHECK(taut_ws_respond(ends.server, 99, NULL, 0, NULL, 0) == TAUT_ERR_VALUE);
    CHECK(taut_ws_upgrade(ends.server, NULL, 0) == TAUT_OK);
    carry(ends.server, ends.client, 1 << 20);
    CHECK(event(ends.client).kind == TAUT_EVENT_OPEN && event(ends.server).kind == TAUT_EVENT_OPEN);
    CHECK(taut_ws_send(ends.client, NULL) == TAUT_ERR_NULL && taut_ws_send(ends.client, &bad) == TAUT_ERR_VALUE);
    good.flags |= 1u << 31;
    CHECK(taut_ws_send(ends.client, &good) == TAUT_ERR_VALUE);
    good.flags = TAUT_TEXT;
    bad.data = NULL;
    CHECK(taut_ws_send(ends.client, &bad) == TAUT_ERR_NULL);
    bad.size = 0;
    CHECK(taut_ws_send(ends.client, &bad) == TAUT_ERR_SIZE);
    CHECK(taut_ws_ping(ends.client, long_ping, sizeof long_ping) == TAUT_ERR_VALUE);
    CHECK(taut_ws_close(ends.client, 1006, NULL, 0, 0) == TAUT_ERR_VALUE);
    memset(reason, 'x', sizeof reason);
    CHECK(taut_ws_close(ends.client, 1000, (const uint8_t *)reason, sizeof reason, 0) == TAUT_ERR_SIZE);
    CHECK(taut_ws_close(ends.client, 1000, (const uint8_t *)"\xff", 1, 0) == TAUT_ERR_VALUE);
    /* A clock that runs backwards stands still. */
    CHECK(taut_ws_on_time(ends.client, 0) == TAUT_OK && taut_ws_deadline(ends.client, &at) == TAUT_OK && at > 0);
    CHECK(taut_ws_on_time(ends.client, UINT64_MAX) == TAUT_OK);
    /* Bytes that are no TLS end the connection, with the reason. */
    CHECK(taut_ws_window(ends.server, 0, &window) == TAUT_OK);
    memset(window.data, 'x', 100);
    CHECK(taut_ws_filled(ends.server, 100, 0) == TAUT_OK);
    next = event(ends.server);
    CHECK(next.kind == TAUT_EVENT_CLOSED && next.closed->cause == TAUT_CAUSE_TLS && next.closed->text.len > 0);
    end(ends);
}

/* Two threads that use one connection at once. Each call succeeds or is answered with TAUT_ERR_BUSY. */
static void *hammer(void *of) {
    taut_ws *ws = of;
    taut_message one = message(0, "0123456789", 10);
    int i;
    for (i = 0; i < 20000; i++) {
        taut_code code = taut_ws_send(ws, &one);
        CHECK(code == TAUT_OK || code == TAUT_ERR_BUSY || code == TAUT_ERR_FULL);
    }
    return NULL;
}

static void two_threads_at_once(void) {
    struct ends ends = make("wss://localhost/", NULL);
    pthread_t threads[2];
    int i;
    open_ends(&ends);
    for (i = 0; i < 2; i++) CHECK(pthread_create(&threads[i], NULL, hammer, ends.client) == 0);
    for (i = 0; i < 2; i++) CHECK(pthread_join(threads[i], NULL) == 0);
    end(ends);
}

int main(int argc, char **argv) {
    arguments(argc, argv);
    a_connection_lives_and_ends("wss://localhost/feed?x=1");
    a_connection_lives_and_ends("ws://localhost/feed?x=1");
    a_refusal_reaches_the_client();
    deadlines_follow_the_callers_clock();
    streams_break_and_end();
    a_full_queue_refuses_messages();
    bad_use_is_answered();
    two_threads_at_once();
    puts("passed");
    return 0;
}
