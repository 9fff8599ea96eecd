"""Three feeds of the same numbered prices, with Python's websockets, for the example feed_client.

Called as `feed.py PORT CERT_FILE KEY_FILE`. Every feed loses some prices, and /c falls silent on its first two
connections. A connection needs a token that is newer than all before. It prints one line per check, and ends once /c
has come back twice.
"""

import asyncio
import http
import json
import ssl
import sys
import time

from websockets.asyncio.server import serve
from websockets.exceptions import ConnectionClosed

SYMBOLS = [f"S{i}" for i in range(10)]
# Each feed loses the prices whose number has this remainder.
LOSES = {"/a": 7, "/b": 51, "/c": 93}

newest_token = 0
connections = {path: 0 for path in LOSES}
prices = {"number": 0}
published = asyncio.Condition()
done = asyncio.Event()


def admit(connection, request):
    global newest_token
    token = request.headers.get("Authorization", "")
    is_fresh = token.isdigit() and newest_token < int(token) <= time.time_ns()
    if request.path not in LOSES or not is_fresh or time.time_ns() - int(token) > 60e9:
        return connection.respond(http.HTTPStatus.UNAUTHORIZED, f"the token {token!r} is not fresh\n")
    newest_token = int(token)


async def handle(ws):
    path = ws.request.path
    connections[path] += 1
    is_silent = path == "/c" and connections[path] <= 2
    sent, last = 0, prices["number"]
    try:
        while not done.is_set():
            async with published:
                await published.wait()
                numbers = range(last + 1, prices["number"] + 1)
                last = prices["number"]
            for number in numbers:
                if number % 100 != LOSES[path] and not (is_silent and sent >= 20):
                    await ws.send(json.dumps({"sequence": number, "symbol": SYMBOLS[number % 10]}))
                    sent += 1
            if path == "/c" and not is_silent and sent >= 1500:
                done.set()
    except ConnectionClosed:
        pass


async def publish():
    while not done.is_set():
        await asyncio.sleep(0.01)
        async with published:
            # Each burst has several prices of a symbol.
            prices["number"] += 25
            published.notify_all()
    async with published:
        # The connections end.
        published.notify_all()


async def main():
    port, chain, key = sys.argv[1:]
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(chain, key)
    async with serve(handle, "127.0.0.1", int(port), ssl=context, process_request=admit):
        print("ready", flush=True)
        await asyncio.wait_for(asyncio.gather(publish(), done.wait()), 60)
    print("ok   the silent feed came back twice, each time with a fresh token", flush=True)


asyncio.run(main())
