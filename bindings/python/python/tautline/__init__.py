"""Secure WebSockets at the speed of the wire, for asyncio and for threads.

``tautline.asyncio`` has the interface of the package ``websockets``, :mod:`tautline.sync` a blocking client,
:mod:`tautline.callbacks` an interface like that of ``picows``, :mod:`tautline.hub` a client of a hub, and
:mod:`tautline.tls` TLS for asyncio.
"""

from __future__ import annotations

import os

from . import _native
from ._version import __version__
from .asyncio.client import ClientConnection, connect, unix_connect
from .asyncio.connection import State
from .asyncio.server import Server, ServerConnection, basic_auth, broadcast, serve, unix_serve
from .compression import Deflate
from .datastructures import Headers, HeadersLike, MultipleValuesError
from .exceptions import (
    ConcurrencyError,
    ConnectionClosed,
    ConnectionClosedError,
    ConnectionClosedOK,
    DuplicateParameter,
    HeaderLineTooLong,
    InvalidHandshake,
    InvalidHeader,
    InvalidHeaderFormat,
    InvalidHeaderValue,
    InvalidMessage,
    InvalidMethod,
    InvalidOrigin,
    InvalidParameterName,
    InvalidParameterValue,
    InvalidProtocol,
    InvalidProxy,
    InvalidProxyMessage,
    InvalidProxyStatus,
    InvalidState,
    InvalidStatus,
    InvalidURI,
    InvalidUpgrade,
    NegotiationError,
    PayloadTooBig,
    ProtocolError,
    ProxyError,
    RequestLineTooLong,
    SecurityError,
    StatusLineTooLong,
    TooManyFragments,
    TooManyHeaders,
    WebSocketException,
)
from .frames import Close, CloseCode
from .http11 import Request, Response

__all__ = [
    "ClientConnection",
    "Close",
    "CloseCode",
    "ConcurrencyError",
    "ConnectionClosed",
    "ConnectionClosedError",
    "ConnectionClosedOK",
    "Deflate",
    "DuplicateParameter",
    "HeaderLineTooLong",
    "Headers",
    "HeadersLike",
    "InvalidHandshake",
    "InvalidHeader",
    "InvalidHeaderFormat",
    "InvalidHeaderValue",
    "InvalidMessage",
    "InvalidMethod",
    "InvalidOrigin",
    "InvalidParameterName",
    "InvalidParameterValue",
    "InvalidProtocol",
    "InvalidProxy",
    "InvalidProxyMessage",
    "InvalidProxyStatus",
    "InvalidState",
    "InvalidStatus",
    "InvalidURI",
    "InvalidUpgrade",
    "MultipleValuesError",
    "NegotiationError",
    "PayloadTooBig",
    "ProtocolError",
    "ProxyError",
    "Request",
    "RequestLineTooLong",
    "Response",
    "SecurityError",
    "Server",
    "ServerConnection",
    "State",
    "StatusLineTooLong",
    "TooManyFragments",
    "TooManyHeaders",
    "WebSocketException",
    "__version__",
    "basic_auth",
    "broadcast",
    "connect",
    "serve",
    "unix_connect",
    "unix_serve",
]

os.register_at_fork(after_in_child=_native.forked)
