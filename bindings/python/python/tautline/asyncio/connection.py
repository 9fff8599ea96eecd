"""A WebSocket connection under asyncio."""

from __future__ import annotations

import asyncio
import collections.abc
import enum
import os
import typing
import uuid

from .. import _native
from ..exceptions import ConcurrencyError, ConnectionClosed, ConnectionClosedError, ConnectionClosedOK, end_of
from ..frames import Close, close_frame
from ..http11 import Request, Response

__all__ = ["Connection", "State", "broadcast"]

Data = typing.Union[str, bytes]
DataLike = typing.Union[str, bytes, bytearray, memoryview]
Sendable = typing.Union[DataLike, typing.Iterable[DataLike], typing.AsyncIterable[DataLike]]
BYTES_LIKE = (bytes, bytearray, memoryview)
DATA = (bytes, str, bytearray, memoryview)


class State(enum.IntEnum):
    """The state of a connection."""

    CONNECTING, OPEN, CLOSING, CLOSED = range(4)


OPEN = State.OPEN


class Connection:
    """What connections of servers and clients share.

    Methods belong to the event loop that made the connection. ``recv`` and iteration deliver whole messages.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, logger: typing.Any, limits: typing.Any) -> None:
        self.loop = loop
        self.logger = logger
        self.id = uuid.uuid4()
        self.request: typing.Optional[Request] = None
        self.response: typing.Optional[Response] = None
        self.subprotocol: typing.Optional[str] = None
        self.state = State.CONNECTING
        self.latency = 0.0
        self.tls: typing.Optional[dict[str, typing.Any]] = None
        """The negotiated TLS values; ``None`` without TLS."""
        self.compressed = False
        """Whether permessage-deflate was negotiated."""
        self.remote_address: typing.Any = None
        # The peer of the socket: the client, or the proxy next to the server.
        self.direct_address: typing.Any = None
        self.local_address: typing.Any = None
        self._limits = limits
        self._link: typing.Any = None
        self._fragmenting: typing.Optional[asyncio.Future[None]] = None
        self._room: typing.Optional[asyncio.Future[None]] = None
        self._pings: dict[bytes, tuple[asyncio.Future[float], float]] = {}
        self._sent: typing.Optional[Close] = None
        self._exc: typing.Optional[ConnectionClosed] = None
        self._lost: asyncio.Future[None] = loop.create_future()

    # Events, in the order of the loop.

    def _open(self, link: typing.Any, info: dict[str, typing.Any]) -> None:
        self._link = link
        link.set_write_limit(self._limits.write_high)
        self.subprotocol = info["subprotocol"]
        self.compressed = info["deflate"]
        self.tls = info["tls"]
        self.remote_address = address_of(info["peer"])
        self.direct_address = address_of(info["direct_peer"])
        self.state = State.OPEN

    def _closed(self, rcvd: typing.Any, sent: typing.Any, rcvd_first: bool, error: typing.Optional[str]) -> None:
        self._exc = end_of(rcvd, sent, rcvd_first, error, self._sent)
        self._finish()

    def _closing_by_server(self, code: int, reason: str) -> None:
        """The server is about to close the connection."""
        if self.state is State.OPEN:
            self.state = State.CLOSING
            self._sent = Close(code, reason)

    def _finish(self) -> None:
        self.state = State.CLOSED
        for pong, _ in self._pings.values():
            if not pong.done():
                pong.set_exception(self._closed_exc())
                pong.exception()  # Nobody needs to wait for it.
        self._pings.clear()
        self._has_room()
        if not self._lost.done():
            self._lost.set_result(None)

    def _has_room(self) -> None:
        room, self._room = self._room, None
        if room is not None and not room.done():
            room.set_result(None)

    def _pong(self, payload: bytes) -> None:
        if payload not in self._pings:
            return
        now = self.loop.time()
        # A pong answers the pings before it, too (RFC 6455, section 5.5.3).
        for earlier in list(self._pings):
            pong, sent = self._pings.pop(earlier)
            self.latency = now - sent
            if not pong.done():
                pong.set_result(self.latency)
            if earlier == payload:
                return

    # The interface.

    async def __aenter__(self: T) -> T:
        return self

    async def __aexit__(self, exc_type: typing.Any, exc: typing.Any, traceback: typing.Any) -> None:
        await self.close(1000 if exc_type is None else 1011)

    @property
    def close_code(self) -> typing.Optional[int]:
        """The code of the end, as in RFC 6455; ``None`` while the connection is open."""
        if self._exc is None:
            return None
        rcvd = self._exc.rcvd
        return 1006 if rcvd is None else rcvd.code

    @property
    def close_reason(self) -> typing.Optional[str]:
        """The reason of the peer's close frame; ``None`` while the connection is open."""
        if self._exc is None:
            return None
        return "" if self._exc.rcvd is None else self._exc.rcvd.reason

    def __aiter__(self) -> typing.AsyncIterator[Data]:
        """Messages until the connection is closed normally."""
        if self._link is None:
            raise self._closed_exc()
        return _native.Messages(self._link, self, self.loop)

    def _iteration_ended(self) -> typing.NoReturn:
        """Ends an iteration: the connection has ended, and no message is left."""
        if isinstance(self._exc, ConnectionClosedOK):
            raise StopAsyncIteration
        raise self._closed_exc()

    def _receives_twice(self, who: str = "recv") -> typing.NoReturn:
        raise ConcurrencyError(
            f"cannot call {who} while another coroutine is already running recv or recv_streaming"
        )

    async def recv(self, decode: typing.Optional[bool] = None) -> Data:
        """The next message: ``str`` for text, ``bytes`` for binary.

        ``decode`` asks for ``str`` (true) or ``bytes`` (false) of either kind. Cancelling loses no message.
        """
        link = self._link
        message = link.pop() if link is not None and not link.awaited else None
        if message is None:
            message = await self._next("recv")
        if decode is None:
            return typing.cast(Data, message)
        if decode:
            return await self._decoded(message)
        return message.encode() if isinstance(message, str) else message

    async def _decoded(self, message: Data) -> str:
        if isinstance(message, str):
            return message
        try:
            return message.decode()
        except UnicodeDecodeError as exc:
            await self.close(1007, f"{exc.reason} at position {exc.start}")
            raise self._closed_exc() from exc

    async def recv_streaming(self, decode: typing.Optional[bool] = None) -> typing.AsyncIterator[Data]:
        """The next message in pieces: always one, the whole message."""
        if self._link is not None and self._link.awaited:
            self._receives_twice("recv_streaming")
        yield await self.recv(decode)

    async def _next(self, who: str) -> typing.Any:
        """Waits for a message."""
        link = self._link
        if link is None:
            raise self._closed_exc()
        if link.awaited:
            self._receives_twice(who)
        while not link.ended:
            try:
                await link.wait(self.loop)
            except BaseException:
                link.forget()
                raise
            message = link.pop()
            if message is not None:
                return message
        message = link.pop()
        if message is None:
            raise self._closed_exc()
        return message

    async def send(self, message: Sendable, text: typing.Optional[bool] = None) -> None:
        """Sends a message: ``str`` as text, bytes-like objects as binary, an iterable of them in fragments.

        ``text`` overrides the kind. It waits while more than ``write_limit`` bytes wait for the peer.
        """
        if self._fragmenting is not None or not isinstance(message, DATA):
            return await self._send_other(message, text)
        if self.state is not OPEN:
            await self._raise_closed()
        must = self._link.send(message, text)
        if must:
            await self._after_send(must)

    async def _after_send(self, must: int) -> None:
        if must & 1:
            # All that is sent in this turn of the event loop crosses together.
            self.loop.call_soon(self._link.flush)
        if must & 2:
            await self._drain()

    async def _send_other(self, message: typing.Any, text: typing.Optional[bool]) -> None:
        while self._fragmenting is not None:
            await asyncio.shield(self._fragmenting)
        if isinstance(message, (str, *BYTES_LIKE)):
            return await self.send(message, text)
        if isinstance(message, collections.abc.Mapping):
            raise TypeError("data is a dict-like object")
        if isinstance(message, collections.abc.AsyncIterable):
            return await self._send_fragments(message.__aiter__(), text)
        if isinstance(message, collections.abc.Iterable):
            return await self._send_fragments(_Async(iter(message)), text)
        raise TypeError("data must be str, bytes, iterable, or async iterable")

    async def _send_fragments(self, pieces: typing.Any, text: typing.Optional[bool]) -> None:
        try:
            first = await pieces.__anext__()
        except StopAsyncIteration:
            return
        if not isinstance(first, (str, *BYTES_LIKE)):
            raise TypeError("iterable must contain bytes or str")
        if self.state is not State.OPEN:
            await self._raise_closed()
        kind = str if isinstance(first, str) else BYTES_LIKE
        as_text = isinstance(first, str) if text is None else text
        self._fragmenting = self.loop.create_future()
        try:
            piece = first
            while True:
                if not isinstance(piece, kind):
                    raise TypeError("iterable must contain uniform types")
                if self.state is not State.OPEN:
                    await self._raise_closed()
                await self._after_send(self._link.fragment(piece, as_text, False))
                try:
                    piece = await pieces.__anext__()
                except StopAsyncIteration:
                    break
            await self._after_send(self._link.fragment(b"", as_text, True))
        except Exception:
            # The message cannot be taken back or ended: the connection has to end.
            await self.close(1011, "error in fragmented message")
            raise
        finally:
            self._fragmenting.set_result(None)
            self._fragmenting = None

    async def _drain(self) -> None:
        """Waits until at most the low mark waits for the peer."""
        while self.state is State.OPEN and self._link.backlog > self._limits.write_high:
            if self._room is None:
                self._room = self.loop.create_future()
                self._link.want_room(self._limits.write_low)
            await asyncio.shield(self._room)

    async def ping(self, data: typing.Optional[DataLike] = None) -> asyncio.Future[float]:
        """Sends a ping. The future that is returned has the latency once the pong is there."""
        payload = None if data is None else _payload(data)
        if self.state is not State.OPEN:
            await self._raise_closed()
        if payload in self._pings:
            raise ConcurrencyError("already waiting for a pong with the same data")
        while payload is None or payload in self._pings:
            payload = os.urandom(4)
        pong = self.loop.create_future()
        self._pings[payload] = (pong, self.loop.time())
        self._link.ping(payload)
        return pong

    async def close(self, code: int = 1000, reason: str = "") -> None:
        """Closes the connection, and waits for its end, at most ``close_timeout``."""
        if self.state is State.OPEN:
            frame = close_frame(code, reason)
            if self._fragmenting is not None and code != 1011:
                frame = Close(1011, "close during fragmented message")
            self.state = State.CLOSING
            self._sent = frame
            self._link.close(frame.code, frame.reason)
        if self.state is not State.CONNECTING:
            await asyncio.shield(self._lost)

    async def wait_closed(self) -> None:
        """Waits until the connection has ended."""
        await asyncio.shield(self._lost)

    def _closed_exc(self) -> ConnectionClosed:
        return ConnectionClosedError(None, None) if self._exc is None else self._exc

    async def _raise_closed(self) -> typing.NoReturn:
        if self.state is State.CLOSING:
            await asyncio.shield(self._lost)
        raise self._closed_exc()


