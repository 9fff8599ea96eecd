/* A blocking client: sends a text, waits for the answer, and closes.
 *
 * usage: ws_ask URI CA.pem TEXT */
#include <stdio.h>
#include <string.h>

#include "tautline.h"

static int fail(const taut_error *error) {
    fprintf(stderr, "%s\n", error->text);
    return 1;
}

int main(int argc, char **argv) {
    static char text[256];
    taut_error error = {sizeof error, text, sizeof text, 0, 0, 0};
    const taut_tls_config *tls = NULL;
    taut_socket *socket = NULL;
    taut_target target;
    taut_message message = {sizeof message, TAUT_TEXT, NULL, 0, 0};
    int status = 0;
    if (argc != 4) {
        fprintf(stderr, "usage: ws_ask URI CA.pem TEXT\n");
        return 2;
    }
    if (taut_tls_config_new(TAUT_CLIENT, NULL, &tls, &error) != TAUT_OK ||
        taut_tls_config_roots_file(tls, argv[2], &error) != TAUT_OK || taut_tls_config_apply(tls, &error) != TAUT_OK) {
        return fail(&error);
    }
    memset(&target, 0, sizeof target);
    target.size = sizeof target;
    target.uri = argv[1];
    message.data = (const uint8_t *)argv[3];
    message.len = strlen(argv[3]);
    if (taut_socket_connect(tls, &target, NULL, 60000, &socket, &error) != TAUT_OK) return fail(&error);
    if (taut_socket_send(socket, &message, &error) != TAUT_OK ||
        taut_socket_receive(socket, 60000, &message, &error) != TAUT_OK) {
        status = fail(&error);
    } else {
        printf("%.*s\n", (int)message.len, (const char *)message.data);
        if (taut_socket_close(socket, 1000, NULL, 0, &error) != TAUT_OK) status = fail(&error);
    }
    taut_socket_free(socket);
    taut_tls_config_release(tls);
    return status;
}
