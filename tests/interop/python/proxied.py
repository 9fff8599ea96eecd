"""The client of backends behind `taut proxy`, of README.md: with Python's websockets, and HTTP by hand.

    proxied.py URL CA_FILE [frames]

Below URL are the routes t (a tunnel) and m (message by message). A backend with `frames` decides on its frames.
The backend is dead at the end.
"""

import asyncio
import hashlib
import json
import ssl
import sys
from urllib.parse import urlsplit

from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

MIB = 1 << 20
BODY = bytes(at * 7 % 251 for at in range(MIB))
SUM = hashlib.sha256(BODY).hexdigest()
BLOCK = bytes(at % 251 for at in range(MIB))

url, ca, *traits = sys.argv[1:]
place = urlsplit(url)
context = ssl.create_default_context(cafile=ca)


class Failed(Exception):
    """A check does not hold; it has been printed."""


def check(name, holds, told=""):
    print(f"{'ok  ' if holds else 'FAIL'} {name}{'' if holds else f': {told!r}'}", flush=True)
    if not holds:
        raise Failed


class Http:
    """A connection that sends what it is told to."""

    @classmethod
    async def open(cls):
        self = cls()
        self.reader, self.writer = await asyncio.open_connection(
            place.hostname, place.port, ssl=context, limit=4 * MIB
        )
        return self

    async def send(self, method, path, fields="", body=b""):
        head = f"{method} {place.path}{path} HTTP/1.1\r\nHost: {place.netloc}\r\n{fields}\r\n"
        self.writer.write(head.encode() + body)
        await self.writer.drain()

    async def head(self):
        """The status and the fields of the next response, which may be an interim one."""
        line, *lines = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        fields = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)}
        return int(line.split()[1]), fields

    async def parts(self, fields):
        """The body in pieces as they come. It raises IncompleteReadError at an early end."""
        if fields.get("transfer-encoding") == "chunked":
            while size := int(await self.reader.readuntil(b"\r\n"), 16):
                async for part in self.exactly(size):
                    yield part
                await self.reader.readexactly(2)
            await self.reader.readexactly(2)
        else:
            async for part in self.exactly(int(fields.get("content-length", 0))):
                yield part

    async def exactly(self, left):
        while left:
            part = await self.reader.read(min(left, MIB))
            if not part:
                raise asyncio.IncompleteReadError(b"", left)
            left -= len(part)
            yield part

    async def response(self):
        status, fields = await self.head()
        return status, fields, b"".join([part async for part in self.parts(fields)])

    async def ask(self, *request):
        await self.send(*request)
        return await self.response()

    def close(self):
        self.writer.transport.abort()


async def ask(*request):
    connection = await Http.open()
    answer = await connection.ask(*request)
    connection.close()
    return answer


def chunks(body, size):
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    return b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"


async def http(way):
    connection = await Http.open()
    for n in range(5):
        status, fields, body = await connection.ask("GET", f"{way}/hello")
        check(f"{way}: GET {n} of one connection", (status, body) == (200, b"hello"), (status, body))
    for framing, field, body in [
        ("length", f"Content-Length: {MIB}\r\n", BODY),
        ("chunked", "Transfer-Encoding: chunked\r\n", chunks(BODY, 10_000)),
    ]:
        status, _, answer = await connection.ask("POST", f"{way}/sum", field, body)
        told = json.loads(answer) if status == 200 else answer
        expected = {"length": MIB, "sum": SUM, "framing": framing}
        check(f"{way}: POST of 1 MiB by {framing}", status == 200 and told == expected, (status, told))
    expects = f"Content-Length: {MIB}\r\nExpect: 100-continue\r\n"
    await connection.send("POST", f"{way}/sum", expects)
    status, _ = await connection.head()
    check(f"{way}: 100 before the body is sent", status == 100, status)
    connection.writer.write(BODY)
    status, _, answer = await connection.response()
    check(f"{way}: the body behind 100", status == 200 and json.loads(answer)["sum"] == SUM, (status, answer))
    status, _, body = await connection.ask("GET", f"{way}/hello")
    check(f"{way}: the connection goes on", (status, body) == (200, b"hello"), (status, body))
    await connection.send("POST", f"{way}/refuse", expects)
    seen = []
    while not seen or seen[-1] == 100:
        status, fields = await connection.head()
        seen.append(status)
    body = b"".join([part async for part in connection.parts(fields)])
    check(f"{way}: a refusal without the body", (status, body) == (413, b"too much"), (seen, body))
    print(f"     {way}: statuses of a refused expectation: {seen}")
    connection.close()
    await events(way)
    await download(way)


