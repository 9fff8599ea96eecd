"""The client of a hub: against ``taut serve --app hub``, which is killed and started again, and scripted servers."""

import asyncio
import base64
import hashlib
import hmac
import json
import logging
import os
import socket
import subprocess
import time
import urllib.request

import pytest

import tautline
from tautline.hub import HubClient, HubError, Message

PROGRAM = os.environ.get("TAUTLINE_PROGRAM")
SECRET = "0123456789abcdef0123456789abcdef"
RULES = """
[tokens]
secrets = ["hub.secret"]
required = true

[[namespace]]
topics = "*"
users = ["subscribe", "publish", "presence", "history"]
kind = "history"

[[key]]
name = "app"
file = "hub.secret"
scopes = ["publish", "users"]
topics = ["*"]
"""

with_program = pytest.mark.skipif(PROGRAM is None, reason="TAUTLINE_PROGRAM does not name the program taut")


class Server:
    """A hub of its own process, at one address over all of its lives."""

    def __init__(self, *arguments):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"ws://127.0.0.1:{self.port}/"
        self.arguments = arguments
        self.start()

    def start(self):
        command = [PROGRAM, "serve", "--plain", "--app", "hub", "--listen", f"127.0.0.1:{self.port}", *self.arguments]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert self.process.stdout.readline(), "the hub does not start"

    async def call(self, operation, body):
        """A request of the application."""
        url, headers = f"http://127.0.0.1:{self.port}/api/{operation}", {"Authorization": f"Bearer {SECRET}"}
        request = urllib.request.Request(url, json.dumps(body).encode(), headers)
        answer = await asyncio.get_running_loop().run_in_executor(None, urllib.request.urlopen, request)
        assert answer.status == 200

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


@pytest.fixture
def hub():
    server = Server()
    yield server
    server.kill()


@pytest.fixture
def guarded(tmp_path):
    """A hub with rules."""
    (tmp_path / "hub.secret").write_text(SECRET)
    (tmp_path / "hub.toml").write_text(RULES)
    server = Server("--rules", tmp_path / "hub.toml")
    yield server
    server.kill()


def token(user, seconds):
    def part(value):
        return base64.urlsafe_b64encode(value).rstrip(b"=")

    claims = {"sub": user, "exp": int(time.time() + seconds)}
    text = part(b'{"alg":"HS256"}') + b"." + part(json.dumps(claims).encode())
    return (text + b"." + part(hmac.new(SECRET.encode(), text, hashlib.sha256).digest())).decode()


async def until(holds):
    for _ in range(12_000):
        if holds():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("timed out")


async def subscribed(client, topic, on_message, **options):
    done = asyncio.get_running_loop().create_future()

    def is_there(subscription):
        if not done.done():
            done.set_result(subscription)

    client.subscribe(topic, on_message, **{"on_subscribed": is_there, "on_late": is_there, **options})
    return await done


@with_program
def test_history_latest_values_and_presence(run, hub):
    async def main():
        async with HubClient(hub.url) as ann, HubClient(hub.url) as bob:
            got, again, latest, names = [], [], [], []
            await subscribed(ann, "log:a", got.append)
            offsets = [(await bob.publish("log:a", {"n": n})).offset for n in range(100)]
            await until(lambda: len(got) == 100)
            assert [message.data["n"] for message in got] == list(range(100))
            assert [message.offset for message in got] == offsets
            assert isinstance(got[0], Message) and got[0].topic == "log:a"
            await subscribed(bob, "log:a", again.append, after=offsets[9])
            await until(lambda: len(again) == 90)
            assert [message.data["n"] for message in again] == list(range(10, 100))
            for n in range(5):
                await bob.publish("latest:p", n, key="x")
            ann.subscribe("latest:p", latest.append)
            await until(lambda: latest)
            assert [(message.key, message.data) for message in latest] == [("x", 4)]

            def on_members(members):
                names[:] = sorted(members.values())

            room = ann.subscribe("room", got.append, as_="ann", on_members=on_members)
            await until(lambda: names == ["ann"])
            there = bob.subscribe("room", lambda message: None, as_="bob")
            await until(lambda: names == ["ann", "bob"])
            assert sorted(room.members.values()) == names
            published = await bob.publish("room", "h\u00e4llo")
            assert (published.reach, published.offset) == ("all", None)
            await until(lambda: got[-1].data == "h\u00e4llo")
            there.unsubscribe()
            await until(lambda: names == ["ann"])

    run(main())


