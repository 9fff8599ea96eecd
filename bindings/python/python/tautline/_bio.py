"""What ``SSLContext.wrap_bio`` returns: the engine between the two buffers that asyncio, uvloop and others pass.

The part that tells what was negotiated also serves transports, which need no buffers.
"""

from __future__ import annotations

import ssl as _ssl
import typing

from . import _native

__all__ = ["Negotiated", "SSLObject"]


class Negotiated:
    """What a handshake negotiated, with the methods of :class:`ssl.SSLObject` that tell it."""

    def __init__(
        self,
        context: _ssl.SSLContext,
        session: _native.Session,
        server_side: bool,
        server_hostname: typing.Optional[str],
    ) -> None:
        self.context = context
        self.server_side = server_side
        self.server_hostname = server_hostname
        self._session = session

    @property
    def session(self) -> None:
        """No session object: the engine resumes sessions by itself."""
        return None

    @property
    def session_reused(self) -> bool:
        """Whether the handshake resumed an earlier session."""
        return bool(self._info("resumed"))

    def _info(self, name: str) -> typing.Any:
        info = self._session.info()
        return None if info is None else info[name]

    def getpeercert(self, binary_form: bool = False) -> typing.Any:
        """The peer's certificate in DER; the other form is empty, since the engine has verified the name already."""
        info = self._session.info()
        if info is None:
            raise ValueError("handshake not done yet")
        chain = info["peer_certificates"]
        if not binary_form:
            return {} if chain else None
        return chain[0] if chain else None

    def version(self) -> typing.Optional[str]:
        """``TLSv1.3`` or ``TLSv1.2``."""
        return typing.cast(typing.Optional[str], self._info("version"))

    def cipher(self) -> typing.Optional[tuple[str, str, int]]:
        """The suite by its name in the RFC, the version, and the bits of the key."""
        info = self._session.info()
        if info is None:
            return None
        suite = info["cipher"]
        return suite, info["version"], 128 if "AES_128" in suite else 256

    def shared_ciphers(self) -> None:
        """Not known."""
        return None

    def compression(self) -> None:
        """None: TLS is not compressed."""
        return None

    def selected_alpn_protocol(self) -> typing.Optional[str]:
        """The application protocol that was negotiated."""
        return typing.cast(typing.Optional[str], self._info("alpn"))

    def selected_npn_protocol(self) -> None:
        """None: NPN is history."""
        return None

    def get_channel_binding(self, cb_type: str = "tls-unique") -> None:
        """None: the engine gives no binding."""
        return None

    def verify_client_post_handshake(self) -> None:
        """Refused: the engine asks for a certificate during the handshake or never."""
        raise NotImplementedError("the engine asks for a client's certificate during the handshake or never")


class SSLObject(Negotiated):
    """TLS between two :class:`ssl.MemoryBIO`, with the methods of :class:`ssl.SSLObject`."""

    def __init__(
        self,
        context: _ssl.SSLContext,
        session: _native.Session,
        incoming: _ssl.MemoryBIO,
        outgoing: _ssl.MemoryBIO,
        server_side: bool,
        server_hostname: typing.Optional[str],
    ) -> None:
        super().__init__(context, session, server_side, server_hostname)
        self._incoming = incoming
        self._outgoing = outgoing
        self._is_open = False
        # Plaintext of a record that was longer than what was asked for.
        self._rest = b""

    def do_handshake(self) -> None:
        """Advances the handshake."""
        session, incoming = self._session, self._incoming
        if incoming.pending:
            session.feed(incoming.read())
        try:
            self._is_open = session.handshake()
        finally:
            # Also an alert.
            self._outgoing.write(session.take())
        if self._is_open and not incoming.eof:
            # uvloop reads after the handshake only if bytes are there.
            incoming.write(session.rest())
        if not self._is_open:
            if incoming.eof:
                raise _ssl.SSLEOFError(_ssl.SSL_ERROR_EOF, "the peer ended the connection during the handshake")
            raise _ssl.SSLWantReadError(_ssl.SSL_ERROR_WANT_READ, "the handshake needs more bytes of the peer")

    def read(self, len: int = 1024, buffer: typing.Any = None) -> typing.Any:
        """Plaintext that arrived, or its length if it went to ``buffer``; of as many records as there are."""
        if buffer is not None:
            return self._read_into(memoryview(buffer).cast("B"), len)
        most = len if len > 0 else 1024
        data = self._plaintext(most)
        if data.__len__() > most:
            data, self._rest = data[:most], data[most:]
        return data

    def _read_into(self, view: memoryview, most: int) -> int:
        """Fills the memory with the plaintext of as many records as there are: uvloop takes a short read for the last."""
        if most <= 0 or most > view.nbytes:
            most = view.nbytes
        size = 0
        while size < most:
            try:
                data = self._plaintext(most - size)
            except _ssl.SSLError:
                # The next call raises it, or waits.
                if size == 0:
                    raise
                break
            if not data:
                break
            part = data[: most - size]
            self._rest = data[len(part) :]
            view[size : size + len(part)] = part
            size += len(part)
        return size

    def _plaintext(self, most: int) -> bytes:
        """Plaintext that waits, of one record at least."""
        if self._rest:
            data, self._rest = self._rest, b""
            return data
        session, incoming = self._session, self._incoming
        if incoming.pending:
            session.feed(incoming.read())
        try:
            opened = session.read(most)
        finally:
            self._answer()
        if opened is None:
            if incoming.eof:
                raise _ssl.SSLEOFError(_ssl.SSL_ERROR_EOF, "the connection ended without close_notify")
            raise _ssl.SSLWantReadError(_ssl.SSL_ERROR_WANT_READ, "no record has arrived")
        return opened

    def _answer(self) -> None:
        """What a read made for the peer."""
        answer = self._session.take()
        if answer:
            self._outgoing.write(answer)

    def write(self, data: typing.Any) -> int:
        """Seals all of the data, and returns its length."""
        session = self._session
        session.write(data)
        self._outgoing.write(session.take())
        return data.nbytes if isinstance(data, memoryview) else len(data)

    def unwrap(self) -> None:
        """Sends close_notify, and ends once that of the peer is there."""
        session, incoming = self._session, self._incoming
        session.close()
        self._outgoing.write(session.take())
        if incoming.pending:
            session.feed(incoming.read())
        # Data that nobody will read.
        while session.read(1 << 18):
            pass
        if not session.ended and not incoming.eof:
            raise _ssl.SSLWantReadError(_ssl.SSL_ERROR_WANT_READ, "the peer has not closed yet")

    def pending(self) -> int:
        """Bytes that were opened and not read."""
        return len(self._rest)
