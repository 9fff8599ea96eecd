"""A client of a hub (docs/hub.md) for asyncio: topics with history, latest values and presence.

It has the names of the clients for JavaScript and Rust. :class:`HubClient` keeps one connection, opens it again after
each end, and goes on from its offsets.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import inspect
import json
import logging
import random
import re
import secrets
import typing

from .asyncio.client import ClientConnection, connect, process_exception
from .exceptions import ConnectionClosed, InvalidStatus, WebSocketException
from .frames import Close

__all__ = ["HubClient", "HubError", "Message", "Published", "Subscription"]

FIRST_WAIT = 0.1
LONGEST_WAIT = 5.0
# The longest wait that a server may ask for.
LONGEST_HINT = 30.0
RETRY = 0.5
# Messages of a frame, and characters of them, beside one that is longer.
MOST_JOINED = 64
MOST_JOINED_LENGTH = 64 << 10
# The begin of the reason with which hubs that know one message in a frame alone refuse "hello".
OLD_HUB = "this type of message is not known"

Token = typing.Union[str, typing.Callable[[], typing.Union[str, typing.Awaitable[str]]]]
Json = dict[str, typing.Any]


def parse(text: typing.Union[str, bytes]) -> typing.Any:
    """Reads JSON. Python refuses integers of many digits, which a publisher may send amid the messages of others."""
    try:
        return json.loads(text)
    except ValueError:
        return json.loads(text, parse_int=number)


def number(text: str) -> typing.Union[int, float]:
    """An integer, or the nearest float of one that has too many digits for Python."""
    try:
        return int(text)
    except ValueError:
        return float(text)


class HubError(WebSocketException):
    """The hub or its client did not do what it was asked for.

    ``code`` is ``"refused"`` if the hub says no, ``"busy"`` if too many messages wait for an answer, ``"timeout"`` if
    none came in time, and ``"ended"`` if the client has ended.
    """

    def __init__(self, code: str, reason: str) -> None:
        super().__init__(reason)
        self.code = code


@dataclasses.dataclass(frozen=True)
class Message:
    """A message of a topic."""

    topic: str
    data: typing.Any
    offset: typing.Optional[int] = None
    """Its place in the topic's history; plain topics have none."""
    key: typing.Optional[str] = None


@dataclasses.dataclass(frozen=True)
class Published:
    """The hub's answer to a message."""

    id: str
    offset: typing.Optional[int] = None
    """Its place in the topic's history, of this epoch; plain topics have none."""
    epoch: typing.Optional[str] = None
    reach: typing.Optional[str] = None
    """In a plain topic: ``"all"``, or ``"host"`` if other hosts miss it."""


@dataclasses.dataclass
class _Unanswered:
    """A message that the hub has not answered."""

    request: str
    answer: asyncio.Future[Published]
    is_sent: bool = False
    """Whether it went out on the connection of now."""


class Subscription:
    """What a client has of a topic. Keep ``after`` and ``epoch`` to go on after a restart of the program."""

    def __init__(self, client: HubClient, topic: str, options: _Options) -> None:
        self.topic = topic
        self.after = options.after
        """The last offset that the client has."""
        self.epoch = options.epoch
        """The epoch of that offset."""
        self.members: dict[str, str] = {}
        """The members by identifier, with their names, if the subscription has ``on_members``."""
        self._client = client
        self._options = options

    def unsubscribe(self) -> None:
        """Ends the subscription."""
        self._client._unsubscribe(self)

    def _request(self) -> Json:
        request: Json = {"type": "subscribe", "topic": self.topic}
        for name, value in (("after", self.after), ("epoch", self.epoch), ("as", self._options.as_)):
            if value is not None:
                request[name] = value
        if self._options.on_members is not None:
            request["presence"] = True
        if self._options.on_count is not None:
            request["count"] = True
        return request


@dataclasses.dataclass(frozen=True)
class _Options:
    on_message: typing.Callable[[Message], object]
    after: typing.Optional[int]
    epoch: typing.Optional[str]
    as_: typing.Optional[str]
    on_subscribed: typing.Optional[typing.Callable[[Subscription], object]]
    on_late: typing.Optional[typing.Callable[[Subscription], object]]
    on_members: typing.Optional[typing.Callable[[dict[str, str]], object]]
    on_count: typing.Optional[typing.Callable[[int], object]]
    on_error: typing.Optional[typing.Callable[[HubError], object]]


