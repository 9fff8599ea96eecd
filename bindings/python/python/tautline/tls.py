"""TLS by tautline's engine: contexts for servers and clients.

:class:`SSLContext` is an :class:`ssl.SSLContext` that remembers what was loaded into it, so that the engine can load it,
too. A context of the module :mod:`ssl` does not give its private key away: servers and clients with a certificate need
this class. Any context will do for a client without a certificate.
"""

from __future__ import annotations

import os
import ssl as _ssl
import typing

__all__ = ["SSLContext", "create_default_context"]


def _read(path: typing.Any) -> bytes:
    with open(path, "rb") as file:
        return file.read()


class SSLContext(_ssl.SSLContext):
    """An :class:`ssl.SSLContext` whose certificates and keys the engine can read.

    ``load_cert_chain``, ``load_verify_locations``, ``set_alpn_protocols``, ``verify_mode`` and the versions of TLS are
    heeded. Other settings have no effect on the engine.
    """

    def __init__(self, *args: typing.Any, **kwargs: typing.Any) -> None:
        self._certificates: list[tuple[bytes, bytes]] = []
        self._roots: typing.Optional[bytes] = None
        self._alpn: tuple[bytes, ...] = ()

    def load_cert_chain(  # type: ignore[override]
        self, certfile: typing.Any, keyfile: typing.Any = None, password: typing.Any = None
    ) -> None:
        """Loads a certificate and its private key, in PEM. The key must not be encrypted."""
        super().load_cert_chain(certfile, keyfile, password)
        key = _read(keyfile if keyfile is not None else certfile)
        if b"ENCRYPTED" in key:
            raise ValueError(
                f"{os.fspath(keyfile or certfile)!r}: the private key is encrypted, and the engine loads plain keys only; "
                "decrypt it by `openssl pkey`"
            )
        self._certificates.append((_read(certfile), key))

    def load_verify_locations(  # type: ignore[override]
        self, cafile: typing.Any = None, capath: typing.Any = None, cadata: typing.Any = None
    ) -> None:
        """Trusts further authorities."""
        super().load_verify_locations(cafile, capath, cadata)
        if capath is not None:
            raise ValueError("capath is not supported: give a file with all authorities as cafile")
        pem = _read(cafile) if cafile is not None else b""
        if isinstance(cadata, str):
            pem += cadata.encode()
        elif cadata is not None:
            pem += _ssl.DER_cert_to_PEM_cert(bytes(cadata)).encode()
        self._roots = (self._roots or b"") + pem + b"\n"

    def set_alpn_protocols(self, alpn_protocols: typing.Iterable[str]) -> None:  # type: ignore[override]
        """Sets the application protocols, by preference."""
        protocols = list(alpn_protocols)
        super().set_alpn_protocols(protocols)
        self._alpn = tuple(name.encode() for name in protocols)


def create_default_context(
    purpose: typing.Any = _ssl.Purpose.SERVER_AUTH,
    *,
    cafile: typing.Any = None,
    capath: typing.Any = None,
    cadata: typing.Any = None,
) -> SSLContext:
    """Like :func:`ssl.create_default_context`, but with a :class:`SSLContext` of this module."""
    server = purpose is _ssl.Purpose.CLIENT_AUTH
    context = SSLContext(_ssl.PROTOCOL_TLS_SERVER if server else _ssl.PROTOCOL_TLS_CLIENT)
    if cafile is not None or capath is not None or cadata is not None:
        context.load_verify_locations(cafile, capath, cadata)
    return context


def options_of(context: _ssl.SSLContext, *, server: bool) -> dict[str, typing.Any]:
    """What a context says, for the engine."""
    if not isinstance(context, _ssl.SSLContext):
        raise TypeError(f"ssl must be an SSLContext, not {type(context).__name__}")
    own = isinstance(context, SSLContext)
    if server and not own:
        raise TypeError(
            "an ssl.SSLContext does not give its private key away: make the server's context by tautline.tls.SSLContext, "
            "which has the same methods"
        )
    certificates = list(context._certificates) if own else []
    if server and not certificates:
        raise ValueError("the server's SSLContext has no certificate: call load_cert_chain first")
    roots = context._roots if own else _roots_of(context)
    if server:
        verify = {_ssl.CERT_NONE: "none", _ssl.CERT_OPTIONAL: "optional"}.get(context.verify_mode, "required")
    else:
        verify = "none" if context.verify_mode == _ssl.CERT_NONE else "required"
        if verify == "required" and not context.check_hostname:
            raise ValueError(
                "check_hostname=False with verified certificates is not supported: the engine always compares the name"
            )
    return {
        "certificates": certificates,
        "roots": roots,
        "verify": verify,
        "alpn": list(context._alpn) if own else [],
        "versions": _versions(context),
        "key_log": bool(getattr(context, "keylog_filename", None)),
    }


def _roots_of(context: _ssl.SSLContext) -> typing.Optional[bytes]:
    """The authorities of a foreign context; ``None`` for the platform's."""
    ders = context.get_ca_certs(binary_form=True)
    platform = _ssl.create_default_context().get_ca_certs(binary_form=True)
    if ders == platform:
        return None
    return "".join(_ssl.DER_cert_to_PEM_cert(der) for der in ders).encode()


def _versions(context: _ssl.SSLContext) -> str:
    low, high = context.minimum_version, context.maximum_version
    if low == _ssl.TLSVersion.TLSv1_3:
        return "1.3"
    if high == _ssl.TLSVersion.TLSv1_2:
        return "1.2"
    return "all"
