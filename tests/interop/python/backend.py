"""The backend of README.md, with FastAPI on uvicorn."""

import asyncio
import hashlib
import os
import signal
import sys

import uvicorn
from fastapi import FastAPI, Request, WebSocket, WebSocketDisconnect
from fastapi.responses import HTMLResponse, PlainTextResponse, StreamingResponse

MIB = 1 << 20
HALF = b"h" * (MIB // 2)
BLOCK = bytes(at % 251 for at in range(MIB))

app = FastAPI()
waiting = {}
closed = []


@app.get("/hello")
async def hello():
    return PlainTextResponse("hello")


@app.get("/page")
async def page():
    return HTMLResponse("<!doctype html><title>a page</title>")


@app.post("/sum")
async def add(request: Request):
    total, length = hashlib.sha256(), 0
    async for part in request.stream():
        total.update(part)
        length += len(part)
    framing = "chunked" if "transfer-encoding" in request.headers else "length"
    return {"length": length, "sum": total.hexdigest(), "framing": framing}


@app.post("/refuse")
async def refuse():
    return PlainTextResponse("too much", 413, {"Connection": "close"})


@app.get("/events")
async def events(name: str):
    waiting[name] = asyncio.Event()

    async def send():
        yield "data: first\n\n"
        # The second event is sent once somebody asks for it, who has read the first.
        await waiting[name].wait()
        yield "data: second\n\n"

    return StreamingResponse(send(), media_type="text/event-stream")


@app.get("/next")
async def following(name: str):
    waiting[name].set()
    return PlainTextResponse("sent")


@app.get("/download")
async def download():
    async def send():
        for _ in range(50):
            yield BLOCK

    return StreamingResponse(send(), headers={"Content-Length": str(50 * MIB)})


async def half():
    yield HALF
    await asyncio.Event().wait()


@app.get("/half")
async def half_of_a_length():
    return StreamingResponse(half(), headers={"Content-Length": str(MIB)})


@app.get("/half-chunked")
async def half_of_chunks():
    return StreamingResponse(half())


@app.get("/hang")
async def hang():
    await asyncio.Event().wait()


@app.post("/die")
async def die():
    os.kill(os.getpid(), signal.SIGKILL)


@app.get("/last-close")
async def last_close():
    return closed[-1] if closed else None


@app.websocket("/refused")
async def refused(ws: WebSocket):
    await ws.send_denial_response(PlainTextResponse("no entry", 401, {"WWW-Authenticate": "Bearer"}))


async def accept(ws):
    offered = ws.scope["subprotocols"]
    await ws.accept("echo.test" if "echo.test" in offered else None)


@app.websocket("/close")
async def close(ws: WebSocket):
    await accept(ws)
    code, _, reason = (await ws.receive_text()).partition(" ")
    await ws.close(int(code), reason)


@app.websocket("/closed")
async def told(ws: WebSocket):
    await accept(ws)
    await ws.send_text("open")
    try:
        await ws.receive_text()
    except WebSocketDisconnect as end:
        closed.append(f"{end.code} {end.reason or ''}")


@app.websocket("/{path:path}")
async def echo(ws: WebSocket, path: str):
    await accept(ws)
    while (message := await ws.receive())["type"] == "websocket.receive":
        if message.get("text") is not None:
            await ws.send_text(message["text"])
        else:
            await ws.send_bytes(message["bytes"])


class Server(uvicorn.Server):
    async def startup(self, sockets=None):
        await super().startup(sockets)
        print("ready", flush=True)


Server(uvicorn.Config(app, "127.0.0.1", int(sys.argv[1]), log_level="warning", ws="websockets-sansio")).run()
