// Tautline for C++17: owners for the handles of tautline.h, views for its bytes, and callbacks as virtual functions.
//
// Calls that fail throw `tautline::Error`, except those on a `Conn`, which return the code: a peer that is gone or slow is
// nothing exceptional. No exception leaves a callback: one that is thrown there has its connection closed with 1011.
//
// The rules of tautline.h about threads hold here too. Licensed under MIT or Apache-2.0, at your choice.
#ifndef TAUTLINE_HPP
#define TAUTLINE_HPP

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "tautline.h"

namespace tautline {

// Bytes of somebody else, as std::span<const std::uint8_t> of C++20 has them.
class View {
public:
    constexpr View() noexcept = default;
    constexpr View(const std::uint8_t *data, std::size_t size) noexcept : data_(data), size_(size) {}
    constexpr View(taut_slice slice) noexcept : View(slice.data, slice.len) {}
    View(std::string_view text) noexcept : View(reinterpret_cast<const std::uint8_t *>(text.data()), text.size()) {}
    View(const std::string &text) noexcept : View(std::string_view(text)) {}
    View(const char *text) noexcept : View(std::string_view(text)) {}
    View(const std::vector<std::uint8_t> &bytes) noexcept : View(bytes.data(), bytes.size()) {}

    constexpr const std::uint8_t *data() const noexcept { return data_; }
    constexpr std::size_t size() const noexcept { return size_; }
    constexpr bool empty() const noexcept { return size_ == 0; }
    constexpr const std::uint8_t *begin() const noexcept { return data_; }
    constexpr const std::uint8_t *end() const noexcept { return data_ + size_; }
    constexpr const std::uint8_t &operator[](std::size_t at) const noexcept { return data_[at]; }
    std::string_view text() const noexcept { return {reinterpret_cast<const char *>(data_), size_}; }
    constexpr taut_slice slice() const noexcept { return {data_, size_}; }

private:
    const std::uint8_t *data_ = nullptr;
    std::size_t size_ = 0;
};

// A call that failed.
class Error : public std::runtime_error {
public:
    Error(taut_code code, const std::string &text, std::int32_t alert = TAUT_NO_ALERT)
        : std::runtime_error(text.empty() ? taut_code_text(code) : text), code_(code), alert_(alert) {}
    taut_code code() const noexcept { return code_; }
    std::int32_t alert() const noexcept { return alert_; }

private:
    taut_code code_;
    std::int32_t alert_;
};

namespace detail {

// Runs a call that fills a `taut_error`, and throws if it fails.
template <typename Call>
void check(Call &&call) {
    char text[512] = "";
    taut_error error{};
    error.size = sizeof error;
    error.text = text;
    error.room = sizeof text;
    const taut_code code = call(&error);
    if (code != TAUT_OK) throw Error(code, text, error.alert);
}

// Throws if a code is none of success.
inline void need(taut_code code) {
    if (code != TAUT_OK) throw Error(code, "");
}

template <auto Function>
struct Free {
    template <typename Handle>
    void operator()(Handle *handle) const noexcept {
        static_cast<void>(Function(handle));
    }
};

template <typename Handle, auto Function>
using Owner = std::unique_ptr<Handle, Free<Function>>;

// Milliseconds of the interface; a negative time is for ever.
inline std::uint64_t ms(std::chrono::milliseconds time) {
    return time.count() < 0 ? TAUT_NEVER : static_cast<std::uint64_t>(time.count());
}

}  // namespace detail

// A time that is never over.
inline constexpr std::chrono::milliseconds forever{-1};

// A TLS configuration. Copies share it.
class TlsConfig {
public:
    static TlsConfig server(const char *engine = nullptr) { return TlsConfig(TAUT_SERVER, engine); }
    static TlsConfig client(const char *engine = nullptr) { return TlsConfig(TAUT_CLIENT, engine); }

