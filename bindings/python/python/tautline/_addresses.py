"""The addresses at which a server listens."""

from __future__ import annotations

import asyncio
import socket
import typing

Found = tuple[socket.AddressFamily, socket.SocketKind, int, typing.Any]


async def passive_addresses(
    loop: asyncio.AbstractEventLoop,
    host: typing.Union[str, typing.Sequence[str], None],
    port: typing.Optional[int],
) -> list[Found]:
    """Family, kind, protocol and address of the names ``host``, each once; all of the machine for ``None``."""
    found: dict[typing.Any, Found] = {}
    hosts: typing.Sequence[typing.Optional[str]] = [host] if host is None or isinstance(host, str) else host
    for one in hosts:
        infos = await loop.getaddrinfo(one or None, port or 0, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, kind, protocol, _, address in infos:
            found.setdefault((family, address), (family, kind, protocol, address))
    return list(found.values())
