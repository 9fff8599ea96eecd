"""A server on websockets, after the examples in its documentation, on uvloop, which it recommends for speed.

Arguments: echo|broadcast CERT KEY.
"""

import asyncio
import ssl
import sys

import uvloop
from websockets.asyncio.server import broadcast, serve
from websockets.exceptions import ConnectionClosed

clients = set()


async def echo(websocket):
    async for message in websocket:
        await websocket.send(message)


async def to_all(websocket):
    clients.add(websocket)
    try:
        async for message in websocket:
            broadcast(clients, message)
    finally:
        clients.discard(websocket)


async def main(mode, cert, key):
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    # The client puts AES-128-GCM first, and OpenSSL would take AES-256-GCM.
    context.options &= ~ssl.OP_CIPHER_SERVER_PREFERENCE
    context.load_cert_chain(cert, key)
    handler = {"echo": echo, "broadcast": to_all}[mode]

    async def quiet(websocket):
        try:
            await handler(websocket)
        except ConnectionClosed:
            pass

    # Pings would end connections that only receive for a while.
    options = {"compression": None, "max_size": 64 << 20, "ping_interval": None}
    async with serve(quiet, "127.0.0.1", 0, ssl=context, backlog=4096, **options) as server:
        port = server.sockets[0].getsockname()[1]
        print(f"listening on wss://127.0.0.1:{port}", flush=True)
        await asyncio.get_running_loop().create_future()


uvloop.run(main(*sys.argv[1:]))
