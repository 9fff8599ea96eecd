"""Other people's clients of market data against `taut serve --app venue`, beside `taut feed`.

`venues.py TAUT KIND PORT CA_FILE` follows the simulated venue at PORT with `taut feed`, ccxt, and for binance also cryptofeed and
python-binance. It rests the market, and compares trades and books of all with each other. It prints `ok ...` per check.
"""

import asyncio
import json
import os
import ssl
import sys
import urllib.request
from decimal import Decimal

SECONDS = 6
LEVELS = 10
SYMBOLS = {"binance": "BTCUSDT", "coinbase": "BTC-USD", "kraken": "BTC/USD"}


class Seen:
    """Trades by their numbers, and the last book: prices with quantities of both sides."""

    def __init__(self):
        self.trades = {}
        self.book = None

    def trade(self, number, price, quantity, side):
        self.trades[int(number)] = (Decimal(str(price)), Decimal(str(quantity)), side)

    def levels(self, bids, asks):
        def side(levels, best):
            levels = [(Decimal(str(price)), Decimal(str(quantity))) for price, quantity in levels]
            return sorted(levels, reverse=best)[:LEVELS]

        self.book = (side(bids, True), side(asks, False))


async def taut(program, kind, port, seen):
    symbol = SYMBOLS[kind]
    path = {"binance": "/ws", "coinbase": "/", "kraken": "/v2"}[kind]
    command = [program, "feed", kind, f"{symbol}@trade", f"{symbol}@depth", "--json", "--levels", str(LEVELS)]
    command += ["--url", f"wss://127.0.0.1:{port}{path}", "--snapshot-url", f"https://127.0.0.1:{port}"]
    command += ["--ca", os.environ["SSL_CERT_FILE"]]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, limit=1 << 20)
    try:
        async for line in process.stdout:
            event = json.loads(line)
            if event["event"] == "trade":
                seen.trade(event["number"], event["price"], event["quantity"], event["side"])
            elif event["event"] == "book":
                seen.levels(event["bids"], event["asks"])
    finally:
        process.kill()
        await process.wait()


async def ccxt(_, kind, port, seen):
    import ccxt.pro

    http, ws = f"https://127.0.0.1:{port}", f"wss://127.0.0.1:{port}"
    exchange = getattr(ccxt.pro, kind)({"newUpdates": True, "cafile": os.environ["SSL_CERT_FILE"]})
    symbol = {"binance": "BTC/USDT", "coinbase": "BTC/USD", "kraken": "BTC/USD"}[kind]
    base, quote = symbol.split("/")
    exchange.set_markets([{
        "id": SYMBOLS[kind], "symbol": symbol, "base": base, "quote": quote, "baseId": base, "quoteId": quote,
        "type": "spot", "spot": True, "margin": False, "swap": False, "future": False, "option": False,
        "contract": False, "inverse": None, "linear": None, "active": True, "lowercaseId": SYMBOLS[kind].lower(), "wsId": SYMBOLS[kind],
        "info": {"wsname": symbol}, "altname": symbol,
        "precision": {"price": 0.01, "amount": 0.0001}, "limits": {},
    }])
    urls = exchange.urls["api"]
    if kind == "binance":
        urls["ws"]["spot"], urls["public"] = f"{ws}/ws", f"{http}/api/v3"
    elif kind == "kraken":
        urls["ws"]["publicV2"] = f"{ws}/v2"
    else:
        urls["ws"] = f"{ws}/"

    async def trades():
        while True:
            for trade in await exchange.watch_trades(symbol):
                # ccxt passes Coinbase's side on, which is that of the maker.
                side = trade["side"]
                if kind == "coinbase":
                    side = "sell" if side == "buy" else "buy"
                seen.trade(trade["id"], trade["price"], trade["amount"], side)

    async def books():
        while True:
            book = await exchange.watch_order_book(symbol)
            seen.levels(book["bids"][:LEVELS], book["asks"][:LEVELS])

    try:
        await asyncio.gather(trades(), books())
    finally:
        await exchange.close()


async def cryptofeed(_, kind, port, seen):
    from cryptofeed.connection import RestEndpoint, Routes, WebsocketEndpoint
    from cryptofeed.defines import BID, ASK, L2_BOOK, TRADES
    from cryptofeed.exchanges import Binance

    http = f"https://127.0.0.1:{port}"
    routes = Routes(["/api/v3/exchangeInfo"], l2book="/api/v3/depth?symbol={}&limit={}")
    Binance.rest_endpoints = [RestEndpoint(http, routes=routes)]
    Binance.websocket_endpoints = [WebsocketEndpoint(f"wss://127.0.0.1:{port}")]

    async def trade(trade, _):
        seen.trade(trade.id, trade.price, trade.amount, trade.side)

    async def book(book, _):
        sides = [book.book[side].to_list() for side in (BID, ASK)]
        seen.levels(*[[level[:2] for level in side] for side in sides])

    feed = Binance(symbols=["BTC-USDT"], channels=[TRADES, L2_BOOK], callbacks={TRADES: trade, L2_BOOK: book})
    feed.start(asyncio.get_running_loop())
    try:
        await asyncio.Event().wait()
    finally:
        await feed.shutdown()


