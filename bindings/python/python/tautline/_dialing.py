"""Attempts to connect, of clients under asyncio and of blocking ones: URIs, proxies, requests, failures."""

from __future__ import annotations

import base64
import sys
import typing
import urllib.parse
import urllib.request

from . import _native
from ._version import __version__
from .datastructures import Headers
from .exceptions import InvalidHandshake, InvalidMessage, InvalidProxy, InvalidStatus, InvalidURI, ProxyError
from .http11 import Request, response_of

USER_AGENT = f"tautline/{__version__} Python/{sys.version_info[0]}.{sys.version_info[1]}"


def split_uri(uri: str) -> urllib.parse.SplitResult:
    """The parts of a URI of a WebSocket."""
    split = urllib.parse.urlsplit(uri)
    if split.scheme not in ("ws", "wss"):
        raise InvalidURI(uri, "scheme isn't ws or wss")
    if not split.hostname:
        raise InvalidURI(uri, "hostname isn't provided")
    if split.fragment:
        raise InvalidURI(uri, "fragment identifier is meaningless")
    if split.username is not None and split.password is None:
        raise InvalidURI(uri, "username provided without password")
    try:
        split.port
    except ValueError as exc:
        raise InvalidURI(uri, str(exc)) from exc
    return split


def port_of(split: urllib.parse.SplitResult) -> int:
    """The port of a URI."""
    return split.port or (443 if split.scheme == "wss" else 80)


def proxy_of(proxy: typing.Any, split: urllib.parse.SplitResult) -> typing.Optional[str]:
    """The URI of the proxy; for ``True`` that of the environment."""
    if proxy is True:
        host = f"{split.hostname}:{port_of(split)}"
        if urllib.request.proxy_bypass(host):
            return None
        proxies = urllib.request.getproxies()
        schemes = ("wss", "socks", "https") if split.scheme == "wss" else ("ws", "socks", "https", "http")
        proxy = next((proxies[scheme] for scheme in schemes if scheme in proxies), None)
    if proxy is None:
        return None
    scheme = urllib.parse.urlsplit(proxy).scheme
    if scheme not in ("http", "socks5", "socks5h"):
        raise InvalidProxy(proxy, f"scheme {scheme} isn't supported")
    return typing.cast(str, proxy)


def failure_of(
    kind: str, text: str, errno: int, response: typing.Any, body: bytes, retry_after: typing.Optional[float]
) -> Exception:
    """The exception for an attempt that failed."""
    if kind == "status":
        refusal = InvalidStatus(response_of(response, body))
        refusal.retry_after = retry_after
        return refusal
    if kind == "timeout":
        return TimeoutError("timed out during opening handshake")
    if kind == "refused":
        return OSError(errno, text) if errno else OSError(text)
    if kind == "resolve":
        return OSError(text)
    if kind == "proxy":
        return ProxyError(text)
    if kind == "permanent":
        # The fault of the program: attempts are not repeated.
        return ValueError(text)
    if kind == "tls":
        import ssl

        if "certificate" in text:
            # Programs look for these words of OpenSSL's.
            text = f"certificate verify failed: {text}"
            return ssl.SSLCertVerificationError(ssl.SSL_ERROR_SSL, text)
        return ssl.SSLError(ssl.SSL_ERROR_SSL, text)  # an error without a number shows its arguments as a tuple
    if kind == "eof":
        return InvalidMessage("did not receive a valid HTTP response: " + text)
    return InvalidHandshake(text)


def request_headers(
    split: urllib.parse.SplitResult, additional: typing.Any, user_agent: typing.Optional[str]
) -> Headers:
    """The headers of a request beside those of the upgrade."""
    headers = Headers()
    if split.username is not None:
        pair = f"{urllib.parse.unquote(split.username)}:{urllib.parse.unquote(split.password or '')}"
        headers["Authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()
    if additional is not None:
        headers.update(additional)
    if user_agent is not None and "User-Agent" not in headers:
        headers["User-Agent"] = user_agent
    return headers


def dial(
    dialer: typing.Any,
    hub: typing.Any,
    split: urllib.parse.SplitResult,
    *,
    headers: Headers,
    subprotocols: typing.Sequence[str],
    proxy: typing.Optional[str],
    origin: typing.Optional[str],
    address: typing.Optional[str] = None,
    addresses: typing.Sequence[str] = (),
    server_name: typing.Optional[str] = None,
) -> tuple[int, Request]:
    """Begins an attempt. Returns its number in the events of the hub, and its request."""
    uri = urllib.parse.urlunsplit(split._replace(netloc=split.netloc.rpartition("@")[2]))
    key = dialer.dial(
        hub,
        uri,
        address=address,
        addresses=list(addresses),
        server_name=server_name,
        headers=list(headers.raw_items()),
        subprotocols=list(subprotocols),
        proxy=proxy,
        origin=origin,
    )
    path = urllib.parse.urlunsplit(("", "", split.path or "/", split.query, ""))
    return key, Request(path, Headers([("Host", _native.host_of(uri)[1]), *headers.raw_items()]))