    TlsConfig &certificate_files(const std::string &chain, const std::string &key) {
        return with([&](auto *e) { return taut_tls_config_certificate_files(get(), chain.c_str(), key.c_str(), e); });
    }
    // Adds a certificate to a server, or sets that of a client: its chain and its key in PEM.
    TlsConfig &certificate(View chain, View key) {
        taut_certificate made{};
        made.size = sizeof made;
        made.chain = chain.slice();
        made.key = key.slice();
        return with([&](auto *e) { return taut_tls_config_certificate(get(), &made, e); });
    }
    TlsConfig &roots_file(const std::string &path) {
        return with([&](auto *e) { return taut_tls_config_roots_file(get(), path.c_str(), e); });
    }
    TlsConfig &roots(View pem) {
        return with([&](auto *e) { return taut_tls_config_roots(get(), pem.data(), pem.size(), e); });
    }
    // Has a client verify no certificate: for experiments, or if `verify` decides alone.
    TlsConfig &danger_no_roots() {
        return with([&](auto *e) { return taut_tls_config_danger_no_roots(get(), e); });
    }
    // Has a server request certificates of clients: `demand` is one of TAUT_CLIENT_AUTH_…, and `roots` are in PEM.
    TlsConfig &client_auth(std::uint32_t demand, View roots) {
        return with([&](auto *e) { return taut_tls_config_client_auth(get(), demand, roots.data(), roots.size(), e); });
    }
    TlsConfig &alpn(const std::vector<std::string> &names) {
        std::vector<taut_slice> slices;
        for (const auto &name : names) slices.push_back(View(name).slice());
        return with([&](auto *e) { return taut_tls_config_alpn(get(), slices.data(), slices.size(), e); });
    }
    TlsConfig &set(std::uint32_t option, std::uint64_t value) {
        return with([&](auto *e) { return taut_tls_config_set(get(), option, value, e); });
    }
    // Has a server derive its ticket keys from a secret that all hosts of a fleet share.
    TlsConfig &ticket_secret(View secret, std::chrono::seconds epoch) {
        const auto seconds = epoch.count() < 0 ? 0 : static_cast<std::uint64_t>(epoch.count());
        return with([&](auto *e) {
            return taut_tls_config_ticket_secret(get(), secret.data(), secret.size(), seconds, e);
        });
    }
    // Has a function decide about certificates of peers, in several threads at once: `true` accepts. One that throws fails
    // the handshake.
    TlsConfig &verify(std::function<bool(const taut_tls_peer &)> decide) {
        using Decide = std::function<bool(const taut_tls_peer &)>;
        const auto call = [](void *user, const taut_tls_peer *peer) noexcept -> std::uint32_t {
            try {
                return (*static_cast<Decide *>(user))(*peer) ? TAUT_ACCEPT : TAUT_REJECT;
            } catch (...) {
                return 0;
            }
        };
        const auto destroy = [](void *user) noexcept { delete static_cast<Decide *>(user); };
        const auto owned = new Decide(std::move(decide));
        return with([&](auto *e) { return taut_tls_config_verify(get(), call, owned, destroy, e); });
    }
    TlsConfig &reset() {
        return with([&](auto *e) { return taut_tls_config_reset(get(), e); });
    }
    TlsConfig &apply() {
        return with([&](auto *e) { return taut_tls_config_apply(get(), e); });
    }
    const taut_tls_config *get() const noexcept { return config_.get(); }

private:
    TlsConfig(std::uint32_t role, const char *engine) {
        const taut_tls_config *made = nullptr;
        detail::check([&](auto *e) { return taut_tls_config_new(role, engine, &made, e); });
        config_ = std::shared_ptr<const taut_tls_config>(made, taut_tls_config_release);
    }
    template <typename Call>
    TlsConfig &with(Call &&call) {
        detail::check(std::forward<Call>(call));
        return *this;
    }

    std::shared_ptr<const taut_tls_config> config_;
};

// Limits, deadlines and policies.
class Settings {
public:
    explicit Settings(std::uint32_t preset = TAUT_PRESET_UNTRUSTED_INTERNET) {
        taut_settings *made = nullptr;
        detail::check([&](auto *e) { return taut_settings_new(preset, &made, e); });
        settings_.reset(made);
    }
    Settings &set(std::uint32_t setting, std::uint64_t value) {
        detail::check([&](auto *e) { return taut_settings_set(get(), setting, value, e); });
        return *this;
    }
    Settings &subprotocols(const std::vector<std::string> &names) { return list(names, taut_settings_subprotocols); }
    Settings &origins(const std::vector<std::string> &origins) { return list(origins, taut_settings_origins); }
    const taut_settings *get() const noexcept { return settings_.get(); }

private:
    template <typename Function>
    Settings &list(const std::vector<std::string> &texts, Function function) {
        std::vector<taut_slice> slices;
        for (const auto &text : texts) slices.push_back(View(text).slice());
        detail::check([&](auto *e) { return function(get(), slices.data(), slices.size(), e); });
        return *this;
    }

