"""Tests of the package ``websockets`` that this package fails, by reason. docs/python.md explains the differences."""

SOCKETS = "loops open their own sockets: no `sock` of clients, no `fileno` of addresses"
HOSTNAME = "`server_hostname` is the host of the URI, and there is no transport that tells it"
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
    HOSTNAME: [
        "test_client.SecureClientTests.test_reject_invalid_server_hostname",
        "test_client.SecureClientTests.test_set_server_hostname_explicitly",
        "test_client.SecureClientTests.test_set_server_hostname_implicitly",
        "test_client.UnixClientTests.test_set_server_hostname",
    ],
    TEXTS: [
        "test_client.ClientTests.test_junk_handshake_response",
        "test_client.SecureClientTests.test_reject_invalid_server_certificate",
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
    "a client does not read the body of a rejection": ["test_client.ClientTests.test_http_response"],
    "the loop's own pings do not set `latency`": [
        "test_client.ClientTests.test_keepalive_is_enabled",
        "test_server.ServerTests.test_keepalive_is_enabled",
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
