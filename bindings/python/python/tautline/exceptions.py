"""Exceptions, with the names and attributes of the package ``websockets``."""

from __future__ import annotations

import typing

from .frames import OK_CODES, Close

if typing.TYPE_CHECKING:
    from .http11 import Response

__all__ = [
    "ConcurrencyError",
    "ConnectionClosed",
    "ConnectionClosedError",
    "ConnectionClosedOK",
    "DuplicateParameter",
    "HeaderLineTooLong",
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
    "NegotiationError",
    "PayloadTooBig",
    "ProtocolError",
    "ProxyError",
    "RequestLineTooLong",
    "SecurityError",
    "StatusLineTooLong",
    "TooManyFragments",
    "TooManyHeaders",
    "WebSocketException",
]


class WebSocketException(Exception):
    """The base of all exceptions of this package."""


class ConnectionClosed(WebSocketException):
    """The connection is closed: nothing more can be sent or received.

    ``rcvd`` and ``sent`` are the close frames, or ``None``. ``rcvd_then_sent`` tells their order if there are both.
    """

    def __init__(
        self,
        rcvd: typing.Optional[Close],
        sent: typing.Optional[Close],
        rcvd_then_sent: typing.Optional[bool] = None,
    ) -> None:
        super().__init__(rcvd, sent, rcvd_then_sent)
        self.rcvd = rcvd
        self.sent = sent
        self.rcvd_then_sent = rcvd_then_sent

    def __str__(self) -> str:
        if self.rcvd is None and self.sent is None:
            return "no close frame received or sent"
        if self.rcvd is None:
            return f"sent {self.sent}; no close frame received"
        if self.sent is None:
            return f"received {self.rcvd}; no close frame sent"
        if self.rcvd_then_sent:
            return f"received {self.rcvd}; then sent {self.sent}"
        return f"sent {self.sent}; then received {self.rcvd}"

    @property
    def code(self) -> int:
        """The code of the peer's close frame; 1006 without one."""
        return 1006 if self.rcvd is None else self.rcvd.code

    @property
    def reason(self) -> str:
        """The reason of the peer's close frame."""
        return "" if self.rcvd is None else self.rcvd.reason


class ConnectionClosedOK(ConnectionClosed):
    """The connection ended by a closing handshake with code 1000 or 1001, or without a code."""


class ConnectionClosedError(ConnectionClosed):
    """The connection ended by an error, or without a closing handshake."""


def end_of(
    rcvd: typing.Optional[tuple[int, str]],
    sent: typing.Optional[tuple[int, str]],
    rcvd_first: bool,
    error: typing.Optional[str],
    asked: typing.Optional[Close],
) -> ConnectionClosed:
    """The exception for an end that the native part reports; ``asked`` is the close frame that the program sent."""
    received = None if rcvd is None else Close(*rcvd)
    own = asked if asked is not None and not rcvd_first else (None if sent is None else Close(*sent))
    if received is None or own is None:
        end: ConnectionClosed = ConnectionClosedError(received, own)
    elif error is None and received.code in OK_CODES and own.code in OK_CODES:
        end = ConnectionClosedOK(received, own, rcvd_first)
    else:
        end = ConnectionClosedError(received, own, rcvd_first)
    if error is not None:
        end.__cause__ = EOFError(error)
    return end


class InvalidURI(WebSocketException):
    """The URI is no URI of a WebSocket."""

    def __init__(self, uri: str, msg: str) -> None:
        super().__init__(uri, msg)
        self.uri = uri
        self.msg = msg

    def __str__(self) -> str:
        return f"{self.uri} isn't a valid URI: {self.msg}"


class InvalidProxy(WebSocketException):
    """The proxy's URI is unusable."""

    def __init__(self, proxy: str, msg: str) -> None:
        super().__init__(proxy, msg)
        self.proxy = proxy
        self.msg = msg

    def __str__(self) -> str:
        return f"{self.proxy} isn't a valid proxy: {self.msg}"


class InvalidHandshake(WebSocketException):
    """The opening handshake failed."""


class SecurityError(InvalidHandshake):
    """The opening handshake breaks a rule of security."""


class ProxyError(InvalidHandshake):
    """The proxy refused the tunnel."""


class InvalidMessage(InvalidHandshake):
    """The peer did not send a valid request or response."""


class InvalidStatus(InvalidHandshake):
    """The server answered, but did not accept the WebSocket: ``response`` is its answer, without the body.

    ``retry_after`` has the seconds after which a server that answered 429 or 503 wants its client back, or ``None``.
    """

    retry_after: typing.Optional[float] = None

    def __init__(self, response: Response) -> None:
        super().__init__(response)
        self.response = response

    def __str__(self) -> str:
        return f"server rejected WebSocket connection: HTTP {self.response.status_code:d}"


class InvalidHeader(InvalidHandshake):
    """A header is missing or invalid."""

    def __init__(self, name: str, value: typing.Optional[str] = None) -> None:
        super().__init__(name, value)
        self.name = name
        self.value = value

    def __str__(self) -> str:
        if self.value is None:
            return f"missing {self.name} header"
        if not self.value:
            return f"empty {self.name} header"
        return f"invalid {self.name} header: {self.value}"


class InvalidOrigin(InvalidHeader):
    """The server does not accept pages of this origin."""

    def __init__(self, origin: typing.Optional[str]) -> None:
        super().__init__("Origin", origin)


class NegotiationError(InvalidHandshake):
    """The peers share no subprotocol or extension. ``select_subprotocol`` may raise it."""


class ProtocolError(WebSocketException):
    """A call would violate the protocol."""


class ConcurrencyError(WebSocketException):
    """Two tasks call a method that only one may call at a time."""


# Exceptions of `websockets` that nothing here raises. `except` clauses that name them go on working.


class DuplicateParameter(NegotiationError):
    """Never raised: the base is, with a text."""


class HeaderLineTooLong(SecurityError):
    """Never raised: the base is, with a text."""


class InvalidHeaderFormat(InvalidHeader):
    """Never raised: the base is, with a text."""


class InvalidHeaderValue(InvalidHeader):
    """Never raised: the base is, with a text."""


class InvalidMethod(InvalidHandshake):
    """Never raised: the base is, with a text."""


class InvalidParameterName(NegotiationError):
    """Never raised: the base is, with a text."""


class InvalidParameterValue(NegotiationError):
    """Never raised: the base is, with a text."""


class InvalidProtocol(InvalidHandshake):
    """Never raised: the base is, with a text."""


class InvalidProxyMessage(ProxyError):
    """Never raised: the base is, with a text."""


class InvalidProxyStatus(ProxyError):
    """Never raised: the base is, with a text."""


class InvalidState(WebSocketException, AssertionError):
    """Never raised: the base is, with a text."""


class InvalidUpgrade(InvalidHeader):
    """Never raised: the base is, with a text."""


class PayloadTooBig(WebSocketException):
    """Never raised: the base is, with a text."""


class RequestLineTooLong(SecurityError):
    """Never raised: the base is, with a text."""


class StatusLineTooLong(SecurityError):
    """Never raised: the base is, with a text."""


class TooManyFragments(WebSocketException):
    """Never raised: the base is, with a text."""


class TooManyHeaders(SecurityError):
    """Never raised: the base is, with a text."""
