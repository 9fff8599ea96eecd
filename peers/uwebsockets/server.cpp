// A server on uWebSockets, after its examples EchoServer and BroadcastingEchoServer. Arguments: echo|broadcast CERT KEY.
#include <cstdio>
#include <string_view>

#include "App.h"

namespace {

struct Nothing {};

using Socket = uWS::WebSocket<true, true, Nothing>;

constexpr unsigned kMost = 100 * 1024 * 1024;

}  // namespace

int main(int count, char** arguments) {
  if (count != 4) {
    std::fprintf(stderr, "usage: %s echo|broadcast CERT KEY\n", arguments[0]);
    return 2;
  }
  const bool to_all = std::string_view(arguments[1]) == "broadcast";
  uWS::SSLApp app({.key_file_name = arguments[3], .cert_file_name = arguments[2]});
  uWS::SSLApp::WebSocketBehavior<Nothing> behavior;
  behavior.compression = uWS::DISABLED;
  behavior.maxPayloadLength = kMost;
  behavior.maxBackpressure = kMost;
  if (to_all) {
    behavior.open = [](Socket* socket) { socket->subscribe("all"); };
    behavior.message = [&app](Socket*, std::string_view message, uWS::OpCode code) {
      app.publish("all", message, code, false);
    };
  } else {
    behavior.message = [](Socket* socket, std::string_view message, uWS::OpCode code) {
      socket->send(message, code, false);
    };
  }
  app.ws<Nothing>("/*", std::move(behavior))
      .listen("127.0.0.1", 0,
              [](us_listen_socket_t* socket) {
                if (socket == nullptr) return;
                const int port = us_socket_local_port(1, reinterpret_cast<us_socket_t*>(socket));
                std::printf("listening on wss://127.0.0.1:%d\n", port);
                std::fflush(stdout);
              })
      .run();
  std::fprintf(stderr, "cannot listen, or the certificate is wrong\n");
  return 1;
}
