"""TLS by tautline's engine: contexts for servers and clients, and connections and servers under asyncio.

:class:`SSLContext` is an :class:`ssl.SSLContext` that remembers what was loaded into it, so that the engine can load it,
too. A context of the module :mod:`ssl` does not give its private key away: servers and clients with a certificate need
this class, and get an exception with another one. Any context will do for a client without a certificate.

Passed as ``ssl`` to asyncio, uvloop or a library over them, a :class:`SSLContext` has the engine in place of OpenSSL.
:func:`create_connection`, :func:`create_server` and their two siblings for streams do without the buffers between:
their transports read, open, seal and send by one native call each.
"""

from __future__ import annotations

import asyncio
import os
import socket
import ssl as _ssl
import typing

from . import _native
from ._addresses import passive_addresses
from ._bio import SSLObject
from ._transport import Server, Transport

__all__ = [
    "SSLContext",
    "SSLObject",
    "Server",
    "Transport",
    "create_connection",
    "create_default_context",
    "create_server",
    "open_connection",
    "start_server",
]


# Seconds between attempts to connect to the addresses of one host (RFC 8305, section 5).
ATTEMPT_DELAY = 0.25

P = typing.TypeVar("P", bound=asyncio.BaseProtocol)


def _read(path: typing.Any) -> bytes:
    with open(path, "rb") as file:
        return file.read()


class SSLContext(_ssl.SSLContext):
    """An :class:`ssl.SSLContext` whose certificates and keys the engine can read.

    ``load_cert_chain``, ``load_verify_locations``, ``set_alpn_protocols``, ``verify_mode`` and the versions of TLS are
    heeded. Other settings have no effect on the engine.
    """

    def __init__(self, *args: typing.Any, **kwargs: typing.Any) -> None:
        self._certificates: list[tuple[bytes, bytes]] = []
        self._roots: typing.Optional[bytes] = None
        self._alpn: tuple[bytes, ...] = ()
        self._engines: dict[bool, tuple[dict[str, typing.Any], _native.Engine]] = {}

    def wrap_bio(  # type: ignore[override]
        self,
        incoming: _ssl.MemoryBIO,
        outgoing: _ssl.MemoryBIO,
        server_side: bool = False,
        server_hostname: typing.Optional[str] = None,
        session: typing.Any = None,
    ) -> SSLObject:
        """The engine between two buffers: asyncio and uvloop call it for each connection.

        ``session`` has no effect, because the engine resumes sessions by itself.
        """
        made = self._session(server_side, server_hostname)
        return SSLObject(self, made, incoming, outgoing, server_side, server_hostname)

    def _session(self, server_side: bool, server_hostname: typing.Optional[str]) -> _native.Session:
        """A session of the engine, which is made anew if the context has changed."""
        options = options_of(self, server=server_side)
        known = self._engines.get(server_side)
        if known is None or known[0] != options:
            known = self._engines[server_side] = (options, _native.Engine(options, server_side))
        return known[1].session(None if server_side else server_hostname)

    def load_cert_chain(
        self, certfile: typing.Any, keyfile: typing.Any = None, password: typing.Any = None
    ) -> None:
        """Loads a certificate and its private key, in PEM. The key must not be encrypted."""
        super().load_cert_chain(certfile, keyfile, password)
        key = _read(keyfile if keyfile is not None else certfile)
        if b"ENCRYPTED" in key:
            raise ValueError(
                f"{os.fspath(keyfile or certfile)!r}: the private key is encrypted, and the engine loads plain keys only; "
                "decrypt it by `openssl pkey`"
            )
        self._certificates.append((_read(certfile), key))

    def load_verify_locations(
        self, cafile: typing.Any = None, capath: typing.Any = None, cadata: typing.Any = None
    ) -> None:
        """Trusts further authorities."""
        super().load_verify_locations(cafile, capath, cadata)
        if capath is not None:
            raise ValueError("capath is not supported: give a file with all authorities as cafile")
        pem = _read(cafile) if cafile is not None else b""
        if isinstance(cadata, str):
            pem += cadata.encode()
        elif cadata is not None:
            pem += _ssl.DER_cert_to_PEM_cert(bytes(cadata)).encode()
        self._roots = (self._roots or b"") + pem + b"\n"

    def set_alpn_protocols(self, alpn_protocols: typing.Iterable[str]) -> None:
        """Sets the application protocols, by preference."""
        protocols = list(alpn_protocols)
        super().set_alpn_protocols(protocols)
        self._alpn = tuple(name.encode() for name in protocols)


def create_default_context(
    purpose: typing.Any = _ssl.Purpose.SERVER_AUTH,
    *,
    cafile: typing.Any = None,
    capath: typing.Any = None,
    cadata: typing.Any = None,
) -> SSLContext:
    """Like :func:`ssl.create_default_context`, but with a :class:`SSLContext` of this module."""
    server = purpose is _ssl.Purpose.CLIENT_AUTH
    context = SSLContext(_ssl.PROTOCOL_TLS_SERVER if server else _ssl.PROTOCOL_TLS_CLIENT)
    if cafile is not None or capath is not None or cadata is not None:
        context.load_verify_locations(cafile, capath, cadata)
    return context


