"""The callback interface and the blocking client."""

import asyncio
import logging
import subprocess
import sys
import threading
import tracemalloc

import pytest
from conftest import echo, uri

import tautline
import tautline.sync
from tautline.callbacks import WSListener, WSMsgType, ws_connect, ws_create_server


class Echo(WSListener):
    def on_ws_frame(self, transport, frame):
        transport.send(frame.msg_type, frame.get_payload_as_memoryview())


def test_callbacks(run, server_tls, client_tls):
    class Client(WSListener):
        def __init__(self):
            self.seen, self.done = [], asyncio.get_running_loop().create_future()

        def on_ws_connected(self, transport):
            transport.send(WSMsgType.TEXT, "hello")
            transport.send(WSMsgType.BINARY, b"bytes")

        def on_ws_frame(self, transport, frame):
            payload = frame.get_payload_as_bytes()
            self.seen.append((frame.msg_type, payload))
            if len(self.seen) == 2:
                transport.send_close()

        def on_ws_disconnected(self, transport):
            self.done.set_result(None)

    async def main():
        server = await ws_create_server(lambda request: Echo(), "127.0.0.1", 0, ssl=server_tls)
        transport, client = await ws_connect(Client, uri(server, "wss"), ssl_context=client_tls)
        await client.done
        assert client.seen == [(1, b"hello"), (2, b"bytes")]
        with pytest.raises(ValueError):
            transport.send(WSMsgType.CLOSE, b"")
        server.close()
        await server.wait_closed()

    run(main())


def test_a_listener_that_sends_too_much_is_told(run):
    class Flood(WSListener):
        paused = resumed = 0

        def on_ws_connected(self, transport):
            for _ in range(300):
                transport.send(WSMsgType.BINARY, bytes(100_000))

        def pause_writing(self):
            Flood.paused += 1

        def resume_writing(self):
            Flood.resumed += 1

    async def main():
        server = await ws_create_server(lambda request: Flood(), "127.0.0.1", 0)
        async with tautline.connect(uri(server)) as ws:
            for _ in range(300):
                assert len(await ws.recv()) == 100_000
            while not Flood.resumed:
                await asyncio.sleep(0.01)
        assert Flood.paused >= 1
        server.close()
        await server.wait_closed()

    run(main())


