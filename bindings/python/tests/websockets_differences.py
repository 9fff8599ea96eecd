"""Tests of the package ``websockets`` that this package fails, by reason. docs/python.md explains the differences."""

SOCKETS = "loops open their own sockets: no `sock` of clients, no `fileno` of addresses"
TEXTS = "the type of the exception is the same, its text is ours"
REFUSES = "an invalid request is answered with a status, and nothing is logged about it"
CHECKED = "the native part answers: hooks cannot take `Sec-WebSocket-Key` or `Sec-WebSocket-Accept` away"

DIFFERENCES = {
    SOCKETS: [
        "test_client.ClientTests.test_existing_socket",
        "test_client.ClientTests.test_redirect_with_existing_socket",
        "test_client.ClientUsageErrorsTests.test_unix_with_path_and_sock",
        "test_server.ServerTests.test_sockets",
    ],
    TEXTS: [
        "test_client.ClientTests.test_junk_handshake_response",
        "test_client.SecureClientTests.test_reject_invalid_server_certificate",
        "test_client.SecureClientTests.test_reject_invalid_server_hostname",
    ],
    REFUSES: [
        "test_server.ServerTests.test_connection_closed_before_handshake_request",
        "test_server.ServerTests.test_junk_handshake_request",
        "test_server.ServerTests.test_timeout_before_handshake_request",
    ],
    CHECKED: [
        "test_client.ClientTests.test_handshake_fails",
        "test_server.ServerTests.test_handshake_fails",
    ],
    "there is no `ws.transport` to close": [
        "test_client.ClientTests.test_connection_closed_during_handshake",
        "test_client.ClientTests.test_http_response_without_content_length",
        "test_server.ServerTests.test_connection_closed_before_handshake_response",
    ],
    "there is no `proxy_ssl`": [
        "test_client.ClientUsageErrorsTests.test_https_proxy_without_ssl",
        "test_client.ClientUsageErrorsTests.test_proxy_ssl_without_https_proxy",
    ],
    "a message that arrives after `server.close()` is dropped": [
        "test_server.ServerTests.test_close_keeps_handlers_running",
    ],
    "`close(close_connections=False)` answers new clients with status 503": [
        "test_server.ServerTests.test_close_stops_accepting_connections",
    ],
}
