"""Checks of arguments that servers and clients share."""

from __future__ import annotations

import typing

from .compression import Compression, native_compression

__all__ = ["Limits", "native_options"]

# Bytes that may wait for one peer before it is closed with 1008. `send` waits long before.
MAX_BACKLOG = 64 << 20

Marks = typing.Union[int, None, tuple[typing.Optional[int], typing.Optional[int]]]


class Limits(typing.NamedTuple):
    """The limits of one connection."""

    write_high: int
    write_low: int
    options: tuple[tuple[str, typing.Any], ...]


def marks(value: Marks, name: str) -> typing.Optional[tuple[int, int]]:
    """The marks at which a queue pauses and resumes its input; ``None`` for no limit."""
    high, low = value if isinstance(value, tuple) else (value, None)
    if high is None:
        return None
    if low is None:
        low = high // 4
    if not 0 <= low <= high:
        raise ValueError(f"{name} ({high}, {low}): the low mark must lie between 0 and the high mark")
    return high, low


def native_options(
    *,
    compression: Compression,
    max_size: typing.Union[int, None, tuple[typing.Optional[int], typing.Optional[int]]],
    max_queue: Marks,
    write_limit: Marks,
    open_timeout: typing.Optional[float],
    ping_interval: typing.Optional[float],
    ping_timeout: typing.Optional[float],
    close_timeout: typing.Optional[float],
    subprotocols: typing.Sequence[str] = (),
    proxies: tuple[typing.Sequence[str], typing.Sequence[str]] = ((), ()),
) -> Limits:
    """Checks arguments, and returns them for the native part."""
    if isinstance(subprotocols, str):
        raise TypeError("subprotocols must be a list, not a str")
    if any(isinstance(networks, str) for networks in proxies):
        raise TypeError("proxy_protocol_from and forwarded_from must be lists, not a str")
    if isinstance(max_size, tuple):
        max_size = max_size[0]
    write = marks(write_limit, "write_limit") or (MAX_BACKLOG, MAX_BACKLOG)
    options = {
        "max_size": max_size,
        "max_queue": marks(max_queue, "max_queue"),
        "max_backlog": MAX_BACKLOG,
        "open_timeout": open_timeout,
        "ping_interval": ping_interval,
        "ping_timeout": ping_timeout,
        "close_timeout": close_timeout,
        "compression": native_compression(compression),
        "subprotocols": tuple(subprotocols),
        "proxies": tuple(tuple(networks) for networks in proxies),
    }
    return Limits(write[0], write[1], tuple(options.items()))
