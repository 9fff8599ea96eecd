"""Behaviour of the package websockets that its users rely on, and in which this package once differed."""

import asyncio
import socket
import ssl

import pytest
from conftest import echo, uri

import tautline
import tautline.sync
from tautline.asyncio.server import unix_serve

websockets = pytest.importorskip("websockets")


def test_every_exception_has_its_name_and_its_bases():
    import websockets.exceptions as theirs

    for name in theirs.__all__:
        ours = getattr(tautline, name)
        if name not in ("InvalidMessage", "SecurityError", "ConnectionClosed"):
            bases = [base.__name__ for base in getattr(theirs, name).__mro__ if base.__module__ == theirs.__name__]
            assert set(bases) <= {base.__name__ for base in ours.__mro__}, name


def test_arguments_that_cannot_work_are_refused(run):
    async def main():
        for subprotocols in ("chat", "a,b"):
            with pytest.raises(TypeError, match="must be a list, not a str"):
                tautline.connect("ws://localhost/", subprotocols=subprotocols)
            with pytest.raises(TypeError, match="must be a list, not a str"):
                tautline.serve(echo, "localhost", 0, subprotocols=subprotocols)
        with pytest.raises(ValueError, match="ssl=None is incompatible"):
            tautline.connect("wss://localhost/", ssl=None)
        with pytest.raises(ValueError, match="incompatible with a ws:// URI"):
            tautline.connect("ws://localhost/", ssl=True)
        with pytest.raises(ValueError, match="no path and sock"):
            tautline.unix_connect(None)
        with pytest.raises(ValueError, match="no sock specified"):
            unix_serve(echo, None)
        with socket.socket() as sock:
            for wrong in ({"host": "localhost"}, {"port": 0}, {"path": "/"}):
                with pytest.raises(ValueError, match="and sock can not be specified at the same time"):
                    tautline.serve(echo, sock=sock, **wrong)
        with socket.socket(type=socket.SOCK_DGRAM) as sock:
            sock.bind(("127.0.0.1", 0))
            with pytest.raises(OSError):
                await tautline.serve(echo, sock=sock)
        for wrong in ({}, {"credentials": ("a", "b"), "check_credentials": lambda *_: True}):
            with pytest.raises(ValueError, match="either credentials or check_credentials"):
                tautline.basic_auth(**wrong)
        for wrong in (42, [42], "ab"):
            with pytest.raises(TypeError, match="invalid credentials"):
                tautline.basic_auth(credentials=wrong)

    run(main())


def test_a_clients_request_has_the_host(run):
    async def main():
        async with tautline.serve(echo, "127.0.0.1", 0) as server:
            async with tautline.connect(uri(server)) as ws:
                assert ws.request.headers["Host"] == uri(server).split("/")[2]

    run(main())


def test_a_rejection_has_its_body(run):
    async def main():
        def process_request(ws, request):
            return ws.respond(403, "no entry\n")

        async with tautline.serve(echo, "127.0.0.1", 0, process_request=process_request) as server:
            with pytest.raises(tautline.InvalidStatus) as raised:
                await tautline.connect(uri(server))
            assert (raised.value.response.status_code, raised.value.response.body) == (403, b"no entry\n")

            def blocking():
                with pytest.raises(tautline.InvalidStatus) as raised:
                    tautline.sync.connect(uri(server))
                assert raised.value.response.body == b"no entry\n"

            await asyncio.get_running_loop().run_in_executor(None, blocking)

    run(main())


def test_server_hostname_is_the_name_that_the_certificate_must_have(run, server_tls, client_tls):
    async def main():
        async with tautline.serve(echo, "127.0.0.1", 0, ssl=server_tls) as server:
            port = server.sockets[0].getsockname()[1]
            address = {"host": "127.0.0.1", "port": port, "ssl": client_tls}
            async with tautline.connect("wss://elsewhere.test/", server_hostname="localhost", **address) as ws:
                assert ws.request.headers["Host"] == "elsewhere.test"
                await ws.send("hello")
                assert await ws.recv() == "hello"
            for host in ("localhost", "elsewhere.test"):
                with pytest.raises(ssl.SSLCertVerificationError, match="^certificate verify failed: peer"):
                    await tautline.connect(f"wss://{host}/", server_hostname="elsewhere.test", **address)

            def blocking():
                name = {"ssl": client_tls, "server_hostname": "localhost"}
                with tautline.sync.connect(f"wss://127.0.0.1:{port}/", **name) as ws:
                    ws.send("hello")
                    assert ws.recv() == "hello"

            await asyncio.get_running_loop().run_in_executor(None, blocking)

    run(main())


