"""Callbacks instead of coroutines, with the interface of ``picows``: the least work in Python for each message.

A listener's methods are called in the event loop, for all messages of a batch in turn. Frames are whole messages.
"""

from __future__ import annotations

import enum
import typing

from ._native import Frame as WSFrame
from .asyncio.client import ClientConnection, connect
from .asyncio.connection import Connection
from .asyncio.server import Server, ServerConnection, serve
from .http11 import Request as WSUpgradeRequest

__all__ = [
    "WSCloseCode",
    "WSFrame",
    "WSListener",
    "WSMsgType",
    "WSTransport",
    "WSUpgradeRequest",
    "ws_connect",
    "ws_create_server",
]


class WSMsgType(enum.IntEnum):
    """The types of messages: the opcodes of RFC 6455."""

    TEXT = 1
    BINARY = 2
    CLOSE = 8
    PING = 9
    PONG = 10


class WSCloseCode(enum.IntEnum):
    """The usual close codes."""

    NO_INFO = 0
    OK = 1000
    GOING_AWAY = 1001
    PROTOCOL_ERROR = 1002
    INTERNAL_ERROR = 1011


class WSListener:
    """The callbacks of one connection; all do nothing by default. An exception is reported, and the connection goes on."""

    def on_ws_connected(self, transport: WSTransport) -> None:
        """The opening handshake is complete."""

    def on_ws_frame(self, transport: WSTransport, frame: WSFrame) -> None:
        """A message arrived. ``frame`` has ``msg_type`` and ``get_payload_as_bytes()``, ``…_utf8_text()``."""

    def on_ws_disconnected(self, transport: WSTransport) -> None:
        """The connection has ended."""

    def pause_writing(self) -> None:
        """More than ``write_limit`` bytes wait for the peer."""

    def resume_writing(self) -> None:
        """The peer has taken most of what waited."""


class WSTransport:
    """One connection, for its listener."""

    def __init__(self, connection: Connection, listener: WSListener) -> None:
        self.connection = connection
        self.listener = listener
        self.is_client_side = isinstance(connection, ClientConnection)
        self._link = connection._link
        self._frames = listener.on_ws_frame
        self._paused = False
        self._task = connection.loop.create_task(self._watch())
        listener.on_ws_connected(self)
        self._link.set_sink(self._on_frame)
        for message in iter(self._link.pop, None):
            text = isinstance(message, str)
            self._on_frame(self._link.frame(1 if text else 2, message.encode() if text else message))

    def _on_frame(self, frame: WSFrame) -> None:
        self._frames(self, frame)

    def send(self, msg_type: int, message: typing.Union[str, bytes, bytearray, memoryview]) -> None:
        """Sends a message of type ``WSMsgType.TEXT`` or ``BINARY``. It never waits: see ``pause_writing``."""
        if msg_type == 9:
            return self.send_ping(typing.cast(bytes, message))
        if msg_type not in (1, 2):
            raise ValueError(f"{msg_type} is no type of message to send; use WSMsgType.TEXT, BINARY or PING")
        must = self._link.send(message, msg_type == 1)
        if must:
            if must & 1:
                self.connection.loop.call_soon(self._link.flush)
            if must & 2 and not self._paused:
                self._paused = True
                self.connection.loop.create_task(self._resume())

    async def _resume(self) -> None:
        self.listener.pause_writing()
        await self.connection._drain()
        self._paused = False
        self.listener.resume_writing()

    def send_ping(self, message: bytes = b"") -> None:
        """Sends a ping."""
        self._link.ping(bytes(message))

    def send_close(self, close_code: int = WSCloseCode.OK, close_message: typing.Union[str, bytes, None] = None) -> None:
        """Begins the closing handshake."""
        reason = close_message.decode() if isinstance(close_message, bytes) else close_message or ""
        self.connection.loop.create_task(self.connection.close(close_code or 1000, reason))

    def disconnect(self, graceful: bool = True) -> None:
        """Closes the connection, with a closing handshake in either case."""
        self.send_close(WSCloseCode.OK if graceful else WSCloseCode.GOING_AWAY)

    async def wait_disconnected(self) -> None:
        """Waits until the connection has ended."""
        await self.connection.wait_closed()

    async def _watch(self) -> None:
        await self.connection.wait_closed()
        self.listener.on_ws_disconnected(self)


async def ws_connect(
    listener_factory: typing.Callable[[], WSListener],
    url: str,
    *,
    ssl_context: typing.Any = None,
    **kwargs: typing.Any,
) -> tuple[WSTransport, WSListener]:
    """Connects, and returns the transport and the listener. Further arguments are those of ``tautline.connect``."""
    kwargs.setdefault("compression", None)
    connection = await connect(url, ssl=ssl_context, **kwargs)
    listener = listener_factory()
    return WSTransport(connection, listener), listener


async def ws_create_server(
    listener_factory: typing.Callable[[WSUpgradeRequest], typing.Optional[WSListener]],
    host: typing.Any = None,
    port: typing.Optional[int] = None,
    **kwargs: typing.Any,
) -> Server:
    """Starts a server. The factory is called with each request; ``None`` closes the connection with 1008.

    Further arguments are those of ``tautline.serve``.
    """
    kwargs.setdefault("compression", None)

    async def handler(connection: ServerConnection) -> None:
        listener = listener_factory(typing.cast(WSUpgradeRequest, connection.request))
        if listener is None:
            await connection.close(1008)
            return
        await WSTransport(connection, listener).wait_disconnected()

    return await serve(handler, host, port, **kwargs)
