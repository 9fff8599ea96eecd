"""TLS under asyncio: the module's own transports, its context under asyncio's, and OpenSSL, each with each."""

import asyncio
import socket
import ssl
import threading

import pytest

import tautline.tls

WAYS = ["own", "context", "openssl"]


def loops():
    """The event loops to test with."""
    yield pytest.param(asyncio.new_event_loop, id="asyncio")
    try:
        import uvloop
    except ImportError:
        yield pytest.param(None, id="uvloop", marks=pytest.mark.skip("uvloop is not installed"))
    else:
        yield pytest.param(uvloop.new_event_loop, id="uvloop")


@pytest.fixture(params=loops())
def run_on(request):
    """Runs a coroutine in an event loop of each kind, for at most a minute. Errors that only a log would show fail."""

    def run_on(work, expected_reports=0):
        loop = request.param()
        reports = []
        loop.set_exception_handler(lambda _, context: reports.append(context))
        try:
            result = loop.run_until_complete(asyncio.wait_for(work, 60))
            assert len(reports) == expected_reports, reports
            return result
        finally:
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.close()

    return run_on


@pytest.fixture(scope="session")
def contexts(certificates):
    """The contexts of a server and of a client, by the way of connecting."""
    cert, key, ca = (str(certificates / name) for name in ("cert.pem", "key.pem", "ca.pem"))

    def contexts(way):
        make = ssl.SSLContext if way == "openssl" else tautline.tls.SSLContext
        server, client = make(ssl.PROTOCOL_TLS_SERVER), make(ssl.PROTOCOL_TLS_CLIENT)
        server.load_cert_chain(cert, key)
        client.load_verify_locations(ca)
        return server, client

    return contexts


async def start_server(way, handler, context, **kwargs):
    start = tautline.tls.start_server if way == "own" else asyncio.start_server
    return await start(handler, "127.0.0.1", 0, ssl=context, **kwargs)


async def connect(way, server, context, **kwargs):
    open_connection = tautline.tls.open_connection if way == "own" else asyncio.open_connection
    kwargs.setdefault("server_hostname", "localhost")
    return await open_connection("127.0.0.1", server.sockets[0].getsockname()[1], ssl=context, **kwargs)


async def echo(reader, writer):
    try:
        while data := await reader.read(1 << 18):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()


async def close(server, *writers):
    for writer in writers:
        writer.close()
        await writer.wait_closed()
    server.close()
    await server.wait_closed()


