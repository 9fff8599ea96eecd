"""The client over HTTP/2 of README.md, with Python's h2 and wsproto, on one connection."""

import socket
import ssl
import sys
from urllib.parse import urlsplit

import h2.config
import h2.connection
import h2.events
import h2.settings
from wsproto import ConnectionType
from wsproto.connection import Connection as WebSocket
from wsproto.events import BytesMessage, CloseConnection, Message, Ping, Pong, TextMessage

SIZES = [0, 1, 125, 126, 127, 4096, 65535, 65536, 1 << 20]


def check(name, holds):
    print(("ok   " if holds else "FAIL ") + name, flush=True)
    if not holds:
        sys.exit(1)


def payload(size):
    return bytes(i * 7 % 251 for i in range(size))


class Stream:
    def __init__(self):
        self.headers = None
        self.body = bytearray()
        self.ended = False
        self.reset = None


class Client:
    """A connection, and what has arrived on its streams."""

    def __init__(self, url, authority):
        self.url = urlsplit(url)
        context = ssl.create_default_context(cafile=authority)
        context.set_alpn_protocols(["h2"])
        plain = socket.create_connection((self.url.hostname, self.url.port), timeout=60)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket = context.wrap_socket(plain, server_hostname=self.url.hostname)
        check("ALPN is h2", self.socket.selected_alpn_protocol() == "h2")
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True, header_encoding="utf-8"))
        self.streams = {}
        self.goes_away = None
        self.has_settings = False
        self.h2.initiate_connection()
        self.flush()
        self.until(lambda: self.has_settings)
        offer = h2.settings.SettingCodes.ENABLE_CONNECT_PROTOCOL
        check("the server offers extended CONNECT", self.h2.remote_settings[offer] == 1)

    def flush(self):
        self.socket.sendall(self.h2.data_to_send())

    def until(self, holds):
        while not holds():
            data = self.socket.recv(65536)
            if not data:
                check("the connection stays open", False)
            for event in self.h2.receive_data(data):
                self.take(event)
            self.flush()

    def take(self, event):
        stream = self.streams.get(getattr(event, "stream_id", None))
        if isinstance(event, h2.events.ResponseReceived):
            stream.headers = dict(event.headers)
        elif isinstance(event, h2.events.DataReceived):
            stream.body += event.data
            self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        elif isinstance(event, h2.events.StreamEnded):
            stream.ended = True
        elif isinstance(event, h2.events.StreamReset):
            stream.ended, stream.reset = True, event.error_code
        elif isinstance(event, h2.events.RemoteSettingsChanged):
            self.has_settings = True
        elif isinstance(event, h2.events.ConnectionTerminated):
            self.goes_away = event.error_code

    def ask(self, method, path, fields=(), end=True, protocol=None):
        number = self.h2.get_next_available_stream_id()
        pseudo = [(":method", method), (":scheme", "https"), (":path", path), (":authority", self.url.netloc)]
        if protocol:
            pseudo.append((":protocol", protocol))
        self.streams[number] = Stream()
        self.h2.send_headers(number, [*pseudo, *fields], end_stream=end)
        self.flush()
        return number

    def send(self, number, data, end=False):
        """Sends bytes as fast as the windows allow."""
        data = memoryview(data)
        while data:
            self.until(lambda: self.h2.local_flow_control_window(number) > 0)
            size = min(len(data), self.h2.local_flow_control_window(number), self.h2.max_outbound_frame_size)
            self.h2.send_data(number, data[:size].tobytes())
            data = data[size:]
            self.flush()
        if end:
            self.h2.end_stream(number)
            self.flush()

    def answer(self, number):
        stream = self.streams[number]
        self.until(lambda: stream.ended)
        return stream


class Socket:
    """A WebSocket on a stream."""

    def __init__(self, client, path, fields=()):
        self.client = client
        fields = [("sec-websocket-version", "13"), *fields]
        self.number = client.ask("CONNECT", path, fields, end=False, protocol="websocket")
        self.stream = client.streams[self.number]
        client.until(lambda: self.stream.headers is not None)
        self.status = self.stream.headers[":status"]
        self.ws = WebSocket(ConnectionType.CLIENT)
        self.events = []

    def send(self, event):
        self.client.send(self.number, self.ws.send(event))

    def next(self):
        """The next event. Messages are whole."""
        parts = []
        while True:
            while not self.events:
                self.client.until(lambda: self.stream.body or self.stream.ended)
                if not self.stream.body:
                    return None
                self.ws.receive_data(bytes(self.stream.body))
                self.stream.body.clear()
                self.events = list(self.ws.events())
            event = self.events.pop(0)
            if not isinstance(event, Message):
                return event
            parts.append(event.data)
            if event.message_finished:
                return (b"" if isinstance(event, BytesMessage) else "").join(parts)

    def echoes(self, data):
        self.send(BytesMessage(data) if isinstance(data, bytes) else TextMessage(data))
        return self.next() == data


def requests(client):
    page = client.answer(client.ask("GET", "/"))
    check("GET", page.headers[":status"] == "200" and b"WebSocket" in page.body)
    for size in [0, 1, 16384, 65536]:
        number = client.ask("POST", "/echo", [("content-length", str(size))], end=False)
        client.send(number, payload(size), end=True)
        answer = client.answer(number)
        check(f"POST {size}", answer.headers[":status"] == "200" and answer.body == payload(size))
    number = client.ask("POST", "/echo", end=False)
    client.send(number, b"with trailers")
    client.h2.send_headers(number, [("x-sum", "1")], end_stream=True)
    client.flush()
    check("POST with trailers", client.answer(number).body == b"with trailers")


def websockets(client):
    ws = Socket(client, "/socket")
    check("a WebSocket opens with status 200", ws.status == "200" and "sec-websocket-extensions" not in ws.stream.headers)
    for text in ["hello", "", "Grüße, 世界 🦀"]:
        check(f"text {text!r}", ws.echoes(text))
    for size in SIZES:
        check(f"binary {size}", ws.echoes(payload(size)))
    ws.send(TextMessage("one ", message_finished=False))
    ws.send(Ping(b"between fragments"))
    ws.send(TextMessage("two", message_finished=True))
    pong = ws.next()
    check("ping between fragments", isinstance(pong, Pong) and pong.payload == b"between fragments")
    check("text in fragments", ws.next() == "one two")
    others = [Socket(client, "/socket") for _ in range(20)]
    for at, other in enumerate(others):
        other.send(TextMessage(f"socket {at}"))
    check("20 sockets at once", [other.next() for other in reversed(others)] == [f"socket {19 - n}" for n in range(20)])
    refused = Socket(client, "/socket", fields=[("origin", "https://elsewhere.example")])
    check("a foreign origin is refused", refused.status == "403")
    ws.send(CloseConnection(4001, "bye"))
    closed = ws.next()
    check("close is answered with its code", isinstance(closed, CloseConnection) and closed.code == 4001)
    check("its stream has ended", client.answer(ws.number).reset is None)
    client.h2.reset_stream(others[0].number)
    client.flush()
    check("another socket stays", others[1].echoes("still"))


def main():
    client = Client(*sys.argv[1:3])
    requests(client)
    websockets(client)
    check("the connection is open", client.goes_away is None)


main()
