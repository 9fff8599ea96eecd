"""Servers and clients of tautline under asyncio."""

import asyncio
import contextvars
import gc
import http
import logging
import ssl
import weakref

import pytest
from conftest import echo, openssl, uri

import tautline
import tautline.sync
from tautline.asyncio.connection import State


def serve(handler=echo, **kwargs):
    return tautline.serve(handler, "127.0.0.1", 0, **kwargs)


@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize("compression", [None, "deflate", tautline.Deflate(), tautline.Deflate(0)])
@pytest.mark.parametrize("loops", [0, 1, 2])
def test_messages_return_as_they_were_sent(run, secure, compression, loops, server_tls, client_tls):
    async def main():
        tls = server_tls if secure else None
        async with serve(ssl=tls, compression=compression, loops=loops) as server:
            target = uri(server, "wss" if secure else "ws")
            extra = {"ssl": client_tls} if secure else {}
            async with tautline.connect(target, compression=compression, **extra) as ws:
                assert ws.compressed == (compression is not None)
                assert (ws.tls is not None) == secure
                for message in ["", "hällo", b"", b"\0\xff", "x" * 70_000, bytes(300_000)]:
                    await ws.send(message)
                    assert await ws.recv() == message
                for message in (bytearray(b"one"), memoryview(b"two")):
                    await ws.send(message)
                    assert await ws.recv() == bytes(message)
                await ws.send(b"text", text=True)
                assert await ws.recv() == "text"
                await ws.send("bytes", text=False)
                assert await ws.recv() == b"bytes"
                await ws.send("decoded")
                assert await ws.recv(decode=False) == b"decoded"
                await ws.send(["a", "bc", "d"])
                assert await ws.recv() == "abcd"

                async def pieces():
                    for piece in (b"1", b"2"):
                        await asyncio.sleep(0)
                        yield piece

                await ws.send(pieces())
                assert await ws.recv() == b"12"
            assert ws.close_code == 1000 and ws.state is State.CLOSED

    run(main())


def test_many_connections_and_messages_in_order(run):
    async def client(target, number):
        async with tautline.connect(target) as ws:
            sender = asyncio.create_task(send_all(ws, number))
            for i in range(200):
                assert await ws.recv() == f"{number}.{i}"
            await sender

    async def send_all(ws, number):
        for i in range(200):
            await ws.send(f"{number}.{i}")

    async def main():
        async with serve() as server:
            await asyncio.gather(*(client(uri(server), number) for number in range(50)))
            assert len(server.connections) <= 50

    run(main())


def test_reading_pauses_while_the_application_takes_nothing(run):
    async def main():
        taken = asyncio.Event()

        async def slow(ws):
            await taken.wait()
            async for message in ws:
                await ws.send(str(len(message)))

        async with serve(slow, max_queue=4, max_size=None, compression=None) as server:
            async with tautline.connect(uri(server), max_size=None) as ws:
                sent = 0

                async def fill():
                    nonlocal sent
                    for _ in range(400):
                        await ws.send(bytes(100_000))
                        sent += 1

                task = asyncio.create_task(fill())
                # 40 MB do not fit into the buffers of the kernel and of both ends: sending has to wait.
                while True:
                    before = sent
                    await asyncio.sleep(0.3)
                    if sent == before:
                        break
                assert sent < 400
                taken.set()
                for _ in range(400):
                    assert await ws.recv() == "100000"
                await task

    run(main())


def test_held_messages_arrive_once_the_application_takes_them(run):
    async def main():
        async with serve(max_queue=4) as server:
            async with tautline.connect(uri(server), max_queue=None) as ws:
                # Compressed, so that many messages arrive in one read.
                for _ in range(400):
                    await ws.send(bytes(100_000))
                for _ in range(400):
                    assert len(await ws.recv()) == 100_000

    run(main())


