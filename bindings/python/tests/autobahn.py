"""Both ends of the Autobahn|Testsuite: an echo server for its client, and a client for its server.

    autobahn.py serve HOST:PORT CERT KEY
    autobahn.py wss://HOST:PORT [--ca FILE]

The suite writes the report. The exit code only says whether the connections worked.
"""

import asyncio
import ssl
import sys

import tautline
import tautline.tls

MESSAGES = {"max_size": 1 << 26, "compression": "deflate"}


async def echo(ws):
    try:
        async for message in ws:
            await ws.send(message)
    except tautline.ConnectionClosed:
        # As many cases want it to end.
        pass


async def serve(address, cert, key):
    host, _, port = address.rpartition(":")
    context = tautline.tls.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    async with tautline.serve(echo, host, int(port), ssl=context, **MESSAGES) as server:
        await server.serve_forever()


async def call(url, ca=None):
    options = dict(MESSAGES)
    if ca is not None:
        options["ssl"] = tautline.tls.create_default_context(cafile=ca)
    async with tautline.connect(f"{url}/getCaseCount", **options) as ws:
        count = int(await ws.recv())
    for number in range(1, count + 1):
        async with tautline.connect(f"{url}/runCase?case={number}&agent=tautline", **options) as ws:
            await echo(ws)
    async with tautline.connect(f"{url}/updateReports?agent=tautline", **options):
        pass
    print(count, "cases")


if __name__ == "__main__":
    words = [word for word in sys.argv[1:] if word != "--ca"]
    asyncio.run(serve(*words[1:]) if words[0] == "serve" else call(*words))