async def python_binance(_, kind, port, seen):
    from binance import AsyncClient, BinanceSocketManager, DepthCacheManager

    client = AsyncClient()
    client.API_URL = f"https://127.0.0.1:{port}/api"
    manager = BinanceSocketManager(client)
    manager.STREAM_URL = f"wss://127.0.0.1:{port}/"

    async def trades():
        async with manager.trade_socket("BTCUSDT") as socket:
            while True:
                trade = await socket.recv()
                if trade.get("e") == "trade":
                    seen.trade(trade["t"], trade["p"], trade["q"], "sell" if trade["m"] else "buy")

    async def books():
        depth = DepthCacheManager(client, "BTCUSDT", bm=manager, ws_interval=100, limit=1000)
        async with depth as socket:
            while True:
                cache = await socket.recv()
                seen.levels(cache.get_bids()[:LEVELS], cache.get_asks()[:LEVELS])

    try:
        await asyncio.gather(trades(), books())
    finally:
        await client.close_connection()


CLIENTS = {
    "binance": [taut, ccxt, cryptofeed, python_binance],
    "coinbase": [taut, ccxt],
    "kraken": [taut, ccxt],
}


async def get(port, path):
    url, context = f"https://127.0.0.1:{port}{path}", ssl.create_default_context()
    return await asyncio.to_thread(lambda: urllib.request.urlopen(url, timeout=30, context=context).read())


async def main(program, kind, port):
    clients = [(client.__name__, Seen(), client) for client in CLIENTS[kind]]
    tasks = {name: asyncio.create_task(client(program, kind, port, seen)) for name, seen, client in clients}
    # All follow the market, however slow the machine is.
    for _ in range(600):
        if all(seen.book and len(seen.trades) > 200 for _, seen, _ in clients):
            break
        if ended := [name for name, task in tasks.items() if task.done()]:
            await tasks[ended[0]]
            sys.exit(f"{ended[0]} has ended")
        await asyncio.sleep(0.1)
    counts = {name: (len(seen.trades), seen.book is not None) for name, seen, _ in clients}
    assert all(trades > 200 and book for trades, book in counts.values()), f"trades and books so far: {counts}"
    await asyncio.sleep(SECONDS)
    await get(port, "/market/rest")
    # Until all have what was on its way.
    last = None
    for _ in range(300):
        await asyncio.sleep(0.5)
        now = [(len(seen.trades), seen.book) for _, seen, _ in clients]
        if now == last:
            break
        last = now
    for task in tasks.values():
        task.cancel()
    ours = clients[0][1]
    if kind == "binance":
        book = json.loads(await get(port, "/api/v3/depth?symbol=BTCUSDT&limit=1000"))
        truth = Seen()
        truth.levels(book["bids"], book["asks"])
        assert ours.book == truth.book, f"taut has {ours.book}, the venue {truth.book}"
        print("ok binance: the book of taut is that of the venue", flush=True)
    for name, seen, _ in clients[1:]:
        first = max(min(ours.trades), min(seen.trades))
        mine, theirs = ({n: t for n, t in one.trades.items() if n >= first} for one in (ours, seen))
        assert len(mine) > 200, f"{name} and taut have {len(mine)} trades in common"
        wrong = [(n, mine.get(n), theirs.get(n)) for n in sorted(mine.keys() | theirs.keys()) if mine.get(n) != theirs.get(n)]
        assert not wrong, f"{name}: {len(wrong)} of {len(mine)} trades differ, first {wrong[:3]}"
        print(f"ok {kind}: {len(mine)} trades of {name} and taut are equal", flush=True)
        assert seen.book == ours.book, f"{name} has {seen.book}, taut {ours.book}"
        print(f"ok {kind}: the books of {name} and taut are equal", flush=True)
    await asyncio.gather(*tasks.values(), return_exceptions=True)


if __name__ == "__main__":
    # All of their libraries take their authorities from one of these.
    os.environ["SSL_CERT_FILE"] = os.environ["REQUESTS_CA_BUNDLE"] = sys.argv[4]
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
