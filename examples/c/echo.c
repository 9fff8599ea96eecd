/* A TLS echo server and a TLS client over poll(2), by tautline.h.
 *
 *   cc -o echo examples/c/echo.c $(pkg-config --cflags --libs tautline)
 *   ./echo server 8443 cert.pem key.pem
 *   ./echo client localhost 8443 ca.pem 'hello'
 *
 * The server reads from a connection only while nothing waits to be sent on it. So its two buffers are always large
 * enough, and a peer that does not read cannot make it hold more. */
#define _POSIX_C_SOURCE 200112L

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tautline.h"

/* The input holds at least one whole record, and the output what answers a full input. */
#define IN_SIZE 32768
#define OUT_SIZE 65536
#define MOST 64

struct conn {
    int fd;
    taut_tls *tls;
    int is_open;   /* the handshake is complete */
    int is_closed; /* the peer has closed */
    size_t in_len, out_len;
    uint8_t in[IN_SIZE], out[OUT_SIZE];
};

/* Called with plaintext. Answers by seal(). Returns 0 to end the connection. */
typedef int (*on_data)(struct conn *conn, const uint8_t *data, size_t len);

static void die(const char *what, const char *why) {
    fprintf(stderr, "%s: %s\n", what, why);
    exit(1);
}

/* Prints the error that ended a session. */
static void explain(struct conn *conn, taut_code code) {
    char text[256] = "";
    taut_error error;
    memset(&error, 0, sizeof error);
    error.size = sizeof error;
    error.text = text;
    error.room = sizeof text;
    taut_tls_error(conn->tls, &error);
    fprintf(stderr, "%s: %s (alert %d)\n", taut_code_text(code), text, (int)error.alert);
}

/* Seals data behind the output that waits. */
static int seal(struct conn *conn, const uint8_t *data, size_t len) {
    taut_slice slice;
    taut_tls_io io;
    slice.data = data;
    slice.len = len;
    memset(&io, 0, sizeof io);
    io.size = sizeof io;
    io.data = &slice;
    io.data_count = 1;
    io.out.data = conn->out + conn->out_len;
    io.out.len = OUT_SIZE - conn->out_len;
    taut_code code = taut_tls_seal(conn->tls, &io);
    conn->out_len += io.written;
    if (code != TAUT_OK) explain(conn, code);
    return code == TAUT_OK && io.taken == len;
}

/* Uses the input: the handshake first, then records, opened in place. Returns 0 to end the connection. */
static int process(struct conn *conn, on_data answer) {
    size_t used = 0;
    int goes_on = 1;
    while (goes_on && !conn->is_closed) {
        taut_tls_io io;
        memset(&io, 0, sizeof io);
        io.size = sizeof io;
        io.in.data = conn->in + used;
        io.in.len = conn->in_len - used;
        io.plain = io.in;
        io.out.data = conn->out + conn->out_len;
        io.out.len = OUT_SIZE - conn->out_len;
        taut_code code = conn->is_open ? taut_tls_open(conn->tls, &io) : taut_tls_handshake(conn->tls, &io);
        conn->out_len += io.written; /* also after an error: the alert */
        if (code != TAUT_OK) {
            explain(conn, code);
            return 0;
        }
        used += io.taken;
        if (!conn->is_open) {
            conn->is_open = io.want == TAUT_WANT_NONE;
            if (conn->is_open) goes_on = answer(conn, NULL, 0);
        } else if (io.plain_len > 0) {
            goes_on = answer(conn, io.plain.data + io.plain_offset, io.plain_len);
        }
        conn->is_closed = io.want == TAUT_WANT_CLOSED;
        if (io.want == TAUT_WANT_READ) break;
    }
    memmove(conn->in, conn->in + used, conn->in_len - used);
    conn->in_len -= used;
    if (conn->is_closed) {
        taut_tls_io io;
        memset(&io, 0, sizeof io);
        io.size = sizeof io;
        io.out.data = conn->out + conn->out_len;
        io.out.len = OUT_SIZE - conn->out_len;
        taut_tls_close(conn->tls, &io);
        conn->out_len += io.written;
    }
    return goes_on;
}

/* Sends what waits. Returns 0 if the connection is broken. */
static int flush(struct conn *conn) {
    ssize_t sent = conn->out_len > 0 ? send(conn->fd, conn->out, conn->out_len, 0) : 0;
    if (sent < 0) return errno == EAGAIN || errno == EINTR;
    memmove(conn->out, conn->out + sent, conn->out_len - (size_t)sent);
    conn->out_len -= (size_t)sent;
    return 1;
}

/* One turn of a connection that is ready. Returns 0 when it is over. */
static int turn(struct conn *conn, on_data answer) {
    if (conn->out_len == 0 && !conn->is_closed) {
        ssize_t got = recv(conn->fd, conn->in + conn->in_len, IN_SIZE - conn->in_len, 0);
        if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) return 0;
        if (got > 0) {
            conn->in_len += (size_t)got;
            if (!process(conn, answer)) {
                flush(conn);
                return 0;
            }
        }
    }
    return flush(conn) && !(conn->is_closed && conn->out_len == 0);
}

static void check(const char *what, taut_code code, const taut_error *error) {
    if (code != TAUT_OK) die(what, error->text);
}

