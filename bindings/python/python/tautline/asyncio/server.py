"""Servers under asyncio, with the interface of ``websockets.asyncio.server``."""

from __future__ import annotations

import asyncio
import base64
import binascii
import collections.abc
import hmac
import http
import inspect
import logging
import os
import socket
import sys
import typing

from .. import _native
from .._addresses import passive_addresses
from .._limits import native_options
from .._origins import allowed_origins, check_origin
from .._version import __version__
from ..compression import Compression
from ..datastructures import Headers
from ..exceptions import InvalidOrigin, NegotiationError
from ..http11 import Request, Response, plain_response, request_of
from ..tls import options_of
from .connection import Connection, State, address_of, broadcast

__all__ = ["Server", "ServerConnection", "basic_auth", "broadcast", "serve", "unix_serve"]

SERVER_HEADER = f"tautline/{__version__} Python/{sys.version_info[0]}.{sys.version_info[1]}"
FAILED = "Failed to open a WebSocket connection.\nSee server log for more information.\n"


class ServerConnection(Connection):
    """A connection of a client with this server."""

    username: str

    def __init__(self, server: Server) -> None:
        super().__init__(server.get_loop(), server.logger, server._limits)
        self.server = server

    def respond(self, status: typing.Union[int, http.HTTPStatus], text: str) -> Response:
        """A response of plain text, for ``process_request`` and ``process_response``."""
        return plain_response(status, text)


class _Socket:
    """An address at which a server listens, with the methods of a socket that tell about it."""

    def __init__(self, address: str) -> None:
        self._address = address_of(address)
        if isinstance(self._address, str):
            self.family = socket.AF_UNIX
        else:
            self.family = socket.AF_INET6 if len(self._address) == 4 else socket.AF_INET

    def getsockname(self) -> typing.Any:
        """The address."""
        return self._address