def test_hooks_of_the_handshake(run, caplog):
    async def main():
        async def process_request(connection, request):
            await asyncio.sleep(0)
            if request.path == "/healthz":
                return connection.respond(http.HTTPStatus.OK, "fine\n")
            if request.path == "/boom":
                raise RuntimeError("boom")
            connection.user = request.headers["X-User"]

        def process_response(connection, request, response):
            response.headers["X-Answer"] = "42"

        async def handler(ws):
            await ws.send(f"{ws.user} {ws.subprotocol} {ws.request.path}")

        hooks = {"process_request": process_request, "process_response": process_response}
        async with serve(handler, subprotocols=["b", "a"], **hooks) as server:
            target = uri(server)
            headers = {"X-User": "Ada"}
            async with tautline.connect(target + "p?q=1", additional_headers=headers, subprotocols=["a", "b"]) as ws:
                assert await ws.recv() == "Ada b /p?q=1"
                assert (ws.subprotocol, ws.response.headers["X-Answer"]) == ("b", "42")
            for path, status in (("healthz", 200), ("boom", 500)):
                with pytest.raises(tautline.InvalidStatus) as raised:
                    await tautline.connect(target + path)
                assert raised.value.response.status_code == status
            reader, writer = await asyncio.open_connection("127.0.0.1", server.sockets[0].getsockname()[1])
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            answer = await reader.read()
            assert answer.startswith(b"HTTP/1.1 200 OK") and answer.endswith(b"fine\n")
            writer.close()

    caplog.set_level(logging.CRITICAL, "tautline")
    run(main())


def test_origins(run):
    async def main():
        async with serve(origins=["https://good.example", None]) as server:
            await (await tautline.connect(uri(server))).close()
            await (await tautline.connect(uri(server), origin="https://good.example")).close()
            with pytest.raises(tautline.InvalidStatus) as raised:
                await tautline.connect(uri(server), origin="https://bad.example")
            assert raised.value.response.status_code == 403

    run(main())


def test_origins_below_a_name(run):
    async def main():
        async with serve(origins=["https://*.example.org", "http://localhost:80"]) as server:
            for origin in ("https://a.b.example.org", "HTTPS://A.example.org:443", "http://localhost"):
                await (await tautline.connect(uri(server), origin=origin)).close()
            for origin in (None, "https://example.org", "https://evil-example.org", "http://localhost:8080"):
                with pytest.raises(tautline.InvalidStatus):
                    await tautline.connect(uri(server), origin=origin)
        async with serve(origins=["*"]) as server:
            for origin in (None, "https://any.example"):
                await (await tautline.connect(uri(server), origin=origin)).close()

    run(main())


@pytest.mark.parametrize(
    ("origin", "remedy"),
    [
        ("good.example", "https://good.example"),
        ("https://good.example/path", "https://good.example"),
        ("wss://good.example", "https://good.example"),
        ("https://a.example,https://b.example", "each origin on its own"),
        ("https://a.*.example", "https://\\*.example.org"),
        ("https://b\u00fccher.example", "xn--"),
        ("https://*.127.0.0.1", "https://\\*.example.org"),
    ],
)
def test_origins_that_no_browser_sends_are_refused(origin, remedy):
    with pytest.raises(ValueError, match=remedy):
        serve(origins=[origin])


def test_basic_auth(run):
    async def main():
        hook = tautline.basic_auth("realm", credentials=("ada", "secret"))
        async with serve(process_request=hook) as server:
            target = uri(server)
            await (await tautline.connect(target.replace("ws://", "ws://ada:secret@"))).close()
            with pytest.raises(tautline.InvalidStatus) as raised:
                await tautline.connect(target.replace("ws://", "ws://ada:wrong@"))
            assert raised.value.response.status_code == 401

    run(main())


def test_the_ends_of_connections(run, caplog):
    async def main():
        async def handler(ws):
            what = ws.request.path
            if what == "/crash":
                raise RuntimeError("boom")
            if what == "/code":
                await ws.close(4000, "because")
            if what == "/wait":
                await ws.wait_closed()

        async with serve(handler, max_size=1000) as server:
            target = uri(server)

            async def end_of(path):
                async with tautline.connect(target + path) as ws:
                    with pytest.raises(tautline.ConnectionClosed) as raised:
                        await ws.recv()
                    with pytest.raises(tautline.ConnectionClosed):
                        await ws.send("late")
                    return raised.value

            ok = await end_of("return")
            assert isinstance(ok, tautline.ConnectionClosedOK)
            assert str(ok) == "received 1000 (OK); then sent 1000 (OK)"
            assert (await end_of("crash")).rcvd.code == 1011
            code = await end_of("code")
            assert (code.rcvd.code, code.rcvd.reason, code.rcvd_then_sent) == (4000, "because", True)
            async with tautline.connect(target + "wait") as ws:
                await ws.send(bytes(1001))
                with pytest.raises(tautline.ConnectionClosedError) as raised:
                    await ws.recv()
                assert raised.value.rcvd.code == 1009
            ws = await tautline.connect(target + "wait")
        with pytest.raises(tautline.ConnectionClosedOK) as raised:
            await ws.recv()
        assert raised.value.rcvd.code == 1001

    caplog.set_level(logging.CRITICAL, "tautline")
    run(main())


