"""Echo servers on Python's WebSocket libraries: `echo.py NAME --listen HOST:PORT --cert FILE --key FILE`.

`--check` tests only whether the library is installed.
"""

import argparse
import asyncio
import os
import ssl
import sys
import threading
import time


async def websockets(host, port, tls):
    import websockets

    async def handler(ws):
        try:
            async for message in ws:
                await ws.send(message)
        except websockets.ConnectionClosed:
            # A run ends by closing all connections, some of them with an echo under way.
            pass

    server = await websockets.serve(handler, host, port, ssl=tls(ssl), compression=None)
    return server.sockets[0].getsockname()


async def picows(host, port, tls):
    from picows import WSListener, WSMsgType, ws_create_server

    class Echo(WSListener):
        def on_ws_frame(self, transport, frame):
            if frame.msg_type == WSMsgType.CLOSE:
                transport.send_close(frame.get_close_code(), frame.get_close_message())
                transport.disconnect()
            else:
                transport.send(frame.msg_type, frame.get_payload_as_bytes())

    server = await ws_create_server(lambda request: Echo(), host, port, ssl=tls(ssl))
    await server.start_serving()
    return server.sockets[0].getsockname()


async def aiohttp(host, port, tls):
    from aiohttp import WSMsgType, web

    async def handler(request):
        ws = web.WebSocketResponse(compress=False)
        await ws.prepare(request)
        async for message in ws:
            if message.type == WSMsgType.BINARY:
                await ws.send_bytes(message.data)
            else:
                await ws.send_str(message.data)
        return ws

    app = web.Application()
    app.router.add_get("/", handler)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, host, port, ssl_context=tls(ssl)).start()
    return runner.addresses[0]


async def tautline(host, port, tls, loops=0):
    import tautline
    import tautline.tls

    async def handler(ws):
        try:
            async for message in ws:
                await ws.send(message)
        except tautline.ConnectionClosed:
            # A run ends by closing all connections, some of them with an echo under way.
            pass

    server = await tautline.serve(handler, host, port, ssl=tls(tautline.tls), compression=None, loops=loops)
    return server.sockets[0].getsockname()


async def tautline_thread(host, port, tls):
    return await tautline(host, port, tls, loops=1)


async def tautline_callbacks(host, port, tls):
    import tautline.tls
    from tautline.callbacks import WSListener, ws_create_server

    class Echo(WSListener):
        def on_ws_frame(self, transport, frame):
            transport.send(frame.msg_type, frame.get_payload_as_bytes())

    server = await ws_create_server(lambda request: Echo(), host, port, ssl=tls(tautline.tls), loops=0)
    return server.sockets[0].getsockname()


def end_with_parent():
    parent = os.getppid()
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(0)


def main():
    servers = {
        "websockets": websockets,
        "picows": picows,
        "aiohttp": aiohttp,
        "tautline": tautline,
        "tautline-thread": tautline_thread,
        "tautline-callbacks": tautline_callbacks,
    }
    parser = argparse.ArgumentParser()
    parser.add_argument("name", choices=servers)
    parser.add_argument("--listen", default="127.0.0.1:0")
    parser.add_argument("--cert")
    parser.add_argument("--key")
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--with-parent", action="store_true")
    arguments = parser.parse_args()
    if arguments.check:
        __import__(arguments.name.partition("-")[0])
        return
    if arguments.with_parent:
        threading.Thread(target=end_with_parent, daemon=True).start()
    host, _, port = arguments.listen.rpartition(":")

    def tls(module):
        context = module.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(arguments.cert, arguments.key)
        return context

    async def serve():
        address = await servers[arguments.name](host, int(port), tls)
        print(f"listening on wss://{address[0]}:{address[1]}", flush=True)
        await asyncio.Event().wait()

    asyncio.run(serve())


if __name__ == "__main__":
    sys.exit(main())
