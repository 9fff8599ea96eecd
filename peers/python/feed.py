"""Clients of market data in Python, as workers of the suite `feed`: `feed.py URL`.

Each line of the input, `SYMBOLS ENGINE MILLISECONDS`, is a round: subscribe to trades and books of that many symbols of the
simulated venue at URL, decode every message, decide at each trade, and print the figures. Books are not kept: the last
levels of each message are all that the decision has.
"""

import asyncio
import json
import sys
import time

BATCH = 100
WARM_UP = 2.0


class Decide:
    """Counts messages, and times the decisions from the venue's stamps."""

    def __init__(self):
        self.messages = 0
        self.latencies = []
        self.best = {}

    def on_message(self, message):
        kind = message.get("e")
        if kind == "trade":
            price, quantity = float(message["p"]), float(message["q"])
            self.best[message["s"]] = (price, quantity, message["t"], message["m"])
            self.latencies.append(time.time_ns() // 1000 - message["E"])
        elif kind == "depthUpdate":
            bids = [(float(price), float(quantity)) for price, quantity in message["b"]]
            asks = [(float(price), float(quantity)) for price, quantity in message["a"]]
            self.best[message["s"]] = (bids, asks, message["U"], message["u"])
        self.messages += 1


def requests(symbols):
    streams = [f"s{at}usdt@{channel}" for at in range(symbols) for channel in ("trade", "depth")]
    for number, at in enumerate(range(0, len(streams), BATCH)):
        yield json.dumps({"method": "SUBSCRIBE", "params": streams[at : at + BATCH], "id": number})


async def measure(decide, seconds):
    await asyncio.sleep(WARM_UP)
    decide.messages, decide.latencies = 0, []
    used, begin = time.process_time(), time.monotonic()
    await asyncio.sleep(seconds)
    used, seconds = time.process_time() - used, time.monotonic() - begin
    messages, latencies = decide.messages, sorted(decide.latencies)
    if not latencies:
        return "failed no trades came"
    share = [latencies[min(len(latencies) - 1, int(len(latencies) * share))] for share in (0.5, 0.99, 0.999)]
    p50, p99, p999 = share
    return f"rate {messages / seconds} cpu_us {used * 1e6 / messages} p50 {p50} p99 {p99} p999 {p999}"


async def websockets(url, symbols, seconds):
    import websockets

    decide = Decide()
    async with websockets.connect(url, compression=None, max_size=None) as socket:

        async def receive():
            async for message in socket:
                decide.on_message(json.loads(message))

        task = asyncio.create_task(receive())
        for request in requests(symbols):
            await socket.send(request)
            await asyncio.sleep(0.25)
        figures = await measure(decide, seconds)
        task.cancel()
    return figures


async def picows(url, symbols, seconds):
    import orjson
    from picows import WSListener, WSMsgType, ws_connect

    decide = Decide()

    class Client(WSListener):
        def on_ws_frame(self, transport, frame):
            if frame.msg_type == WSMsgType.TEXT:
                decide.on_message(orjson.loads(frame.get_payload_as_memoryview()))
            elif frame.msg_type == WSMsgType.PING:
                transport.send_pong(frame.get_payload_as_bytes())

    transport, _ = await ws_connect(Client, url)
    for request in requests(symbols):
        transport.send(WSMsgType.TEXT, request.encode())
        await asyncio.sleep(0.25)
    figures = await measure(decide, seconds)
    transport.disconnect()
    return figures


def run(engine, url, symbols, seconds):
    if engine == "picows":
        # As its authors recommend.
        import uvloop

        return uvloop.run(picows(url, symbols, seconds))
    return asyncio.run(websockets(url, symbols, seconds))


def main(url):
    url += "/ws?timeUnit=MICROSECOND"
    for line in sys.stdin:
        symbols, engine, millis = line.split()
        try:
            print(run(engine, url, int(symbols), int(millis) / 1000), flush=True)
        except Exception as error:
            print("failed", repr(error), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