class HubClient:
    """One connection to a hub: ``async with HubClient("wss://hub.example/") as hub``.

    It begins to connect at once, in the running event loop, and connects again until :meth:`close`. All callbacks run
    in that loop; their exceptions are logged, and the client goes on.

    ``token`` is a text, or a function that gets a fresh one, perhaps a coroutine function: it is called for each
    connection, and when the hub asks. ``on_state`` gets ``"open"``, ``"closed"`` or ``"ended"``, and the code and
    reason of an end. After ``"ended"`` the client does not come back: it was closed, or no further attempt can succeed.
    ``on_direct`` gets messages of the application to this user. ``ping_after`` are the seconds of silence after which
    the hub is asked for a message, and ``pong_within`` those in which it then has to come. ``max_unanswered`` bounds
    the messages that wait for the hub's answer, also without a connection. Further options are those of
    :func:`tautline.connect`, such as ``ssl``.
    """

    def __init__(
        self,
        url: str,
        *,
        token: typing.Optional[Token] = None,
        on_state: typing.Optional[typing.Callable[[str, typing.Optional[Close]], object]] = None,
        on_direct: typing.Optional[typing.Callable[[typing.Any], object]] = None,
        ping_after: float = 20.0,
        pong_within: float = 10.0,
        max_unanswered: int = 128,
        logger: typing.Optional[logging.Logger] = None,
        **options: typing.Any,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._logger = logger or logging.getLogger("tautline.hub")
        self._token = token
        self._on_state = on_state
        self._on_direct = on_direct
        self._ping_after = ping_after
        self._pong_within = pong_within
        self._max_unanswered = max_unanswered
        options = {"close_timeout": pong_within, **options}

        def dial() -> connect:
            # The hub's own pings show that the hub works, and not only its connection.
            return connect(url, ping_interval=None, **options)

        dial()  # Raises errors of the options now.
        self._dial = dial
        self._ws: typing.Optional[ClientConnection] = None
        self._topics: dict[str, Subscription] = {}
        self._unanswered: dict[str, _Unanswered] = {}
        self._outbox: list[str] = []
        self._more = asyncio.Event()
        self._takes_many = False
        self._retries: set[str] = set()
        self._retry_timer: typing.Optional[asyncio.TimerHandle] = None
        self._has_heard = False
        self._failures = 0
        self._heard = 0.0
        self._name = secrets.token_hex(16)
        self._next_id = 0
        self._ended: typing.Optional[HubError] = None
        self._background: set[asyncio.Task[None]] = set()
        self._running = self._loop.create_task(self._run())

    @property
    def is_open(self) -> bool:
        """Whether the connection is open now."""
        return self._ws is not None

    async def __aenter__(self) -> HubClient:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the connection for ever. Messages without an answer are rejected with the code ``"ended"``."""
        self._end(HubError("ended", "the client was closed"))
        self._running.cancel()
        await asyncio.gather(self._running, return_exceptions=True)
        await asyncio.gather(*self._background, return_exceptions=True)

    def subscribe(
        self,
        topic: str,
        on_message: typing.Callable[[Message], object],
        *,
        after: typing.Optional[int] = None,
        epoch: typing.Optional[str] = None,
        as_: typing.Optional[str] = None,
        on_subscribed: typing.Optional[typing.Callable[[Subscription], object]] = None,
        on_late: typing.Optional[typing.Callable[[Subscription], object]] = None,
        on_members: typing.Optional[typing.Callable[[dict[str, str]], object]] = None,
        on_count: typing.Optional[typing.Callable[[int], object]] = None,
        on_error: typing.Optional[typing.Callable[[HubError], object]] = None,
    ) -> Subscription:
        """Subscribes to a topic, now and on each later connection. A second call for a topic replaces the first.

        ``after`` is the last offset that the client has; without it, a topic with history begins with now. ``epoch``
        is its epoch; without it, an offset counts as one of the present epoch, or as late beyond its last message.
        ``as_`` is the name as which the client is a member. ``on_late`` says that messages up to the
        subscription's new ``after`` are not kept any more. ``on_members`` gets all members after each change,
        and ``on_count`` their number, about once in a second.
        """
        options = _Options(on_message, after, epoch, as_, on_subscribed, on_late, on_members, on_count, on_error)
        subscription = self._topics[topic] = Subscription(self, topic, options)
        self._send(subscription._request())
        return subscription

    async def publish(
        self,
        topic: str,
        data: typing.Any,
        *,
        key: typing.Optional[str] = None,
        id: typing.Optional[str] = None,
        timeout: typing.Optional[float] = 60.0,
    ) -> Published:
        """Publishes a value that JSON has, and repeats it until the hub answers.

        In a topic with history it is stored once. ``id`` is an identifier of your own, for a message that an earlier
        life of the program may have published. Without an answer in ``timeout`` seconds it raises :class:`HubError`: the
        hub may have the message all the same.
        """
        if self._ended is not None:
            raise HubError("ended", str(self._ended)) from self._ended
        if len(self._unanswered) >= self._max_unanswered:
            raise HubError("busy", f"{self._max_unanswered} messages wait for an answer: publish this one later")
        if id is None:
            id = f"{self._name}-{self._next_id}"
            self._next_id += 1
        elif id in self._unanswered:
            raise HubError("busy", f"the message {id!r} waits for its answer")
        request: Json = {"type": "publish", "topic": topic, "data": data, "id": id}
        if key is not None:
            request["key"] = key
        message = _Unanswered(json.dumps(request, allow_nan=False), self._loop.create_future())
        self._unanswered[id] = message
        # Behind messages that have to be repeated, so that the order holds.
        if not self._retries:
            self._publish(message)
        try:
            return await asyncio.wait_for(message.answer, timeout)
        except asyncio.TimeoutError:
            raise HubError("timeout", f"the hub has not answered in {timeout} s") from None
        finally:
            # The hub may wait for one that it has had: it is repeated until its answer, or the connection's end.
            if not message.is_sent:
                self._unanswered.pop(id, None)

    # The connections.

    async def _run(self) -> None:
        while True:
            hint = 0.0
            try:
                ws = await self._dial()
            except Exception as exc:
                if isinstance(exc, InvalidStatus) and exc.retry_after is not None:
                    hint = exc.retry_after
                if process_exception(exc) is not None:
                    error = HubError("ended", f"the hub cannot be reached, and no repetition helps: {exc}")
                    error.__cause__ = exc
                    return self._end(error, Close(1006, str(exc)))
                self._logger.debug("the hub was not reached: %s", exc)
            else:
                self._has_heard = False
                try:
                    await self._converse(ws)
                finally:
                    self._retire(ws)
                if self._has_heard:
                    self._failures = 0
                code, reason = ws.close_code or 1006, ws.close_reason or ""
                self._tell("closed", Close(code, reason))
                if self._is_final(code):
                    why = f"the hub does not accept the token, and there is no other: {code} {reason}"
                    error = HubError("ended", why)
                    return self._end(error, Close(code, reason))
                hint = retry_after(code, reason)
            own = jittered(min(FIRST_WAIT * 2.0 ** min(self._failures, 30), LONGEST_WAIT))
            self._failures += 1
            await asyncio.sleep(max(own, jittered(LONGEST_HINT) if hint > LONGEST_HINT else hint))

    def _is_final(self, code: int) -> bool:
        """Whether all later connections would be closed with this code, too."""
        return code == 4003 if self._token is None else isinstance(self._token, str) and code in (4001, 4004)

    async def _converse(self, ws: ClientConnection) -> None:
        """Does everything on a connection, until it ends or is given up."""
        if self._token is not None:
            try:
                token = await asyncio.wait_for(self._fresh_token(), self._ping_after + self._pong_within)
                await ws.send(token)
            except ConnectionClosed:
                return
            except Exception:
                self._logger.exception("the function for tokens of HubClient failed")
                self._background_task(ws.close(4003))
                return
        self._ws = ws
        self._heard = self._loop.time()
        self._retries.clear()
        self._takes_many = False
        self._outbox = [_text({"type": "hello", "version": 2})]
        self._outbox += [_text(topic._request()) for topic in self._topics.values()]
        # Their callers have given up.
        self._unanswered = {id: one for id, one in self._unanswered.items() if not one.answer.done()}
        for message in self._unanswered.values():
            self._publish(message)
        self._more.set()
        self._tell("open", None)
        tasks = [self._loop.create_task(work(ws)) for work in (self._read, self._write, self._watch)]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._ws = None
            for message in self._unanswered.values():
                message.is_sent = False
            for task in tasks:
                task.cancel()
            for result in await asyncio.gather(*tasks, return_exceptions=True):
                if isinstance(result, Exception) and not isinstance(result, ConnectionClosed):
                    self._logger.error("a connection to the hub failed", exc_info=result)

    async def _read(self, ws: ClientConnection) -> None:
        async for text in ws:
            # A hub that does not accept the token closes the connection without a message.
            self._has_heard = True
            self._heard = self._loop.time()
            self._receive(text)

    async def _write(self, ws: ClientConnection) -> None:
        while True:
            await self._more.wait()
            self._more.clear()
            outbox, self._outbox = self._outbox, []
            for text in joined(outbox) if self._takes_many else outbox:
                await ws.send(text)

    async def _watch(self, ws: ClientConnection) -> None:
        """Returns when a hub that was asked for a message has sent none in time."""
        while True:
            heard = self._heard
            await asyncio.sleep(max(0.0, heard + self._ping_after - self._loop.time()))
            if self._heard != heard:
                continue
            self._send({"type": "ping"})
            # In two parts: an event loop that was blocked for one of them reads what has come before the other ends.
            for _ in range(2):
                await asyncio.sleep(self._pong_within / 2)
            if self._heard == heard:
                self._logger.debug("the hub has not answered a ping in %s s", self._pong_within)
                return

    def _retire(self, ws: ClientConnection) -> None:
        """Ends a connection without waiting for it: its network may be gone."""
        self._background_task(ws.close())

    def _background_task(self, work: typing.Coroutine[typing.Any, typing.Any, None]) -> None:
        task = self._loop.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    def _end(self, error: HubError, closed: typing.Optional[Close] = None) -> None:
        """Ends the client for ever."""
        if self._ended is not None:
            return
        self._ended = error
        if self._retry_timer is not None:
            self._retry_timer.cancel()
        for message in self._unanswered.values():
            message.is_sent = False
            if not message.answer.done():
                message.answer.set_exception(HubError("ended", str(error)))
        self._unanswered.clear()
        self._tell("ended", closed)

    async def _fresh_token(self) -> str:
        token = self._token() if callable(self._token) else self._token
        if inspect.isawaitable(token):
            token = await token
        return _text({"type": "token", "token": token})

    async def _renew_token(self, ws: ClientConnection) -> None:
        try:
            token = await self._fresh_token()
            with contextlib.suppress(ConnectionClosed):
                await ws.send(token)
        except Exception:
            # The next connection has another try.
            self._logger.exception("the function for tokens of HubClient failed")

    def _send(self, request: Json) -> None:
        """Sends now, if there is a connection. The next one begins with all that counts."""
        if self._ws is not None:
            self._outbox.append(_text(request))
            self._more.set()

    def _publish(self, message: _Unanswered) -> None:
        if self._ws is not None:
            message.is_sent = True
            self._outbox.append(message.request)
            self._more.set()

    def _retry(self) -> None:
        self._retry_timer = None
        self._retries.clear()
        for message in self._unanswered.values():
            self._publish(message)

    def _unsubscribe(self, subscription: Subscription) -> None:
        if self._topics.get(subscription.topic) is subscription:
            del self._topics[subscription.topic]
            self._send({"type": "unsubscribe", "topic": subscription.topic})

    # Messages of the hub.

    def _receive(self, text: typing.Union[str, bytes]) -> None:
        try:
            answer = parse(text)
        except (ValueError, RecursionError):
            return
        for one in answer if isinstance(answer, list) else (answer,):
            if isinstance(one, dict):
                self._take(one)

    def _take(self, answer: Json) -> None:
        """Takes one message."""
        kind, topic, id = answer.get("type"), answer.get("topic"), answer.get("id")
        subscription = self._topics.get(topic) if isinstance(topic, str) else None
        if kind == "published":
            if isinstance(id, str):
                published = Published(id, answer.get("offset"), answer.get("epoch"), answer.get("reach"))
                self._answered(id, lambda message: message.answer.set_result(published))
        elif kind == "error":
            self._refused(answer, id, subscription)
        elif kind == "token":
            if self._token is not None and self._ws is not None:
                self._background_task(self._renew_token(self._ws))
        elif kind == "hello":
            self._takes_many = answer.get("version") == 2
        elif kind == "direct":
            self._call(self._on_direct, answer.get("data"))
        elif subscription is not None:
            self._receive_of(subscription, str(kind), answer)

    def _receive_of(self, subscription: Subscription, kind: str, answer: Json) -> None:
        """Takes a message about a topic."""
        options, offset = subscription._options, answer.get("offset")
        if kind == "message":
            if isinstance(offset, int):
                if subscription.after is not None and offset <= subscription.after:
                    return
                subscription.after = offset
            self._call(options.on_message, Message(subscription.topic, answer.get("data"), offset, answer.get("key")))
        elif kind in ("subscribed", "late"):
            epoch, is_late = answer.get("epoch"), kind == "late"
            # An offset of another epoch means nothing. A conflating topic has none here: it begins with the latest of
            # each key.
            is_other = subscription.epoch is not None and subscription.epoch != epoch
            if is_late or subscription.after is None or is_other:
                subscription.after = offset
            subscription.epoch = epoch
            self._call(options.on_late if is_late else options.on_subscribed, subscription)
        elif kind == "resync":
            self._send(subscription._request())
        elif kind == "unsubscribed":
            # Without a reason the client has asked for it.
            if "reason" in answer:
                del self._topics[subscription.topic]
                self._call(options.on_error, HubError("refused", str(answer["reason"])))
        elif kind == "count":
            self._call(options.on_count, answer.get("number"))
        elif kind in ("members", "join", "leave"):
            self._change_members(subscription, kind, answer)

    def _change_members(self, subscription: Subscription, kind: str, answer: Json) -> None:
        members = subscription.members
        member = str(answer.get("member"))
        if kind == "join":
            members[member] = str(answer.get("name"))
        elif kind == "leave":
            members.pop(member, None)
        else:
            if not answer.get("more"):
                members.clear()
            pairs = answer.get("members")
            for pair in pairs if isinstance(pairs, list) else ():
                if isinstance(pair, list) and len(pair) == 2:
                    members[str(pair[0])] = str(pair[1])
        self._call(subscription._options.on_members, dict(members))

    def _refused(self, answer: Json, id: typing.Any, subscription: typing.Optional[Subscription]) -> None:
        error = HubError("refused", str(answer.get("reason")))
        if not isinstance(id, str):
            if str(error).startswith(OLD_HUB):
                return
            self._call(subscription._options.on_error if subscription is not None else None, error)
        elif not answer.get("retry"):
            self._answered(id, lambda message: message.answer.set_exception(error))
        elif id in self._unanswered:
            self._retries.add(id)
            if self._retry_timer is None:
                self._retry_timer = self._loop.call_later(RETRY, self._retry)

    def _answered(self, id: str, act: typing.Callable[[_Unanswered], None]) -> None:
        message = self._unanswered.pop(id, None)
        if message is not None and not message.answer.done():
            act(message)

    def _tell(self, state: str, closed: typing.Optional[Close]) -> None:
        self._call(self._on_state, state, closed)

    def _call(self, listener: typing.Optional[typing.Callable[..., object]], *values: object) -> None:
        """Calls a listener. Its exception is its own, and must not end what the client does."""
        if listener is not None:
            try:
                listener(*values)
            except Exception:
                self._logger.exception("a listener of HubClient failed")


def retry_after(code: int, reason: str) -> float:
    """The seconds after which a server that restarts wants this client back; 0 if it does not say."""
    hint = re.match(r"retry-after=(\d{1,7}(?:\.\d{1,3})?)s(?: |$)", reason) if code in (1012, 1013) else None
    return float(hint[1]) if hint else 0.0


def joined(messages: list[str]) -> typing.Iterator[str]:
    """Messages as frames: JSON arrays of them, each of a bounded size. One that is alone stays as it is."""
    array: list[str] = []
    length = 0
    for message in messages:
        length += len(message)
        if array and (len(array) >= MOST_JOINED or length > MOST_JOINED_LENGTH):
            yield array[0] if len(array) == 1 else f"[{','.join(array)}]"
            array, length = [], len(message)
        array.append(message)
    if array:
        yield array[0] if len(array) == 1 else f"[{','.join(array)}]"


def jittered(longest: float) -> float:
    """A random part of a wait, so that clients do not come back together."""
    return longest * (0.5 + random.random() / 2)


def _text(request: Json) -> str:
    return json.dumps(request, allow_nan=False)
