// The backend of README.md, with express and ws.
"use strict";

const { createHash } = require("node:crypto");
const { once } = require("node:events");
const http = require("node:http");
const express = require("express");
const { WebSocketServer } = require("ws");

const MIB = 1 << 20;
const HALF = Buffer.alloc(MIB / 2, "h");
const BLOCK = Buffer.from(Array.from({ length: MIB }, (_, at) => at % 251));

const app = express();
app.disable("etag");
app.get("/hello", (request, response) => response.type("text/plain").send("hello"));
app.get("/page", (request, response) => response.type("html").send("<!doctype html><title>a page</title>"));
app.post("/sum", async (request, response) => {
  const sum = createHash("sha256");
  let length = 0;
  for await (const part of request) {
    sum.update(part);
    length += part.length;
  }
  const framing = request.headers["transfer-encoding"] === undefined ? "length" : "chunked";
  response.json({ length, sum: sum.digest("hex"), framing });
});
app.post("/refuse", (request, response) => response.status(413).set("Connection", "close").send("too much"));

// The second event is sent once somebody asks for it, who has read the first.
const waiting = new Map();
app.get("/events", (request, response) => {
  response.set({ "Content-Type": "text/event-stream", "Cache-Control": "no-cache" });
  response.write("data: first\n\n");
  waiting.set(request.query.name, () => response.end("data: second\n\n"));
});
app.get("/next", (request, response) => {
  waiting.get(request.query.name)();
  response.send("sent");
});

app.get("/download", async (request, response) => {
  response.set({ "Content-Type": "application/octet-stream", "Content-Length": 50 * MIB });
  for (let n = 0; n < 50; n++) if (!response.write(BLOCK)) await once(response, "drain");
  response.end();
});

// Responses that never end, for the death of this process.
app.get("/half", (request, response) => response.set("Content-Length", MIB).write(HALF));
app.get("/half-chunked", (request, response) => response.write(HALF));
app.get("/hang", () => {});
app.post("/die", () => process.kill(process.pid, "SIGKILL"));

const server = http.createServer(app);
// By default the head would be answered with 100 before /refuse sees it.
server.on("checkContinue", (request, response) => {
  if (request.url !== "/refuse") response.writeContinue();
  app(request, response);
});

const sockets = new WebSocketServer({
  noServer: true,
  perMessageDeflate: true,
  handleProtocols: (offered) => (offered.has("echo.test") ? "echo.test" : false),
});
server.on("upgrade", (request, socket, head) => {
  if (request.url === "/refused") {
    socket.end("HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Bearer\r\nContent-Length: 8\r\n\r\nno entry");
    return;
  }
  sockets.handleUpgrade(request, socket, head, (ws) => converse(ws, request.url));
});

function converse(ws, url) {
  ws.on("error", () => {});
  if (url === "/half-message") ws.send("half", { fin: false });
  ws.on("message", async (data, binary) => {
    if (url === "/ping") {
      ws.ping(data);
      await once(ws, "pong");
      ws.send(`pong ${data}`);
    } else if (url === "/close") {
      const [, code, reason] = /^(\d+) ?(.*)$/s.exec(data.toString());
      if (code === "0") ws.close();
      else ws.close(Number(code), reason);
    } else if (url === "/fragments") {
      ws.send(data.subarray(0, 3), { binary, fin: false });
      ws.send(data.subarray(3), { binary, fin: true });
    } else {
      ws.send(data, { binary });
    }
  });
  if (url === "/closed") {
    ws.send("open");
    ws.on("close", (code, reason) => closed.push(`${code} ${reason}`));
  }
}

// How the client ended the last WebSocket at /closed.
const closed = [];
app.get("/last-close", (request, response) => response.json(closed.at(-1) ?? null));

server.listen(Number(process.argv[2]), "127.0.0.1", () => console.log("ready"));
