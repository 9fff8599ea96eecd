"""The client of README.md, with Python's websockets."""

import asyncio
import ssl
import sys

from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake
from websockets.extensions.permessage_deflate import PerMessageDeflate

SIZES = [0, 1, 125, 126, 127, 4096, 65535, 65536, 1 << 20]


class Failed(Exception):
    """A check does not hold; it has been printed."""


def check(name, holds):
    print(("ok   " if holds else "FAIL ") + name, flush=True)
    if not holds:
        raise Failed


def payload(size):
    return bytes(i * 7 % 251 for i in range(size))


async def echo(dial):
    async with dial(compression=None) as ws:
        check("no compression unless offered", not ws.protocol.extensions)
        for text in ["hello", "", "Grüße, 世界 🦀"]:
            await ws.send(text)
            check(f"text {text!r}", await ws.recv() == text)
        for size in SIZES:
            await ws.send(payload(size))
            check(f"binary {size}", await ws.recv() == payload(size))
        await ws.send(["one ", "", "two ", "thrée"])
        check("text in fragments", await ws.recv() == "one two thrée")
        await ws.send([payload(70000), payload(1), payload(300)])
        check("binary in fragments", await ws.recv() == payload(70000) + payload(1) + payload(300))
        pong = await ws.ping(b"are you there")
        check("ping", await asyncio.wait_for(pong, 10) >= 0)
        for i in range(300):
            await ws.send(f"{i} " + "x" * 1000)
        replies = [await ws.recv() for _ in range(300)]
        check("300 pipelined", replies == [f"{i} " + "x" * 1000 for i in range(300)])
        await ws.close(4001, "bye")
        check("close is answered with its code", ws.close_code == 4001)
    async with dial(compression="deflate") as ws:
        deflate = [e for e in ws.protocol.extensions if isinstance(e, PerMessageDeflate)]
        check("compression negotiated", len(deflate) == 1)
        for size in SIZES:
            text = ("tautline " * (size // 9 + 1))[:size]
            await ws.send(text)
            check(f"compressed text {size}", await ws.recv() == text)
            await ws.send(payload(size))
            check(f"compressed binary {size}", await ws.recv() == payload(size))
        await ws.send(["frag", "men", "ted " * 5000])
        check("compressed text in fragments", await ws.recv() == "fragmented " + "ted " * 4999)


async def subprotocol(dial):
    async with dial(subprotocols=["unknown.test", "echo.test"]) as ws:
        check("subprotocol", ws.subprotocol == "echo.test")


async def refused(dial):
    try:
        async with dial() as ws:
            # With TLS 1.3 the client learns only after its own handshake that the server turned it away.
            await asyncio.wait_for(ws.recv(), 10)
    except (ssl.SSLError, OSError, InvalidHandshake, ConnectionClosed, EOFError) as error:
        check(f"refused: {type(error).__name__}", not isinstance(error, (TimeoutError, ConnectionRefusedError)))
        return
    check("refused", False)


async def drain(dial):
    async with dial() as ws:
        print("ready", flush=True)
        await asyncio.wait_for(ws.wait_closed(), 30)
        check(f"the server went away with {ws.close_code}", ws.close_code in (1001, 1012))


def main():
    url, authority, case, *own = sys.argv[1:]
    context = ssl.create_default_context(cafile=authority)
    if own:
        context.load_cert_chain(*own)

    def dial(**options):
        return connect(url, ssl=context, max_size=None, open_timeout=10, proxy=None, **options)

    cases = {"echo": echo, "subprotocol": subprotocol, "refused": refused, "drain": drain}
    try:
        asyncio.run(asyncio.wait_for(cases[case](dial), 120))
    except Failed:
        sys.exit(1)


main()