class Server:
    """A server. Its handlers run in the event loop that started it."""

    def __init__(self, handler: typing.Any, arguments: dict[str, typing.Any]) -> None:
        self.handler = handler
        self.logger = arguments.pop("logger") or logging.getLogger("tautline.server")
        self._arguments = arguments
        self._limits = arguments["limits"]
        self._loop = asyncio.get_running_loop()
        self._native: typing.Any = None
        self._hub: typing.Any = None
        self._fd: typing.Optional[int] = None
        self._alarm: typing.Optional[asyncio.TimerHandle] = None
        self._loops_left = 0
        self._sockets: tuple[typing.Any, ...] = ()
        self._opening: dict[int, ServerConnection] = {}
        self._connections: dict[int, ServerConnection] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing: typing.Optional[asyncio.Task[None]] = None
        self._stopped: asyncio.Future[None] = self._loop.create_future()
        self._done: asyncio.Future[None] = self._loop.create_future()

    # Start and end.

    async def _start(self) -> Server:
        arguments = self._arguments
        if arguments["listen"] is None:
            arguments["listen"] = await _addresses(self._loop, arguments["host"], arguments["port"])
        if arguments["start_serving"]:
            self._listen()
        return self

    def _listen(self) -> None:
        """Opens the addresses that are known now."""
        if self._native is not None or self._done.done():
            return
        arguments, sock = self._arguments, self._arguments["sock"]
        duplicate = None
        if sock is not None:
            # The loops close theirs, and nobody is to be surprised that this one is closed.
            duplicate = sock.dup()
            duplicate.setblocking(False)
            duplicate.listen(100)
        self._hub = _native.Hub(self._on_event)
        server_header = arguments["server_header"]
        self._native = _native.Server(
            self._hub,
            arguments["listen"],
            dict(self._limits.options),
            arguments["tls"],
            sock=duplicate,
            loops=arguments["loops"],
            reuse_port=arguments["reuse_port"],
            asks=arguments["asks"],
            headers=[] if server_header is None else [("Server", server_header)],
        )
        self._loops_left = self._native.loops
        self._sockets = tuple(sock or _Socket(address) for address in self._native.addresses)
        self._loop.add_reader(self._hub.fileno(), self._hub.drain)
        self._fd = self._native.fileno()
        if self._fd is not None:
            self._loop.add_reader(self._fd, self._turn)
            self._turn()
        for one in self._native.addresses:
            self.logger.info("server listening on %s", one)

    def _turn(self, timed_out: bool = False) -> None:
        """Turns the loop, which is one of this thread."""
        wait = self._native.turn(self._hub, timed_out)
        if wait is not None:
            if self._alarm is not None:
                self._alarm.cancel()
            self._alarm = self._loop.call_later(wait, self._turn, True)

    def _release(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        if self._fd is not None:
            self._loop.remove_reader(self._fd)
            self._native.release()

    def close(self, close_connections: bool = True, code: int = 1001, reason: str = "") -> None:
        """Stops accepting, closes all connections, and ends once all handlers have returned.

        Without ``close_connections`` it waits for the handlers first, and answers new clients with status 503 meanwhile.
        """
        if self._native is None:
            # It was made with `start_serving=False`, and has nothing to close.
            self._end()
        elif self._closing is None:
            self._closing = self._loop.create_task(self._close(close_connections, int(code), reason))

    async def _close(self, close_connections: bool, code: int, reason: str) -> None:
        self.logger.info("server closing")
        self._native.refuse()
        if not close_connections and self._tasks:
            await asyncio.wait(set(self._tasks))
        for connection in list(self._connections.values()):
            connection._closing_by_server(code, reason)
        self._native.drain(code, reason, dict(self._limits.options)["close_timeout"])
        await self._stopped
        if self._tasks:
            await asyncio.wait(set(self._tasks))
        self._loop.remove_reader(self._hub.fileno())
        self._hub.close()
        self._end()
        self.logger.info("server closed")

    def _end(self) -> None:
        if self._arguments["sock"] is not None:
            self._arguments["sock"].close()
        if not self._done.done():
            self._done.set_result(None)

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """The event loop of its handlers."""
        return self._loop

    def is_serving(self) -> bool:
        """Whether it accepts clients."""
        return self._native is not None and self._closing is None

    async def start_serving(self) -> None:
        """Starts a server that was made with ``start_serving=False``."""
        self._listen()

    async def serve_forever(self) -> None:
        """Starts the server if need be, waits until it is closed, and closes it if it is cancelled."""
        self._listen()
        try:
            await self.wait_closed()
        except asyncio.CancelledError:
            self.close()
            await self.wait_closed()
            raise

    async def wait_closed(self) -> None:
        """Waits until all connections have ended and all handlers have returned."""
        await asyncio.shield(self._done)

    @property
    def connections(self) -> set[ServerConnection]:
        """The connections that are open."""
        return {one for one in self._connections.values() if one.state is State.OPEN}

    @property
    def sockets(self) -> tuple[typing.Any, ...]:
        """The addresses at which it listens, each with ``getsockname`` and ``family``; or the argument ``sock``."""
        return () if self._closing is not None else self._sockets

    def __await__(self) -> typing.Generator[typing.Any, None, Server]:
        return self._start().__await__()

    async def __aenter__(self) -> Server:
        return await self._start()

    async def __aexit__(self, *exc: typing.Any) -> None:
        self.close()
        await self.wait_closed()

    # Events.

    def _on_event(self, name: str, key: int, value: typing.Any) -> None:
        if name == "request":
            self._spawn(self._handshake(key, value))
        elif name == "open":
            self._opened(key, *value)
        elif name == "closed":
            connection = self._connections.pop(key, None)
            if connection is not None:
                connection._closed(*value)
        elif name == "pong":
            self._connections[key]._pong(value)
        elif name == "latency":
            self._connections[key].latency = value
        elif name == "room":
            if key in self._connections:
                self._connections[key]._has_room()
        elif name == "stopped":
            self._loops_left -= 1
            if self._loops_left == 0:
                self._release()
                if not self._stopped.done():
                    self._stopped.set_result(None)

    def _opened(self, key: int, link: typing.Any, info: dict[str, typing.Any]) -> None:
        connection = self._opening.pop(key, None)
        if connection is None:
            connection = self._arguments["create_connection"](self)
            connection.request = request_of(info["request"])
            connection.response = self._switching(info["subprotocol"])
        connection.local_address = self._sockets[0].getsockname()
        connection._open(link, info)
        self._connections[key] = connection
        self._spawn(self._handle(connection))

    def _spawn(self, work: typing.Any) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _handle(self, connection: ServerConnection) -> None:
        try:
            async with connection:
                await self.handler(connection)
        except Exception:
            connection.logger.error("connection handler failed", exc_info=True)

    async def _handshake(self, key: int, asked: typing.Any) -> None:
        connection = self._arguments["create_connection"](self)
        connection.request = request = request_of(asked.head)
        connection.remote_address = address_of(asked.peer)
        response = await self._answer(connection, request, asked.is_upgrade)
        if response.status_code == 101 and not self.is_serving():
            response = plain_response(503, "Server is shutting down.\n")
        connection.response = response
        if response.status_code != 101:
            asked.respond(response.status_code, list(response.headers.raw_items()), response.body)
            return
        self._opening[key] = connection
        own = ("upgrade", "connection", "sec-websocket-protocol")
        headers = [pair for pair in response.headers.raw_items() if pair[0].lower() not in own]
        if not asked.accept(headers, connection.subprotocol):
            del self._opening[key]

    async def _answer(self, connection: ServerConnection, request: Request, is_upgrade: bool) -> Response:
        hooks = self._arguments
        try:
            what = "process_request"
            response = await _called(hooks[what], connection, request)
            if response is None:
                what = "select_subprotocol"
                response = self._accept(connection, request, is_upgrade)
            if hooks["server_header"] is not None:
                response.headers.pop("Server", None)
                response.headers["Server"] = hooks["server_header"]
            what = "process_response"
            return await _called(hooks[what], connection, request, response) or response
        except Exception:
            connection.logger.error("%s failed", what, exc_info=True)
            return plain_response(500, FAILED)

    def _accept(self, connection: ServerConnection, request: Request, is_upgrade: bool) -> Response:
        """The answer without hooks."""
        if not is_upgrade:
            response = plain_response(426, "Failed to open a WebSocket connection: missing Upgrade header.\n")
            response.headers["Upgrade"] = "websocket"
            return response
        try:
            check_origin(self._arguments["origins"], request.headers)
            connection.subprotocol = self._subprotocol(connection, request.headers)
        except InvalidOrigin as exc:
            return plain_response(403, f"Failed to open a WebSocket connection: {exc}.\n")
        except NegotiationError as exc:
            return plain_response(400, f"Failed to open a WebSocket connection: {exc}.\n")
        return self._switching(connection.subprotocol)

    def _switching(self, subprotocol: typing.Optional[str]) -> Response:
        """The answer that accepts a request. The native part adds ``Sec-WebSocket-Accept``."""
        headers = Headers([("Upgrade", "websocket"), ("Connection", "Upgrade")])
        if subprotocol is not None:
            headers["Sec-WebSocket-Protocol"] = subprotocol
        if self._arguments["server_header"] is not None:
            headers["Server"] = self._arguments["server_header"]
        return Response(101, "Switching Protocols", headers)

    def _subprotocol(self, connection: ServerConnection, headers: Headers) -> typing.Optional[str]:
        offered = [name.strip() for line in headers.get_all("Sec-WebSocket-Protocol") for name in line.split(",")]
        select = self._arguments["select_subprotocol"]
        if select is not None:
            return typing.cast(typing.Optional[str], select(connection, offered))
        ours = dict(self._limits.options)["subprotocols"]
        return next((name for name in ours if name in offered), None)


async def _called(hook: typing.Any, *arguments: typing.Any) -> typing.Optional[Response]:
    """The result of a hook, which may be a coroutine; ``None`` without a hook."""
    result = None if hook is None else hook(*arguments)
    if inspect.isawaitable(result):
        result = await result
    if result is not None and not isinstance(result, Response):
        raise TypeError(f"a hook must return a Response or None, not {type(result).__name__}")
    return result


async def _addresses(loop: asyncio.AbstractEventLoop, host: typing.Any, port: typing.Optional[int]) -> list[str]:
    """The addresses of the names ``host``, as the native part writes them."""
    found = await passive_addresses(loop, host, port)
    inet = [(family, address) for family, _, _, address in found if family in (socket.AF_INET, socket.AF_INET6)]
    return [f"[{ip}]:{port}" if family == socket.AF_INET6 else f"{ip}:{port}" for family, (ip, port, *_) in inet]


def serve(
    handler: typing.Callable[[ServerConnection], typing.Awaitable[None]],
    host: typing.Union[str, typing.Sequence[str], None] = None,
    port: typing.Optional[int] = None,
    *,
    origins: typing.Any = None,
    subprotocols: typing.Optional[typing.Sequence[str]] = None,
    select_subprotocol: typing.Any = None,
    compression: Compression = "deflate",
    process_request: typing.Any = None,
    process_response: typing.Any = None,
    server_header: typing.Optional[str] = SERVER_HEADER,
    open_timeout: typing.Optional[float] = 10,
    ping_interval: typing.Optional[float] = 20,
    ping_timeout: typing.Optional[float] = 20,
    close_timeout: typing.Optional[float] = 10,
    max_size: typing.Any = 2**20,
    max_queue: typing.Any = 16,
    write_limit: typing.Any = 2**15,
    logger: typing.Any = None,
    create_connection: typing.Optional[type[ServerConnection]] = None,
    ssl: typing.Any = None,
    sock: typing.Optional[socket.socket] = None,
    start_serving: bool = True,
    loops: int = 0,
    reuse_port: typing.Optional[bool] = None,
    unix: bool = False,
    path: typing.Any = None,
    proxy_protocol_from: typing.Sequence[str] = (),
    forwarded_from: typing.Sequence[str] = (),
    **unsupported: typing.Any,
) -> Server:
    """Starts a server when it is awaited or entered: ``async with serve(handler, host, port) as server``.

    ``handler`` is a coroutine function, called with each connection. ``ssl`` is a :class:`tautline.tls.SSLContext`.
    ``sock`` is a stream socket that is bound, or that listens already; it is closed with the server. ``loops`` is the number of threads that receive and send; with 0 the event loop's own thread does.
    With ``reuse_port``, servers of other processes may listen at the same port, and the kernel spreads clients over all.
    ``proxy_protocol_from`` and ``forwarded_from`` are networks of proxies, such as ``10.0.0.0/8``, or ``unix``: those
    whose connections begin with a header of the PROXY protocol, and those whose requests name the client in
    ``X-Forwarded-For``. ``remote_address`` is the client then. The other arguments are those of ``websockets``.
    """
    _refuse(unsupported)
    if sock is not None and (host is not None or port is not None):
        raise ValueError("host/port and sock can not be specified at the same time")
    if sock is not None and path is not None:
        raise ValueError("path and sock can not be specified at the same time")
    if unix and path is None and sock is None:
        raise ValueError("path was not specified, and no sock specified")
    limits = native_options(
        compression=compression,
        max_size=max_size,
        max_queue=max_queue,
        write_limit=write_limit,
        open_timeout=open_timeout,
        ping_interval=ping_interval,
        ping_timeout=ping_timeout,
        close_timeout=close_timeout,
        subprotocols=subprotocols or (),
        proxies=(proxy_protocol_from, forwarded_from),
    )
    hooks = (origins, select_subprotocol, process_request, process_response)
    arguments = {
        "limits": limits,
        "logger": logger,
        "listen": [] if sock is not None else [f"unix:{os.fspath(path)}"] if unix else None,
        "sock": sock,
        "start_serving": start_serving,
        "host": host,
        "port": port,
        "tls": None if ssl is None else options_of(ssl, server=True),
        "loops": loops,
        "reuse_port": bool(reuse_port),
        "asks": any(hook is not None for hook in hooks),
        "origins": allowed_origins(origins),
        "select_subprotocol": select_subprotocol,
        "process_request": process_request,
        "process_response": process_response,
        "server_header": server_header,
        "create_connection": create_connection or ServerConnection,
    }
    return Server(handler, arguments)


def unix_serve(handler: typing.Any, path: typing.Any = None, **kwargs: typing.Any) -> Server:
    """Starts a server at a Unix socket."""
    return serve(handler, unix=True, path=path, **kwargs)


def _refuse(unsupported: dict[str, typing.Any]) -> None:
    defaults = {
        "reuse_address": (None, True),
        "backlog": (100,),
        "family": (0,),
        "flags": (0,),
    }
    for name, value in unsupported.items():
        if any(value is default or (value == default and type(value) is type(default)) for default in defaults.get(name, ())):
            continue
        raise TypeError(
            f"serve() does not support the argument {name!r}: the loops open their own sockets; "
            "docs/python.md lists what differs from websockets"
        )


def basic_auth(
    realm: str = "",
    credentials: typing.Any = None,
    check_credentials: typing.Any = None,
) -> typing.Any:
    """A ``process_request`` that asks for a name and a password (RFC 7617)."""
    if (credentials is None) == (check_credentials is None):
        raise ValueError("provide either credentials or check_credentials")
    if not isinstance(credentials, (type(None), tuple, collections.abc.Iterable)):
        raise TypeError(f"invalid credentials argument: {credentials}")
    pairs = [credentials] if isinstance(credentials, tuple) else list(credentials or ())
    if not all(isinstance(pair, tuple) and len(pair) == 2 for pair in pairs):
        raise TypeError(f"invalid credentials argument: {credentials}")
    known = dict(pairs)

    async def process_request(connection: ServerConnection, request: Request) -> typing.Optional[Response]:
        values = request.headers.get_all("Authorization")
        name, password = _basic(values[0]) if len(values) == 1 else (None, None)
        if name is not None and password is not None:
            if check_credentials is None:
                valid = name in known and hmac.compare_digest(known[name].encode(), password.encode())
            else:
                valid = check_credentials(name, password)
                if inspect.isawaitable(valid):
                    valid = await valid
            if valid:
                connection.username = name
                return None
        response = connection.respond(401, "Missing or invalid credentials\n")
        response.headers["WWW-Authenticate"] = f'Basic realm="{realm}", charset="UTF-8"'
        return response

    return process_request


def _basic(value: str) -> tuple[typing.Optional[str], typing.Optional[str]]:
    scheme, _, encoded = value.partition(" ")
    if scheme.lower() != "basic":
        return None, None
    try:
        name, colon, password = base64.b64decode(encoded.strip(), validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return None, None
    return (name, password) if colon else (None, None)
