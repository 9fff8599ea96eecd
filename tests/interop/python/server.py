"""The server of README.md, with Python's websockets."""

import asyncio
import json
import ssl
import sys

from websockets.asyncio.server import serve
from websockets.exceptions import ConnectionClosed
from websockets.extensions.permessage_deflate import PerMessageDeflate


def pieces(message):
    third = len(message) // 3 + 1
    return [message[:third], message[third : 2 * third], message[2 * third :]]


def choose(_, offered):
    return "echo.test" if "echo.test" in offered else None


def facts(ws):
    certificate = ws.transport.get_extra_info("peercert") or {}
    names = [value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"]
    deflate = any(isinstance(e, PerMessageDeflate) for e in ws.protocol.extensions)
    return {"subprotocol": ws.subprotocol or "", "deflate": deflate, "client": "".join(names)}


async def handle(ws):
    path = ws.request.path
    if path == "/facts":
        await ws.send(json.dumps(facts(ws)))
    try:
        async for message in ws:
            if path == "/fragments":
                await ws.ping()
                await ws.send(pieces(message))
            elif path == "/ping":
                await (await ws.ping(message))
                await ws.send(f"pong {message}")
            elif path == "/close":
                code, _, reason = message.partition(" ")
                await ws.close(int(code), reason)
            else:
                await ws.send(message)
    except ConnectionClosed:
        pass


async def main():
    port, chain, key, *authority = sys.argv[1:]
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(chain, key)
    if authority:
        context.load_verify_locations(authority[0])
        context.verify_mode = ssl.CERT_REQUIRED
    options = {"subprotocols": ["echo.test"], "select_subprotocol": choose, "max_size": None}
    async with serve(handle, "127.0.0.1", int(port), ssl=context, **options):
        print("ready", flush=True)
        await asyncio.Future()


asyncio.run(main())
