"""Parsers of Python on the messages of the other decoders: the same bytes, and the same numbers at the end.

Standard input has, for each kind of message, a line `NAME COUNT`, and COUNT pairs of lines: a message, and what it says as
JSON. Prices and quantities become floats, as programs in Python mostly have them.
"""

import json
import sys
import time

try:
    import orjson
except ImportError:
    orjson = None
try:
    import msgspec
except ImportError:
    msgspec = None
try:
    import simdjson
except ImportError:
    simdjson = None

ROUNDS = 41
PASSES = 2


def trade(parse):
    def decode(text):
        data = parse(text)["data"]
        return data["T"], data["t"], float(data["p"]), float(data["q"]), data["m"]

    return decode


def depth(parse):
    def decode(text):
        data = parse(text)
        bids = [float(price) for price, quantity in data["b"] if float(quantity) > 0]
        asks = [float(price) for price, quantity in data["a"] if float(quantity) > 0]
        return data["U"], data["u"], max(bids, default=None), min(asks, default=None)

    return decode


def typed():
    """msgspec reads into structures that it knows, and makes floats of strings by itself."""

    class Trade(msgspec.Struct):
        T: int
        t: int
        p: float
        q: float
        m: bool

    class Combined(msgspec.Struct):
        data: Trade

    class Depth(msgspec.Struct):
        U: int
        u: int
        b: list[tuple[float, float]]
        a: list[tuple[float, float]]

    combined = msgspec.json.Decoder(Combined, strict=False).decode
    update = msgspec.json.Decoder(Depth, strict=False).decode

    def decode_trade(text):
        data = combined(text).data
        return data.T, data.t, data.p, data.q, data.m

    def decode_depth(text):
        data = update(text)
        bids = [price for price, quantity in data.b if quantity > 0]
        asks = [price for price, quantity in data.a if quantity > 0]
        return data.U, data.u, max(bids, default=None), min(asks, default=None)

    return decode_trade, decode_depth


def decoders(name):
    make = {"trade": trade, "depth": depth}[name]
    found = [("json", make(json.loads))]
    if orjson:
        found.append(("orjson", make(orjson.loads)))
    if simdjson:
        # The last document must be gone before the next one: the decoders keep none.
        found.append(("pysimdjson", make(simdjson.Parser().parse)))
    if msgspec:
        found.append(("msgspec, struct", typed()[0 if name == "trade" else 1]))
    return found


def check(name, decode, messages):
    for message, expected in messages:
        found = decode(message)
        same = all(
            one == other if not isinstance(one, float) else abs(one * 1e8 - other) < 1
            for one, other in zip(found, expected, strict=True)
        )
        assert same, f"{name}: {found} is not {expected}: {message}"


def measure(kind, messages):
    found = decoders(kind)
    times = {name: [] for name, _ in found}
    for name, decode in found:
        check(name, decode, messages)
    texts = [message for message, _ in messages]
    for _ in range(ROUNDS):
        for name, decode in found:
            begin = time.thread_time_ns()
            for _ in range(PASSES):
                for text in texts:
                    decode(text)
            times[name].append((time.thread_time_ns() - begin) / (PASSES * len(texts)))
    print(f"{kind} in Python {sys.version.split()[0]}, {len(texts)} messages")
    for name, spans in times.items():
        spans.sort()
        print(f"  {name:<28} {spans[len(spans) // 2]:>8.1f} ns  (fastest {spans[0]:.1f})")


def main():
    lines = sys.stdin.buffer
    while head := lines.readline():
        kind, count = head.decode().split()
        messages = [(lines.readline().rstrip(b"\n"), json.loads(lines.readline())) for _ in range(int(count))]
        measure(kind, messages)


main()
