"""Which failures end ``async for``, and when the next attempt comes; names of hosts."""

import asyncio
import email.utils
import itertools
import socket
import time

import pytest

import tautline
import tautline.sync.client
from tautline.asyncio import client as clients


async def first_error(*arguments, **options):
    async for _ in tautline.connect(*arguments, **options):
        raise AssertionError("no server runs")


def test_errors_of_the_program_are_not_repeated(run):
    # Nobody listens at port 1.
    def ends(word, uri="ws://127.0.0.1:1/", **options):
        with pytest.raises(ValueError, match=word):
            run(first_error(uri, **options))
        with pytest.raises(ValueError, match=word):
            tautline.sync.client.connect(uri, **options)

    ends("host", additional_headers={"Host": "x"})
    ends("subprotocol", subprotocols=["a b"])
    ends("international", uri="ws://\u00fc..example/")
    ends("zone", uri="ws://[fe80::1%nowhere]:1/")


def test_a_server_name_that_tls_cannot_use_is_not_repeated(run, server_tls, client_tls):
    async def work():
        async with tautline.serve(lambda ws: ws.wait_closed(), "127.0.0.1", 0, ssl=server_tls) as server:
            port = server.sockets[0].getsockname()[1]
            uri = f"wss://127.0.0.1:{port}/"
            with pytest.raises(ValueError, match="neither a DNS name"):
                await first_error(uri, ssl=client_tls, server_hostname="no name")

    run(work())


def refuse_once(status, retry_after):
    """A server that refuses the first client with these values, and a function that tells how often it was asked."""
    asked = []

    def process_request(connection, request):
        asked.append(time.monotonic())
        if len(asked) > 1:
            return None
        response = connection.respond(status, "come back later")
        if retry_after is not None:
            response.headers["Retry-After"] = retry_after
        return response

    return process_request, asked


def delays():
    """Waits that no test outlives."""
    while True:
        yield 600.0


@pytest.mark.parametrize(
    ("status", "told", "least"),
    [(503, lambda: "1", 1.0), (429, lambda: "0", 0.0), (503, lambda: email.utils.formatdate(0, usegmt=True), 0.0)],
)
def test_a_refusal_says_when_to_come_back(run, status, told, least):
    async def work():
        process_request, asked = refuse_once(status, told())
        serving = tautline.serve(lambda ws: ws.wait_closed(), "127.0.0.1", 0, process_request=process_request)
        async with serving as server:
            port = server.sockets[0].getsockname()[1]
            async for _ in tautline.connect(f"ws://127.0.0.1:{port}/", reconnect_delays=delays):
                break
        assert len(asked) == 2 and asked[1] - asked[0] >= least - 0.01

    run(work())


def test_clients_that_are_told_one_time_do_not_come_back_together(run, monkeypatch):
    waits = []

    async def sleep(seconds, sleep=asyncio.sleep):
        waits.append(seconds)
        await sleep(0)

    monkeypatch.setattr(clients.asyncio, "sleep", sleep)

    async def work(told):
        process_request, _ = refuse_once(503, told)
        serving = tautline.serve(lambda ws: ws.wait_closed(), "127.0.0.1", 0, process_request=process_request)
        async with serving as server:
            port = server.sockets[0].getsockname()[1]
            async for _ in tautline.connect(f"ws://127.0.0.1:{port}/", reconnect_delays=delays):
                break

    # More than the longest wait counts as the longest wait.
    for told, least in (("40", 40.0), ("4000", 90.0)):
        waits.clear()
        for _ in range(3):
            run(work(told))
        some = [wait for wait in waits if wait]
        assert len(set(some)) == len(some) == 3 and all(least <= wait <= least * 1.25 for wait in some), waits


def test_a_server_cannot_keep_its_clients_away(run, monkeypatch):
    monkeypatch.setattr(clients, "LONGEST_DELAY", 0.2)
    process_request, asked = refuse_once(503, "99999999999999999999")

    async def work():
        serving = tautline.serve(lambda ws: ws.wait_closed(), "127.0.0.1", 0, process_request=process_request)
        async with serving as server:
            port = server.sockets[0].getsockname()[1]
            async for _ in tautline.connect(f"ws://127.0.0.1:{port}/", reconnect_delays=delays):
                break

    run(work())
    assert len(asked) == 2


def test_all_addresses_of_a_host_are_tried(run):
    # The first refuses, the second accepts in its kernel alone, and says nothing.
    closed, silent = socket.socket(), socket.socket()
    for one in (closed, silent):
        one.bind(("127.0.0.1", 0))
    silent.listen()
    dead = [one.getsockname() for one in (closed, silent)]

    def with_addresses(*addresses):
        async def getaddrinfo(host, port, **options):
            assert host == "several.example"
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", address) for address in addresses]

        asyncio.get_running_loop().getaddrinfo = getaddrinfo

    async def work():
        async with tautline.serve(lambda ws: ws.wait_closed(), "127.0.0.1", 0) as server:
            alive = server.sockets[0].getsockname()
            for uri in ("ws://service.example/", "ws://127.0.0.9:1/"):
                with_addresses(dead[0], dead[0], alive)
                async with tautline.connect(uri, host="several.example", port=7) as ws:
                    assert ws.remote_address[1] == alive[1]
        other = socket.socket()
        other.bind(("127.0.0.1", 0))
        with_addresses(dead[0], other.getsockname())
        with pytest.raises(OSError) as raised:
            await tautline.connect("ws://service.example/", host="several.example")
        for one in (dead[0], other.getsockname()):
            assert f"127.0.0.1:{one[1]}" in str(raised.value)
        other.close()

    async def reconnects():
        # An address that accepts and says nothing comes last in the next attempt.
        async with tautline.serve(lambda ws: ws.wait_closed(), "127.0.0.1", 0) as server:
            with_addresses(dead[1], server.sockets[0].getsockname())
            options = dict(host="several.example", open_timeout=0.5, reconnect_delays=lambda: itertools.repeat(0.1))
            async for _ in tautline.connect("ws://service.example/", **options):
                return

    run(work())
    run(reconnects())
    closed.close()
    silent.close()


def test_names_are_ascii_and_zones_stay_here(run):
    hosts = []

    def process_request(connection, request):
        hosts.append(request.headers["Host"])

    async def work():
        serving = tautline.serve(lambda ws: ws.wait_closed(), "::1", 0, process_request=process_request)
        async with serving as server:
            port = server.sockets[0].getsockname()[1]
            async with tautline.connect(f"ws://[::1%1]:{port}/") as ws:
                assert ws.request.headers["Host"] == f"[::1]:{port}"
            async with tautline.connect("ws://B\u00fccher.example/", host="::1", port=port) as ws:
                assert ws.request.headers["Host"] == "xn--bcher-kva.example"
        assert hosts == [f"[::1]:{port}", "xn--bcher-kva.example"]

    run(work())