def test_a_server_knows_its_response_and_has_no_socket_once_closed(run):
    async def main():
        async def tells(ws):
            await ws.send(f"{ws.response.status_code} {ws.response.headers['Server']} {ws.response.headers['Upgrade']}")

        async with tautline.serve(tells, "127.0.0.1", 0, server_header="Neo") as server:
            async with tautline.connect(uri(server)) as ws:
                assert await ws.recv() == "101 Neo websocket"
        assert server.sockets == ()

    run(main())


@pytest.mark.parametrize("loops", [0, 1, 2])
def test_a_server_takes_a_socket_of_the_program(run, loops):
    async def main():
        with socket.socket() as sock:
            # Bound, but without a backlog.
            sock.bind(("127.0.0.1", 0))
            async with tautline.serve(echo, sock=sock, loops=loops) as server:
                assert server.sockets == (sock,)
                for _ in range(4):
                    async with tautline.connect(uri(server)) as ws:
                        await ws.send("hello")
                        assert await ws.recv() == "hello"
            assert sock.fileno() == -1

    run(main())


def test_a_server_starts_when_it_is_told_to(run):
    async def main():
        server = await tautline.serve(echo, "127.0.0.1", 0, start_serving=False)
        assert not server.is_serving() and server.sockets == ()
        await server.start_serving()
        assert server.is_serving()
        async with tautline.connect(uri(server)) as ws:
            await ws.send("hello")
            assert await ws.recv() == "hello"
        server.close()
        await server.wait_closed()
        # One that never started has nothing to close.
        server = await tautline.serve(echo, "127.0.0.1", 0, start_serving=False)
        server.close()
        await server.wait_closed()
        # `serve_forever` starts it.
        server = await tautline.serve(echo, "127.0.0.1", 0, start_serving=False)
        forever = asyncio.ensure_future(server.serve_forever())
        await asyncio.sleep(0)
        assert server.is_serving()
        forever.cancel()
        with pytest.raises(asyncio.CancelledError):
            await forever
        assert not server.is_serving()

    run(main())


def test_process_redirect_decides_about_redirects(run):
    class Never(tautline.connect):
        def process_redirect(self, exc):
            return exc

    async def main():
        def redirect(ws, request):
            response = ws.respond(302, "")
            response.headers["Location"] = "/other"
            return response if request.path == "/" else None

        async with tautline.serve(echo, "127.0.0.1", 0, process_request=redirect) as server:
            async with tautline.connect(uri(server)) as ws:
                assert ws.request.path == "/other"
            with pytest.raises(tautline.InvalidStatus, match="302"):
                await Never(uri(server))

    run(main())


def test_blocking_clients_send_the_credentials_of_the_uri(run):
    async def main():
        async def tells(ws):
            await ws.send(ws.request.headers["Authorization"])

        def ask(where):
            with tautline.sync.connect(where) as ws:
                assert ws.request.headers["Host"] == where.split("/")[2].split("@")[1]
                return ws.recv(timeout=60)

        async with tautline.serve(tells, "127.0.0.1", 0) as server:
            where = uri(server).replace("://", "://alice:se%2Fcret@")
            told = await asyncio.get_running_loop().run_in_executor(None, ask, where)
            assert told == "Basic YWxpY2U6c2UvY3JldA=="

    run(main())


def test_two_tasks_cannot_iterate_at_once(run):
    async def main():
        async with tautline.serve(echo, "127.0.0.1", 0) as server:
            async with tautline.connect(uri(server)) as ws:

                async def first():
                    async for message in ws:
                        return message

                task = asyncio.create_task(first())
                await asyncio.sleep(0.05)
                with pytest.raises(tautline.ConcurrencyError):
                    async for _ in ws:
                        pass
                with pytest.raises(tautline.ConcurrencyError):
                    await ws.recv()
                # Cancelling one lets the other go on, and loses nothing.
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                await ws.send("x")
                assert await asyncio.wait_for(anext_of(ws), 10) == "x"
                waiting = asyncio.create_task(anext_of(ws))
                await asyncio.sleep(0.05)
                await ws.close()
                with pytest.raises(StopAsyncIterationSeen):
                    await waiting

    run(main())


class StopAsyncIterationSeen(Exception):
    pass


async def anext_of(ws):
    async for message in ws:
        return message
    raise StopAsyncIterationSeen


def test_iteration_ends_or_raises_as_the_connection_did(run):
    async def main():
        async def ends(ws):
            await ws.send("last")
            await ws.close(int(ws.request.path[1:]))

        async with tautline.serve(ends, "127.0.0.1", 0) as server:
            async with tautline.connect(uri(server) + "1000") as ws:
                assert [message async for message in ws] == ["last"]
                assert [message async for message in ws] == []
            async with tautline.connect(uri(server) + "4000") as ws:
                seen = []
                with pytest.raises(tautline.ConnectionClosedError):
                    async for message in ws:
                        seen.append(message)
                assert seen == ["last"]

    run(main())