def _checked(context: typing.Any) -> SSLContext:
    if not isinstance(context, SSLContext):
        raise TypeError(f"ssl must be a tautline.tls.SSLContext, not {type(context).__name__}")
    return context


async def create_connection(
    protocol_factory: typing.Callable[[], P],
    host: typing.Optional[str] = None,
    port: typing.Optional[int] = None,
    *,
    ssl: SSLContext,
    sock: typing.Optional[socket.socket] = None,
    server_hostname: typing.Optional[str] = None,
    ssl_handshake_timeout: typing.Optional[float] = None,
    ssl_shutdown_timeout: typing.Optional[float] = None,
) -> tuple[Transport, P]:
    """Connects like the method of an event loop, and handshakes.

    Either ``host`` and ``port`` are given, or ``sock``, which is connected and which the transport takes over.
    """
    context = _checked(ssl)
    loop = asyncio.get_running_loop()
    name = server_hostname or host
    if (sock is None) == (host is None):
        raise ValueError("give either host and port, or sock")
    if not name:
        raise ValueError("a client needs the server's name: pass server_hostname")
    session = context._session(False, name)
    if sock is None:
        sock = await _connected(loop, typing.cast(str, host), port)
    protocol = protocol_factory()
    transport = Transport(
        loop,
        sock,
        protocol,
        context,
        session,
        server_hostname=name,
        handshake_timeout=ssl_handshake_timeout,
        shutdown_timeout=ssl_shutdown_timeout,
    )
    try:
        await transport.opened
    except BaseException:
        transport.abort()
        raise
    return transport, protocol


async def _connected(loop: asyncio.AbstractEventLoop, host: str, port: typing.Optional[int]) -> socket.socket:
    """A socket that is connected to the first address that answers. Further ones are tried while earlier ones are silent."""

    async def connect(family: int, kind: int, protocol: int, address: typing.Any) -> socket.socket:
        sock = socket.socket(family, kind, protocol)
        sock.setblocking(False)
        try:
            await loop.sock_connect(sock, address)
        except BaseException:
            sock.close()
            raise
        return sock

    infos = await loop.getaddrinfo(host, port or 0, type=socket.SOCK_STREAM)
    rest = list(dict.fromkeys((family, kind, protocol, address) for family, kind, protocol, _, address in infos))
    errors: list[BaseException] = []
    pending: set[asyncio.Task[socket.socket]] = set()
    try:
        while rest or pending:
            if rest:
                pending.add(loop.create_task(connect(*rest.pop(0))))
            delay = ATTEMPT_DELAY if rest else None
            await asyncio.wait(pending, timeout=delay, return_when=asyncio.FIRST_COMPLETED)
            for task in [task for task in pending if task.done()]:
                pending.remove(task)
                error = task.exception()
                if error is None:
                    return task.result()
                errors.append(error)
    finally:
        for task in pending:
            task.cancel()
        for left in await asyncio.gather(*pending, return_exceptions=True):
            if isinstance(left, socket.socket):
                left.close()
    if not errors:
        raise OSError(f"{host!r} has no address")
    if len(errors) == 1 or not isinstance(errors[0], OSError):
        raise errors[0]
    raise OSError(errors[0].errno, "; ".join(str(error) for error in errors))


async def create_server(
    protocol_factory: typing.Callable[[], asyncio.BaseProtocol],
    host: typing.Union[str, typing.Sequence[str], None] = None,
    port: typing.Optional[int] = None,
    *,
    ssl: SSLContext,
    sock: typing.Optional[socket.socket] = None,
    backlog: int = 100,
    reuse_port: bool = False,
    ssl_handshake_timeout: typing.Optional[float] = None,
    ssl_shutdown_timeout: typing.Optional[float] = None,
    start_serving: bool = True,
) -> Server:
    """Listens like the method of an event loop. ``sock`` is a bound socket in place of ``host`` and ``port``."""
    context = _checked(ssl)
    loop = asyncio.get_running_loop()
    # A wrong configuration is reported here and not at the first client.
    context._session(True, None)
    sockets = [sock] if sock is not None else await _bound(loop, host, port, reuse_port)
    for one in sockets:
        one.setblocking(False)
        one.listen(backlog)

    def start(accepted: socket.socket, on_end: typing.Callable[[Transport], None]) -> Transport:
        accepted.setblocking(False)
        return Transport(
            loop,
            accepted,
            protocol_factory(),
            context,
            context._session(True, None),
            server_side=True,
            handshake_timeout=ssl_handshake_timeout,
            shutdown_timeout=ssl_shutdown_timeout,
            on_end=on_end,
        )

    server = Server(loop, sockets, start)
    if start_serving:
        await server.start_serving()
    return server


async def _bound(
    loop: asyncio.AbstractEventLoop, host: typing.Any, port: typing.Optional[int], reuse_port: bool
) -> list[socket.socket]:
    """Sockets bound to all addresses of the names ``host``."""
    sockets: list[socket.socket] = []
    try:
        for family, kind, protocol, address in await passive_addresses(loop, host, port):
            sock = socket.socket(family, kind, protocol)
            sockets.append(sock)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if reuse_port:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            if family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            sock.bind(address)
    except BaseException:
        for sock in sockets:
            sock.close()
        raise
    return sockets


