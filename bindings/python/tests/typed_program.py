"""A typed program, which mypy checks (test_types.py). It need not run."""

import ssl
import typing

import tautline
import tautline.sync
import tautline.tls
from tautline.asyncio.server import ServerConnection
from tautline.callbacks import WSFrame, WSListener, WSTransport, WSUpgradeRequest, ws_connect, ws_create_server

Text = typing.Union[str, bytes]


async def echo(ws: ServerConnection) -> None:
    async for message in ws:
        typing.assert_type(message, Text)
        await ws.send(message)


async def fragments() -> typing.AsyncIterator[bytes]:
    yield memoryview(b"one").tobytes()


async def coroutines() -> None:
    context = tautline.tls.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    async with tautline.serve(echo, "localhost", 0, ssl=context) as server:
        port = server.sockets[0].getsockname()[1]
        async with tautline.connect(f"ws://localhost:{port}/") as ws:
            await ws.send("hello")
            await ws.send(bytearray(b"hello"), text=True)
            await ws.send(["in", "fragments"])
            await ws.send(fragments())
            typing.assert_type(await ws.recv(), Text)
            tautline.broadcast(server.connections, "all")
    async for ws in tautline.connect("ws://localhost/"):
        typing.assert_type(ws.close_code, typing.Optional[int])
    reader, writer = await tautline.tls.open_connection("localhost", 443, ssl=context)
    writer.write(await reader.readline())


def blocking() -> None:
    with tautline.sync.connect("ws://localhost/") as ws:
        typing.assert_type(ws.recv(timeout=60), Text)
        ws.send(memoryview(b"hello"))


class Echo(WSListener):
    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        transport.send(frame.msg_type, frame.get_payload_as_bytes())


def listener(request: WSUpgradeRequest) -> WSListener:
    print(request.path, request.headers["Host"])
    return Echo()


async def callbacks() -> None:
    await ws_create_server(listener, "localhost", 0)
    transport, _ = await ws_connect(Echo, "ws://localhost/")
    await transport.wait_disconnected()