    detail::Owner<taut_settings, taut_settings_free> settings_;
};

// Headers of a request or a response.
using Headers = std::vector<std::pair<std::string, std::string>>;

namespace detail {

inline std::vector<taut_header> headers(const Headers &of) {
    std::vector<taut_header> made;
    for (const auto &[name, value] : of) made.push_back({View(name).slice(), View(value).slice()});
    return made;
}

}  // namespace detail

// The destination of an outgoing connection.
struct Target {
    std::string uri;
    std::string address = {}, origin = {}, proxy = {};
    Headers headers = {};
    std::vector<std::string> subprotocols = {};
    bool deflate = false;
    // The longest wait before another attempt; zero connects once.
    std::chrono::milliseconds reconnect_longest{0}, reconnect_first{0};
    std::uint32_t reconnect_attempts = 0;
    // The name of the server in TLS, instead of the URI's host.
    std::string server_name = {};

    // Calls `use` with the target as C knows it.
    template <typename Use>
    auto with(Use &&use) const {
        const auto text = [](const std::string &of) { return of.empty() ? nullptr : of.c_str(); };
        const auto fields = detail::headers(headers);
        std::vector<taut_slice> protocols;
        for (const auto &name : subprotocols) protocols.push_back(View(name).slice());
        taut_target target{};
        target.size = sizeof target;
        target.uri = uri.c_str();
        target.address = text(address);
        target.origin = text(origin);
        target.proxy = text(proxy);
        target.headers = fields.data();
        target.headers_count = fields.size();
        target.subprotocols = protocols.data();
        target.subprotocols_count = protocols.size();
        target.deflate = deflate ? 1 : 0;
        target.reconnect_longest_ms = static_cast<std::uint32_t>(reconnect_longest.count());
        target.reconnect_first_ms = static_cast<std::uint32_t>(reconnect_first.count());
        target.reconnect_attempts = reconnect_attempts;
        target.server_name = text(server_name);
        return use(&target);
    }
};

// A message, whose bytes belong to somebody else.
struct Message {
    View data;
    // Any of TAUT_TEXT, TAUT_UNCOMPRESSED, TAUT_KEYED; TAUT_FIRST and TAUT_LAST instead of the last for pieces.
    std::uint32_t flags = 0;
    std::uint64_t key = 0;

