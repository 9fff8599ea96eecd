"""A blocking client: its loop runs on a thread of its own, so pings are answered while the caller is busy."""

from __future__ import annotations

import os
import threading
import time
import typing

from .. import _native
from .._dialers import dialer_for
from .._limits import native_options
from .._dialing import USER_AGENT, dial, failure_of, proxy_of, request_headers, split_uri
from ..asyncio.connection import DataLike, State, address_of
from ..compression import Compression
from ..exceptions import ConcurrencyError, ConnectionClosed, ConnectionClosedError, ConnectionClosedOK, end_of
from ..frames import Close, close_frame
from ..http11 import Request, response_of

__all__ = ["ClientConnection", "connect"]


class ClientConnection:
    """A connection for threads: one may receive while others send."""

    def __init__(self, dialer: typing.Any, limits: typing.Any) -> None:
        self._dialer = dialer
        self._limits = limits
        self._hub = _native.Hub(self._on_event)
        self._link: typing.Any = None
        self._failed: typing.Any = None
        self._sent: typing.Optional[Close] = None
        self._exc: typing.Optional[ConnectionClosed] = None
        self._pongs: dict[bytes, threading.Event] = {}
        self._room = threading.Event()
        # Whoever has it delivers events; the others wait for their own.
        self._pump = threading.Lock()
        self._receiving = threading.Lock()
        self.state = State.CONNECTING
        self.latency = 0.0
        self.subprotocol: typing.Optional[str] = None
        self.tls: typing.Optional[dict[str, typing.Any]] = None
        self.remote_address: typing.Any = None
        self.request: typing.Optional[Request] = None
        self.response: typing.Any = None

    def _on_event(self, name: str, key: int, value: typing.Any) -> None:
        if name == "open":
            self._link, info = value
            self._link.set_write_limit(self._limits.write_high)
            self.subprotocol, self.tls = info["subprotocol"], info["tls"]
            self.response, self.remote_address = response_of(info["response"]), address_of(info["peer"])
            self.state = State.OPEN
        elif name == "failed":
            self._failed = value
        elif name == "pong":
            event = self._pongs.pop(value, None)
            if event is not None:
                event.set()
        elif name == "latency":
            self.latency = value
        elif name == "room":
            self._room.set()
        elif name == "closed":
            rcvd, sent, rcvd_first, error = value
            self._exc = end_of(rcvd, sent, rcvd_first, error, self._sent)
            self._room.set()
            for event in self._pongs.values():
                event.set()
            self.state = State.CLOSED

    def _until(self, done: typing.Callable[[], bool], timeout: typing.Optional[float]) -> bool:
        """Delivers events until ``done()``. False if the time is over first."""
        end = None if timeout is None else time.monotonic() + timeout
        while not done():
            rest = None if end is None else end - time.monotonic()
            if rest is not None and rest <= 0:
                return False
            # Another thread may deliver: look again soon, since its events may be ours.
            if not self._pump.acquire(timeout=0.05 if rest is None else min(rest, 0.05)):
                continue
            try:
                if not done() and self._hub.wait(rest):
                    self._hub.drain()
            finally:
                self._pump.release()
        return True

    def __enter__(self) -> ClientConnection:
        return self

    def __exit__(self, exc_type: typing.Any, *exc: typing.Any) -> None:
        self.close(1000 if exc_type is None else 1011)

    def __iter__(self) -> typing.Iterator[typing.Union[str, bytes]]:
        try:
            while True:
                yield self.recv()
        except ConnectionClosedOK:
            return

    def recv(
        self, timeout: typing.Optional[float] = None, decode: typing.Optional[bool] = None
    ) -> typing.Union[str, bytes]:
        """The next message. Raises ``TimeoutError`` if none arrives in time."""
        if not self._receiving.acquire(blocking=False):
            raise ConcurrencyError("cannot call recv while another thread is already running recv")
        try:
            message = self._link.pop()
            if message is None:
                found: list[typing.Any] = []

                def done() -> bool:
                    if found:
                        return True
                    one = self._link.pop()
                    if one is not None:
                        found.append(one)
                    return one is not None or self.state is State.CLOSED

                if not self._until(done, timeout):
                    raise TimeoutError(f"timed out in {timeout:.1f}s")
                if not found:
                    raise self._closed()
                message = found[0]
        finally:
            self._receiving.release()
        if decode is None:
            return typing.cast(typing.Union[str, bytes], message)
        if decode:
            return message.decode() if isinstance(message, bytes) else message
        return message.encode() if isinstance(message, str) else message

    def send(self, message: DataLike, text: typing.Optional[bool] = None) -> None:
        """Sends a message. It waits while more than ``write_limit`` bytes wait for the peer."""
        if self.state is not State.OPEN:
            raise self._closed()
        must = self._link.send(message, text)
        self._link.flush()
        while must & 2 and self.state is State.OPEN and self._link.backlog > self._limits.write_high:
            self._room.clear()
            self._link.want_room(self._limits.write_low)
            self._until(self._room.is_set, None)

    def ping(self, data: typing.Union[str, bytes, None] = None) -> threading.Event:
        """Sends a ping. The event that is returned is set when the pong is there, or at the end of the connection.

        Events are delivered inside of ``recv``, ``send`` and ``close``.
        """
        if self.state is not State.OPEN:
            raise self._closed()
        payload = os.urandom(4) if data is None else data.encode() if isinstance(data, str) else bytes(data)
        if payload in self._pongs:
            raise ConcurrencyError("already waiting for a pong with the same data")
        event = self._pongs[payload] = threading.Event()
        self._link.ping(payload)
        return event

    def close(self, code: int = 1000, reason: str = "") -> None:
        """Closes the connection, and waits for its end, at most ``close_timeout``."""
        if self.state is State.OPEN:
            self._sent = close_frame(code, reason)
            self.state = State.CLOSING
            self._link.close(self._sent.code, reason)
        if self.state is State.CLOSING:
            self._until(lambda: self.state is State.CLOSED, None)

    def _closed(self) -> ConnectionClosed:
        return ConnectionClosedError(None, None) if self._exc is None else self._exc


