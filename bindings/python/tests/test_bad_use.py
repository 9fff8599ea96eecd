"""Uses that must not crash or hang the interpreter, each in a process of its own."""

import subprocess
import sys

import pytest

PROLOGUE = """
import asyncio, os, sys, threading
import tautline
async def echo(ws):
    async for message in ws:
        await ws.send(message)
def uri(server):
    return f"ws://localhost:{server.sockets[0].getsockname()[1]}/"
"""

SCRIPTS = {
    "exit_with_open_connections": """
        async def main():
            global server, ws
            server = await tautline.serve(echo, "127.0.0.1", 0)
            ws = await tautline.connect(uri(server))
            await ws.send("x")
        asyncio.run(main())
        print("done")
    """,
    "event_loop_closed_under_it": """
        loop = asyncio.new_event_loop()
        async def main():
            server = await tautline.serve(echo, "127.0.0.1", 0)
            return server, await tautline.connect(uri(server))
        server, ws = loop.run_until_complete(main())
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0.05))
        loop.close()
        try:
            asyncio.run(ws.send("x"))
        except Exception as exc:
            print("done", type(exc).__name__)
        else:
            print("done")
    """,
    "fork": """
        async def main():
            server = await tautline.serve(echo, "127.0.0.1", 0)
            ws = await tautline.connect(uri(server))
            child = os.fork()
            if child == 0:
                try:
                    ws._link.send("x")
                except RuntimeError as exc:
                    os._exit(7 if "fork" in str(exc) else 8)
                os._exit(9)
            status = os.waitpid(child, 0)[1]
            assert os.WEXITSTATUS(status) == 7, status
            await ws.send("parent goes on")
            assert await ws.recv() == "parent goes on"
            await ws.close()
            server.close()
            await server.wait_closed()
        asyncio.run(main())
        print("done")
    """,
    "child_of_fork_opens_its_own": """
        async def main():
            async with tautline.serve(echo, "127.0.0.1", 0) as server:
                async with tautline.connect(uri(server)) as ws:
                    await ws.send("x")
                    assert await ws.recv() == "x"
        asyncio.run(main())
        child = os.fork()
        asyncio.run(main())
        if child == 0:
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        print("done")
    """,
    "callbacks_that_raise": """
        from tautline.callbacks import *
        sys.unraisablehook = lambda unraisable: None
        class Bad(WSListener):
            def on_ws_frame(self, transport, frame):
                transport.send(frame.msg_type, frame.get_payload_as_bytes())
                raise RuntimeError("boom")
        async def main():
            server = await ws_create_server(lambda request: Bad(), "127.0.0.1", 0)
            async with tautline.connect(uri(server)) as ws:
                for _ in range(3):
                    await ws.send("x")
                    assert await ws.recv() == "x"
            server.close()
            await server.wait_closed()
        asyncio.run(main())
        print("done")
    """,
    "callbacks_that_do_not_return": """
        # The loop's own thread answers pings while Python is held up, and the connection goes on afterwards.
        import tautline.sync
        from tautline.callbacks import *
        entered, let_go, said = threading.Event(), threading.Event(), []
        class Held(WSListener):
            def on_ws_frame(self, transport, frame):
                entered.set()
                assert let_go.wait(60)
                transport.send(frame.msg_type, frame.get_payload_as_bytes())
        def client(uri):
            with tautline.sync.connect(uri) as ws:
                ws.send("x")
                assert entered.wait(60)
                pong = ws.ping()
                # A blocking client notices a pong while it receives.
                while not pong.is_set():
                    try:
                        ws.recv(timeout=0.1)
                    except TimeoutError:
                        pass
                let_go.set()
                said.append(ws.recv(timeout=60))
        async def main():
            server = await ws_create_server(lambda request: Held(), "127.0.0.1", 0, loops=1)
            await asyncio.get_running_loop().run_in_executor(None, client, uri(server))
            server.close()
            await server.wait_closed()
        asyncio.run(main())
        assert said == ["x"]
        print("done")
    """,
    "handlers_that_do_not_return": """
        # A server that closes waits for them, as one of websockets does, and its connections end nevertheless.
        async def handler(ws):
            await asyncio.Event().wait()
        async def main():
            for loops in (0, 1):
                server = await tautline.serve(handler, "127.0.0.1", 0, loops=loops)
                async with tautline.connect(uri(server)) as ws:
                    server.close()
                    try:
                        await ws.recv()
                    except tautline.ConnectionClosedOK as closed:
                        assert closed.rcvd.code == 1001, closed
                try:
                    await asyncio.wait_for(server.wait_closed(), 0.1)
                except asyncio.TimeoutError:
                    continue
                raise AssertionError("the server has not waited")
        asyncio.run(main())
        print("done")
    """,
    "threads_that_share_a_connection": """
        # It belongs to its event loop. Other threads get an exception or their turn, and nothing is cut or mixed.
        async def main():
            for loops in (0, 1):
                async with tautline.serve(echo, "127.0.0.1", 0, loops=loops) as server:
                    async with tautline.connect(uri(server), max_queue=None) as ws:
                        sent = [0] * 4
                        def hammer(number):
                            message = str(number) * 100
                            for _ in range(500):
                                try:
                                    asyncio.run(ws.send(message))
                                    sent[number] += 1
                                except RuntimeError:
                                    pass
                        threads = [threading.Thread(target=hammer, args=(number,)) for number in range(4)]
                        for thread in threads:
                            thread.start()
                        while any(thread.is_alive() for thread in threads):
                            await asyncio.sleep(0.01)
                        await ws.send("end")
                        got = {str(number) * 100: 0 for number in range(4)}
                        while (message := await asyncio.wait_for(ws.recv(), 60)) != "end":
                            got[message] += 1
                        # A call that raises while it waits for the peer has sent its message nevertheless.
                        assert all(sent[n] <= got[str(n) * 100] <= 500 for n in range(4)), (sent, got)
        asyncio.run(main())
        print("done")
    """,
    "many_loops_one_after_another": """
        async def main():
            async with tautline.serve(echo, "127.0.0.1", 0) as server:
                async with tautline.connect(uri(server)) as ws:
                    await ws.send("x")
                    assert await ws.recv() == "x"
        for _ in range(30):
            asyncio.run(main())
        print("done")
    """,
    "keyboard_interrupt": """
        import signal
        async def handler(ws):
            async for message in ws:
                signal.raise_signal(signal.SIGINT)
        async def main():
            async with tautline.serve(handler, "127.0.0.1", 0) as server:
                ws = await tautline.connect(uri(server))
                await ws.send("x")
                await ws.recv()
        try:
            asyncio.run(main())
        except KeyboardInterrupt:
            print("done")
    """,
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_bad_use(name):
    import textwrap

    script = PROLOGUE + textwrap.dedent(SCRIPTS[name])
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=100)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("done"), (ran.stdout, ran.stderr)
