"""Has the asyncio tests of the package ``websockets`` meet this package: a plugin for pytest.

``cargo xtask python --websockets-tests`` runs them from a checkout of that package. Modules of the public interface are
replaced by those of ``tautline`` before the tests import them. Tests in ``websockets_differences.py`` must fail, and all
others must pass.
"""

import importlib
import logging
import ssl
import sys

import pytest
import websockets_differences
from websockets.extensions.permessage_deflate import PerMessageDeflate

import tautline.asyncio.connection
import tautline.tls

ALIASES = ["asyncio.client", "asyncio.connection", "asyncio.server", "datastructures", "exceptions", "http11"]


def pytest_configure():
    for name in ALIASES:
        parent = importlib.import_module("websockets." + name.rpartition(".")[0] if "." in name else "websockets")
        ours = importlib.import_module("tautline." + name)
        sys.modules["websockets." + name] = ours
        setattr(parent, name.rpartition(".")[2], ours)
    # Loggers of ours are below theirs, whose name the tests ask for.
    logging.getLogger("tautline").parent = logging.getLogger("websockets")
    # A server's context has to give its key away, which those of the module `ssl` do not.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ssl, "SSLContext", tautline.tls.SSLContext)
        importlib.import_module("tests.utils")
    importlib.import_module("tests.asyncio.server").get_uri = uri_of
    tautline.asyncio.connection.Connection.protocol = property(Protocol)
    tautline.asyncio.connection.Connection.transport = property(Transport)


def uri_of(server, secure=None):
    """The URI of a server; theirs looks at a private attribute."""
    if secure is None:
        secure = server._arguments["tls"] is not None
    host, port = server.sockets[0].getsockname()[:2]
    return f"{'wss' if secure else 'ws'}://{host}:{port}"


def pytest_collection_modifyitems(items):
    left = {name: reason for reason, names in websockets_differences.DIFFERENCES.items() for name in names}
    for item in items:
        reason = left.pop(f"{item.module.__name__.rpartition('.')[2]}.{item.cls.__name__}.{item.name}", None)
        if reason is not None:
            item.add_marker(pytest.mark.xfail(reason=reason, strict=True))
    if left:
        raise pytest.UsageError(f"there are no tests with these names any more: {', '.join(left)}")


class Protocol:
    """The attributes of their protocol objects that tests look at, by the public ones of a connection."""

    def __init__(self, connection):
        self.state = connection.state
        self.extensions = [PerMessageDeflate(False, False, 15, 15)] if connection.compressed else []
        self.uri = connection.request


class Transport:
    """The attributes of asyncio's transports that tests look at."""

    def __init__(self, connection):
        self.tls = connection.tls
        self.server_hostname = self.tls and self.tls["server_name"]

    def get_extra_info(self, name):
        assert name == "ssl_object"
        return self

    def version(self):
        return self.tls["version"]