def connect(
    uri: str,
    *,
    origin: typing.Optional[str] = None,
    subprotocols: typing.Optional[typing.Sequence[str]] = None,
    compression: Compression = "deflate",
    additional_headers: typing.Any = None,
    user_agent_header: typing.Optional[str] = USER_AGENT,
    proxy: typing.Any = True,
    open_timeout: typing.Optional[float] = 10,
    ping_interval: typing.Optional[float] = 20,
    ping_timeout: typing.Optional[float] = 20,
    close_timeout: typing.Optional[float] = 10,
    max_size: typing.Any = 2**20,
    max_queue: typing.Any = 16,
    write_limit: typing.Any = 2**15,
    ssl: typing.Any = None,
    server_hostname: typing.Optional[str] = None,
) -> ClientConnection:
    """Connects to a WebSocket server, and waits until the connection is open."""
    split = split_uri(uri)
    if split.scheme == "ws" and ssl is not None:
        raise ValueError("ssl argument is incompatible with a ws:// URI")
    limits = native_options(
        compression=compression,
        max_size=max_size,
        max_queue=max_queue,
        write_limit=write_limit,
        open_timeout=open_timeout,
        ping_interval=ping_interval,
        ping_timeout=ping_timeout,
        close_timeout=close_timeout,
    )
    dialer = dialer_for(limits, ssl, split.scheme == "wss")
    connection = ClientConnection(dialer, limits)
    _, connection.request = dial(
        dialer,
        connection._hub,
        split,
        server_name=server_hostname,
        headers=request_headers(split, additional_headers, user_agent_header),
        subprotocols=subprotocols or (),
        proxy=proxy_of(proxy, split),
        origin=origin,
    )
    opened = connection._until(lambda: connection._link is not None or connection._failed is not None, open_timeout)
    if not opened:
        raise TimeoutError("timed out while waiting for handshake response")
    if connection._failed is not None:
        raise failure_of(*connection._failed)
    return connection
