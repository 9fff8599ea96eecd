/* Servers, clients and blocking sockets, used well and badly by a program in C. It prints "passed" at the end. */
#define _POSIX_C_SOURCE 200112L

#include <time.h>

#include "support.h"

/* Longest wait for something that must happen, in milliseconds. */
#define PATIENCE 60000

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t news = PTHREAD_COND_INITIALIZER;

/* What callbacks have seen. Guarded by `lock`. */
struct seen {
    int started, requests, opened, messages, pieces, pongs, drains, timers, loop_timers, closed, failed, redials, ended,
        destroyed;
    uint32_t cause, code;
    uint64_t dial, retry;
    char data[4096];
    size_t len;
    taut_conn conn;
    taut_ticket *ticket;
};

static void tell(int *count) {
    pthread_mutex_lock(&lock);
    ++*count;
    pthread_cond_broadcast(&news);
    pthread_mutex_unlock(&lock);
}

/* Waits until a count has reached a number. */
static void wait_for(int *count, int least) {
    struct timespec end;
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += PATIENCE / 1000;
    pthread_mutex_lock(&lock);
    while (*count < least) CHECK(pthread_cond_timedwait(&news, &lock, &end) == 0);
    pthread_mutex_unlock(&lock);
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

static int is(taut_slice slice, const char *expected) {
    return slice.len == strlen(expected) && memcmp(slice.data, expected, slice.len) == 0;
}

static const uint8_t *bytes(const char *of) { return (const uint8_t *)of; }

/* Callbacks of servers. */

static taut_code on_start(void *user, const taut_loop *owner, uint32_t number) {
    CHECK(number < 2 && taut_loop_set_timer(owner, 1, 7) == TAUT_OK);
    CHECK(taut_loop_set_timer(owner, 100000, 8) == TAUT_OK && taut_loop_cancel_timer(owner, 8) == TAUT_OK);
    CHECK(taut_loop_cancel_timer(owner, 8) == TAUT_ERR_VALUE);
    tell(&((struct seen *)user)->started);
    return TAUT_OK;
}

static taut_code on_loop_timer(void *user, const taut_loop *owner, uint64_t id) {
    taut_message one = message(0, "x", 1);
    CHECK(id == 7 && taut_loop_publish(owner, bytes("nobody"), 6, &one) == TAUT_OK);
    tell(&((struct seen *)user)->loop_timers);
    return TAUT_OK;
}

static taut_code on_request(void *user, const taut_request *request) {
    struct seen *seen = user;
    taut_tls_facts facts;
    taut_header header;
    CHECK(request->size >= sizeof *request && is(request->head->method, "GET") && request->peer.len > 0);
    memset(&facts, 0, sizeof facts);
    facts.size = sizeof facts;
    CHECK(taut_request_get_facts(request, &facts) == TAUT_OK);
    header.name.data = bytes("x-test");
    header.name.len = 6;
    header.value.data = bytes("1");
    header.value.len = 1;
    if (is(request->head->target, "/refused")) {
        CHECK(taut_request_respond(request, 403, &header, 1, bytes("no"), 2) == TAUT_OK);
        CHECK(taut_request_upgrade(request, NULL, 0, NULL, NULL) == TAUT_ERR_STATE);
    } else if (is(request->head->target, "/later")) {
        taut_ticket *ticket = NULL;
        CHECK(taut_request_later(request, &ticket) == TAUT_OK && ticket != NULL);
        pthread_mutex_lock(&lock);
        seen->ticket = ticket;
        pthread_mutex_unlock(&lock);
    } else if (is(request->head->target, "/fails")) {
        return TAUT_ERR_CALLBACK;
    } else if (is(request->head->target, "/named")) {
        CHECK(taut_request_upgrade(request, &header, 1, "unknown\n", NULL) == TAUT_OK);
    } else {
        CHECK(taut_request_upgrade(request, &header, 1, NULL, seen) == TAUT_OK);
        CHECK(taut_request_respond(request, 200, NULL, 0, NULL, 0) == TAUT_ERR_STATE);
    }
    tell(&seen->requests);
    return TAUT_OK;
}

static taut_code on_open(void *user, taut_conn conn, const taut_opening *opening) {
    struct seen *seen = user;
    void *own = NULL;
    char peer[64];
    uint64_t dial;
    CHECK(opening->request != NULL && opening->response == NULL);
    CHECK(taut_conn_get_user(conn, &own) == TAUT_OK && (own == user || own == NULL));
    CHECK(taut_conn_get_peer(conn, peer, sizeof peer) == TAUT_OK && peer[0] != 0);
    CHECK(taut_conn_get_dial(conn, &dial) == TAUT_ERR_STATE && taut_conn_is_open(conn) == 1);
    CHECK(taut_conn_subscribe(conn, bytes("news"), 4) == TAUT_OK);
    CHECK(taut_conn_subscribe_prefix(conn, bytes("prices."), 7) == TAUT_OK);
    pthread_mutex_lock(&lock);
    seen->conn = conn;
    pthread_mutex_unlock(&lock);
    tell(&seen->opened);
    return TAUT_OK;
}

static taut_server *running;

/* Echoes, and does what some messages ask for. */
static taut_code on_message(void *user, taut_conn conn, const taut_message *incoming) {
    struct seen *seen = user;
    taut_message out = message(incoming->flags, incoming->data, incoming->len);
    taut_slice said;
    said.data = incoming->data;
    said.len = incoming->len;
    tell(&seen->messages);
    if (is(said, "fail")) return TAUT_ERR_CALLBACK;
    if (is(said, "flags")) {
        /* A flag of a later version, and those of pieces: nothing is sent. */
        const uint32_t flags[] = {1u << 31, TAUT_LAST << 1, TAUT_FIRST, TAUT_LAST, TAUT_FIRST | TAUT_LAST};
        size_t i;
        for (i = 0; i < sizeof flags / sizeof *flags; i++) {
            out.flags = TAUT_TEXT | flags[i];
            CHECK(taut_conn_send(conn, &out) == TAUT_ERR_VALUE);
            CHECK(taut_conn_publish(conn, bytes("news"), 4, &out) == TAUT_ERR_VALUE);
        }
        out.flags = TAUT_TEXT | TAUT_UNCOMPRESSED | TAUT_KEYED;
        return taut_conn_send(conn, &out);
    }
    if (is(said, "close")) return taut_conn_close(conn, 4000, bytes("as you like"), 11);
    if (is(said, "timer")) {
        CHECK(taut_conn_set_timer(conn, 1, 42) == TAUT_OK && taut_conn_set_timer(conn, 1000000, 43) == TAUT_OK);
        CHECK(taut_conn_cancel_timer(conn, 43) == TAUT_OK && taut_conn_cancel_timer(conn, 43) == TAUT_ERR_VALUE);
        return TAUT_OK;
    }
    if (is(said, "publish")) return taut_conn_publish(conn, bytes("news"), 4, &out);
    if (is(said, "leave")) {
        CHECK(taut_conn_unsubscribe(conn, bytes("news"), 4) == TAUT_OK);
        CHECK(taut_conn_unsubscribe_prefix(conn, bytes("prices."), 7) == TAUT_OK);
    }
    if (is(said, "ping")) return taut_conn_ping(conn, incoming->data, incoming->len);
    if (is(said, "pieces")) {
        taut_message piece = message(TAUT_TEXT, "pie", 3);
        CHECK(taut_conn_send_piece(conn, &piece) == TAUT_OK);
        CHECK(taut_conn_send(conn, &out) == TAUT_ERR_FULL);
        piece = message(TAUT_TEXT | TAUT_KEYED | TAUT_LAST, "ces", 3);
        CHECK(taut_conn_send_piece(conn, &piece) == TAUT_ERR_VALUE);
        piece = message(TAUT_TEXT | TAUT_LAST, "ces", 3);
        return taut_conn_send_piece(conn, &piece);
    }
    if (is(said, "drain")) return taut_conn_notify_drain(conn);
    if (is(said, "reenter")) {
        /* Calls that would wait for this very callback. */
        size_t count;
        CHECK(taut_server_join(running, TAUT_NEVER, detail()) == TAUT_ERR_STATE);
        CHECK(taut_server_free(running) == TAUT_ERR_STATE);
        CHECK(taut_server_subscribers(running, bytes("news"), 4, &count) == TAUT_ERR_STATE);
    }
    if (is(said, "bad")) {
        taut_message wrong = message(TAUT_TEXT, "\xff", 1);
        taut_conn other = conn;
        size_t waiting;
        other.id += 1;
        CHECK(taut_conn_send(conn, NULL) == TAUT_ERR_NULL && taut_conn_send(conn, &wrong) == TAUT_ERR_VALUE);
        CHECK(taut_conn_send(other, &out) == TAUT_ERR_CLOSED && taut_conn_pause(other, 1) == TAUT_ERR_STATE);
        CHECK(taut_conn_close(conn, 1005, NULL, 0) == TAUT_ERR_VALUE);
        CHECK(taut_conn_subscribe(conn, NULL, 3) == TAUT_ERR_NULL && taut_conn_buffered(conn, NULL) == TAUT_ERR_NULL);
        CHECK(taut_conn_buffered(conn, &waiting) == TAUT_OK && waiting == 0);
        CHECK(taut_conn_pause(conn, 1) == TAUT_OK && taut_conn_pause(conn, 0) == TAUT_OK);
        CHECK(taut_request_respond(NULL, 200, NULL, 0, NULL, 0) == TAUT_ERR_STATE);
        CHECK(taut_redial_set(NULL, NULL, NULL) == TAUT_ERR_NULL);
    }
    return taut_conn_send(conn, &out);
}

static taut_code on_pong(void *user, taut_conn conn, const uint8_t *data, size_t len) {
    (void)conn;
    CHECK(len == 4 && memcmp(data, "ping", 4) == 0);
    tell(&((struct seen *)user)->pongs);
    return TAUT_OK;
}

static taut_code on_drain(void *user, taut_conn conn) {
    (void)conn;
    tell(&((struct seen *)user)->drains);
    return TAUT_OK;
}

static taut_code on_timer(void *user, taut_conn conn, uint64_t id) {
    taut_message ring = message(TAUT_TEXT, "ring", 4);
    CHECK(id == 42);
    tell(&((struct seen *)user)->timers);
    return taut_conn_send(conn, &ring);
}

static taut_code on_close(void *user, taut_conn conn, const taut_closed *closed) {
    struct seen *seen = user;
    taut_message late = message(0, "x", 1);
    CHECK(closed->text.len > 0 && taut_conn_is_open(conn) == 0);
    CHECK(taut_conn_send(conn, &late) == TAUT_ERR_CLOSED);
    pthread_mutex_lock(&lock);
    seen->cause = closed->cause;
    seen->code = closed->code;
    pthread_mutex_unlock(&lock);
    tell(&seen->closed);
    return TAUT_OK;
}

static void on_destroy(void *user) {
    CHECK(taut_server_join(running, 0, NULL) == TAUT_ERR_STATE || running == NULL);
    tell(&((struct seen *)user)->destroyed);
}

static taut_callbacks server_callbacks(struct seen *seen) {
    taut_callbacks callbacks;
    memset(&callbacks, 0, sizeof callbacks);
    callbacks.size = sizeof callbacks;
    callbacks.user = seen;
    callbacks.start = on_start;
    callbacks.request = on_request;
    callbacks.open = on_open;
    callbacks.message = on_message;
    callbacks.pong = on_pong;
    callbacks.drain = on_drain;
    callbacks.timer = on_timer;
    callbacks.close = on_close;
    callbacks.loop_timer = on_loop_timer;
    callbacks.destroy = on_destroy;
    return callbacks;
}

static char uri[128];

/* The URI of a path on the server. */
static const char *at(const char *scheme, const char *path) {
    char address[64];
    CHECK(taut_server_address(running, 0, address, sizeof address) == TAUT_OK);
    snprintf(uri, sizeof uri, "%s://localhost%s%s", scheme, strchr(address, ':'), path);
    return uri;
}

/* Settings whose deadlines a slow machine keeps. */
static taut_settings *patient(void) {
    static const uint32_t deadlines[] = {TAUT_SET_CONNECT_MS, TAUT_SET_HANDSHAKE_MS, TAUT_SET_ANSWER_MS,
                                         TAUT_SET_CLOSE_MS, TAUT_SET_SEND_MS, TAUT_SET_IDLE_MS};
    taut_settings *settings = NULL;
    size_t i;
    CHECK(taut_settings_new(TAUT_PRESET_UNTRUSTED_INTERNET, &settings, detail()) == TAUT_OK);
    for (i = 0; i < sizeof deadlines / sizeof *deadlines; i++) {
        CHECK(taut_settings_set(settings, deadlines[i], PATIENCE, detail()) == TAUT_OK);
    }
    return settings;
}

static void start(struct seen *seen, const taut_tls_config *tls, uint32_t loops) {
    taut_settings *settings = patient();
    static const char *listen[] = {"127.0.0.1:0"};
    taut_callbacks callbacks = server_callbacks(seen);
    taut_server_options options;
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.tls = tls;
    options.listen = listen;
    options.listen_count = 1;
    options.loops = loops;
    options.settings = settings;
    options.callbacks = &callbacks;
    CHECK(taut_server_start(&options, &running, detail()) == TAUT_OK);
    taut_settings_free(settings);
}

static void stop(struct seen *seen) {
    CHECK(taut_server_free(running) == TAUT_OK);
    running = NULL;
    CHECK(seen->destroyed == 1 && seen->opened == seen->closed);
}

static uint64_t counter(const char *name) {
    uint64_t value = 0;
    CHECK(taut_server_counter(running, name, &value) == TAUT_OK);
    return value;
}

/* Blocking sockets. */

static taut_socket *socket_to(const char *to, const taut_tls_config *tls) {
    taut_settings *settings = patient();
    taut_socket *socket = NULL;
    taut_target target;
    memset(&target, 0, sizeof target);
    target.size = sizeof target;
    target.uri = to;
    if (taut_socket_connect(tls, &target, settings, PATIENCE, &socket, detail()) != TAUT_OK) {
        fprintf(stderr, "%s: %s\n", to, text);
        exit(1);
    }
    taut_settings_free(settings);
    return socket;
}

static taut_code refusal(const char *to, const taut_tls_config *tls) {
    taut_socket *socket = NULL;
    taut_target target;
    taut_code code;
    memset(&target, 0, sizeof target);
    target.size = sizeof target;
    target.uri = to;
    code = taut_socket_connect(tls, &target, NULL, PATIENCE, &socket, detail());
    CHECK(code != TAUT_OK && socket == NULL && text[0] != 0);
    return code;
}

static void say(taut_socket *socket, const char *what) {
    taut_message out = message(TAUT_TEXT, what, strlen(what));
    CHECK(taut_socket_send(socket, &out, detail()) == TAUT_OK);
}

static void hear(taut_socket *socket, const char *expected) {
    taut_message in = message(0, NULL, 0);
    taut_slice said;
    CHECK(taut_socket_receive(socket, PATIENCE, &in, detail()) == TAUT_OK);
    said.data = in.data;
    said.len = in.len;
    CHECK(in.flags == TAUT_TEXT && is(said, expected));
}

static void *on_another_thread(void *socket) {
    taut_message out = message(0, "x", 1);
    CHECK(taut_socket_send(socket, &out, NULL) == TAUT_ERR_STATE);
    CHECK(taut_socket_close(socket, 1000, NULL, 0, NULL) == TAUT_ERR_STATE);
    CHECK(taut_socket_closed(socket) == NULL);
    return NULL;
}

/* As a collector of garbage does. */
static void *free_it(void *socket) {
    CHECK(taut_socket_free(socket) == TAUT_OK);
    return NULL;
}

static void callbacks_serve_blocking_clients(void) {
    static struct seen seen;
    const taut_tls_config *server = server_config(), *client = client_config();
    taut_socket *socket, *other;
    taut_message in = message(0, NULL, 0), out = message(TAUT_TEXT, "from outside", 12);
    taut_conn conn;
    taut_tls_facts facts;
    pthread_t thread;
    size_t count = 0;
    start(&seen, server, 2);
    wait_for(&seen.loop_timers, 2);
    socket = socket_to(at("wss", "/"), client);
    say(socket, "hello");
    hear(socket, "hello");
    memset(&facts, 0, sizeof facts);
    facts.size = sizeof facts;
    CHECK(taut_socket_get_facts(socket, &facts) == TAUT_OK && strcmp(facts.version, "TLSv1.3") == 0);
    CHECK(taut_socket_receive(socket, 0, &in, detail()) == TAUT_ERR_TIMEOUT);
    CHECK(taut_socket_receive(socket, 10, &in, detail()) == TAUT_ERR_TIMEOUT);
    say(socket, "timer");
    hear(socket, "ring");
    say(socket, "publish");
    hear(socket, "publish");
    say(socket, "flags");
    hear(socket, "flags");
    say(socket, "pieces");
    hear(socket, "pieces");
    say(socket, "drain");
    say(socket, "bad");
    hear(socket, "bad");
    wait_for(&seen.drains, 1);
    say(socket, "reenter");
    hear(socket, "reenter");
    say(socket, "ping");
    say(socket, "after the ping");
    hear(socket, "after the ping");
    wait_for(&seen.pongs, 1);
    /* From this thread, which is none of a loop. */
    pthread_mutex_lock(&lock);
    conn = seen.conn;
    pthread_mutex_unlock(&lock);
    CHECK(taut_conn_is_open(conn) == 1 && taut_conn_send(conn, &out) == TAUT_OK);
    hear(socket, "from outside");
    out.flags |= 1u << 31;
    CHECK(taut_server_publish(running, bytes("prices.EURUSD"), 13, &out) == TAUT_ERR_VALUE);
    CHECK(taut_socket_send(socket, &out, detail()) == TAUT_ERR_VALUE && text[0] != 0);
    out.flags &= ~(1u << 31);
    CHECK(taut_server_publish(running, bytes("prices.EURUSD"), 13, &out) == TAUT_OK);
    hear(socket, "from outside");
    CHECK(taut_server_broadcast(running, &out) == TAUT_OK);
    hear(socket, "from outside");
    CHECK(taut_server_subscribers(running, bytes("news"), 4, &count) == TAUT_OK && count == 1);
    CHECK(taut_conn_subscribe(conn, bytes("a"), 1) == TAUT_ERR_STATE && taut_conn_pause(conn, 1) == TAUT_ERR_STATE);
    say(socket, "leave");
    hear(socket, "leave");
    CHECK(taut_server_subscribers(running, bytes("news"), 4, &count) == TAUT_OK && count == 0);
    /* A socket stays on its thread. */
    CHECK(pthread_create(&thread, NULL, on_another_thread, socket) == 0 && pthread_join(thread, NULL) == 0);
    CHECK(taut_socket_closed(socket) == NULL);
    /* The end by another thread of the server. */
    CHECK(taut_conn_close(conn, 4002, bytes("enough"), 6) == TAUT_OK);
    CHECK(taut_socket_receive(socket, PATIENCE, &in, detail()) == TAUT_ERR_CLOSED && text[0] != 0);
    CHECK(taut_socket_closed(socket)->code == 4002 && is(taut_socket_closed(socket)->reason, "enough"));
    CHECK(taut_socket_send(socket, &out, detail()) == TAUT_ERR_CLOSED);
    CHECK(taut_socket_free(socket) == TAUT_OK);
    wait_for(&seen.closed, 1);
    CHECK(taut_conn_send(conn, &out) == TAUT_ERR_CLOSED && taut_conn_is_open(conn) == 0);
    CHECK(taut_conn_close(conn, 1000, NULL, 0) == TAUT_ERR_CLOSED);
    /* A new connection, maybe in the place of the old one, is another one. */
    socket = socket_to(at("wss", "/"), client);
    wait_for(&seen.opened, 2);
    CHECK(taut_conn_send(conn, &out) == TAUT_ERR_CLOSED);
    /* A callback that fails ends its connection, and no other. */
    other = socket_to(at("wss", "/"), client);
    say(other, "fail");
    CHECK(taut_socket_receive(other, PATIENCE, &in, detail()) == TAUT_ERR_CLOSED);
    CHECK(taut_socket_closed(other)->code == 1011);
    CHECK(taut_socket_close(other, 1000, NULL, 0, detail()) != TAUT_ERR_INTERNAL);
    CHECK(taut_socket_send(other, &out, detail()) == TAUT_ERR_CLOSED && taut_socket_free(other) == TAUT_OK);
    wait_for(&seen.closed, 2);
    CHECK(seen.cause == TAUT_CAUSE_CALLBACK && counter("callbacks_failed") == 1);
    say(socket, "still here");
    hear(socket, "still here");
    CHECK(taut_socket_close(socket, 4003, bytes("bye"), 3, detail()) == TAUT_OK);
    CHECK(taut_socket_close(socket, 4003, NULL, 0, detail()) == TAUT_ERR_CLOSED && taut_socket_free(socket) == TAUT_OK);
    wait_for(&seen.closed, 3);
    CHECK(seen.cause == TAUT_CAUSE_PEER && seen.code == 4003);
    /* Any thread may free a socket, and the server notices its end. */
    socket = socket_to(at("wss", "/"), client);
    say(socket, "free me elsewhere");
    hear(socket, "free me elsewhere");
    CHECK(pthread_create(&thread, NULL, free_it, socket) == 0 && pthread_join(thread, NULL) == 0);
    wait_for(&seen.closed, 4);
    stop(&seen);
    taut_tls_config_release(server);
    taut_tls_config_release(client);
}

/* The code of an attempt at the server's address, whose certificate must be of this name. */
static taut_code named(const char *name, const taut_tls_config *tls) {
    taut_settings *settings = patient();
    taut_socket *socket = NULL;
    taut_target target;
    taut_code code;
    char address[64], to[128];
    CHECK(taut_server_address(running, 0, address, sizeof address) == TAUT_OK);
    snprintf(to, sizeof to, "wss://%s/", address);
    memset(&target, 0, sizeof target);
    target.size = sizeof target;
    target.uri = to;
    target.server_name = name;
    code = taut_socket_connect(tls, &target, settings, PATIENCE, &socket, detail());
    CHECK((code == TAUT_OK) == (socket != NULL) && taut_socket_free(socket) == TAUT_OK);
    taut_settings_free(settings);
    return code;
}

static void a_target_names_the_server_in_tls(void) {
    static struct seen seen;
    const taut_tls_config *server = server_config(), *client = client_config();
    start(&seen, server, 1);
    /* The certificate has the name, and not the address. */
    CHECK(named(NULL, client) == TAUT_ERR_CONNECT && named("localhost", client) == TAUT_OK);
    CHECK(named("other.example", client) == TAUT_ERR_CONNECT && strstr(text, "certificate") != NULL);
    CHECK(named("", client) != TAUT_OK && named("no name", client) != TAUT_OK && text[0] != 0);
    CHECK(named("\xff", client) == TAUT_ERR_VALUE);
    wait_for(&seen.closed, 1);
    stop(&seen);
    taut_tls_config_release(server);
    taut_tls_config_release(client);
}

static void *answer(void *user) {
    struct seen *seen = user;
    taut_ticket *ticket;
    CHECK(taut_ticket_is_wanted(NULL) == 0);
    wait_for(&seen->requests, 1);
    pthread_mutex_lock(&lock);
    ticket = seen->ticket;
    pthread_mutex_unlock(&lock);
    CHECK(taut_ticket_is_wanted(ticket) == 1);
    CHECK(taut_ticket_upgrade(ticket, NULL, 0, NULL, NULL) == TAUT_OK && taut_ticket_is_wanted(ticket) == 0);
    CHECK(taut_ticket_respond(ticket, 200, NULL, 0, NULL, 0) == TAUT_ERR_STATE);
    CHECK(taut_ticket_upgrade(NULL, NULL, 0, NULL, NULL) == TAUT_ERR_NULL);
    taut_ticket_free(ticket);
    taut_ticket_free(NULL);
    return NULL;
}

static void requests_are_answered_at_once_or_later(void) {
    static struct seen seen;
    pthread_t thread;
    taut_socket *socket;
    start(&seen, NULL, 0);
    CHECK(pthread_create(&thread, NULL, answer, &seen) == 0);
    socket = socket_to(at("ws", "/later"), NULL);
    CHECK(pthread_join(thread, NULL) == 0);
    say(socket, "hello");
    hear(socket, "hello");
    CHECK(refusal(at("ws", "/refused"), NULL) == TAUT_ERR_CONNECT && strstr(text, "403") != NULL);
    CHECK(refusal(at("ws", "/fails"), NULL) == TAUT_ERR_CONNECT && strstr(text, "500") != NULL);
    CHECK(refusal(at("ws", "/named"), NULL) == TAUT_ERR_CONNECT && strstr(text, "500") != NULL);
    CHECK(counter("callbacks_failed") == 1);
    CHECK(taut_socket_free(socket) == TAUT_OK);
    stop(&seen);
}

static void certificates_are_replaced_and_a_drain_ends(void) {
    static struct seen seen;
    const taut_tls_config *server = server_config(), *client = client_config(), *unused = NULL;
    taut_counter counters[200];
    taut_message in = message(0, NULL, 0);
    taut_socket *socket;
    uint64_t value;
    size_t count = 0, i;
    int found = 0;
    start(&seen, server, 1);
    CHECK(taut_server_reload(running, server, detail()) == TAUT_OK);
    CHECK(taut_server_reload(running, client, detail()) == TAUT_ERR_STATE && text[0] != 0);
    CHECK(taut_server_reload(running, NULL, detail()) == TAUT_ERR_NULL);
    CHECK(taut_tls_config_new(TAUT_SERVER, NULL, &unused, detail()) == TAUT_OK);
    CHECK(taut_server_reload(running, unused, detail()) == TAUT_ERR_STATE);
    taut_tls_config_release(unused);
    socket = socket_to(at("wss", "/"), client);
    say(socket, "hello");
    hear(socket, "hello");
    CHECK(taut_server_counters(running, counters, 200, &count) == TAUT_OK && count > 30);
    for (i = 0; i < count; i++) found += is(counters[i].name, "messages_in") && counters[i].value == 1;
    CHECK(found == 1 && counter("open") == 1);
    CHECK(taut_server_counters(running, counters, 1, &count) == TAUT_ERR_SIZE && count > 30);
    CHECK(taut_server_counters(running, NULL, 1, &count) == TAUT_ERR_NULL);
    CHECK(taut_server_counter(running, "nonsense", &value) == TAUT_ERR_VALUE);
    CHECK(taut_server_counter(running, NULL, &value) == TAUT_ERR_NULL);
    CHECK(taut_server_join(running, 10, detail()) == TAUT_ERR_TIMEOUT);
    CHECK(taut_server_drain(running, 1012, bytes("restart"), 7, PATIENCE) == TAUT_OK);
    CHECK(taut_socket_receive(socket, PATIENCE, &in, detail()) == TAUT_ERR_CLOSED);
    CHECK(taut_socket_closed(socket)->code == 1012 && taut_socket_free(socket) == TAUT_OK);
    CHECK(taut_server_join(running, PATIENCE, detail()) == TAUT_OK);
    CHECK(taut_server_broadcast(running, &in) == TAUT_ERR_CLOSED && taut_server_drain(running, 1001, NULL, 0, 0) == TAUT_OK);
    CHECK(taut_conn_send(seen.conn, &in) == TAUT_ERR_CLOSED);
    stop(&seen);
    taut_tls_config_release(server);
    taut_tls_config_release(client);
}

/* Messages that a policy has dropped. Guarded by `lock`. */
static int dropped;

static taut_code on_dropped(void *user, taut_conn conn, uint32_t count) {
    (void)user;
    CHECK(taut_conn_is_open(conn) == 1 && count > 0);
    pthread_mutex_lock(&lock);
    dropped += (int)count;
    pthread_cond_broadcast(&news);
    pthread_mutex_unlock(&lock);
    return TAUT_OK;
}

/* Answers with more than the kernel takes for a peer that does not read. */
static taut_code on_message_flood(void *user, taut_conn conn, const taut_message *incoming) {
    static uint8_t large[1 << 20];
    taut_message out = message(0, large, sizeof large);
    int i;
    (void)user, (void)incoming;
    for (i = 0; i < 64; i++) CHECK(taut_conn_send(conn, &out) == TAUT_OK);
    return TAUT_OK;
}

static void a_callback_tells_of_dropped_messages(void) {
    static struct seen seen;
    static const char *listen[] = {"127.0.0.1:0"};
    taut_settings *settings = patient();
    taut_callbacks callbacks = server_callbacks(&seen);
    taut_server_options options;
    taut_socket *socket;
    CHECK(taut_settings_set(settings, TAUT_SET_SLOW_POLICY, TAUT_SLOW_DROP_OLDEST, detail()) == TAUT_OK);
    CHECK(taut_settings_set(settings, TAUT_SET_SLOW_LIMIT, 2 << 20, detail()) == TAUT_OK);
    callbacks.message = on_message_flood;
    callbacks.dropped = on_dropped;
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.listen = listen;
    options.listen_count = 1;
    options.settings = settings;
    options.callbacks = &callbacks;
    CHECK(taut_server_start(&options, &running, detail()) == TAUT_OK);
    taut_settings_free(settings);
    socket = socket_to(at("ws", "/"), NULL);
    say(socket, "go");
    wait_for(&dropped, 1);
    CHECK((int)counter("dropped_oldest") == dropped);
    CHECK(taut_socket_free(socket) == TAUT_OK);
    stop(&seen);
}

/* A callback that does not return until `let_go`. Guarded by `lock`. */
static int let_go;

static taut_code on_message_held(void *user, taut_conn conn, const taut_message *incoming) {
    taut_message out = message(incoming->flags, incoming->data, incoming->len);
    taut_slice said;
    said.data = incoming->data;
    said.len = incoming->len;
    tell(&((struct seen *)user)->messages);
    if (is(said, "hold")) wait_for(&let_go, 1);
    return taut_conn_send(conn, &out);
}

static void a_callback_that_does_not_return_holds_up_its_loop_alone(void) {
    static struct seen seen, free_seen;
    static const char *listen[] = {"127.0.0.1:0"};
    taut_settings *settings = patient();
    taut_callbacks callbacks = server_callbacks(&seen);
    taut_server_options options;
    taut_server *held = NULL;
    taut_socket *socket, *other;
    taut_message in = message(0, NULL, 0), out = message(TAUT_TEXT, "from outside", 12);
    char held_uri[128];
    callbacks.message = on_message_held;
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.listen = listen;
    options.listen_count = 1;
    options.settings = settings;
    options.callbacks = &callbacks;
    CHECK(taut_server_start(&options, &running, detail()) == TAUT_OK);
    taut_settings_free(settings);
    held = running;
    strcpy(held_uri, at("ws", "/"));
    socket = socket_to(held_uri, NULL);
    say(socket, "hold");
    wait_for(&seen.messages, 1);
    /* Calls of other threads return, and tell what they wait for. */
    CHECK(taut_conn_is_open(seen.conn) == 1 && taut_conn_send(seen.conn, &out) == TAUT_OK);
    CHECK(taut_server_broadcast(held, &out) == TAUT_OK && counter("open") == 1);
    CHECK(taut_socket_receive(socket, 10, &in, detail()) == TAUT_ERR_TIMEOUT);
    CHECK(taut_server_drain(held, 1001, NULL, 0, 1) == TAUT_OK);
    CHECK(taut_server_join(held, 50, detail()) == TAUT_ERR_TIMEOUT && strstr(text, "callback") != NULL);
    /* Other loops go on. */
    start(&free_seen, NULL, 1);
    other = socket_to(at("ws", "/"), NULL);
    say(other, "hello");
    hear(other, "hello");
    CHECK(taut_socket_close(other, 1000, NULL, 0, detail()) == TAUT_OK && taut_socket_free(other) == TAUT_OK);
    stop(&free_seen);
    /* After its return the loop ends as it was asked to. */
    running = held;
    tell(&let_go);
    CHECK(taut_server_join(held, PATIENCE, detail()) == TAUT_OK);
    CHECK(taut_socket_free(socket) == TAUT_OK);
    stop(&seen);
}

/* Callbacks of clients. */

static taut_code client_open(void *user, taut_conn conn, const taut_opening *opening) {
    struct seen *seen = user;
    taut_message hello = message(TAUT_TEXT, "hello", 5);
    uint64_t dial = 99;
    CHECK(opening->request == NULL && opening->response->status == 101);
    CHECK(taut_conn_get_dial(conn, &dial) == TAUT_OK);
    pthread_mutex_lock(&lock);
    seen->conn = conn;
    seen->dial = dial;
    pthread_mutex_unlock(&lock);
    tell(&seen->opened);
    return taut_conn_send(conn, &hello);
}

static taut_code client_message(void *user, taut_conn conn, const taut_message *incoming) {
    struct seen *seen = user;
    (void)conn;
    pthread_mutex_lock(&lock);
    CHECK(seen->len + incoming->len < sizeof seen->data);
    memcpy(seen->data + seen->len, incoming->data, incoming->len);
    seen->len += incoming->len;
    pthread_mutex_unlock(&lock);
    tell(&seen->messages);
    return TAUT_OK;
}

static taut_code client_failed(void *user, uint64_t dial, const taut_closed *closed, uint64_t retry_ms) {
    struct seen *seen = user;
    CHECK(closed->text.len > 0);
    pthread_mutex_lock(&lock);
    seen->cause = closed->cause;
    seen->dial = dial;
    seen->retry = retry_ms;
    pthread_mutex_unlock(&lock);
    tell(&seen->failed);
    return TAUT_OK;
}

static char good[128];

/* Sends the second attempt to a server that is there. */
static taut_code client_redial(void *user, uint64_t dial, taut_redial *redial) {
    struct seen *seen = user;
    taut_target target;
    (void)dial;
    memset(&target, 0, sizeof target);
    target.size = sizeof target;
    CHECK(taut_redial_set(redial, &target, detail()) == TAUT_ERR_VALUE);
    target.uri = good;
    target.reconnect_longest_ms = 100;
    CHECK(taut_redial_set(redial, &target, detail()) == TAUT_OK);
    tell(&seen->redials);
    return TAUT_OK;
}

static taut_code client_ended(void *user, uint64_t dial) {
    (void)dial;
    tell(&((struct seen *)user)->ended);
    return TAUT_OK;
}

static void clients_connect_and_reconnect(void) {
    static struct seen seen, own;
    const taut_tls_config *server = server_config(), *client = client_config();
    taut_client_options options;
    taut_callbacks callbacks;
    taut_client *clients = NULL;
    taut_settings *settings = patient();
    taut_target target;
    static const taut_header host = {{(const uint8_t *)"host", 4}, {(const uint8_t *)"x", 1}};
    static const taut_slice wrong = {(const uint8_t *)"a b", 3};
    uint64_t dial = 99, value = 0;
    start(&seen, server, 1);
    memset(&callbacks, 0, sizeof callbacks);
    callbacks.size = sizeof callbacks;
    callbacks.user = &own;
    callbacks.open = client_open;
    callbacks.message = client_message;
    callbacks.close = on_close;
    callbacks.connect_failed = client_failed;
    callbacks.redial = client_redial;
    callbacks.dial_end = client_ended;
    callbacks.destroy = on_destroy;
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.tls = client;
    options.settings = settings;
    options.callbacks = &callbacks;
    CHECK(taut_client_start(&options, &clients, detail()) == TAUT_OK);
    taut_settings_free(settings);
    memset(&target, 0, sizeof target);
    target.size = sizeof target;
    CHECK(taut_client_connect(clients, NULL, &dial, detail()) == TAUT_ERR_NULL);
    target.uri = at("ws", "/");
    CHECK(taut_client_connect(clients, &target, &dial, detail()) == TAUT_ERR_VALUE && strstr(text, "wss") != NULL);
    strcpy(good, at("wss", "/"));
    target.uri = good;
    CHECK(taut_client_connect(clients, &target, &dial, detail()) == TAUT_OK && dial == 0);
    wait_for(&own.messages, 1);
    CHECK(own.len == 5 && memcmp(own.data, "hello", 5) == 0 && own.dial == 0);
    CHECK(taut_client_disconnect(clients, 77, 1000, NULL, 0) == TAUT_ERR_CLOSED);
    CHECK(taut_client_disconnect(clients, dial, 1000, bytes("done"), 4) == TAUT_OK);
    wait_for(&own.ended, 1);
    CHECK(own.closed == 1 && taut_client_disconnect(clients, dial, 1000, NULL, 0) == TAUT_ERR_CLOSED);
    /* A refusal is reported with its status, and the callback sends the next attempt elsewhere. */
    target.uri = at("wss", "/refused");
    target.reconnect_longest_ms = 50;
    target.reconnect_first_ms = 10;
    CHECK(taut_client_connect(clients, &target, &dial, detail()) == TAUT_OK && dial == 1);
    wait_for(&own.messages, 2);
    CHECK(own.failed >= 1 && own.cause == TAUT_CAUSE_REFUSED && own.retry <= 50 && own.redials >= 1);
    CHECK(taut_client_counter(clients, "open", &value) == TAUT_OK && value == 1);
    /* What no attempt can use is an error of the call, whether a server runs or not. */
    target.uri = "wss://127.0.0.1:1/";
    target.headers = &host;
    target.headers_count = 1;
    CHECK(taut_client_connect(clients, &target, &dial, detail()) == TAUT_ERR_VALUE && strstr(text, "host") != NULL);
    target.headers_count = 0;
    target.subprotocols = &wrong;
    target.subprotocols_count = 1;
    CHECK(taut_client_connect(clients, &target, &dial, detail()) == TAUT_ERR_VALUE && strstr(text, "token") != NULL);
    target.subprotocols_count = 0;
    /* A name that TLS cannot use ends the target, although it may be tried without end. */
    target.uri = good;
    target.server_name = "no name";
    CHECK(taut_client_connect(clients, &target, &dial, detail()) == TAUT_OK && dial == 2);
    wait_for(&own.ended, 2);
    CHECK(own.dial == 2 && own.cause == TAUT_CAUSE_TLS && own.retry == TAUT_NEVER);
    CHECK(taut_client_join(clients, 1, detail()) == TAUT_ERR_TIMEOUT);
    CHECK(taut_client_drain(clients, 1000, NULL, 0, PATIENCE) == TAUT_OK);
    CHECK(taut_client_join(clients, PATIENCE, detail()) == TAUT_OK && own.closed == 2);
    CHECK(taut_client_free(clients) == TAUT_OK && own.destroyed == 1 && taut_client_free(NULL) == TAUT_OK);
    wait_for(&seen.closed, 2);
    stop(&seen);
    taut_tls_config_release(server);
    taut_tls_config_release(client);
}

static taut_code on_chunk(void *user, taut_conn conn, const taut_message *piece) {
    struct seen *seen = user;
    (void)conn;
    pthread_mutex_lock(&lock);
    if (piece->flags & TAUT_FIRST) seen->len = 0;
    seen->len += piece->len;
    pthread_mutex_unlock(&lock);
    if (piece->flags & TAUT_LAST) tell(&seen->pieces);
    return TAUT_OK;
}

static void options_that_are_wrong_are_refused(void) {
    static struct seen seen;
    static const char *listen[] = {"127.0.0.1:0", "nowhere"};
    static uint8_t large[300000];
    taut_callbacks callbacks = server_callbacks(&seen);
    taut_server_options options;
    taut_server *server = NULL;
    taut_settings *settings = NULL;
    taut_message out = message(0, large, sizeof large);
    const taut_tls_config *client = client_config();
    taut_socket *socket;
    char address[64];
    callbacks.start = NULL;
    memset(&options, 0, sizeof options);
    CHECK(taut_server_start(NULL, &server, detail()) == TAUT_ERR_NULL);
    CHECK(taut_server_start(&options, &server, detail()) == TAUT_ERR_SIZE);
    options.size = sizeof options;
    CHECK(taut_server_start(&options, &server, detail()) == TAUT_ERR_NULL && seen.destroyed == 0);
    options.callbacks = &callbacks;
    CHECK(taut_server_start(&options, NULL, detail()) == TAUT_ERR_NULL && seen.destroyed == 1);
    CHECK(taut_server_start(&options, &server, detail()) == TAUT_ERR_CONFIG && strstr(text, "address") != NULL);
    options.listen = listen;
    options.listen_count = 2;
    CHECK(taut_server_start(&options, &server, detail()) == TAUT_ERR_VALUE && strstr(text, "nowhere") != NULL);
    options.listen_count = 1;
    options.driver = "tape";
    CHECK(taut_server_start(&options, &server, detail()) == TAUT_ERR_VALUE && strstr(text, "tape") != NULL);
    options.driver = NULL;
    options.tls = client;
    CHECK(taut_server_start(&options, &server, detail()) == TAUT_ERR_STATE && server == NULL && seen.destroyed == 5);
    taut_tls_config_release(client);
    /* The port of another program. */
    options.tls = NULL;
    CHECK(taut_settings_new(TAUT_PRESET_UNTRUSTED_INTERNET, &settings, detail()) == TAUT_OK);
    CHECK(taut_settings_set(settings, TAUT_SET_STREAMING, 1, detail()) == TAUT_OK);
    callbacks.chunk = on_chunk;
    options.settings = settings;
    CHECK(taut_server_start(&options, &running, detail()) == TAUT_OK);
    taut_settings_free(settings);
    options.settings = NULL;
    CHECK(taut_server_address(running, 0, address, sizeof address) == TAUT_OK);
    CHECK(taut_server_address(running, 1, address, sizeof address) == TAUT_ERR_VALUE);
    listen[0] = address;
    CHECK(taut_server_start(&options, &server, detail()) == TAUT_ERR_SYSTEM && strstr(text, "in use") != NULL);
    /* Pieces instead of messages. */
    socket = socket_to(at("ws", "/"), NULL);
    CHECK(taut_socket_send(socket, &out, detail()) == TAUT_OK);
    wait_for(&seen.pieces, 1);
    CHECK(seen.len == sizeof large && seen.messages == 0);
    CHECK(taut_socket_free(socket) == TAUT_OK);
    CHECK(taut_server_publish(NULL, NULL, 0, NULL) == TAUT_ERR_NULL && taut_server_free(NULL) == TAUT_OK);
    CHECK(taut_socket_free(NULL) == TAUT_OK && taut_socket_send(NULL, &out, detail()) == TAUT_ERR_NULL);
    CHECK(refusal("ws://127.0.0.1:1/", NULL) == TAUT_ERR_CONNECT);
    CHECK(refusal("wss://127.0.0.1:1/", NULL) == TAUT_ERR_VALUE && refusal("", NULL) == TAUT_ERR_VALUE);
    wait_for(&seen.closed, 1);
    CHECK(taut_server_free(running) == TAUT_OK && seen.destroyed == 7);
    running = NULL;
}

int main(int argc, char **argv) {
    arguments(argc, argv);
    callbacks_serve_blocking_clients();
    a_target_names_the_server_in_tls();
    requests_are_answered_at_once_or_later();
    certificates_are_replaced_and_a_drain_ends();
    a_callback_tells_of_dropped_messages();
    a_callback_that_does_not_return_holds_up_its_loop_alone();
    clients_connect_and_reconnect();
    options_that_are_wrong_are_refused();
    puts("passed");
    return 0;
}