    static Message text(View data) noexcept { return {data, TAUT_TEXT, 0}; }
    static Message binary(View data) noexcept { return {data, 0, 0}; }
    bool is_text() const noexcept { return (flags & TAUT_TEXT) != 0; }
    taut_message c() const noexcept { return {sizeof(taut_message), flags, data.data(), data.size(), key}; }
};

// The head of a request or a response, valid as long as that which it is of.
class Head {
public:
    explicit Head(const taut_head *head) noexcept : head_(head) {}
    explicit operator bool() const noexcept { return head_ != nullptr; }
    std::string_view method() const noexcept { return View(head_->method).text(); }
    std::string_view target() const noexcept { return View(head_->target).text(); }
    std::uint32_t status() const noexcept { return head_->status; }
    // The first value of a header, whose name is in lower case.
    std::optional<std::string_view> header(std::string_view name) const noexcept {
        for (std::size_t at = 0; at < head_->headers_count; at++) {
            if (View(head_->headers[at].name).text() == name) return View(head_->headers[at].value).text();
        }
        return std::nullopt;
    }

private:
    const taut_head *head_;
};

// A connection of a server or a client: a value. The functions of tautline.h say which of them work everywhere.
class Conn {
public:
    explicit Conn(taut_conn conn) noexcept : conn_(conn) {}
    taut_code send(const Message &message) const noexcept {
        const auto c = message.c();
        return taut_conn_send(conn_, &c);
    }
    taut_code text(View data) const noexcept { return send(Message::text(data)); }
    taut_code binary(View data) const noexcept { return send(Message::binary(data)); }
    taut_code close(std::uint32_t code = 1000, View reason = {}) const noexcept {
        return taut_conn_close(conn_, code, reason.data(), reason.size());
    }
    bool is_open() const noexcept { return taut_conn_is_open(conn_) == 1; }
    taut_code send_piece(const Message &piece) const noexcept {
        const auto c = piece.c();
        return taut_conn_send_piece(conn_, &c);
    }
    taut_code ping(View data = {}) const noexcept { return taut_conn_ping(conn_, data.data(), data.size()); }
    taut_code subscribe(View topic) const noexcept { return taut_conn_subscribe(conn_, topic.data(), topic.size()); }
    taut_code unsubscribe(View topic) const noexcept { return taut_conn_unsubscribe(conn_, topic.data(), topic.size()); }
    taut_code publish(View topic, const Message &message) const noexcept {
        const auto c = message.c();
        return taut_conn_publish(conn_, topic.data(), topic.size(), &c);
    }
    taut_code publish_to_others(View topic, const Message &message) const noexcept {
        const auto c = message.c();
        return taut_conn_publish_to_others(conn_, topic.data(), topic.size(), &c);
    }
    taut_code set_timer(std::chrono::milliseconds after, std::uint64_t id) const noexcept {
        return taut_conn_set_timer(conn_, detail::ms(after), id);
    }
    taut_code cancel_timer(std::uint64_t id) const noexcept { return taut_conn_cancel_timer(conn_, id); }
    taut_code pause(bool pause) const noexcept { return taut_conn_pause(conn_, pause ? 1 : 0); }
    taut_code notify_drain() const noexcept { return taut_conn_notify_drain(conn_); }
    taut_code set_user(void *user) const noexcept { return taut_conn_set_user(conn_, user); }
    void *user() const noexcept {
        void *user = nullptr;
        static_cast<void>(taut_conn_get_user(conn_, &user));
        return user;
    }
    // The rest of the interface.
    taut_conn c() const noexcept { return conn_; }
    friend bool operator==(const Conn &a, const Conn &b) noexcept {
        return a.conn_.owner == b.conn_.owner && a.conn_.id == b.conn_.id;
    }
    friend bool operator!=(const Conn &a, const Conn &b) noexcept { return !(a == b); }

private:
    taut_conn conn_;
};

// The right and the duty to answer a request later, from any thread. Without an answer, the client gets status 500.
class Ticket {
public:
    explicit Ticket(taut_ticket *ticket) noexcept : ticket_(ticket) {}
    bool is_wanted() const noexcept { return taut_ticket_is_wanted(ticket_.get()) == 1; }
    taut_code upgrade(const Headers &headers = {}, const char *subprotocol = nullptr, void *user = nullptr) {
        const auto made = detail::headers(headers);
        return taut_ticket_upgrade(ticket_.get(), made.data(), made.size(), subprotocol, user);
    }
    taut_code respond(std::uint32_t status, View body = {}, const Headers &headers = {}) {
        const auto made = detail::headers(headers);
        return taut_ticket_respond(ticket_.get(), status, made.data(), made.size(), body.data(), body.size());
    }

private:
    detail::Owner<taut_ticket, taut_ticket_free> ticket_;
};

// A request, valid during its callback.
class Request {
public:
    explicit Request(const taut_request *request) noexcept : request_(request) {}
    Head head() const noexcept { return Head(request_->head); }
    View body() const noexcept { return request_->body; }
    std::string_view peer() const noexcept { return View(request_->peer).text(); }
    bool is_upgrade() const noexcept { return request_->is_upgrade == 1; }
    void upgrade(const Headers &headers = {}, const char *subprotocol = nullptr, void *user = nullptr) const {
        const auto made = detail::headers(headers);
        detail::need(taut_request_upgrade(request_, made.data(), made.size(), subprotocol, user));
    }
    void respond(std::uint32_t status, View body = {}, const Headers &headers = {}) const {
        const auto made = detail::headers(headers);
        detail::need(taut_request_respond(request_, status, made.data(), made.size(), body.data(), body.size()));
    }
    Ticket later() const {
        taut_ticket *ticket = nullptr;
        detail::need(taut_request_later(request_, &ticket));
        return Ticket(ticket);
    }

private:
    const taut_request *request_;
};

// The application. Loops call it on their own threads: with several loops, several threads at once.
class Handler {
public:
    Handler() = default;
    Handler(const Handler &) = delete;
    Handler &operator=(const Handler &) = delete;
    virtual ~Handler() = default;

