"""Both roles against the packages websockets and aiohttp."""

import asyncio
import ssl
import time

import pytest
from conftest import echo, uri

import tautline

websockets = pytest.importorskip("websockets")
aiohttp = pytest.importorskip("aiohttp")

MESSAGES = ["", "hällo", b"", b"\0\xff", "x" * 70_000, bytes(300_000)]


async def exchange(ws):
    for message in MESSAGES:
        await ws.send(message)
        assert await ws.recv() == message


@pytest.mark.parametrize("compression", [None, "deflate", tautline.Deflate(window_bits=10), tautline.Deflate(level=6)])
def test_their_client_and_our_server(run, server_tls, certificates, compression):
    async def main():
        theirs = ssl.create_default_context(cafile=certificates / "ca.pem")
        async with tautline.serve(echo, "127.0.0.1", 0, ssl=server_tls, compression=compression) as server:
            async with websockets.connect(uri(server, "wss"), ssl=theirs, compression=compression and "deflate") as ws:
                await exchange(ws)
                await (await ws.ping())
            async with aiohttp.ClientSession() as session:
                async with session.ws_connect(uri(server, "wss"), ssl=theirs, compress=15 if compression else 0) as ws:
                    for message in MESSAGES:
                        await (ws.send_str if isinstance(message, str) else ws.send_bytes)(message)
                        assert (await ws.receive()).data == message

    run(main())


@pytest.mark.parametrize("compression", [None, "deflate", tautline.Deflate(window_bits=10), tautline.Deflate(level=6)])
def test_our_client_and_their_server(run, client_tls, certificates, compression):
    async def main():
        theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        theirs.load_cert_chain(certificates / "cert.pem", certificates / "key.pem")
        async with websockets.serve(echo, "127.0.0.1", 0, ssl=theirs, compression=compression and "deflate") as server:
            async with tautline.connect(uri(server, "wss"), ssl=client_tls, compression=compression) as ws:
                await exchange(ws)
                await (await ws.ping())
                begin = time.monotonic()
            # Neither end waits for the other until its close_timeout of 10 s.
            assert time.monotonic() - begin < 5
        assert ws.close_code == 1000

    run(main())


def test_close_codes_are_those_of_websockets(run):
    async def closes(ws):
        await ws.close(4001, "theirs")

    async def main():
        ends = []
        for serve in (tautline.serve, websockets.serve):
            async with serve(closes, "127.0.0.1", 0) as server:
                for connect, closed in (
                    (tautline.connect, tautline.ConnectionClosedError),
                    (websockets.connect, websockets.ConnectionClosedError),
                ):
                    async with connect(uri(server)) as ws:
                        with pytest.raises(closed) as raised:
                            await ws.recv()
                        ends.append(str(raised.value))
        assert ends == ["received 4001 (private use) theirs; then sent 4001 (private use) theirs"] * 4

    run(main())


def test_many_at_once(run):
    async def main():
        async with tautline.serve(echo, "127.0.0.1", 0) as server:

            async def one():
                async with websockets.connect(uri(server)) as ws:
                    await exchange(ws)

            await asyncio.gather(*(one() for _ in range(20)))

    run(main())