@with_program
def test_bursts_are_few_frames_and_members_are_counted(run, hub):
    async def main():
        async with HubClient(hub.url) as ann, HubClient(hub.url) as bob:
            got, numbers = [], []
            frames = {"sent": 0, "arrays": 0}
            await subscribed(ann, "room", lambda message: got.append(message.data), as_="ann", on_count=numbers.append)
            await until(lambda: numbers and ann._takes_many and bob._takes_many)
            assert numbers[-1] == 1
            send, receive = bob._ws.send, ann._receive

            async def counted(text):
                frames["sent"] += 1
                await send(text)

            def received(text):
                frames["arrays"] += str(text).startswith("[")
                receive(text)

            bob._ws.send, ann._receive = counted, received
            published = await asyncio.gather(*(bob.publish("room", n) for n in range(100)))
            assert all(one.reach == "all" for one in published)
            await until(lambda: len(got) == 100)
            assert got == list(range(100))
            assert frames["sent"] == 2 and frames["arrays"] >= 1
            there = bob.subscribe("room", print, as_="bob")
            await until(lambda: numbers[-1] == 2)
            there.unsubscribe()
            await until(lambda: numbers[-1] == 1)

    run(main())


def test_a_number_of_many_digits_takes_no_other_message_with_it(run):
    digits = "1" * 10_000

    async def main():
        got = []

        async def handler(ws):
            async for text in ws:
                kind = json.loads(text)["type"]
                if kind == "hello":
                    await ws.send('{"type":"hello","version":2,"most":256}')
                elif kind == "subscribe":
                    await ws.send('{"type":"subscribed","topic":"log:a","epoch":"e","offset":0}')
                    begin = '{"type":"message","topic":"log:a","offset":'
                    await ws.send(f'[{begin}1,"data":1}},{begin}2,"data":{digits}}},{begin}3,"data":3}}]')

        async with scripted(handler) as server:
            async with HubClient(url_of(server)) as client:
                client.subscribe("log:a", lambda message: got.append((message.offset, message.data)))
                await until(lambda: len(got) == 3)
                assert got == [(1, 1), (2, float("inf")), (3, 3)]

    run(main())


def test_a_hub_of_before_gets_one_message_in_a_frame(run):
    async def main():
        heard = []

        async def handler(ws):
            async for text in ws:
                heard.append(json.loads(text))
                if heard[-1]["type"] == "hello":
                    reason = "this type of message is not known: write subscribe, unsubscribe, publish, token or ping"
                    await ws.send(json.dumps({"type": "error", "reason": reason}))

        async with scripted(handler) as server:
            async with HubClient(url_of(server)) as client:
                await until(lambda: heard)
                waiting = [asyncio.ensure_future(client.publish("a", n, timeout=0.2)) for n in range(3)]
                await until(lambda: len(heard) == 4)
                assert [message.get("data") for message in heard[1:]] == [0, 1, 2]
                await asyncio.gather(*waiting, return_exceptions=True)

    run(main())


@with_program
def test_a_killed_hub_loses_and_doubles_no_message_that_waits(run, hub):
    async def main():
        states, got, late = [], [], []
        async with HubClient(hub.url, max_unanswered=3, on_state=lambda state, closed: states.append(state)) as client:
            log = await subscribed(client, "log:a", lambda message: got.append(message.data), on_late=late.append)
            await client.publish("log:a", 0)
            await until(lambda: got == [0])
            epoch = log.epoch
            hub.kill()
            await until(lambda: states[-1] == "closed" and not client.is_open)
            waiting = [asyncio.ensure_future(client.publish("log:a", n)) for n in (1, 2, 3)]
            await asyncio.sleep(0)
            with pytest.raises(HubError, match="3 messages wait") as busy:
                await client.publish("log:a", 4)
            assert busy.value.code == "busy"
            hub.start()
            offsets = [published.offset for published in await asyncio.gather(*waiting)]
            assert offsets == sorted(set(offsets))
            # The embedded log is gone with its process. The client is told so, and gets what was published since.
            await until(lambda: got == [0, 1, 2, 3])
            assert late == [log] and log.epoch != epoch
            assert (await client.publish("log:a", 4)).offset > offsets[-1]
            await until(lambda: got == [0, 1, 2, 3, 4])
            assert states == ["open", "closed", "open"]
        assert states[-1] == "ended"
        with pytest.raises(HubError) as ended:
            await client.publish("log:a", 5)
        assert ended.value.code == "ended"

    run(main())


@with_program
def test_a_message_of_an_earlier_life_is_stored_once(run, hub):
    async def main():
        got = []
        async with HubClient(hub.url) as first:
            at = await first.publish("log:a", "one", id="order-7")
        async with HubClient(hub.url) as second:
            assert await second.publish("log:a", "one", id="order-7") == at
            await second.publish("log:a", "two")
            second.subscribe("log:a", lambda message: got.append(message.data), after=0)
            await until(lambda: len(got) == 2)
            assert got == ["one", "two"]

    run(main())


@with_program
def test_fresh_tokens_are_asked_for_by_the_hub_and_at_each_connection(run, guarded):
    async def main():
        asked, directs, got = [], [], []

        async def fresh():
            asked.append(time.monotonic())
            # The hub asks for another one in the middle of a short life.
            return token("ann", 4 if len(asked) == 1 else 7200)

        async with HubClient(guarded.url, token=fresh, on_direct=directs.append) as client:
            await subscribed(client, "a", lambda message: got.append(message.data))
            await until(lambda: len(asked) == 2)
            await client.publish("a", 1)
            await until(lambda: got == [1])
            await guarded.call("publish", {"user": "ann", "data": 7})
            await guarded.call("disconnect", {"user": "ann"})
            # Closed with 4002, it comes back with a fresh one and its offsets.
            await until(lambda: len(asked) == 3)
            await client.publish("a", 2)
            await until(lambda: got == [1, 2])
            assert directs == [7]

    run(main())


