/* A WebSocket server that returns every message, over TLS.
 *
 * usage: ws_echo ADDRESS CERT.pem KEY.pem      such as 127.0.0.1:8443; it has one loop for each CPU
 *
 * SIGINT or SIGTERM drains it: connections are closed with 1001, and it ends. SIGHUP loads the files anew. */
#define _POSIX_C_SOURCE 200112L

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tautline.h"

static char text[256];
static taut_error error = {sizeof(taut_error), text, sizeof text, 0, 0, 0};

static void need(taut_code code, const char *what) {
    if (code != TAUT_OK) {
        fprintf(stderr, "%s: %s\n", what, text[0] != 0 ? text : taut_code_text(code));
        exit(1);
    }
}

/* The bytes lie where they were decrypted. They are framed and encrypted straight into the send buffer. */
static taut_code on_message(void *user, taut_conn conn, const taut_message *message) {
    taut_code code = taut_conn_send(conn, message);
    (void)user;
    /* A client that does not read is closed by the settings, and one that has left needs no answer. */
    return code == TAUT_ERR_FULL || code == TAUT_ERR_CLOSED ? TAUT_OK : code;
}

static taut_code load(const taut_tls_config *tls, char **files) {
    taut_code code = taut_tls_config_reset(tls, &error);
    if (code == TAUT_OK) code = taut_tls_config_certificate_files(tls, files[0], files[1], &error);
    return code == TAUT_OK ? taut_tls_config_apply(tls, &error) : code;
}

int main(int argc, char **argv) {
    const taut_tls_config *tls = NULL;
    taut_settings *settings = NULL;
    taut_server *server = NULL;
    taut_callbacks callbacks;
    taut_server_options options;
    char address[64];
    sigset_t signals;
    int signal = 0;
    if (argc != 4) {
        fprintf(stderr, "usage: ws_echo ADDRESS CERT.pem KEY.pem\n");
        return 2;
    }
    /* Blocked before the loops start, so that this thread alone takes them. */
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &signals, NULL);

    need(taut_tls_config_new(TAUT_SERVER, NULL, &tls, &error), "TLS");
    need(load(tls, argv + 2), "TLS");
    need(taut_settings_new(TAUT_PRESET_UNTRUSTED_INTERNET, &settings, &error), "settings");
    need(taut_settings_set(settings, TAUT_SET_MAX_MESSAGE, 16 << 20, &error), "settings");
    need(taut_settings_set(settings, TAUT_SET_SLOW_LIMIT, 32 << 20, &error), "settings");
    memset(&callbacks, 0, sizeof callbacks);
    callbacks.size = sizeof callbacks;
    callbacks.message = on_message;
    memset(&options, 0, sizeof options);
    options.size = sizeof options;
    options.tls = tls;
    options.settings = settings;
    options.listen = (const char *const *)&argv[1];
    options.listen_count = 1;
    options.loops = TAUT_ALL_CPUS;
    options.callbacks = &callbacks;
    need(taut_server_start(&options, &server, &error), "start");
    need(taut_server_address(server, 0, address, sizeof address), "address");
    printf("listening on wss://%s\n", address);
    fflush(stdout);
    while (sigwait(&signals, &signal) == 0 && signal == SIGHUP) {
        /* After an error, the old certificate stays in use. */
        taut_code code = load(tls, argv + 2);
        if (code == TAUT_OK) code = taut_server_reload(server, tls, &error);
        printf("%s\n", code == TAUT_OK ? "reloaded" : text);
        fflush(stdout);
    }
    taut_server_drain(server, 1001, (const uint8_t *)"the server stops", 16, 5000);
    need(taut_server_join(server, TAUT_NEVER, &error), "end");
    taut_server_free(server);
    taut_settings_free(settings);
    taut_tls_config_release(tls);
    return 0;
}
