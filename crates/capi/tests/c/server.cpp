// The header for C++17: owners, views, and callbacks that throw. It prints "passed" at the end.
#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <future>
#include <iterator>
#include <map>
#include <mutex>
#include <thread>

#include "tautline.hpp"

namespace {

using namespace std::chrono_literals;
using tautline::Conn, tautline::Message, tautline::Target, tautline::View;

constexpr auto patience = 60s;

#define CHECK(condition)                                                            \
    do {                                                                            \
        if (!(condition)) {                                                         \
            std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);    \
            std::exit(1);                                                           \
        }                                                                           \
    } while (0)

// Counts that threads wait for.
class Counts {
public:
    void add(const std::string &name) {
        const std::lock_guard lock(mutex_);
        counts_[name]++;
        news_.notify_all();
    }
    void wait(const std::string &name, int least) {
        std::unique_lock lock(mutex_);
        CHECK(news_.wait_for(lock, patience, [&] { return counts_[name] >= least; }));
    }

private:
    std::mutex mutex_;
    std::condition_variable news_;
    std::map<std::string, int> counts_;
};

struct Echo : tautline::Handler {
    Counts counts;
    std::vector<std::thread> threads;

    ~Echo() override {
        for (auto &thread : threads) thread.join();
    }
    void on_request(const tautline::Request &request) override {
        if (request.head().target() == "/throws") throw std::runtime_error("on purpose");
        if (request.head().target() == "/refused") return request.respond(403, "no", {{"x-why", "test"}});
        if (request.head().target() == "/later") {
            auto ticket = std::make_shared<tautline::Ticket>(request.later());
            threads.emplace_back([ticket] { CHECK(ticket->is_wanted() && ticket->upgrade() == TAUT_OK); });
        }
        CHECK(request.head().header("host") && !request.head().header("x-none"));
    }
    void on_open(Conn conn, const taut_opening &) override { CHECK(conn.subscribe("news") == TAUT_OK); }
    void on_message(Conn conn, const Message &message) override {
        if (message.data.text() == "throw") throw 42;
        if (message.data.text() == "timer") CHECK(conn.set_timer(1ms, 5) == TAUT_OK);
        CHECK(conn.send(message) == TAUT_OK);
    }
    void on_timer(Conn conn, std::uint64_t id) override { CHECK(id == 5 && conn.text("ring") == TAUT_OK); }
    void on_close(Conn, const taut_closed &closed) override {
        counts.add(closed.cause == TAUT_CAUSE_CALLBACK ? "failed" : "closed");
    }
};

struct Feed : tautline::Handler {
    Counts counts;
    void on_open(Conn conn, const taut_opening &opening) override {
        CHECK(tautline::Head(opening.response).status() == 101 && conn.text("hello") == TAUT_OK);
    }
    void on_message(Conn, const Message &message) override { counts.add(std::string(message.data.text())); }
    void on_connect_failed(std::uint64_t, const taut_closed &closed, std::uint64_t retry) override {
        CHECK(closed.response != nullptr && closed.response->status == 403 && retry == TAUT_NEVER);
        counts.add("refused");
    }
    void on_dial_end(std::uint64_t) override { counts.add("ended"); }
};

template <typename Call>
taut_code thrown(Call &&call) {
    try {
        call();
    } catch (const tautline::Error &error) {
        CHECK(error.what()[0] != 0);
        return error.code();
    }
    return TAUT_OK;
}

