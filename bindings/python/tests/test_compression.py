"""Compression: its bytes on the wire, and the memory of windows."""

import asyncio
import json
import random
import time

import pytest

import tautline

REQUEST = (
    "GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Extensions: permessage-deflate\r\n\r\n"
)
# The memory of a connection with the default window and level.
EACH = (48 + 40 + 32) << 10


def trades(count):
    """Messages of 123 bytes, as an exchange sends them."""
    values = random.Random(7)
    at, number, price = 1_790_000_000_000, 4_000_000_000, 6_543_210
    for _ in range(count):
        at += values.randrange(40)
        number += 1
        price += values.randrange(-50, 51)
        trade = {
            "e": "trade",
            "E": at + 1,
            "s": "BTCUSDT",
            "t": number,
            "p": f"{price / 100:.2f}",
            "q": f"0.{values.randrange(10**5):05}",
            "T": at,
            "m": values.random() < 0.5,
        }
        yield json.dumps(trade, separators=(",", ":")).ljust(123)


async def opened(server):
    """A client of the server, and the head of its answer."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.sockets[0].getsockname()[1])
    writer.write(REQUEST.encode())
    return reader, writer, (await reader.readuntil(b"\r\n\r\n")).decode().lower()


async def bytes_for(run_on, messages, compression):
    """The bytes on the wire of each of these messages from a server."""

    async def send_all(ws):
        for message in messages:
            await ws.send(message)

    async with tautline.serve(send_all, "127.0.0.1", 0, compression=compression, loops=run_on) as server:
        reader, writer, head = await opened(server)
        assert ("permessage-deflate" in head) == (compression is not None)
        sizes = []
        for _ in messages:
            _, length = await reader.readexactly(2)
            extended = {126: 2, 127: 8}.get(length, 0)
            if extended:
                length = int.from_bytes(await reader.readexactly(extended), "big")
            await reader.readexactly(length)
            sizes.append(2 + extended + length)
        writer.close()
        return sizes


@pytest.mark.parametrize("run_on", [0, 1])
def test_small_messages_are_a_third_with_windows_and_never_larger(run, run_on):
    async def main():
        messages = list(trades(2_000))
        assert {len(message) for message in messages} == {123}
        plain = await bytes_for(run_on, messages, None)
        by_itself = await bytes_for(run_on, messages, "deflate")
        windows = await bytes_for(run_on, messages, tautline.Deflate())
        assert sum(plain) == 2_000 * 125
        assert all(a <= b for a, b in zip(by_itself, plain)) and all(a <= b for a, b in zip(windows, plain))
        assert sum(windows) <= 0.35 * sum(plain), sum(windows)

    run(main())


@pytest.mark.parametrize("compression", ["deflate", tautline.Deflate(), tautline.Deflate(level=6)])
def test_noise_is_sent_as_it_is(run, compression):
    async def main():
        values = random.Random(3)
        noise = [values.randbytes(length) for length in (0, 1, 40, 300, 5_000, 70_000, 300)]
        # A message of its own behind the noise, whose first bytes the peer's window has.
        messages = [message for one in noise for message in (b"again and again and again, " * 4, one)]
        plain = await bytes_for(0, messages, None)
        compressed = await bytes_for(0, messages, compression)
        assert all(a <= b for a, b in zip(compressed, plain)), (compressed, plain)
        assert compressed[1::2] == plain[1::2]

    run(main())


def test_the_memory_for_windows_is_bounded_and_comes_back(run):
    async def wait(ws):
        await ws.wait_closed()

    async def main():
        async with tautline.serve(wait, "127.0.0.1", 0, compression=tautline.Deflate(memory=2 * EACH)) as server:
            first, second, third = [await opened(server) for _ in range(3)]
            assert ["no_context_takeover" in head for _, _, head in (first, second, third)] == [False, False, True]
            assert "permessage-deflate" in third[2]
            first[1].close()
            end = time.monotonic() + 60
            while "no_context_takeover" in (again := await opened(server))[2]:
                assert time.monotonic() < end, "the memory of a connection that has ended is free again"
                again[1].close()
                await asyncio.sleep(0.01)
            for _, writer, _ in (second, third, again):
                writer.close()

    run(main())


def test_clients_offer_windows_as_long_as_there_is_memory(run):
    async def main():
        offers = []

        async def refuse(reader, writer):
            offers.append((await reader.readuntil(b"\r\n\r\n")).decode().lower())
            await release.wait()
            writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
            writer.close()

        release = asyncio.Event()
        server = await asyncio.start_server(refuse, "127.0.0.1", 0)
        target = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}/"

        async def connect():
            with pytest.raises(tautline.InvalidStatus):
                await tautline.connect(target, compression=tautline.Deflate(memory=2 * EACH))

        clients = [asyncio.ensure_future(connect()) for _ in range(3)]
        while len(offers) < 3:
            await asyncio.sleep(0.01)
        assert sorted("no_context_takeover" in offer for offer in offers) == [False, False, True]
        assert all("permessage-deflate" in offer for offer in offers)
        release.set()
        await asyncio.gather(*clients)
        await connect()
        assert "no_context_takeover" not in offers[-1]
        server.close()

    run(main())


def test_settings_that_cannot_work_are_refused():
    for compression, remedy in [
        (tautline.Deflate(memory=-1), "memory"),
        (tautline.Deflate(window_bits=8), "9 to 15"),
        (tautline.Deflate(level=0), "compression=None"),
        ("gzip", "unsupported compression: gzip"),
    ]:
        with pytest.raises(ValueError, match=remedy):
            tautline.connect("ws://localhost/", compression=compression)
