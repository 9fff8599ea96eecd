"""The loops for outgoing connections. Connections with the same settings and the same TLS share one."""

from __future__ import annotations

import collections
import os
import ssl as _ssl
import threading
import typing

from . import _native
from ._limits import Limits
from .tls import options_of

# Loops that are kept without a connection.
MOST_IDLE = 8

_lock = threading.Lock()
_dialers: collections.OrderedDict[typing.Any, typing.Any] = collections.OrderedDict()


def dialer_for(limits: Limits, context: typing.Any, secure: bool) -> typing.Any:
    """The loop for these settings. A connection keeps the loop that it uses."""
    tls: typing.Any = None
    if secure:
        context = None if context is True else context
        if context is None:
            tls = {"certificates": [], "roots": None, "verify": "required", "alpn": [], "versions": "all", "key_log": False}
        elif isinstance(context, _ssl.SSLContext):
            tls = options_of(context, server=False)
        else:
            raise TypeError(f"ssl must be an SSLContext or True, not {type(context).__name__}")
    key = (os.getpid(), limits.options, repr(tls))
    with _lock:
        dialer = _dialers.pop(key, None)
        if dialer is None:
            dialer = _native.Dialer(dict(limits.options), tls)
        _dialers[key] = dialer
        while len(_dialers) > MOST_IDLE:
            _dialers.popitem(last=False)
        return dialer
