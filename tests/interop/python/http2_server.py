"""A server over HTTP/2 with hypercorn: http2_server PORT CERT_FILE KEY_FILE. It sends bodies and messages back."""

import asyncio
import sys

from hypercorn.asyncio import serve
from hypercorn.config import Config


async def http(scope, receive, send):
    body, more = b"", True
    while more:
        event = await receive()
        body, more = body + event.get("body", b""), event.get("more_body", False)
    if scope["method"] == "GET":
        body = f"HTTP/{scope['http_version']}".encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
    await send({"type": "http.response.body", "body": body})


async def websocket(receive, send):
    while (event := await receive())["type"] != "websocket.disconnect":
        if event["type"] == "websocket.connect":
            await send({"type": "websocket.accept"})
        elif event.get("text") is not None:
            await send({"type": "websocket.send", "text": event["text"]})
        else:
            await send({"type": "websocket.send", "bytes": event["bytes"]})


async def app(scope, receive, send):
    if scope["type"] == "http":
        await http(scope, receive, send)
    elif scope["type"] == "websocket":
        await websocket(receive, send)
    else:
        raise NotImplementedError(scope["type"])


def main():
    port, config = sys.argv[1], Config()
    config.bind = [f"127.0.0.1:{port}"]
    config.certfile, config.keyfile = sys.argv[2:4]
    config.alpn_protocols = ["h2"]
    asyncio.run(serve(app, config))


main()