async def open_connection(
    host: typing.Optional[str] = None,
    port: typing.Optional[int] = None,
    *,
    ssl: SSLContext,
    limit: int = 2**16,
    **kwargs: typing.Any,
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connects like :func:`asyncio.open_connection`. Further arguments are those of :func:`create_connection`."""
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=limit, loop=loop)
    protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
    transport, _ = await create_connection(lambda: protocol, host, port, ssl=ssl, **kwargs)
    return reader, asyncio.StreamWriter(transport, protocol, reader, loop)


async def start_server(
    client_connected_cb: typing.Callable[[asyncio.StreamReader, asyncio.StreamWriter], typing.Any],
    host: typing.Union[str, typing.Sequence[str], None] = None,
    port: typing.Optional[int] = None,
    *,
    ssl: SSLContext,
    limit: int = 2**16,
    **kwargs: typing.Any,
) -> Server:
    """Serves like :func:`asyncio.start_server`. Further arguments are those of :func:`create_server`."""
    loop = asyncio.get_running_loop()

    def factory() -> asyncio.StreamReaderProtocol:
        reader = asyncio.StreamReader(limit=limit, loop=loop)
        return asyncio.StreamReaderProtocol(reader, client_connected_cb, loop=loop)

    return await create_server(factory, host, port, ssl=ssl, **kwargs)


def options_of(context: _ssl.SSLContext, *, server: bool) -> dict[str, typing.Any]:
    """What a context says, for the engine."""
    if not isinstance(context, _ssl.SSLContext):
        raise TypeError(f"ssl must be an SSLContext, not {type(context).__name__}")
    own = context if isinstance(context, SSLContext) else None
    if server and own is None:
        raise TypeError(
            "an ssl.SSLContext does not give its private key away: make the server's context by tautline.tls.SSLContext, "
            "which has the same methods"
        )
    if own is None and _has_certificate(context):
        raise TypeError(
            "an ssl.SSLContext does not give the private key of its client certificate away: make the context by "
            "tautline.tls.SSLContext, which has the same methods"
        )
    certificates = list(own._certificates) if own else []
    if server and not certificates:
        raise ValueError("the server's SSLContext has no certificate: call load_cert_chain first")
    roots = own._roots if own else _roots_of(context)
    if server:
        verify = {_ssl.CERT_NONE: "none", _ssl.CERT_OPTIONAL: "optional"}.get(context.verify_mode, "required")
    else:
        verify = "none" if context.verify_mode == _ssl.CERT_NONE else "required"
        if verify == "required" and not context.check_hostname:
            raise ValueError(
                "check_hostname=False with verified certificates is not supported: the engine always compares the name"
            )
    return {
        "certificates": certificates,
        "roots": roots,
        "verify": verify,
        "alpn": list(own._alpn) if own else [],
        "versions": _versions(context),
        "key_log": bool(getattr(context, "keylog_filename", None)),
    }


def _has_certificate(context: _ssl.SSLContext) -> bool:
    """Whether a certificate was loaded into a foreign context, which has no method that tells.

    It is lent to a server in memory, as for a server's name: without a certificate, that server fails at its first step.
    """
    client_context = _ssl.SSLContext(_ssl.PROTOCOL_TLS_CLIENT)
    client_context.check_hostname = False
    client_context.verify_mode = _ssl.CERT_NONE
    to_server, to_client = _ssl.MemoryBIO(), _ssl.MemoryBIO()
    client = client_context.wrap_bio(to_client, to_server)
    server = _ssl.SSLContext(_ssl.PROTOCOL_TLS_SERVER).wrap_bio(to_server, to_client, server_side=True)
    server.context = context
    try:
        client.do_handshake()
    except _ssl.SSLWantReadError:
        pass
    try:
        server.do_handshake()
    except _ssl.SSLWantReadError:
        return True
    except _ssl.SSLError:
        pass
    return False


def _roots_of(context: _ssl.SSLContext) -> typing.Optional[bytes]:
    """The authorities of a foreign context; ``None`` for the platform's."""
    ders = context.get_ca_certs(binary_form=True)
    stats = context.cert_store_stats()
    if not ders and stats["x509"] > stats["x509_ca"]:
        raise ValueError(
            "the ssl.SSLContext trusts a certificate that is no authority's, and does not give it away: make the context "
            "by tautline.tls.create_default_context, which takes the same arguments"
        )
    if ders == _ssl.create_default_context().get_ca_certs(binary_form=True):
        return None
    return "".join(_ssl.DER_cert_to_PEM_cert(der) for der in ders).encode()


def _versions(context: _ssl.SSLContext) -> str:
    low, high = context.minimum_version, context.maximum_version
    if low == _ssl.TLSVersion.TLSv1_3:
        return "1.3"
    if high == _ssl.TLSVersion.TLSv1_2:
        return "1.2"
    return "all"
