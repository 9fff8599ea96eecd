"""Clients under asyncio, with the interface of ``websockets.asyncio.client``."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import socket
import traceback
import typing
import urllib.parse
import weakref

from .. import _native
from .._dialers import dialer_for
from .._dialing import USER_AGENT, dial, failure_of, port_of, proxy_of, request_headers, split_uri
from .._limits import native_options
from ..compression import Compression
from ..datastructures import Headers
from ..exceptions import InvalidMessage, InvalidStatus, SecurityError
from ..http11 import response_of
from .connection import Connection, State

__all__ = ["ClientConnection", "connect", "process_exception", "unix_connect"]

MAX_REDIRECTS = 10

# The longest wait before another attempt, in seconds, also if a server asks for more.
LONGEST_DELAY = 90.0

# The platform's authorities for wss://, and nothing for ws://. `None` means no TLS.
DEFAULT_TLS: typing.Any = object()


class ClientConnection(Connection):
    """A connection with a server."""

    _dialer: typing.Any = None


class _Events:
    """The events of all clients of one event loop."""

    def __init__(self) -> None:
        self.hub = _native.Hub(self.on_event)
        self.dials: dict[int, asyncio.Future[typing.Any]] = {}
        self.connections: dict[int, ClientConnection] = {}

    def on_event(self, name: str, key: int, value: typing.Any) -> None:
        """An event of a connection, or of an attempt to open one."""
        if name in ("open", "failed"):
            attempt = self.dials.pop(key, None)
            if attempt is not None and not attempt.done():
                attempt.set_result((name, value))
                if name == "open":
                    # Known before the next event, which may be its end.
                    self.connections[key] = connection = attempt.connection  # type: ignore[attr-defined]
                    connection.response = response_of(value[1]["response"])
                    connection._open(*value)
            elif name == "open":
                value[0].close(1001, "")
            return
        connection = self.connections.get(key)
        if connection is None:
            return
        if name == "closed":
            del self.connections[key]
            connection._closed(*value)
        elif name == "pong":
            connection._pong(value)
        elif name == "latency":
            connection.latency = value
        elif name == "room":
            connection._has_room()


class _Dial(asyncio.Future):  # type: ignore[type-arg]
    """The result of an attempt, with the connection that it makes."""

    connection: ClientConnection


_EVENTS: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Events] = weakref.WeakKeyDictionary()


def _events(loop: asyncio.AbstractEventLoop) -> _Events:
    events = _EVENTS.get(loop)
    if events is None:
        events = _EVENTS[loop] = _Events()
        loop.add_reader(events.hub.fileno(), events.hub.drain)
    return events


def process_exception(exc: Exception) -> typing.Optional[Exception]:
    """Whether reconnecting is in vain: returns the exception then, else ``None``."""
    if isinstance(exc, (OSError, EOFError, asyncio.TimeoutError, InvalidMessage)):
        return None
    if isinstance(exc, InvalidStatus) and exc.response.status_code in (429, 500, 502, 503, 504):
        return None
    return exc


def backoff() -> typing.Generator[float, None, None]:
    """Waits between attempts: a random first one below 5 s, then growing from 3 s to 90 s."""
    yield random.random() * 5
    delay = 3.1
    while True:
        yield delay
        delay = min(delay * 1.6, LONGEST_DELAY)


class connect:
    """Connects to a WebSocket server: ``async with connect(uri) as ws``, ``ws = await connect(uri)``.

    ``async for ws in connect(uri)`` connects again after each end. The arguments are those of ``websockets``.
    """

    def __init__(
        self,
        uri: str,
        *,
        origin: typing.Optional[str] = None,
        subprotocols: typing.Optional[typing.Sequence[str]] = None,
        compression: Compression = "deflate",
        additional_headers: typing.Any = None,
        user_agent_header: typing.Optional[str] = USER_AGENT,
        proxy: typing.Any = True,
        process_exception: typing.Callable[[Exception], typing.Optional[Exception]] = process_exception,
        open_timeout: typing.Optional[float] = 10,
        ping_interval: typing.Optional[float] = 20,
        ping_timeout: typing.Optional[float] = 20,
        close_timeout: typing.Optional[float] = 10,
        reconnect_delays: typing.Callable[[], typing.Generator[float, None, None]] = backoff,
        max_size: typing.Any = 2**20,
        max_queue: typing.Any = 16,
        write_limit: typing.Any = 2**15,
        logger: typing.Any = None,
        create_connection: typing.Optional[type[ClientConnection]] = None,
        ssl: typing.Any = DEFAULT_TLS,
        host: typing.Optional[str] = None,
        port: typing.Optional[int] = None,
        server_hostname: typing.Optional[str] = None,
        path: typing.Optional[str] = None,
    ) -> None:
        self.uri = uri
        self._split = split_uri(uri)
        if self._split.scheme == "ws" and ssl not in (None, DEFAULT_TLS):
            raise ValueError("ssl argument is incompatible with a ws:// URI")
        if self._split.scheme == "wss" and ssl is None:
            raise ValueError("ssl=None is incompatible with a wss:// URI")
        self.limits = native_options(
            compression=compression,
            max_size=max_size,
            max_queue=max_queue,
            write_limit=write_limit,
            open_timeout=open_timeout,
            ping_interval=ping_interval,
            ping_timeout=ping_timeout,
            close_timeout=close_timeout,
        )
        if isinstance(subprotocols, str):
            raise TypeError("subprotocols must be a list, not a str")
        self.subprotocols = list(subprotocols or ())
        self.origin = origin
        self.additional_headers = additional_headers
        self.user_agent_header = user_agent_header
        self.proxy = proxy
        self.process_exception = process_exception
        self.reconnect_delays = reconnect_delays
        self.open_timeout = open_timeout
        self.logger = logger or logging.getLogger("tautline.client")
        self.create_connection = create_connection or ClientConnection
        self.ssl = None if ssl is DEFAULT_TLS else ssl
        self.host, self.port, self.path = host, port, path
        self.server_hostname = server_hostname
        self.connection: typing.Optional[ClientConnection] = None

    async def _connect(self) -> ClientConnection:
        try:
            return await asyncio.wait_for(self._follow(), self.open_timeout)
        except asyncio.TimeoutError as exc:
            raise TimeoutError("timed out during opening handshake") from exc

    async def _follow(self) -> ClientConnection:
        """Connects, and follows redirects."""
        for _ in range(MAX_REDIRECTS):
            try:
                return await self._dial()
            except InvalidStatus as exc:
                uri = self.process_redirect(exc)
                if isinstance(uri, Exception):
                    raise uri from (None if uri is exc else exc)
                self.uri, self._split = uri, split_uri(uri)
        raise SecurityError(f"more than {MAX_REDIRECTS} redirects")

    async def _dial(self) -> ClientConnection:
        loop = asyncio.get_running_loop()
        events = _events(loop)
        address, addresses = None, []
        if self.path is not None:
            address = f"unix:{self.path}"
        elif self.host is not None or self.port is not None:
            # A name in ASCII, which an international one is not in the URI.
            name = self.host or _native.host_of(urllib.parse.urlunsplit(self._split))[0]
            addresses = await _resolve(loop, name, self.port or port_of(self._split))
        proxy = proxy_of(self.proxy, self._split) if address is None and not addresses else None
        dialer = dialer_for(self.limits, self.ssl, self._split.scheme == "wss")
        key, request = dial(
            dialer,
            events.hub,
            self._split,
            address=address,
            addresses=addresses,
            server_name=self.server_hostname,
            headers=request_headers(self._split, self.additional_headers, self.user_agent_header),
            subprotocols=self.subprotocols,
            proxy=proxy,
            origin=self.origin,
        )
        attempt = _Dial(loop=loop)
        attempt.connection = connection = self.create_connection(loop, self.logger, self.limits)
        connection._dialer = dialer
        connection.request = request
        events.dials[key] = attempt
        try:
            name, value = await attempt
        except asyncio.CancelledError:
            if connection.state is State.OPEN:
                connection._link.close(1001, "")
            raise
        if name == "failed":
            raise failure_of(*value)
        return connection

    def process_redirect(self, exc: Exception) -> typing.Union[Exception, str]:
        """The URI to which a response redirects, or the exception that ends the attempt."""
        if not isinstance(exc, InvalidStatus):
            return exc
        response = exc.response
        if response.status_code not in (300, 301, 302, 303, 307, 308) or "Location" not in response.headers:
            return exc
        uri = urllib.parse.urljoin(self.uri, response.headers["Location"])
        old, new = self._split, split_uri(uri)
        if old.scheme == "wss" and new.scheme == "ws":
            return SecurityError(f"cannot follow redirect to non-secure URI {uri}")
        if (old.scheme, old.hostname, port_of(old)) != (new.scheme, new.hostname, port_of(new)):
            if self.path is not None:
                return ValueError(f"cannot follow cross-origin redirect to {uri} with a Unix socket")
            if self.host is not None or self.port is not None:
                return ValueError(f"cannot follow cross-origin redirect to {uri} with an explicit host or port")
            if self.additional_headers is not None:
                # Another origin must not learn them.
                secret = ("authorization", "cookie", "proxy-authorization")
                pairs = Headers(self.additional_headers).raw_items()
                self.additional_headers = Headers([pair for pair in pairs if pair[0].lower() not in secret])
        return uri

    def __await__(self) -> typing.Generator[typing.Any, None, ClientConnection]:
        return self._connect().__await__()

    async def __aenter__(self) -> ClientConnection:
        if self.connection is not None:
            raise RuntimeError("connect() isn't reentrant")
        self.connection = await self._connect()
        return self.connection

    async def __aexit__(self, *exc: typing.Any) -> None:
        connection, self.connection = self.connection, None
        if connection is not None:
            await connection.__aexit__(*exc)

    async def __aiter__(self) -> typing.AsyncIterator[ClientConnection]:
        delays: typing.Optional[typing.Generator[float, None, None]] = None
        while True:
            try:
                async with self as connection:
                    yield connection
            except Exception as exc:
                fatal = self.process_exception(exc)
                if fatal is exc:
                    raise
                if fatal is not None:
                    raise fatal from exc
                is_first = delays is None
                delays = delays or self.reconnect_delays()
                delay = next(delays)
                if isinstance(exc, InvalidStatus) and exc.retry_after is not None:
                    # In place of the first wait, and as the least of later ones. A server that refuses many tells them
                    # the same time, so a random part is added: they must not come back together.
                    told = min(exc.retry_after, LONGEST_DELAY) * (1 + random.random() / 4)
                    delay = told if is_first else max(delay, told)
                why = traceback.format_exception_only(type(exc), exc)[0].strip()
                self.logger.info("connect failed; reconnecting in %.1f seconds: %s", delay, why)
                await asyncio.sleep(delay)
            else:
                delays = None


def unix_connect(path: typing.Any = None, uri: typing.Optional[str] = None, **kwargs: typing.Any) -> connect:
    """Connects to a server at a Unix socket."""
    if path is None:
        raise ValueError("no path and sock were specified")
    if uri is None:
        uri = "ws://localhost/" if kwargs.get("ssl") is None else "wss://localhost/"
    return connect(uri, path=os.fspath(path), **kwargs)


async def _resolve(loop: asyncio.AbstractEventLoop, host: typing.Optional[str], port: int) -> list[str]:
    """All addresses of a host, in the resolver's order, each once."""
    addresses: dict[str, None] = {}
    for _, _, _, _, found in await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        address, number, *rest = typing.cast("tuple[typing.Any, ...]", found)
        zone = f"%{rest[1]}" if len(rest) == 2 and rest[1] else ""
        addresses[f"[{address}{zone}]:{number}" if ":" in address else f"{address}:{number}"] = None
    if not addresses:
        raise OSError(f"{host!r} has no address")
    return list(addresses)
