/* A client of a feed: it subscribes by a message, prints what comes, and connects again whenever the connection ends.
 *
 * usage: ws_feed URI CA.pem HELLO [COUNT]      after COUNT messages it ends */
#define _POSIX_C_SOURCE 200112L

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tautline.h"

struct feed {
    const char *hello;
    long left;
    int is_done;
    pthread_mutex_t lock;
    pthread_cond_t done;
};

static void need(taut_code code, const taut_error *error) {
    if (code != TAUT_OK) {
        fprintf(stderr, "%s\n", error->text);
        exit(1);
    }
}

static taut_code on_open(void *user, taut_conn conn, const taut_opening *opening) {
    struct feed *feed = user;
    taut_message hello = {sizeof hello, TAUT_TEXT, NULL, 0, 0};
    (void)opening;
    hello.data = (const uint8_t *)feed->hello;
    hello.len = strlen(feed->hello);
    return taut_conn_send(conn, &hello);
}

static taut_code on_message(void *user, taut_conn conn, const taut_message *message) {
    struct feed *feed = user;
    (void)conn;
    printf("%.*s\n", (int)message->len, (const char *)message->data);
    fflush(stdout);
    if (feed->left > 0 && --feed->left == 0) {
        pthread_mutex_lock(&feed->lock);
        feed->is_done = 1;
        pthread_cond_signal(&feed->done);
        pthread_mutex_unlock(&feed->lock);
    }
    return TAUT_OK;
}

static taut_code on_close(void *user, taut_conn conn, const taut_closed *closed) {
    (void)user;
    (void)conn;
    fprintf(stderr, "closed: %.*s (%u)\n", (int)closed->text.len, (const char *)closed->text.data, (unsigned)closed->code);
    return TAUT_OK;
}

static taut_code on_connect_failed(void *user, uint64_t dial, const taut_closed *closed, uint64_t retry_ms) {
    (void)user;
    (void)dial;
    fprintf(stderr, "%.*s; again in %lu ms\n", (int)closed->text.len, (const char *)closed->text.data,
            (unsigned long)retry_ms);
    return TAUT_OK;
}

int main(int argc, char **argv) {
    static char text[256];
    taut_error error = {sizeof error, text, sizeof text, 0, 0, 0};
    struct feed feed = {NULL, 0, 0, PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER};
    const taut_tls_config *tls = NULL;
    taut_client *client = NULL;
    taut_callbacks callbacks;
    taut_client_options options;
    taut_target target;
    if (argc < 4) {
        fprintf(stderr, "usage: ws_feed URI CA.pem HELLO [COUNT]\n");
        return 2;
    }
    feed.hello = argv[3];
    feed.left = argc > 4 ? atol(argv[4]) : 0;
    need(taut_tls_config_new(TAUT_CLIENT, NULL, &tls, &error), &error);
    need(taut_tls_config_roots_file(tls, argv[2], &error), &error);
    need(taut_tls_config_apply(tls, &error), &error);
    memset(&callbacks, 0, sizeof callbacks);
    callbacks.size = sizeof callbacks;
    callbacks.user = &feed;
    callbacks.open = on_open;
    callbacks.message = on_message;
    callbacks.close = on_close;
    callbacks.connect_failed = on_connect_failed;
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.tls = tls;
    options.callbacks = &callbacks;
    need(taut_client_start(&options, &client, &error), &error);
    memset(&target, 0, sizeof target);
    target.size = sizeof target;
    target.uri = argv[1];
    target.reconnect_longest_ms = 5000;
    need(taut_client_connect(client, &target, NULL, &error), &error);
    pthread_mutex_lock(&feed.lock);
    while (!feed.is_done) pthread_cond_wait(&feed.done, &feed.lock);
    pthread_mutex_unlock(&feed.lock);
    taut_client_drain(client, 1000, NULL, 0, 2000);
    need(taut_client_join(client, TAUT_NEVER, &error), &error);
    taut_client_free(client);
    taut_tls_config_release(tls);
    return 0;
}
