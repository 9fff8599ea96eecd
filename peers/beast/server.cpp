// A server on Boost.Beast, after its examples websocket/server/async-ssl and websocket/server/chat-multi, on one thread.
// Arguments: echo|broadcast CERT KEY.
#include <boost/asio.hpp>
#include <boost/asio/ssl.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/ssl.hpp>
#include <boost/beast/websocket.hpp>
#include <boost/beast/websocket/ssl.hpp>
#include <cstdio>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_set>

namespace {

namespace beast = boost::beast;
namespace net = boost::asio;
namespace ssl = net::ssl;
using beast::error_code;
using net::ip::tcp;
using Stream = beast::websocket::stream<beast::ssl_stream<beast::tcp_stream>>;

constexpr std::size_t kMost = 100 * 1024 * 1024;

// One connection. It echoes if there is no hub, and otherwise passes messages to all sessions of the hub.
class Session : public std::enable_shared_from_this<Session> {
 public:
  using Hub = std::unordered_set<Session*>;

  Session(tcp::socket&& socket, ssl::context& context, Hub* hub) : stream_(std::move(socket), context), hub_(hub) {}

  ~Session() {
    if (hub_ != nullptr) hub_->erase(this);
  }

  void run() {
    beast::get_lowest_layer(stream_).socket().set_option(tcp::no_delay(true));
    stream_.next_layer().async_handshake(ssl::stream_base::server, [self = shared_from_this()](error_code error) {
      if (!error) self->accept();
    });
  }

 private:
  void accept() {
    stream_.auto_fragment(false);
    stream_.read_message_max(kMost);
    stream_.async_accept([self = shared_from_this()](error_code error) {
      if (error) return;
      if (self->hub_ != nullptr) self->hub_->insert(self.get());
      self->read();
    });
  }

  void read() {
    stream_.async_read(buffer_, [self = shared_from_this()](error_code error, std::size_t) {
      if (!error) self->on_message();
    });
  }

  void on_message() {
    if (hub_ != nullptr) {
      const auto message = std::make_shared<const std::string>(beast::buffers_to_string(buffer_.data()));
      buffer_.consume(buffer_.size());
      for (Session* session : *hub_) session->queue(message, stream_.got_binary());
      return read();
    }
    stream_.binary(stream_.got_binary());
    stream_.async_write(buffer_.data(), [self = shared_from_this()](error_code error, std::size_t written) {
      if (error) return;
      self->buffer_.consume(written);
      self->read();
    });
  }

  void queue(const std::shared_ptr<const std::string>& message, bool is_binary) {
    queue_.push_back(message);
    stream_.binary(is_binary);
    if (queue_.size() == 1) write();
  }

  void write() {
    stream_.async_write(net::buffer(*queue_.front()), [self = shared_from_this()](error_code error, std::size_t) {
      if (error) return;
      self->queue_.pop_front();
      if (!self->queue_.empty()) self->write();
    });
  }

  Stream stream_;
  beast::flat_buffer buffer_;
  std::deque<std::shared_ptr<const std::string>> queue_;
  Hub* hub_;
};

void accept(tcp::acceptor& acceptor, ssl::context& context, Session::Hub* hub) {
  acceptor.async_accept([&acceptor, &context, hub](error_code error, tcp::socket socket) {
    if (!error) std::make_shared<Session>(std::move(socket), context, hub)->run();
    accept(acceptor, context, hub);
  });
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 4) {
    std::fprintf(stderr, "usage: %s echo|broadcast CERT KEY\n", arguments[0]);
    return 2;
  }
  // The hint lets asio leave out its locks.
  net::io_context loop{1};
  ssl::context context{ssl::context::tlsv13_server};
  context.use_certificate_chain_file(arguments[2]);
  context.use_private_key_file(arguments[3], ssl::context::pem);
  Session::Hub hub;
  tcp::acceptor acceptor{loop, {net::ip::make_address("127.0.0.1"), 0}};
  acceptor.listen(4096);
  accept(acceptor, context, std::string_view(arguments[1]) == "broadcast" ? &hub : nullptr);
  std::printf("listening on wss://127.0.0.1:%d\n", acceptor.local_endpoint().port());
  std::fflush(stdout);
  loop.run();
}