def test_clients_reconnect(run):
    async def main():
        seen = []

        async def handler(ws):
            await ws.send(str(len(seen)))
            await ws.close(1012 if len(seen) < 2 else 1000)

        async with serve(handler) as server:
            delays = lambda: iter(lambda: 0.01, None)
            clients = tautline.connect(
                uri(server),
                reconnect_delays=delays,
                process_exception=lambda exc: None if isinstance(exc, tautline.ConnectionClosedError) else exc,
            )
            async for ws in clients:
                seen.append(await ws.recv())
                if len(seen) == 4:
                    break
                with_end = await asyncio.gather(ws.recv(), return_exceptions=True)
                assert isinstance(with_end[0], tautline.ConnectionClosed)
            assert seen == ["0", "1", "2", "3"]

    run(main())


def test_broadcast(run):
    async def main():
        async with serve(lambda ws: ws.wait_closed()) as server:
            clients = [await tautline.connect(uri(server)) for _ in range(20)]
            while len(server.connections) < 20:
                await asyncio.sleep(0)
            tautline.broadcast(server.connections, "news")
            assert [await ws.recv() for ws in clients] == ["news"] * 20
            for ws in clients:
                await ws.close()

    run(main())


def test_pings_and_keepalive(run):
    async def main():
        async with serve(ping_interval=0.05, ping_timeout=30) as server:
            async with tautline.connect(uri(server)) as ws:
                latency = await (await ws.ping())
                assert 0 < latency == ws.latency
                first, second = await ws.ping(b"1"), await ws.ping("2")
                await asyncio.gather(first, second)
                pong = await ws.ping(b"end")
                await ws.close()
                # It has its pong, or the end of the connection.
                await asyncio.gather(pong, return_exceptions=True)

    run(main())


@pytest.mark.parametrize("loops", [0, 1, 2])
def test_servers_share_a_port_only_if_both_say_so(run, loops):
    async def work():
        async with tautline.serve(echo, "127.0.0.1", 0, loops=loops, reuse_port=True) as server:
            port = server.sockets[0].getsockname()[1]
            with pytest.raises(OSError, match="in use"):
                await tautline.serve(echo, "127.0.0.1", port, loops=loops)
            async with tautline.serve(echo, "127.0.0.1", port, loops=loops, reuse_port=True):
                for _ in range(20):
                    async with tautline.connect(uri(server)) as ws:
                        await ws.send("x")
                        assert await ws.recv() == "x"

    run(work())


@pytest.mark.parametrize("loops", [0, 1])
def test_keepalive_sets_the_latency_of_both_ends(run, loops):
    async def main():
        servers = []

        async def handler(ws):
            servers.append(ws)
            async for _ in ws:
                pass

        async with tautline.serve(handler, "localhost", 0, loops=loops, ping_interval=0.05) as server:
            async with tautline.connect(uri(server), ping_interval=0.05) as ws:
                # No message keeps the pings away, or takes their place.
                while not (ws.latency and servers and servers[0].latency):
                    await ws.send("hello")
                    await asyncio.sleep(0.01)
                assert 0 < ws.latency < 60 and 0 < servers[0].latency < 60
            async with tautline.connect(uri(server), ping_interval=None) as ws:
                await asyncio.sleep(0.2)
                assert ws.latency == 0

    run(main())


def test_a_program_that_takes_no_messages_keeps_its_connection(run):
    async def main():
        async def flood(ws):
            for _ in range(100):
                await ws.send("x")
            await ws.wait_closed()

        async with serve(flood, ping_interval=None) as server:
            async with tautline.connect(uri(server), max_queue=4, ping_interval=0.05, ping_timeout=0.1) as ws:
                # The pong lies behind messages that wait.
                await asyncio.sleep(0.6)
                assert [await ws.recv() for _ in range(100)] == ["x"] * 100

    run(main())


