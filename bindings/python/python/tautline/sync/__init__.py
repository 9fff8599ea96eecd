"""A blocking client, with the interface of ``websockets.sync.client``."""

from .client import ClientConnection, connect

__all__ = ["ClientConnection", "connect"]