void servers_and_clients(const tautline::TlsConfig &accepting, const tautline::TlsConfig &connecting) {
    Echo echo;
    Feed feed;
    tautline::Server server(echo, {{"127.0.0.1:0"}, accepting});
    const auto address = server.address();
    const auto uri = "wss://localhost" + address.substr(address.find(':'));
    tautline::Socket socket(Target{uri + "/later"}, connecting, patience);
    socket.text("hello");
    const auto answer = socket.receive(patience);
    CHECK(answer && answer->is_text() && answer->data.text() == "hello" && !socket.receive(1ms));
    socket.text("timer");
    CHECK(socket.receive(patience)->data.text() == "timer" && socket.receive(patience)->data.text() == "ring");
    CHECK(server.publish("news", Message::text("all")) == TAUT_OK && socket.receive(patience)->data.text() == "all");
    server.reload(accepting);
    // Exceptions of callbacks end the one connection.
    CHECK(thrown([&] { tautline::Socket(Target{uri + "/throws"}, connecting, patience); }) == TAUT_ERR_CONNECT);
    {
        tautline::Socket other(Target{uri}, connecting, patience);
        other.text("throw");
        CHECK(thrown([&] { other.receive(patience); }) == TAUT_ERR_CLOSED && other.closed()->code == 1011);
    }
    {
        // The certificate has the name, and not the address.
        Target named{"wss://" + address};
        CHECK(thrown([&] { tautline::Socket(named, connecting, patience); }) == TAUT_ERR_CONNECT);
        named.server_name = "localhost";
        tautline::Socket other(named, connecting, patience);
        other.text("by name");
        CHECK(other.receive(patience)->data.text() == "by name");
    }
    echo.counts.wait("failed", 1);
    CHECK(server.counter("callbacks_failed") == 2);
    CHECK(thrown([&] { server.counter("nonsense"); }) == TAUT_ERR_VALUE);
    {
        tautline::Client client(feed, connecting);
        const auto dial = client.connect(Target{uri, {}, {}, {}, {{"x-token", "1"}}});
        feed.counts.wait("hello", 1);
        CHECK(client.disconnect(dial) == TAUT_OK);
        feed.counts.wait("ended", 1);
        client.connect(Target{uri + "/refused"});
        feed.counts.wait("refused", 1);
        CHECK(thrown([&] { client.connect(Target{"nonsense"}); }) == TAUT_ERR_VALUE);
    }
    socket.close(1000, "done");
    echo.counts.wait("closed", 3);
    CHECK(!server.join(1ms));
    server.drain(1001, "", 1s);
    CHECK(server.join(patience));
    CHECK(thrown([&] { tautline::Server(echo, {{"nowhere"}}); }) == TAUT_ERR_VALUE);
    CHECK(thrown([&] { tautline::TlsConfig::client().roots_file("/no/such/file"); }) == TAUT_ERR_CONFIG);
}

// The program decides about certificates; a decision that throws fails the one handshake.
void decisions(const tautline::TlsConfig &accepting, const char *roots) {
    Echo echo;
    tautline::Server server(echo, {{"127.0.0.1:0"}, accepting});
    const auto uri = "wss://localhost" + server.address().substr(server.address().find(':'));
    auto connecting = tautline::TlsConfig::client();
    std::string host;
    bool accepts = true;
    // A session that is resumed shows no certificates.
    connecting.set(TAUT_OPTION_RESUMPTION, 0).roots_file(roots).verify([&](const taut_tls_peer &peer) {
        host = tautline::View(peer.host).text();
        return accepts && peer.accepted == 1;
    });
    connecting.apply();
    tautline::Socket socket(Target{uri}, connecting, patience);
    socket.text("hello");
    CHECK(socket.receive(patience)->data.text() == "hello" && host == "localhost");
    accepts = false;
    CHECK(thrown([&] { tautline::Socket(Target{uri}, connecting, patience); }) == TAUT_ERR_CONNECT);
    connecting.verify([](const taut_tls_peer &) -> bool { throw 42; }).apply();
    CHECK(thrown([&] { tautline::Socket(Target{uri}, connecting, patience); }) == TAUT_ERR_CONNECT);
    socket.text("still here");
    CHECK(socket.receive(patience)->data.text() == "still here");
}

std::string content(const char *path) {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
}

std::string protocol(tautline::Socket &socket) {
    taut_tls_facts facts{};
    facts.size = sizeof facts;
    CHECK(taut_socket_get_facts(socket.get(), &facts) == TAUT_OK);
    return {reinterpret_cast<const char *>(facts.alpn), facts.alpn_len};
}

// Clients show certificates, both ends name their protocols, and hosts share a secret for tickets.
void identities(const char *roots, const char *chain, const char *key) {
    Echo echo;
    const std::string secret(32, 's');
    auto accepting = tautline::TlsConfig::server();
    accepting.certificate(content(chain), content(key)).client_auth(TAUT_CLIENT_AUTH_REQUIRED, content(roots));
    accepting.alpn({"http/1.1"}).ticket_secret(secret, 1h).apply();
    tautline::Server server(echo, {{"127.0.0.1:0"}, accepting});
    const auto uri = "wss://localhost" + server.address().substr(server.address().find(':'));
    auto connecting = tautline::TlsConfig::client();
    connecting.roots(content(roots)).alpn({"h2", "http/1.1"}).apply();
    CHECK(thrown([&] { tautline::Socket(Target{uri}, connecting, patience); }) == TAUT_ERR_CONNECT);
    connecting.certificate(content(chain), content(key)).apply();
    tautline::Socket socket(Target{uri}, connecting, patience);
    CHECK(protocol(socket) == "http/1.1");
    auto careless = tautline::TlsConfig::client();
    careless.danger_no_roots().certificate(content(chain), content(key)).apply();
    tautline::Socket other(Target{uri}, careless, patience);
    other.text("hello");
    CHECK(other.receive(patience)->data.text() == "hello");
    CHECK(thrown([&] { accepting.ticket_secret("short", 1h).apply(); }) == TAUT_ERR_CONFIG);
    CHECK(thrown([&] { accepting.client_auth(3, {}).apply(); }) == TAUT_ERR_VALUE);
}