async def events(way):
    connection = await Http.open()
    await connection.send("GET", f"{way}/events?name={way}", "Accept: text/event-stream\r\n")
    status, fields = await connection.head()
    right = status == 200 and fields["content-type"].startswith("text/event-stream")
    check(f"{way}: a stream of events", right, (status, fields))
    parts = connection.parts(fields)
    first = await anext(parts)
    check(f"{way}: the first event before the second is sent", first == b"data: first\n\n", first)
    status, _, _ = await ask("GET", f"{way}/next?name={way}")
    rest = b"".join([part async for part in parts])
    check(f"{way}: the second event, and the end", (status, rest) == (200, b"data: second\n\n"), (status, rest))
    connection.close()


async def download(way):
    connection = await Http.open()
    await connection.send("GET", f"{way}/download")
    status, fields = await connection.head()
    total, expected = hashlib.sha256(), hashlib.sha256()
    begun, length = asyncio.get_running_loop().time(), 0
    async for part in connection.parts(fields):
        total.update(part)
        length += len(part)
    time = asyncio.get_running_loop().time() - begun
    for _ in range(50):
        expected.update(BLOCK)
    check(f"{way}: 50 MiB", status == 200 and total.digest() == expected.digest(), (status, length))
    print(f"     {way}: 50 MiB took {time:.2f} s")
    connection.close()


def dial(path, **options):
    options = {"ssl": context, "compression": None, "proxy": None, "max_size": None, **options}
    return connect(f"wss://{place.netloc}{place.path}{path}", **options)


async def end(ws):
    """The code and reason of the close frame that ends a WebSocket; 1006 is none."""
    try:
        while True:
            await ws.recv()
    except ConnectionClosed as closed:
        return (closed.rcvd.code, closed.rcvd.reason) if closed.rcvd else (1006, "")


async def websockets(way):
    async with dial(f"{way}/echo") as ws:
        for text in ["hello", "", "Grüße, 世界 🦀", "x" * 70_000]:
            await ws.send(text)
            check(f"{way}: text of {len(text)}", await ws.recv() == text)
        for size in [0, 1, 126, 65_535, 65_536, MIB]:
            await ws.send(BODY[:size])
            check(f"{way}: binary of {size}", await ws.recv() == BODY[:size])
        await ws.send(["one ", "", "two ", "thrée"])
        check(f"{way}: text in fragments", await ws.recv() == "one two thrée")
        await ws.send([BODY[:70_000], BODY[:1], BODY[:300]])
        check(f"{way}: binary in fragments", await ws.recv() == BODY[:70_000] + BODY[:1] + BODY[:300])
        pong = await ws.ping(b"are you there")
        check(f"{way}: ping", await asyncio.wait_for(pong, 30) >= 0)
        for n in range(300):
            await ws.send(f"{n} " + "x" * 1000)
        replies = [await ws.recv() for _ in range(300)]
        check(f"{way}: 300 behind each other", replies == [f"{n} " + "x" * 1000 for n in range(300)])
    async with dial(f"{way}/echo", compression="deflate") as ws:
        # A tunnel passes the offer on, and messages without `deflate` do not.
        check(f"{way}: compression", bool(ws.protocol.extensions) == (way == "t"), ws.protocol.extensions)
        await ws.send("again and " * 1000)
        check(f"{way}: compressed text", await ws.recv() == "again and " * 1000)
    for offered, chosen in [(["unknown.test", "echo.test"], "echo.test"), (["unknown.test"], None)]:
        async with dial(f"{way}/echo", subprotocols=offered) as ws:
            check(f"{way}: a subprotocol of {offered}", ws.subprotocol == chosen, ws.subprotocol)
    try:
        async with dial(f"{way}/refused"):
            check(f"{way}: a refused upgrade", False)
    except InvalidStatus as error:
        told = error.response
        told = (told.status_code, told.headers.get("WWW-Authenticate"), bytes(told.body or b""))
        check(f"{way}: a refused upgrade", told == (401, "Bearer", b"no entry"), told)
    codes = [(1000, ""), (1001, "away"), (1011, ""), (4001, "bye")] + ([(1005, "")] if "frames" in traits else [])
    for code, reason in codes:
        async with dial(f"{way}/close") as ws:
            await ws.send(f"{0 if code == 1005 else code} {reason}")
            told = await end(ws)
            check(f"{way}: the backend closes with {code}", told == (code, reason), told)
    for code, reason in [(1000, ""), (4002, "tired"), (1001, "Grüße")]:
        async with dial(f"{way}/closed") as ws:
            await ws.recv()
            await ws.close(code, reason)
            check(f"{way}: the backend answers {code}", ws.close_code == code, ws.close_code)
        await backend_saw(way, f"{code} {reason}")
    async with dial(f"{way}/closed") as ws:
        await ws.recv()
        ws.transport.abort()
    if way == "m":
        await backend_saw(way, "1001 ")
        async with dial(f"{way}/echo") as ws:
            await ws.send(BODY + b"x")
            told = await end(ws)
            check(f"{way}: a message beyond the limit", told[0] == 1009, told)
    if "frames" in traits:
        await frames(way)


