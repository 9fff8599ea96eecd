"""A transport whose TLS and whose system calls are one native call for each read and each write."""

from __future__ import annotations

import asyncio
import collections
import os
import socket
import ssl as _ssl
import typing

from . import _native
from ._bio import Negotiated

# The limits of asyncio's own transports.
HIGH = 64 << 10
HANDSHAKE_TIMEOUT = 60.0
SHUTDOWN_TIMEOUT = 30.0


class Transport(asyncio.Transport):
    """TLS over a socket that the native part owns. It works with every event loop that has ``add_reader``."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: socket.socket,
        protocol: asyncio.BaseProtocol,
        context: _ssl.SSLContext,
        session: _native.Session,
        *,
        server_hostname: typing.Optional[str] = None,
        server_side: bool = False,
        handshake_timeout: typing.Optional[float] = None,
        shutdown_timeout: typing.Optional[float] = None,
        on_end: typing.Optional[typing.Callable[[Transport], None]] = None,
    ) -> None:
        super().__init__()
        self._loop = loop
        self._session = session
        self._shutdown_timeout = SHUTDOWN_TIMEOUT if shutdown_timeout is None else shutdown_timeout
        self._on_end = on_end
        self._names = {"sockname": _name(sock.getsockname), "peername": _name(sock.getpeername)}
        self._family = sock.family
        self._duplicate: typing.Optional[socket.socket] = None
        self._negotiated = Negotiated(context, session, server_side, server_hostname)
        self.opened: asyncio.Future[None] = loop.create_future()
        self._fd = session.attach(sock)
        self._high, self._low = HIGH, HIGH // 4
        self._pending = 0
        self._is_writing = False
        self._is_paused = False
        self._is_reading = False
        self._wants_reading = True
        self._is_closing = False
        self._was_closed = False
        self._got_end = False
        self._lost = False
        self._connected = False
        self.set_protocol(protocol)
        self._alarm: typing.Optional[asyncio.TimerHandle] = loop.call_later(
            HANDSHAKE_TIMEOUT if handshake_timeout is None else handshake_timeout, self._handshake_timed_out
        )
        loop.add_reader(self._fd, self._on_handshake)
        self._shake(False)

    # Handshake.

    def _on_handshake(self) -> None:
        self._shake(True)

    def _shake(self, readable: bool) -> None:
        try:
            state, pending = self._session.shake(readable)
        except OSError as exc:  # ssl.SSLError, too
            self._fail_handshake(exc)
            return
        if state == 2:
            self._fail_handshake(ConnectionResetError("the peer ended the connection during the TLS handshake"))
            return
        self._left(pending)
        if state == 1:
            self._set_alarm(None)
            self._connected = True
            self._loop.remove_reader(self._fd)
            try:
                self._protocol.connection_made(self)
            except Exception as exc:
                self._report("connection_made() failed", exc)
            if not self.opened.done():
                self.opened.set_result(None)
            if not self._lost and self._wants_reading and not self._is_closing:
                self._is_reading = True
                self._loop.add_reader(self._fd, self._on_readable)
            # Records may have come with the last message of the handshake.
            self._loop.call_soon(self._deliver_rest)

    def _deliver_rest(self) -> None:
        if self._lost or not self._is_reading:
            return
        try:
            data = self._session.read(1 << 18)
        except OSError as exc:
            self._fatal(exc)
            return
        if data:
            self._deliver(data)
            self._loop.call_soon(self._deliver_rest)
        elif data is not None:
            self._end()

    def _handshake_timed_out(self) -> None:
        self._fail_handshake(ConnectionAbortedError("the TLS handshake takes too long: the connection is aborted"))

    def _fail_handshake(self, exc: BaseException) -> None:
        if not self.opened.done():
            self.opened.set_exception(exc)
            self.opened.exception()  # A server has nobody who waits.
        self._force_close(exc)

    # Reading.

    def _on_readable(self) -> None:
        try:
            data = self._session.receive()
        except OSError as exc:
            self._fatal(exc)
            return
        if data:
            self._deliver(data)
            if not self._session.ended:
                return
        elif data is None:
            return
        self._end()

    def _deliver(self, data: bytes) -> None:
        try:
            if self._data_received is None:
                self._into_buffer(data)
            else:
                self._data_received(data)
        except Exception as exc:
            self._report("data_received() failed", exc)
            self._force_close(exc)

    def _into_buffer(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            buffer = memoryview(self._protocol.get_buffer(len(rest))).cast("B")
            if not buffer:
                raise RuntimeError("get_buffer() returned an empty buffer")
            part = rest[: len(buffer)]
            buffer[: len(part)] = part
            self._protocol.buffer_updated(len(part))
            rest = rest[len(part) :]

    def _end(self) -> None:
        """The peer sends no more."""
        self._got_end = True
        self._stop_reading()
        if not self._is_closing:
            try:
                # TLS has no half-closed connections here, as in asyncio.
                self._protocol.eof_received()
            except Exception as exc:
                self._report("eof_received() failed", exc)
        if self._is_closing:
            self._closed_by_both()
        else:
            self._close()

    def is_reading(self) -> bool:
        """Whether data is received."""
        return not self._is_closing and self._wants_reading

    def pause_reading(self) -> None:
        """Receives no data until :meth:`resume_reading`."""
        self._wants_reading = False
        if not self._is_closing:
            self._stop_reading()

    def resume_reading(self) -> None:
        """Receives data again."""
        if self._is_closing or self._wants_reading:
            return
        self._wants_reading = True
        if self._connected and not self._lost:
            self._is_reading = True
            self._loop.add_reader(self._fd, self._on_readable)
            self._loop.call_soon(self._deliver_rest)

    def _stop_reading(self) -> None:
        if self._is_reading:
            self._is_reading = False
            self._loop.remove_reader(self._fd)

    # Writing.

    def write(self, data: typing.Any) -> None:
        """Sends data, and buffers what the kernel does not take."""
        if self._is_closing:
            if self._was_closed:
                raise RuntimeError("write() after close()")
            # As asyncio's transports: the protocol learns of the end by connection_lost().
            return
        if not data:
            if not isinstance(data, (bytes, bytearray, memoryview)):
                raise TypeError(f"data must be bytes-like, not {type(data).__name__}")
            return
        try:
            pending = self._session.send(data)
        except OSError as exc:
            self._fatal(exc)
            return
        if pending or self._pending:
            self._left(pending)

    def writelines(self, list_of_data: typing.Iterable[typing.Any]) -> None:
        """Sends several pieces as one."""
        self.write(b"".join(list_of_data))

    def write_eof(self) -> None:
        """Refused: TLS connections are not closed by halves."""
        raise NotImplementedError("TLS connections are not closed by halves: call close()")

    def can_write_eof(self) -> bool:
        """False."""
        return False

    def _left(self, pending: int) -> None:
        """Notes how many bytes the kernel has not taken."""
        self._pending = pending
        if pending and not self._is_writing:
            self._is_writing = True
            self._loop.add_writer(self._fd, self._on_writable)
        elif not pending and self._is_writing:
            self._is_writing = False
            self._loop.remove_writer(self._fd)
        if pending > self._high and not self._is_paused:
            self._is_paused = True
            self._call(self._protocol.pause_writing)
        elif self._is_paused and pending <= self._low:
            self._is_paused = False
            self._call(self._protocol.resume_writing)

    def _on_writable(self) -> None:
        try:
            pending = self._session.flush()
        except OSError as exc:
            self._fatal(exc)
            return
        self._left(pending)
        if not self._pending and self._is_closing and not self._lost:
            self._shut()

    def get_write_buffer_size(self) -> int:
        """Sealed bytes that wait for the peer."""
        return self._pending

    def get_write_buffer_limits(self) -> tuple[int, int]:
        """The low and the high mark."""
        return self._low, self._high

    def set_write_buffer_limits(
        self, high: typing.Optional[int] = None, low: typing.Optional[int] = None
    ) -> None:
        """Sets the marks between which the protocol is paused and resumed."""
        if high is None:
            high = HIGH if low is None else 4 * low
        if low is None:
            low = high // 4
        if not high >= low >= 0:
            raise ValueError(f"high ({high}) must be >= low ({low}) must be >= 0")
        self._high, self._low = high, low

    # End.

    def is_closing(self) -> bool:
        """Whether the transport is closed or about to be."""
        return self._is_closing

    def close(self) -> None:
        """Sends what waits and close_notify, and waits for that of the peer, for a bounded time."""
        self._was_closed = True
        self._close()

    def _close(self) -> None:
        if self._is_closing:
            return
        self._is_closing = True
        if not self._connected:
            self._force_close(None)
            return
        try:
            self._session.close()
            pending = self._session.flush()
        except OSError as exc:
            self._force_close(exc)
            return
        self._set_alarm(self._shutdown_timeout)
        self._left(pending)
        if not pending:
            self._shut()

    def _shut(self) -> None:
        """Everything is sent: waits for the peer's close."""
        self._session.shut()
        if self._got_end or self._session.ended:
            self._closed_by_both()
            return
        self._stop_reading()
        self._is_reading = True
        self._loop.add_reader(self._fd, self._discard)

    def _discard(self) -> None:
        try:
            data = self._session.receive()
        except OSError:
            self._closed_by_both()
            return
        if data == b"" or self._session.ended:
            self._closed_by_both()

    def _closed_by_both(self) -> None:
        if not self._pending:
            self._force_close(None)

    def abort(self) -> None:
        """Ends the connection at once."""
        self._force_close(None)

    def _fatal(self, exc: BaseException) -> None:
        """An error of the connection, which `connection_lost` gets."""
        try:
            # An alert for the peer.
            self._session.flush()
        except OSError:
            pass
        self._force_close(exc)

    def _force_close(self, exc: typing.Optional[BaseException]) -> None:
        if self._lost:
            return
        self._lost = self._is_closing = True
        self._set_alarm(None)
        self._is_reading = self._is_writing = False
        self._loop.remove_reader(self._fd)
        self._loop.remove_writer(self._fd)
        self._session.drop_socket()
        if not self.opened.done():
            self.opened.set_exception(ConnectionAbortedError("the connection was closed during the TLS handshake"))
            self.opened.exception()
        self._loop.call_soon(self._tell_lost, exc)

    def _tell_lost(self, exc: typing.Optional[BaseException]) -> None:
        if self._duplicate is not None:
            self._duplicate.close()
        if self._on_end is not None:
            self._on_end(self)
        if self._connected:
            self._protocol.connection_lost(exc)

    def _set_alarm(self, seconds: typing.Optional[float]) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = None if seconds is None else self._loop.call_later(seconds, self.abort)

    # Protocol and information.

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Passes further events to another protocol."""
        self._protocol: typing.Any = protocol
        # None if data goes into the protocol's buffer.
        self._data_received: typing.Optional[typing.Callable[[bytes], None]] = None
        if not isinstance(protocol, asyncio.BufferedProtocol):
            self._data_received = typing.cast(asyncio.Protocol, protocol).data_received

    def get_protocol(self) -> asyncio.BaseProtocol:
        """The protocol that gets the events."""
        return typing.cast(asyncio.BaseProtocol, self._protocol)

    def get_extra_info(self, name: str, default: typing.Any = None) -> typing.Any:
        """``ssl_object``, ``sslcontext``, ``cipher``, ``peercert``, ``peername``, ``sockname``, ``socket``."""
        if name in self._names:
            return self._names[name]
        if name == "ssl_object":
            return self._negotiated
        if name == "sslcontext":
            return self._negotiated.context
        if name in ("cipher", "compression"):
            return getattr(self._negotiated, name)()
        if name == "peercert":
            return self._negotiated.getpeercert()
        if name == "socket" and not self._lost:
            if self._duplicate is None:
                self._duplicate = socket.socket(self._family, socket.SOCK_STREAM, fileno=os.dup(self._fd))
            return self._duplicate
        return default

    def _call(self, callback: typing.Callable[[], None]) -> None:
        try:
            callback()
        except Exception as exc:
            self._report(f"{getattr(callback, '__name__', callback)}() failed", exc)

    def _report(self, what: str, exc: BaseException) -> None:
        context = {"message": f"protocol.{what}", "exception": exc, "transport": self, "protocol": self._protocol}
        self._loop.call_exception_handler(context)

    def __repr__(self) -> str:
        state = "closed" if self._lost else "closing" if self._is_closing else "open"
        return f"<tautline TLS transport {state} peer={self._names['peername']}>"


def _name(ask: typing.Callable[[], typing.Any]) -> typing.Any:
    try:
        return ask()
    except OSError:
        return None


class Server(asyncio.AbstractServer):
    """Listening sockets whose connections get transports of this module."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sockets: list[socket.socket],
        start: typing.Callable[[socket.socket, typing.Callable[[Transport], None]], Transport],
    ) -> None:
        self._loop = loop
        self._sockets = sockets
        self._start = start
        self._transports: set[Transport] = set()
        self._waiters: collections.deque[asyncio.Future[None]] = collections.deque()
        self._forever: typing.Optional[asyncio.Future[None]] = None
        self._is_serving = False

    def _accept(self, listener: socket.socket) -> None:
        # As many as asyncio accepts at once.
        for _ in range(100):
            try:
                sock, _ = listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as exc:
                # No descriptors are left, for one: a pause, as in asyncio.
                self._loop.call_exception_handler({"message": "accept() failed", "exception": exc})
                self._loop.remove_reader(listener.fileno())
                self._loop.call_later(1, self._listen_again, listener)
                return
            try:
                self._transports.add(self._start(sock, self._ended))
            except Exception as exc:
                sock.close()
                self._loop.call_exception_handler({"message": "a connection could not be accepted", "exception": exc})

    def _listen_again(self, listener: socket.socket) -> None:
        if listener.fileno() >= 0 and self._is_serving:
            self._loop.add_reader(listener.fileno(), self._accept, listener)

    def _ended(self, transport: Transport) -> None:
        self._transports.discard(transport)
        self._wake()

    def _wake(self) -> None:
        if self._sockets or self._transports:
            return
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)

    @property
    def sockets(self) -> tuple[socket.socket, ...]:
        """The listening sockets."""
        return tuple(self._sockets)

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """Its event loop."""
        return self._loop

    def is_serving(self) -> bool:
        """Whether it accepts connections."""
        return self._is_serving

    async def start_serving(self) -> None:
        """Accepts connections."""
        if not self._is_serving and self._sockets:
            self._is_serving = True
            for one in self._sockets:
                self._loop.add_reader(one.fileno(), self._accept, one)

    async def serve_forever(self) -> None:
        """Accepts connections until it is closed or cancelled."""
        await self.start_serving()
        self._forever = self._loop.create_future()
        try:
            await self._forever
        finally:
            self._forever = None
            self.close()
            await self.wait_closed()

    def close(self) -> None:
        """Accepts no more. Connections that are open go on."""
        self._is_serving = False
        sockets, self._sockets = self._sockets, []
        for one in sockets:
            self._loop.remove_reader(one.fileno())
            one.close()
        if self._forever is not None and not self._forever.done():
            self._forever.cancel()
        self._wake()

    def close_clients(self) -> None:
        """Closes all connections."""
        for one in list(self._transports):
            one.close()

    def abort_clients(self) -> None:
        """Ends all connections at once."""
        for one in list(self._transports):
            one.abort()

    async def wait_closed(self) -> None:
        """Waits until it is closed and all connections have ended."""
        if self._sockets or self._transports:
            waiter = self._loop.create_future()
            self._waiters.append(waiter)
            await waiter