// Moves the output of one end to the other.
void carry(tautline::Ws &from, tautline::Ws &to) {
    for (auto output = from.output(); !output.empty(); output = from.output()) {
        const auto window = to.window();
        const auto len = std::min(output.size(), window.len);
        std::memcpy(window.data, output.data(), len);
        to.filled(len, 0);
        from.written(len);
    }
}

void without_io(const tautline::TlsConfig &accepting, const tautline::TlsConfig &connecting) {
    tautline::Settings settings;
    settings.set(TAUT_SET_MAX_MESSAGE, 100).subprotocols({"v1", "v2"}).origins({"*"});
    settings.origins({"https://app.example", "https://*.example.org", "null"});
    for (const auto *wrong : {"app.example", "https://app.example/path", "https://a.*.example", "a,b"})
        CHECK(thrown([&] { settings.origins({wrong}); }) == TAUT_ERR_VALUE);
    auto server = tautline::Ws::server(accepting, 0, &settings);
    auto client = tautline::Ws::client(connecting, Target{"wss://localhost/", {}, {}, {}, {}, {"v2"}}, 0);
    taut_ws_event event{};
    while ((event = server.next()).kind != TAUT_EVENT_REQUEST) {
        carry(client, server);
        carry(server, client);
        client.next();
    }
    server.upgrade({{"x-test", "1"}});
    CHECK(server.next().kind == TAUT_EVENT_OPEN);
    carry(server, client);
    event = client.next();
    CHECK(event.kind == TAUT_EVENT_OPEN && View(event.opening->subprotocol).text() == "v2");
    CHECK(tautline::Head(event.opening->response).header("x-test") == "1");
    CHECK(client.send(Message::binary(std::string(101, 'x'))) == TAUT_OK);
    carry(client, server);
    event = server.next();
    CHECK(event.kind == TAUT_EVENT_CLOSED && event.closed->cause == TAUT_CAUSE_PROTOCOL);
    CHECK(server.close(1000, "", 0) == TAUT_ERR_CLOSED);
    CHECK(thrown([&] { client.written(1000000); }) == TAUT_ERR_SIZE);
}

struct Held : tautline::Handler {
    Counts counts;
    std::promise<void> go;
    void on_message(Conn, const Message &) override {
        counts.add("held");
        CHECK(go.get_future().wait_for(patience) == std::future_status::ready);
    }
};

void bad_use() {
    Held held;
    tautline::Server server(held, {{"127.0.0.1:0"}});
    tautline::Socket socket(Target{"ws://" + server.address()}, {}, patience);
    socket.text("hold");
    held.counts.wait("held", 1);
    // A callback that does not return holds up its loop, and no call of another thread.
    CHECK(server.publish("news", Message::text("all")) == TAUT_OK && !socket.receive(1ms));
    server.drain(1001, "", 1ms);
    CHECK(!server.join(10ms));
    // An owner that was moved from has nothing.
    tautline::Server owner(std::move(server));
    CHECK(thrown([&] { server.address(); }) == TAUT_ERR_NULL);
    CHECK(server.broadcast(Message::text("all")) == TAUT_ERR_NULL);
    held.go.set_value();
    CHECK(owner.join(patience) && owner.broadcast(Message::text("late")) == TAUT_ERR_CLOSED);
    CHECK(thrown([&] { socket.receive(patience); }) == TAUT_ERR_CLOSED);
    CHECK(thrown([&] { socket.text("late"); }) == TAUT_ERR_CLOSED);
    // A second thread is refused, and the connection goes on.
    auto ws = tautline::Ws::client({}, Target{"ws://localhost/"}, 0);
    std::vector<std::thread> threads;
    for (int thread = 0; thread < 2; thread++) {
        threads.emplace_back([&ws] {
            for (int call = 0; call < 20000; call++) {
                const auto code = thrown([&ws] { ws.output(); });
                CHECK(code == TAUT_OK || code == TAUT_ERR_BUSY);
            }
        });
    }
    for (auto &thread : threads) thread.join();
    CHECK(!ws.output().empty());
}

}  // namespace

int main(int argc, char **argv) {
    CHECK(argc == 4);
    auto accepting = tautline::TlsConfig::server();
    accepting.certificate_files(argv[2], argv[3]).apply();
    auto connecting = tautline::TlsConfig::client("rustls");
    connecting.roots_file(argv[1]).apply();
    servers_and_clients(accepting, connecting);
    decisions(accepting, argv[1]);
    identities(argv[1], argv[2], argv[3]);
    without_io(accepting, connecting);
    bad_use();
    std::puts("passed");
    return 0;
}
