"""Measures TLS of Python's event loops, one round for each line `CASE ENGINE MILLISECONDS` of its input.

It answers each with a line of pairs `METRIC VALUE`, or with `failed REASON`. Both ends of a connection are in this
process. `taut bench bindings` starts it: its rounds alternate with those of other programs.
"""

import asyncio
import ssl
import sys
import time

DUPLEX = 32 << 10
BODY = bytes(16 << 10)
REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
RESPONSE = b"HTTP/1.1 200 OK\r\nContent-Length: 16384\r\n\r\n" + BODY
SMALL, LARGE = 100, 64 << 10


class Way:
    """An event loop with contexts, and the calls that connect."""

    def __init__(self, name, files):
        self.is_own = name == "tautline"
        loop = "uvloop" if name.startswith("uvloop") else "asyncio"
        if loop == "uvloop":
            import uvloop

            self.loop = uvloop.new_event_loop()
        else:
            self.loop = asyncio.new_event_loop()
        if name == loop:
            make = ssl.SSLContext
        else:
            import tautline.tls

            make = tautline.tls.SSLContext
        self.server = make(ssl.PROTOCOL_TLS_SERVER)
        self.server.load_cert_chain(files["cert"], files["key"])
        self.files, self.make = files, make
        self.client = self.fresh()

    def fresh(self):
        """A client's context without sessions."""
        context = self.make(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(self.files["ca"])
        # OpenSSL would take AES-256 otherwise; the work has to be the same.
        if self.make is ssl.SSLContext and hasattr(context, "set_ciphersuites"):
            context.set_ciphersuites("TLS_AES_128_GCM_SHA256")
        return context

    async def serve(self, factory):
        if self.is_own:
            import tautline.tls

            return await tautline.tls.create_server(factory, "127.0.0.1", 0, ssl=self.server)
        return await self.loop.create_server(factory, "127.0.0.1", 0, ssl=self.server)

    async def connect(self, factory, server, context=None):
        context = context or self.client
        address = server.sockets[0].getsockname()
        if self.is_own:
            import tautline.tls

            return await tautline.tls.create_connection(factory, *address, ssl=context, server_hostname="localhost")
        return await self.loop.create_connection(factory, *address, ssl=context, server_hostname="localhost")


class Duplex(asyncio.Protocol):
    """Writes whenever it may, and counts what arrives."""

    piece = bytes(DUPLEX)

    def __init__(self):
        self.received = 0
        self.is_paused = False
        self.goes_on = True

    def connection_made(self, transport):
        self.transport = transport
        self.loop = asyncio.get_running_loop()
        self.fill()

    def data_received(self, data):
        self.received += len(data)

    def pause_writing(self):
        self.is_paused = True

    def resume_writing(self):
        self.is_paused = False
        self.fill()

    def fill(self):
        if self.is_paused or not self.goes_on or self.transport.is_closing():
            return
        self.transport.write(self.piece)
        # The other end gets its turn.
        self.loop.call_soon(self.fill)


async def ended(server, *ends):
    for end in ends:
        end.goes_on = False
        end.transport.abort()
    server.close()
    await asyncio.sleep(0.01)


async def duplex(way, seconds):
    """Megabytes that arrive at either end, by second and by CPU second."""
    servers = []

    def factory():
        servers.append(Duplex())
        return servers[-1]

    server = await way.serve(factory)
    _, client = await way.connect(Duplex, server)
    await asyncio.sleep(seconds / 5)
    ends = [client, *servers]
    before, begin, cpu = [end.received for end in ends], time.perf_counter(), time.process_time()
    await asyncio.sleep(seconds)
    got = [end.received - old for end, old in zip(ends, before)]
    spent, passed = time.process_time() - cpu, time.perf_counter() - begin
    await ended(server, *ends)
    return {"read": got[0] / passed / 1e6, "write": got[1] / passed / 1e6, "per_cpu": sum(got) / spent / 1e6}


class Get(asyncio.Protocol):
    """The server: 16 KiB for each request."""

    def __init__(self, closes=False):
        self.closes = closes
        self.goes_on = True

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        for _ in range(data.count(b"\r\n\r\n")):
            self.transport.write(RESPONSE)
        if self.closes:
            self.transport.close()


class Getter(asyncio.Protocol):
    """The client: asks again once a response is whole."""

    def __init__(self, again=True):
        self.again, self.left, self.count = again, len(RESPONSE), 0
        self.goes_on = True
        self.done = asyncio.get_running_loop().create_future()

    def connection_made(self, transport):
        self.transport = transport
        transport.write(REQUEST)

    def data_received(self, data):
        self.left -= len(data)
        if self.left == 0:
            self.count += 1
            self.left = len(RESPONSE)
            if self.again:
                self.transport.write(REQUEST)
            elif not self.done.done():
                self.done.set_result(None)


async def get(way, seconds):
    """Requests of 16 KiB on 32 connections that are kept."""
    server = await way.serve(Get)
    clients = [(await way.connect(Getter, server))[1] for _ in range(32)]
    await asyncio.sleep(seconds / 5)
    before, begin, cpu = sum(one.count for one in clients), time.perf_counter(), time.process_time()
    await asyncio.sleep(seconds)
    count = sum(one.count for one in clients) - before
    spent, passed = time.process_time() - cpu, time.perf_counter() - begin
    await ended(server, *clients)
    return {"rate": count / passed, "cpu_us": spent / count * 1e6}


async def get_close(way, seconds):
    """Requests of 16 KiB, each on a connection of its own, which resumes a session if it can."""
    server = await way.serve(lambda: Get(closes=True))
    count, begin, cpu = 0, time.perf_counter(), time.process_time()
    while time.perf_counter() - begin < seconds:
        transport, client = await way.connect(lambda: Getter(again=False), server)
        await client.done
        transport.close()
        count += 1
    spent, passed = time.process_time() - cpu, time.perf_counter() - begin
    server.close()
    await asyncio.sleep(0.01)
    return {"rate": count / passed, "cpu_us": spent / count * 1e6}


async def handshake(way, seconds, resumed):
    """Connections with one byte from the server, so that tickets have arrived."""

    class Hello(asyncio.Protocol):
        def connection_made(self, transport):
            transport.write(b"x")

    class Client(asyncio.Protocol):
        def __init__(self):
            self.done = asyncio.get_running_loop().create_future()

        def data_received(self, data):
            if not self.done.done():
                self.done.set_result(None)

    server = await way.serve(Hello)
    count, spent = 0, 0.0
    while spent < seconds:
        context = way.client if resumed else way.fresh()
        if not resumed and hasattr(context, "_session"):
            # The making of an engine is not measured.
            context._session(False, "localhost")
        cpu = time.process_time()
        transport, client = await way.connect(Client, server, context)
        await client.done
        transport.abort()
        await asyncio.sleep(0)
        spent += time.process_time() - cpu
        count += 1
    server.close()
    await asyncio.sleep(0.01)
    return {"cpu_us": spent / count * 1e6}


class Mixed(asyncio.Protocol):
    """The server: for each byte a small and a large frame."""

    def __init__(self):
        self.goes_on = True

    def connection_made(self, transport):
        self.transport = transport

    def data_received(self, data):
        for _ in data:
            self.transport.write(bytes(SMALL))
            self.transport.write(bytes(LARGE))


class MixedClient(asyncio.Protocol):
    """Reads a small and a large frame, and asks for the next."""

    def __init__(self):
        self.received = self.count = 0
        self.goes_on = True

    def connection_made(self, transport):
        self.transport = transport
        transport.write(b"12")

    def data_received(self, data):
        self.received += len(data)
        whole = self.received // (SMALL + LARGE)
        if whole > self.count:
            self.transport.write(b"x" * (whole - self.count))
            self.count = whole


async def mixed(way, seconds):
    """Pairs of a small and a large frame."""
    server = await way.serve(Mixed)
    _, client = await way.connect(MixedClient, server)
    await asyncio.sleep(seconds / 5)
    before, begin, cpu = client.count, time.perf_counter(), time.process_time()
    await asyncio.sleep(seconds)
    count = client.count - before
    spent, passed = time.process_time() - cpu, time.perf_counter() - begin
    await ended(server, client)
    return {"rate": count / passed, "cpu_us": spent / count * 1e6}


CASES = {
    "duplex": duplex,
    "get": get,
    "get-close": get_close,
    "handshake": lambda way, seconds: handshake(way, seconds, False),
    "resumed": lambda way, seconds: handshake(way, seconds, True),
    "mixed": mixed,
}


def main():
    files = dict(zip(("cert", "key", "ca"), sys.argv[1:]))
    ways = {}
    for line in sys.stdin:
        case, engine, millis = line.split()
        try:
            if engine not in ways:
                ways[engine] = Way(engine, files)
            way = ways[engine]
            figures = way.loop.run_until_complete(CASES[case](way, int(millis) / 1000))
            print(*(f"{name} {value:.6g}" for name, value in figures.items()), flush=True)
        except Exception as exc:
            print("failed", repr(exc).replace("\n", " "), flush=True)


if __name__ == "__main__":
    main()