def test_bad_use_ends_in_an_exception(run, certificates):
    async def main():
        async with serve(max_size=None) as server:
            target = uri(server)
            async with tautline.connect(target) as ws:
                for wrong in (None, 1, 1.5, {"a": 1}, [1], object()):
                    with pytest.raises(TypeError):
                        await ws.send(wrong)
                with pytest.raises(ValueError):
                    await ws.send(b"\xff", text=True)
                with pytest.raises(ValueError):
                    await ws.ping(bytes(126))
                with pytest.raises(ValueError):
                    await ws.close(1005)
                with pytest.raises(ValueError):
                    await ws.close(1000, "x" * 124)
                waiting = asyncio.create_task(ws.recv())
                await asyncio.sleep(0)
                with pytest.raises(tautline.ConcurrencyError):
                    await ws.recv()
                waiting.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await waiting
                await ws.send("still works")
                assert await ws.recv() == "still works"
                with pytest.raises(asyncio.TimeoutError):
                    await asyncio.wait_for(ws.recv(), 0.01)
                await ws.send("and again")
                assert await ws.recv() == "and again"
            for bad in ("http://localhost/", "ws:///", "ws://localhost/#x"):
                with pytest.raises(tautline.InvalidURI):
                    tautline.connect(bad)
            with pytest.raises(ValueError):
                tautline.connect(target, compression="gzip")
            with pytest.raises(ValueError):
                tautline.connect(target, max_queue=(1, 2))
            with pytest.raises(TypeError):
                tautline.serve(echo, "localhost", 0, sock=None, no_such_argument=1)
            import ssl

            with pytest.raises(TypeError):
                tautline.serve(echo, "localhost", 0, ssl=ssl.create_default_context(ssl.Purpose.CLIENT_AUTH))
            with pytest.raises(OSError):
                async with tautline.serve(echo, "127.0.0.1", server.sockets[0].getsockname()[1]):
                    pass
        with pytest.raises(OSError):
            await tautline.connect(target)

    run(main())


def test_an_untrusted_certificate_is_rejected(run, server_tls):
    async def main():
        import ssl

        async with serve(ssl=server_tls) as server:
            with pytest.raises(ssl.SSLError):
                await tautline.connect(uri(server, "wss"))

    run(main())


@pytest.mark.parametrize("key", ["ec", "rsa"])
def test_a_context_of_the_module_ssl_with_a_client_certificate_is_refused(run, certificates, tmp_path, key):
    if key == "ec":
        pair = (certificates / "cert.pem", certificates / "key.pem")
    else:
        pair = (tmp_path / "cert.pem", tmp_path / "key.pem")
        openssl(
            "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=client",
            "-keyout", str(pair[1]), "-out", str(pair[0]),
        )

    async def main():
        context = ssl.create_default_context(cafile=certificates / "ca.pem")
        context.load_cert_chain(*pair)
        before = (context.verify_mode, context.check_hostname, context.options)
        with pytest.raises(TypeError, match="tautline.tls.SSLContext"):
            await tautline.connect("wss://localhost:1/", ssl=context)
        with pytest.raises(TypeError, match="tautline.tls.SSLContext"):
            tautline.sync.connect("wss://localhost:1/", ssl=context)
        assert (context.verify_mode, context.check_hostname, context.options) == before
        with pytest.raises(OSError):
            await tautline.connect("wss://localhost:1/", ssl=ssl.create_default_context())

    run(main())


def test_a_certificate_that_is_its_own_authority_can_be_trusted(run, tmp_path):
    import ssl

    import tautline.tls

    cert, key = str(tmp_path / "cert.pem"), str(tmp_path / "key.pem")
    openssl(
        *("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "30"),
        *("-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"),
        *("-addext", "basicConstraints=critical,CA:FALSE", "-out", cert, "-keyout", key),
    )
    context = tautline.tls.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)

    async def main():
        async with serve(ssl=context) as server:
            target = uri(server, "wss")
            trusting = tautline.tls.create_default_context(cafile=cert)
            async with tautline.connect(target, ssl=trusting) as ws:
                await ws.send("x")
                assert await ws.recv() == "x"
            # The module ssl gives only authorities away, so a foreign context says how to make one of ours.
            with pytest.raises(ValueError, match="tautline.tls.create_default_context"):
                await tautline.connect(target, ssl=ssl.create_default_context(cafile=cert))

    run(main())