    virtual void on_start(const taut_loop *, std::uint32_t) {}
    // A request that this does not answer is upgraded, or answered with status 404.
    virtual void on_request(const Request &) {}
    virtual void on_open(Conn, const taut_opening &) {}
    virtual void on_message(Conn, const Message &) {}
    virtual void on_chunk(Conn, const Message &) {}
    virtual void on_pong(Conn, View) {}
    virtual void on_drain(Conn) {}
    // A policy has dropped messages to the connection: this number since the last call.
    virtual void on_dropped(Conn, std::uint32_t) {}
    virtual void on_timer(Conn, std::uint64_t) {}
    virtual void on_close(Conn, const taut_closed &) {}
    virtual void on_loop_timer(const taut_loop *, std::uint64_t) {}
    virtual void on_connect_failed(std::uint64_t, const taut_closed &, std::uint64_t) {}
    virtual void on_redial(std::uint64_t, taut_redial *) {}
    virtual void on_dial_end(std::uint64_t) {}
};

namespace detail {

// Calls a handler. An exception becomes a code.
template <typename Call>
taut_code guard(void *user, Call &&call) noexcept {
    try {
        call(*static_cast<Handler *>(user));
        return TAUT_OK;
    } catch (...) {
        return TAUT_ERR_CALLBACK;
    }
}

inline Message message(const taut_message *of) noexcept { return {View(of->data, of->len), of->flags, of->key}; }

inline taut_callbacks callbacks(Handler &handler) noexcept {
    taut_callbacks made{};
    made.size = sizeof made;
    made.user = &handler;
    made.start = [](void *user, const taut_loop *owner, std::uint32_t number) {
        return guard(user, [&](Handler &h) { h.on_start(owner, number); });
    };
    made.request = [](void *user, const taut_request *request) {
        return guard(user, [&](Handler &h) { h.on_request(Request(request)); });
    };
    made.open = [](void *user, taut_conn conn, const taut_opening *opening) {
        return guard(user, [&](Handler &h) { h.on_open(Conn(conn), *opening); });
    };
    made.message = [](void *user, taut_conn conn, const taut_message *incoming) {
        return guard(user, [&](Handler &h) { h.on_message(Conn(conn), message(incoming)); });
    };
    made.chunk = [](void *user, taut_conn conn, const taut_message *piece) {
        return guard(user, [&](Handler &h) { h.on_chunk(Conn(conn), message(piece)); });
    };
    made.pong = [](void *user, taut_conn conn, const std::uint8_t *data, std::size_t len) {
        return guard(user, [&](Handler &h) { h.on_pong(Conn(conn), View(data, len)); });
    };
    made.dropped = [](void *user, taut_conn conn, uint32_t count) {
        return guard(user, [&](Handler &h) { h.on_dropped(Conn(conn), count); });
    };
    made.drain = [](void *user, taut_conn conn) { return guard(user, [&](Handler &h) { h.on_drain(Conn(conn)); }); };
    made.timer = [](void *user, taut_conn conn, std::uint64_t id) {
        return guard(user, [&](Handler &h) { h.on_timer(Conn(conn), id); });
    };
    made.close = [](void *user, taut_conn conn, const taut_closed *closed) {
        return guard(user, [&](Handler &h) { h.on_close(Conn(conn), *closed); });
    };
    made.loop_timer = [](void *user, const taut_loop *owner, std::uint64_t id) {
        return guard(user, [&](Handler &h) { h.on_loop_timer(owner, id); });
    };
    made.connect_failed = [](void *user, std::uint64_t dial, const taut_closed *closed, std::uint64_t retry) {
        return guard(user, [&](Handler &h) { h.on_connect_failed(dial, *closed, retry); });
    };
    made.redial = [](void *user, std::uint64_t dial, taut_redial *redial) {
        return guard(user, [&](Handler &h) { h.on_redial(dial, redial); });
    };
    made.dial_end = [](void *user, std::uint64_t dial) {
        return guard(user, [&](Handler &h) { h.on_dial_end(dial); });
    };
    return made;
}

}  // namespace detail

// The settings of a server.
struct ServerOptions {
    std::vector<std::string> listen;
    std::optional<TlsConfig> tls = std::nullopt;
    const Settings *settings = nullptr;
    // Number of loops; TAUT_ALL_CPUS for one on each CPU.
    std::uint32_t loops = 1;
    bool beside_others = false;
    std::vector<std::size_t> cpus = {};
    std::string driver = {};
};

// A running server, which ends with this object. The handler must outlive it. A callback must not destroy it.
class Server {
public:
    Server(Handler &handler, const ServerOptions &options) {
        std::vector<const char *> listen;
        for (const auto &address : options.listen) listen.push_back(address.c_str());
        const auto callbacks = detail::callbacks(handler);
        taut_server_options c{};
        c.size = sizeof c;
        c.tls = options.tls ? options.tls->get() : nullptr;
        c.settings = options.settings != nullptr ? options.settings->get() : nullptr;
        c.listen = listen.data();
        c.listen_count = listen.size();
        c.loops = options.loops;
        c.beside_others = options.beside_others ? 1 : 0;
        c.cpus = options.cpus.data();
        c.cpus_count = options.cpus.size();
        c.driver = options.driver.empty() ? nullptr : options.driver.c_str();
        c.callbacks = &callbacks;
        taut_server *made = nullptr;
        detail::check([&](auto *e) { return taut_server_start(&c, &made, e); });
        server_.reset(made);
    }
    std::string address(std::size_t number = 0) const {
        char text[256];
        detail::need(taut_server_address(get(), number, text, sizeof text));
        return text;
    }
    taut_code publish(View topic, const Message &message) const noexcept {
        const auto c = message.c();
        return taut_server_publish(get(), topic.data(), topic.size(), &c);
    }
    taut_code broadcast(const Message &message) const noexcept {
        const auto c = message.c();
        return taut_server_broadcast(get(), &c);
    }
    void reload(const TlsConfig &tls) const {
        detail::check([&](auto *e) { return taut_server_reload(get(), tls.get(), e); });
    }
    std::uint64_t counter(const char *name) const {
        std::uint64_t value = 0;
        detail::need(taut_server_counter(get(), name, &value));
        return value;
    }
    void drain(std::uint32_t code, View reason, std::chrono::milliseconds deadline) const {
        detail::need(taut_server_drain(get(), code, reason.data(), reason.size(), detail::ms(deadline)));
    }
    // Waits for the end of all loops; false if the time is over first.
    bool join(std::chrono::milliseconds timeout = forever) const {
        taut_code code = TAUT_OK;
        detail::check([&](auto *e) {
            code = taut_server_join(get(), detail::ms(timeout), e);
            return code == TAUT_ERR_TIMEOUT ? TAUT_OK : code;
        });
        return code == TAUT_OK;
    }
    taut_server *get() const noexcept { return server_.get(); }

private:
    detail::Owner<taut_server, taut_server_free> server_;
};

// A loop for outgoing connections, which ends with this object. The handler must outlive it.
class Client {
public:
    explicit Client(Handler &handler, std::optional<TlsConfig> tls = std::nullopt, const Settings *settings = nullptr) {
        const auto callbacks = detail::callbacks(handler);
        taut_client_options c{};
        c.size = sizeof c;
        c.tls = tls ? tls->get() : nullptr;
        c.settings = settings != nullptr ? settings->get() : nullptr;
        c.callbacks = &callbacks;
        taut_client *made = nullptr;
        detail::check([&](auto *e) { return taut_client_start(&c, &made, e); });
        client_.reset(made);
    }
    std::uint64_t connect(const Target &target) const {
        std::uint64_t dial = 0;
        target.with([&](const taut_target *c) {
            detail::check([&](auto *e) { return taut_client_connect(get(), c, &dial, e); });
        });
        return dial;
    }
    taut_code disconnect(std::uint64_t dial, std::uint32_t code = 1000, View reason = {}) const noexcept {
        return taut_client_disconnect(get(), dial, code, reason.data(), reason.size());
    }
    taut_client *get() const noexcept { return client_.get(); }

private:
    detail::Owner<taut_client, taut_client_free> client_;
};

// A blocking connection. Only the thread that made it may use and destroy it.
class Socket {
public:
    explicit Socket(const Target &target, std::optional<TlsConfig> tls = std::nullopt,
                    std::chrono::milliseconds timeout = forever, const Settings *settings = nullptr) {
        taut_socket *made = nullptr;
        const taut_tls_config *config = tls ? tls->get() : nullptr;
        const taut_settings *limits = settings != nullptr ? settings->get() : nullptr;
        target.with([&](const taut_target *c) {
            detail::check([&](auto *e) {
                return taut_socket_connect(config, c, limits, detail::ms(timeout), &made, e);
            });
        });
        socket_.reset(made);
    }
    void send(const Message &message) {
        const auto c = message.c();
        detail::check([&](auto *e) { return taut_socket_send(get(), &c, e); });
    }
    void text(View data) { send(Message::text(data)); }
    void binary(View data) { send(Message::binary(data)); }
    // The next message, whose bytes are valid until the next call; none if the time is over.
    std::optional<Message> receive(std::chrono::milliseconds timeout = forever) {
        taut_message c{};
        c.size = sizeof c;
        taut_code code = TAUT_OK;
        detail::check([&](auto *e) {
            code = taut_socket_receive(get(), detail::ms(timeout), &c, e);
            return code == TAUT_ERR_TIMEOUT ? TAUT_OK : code;
        });
        if (code == TAUT_ERR_TIMEOUT) return std::nullopt;
        return detail::message(&c);
    }
    void close(std::uint32_t code = 1000, View reason = {}) {
        detail::check([&](auto *e) { return taut_socket_close(get(), code, reason.data(), reason.size(), e); });
    }
    // How the connection ended, once a call has thrown TAUT_ERR_CLOSED; else null.
    const taut_closed *closed() const noexcept { return taut_socket_closed(get()); }
    taut_socket *get() const noexcept { return socket_.get(); }

private:
    detail::Owner<taut_socket, taut_socket_free> socket_;
};

// A whole connection without I/O. Times are milliseconds of any clock of the caller.
class Ws {
public:
    static Ws server(const std::optional<TlsConfig> &tls, std::uint64_t now, const Settings *settings = nullptr,
                     const taut_ws_context *context = nullptr) {
        taut_ws *made = nullptr;
        const taut_settings *limits = settings != nullptr ? settings->get() : nullptr;
        const taut_tls_config *config = tls ? tls->get() : nullptr;
        detail::check([&](auto *e) { return taut_ws_server(config, limits, context, now, &made, e); });
        return Ws(made);
    }
    static Ws client(const std::optional<TlsConfig> &tls, const Target &target, std::uint64_t now,
                     const Settings *settings = nullptr, const taut_ws_context *context = nullptr) {
        taut_ws *made = nullptr;
        const taut_settings *limits = settings != nullptr ? settings->get() : nullptr;
        const taut_tls_config *config = tls ? tls->get() : nullptr;
        target.with([&](const taut_target *c) {
            detail::check([&](auto *e) { return taut_ws_client(config, c, limits, context, now, &made, e); });
        });
        return Ws(made);
    }
    // Where the peer's next bytes go.
    taut_window window(std::size_t least = 0) {
        taut_window window{};
        detail::need(taut_ws_window(get(), least, &window));
        return window;
    }
    void filled(std::size_t len, std::uint64_t now) { detail::need(taut_ws_filled(get(), len, now)); }
    taut_ws_event next() {
        taut_ws_event event{};
        event.size = sizeof event;
        detail::need(taut_ws_next(get(), &event));
        return event;
    }
    taut_code send(const Message &message) noexcept {
        const auto c = message.c();
        return taut_ws_send(get(), &c);
    }
    void upgrade(const Headers &headers = {}) {
        const auto made = detail::headers(headers);
        detail::need(taut_ws_upgrade(get(), made.data(), made.size()));
    }
    taut_code close(std::uint32_t code, View reason, std::uint64_t now) noexcept {
        return taut_ws_close(get(), code, reason.data(), reason.size(), now);
    }
    View output() {
        taut_slice output{};
        detail::need(taut_ws_output(get(), &output));
        return output;
    }
    void written(std::size_t len) { detail::need(taut_ws_written(get(), len)); }
    // The rest of the interface.
    taut_ws *get() const noexcept { return ws_.get(); }

private:
    explicit Ws(taut_ws *ws) noexcept : ws_(ws) {}
    detail::Owner<taut_ws, taut_ws_free> ws_;
};

}  // namespace tautline

#endif
