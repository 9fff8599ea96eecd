"""The version of the package, from its metadata."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("tautline-ws")
except PackageNotFoundError:  # A source tree that is not installed.
    __version__ = "0"
