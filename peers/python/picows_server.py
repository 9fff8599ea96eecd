"""A server on picows, after the examples in its documentation, on uvloop, which it recommends for speed.

Arguments: echo|broadcast CERT KEY.
"""

import asyncio
import ssl
import sys

import uvloop
from picows import WSListener, WSMsgType, ws_create_server

clients = set()


class Echo(WSListener):
    def on_ws_frame(self, transport, frame):
        if frame.msg_type == WSMsgType.CLOSE:
            transport.send_close(frame.get_close_code(), frame.get_close_message())
            transport.disconnect()
        else:
            transport.send(frame.msg_type, frame.get_payload_as_memoryview())


class Broadcast(WSListener):
    def on_ws_connected(self, transport):
        clients.add(transport)

    def on_ws_disconnected(self, transport):
        clients.discard(transport)

    def on_ws_frame(self, transport, frame):
        if frame.msg_type == WSMsgType.CLOSE:
            transport.send_close(frame.get_close_code(), frame.get_close_message())
            transport.disconnect()
            return
        message = frame.get_payload_as_bytes()
        for client in clients:
            client.send(frame.msg_type, message)


async def main(mode, cert, key):
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    # The client puts AES-128-GCM first, and OpenSSL would take AES-256-GCM.
    context.options &= ~ssl.OP_CIPHER_SERVER_PREFERENCE
    context.load_cert_chain(cert, key)
    listener = {"echo": Echo, "broadcast": Broadcast}[mode]
    server = await ws_create_server(lambda request: listener(), "127.0.0.1", 0, ssl=context, backlog=4096)
    print(f"listening on wss://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    await server.serve_forever()


uvloop.run(main(*sys.argv[1:]))