@pytest.mark.parametrize("server_way", WAYS)
@pytest.mark.parametrize("client_way", WAYS)
def test_every_byte_returns(run_on, contexts, server_way, client_way):
    async def main():
        server = await start_server(server_way, echo, contexts(server_way)[0])
        reader, writer = await connect(client_way, server, contexts(client_way)[1])
        for size in (1, 16_384, 16_385, 300_000):
            data = bytes(i * 7 % 251 for i in range(1000)) * (size // 1000 + 1)
            writer.write(data[:size])
            assert await reader.readexactly(size) == data[:size]
        # Both directions at once, and more than all buffers hold.
        data = bytes(range(256)) * 40_000

        async def send():
            for at in range(0, len(data), 100_000):
                writer.write(memoryview(data)[at : at + 100_000])
                await writer.drain()

        _, received = await asyncio.gather(send(), reader.readexactly(len(data)))
        assert received == data
        info = writer.get_extra_info("ssl_object")
        assert info.version() == "TLSv1.3" and info.cipher()[0].startswith("TLS_")
        assert writer.get_extra_info("peername")[1] == server.sockets[0].getsockname()[1]
        assert info.getpeercert(binary_form=True)
        await close(server, writer)

    run_on(main())


@pytest.mark.parametrize("way", WAYS)
def test_an_end_is_seen_by_the_other_side(run_on, contexts, way):
    async def main():
        async def handler(reader, writer):
            writer.write(b"bye")
            writer.close()

        server = await start_server(way, handler, contexts(way)[0])
        reader, writer = await connect(way, server, contexts(way)[1])
        assert await reader.read() == b"bye"
        await close(server, writer)

    run_on(main())


def test_alpn_and_resumption(run_on, contexts):
    async def main():
        server_context, client_context = contexts("own")
        server_context.set_alpn_protocols(["h2", "http/1.1"])
        client_context.set_alpn_protocols(["http/1.1"])
        server = await start_server("own", echo, server_context)
        reused = []
        for _ in range(2):
            reader, writer = await connect("own", server, client_context)
            writer.write(b"x")
            assert await reader.readexactly(1) == b"x"
            tls = writer.get_extra_info("ssl_object")
            assert tls.selected_alpn_protocol() == "http/1.1"
            reused.append(tls.session_reused)
            writer.close()
            await writer.wait_closed()
        assert reused == [False, True]
        await close(server)

    run_on(main())


@pytest.mark.parametrize("way", ["own", "context"])
def test_a_server_that_is_not_trusted_is_refused(run_on, contexts, way):
    async def main():
        server_context, trusting = contexts(way)
        server = await start_server(way, echo, server_context)
        stranger = tautline.tls.create_default_context()
        with pytest.raises(ssl.SSLCertVerificationError, match="(?i)certificate"):
            await connect(way, server, stranger)
        with pytest.raises(ssl.SSLCertVerificationError):
            await connect(way, server, trusting, server_hostname="example.com")
        reader, writer = await connect(way, server, trusting)
        writer.write(b"still serves")
        assert await reader.readexactly(12) == b"still serves"
        await close(server, writer)

    run_on(main())


def test_peers_that_speak_no_tls_or_nothing_leave_the_server_alone(run_on, contexts):
    async def main():
        server_context, client_context = contexts("own")
        server = await start_server("own", echo, server_context, ssl_handshake_timeout=0.5)
        address = server.sockets[0].getsockname()
        garbage = await asyncio.open_connection(*address)
        garbage[1].write(b"GET / HTTP/1.1\r\n\r\n")
        silent = await asyncio.open_connection(*address)
        # An alert, and the ends.
        assert (await garbage[0].read())[:1] == b"\x15"
        assert await silent[0].read() == b""
        early = await asyncio.open_connection(*address)
        early[1].close()
        reader, writer = await connect("own", server, client_context)
        writer.write(b"x")
        assert await reader.readexactly(1) == b"x"
        for _, other in (garbage, silent):
            other.close()
        await close(server, writer)

    run_on(main())


def test_data_that_is_cut_off_is_an_error(run_on, contexts):
    async def main():
        lost = asyncio.get_running_loop().create_future()

        class Client(asyncio.Protocol):
            def connection_lost(self, exc):
                lost.set_result(exc)

        async def cuts(reader, writer):
            await reader.read(1)
            writer.transport.abort()

        server = await start_server("openssl", cuts, contexts("openssl")[0])
        transport, _ = await tautline.tls.create_connection(
            Client, *server.sockets[0].getsockname(), ssl=contexts("own")[1], server_hostname="localhost"
        )
        transport.write(b"x")
        exc = await lost
        assert isinstance(exc, (ssl.SSLError, ConnectionResetError)), exc
        await close(server)

    run_on(main())


def test_both_directions_have_backpressure(run_on, contexts):
    async def main():
        events = []

        class Client(asyncio.Protocol):
            def pause_writing(self):
                events.append("pause")

            def resume_writing(self):
                events.append("resume")
                resumed.set_result(None)

        resumed = asyncio.get_running_loop().create_future()
        goes_on = asyncio.Event()

        async def slow(reader, writer):
            writer.transport.pause_reading()
            assert not writer.transport.is_reading()
            await goes_on.wait()
            writer.transport.resume_reading()
            while await reader.read(1 << 18):
                pass
            writer.close()

        server = await start_server("own", slow, contexts("own")[0])
        transport, _ = await tautline.tls.create_connection(
            Client, *server.sockets[0].getsockname(), ssl=contexts("own")[1], server_hostname="localhost"
        )
        written = 0
        while not events:
            transport.write(bytes(1 << 20))
            written += 1
            assert written < 200
            await asyncio.sleep(0)
        assert transport.get_write_buffer_size() > 0
        goes_on.set()
        await resumed
        assert events == ["pause", "resume"]
        transport.close()
        await close(server)

    run_on(main())


def test_a_buffered_protocol_gets_the_data_in_its_own_memory(run_on, contexts):
    async def main():
        done = asyncio.get_running_loop().create_future()

        class Client(asyncio.BufferedProtocol):
            def __init__(self):
                self.memory, self.got = bytearray(100), bytearray()

            def get_buffer(self, sizehint):
                return memoryview(self.memory)

            def buffer_updated(self, nbytes):
                self.got += self.memory[:nbytes]
                if len(self.got) == 50_000:
                    done.set_result(bytes(self.got))

        server = await start_server("own", echo, contexts("own")[0])
        for module in (tautline.tls, asyncio.get_running_loop()):
            done = asyncio.get_running_loop().create_future()
            transport, _ = await module.create_connection(
                Client, *server.sockets[0].getsockname(), ssl=contexts("own")[1], server_hostname="localhost"
            )
            data = bytes(range(250)) * 200
            transport.write(data)
            assert await done == data
            transport.close()
        await close(server)

    run_on(main())


def test_a_protocol_that_raises_loses_its_connection_alone(run_on, contexts):
    async def main():
        class Bad(asyncio.Protocol):
            def data_received(self, data):
                raise RuntimeError("boom")

        server = await start_server("own", echo, contexts("own")[0])
        _, other = await connect("own", server, contexts("own")[1])
        address = server.sockets[0].getsockname()
        bad, _ = await tautline.tls.create_connection(
            Bad, *address, ssl=contexts("own")[1], server_hostname="localhost"
        )
        bad.write(b"x")
        while not bad.is_closing():
            await asyncio.sleep(0.01)
        other.write(b"fine")
        await close(server, other)

    # The exception is reported, once.
    run_on(main(), expected_reports=1)


def test_bad_use_ends_in_an_exception(run_on, contexts):
    async def main():
        server_context, client_context = contexts("own")
        server = await start_server("own", echo, server_context)
        address = server.sockets[0].getsockname()
        create = tautline.tls.create_connection
        with pytest.raises(TypeError):
            await create(asyncio.Protocol, *address, ssl=ssl.create_default_context())
        with pytest.raises(TypeError):
            await create(asyncio.Protocol, *address, ssl=None)
        with pytest.raises(ValueError):
            await create(asyncio.Protocol, ssl=client_context)
        with pytest.raises(ValueError):
            await tautline.tls.create_server(
                asyncio.Protocol, "127.0.0.1", 0, ssl=tautline.tls.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            )
        transport, _ = await create(asyncio.Protocol, *address, ssl=client_context, server_hostname="localhost")
        for wrong in (None, 1, "text", [1]):
            with pytest.raises(TypeError):
                transport.write(wrong or wrong.__class__())
        with pytest.raises(NotImplementedError):
            transport.write_eof()
        with pytest.raises(ValueError):
            transport.set_write_buffer_limits(high=1, low=2)
        session = transport._session
        with pytest.raises(RuntimeError):
            session.attach(socket.socket())
        transport.close()
        transport.close()
        with pytest.raises(RuntimeError):
            transport.write(b"late")
        transport.abort()
        await asyncio.sleep(0)
        with pytest.raises((RuntimeError, OSError)):
            session.send(b"later")
        await close(server)

    run_on(main())


def test_bad_use_of_the_native_session_ends_in_an_exception(contexts):
    session = contexts("own")[0]._session(True, None)
    with pytest.raises(RuntimeError, match="handshake"):
        session.read(1)
    with pytest.raises(RuntimeError, match="handshake"):
        session.write(b"x")
    for wrong in (None, 1, object()):
        with pytest.raises(TypeError):
            session.feed(wrong)
        with pytest.raises(TypeError):
            session.attach(wrong)
    with pytest.raises(OverflowError):
        session.read(-1)
    gone = socket.socket()
    gone.close()
    with pytest.raises(TypeError):
        session.attach(gone)
    with pytest.raises(OSError):
        session.receive()
    session.feed(b"GET / HTTP/1.1\r\n\r\n")
    for _ in range(2):
        with pytest.raises(ssl.SSLError):
            session.handshake()
    with pytest.raises(ValueError):
        contexts("own")[1]._session(False, None)


def test_threads_that_share_a_session_get_an_exception_or_their_turn(contexts):
    server_context, client_context = contexts("own")
    server, client = server_context._session(True, None), client_context._session(False, "localhost")
    done = [False, False]
    while not all(done):
        done[0] = client.handshake()
        server.feed(client.take())
        done[1] = server.handshake()
        client.feed(server.take())
    wrong = []

    def use():
        for _ in range(3000):
            try:
                client.write(bytes(1000))
                client.take()
            except RuntimeError as exc:
                if "thread" not in str(exc):
                    wrong.append(exc)

    threads = [threading.Thread(target=use) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_https_by_aiohttp_over_the_context(run_on, contexts):
    aiohttp = pytest.importorskip("aiohttp")
    from aiohttp import web

    async def main():
        body = bytes(range(256)) * 64

        async def handler(request):
            return web.Response(body=body + await request.read())

        app = web.Application(client_max_size=1 << 24)
        app.router.add_route("*", "/", handler)
        runner = web.AppRunner(app)
        await runner.setup()
        server_context, client_context = contexts("context")
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=server_context)
        await site.start()
        url = f"https://localhost:{runner.addresses[0][1]}/"
        async with aiohttp.ClientSession() as session:
            for _ in range(5):
                async with session.get(url, ssl=client_context) as response:
                    assert await response.read() == body
            async with session.post(url, data=bytes(5_000_000), ssl=client_context) as response:
                assert await response.read() == body + bytes(5_000_000)
            # OpenSSL's client and our server.
            async with session.get(url, ssl=contexts("openssl")[1]) as response:
                assert await response.read() == body
        await runner.cleanup()

    run_on(main())


def test_all_addresses_of_a_host_are_tried(run, contexts):
    async def main():
        loop = asyncio.get_running_loop()
        closed, other, silent = socket.socket(), socket.socket(), socket.socket()
        for one in (closed, other, silent):
            one.bind(("127.0.0.1", 0))
        # The kernel answers nobody while this queue is full.
        silent.listen(0)
        waiting = [socket.socket() for _ in range(3)]
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(silent.getsockname())

        def connect(*addresses):
            async def getaddrinfo(host, port, **options):
                return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", one.getsockname()) for one in addresses]

            loop.getaddrinfo = getaddrinfo
            return tautline.tls.create_connection(asyncio.Protocol, "localhost", 7, ssl=contexts("own")[1])

        server = await start_server("own", lambda reader, writer: writer.close(), contexts("own")[0])
        alive = server.sockets[0]
        for dead in (closed, silent):
            transport, _ = await asyncio.wait_for(connect(dead, alive), 20)
            assert transport.get_extra_info("peername") == alive.getsockname()
            transport.close()
        with pytest.raises(ConnectionRefusedError) as raised:
            await connect(closed, other)
        for one in (closed, other):
            assert str(one.getsockname()[1]) in str(raised.value)
        await close(server)
        for one in (closed, other, silent, *waiting):
            one.close()

    run(main())