async def raw_client(server):
    """A client that has shaken hands and sends frames by itself."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.sockets[0].getsockname()[1])
    writer.write(
        b"GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
    )
    await reader.readuntil(b"\r\n\r\n")
    return reader, writer


def test_a_message_that_the_kernel_takes_does_not_pause_its_listener(run):
    pauses = []

    class Counted(Echo):
        def pause_writing(self):
            pauses.append(1)

    async def main():
        server = await ws_create_server(lambda _: Counted(), "127.0.0.1", 0)
        clients = [await raw_client(server) for _ in range(16)]
        # More than `write_limit`, and less than the kernel has room for.
        size = 40_000
        for _ in range(5):
            for _, writer in clients:
                writer.write(b"\x82\xfe" + size.to_bytes(2, "big") + bytes(4 + size))
            for reader, _ in clients:
                await reader.readexactly(4 + size)
        assert len(pauses) < 8, len(pauses)
        for _, writer in clients:
            writer.close()
        server.close()
        await server.wait_closed()

    run(main())


def test_large_messages_of_many_connections_are_objects_a_few_at_a_time(run):
    size, clients, held = 32_000, 64, []

    class Measured(WSListener):
        def on_ws_frame(self, transport, frame):
            held.append(tracemalloc.get_traced_memory()[0])

    async def main():
        server = await ws_create_server(lambda _: Measured(), "127.0.0.1", 0)
        writers = [(await raw_client(server))[1] for _ in range(clients)]
        frame = b"\x82\xfe" + size.to_bytes(2, "big") + bytes(4 + size)
        tracemalloc.start()
        try:
            before = tracemalloc.get_traced_memory()[0]
            # Without a wait, so that the messages of all clients are there at the server's next turn.
            for writer in writers:
                writer.write(frame)
            while len(held) < clients:
                await asyncio.sleep(0.01)
        finally:
            tracemalloc.stop()
        assert max(held) - before < clients * size // 2, max(held) - before
        for writer in writers:
            writer.close()
        server.close()
        await server.wait_closed()

    run(main())


def test_bad_use_of_a_listeners_transport_ends_in_an_exception(run):
    class Client(WSListener):
        def __init__(self):
            self.frames, self.done = asyncio.Queue(), asyncio.get_running_loop().create_future()

        def on_ws_frame(self, transport, frame):
            self.frames.put_nowait(frame.get_payload_as_bytes())

        def on_ws_disconnected(self, transport):
            self.done.set_result(None)

    async def main():
        server = await ws_create_server(lambda request: Echo(), "127.0.0.1", 0)
        transport, client = await ws_connect(Client, uri(server))
        for wrong in (None, 1, 1.5, ["x"], object()):
            with pytest.raises(TypeError):
                transport.send(WSMsgType.BINARY, wrong)
        with pytest.raises(ValueError):
            transport.send(WSMsgType.TEXT, b"\xff")
        with pytest.raises(ValueError):
            transport.send_ping(bytes(126))
        for kind in (None, 0, 3, WSMsgType.PONG):
            with pytest.raises(ValueError):
                transport.send(kind, b"x")
        transport.send(WSMsgType.BINARY, b"still works")
        assert await client.frames.get() == b"still works"
        transport.send_close()
        transport.disconnect()
        await client.done
        # As with picows, what is sent after the end is dropped.
        transport.send(WSMsgType.BINARY, b"late")
        transport.send_ping(b"late")
        transport.disconnect()
        await transport.wait_disconnected()
        with pytest.raises(TypeError):
            transport.send(WSMsgType.BINARY, None)
        server.close()
        await server.wait_closed()

    run(main())


@pytest.mark.parametrize("loops", [0, 1])
def test_listeners_that_raise_harm_no_other_connection(run, caplog, monkeypatch, loops):
    def boom(*_):
        raise RuntimeError("boom")

    def made(request):
        if request.path == "/factory":
            boom()
        listener = Echo()
        if request.path != "/":
            setattr(listener, request.path[1:], boom)
        return listener

    async def main():
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        server = await ws_create_server(made, "127.0.0.1", 0, loops=loops)
        async with tautline.connect(uri(server)) as other:
            for where in ("factory", "on_ws_connected"):
                async with tautline.connect(uri(server) + where) as ws:
                    with pytest.raises(tautline.ConnectionClosedError) as raised:
                        await ws.recv()
                    assert raised.value.rcvd.code == 1011
            for where in ("on_ws_frame", "on_ws_disconnected"):
                async with tautline.connect(uri(server) + where) as ws:
                    await ws.send("x")
                    if where == "on_ws_disconnected":
                        assert await ws.recv() == "x"
            await other.send("fine")
            assert await other.recv() == "fine"
        server.close()
        await server.wait_closed()

    caplog.set_level(logging.CRITICAL, "tautline")
    monkeypatch.setattr(sys, "unraisablehook", lambda _: None)
    run(main())


@pytest.fixture
def server(server_tls):
    """A server in an event loop of a thread of its own."""
    started, stop = threading.Event(), None
    found = {}

    async def main():
        nonlocal stop
        stop = asyncio.Event()
        async with tautline.serve(echo, "127.0.0.1", 0, ssl=server_tls) as server:
            found["server"], found["loop"] = server, asyncio.get_running_loop()
            started.set()
            await stop.wait()

    thread = threading.Thread(target=lambda: asyncio.run(main()))
    thread.start()
    started.wait()
    yield found["server"]
    found["loop"].call_soon_threadsafe(stop.set)
    thread.join()


def test_blocking_client(server, client_tls):
    with tautline.sync.connect(uri(server, "wss"), ssl=client_tls) as ws:
        for message in ("hello", b"bytes", "x" * 200_000):
            ws.send(message)
            assert ws.recv(timeout=60) == message
        with pytest.raises(TimeoutError):
            ws.recv(timeout=0.01)
        pong = ws.ping()
        ws.send("after the ping")
        assert ws.recv(timeout=60) == "after the ping" and pong.is_set()
        with pytest.raises(TypeError):
            ws.send(1)
    assert ws.state is tautline.State.CLOSED
    with pytest.raises(tautline.ConnectionClosedOK):
        ws.recv()
    with pytest.raises(tautline.ConnectionClosedOK):
        ws.send("late")


def test_bad_use_of_a_blocking_client_ends_in_an_exception(server, client_tls):
    for bad in ("http://localhost/", "ws:///", ""):
        with pytest.raises(tautline.InvalidURI):
            tautline.sync.connect(bad)
    with pytest.raises(ValueError):
        tautline.sync.connect(uri(server), ssl=client_tls)
    with tautline.sync.connect(uri(server, "wss"), ssl=client_tls) as ws:
        for wrong in (None, 1, ["x"], object()):
            with pytest.raises(TypeError):
                ws.send(wrong)
        with pytest.raises(ValueError):
            ws.send(b"\xff", text=True)
        with pytest.raises(ValueError):
            ws.ping(bytes(126))
        for code, reason in ((1005, ""), (1000, "x" * 124)):
            with pytest.raises(ValueError):
                ws.close(code, reason)
        # One thread receives, and a second one is refused.
        heard = []
        thread = threading.Thread(target=lambda: heard.append(ws.recv(timeout=60)))
        thread.start()
        while not ws._receiving.locked():
            pass
        with pytest.raises(tautline.ConcurrencyError):
            ws.recv(timeout=60)
        ws.send("for the thread")
        thread.join()
        assert heard == ["for the thread"]
    for late in (ws.recv, ws.ping, lambda: ws.send("late")):
        with pytest.raises(tautline.ConnectionClosedOK):
            late()
    ws.close()


def test_threads_share_a_blocking_client(server, client_tls):
    with tautline.sync.connect(uri(server, "wss"), ssl=client_tls) as ws:
        threads = [threading.Thread(target=lambda: [ws.send("x" * 1000) for _ in range(200)]) for _ in range(4)]
        for thread in threads:
            thread.start()
        assert all(len(ws.recv(timeout=60)) == 1000 for _ in range(800))
        for thread in threads:
            thread.join()


def test_memory_of_large_messages_is_used_again():
    # In a process of its own, whose allocator has not learnt from other tests.
    script = """if True:
        import asyncio, resource, tautline
        async def main():
            server = await tautline.serve(lambda ws: None, "127.0.0.1", 0)
            faults = []
            for _ in range(20):
                before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
                batch = [b"x" * (60_000 + n) for n in range(100)]
                del batch
                faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
            # The first batch faults in about 1,500 pages.
            assert sum(faults[1:]) < faults[0], faults
            server.close()
            await server.wait_closed()
        asyncio.run(main())
    """
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=100)
    assert ran.returncode == 0, ran.stderr


def test_a_server_that_is_not_there():
    with pytest.raises(OSError):
        tautline.sync.connect("ws://127.0.0.1:1/")