def test_context_variables_stay_with_their_task(run):
    variable = contextvars.ContextVar("variable")

    async def handler(ws):
        variable.set(id(ws))
        async for message in ws:
            assert variable.get() == id(ws)
            await ws.send(message)

    async def main():
        async with serve(handler) as server:
            clients = [await tautline.connect(uri(server)) for _ in range(10)]
            for _ in range(20):
                await asyncio.gather(*(ws.send("x") for ws in clients))
                assert await asyncio.gather(*(ws.recv() for ws in clients)) == ["x"] * 10
            await asyncio.gather(*(ws.close() for ws in clients))

    run(main())


def test_connections_and_servers_are_collected(run):
    async def main():
        async with serve() as server:
            ws = await tautline.connect(uri(server))
            await ws.close()
            seen = weakref.ref(ws)
            del ws
            gc.collect()
            assert seen() is None

    run(main())


@pytest.mark.parametrize("loops", [0, 1])
@pytest.mark.parametrize("answers", [False, True])
def test_a_keepalive_timeout_has_its_close_code(run, loops, answers):
    async def main():
        ended = asyncio.get_running_loop().create_future()

        async def handler(ws):
            try:
                await ws.recv()
            except tautline.ConnectionClosedError as exc:
                ended.set_result((exc, ws.close_code))

        async with serve(handler, ping_interval=0.1, ping_timeout=0.1, close_timeout=0.2, loops=loops) as server:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.sockets[0].getsockname()[1])
            writer.write(
                b"GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
            )
            await reader.readuntil(b"keepalive ping timeout")
            if answers:
                writer.write(b"\x88\x82\0\0\0\0\x03\xf3")
            exc, code = await ended
            assert (exc.sent.code, exc.sent.reason) == (1011, "keepalive ping timeout")
            assert "sent 1011 (internal error) keepalive ping timeout" in str(exc)
            if answers:
                assert (exc.rcvd.code, exc.rcvd_then_sent, code) == (1011, False, 1011)
            else:
                assert (exc.rcvd, code) == (None, 1006)
            writer.close()

    run(main())


def test_silent_peers_are_noticed(run):
    async def main():
        async with serve(ping_interval=0.1, ping_timeout=0.2) as server:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.sockets[0].getsockname()[1])
            writer.write(
                b"GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
            )
            # Answers no ping, so the server closes with 1011.
            got = await reader.read()
            assert got[got.index(b"\r\n\r\n") + 4] == 0x89
            assert got.endswith(b"\x88\x18\x03\xf3keepalive ping timeout")
            writer.close()

    run(main())


UPGRADE = (
    b"GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
)


@pytest.mark.parametrize("loops", [0, 1])
@pytest.mark.parametrize(
    "option, before, header, client",
    [
        ("proxy_protocol_from", b"PROXY TCP4 192.0.2.7 198.51.100.1 4711 443\r\n", b"", ("192.0.2.7", 4711)),
        ("forwarded_from", b"", b"X-Forwarded-For: 198.51.100.1, 192.0.2.7\r\n", ("192.0.2.7", 0)),
    ],
)
def test_the_client_behind_a_proxy_is_the_remote_address(run, loops, option, before, header, client):
    async def main():
        seen = asyncio.get_running_loop().create_future()

        async def handler(ws):
            seen.set_result((ws.remote_address, ws.direct_address))

        async with serve(handler, loops=loops, **{option: ["127.0.0.0/8"]}) as server:
            reader, writer = await asyncio.open_connection("127.0.0.1", server.sockets[0].getsockname()[1])
            writer.write(before + UPGRADE + header + b"\r\n")
            assert await asyncio.wait_for(seen, 30) == (client, writer.get_extra_info("sockname"))
            assert (await reader.readline()).startswith(b"HTTP/1.1 101")
            writer.close()

    run(main())


def test_networks_of_proxies_are_checked():
    with pytest.raises(TypeError, match="must be lists"):
        serve(proxy_protocol_from="10.0.0.0/8")

    async def main():
        with pytest.raises(ValueError, match="10.0.0.0/8"):
            await serve(forwarded_from=["10.0.0.1/8"])

    asyncio.run(main())
