// The interface from C++17: handles in unique_ptr, containers as windows, sessions that move between threads.
//
// Arguments: the authority's certificate, the server's chain and its key, all in PEM. It prints "passed" at the end.
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tautline.h"

namespace {

struct Release {
    void operator()(const taut_tls_config *config) const { taut_tls_config_release(config); }
    void operator()(taut_tls *tls) const { taut_tls_free(tls); }
};

using Config = std::unique_ptr<const taut_tls_config, Release>;
using Session = std::unique_ptr<taut_tls, Release>;
using Bytes = std::vector<std::uint8_t>;

void check(taut_code code) {
    if (code != TAUT_OK) throw std::runtime_error(taut_code_text(code));
}

Config config(std::uint32_t role, const char *first, const char *second) {
    const taut_tls_config *made = nullptr;
    check(taut_tls_config_new(role, nullptr, &made, nullptr));
    Config config(made);
    check(second != nullptr ? taut_tls_config_certificate_files(made, first, second, nullptr)
                            : taut_tls_config_roots_file(made, first, nullptr));
    check(taut_tls_config_apply(made, nullptr));
    return config;
}

Session session(const Config &config, const char *host) {
    taut_tls *tls = nullptr;
    check(taut_tls_new(config.get(), host, &tls, nullptr));
    return Session(tls);
}

struct End {
    Session tls;
    Bytes in;
    bool open = false;

    // Takes what has come, and returns bytes for the peer.
    Bytes work(std::string &received) {
        Bytes out(65536);
        std::size_t written = 0;
        for (;;) {
            taut_tls_io io{};
            io.size = sizeof io;
            io.in = io.plain = {in.data(), in.size()};
            io.out = {out.data() + written, out.size() - written};
            check(open ? taut_tls_open(tls.get(), &io) : taut_tls_handshake(tls.get(), &io));
            if (open && io.plain_len > 0) {
                received.append(reinterpret_cast<const char *>(in.data()) + io.plain_offset, io.plain_len);
            }
            in.erase(in.begin(), in.begin() + static_cast<std::ptrdiff_t>(io.taken));
            written += io.written;
            if (io.want == TAUT_WANT_READ) break;
            open = true;
        }
        out.resize(written);
        return out;
    }

    Bytes seal(const std::string &head, const std::string &body) {
        Bytes out(head.size() + body.size() + 64);
        const auto bytes = [](const std::string &text) {
            return taut_slice{reinterpret_cast<const std::uint8_t *>(text.data()), text.size()};
        };
        const taut_slice slices[] = {bytes(head), bytes(body)};
        taut_tls_io io{};
        io.size = sizeof io;
        io.data = slices;
        io.data_count = 2;
        io.out = {out.data(), out.size()};
        check(taut_tls_seal(tls.get(), &io));
        out.resize(io.written);
        return out;
    }
};

void append(Bytes &to, const Bytes &from) { to.insert(to.end(), from.begin(), from.end()); }

}  // namespace

int main(int argc, char **argv) try {
    if (argc != 4) return 2;
    End server{session(config(TAUT_SERVER, argv[2], argv[3]), nullptr), {}};
    End client{session(config(TAUT_CLIENT, argv[1], nullptr), "localhost"), {}};
    std::string at_server, at_client;
    for (int turn = 0; turn < 4; turn++) {
        append(server.in, client.work(at_client));
        append(client.in, server.work(at_server));
    }
    // Another thread may use the sessions now.
    std::thread([&] {
        append(server.in, client.seal("GET / ", "HTTP/1.1"));
        server.work(at_server);
        append(client.in, server.seal("HTTP/1.1 ", "200 OK"));
        client.work(at_client);
    }).join();
    if (at_server != "GET / HTTP/1.1" || at_client != "HTTP/1.1 200 OK") return 1;
    std::puts("passed");
    return 0;
} catch (const std::exception &error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
}
