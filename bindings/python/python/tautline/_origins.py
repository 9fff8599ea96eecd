"""The web pages that may connect to a server."""

from __future__ import annotations

import re
import typing

from .datastructures import Headers
from .exceptions import InvalidOrigin

#: A page's origin, as browsers send it, or a pattern for many: scheme, wildcard, host, port.
FORM = re.compile(r"([a-z][a-z0-9+.-]*)://(\*\.)?([a-z0-9._-]+|\[[0-9a-f:.]+\])(?::([0-9]{1,5}))?/?", re.IGNORECASE)
PORTS = {"http": "80", "https": "443"}

Allowed = typing.Optional[typing.List[typing.Union["re.Pattern[str]", None]]]


def allowed_origins(origins: typing.Any) -> Allowed:
    """The origins as patterns; ``None`` if any page may connect. Raises ``ValueError`` for what no browser sends."""
    if origins is None:
        return None
    if isinstance(origins, str):
        raise ValueError(f"origins must be a list: write [{origins!r}]")
    patterns: typing.List[typing.Union["re.Pattern[str]", None]] = []
    for origin in origins:
        if origin == "*":
            return None
        patterns.append(origin if origin is None or isinstance(origin, re.Pattern) else _pattern(origin))
    return patterns


def check_origin(allowed: Allowed, headers: Headers) -> None:
    """Raises an exception unless pages of the request's origin may connect."""
    if allowed is None:
        return
    values = headers.get_all("Origin")
    if len(values) > 1:
        raise InvalidOrigin(", ".join(values))
    origin = values[0] if values else None
    for one in allowed:
        if one is None if origin is None else one is not None and one.fullmatch(origin):
            return
    raise InvalidOrigin(origin)


def _pattern(origin: str) -> "re.Pattern[str]":
    if origin == "null":
        return re.compile("null")
    form = FORM.fullmatch(origin)
    if form is None or form[1].lower() in ("ws", "wss") or form[2] and re.match(r"\[|[0-9.]+$", form[3]):
        raise ValueError(f"{origin!r} is no origin: {_remedy(origin)}")
    scheme, below, host, port = form[1].lower(), form[2], form[3], form[4]
    default = PORTS.get(scheme)
    end = f":{port}" if port and port != default else f"(?::{default})?" if default else ""
    labels = r"(?:[a-z0-9_-]+\.)+" if below else ""
    return re.compile(f"{re.escape(scheme)}://{labels}{re.escape(host)}{end}", re.IGNORECASE)


def _remedy(origin: str) -> str:
    if re.search(r"[,;\s]", origin):
        return "it looks like a list; give each origin on its own"
    scheme, found, rest = origin.rpartition("://")
    host = re.split(r"[/?#]", rest)[0]
    scheme = {"": "https", "ws": "http", "wss": "https"}.get(scheme.lower(), scheme)
    if "*" in origin or not host:
        return "a wildcard stands for whole labels before a name, as https://*.example.org"
    if not origin.isascii():
        return "browsers send names in ASCII; write the form that begins with xn--"
    return f"write scheme, host and port, as {scheme}://{host}"