static taut_tls_config *configure(uint32_t role, const char *first, const char *second) {
    static char text[256];
    const taut_tls_config *config = NULL;
    taut_error error;
    memset(&error, 0, sizeof error);
    error.size = sizeof error;
    error.text = text;
    error.room = sizeof text;
    check("configuration", taut_tls_config_new(role, NULL, &config, &error), &error);
    if (role == TAUT_SERVER) {
        check("certificate", taut_tls_config_certificate_files(config, first, second, &error), &error);
    } else {
        check("roots", taut_tls_config_roots_file(config, first, &error), &error);
    }
    check("configuration", taut_tls_config_apply(config, &error), &error);
    return (taut_tls_config *)config;
}

static struct conn *conn_new(int fd, const taut_tls_config *config, const char *host) {
    struct conn *conn = calloc(1, sizeof *conn);
    if (conn == NULL || taut_tls_new(config, host, &conn->tls, NULL) != TAUT_OK) die("session", "cannot be made");
    conn->fd = fd;
    return conn;
}

static void conn_free(struct conn *conn) {
    taut_tls_free(conn->tls);
    close(conn->fd);
    free(conn);
}

static int echo(struct conn *conn, const uint8_t *data, size_t len) {
    return len == 0 || seal(conn, data, len);
}

static void serve(const char *port, const taut_tls_config *config) {
    struct addrinfo hints, *found;
    struct sockaddr_in own;
    socklen_t own_len = sizeof own;
    struct pollfd polls[MOST + 1];
    struct conn *conns[MOST];
    size_t count = 0, i;
    int listener, on = 1;
    memset(&hints, 0, sizeof hints);
    hints.ai_family = AF_INET;
    hints.ai_socktype = SOCK_STREAM;
    if (getaddrinfo("127.0.0.1", port, &hints, &found) != 0) die(port, "no address");
    listener = socket(found->ai_family, SOCK_STREAM, 0);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(listener, found->ai_addr, found->ai_addrlen) < 0 || listen(listener, 16) < 0) die(port, strerror(errno));
    freeaddrinfo(found);
    /* Port 0 is any free one. */
    if (getsockname(listener, (struct sockaddr *)&own, &own_len) < 0) die(port, strerror(errno));
    printf("listening on port %u\n", (unsigned)ntohs(own.sin_port));
    fflush(stdout);
    for (;;) {
        for (i = 0; i < count; i++) {
            polls[i].fd = conns[i]->fd;
            polls[i].events = conns[i]->out_len > 0 ? POLLOUT : POLLIN;
        }
        polls[count].fd = count < MOST ? listener : -1;
        polls[count].events = POLLIN;
        if (poll(polls, (nfds_t)count + 1, -1) < 0) continue;
        if (polls[count].revents & POLLIN) {
            int fd = accept(listener, NULL, NULL);
            if (fd >= 0) conns[count++] = conn_new(fd, config, NULL);
            continue;
        }
        for (i = count; i-- > 0;) {
            if (polls[i].revents != 0 && !turn(conns[i], echo)) {
                conn_free(conns[i]);
                conns[i] = conns[--count];
            }
        }
    }
}

static const char *question;
static size_t expected;

/* Sends the question, prints answers, and ends after as many bytes as were sent. With 0 it waits for the peer's end. */
static int ask(struct conn *conn, const uint8_t *data, size_t len) {
    if (data == NULL) return seal(conn, (const uint8_t *)question, strlen(question));
    fwrite(data, 1, len, stdout);
    if (expected == 0) return 1;
    expected = len < expected ? expected - len : 0;
    return expected > 0;
}

static int talk(const char *host, const char *port, const taut_tls_config *config) {
    struct addrinfo hints, *found;
    struct conn *conn;
    int fd, goes_on;
    memset(&hints, 0, sizeof hints);
    hints.ai_family = AF_INET;
    hints.ai_socktype = SOCK_STREAM;
    if (getaddrinfo(host, port, &hints, &found) != 0) die(host, "no address");
    fd = socket(found->ai_family, SOCK_STREAM, 0);
    if (connect(fd, found->ai_addr, found->ai_addrlen) < 0) die(host, strerror(errno));
    freeaddrinfo(found);
    conn = conn_new(fd, config, host);
    goes_on = process(conn, ask); /* a client speaks first */
    while (goes_on) {
        struct pollfd one;
        one.fd = fd;
        one.events = conn->out_len > 0 ? POLLOUT : POLLIN;
        goes_on = poll(&one, 1, 60000) > 0 && turn(conn, ask);
    }
    goes_on = conn->is_open;
    conn_free(conn);
    return goes_on ? 0 : 1;
}

int main(int argc, char **argv) {
    signal(SIGPIPE, SIG_IGN);
    if (argc == 5 && strcmp(argv[1], "server") == 0) {
        serve(argv[2], configure(TAUT_SERVER, argv[3], argv[4]));
    }
    if (argc == 6 && strcmp(argv[1], "client") == 0) {
        taut_tls_config *config = configure(TAUT_CLIENT, argv[4], NULL);
        int status;
        question = argv[5];
        /* A request is answered by a peer that closes; anything else is echoed. */
        expected = strncmp(question, "GET ", 4) == 0 ? 0 : strlen(question);
        status = talk(argv[2], argv[3], config);
        taut_tls_config_release(config);
        return status;
    }
    fprintf(stderr, "usage: echo server PORT CERT KEY | echo client HOST PORT CA TEXT\n");
    return 2;
}