async def backend_saw(way, expected):
    """Waits until the backend was told this end of its last WebSocket."""
    for _ in range(600):
        _, _, told = await ask("GET", f"{way}/last-close")
        if (json.loads(told) or "").startswith(expected):
            break
        await asyncio.sleep(0.05)
    check(f"{way}: the backend is told {expected!r}", (json.loads(told) or "").startswith(expected), told)


async def frames(way):
    async with dial(f"{way}/ping") as ws:
        await ws.send("are you there")
        check(f"{way}: a ping of the backend", await ws.recv() == "pong are you there")
    async with dial(f"{way}/fragments") as ws:
        await ws.send("fragments")
        check(f"{way}: text in fragments of the backend", await ws.recv() == "fragments")
        await ws.send(b"fragments")
        check(f"{way}: binary in fragments of the backend", await ws.recv() == b"fragments")


async def is_cut_off(parts):
    """Whether nothing more comes of a body that is not whole."""
    try:
        await anext(parts)
    except (asyncio.IncompleteReadError, ssl.SSLError, ConnectionError):
        return True
    except StopAsyncIteration:
        pass
    return False


async def death(ways):
    """The backend dies in the middle of messages, bodies and requests."""
    # `opened` holds the connections, which would be closed without it.
    sockets, bodies, hanging, opened = [], [], [], []
    for way in ways:
        for path in ["echo"] + (["half-message"] if "frames" in traits else []):
            ws = await dial(f"{way}/{path}")
            if path == "echo":
                await ws.send("here")
                await ws.recv()
                ws.transport.write(b"\x01\x84\0\0\0\0half")
            sockets.append((way, path, ws))
        for path in ["half", "half-chunked"]:
            connection = await Http.open()
            opened.append(connection)
            await connection.send("GET", f"{way}/{path}")
            status, fields = await connection.head()
            check(f"{way}: the head of {path}", status == 200, status)
            parts, begun = connection.parts(fields), 0
            while begun < MIB // 2:
                begun += len(await anext(parts))
            bodies.append((f"{way}: {path}", parts))
        for name, path, fields, body in [
            ("a request without a head of a response", "hang", "", b""),
            ("a body of a request", "sum", f"Content-Length: {MIB}\r\n", BODY[:1000]),
        ]:
            connection = await Http.open()
            await connection.send("POST" if body else "GET", f"{way}/{path}", fields, body)
            hanging.append((f"{way}: {name}", connection))
    # Behind the requests above, which the backend has then.
    check("the backend lives", (await ask("GET", "t/hello"))[0] == 200)
    status, _, _ = await ask("POST", "t/die", "Content-Length: 0\r\n")
    check("a request that kills the backend", status == 502, status)
    for way, path, ws in sockets:
        told = await asyncio.wait_for(end(ws), 30)
        expected = 1014 if way == "m" else 1006
        check(f"{way}: death in the middle of a message ({path})", told[0] == expected, told)
    for name, parts in bodies:
        check(f"{name} of a body is cut off", await asyncio.wait_for(is_cut_off(parts), 30))
    for name, connection in hanging:
        status, _ = await asyncio.wait_for(connection.head(), 30)
        check(f"{name} is a 502", status == 502, status)
    for way in ways:
        status, _, _ = await ask("GET", f"{way}/hello")
        # 503 once the failures took the only server out.
        check(f"{way}: a dead backend", status in (502, 503), status)
        try:
            async with dial(f"{way}/echo"):
                check(f"{way}: no WebSocket of a dead backend", False)
        except InvalidStatus as error:
            status = error.response.status_code
            check(f"{way}: no WebSocket of a dead backend", status in (502, 503), status)


async def main():
    for way in ["t", "m"]:
        await http(way)
        await websockets(way)
    await death(["t", "m"])


try:
    asyncio.run(main())
except Failed:
    sys.exit(1)
