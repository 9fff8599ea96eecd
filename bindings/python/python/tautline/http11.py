"""Requests and responses of the opening handshake."""

from __future__ import annotations

import dataclasses
import http
import typing

from .datastructures import Headers

if typing.TYPE_CHECKING:
    from ._native import Head

__all__ = ["Request", "Response"]


@dataclasses.dataclass
class Request:
    """The request that opens a WebSocket: ``path`` has the query, too."""

    path: str
    headers: Headers
    method: str = "GET"


@dataclasses.dataclass
class Response:
    """An HTTP response."""

    status_code: int
    reason_phrase: str
    headers: Headers
    body: bytes = b""


def request_of(head: Head) -> Request:
    """The request with this head."""
    return Request(head.path, Headers(head.headers), head.method)


def response_of(head: Head, body: bytes = b"") -> Response:
    """The response with this head."""
    return Response(head.status, head.reason, Headers(head.headers), body)


def plain_response(status: typing.Union[int, http.HTTPStatus], text: str) -> Response:
    """A response of plain text, after which the connection ends."""
    status = http.HTTPStatus(status)
    body = text.encode()
    headers = [("Connection", "close"), ("Content-Type", "text/plain; charset=utf-8")]
    return Response(status.value, status.phrase, Headers(headers), body)
