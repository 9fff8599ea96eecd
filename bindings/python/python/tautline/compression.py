"""Compression of messages: permessage-deflate (RFC 7692)."""

from __future__ import annotations

import typing

__all__ = ["Compression", "Deflate"]


class Deflate(typing.NamedTuple):
    """Compression with windows that are kept between messages, for the argument ``compression``.

    Messages that resemble each other then become small. ``compression="deflate"`` compresses each message by itself.
    """

    memory: int = 64 << 20
    """Bytes for the windows of all connections of a server, or of all clients with the same settings. A connection takes
    about 120 kB at each end, or 430 kB from level 4 on. Those for which no memory is left compress each message by itself."""

    window_bits: int = 15
    """Base-2 logarithm of the bytes that a message can refer to, 9 to 15."""

    level: int = 2
    """Effort, 1 to 9. From 4 on it is zlib's."""


Compression = typing.Union[typing.Literal["deflate"], Deflate, None]


def native_compression(compression: Compression) -> typing.Optional[tuple[bool, int, int, int]]:
    """Checks the argument ``compression``, and returns it for the native part."""
    if compression is None:
        return None
    if compression == "deflate":
        return (False, 0, 15, 2)
    if not isinstance(compression, Deflate):
        raise ValueError(f"unsupported compression: {compression}")
    memory, window_bits, level = compression
    if memory < 0:
        raise ValueError(f"memory={memory}: give the bytes for all windows, 0 or more")
    if not 9 <= window_bits <= 15:
        raise ValueError(f"window_bits={window_bits}: give 9 to 15")
    if not 1 <= level <= 9:
        raise ValueError(f"level={level}: give 1 to 9, or compression=None for no compression")
    return (True, memory, window_bits, level)