T = typing.TypeVar("T", bound=Connection)


class _Async:
    """An iterator as an asynchronous one."""

    def __init__(self, items: typing.Iterator[typing.Any]) -> None:
        self._items = items

    async def __anext__(self) -> typing.Any:
        for item in self._items:
            return item
        raise StopAsyncIteration


def _payload(data: DataLike) -> bytes:
    if isinstance(data, str):
        return data.encode()
    if isinstance(data, BYTES_LIKE):
        return bytes(data)
    raise TypeError("data must be str or bytes-like")


def address_of(address: str) -> typing.Any:
    """The address of a socket, as the module ``socket`` writes it."""
    if address.startswith("unix:") or ":" not in address:
        return address
    host, _, port = address.rpartition(":")
    if host.startswith("["):
        return host.strip("[]"), int(port), 0, 0
    return host, int(port)


def broadcast(
    connections: typing.Iterable[Connection],
    message: DataLike,
    text: typing.Optional[bool] = None,
    raise_exceptions: bool = False,
) -> None:
    """Sends one message to all of these connections that are open. It is framed once, and nothing waits.

    A peer that does not read is closed with 1008 once 64 MiB wait for it. ``raise_exceptions`` has no effect: sending
    does not fail here.
    """
    if not isinstance(message, (str, *BYTES_LIKE)):
        raise TypeError("data must be str or bytes")
    links = [one._link for one in connections if one.state is State.OPEN and one._fragmenting is None]
    _native.broadcast(links, message, text)