@with_program
@pytest.mark.parametrize(("fixed", "code"), [(lambda: token("ann", 3), 4001), (lambda: "a.b.c", 4004)])
def test_a_fixed_token_that_is_over_ends_the_client(run, guarded, fixed, code):
    async def main():
        ends = []
        async with HubClient(guarded.url, token=fixed(), on_state=lambda *state: ends.append(state)) as client:
            await until(lambda: ends and ends[-1][0] == "ended")
            assert [closed.code for state, closed in ends if state != "open"] == [code, code]
            with pytest.raises(HubError, match=f"token.*{code}") as ended:
                await client.publish("a", 1)
            assert ended.value.code == "ended"

    run(main())


def scripted(handler):
    return tautline.serve(handler, "127.0.0.1", 0)


def url_of(server):
    return f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}/"


def test_a_silent_hub_is_asked_and_then_given_up(run):
    async def main():
        heard = []

        async def handler(ws):
            heard.append([])
            async for text in ws:
                heard[-1].append(json.loads(text)["type"])

        async with scripted(handler) as server:
            async with HubClient(url_of(server), ping_after=0.1, pong_within=0.2) as client:
                client.subscribe("a", print)
                await until(lambda: len(heard) >= 2 and heard[1])
                assert heard[0] == ["hello", "subscribe", "ping"] and heard[1][:2] == ["hello", "subscribe"]
                with pytest.raises(HubError, match="not answered in 0.05 s") as late:
                    await client.publish("a", 1, timeout=0.05)
                assert late.value.code == "timeout"

    run(main())


def test_messages_that_have_to_be_repeated_are_even_if_nobody_waits(run):
    async def main():
        publications = []

        async def handler(ws):
            async for text in ws:
                request = json.loads(text)
                if request["type"] != "publish":
                    continue
                publications.append(request["data"])
                # The first one is refused twice, and later ones until it comes again.
                if publications.count(1) < 3:
                    await ws.send(json.dumps({"type": "error", "reason": "away", "retry": True, "id": request["id"]}))
                else:
                    await ws.send(json.dumps({"type": "published", "id": request["id"], "offset": 1, "epoch": "e"}))

        async with scripted(handler) as server:
            async with HubClient(url_of(server)) as client:
                await until(lambda: client.is_open)
                first = asyncio.ensure_future(client.publish("log:a", 1, timeout=0.1))
                second = asyncio.ensure_future(client.publish("log:a", 2))
                with pytest.raises(HubError, match="not answered"):
                    await first
                assert (await second).epoch == "e"
                assert publications == [1, 2, 1, 2, 1, 2]

    run(main())


def test_odd_messages_and_listeners_that_raise_stop_nothing(run, caplog):
    async def main():
        async def handler(ws):
            for odd in ("null", "7", "[]", "no JSON", "{}", "[" * 100_000, '{"type":"published"}', '{"type":"error"}'):
                await ws.send(odd)
            for members in ('"x"', '[1,[2],["a","b"]]'):
                await ws.send(f'{{"type":"members","topic":"a","members":{members}}}')
            for n in (1, 2):
                await ws.send(json.dumps({"type": "message", "topic": "a", "data": n}))
            await ws.wait_closed()

        got, states = [], []

        def on_message(message):
            got.append(message.data)
            raise RuntimeError("a listener's own")

        async with scripted(handler) as server:
            async with HubClient(url_of(server), on_state=lambda *state: states.append(state)) as client:
                subscription = client.subscribe("a", on_message)
                await until(lambda: got == [1, 2])
                assert subscription.members == {"a": "b"} and states == [("open", None)]
                for bad in (float("nan"), object(), {1: {2}}):
                    with pytest.raises((TypeError, ValueError)):
                        await client.publish("a", bad)

    with caplog.at_level(logging.ERROR, "tautline.hub"):
        run(main())
    assert [record.message for record in caplog.records] == ["a listener of HubClient failed"] * 2


def test_a_hub_that_no_attempt_reaches_ends_the_client(run):
    async def main():
        ends = []
        options = dict(process_request=lambda connection, request: connection.respond(401, "no"))
        async with tautline.serve(lambda ws: ws.wait_closed(), "127.0.0.1", 0, **options) as server:
            async with HubClient(url_of(server), on_state=lambda state, closed: ends.append(state)) as client:
                waiting = asyncio.ensure_future(client.publish("a", 1))
                with pytest.raises(HubError, match="401") as ended:
                    await waiting
                assert ended.value.code == "ended" and ends == ["ended"]

    run(main())
