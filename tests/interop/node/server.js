// The server of README.md, with Node's ws.
"use strict";

const { once } = require("node:events");
const fs = require("node:fs");
const https = require("node:https");
const { WebSocketServer } = require("ws");

const [port, chain, key, authority] = process.argv.slice(2);
const server = https.createServer({
  cert: fs.readFileSync(chain),
  key: fs.readFileSync(key),
  ca: authority && fs.readFileSync(authority),
  requestCert: Boolean(authority),
  rejectUnauthorized: true,
});
const sockets = new WebSocketServer({
  server,
  maxPayload: 0,
  perMessageDeflate: { threshold: 0 },
  handleProtocols: (offered) => (offered.has("echo.test") ? "echo.test" : false),
});

sockets.on("connection", (ws, request) => {
  ws.on("error", () => {});
  if (request.url === "/facts") {
    const client = request.socket.getPeerCertificate()?.subject?.CN ?? "";
    const deflate = ws.extensions.includes("permessage-deflate");
    ws.send(JSON.stringify({ subprotocol: ws.protocol, deflate, client }));
  }
  ws.on("message", async (data, binary) => {
    if (request.url === "/ping") {
      ws.ping(data);
      const [pong] = await once(ws, "pong");
      ws.send(`pong ${pong}`);
    } else if (request.url === "/close") {
      const [, code, reason] = /^(\d+) ?(.*)$/s.exec(data.toString());
      ws.close(Number(code), reason);
    } else if (request.url === "/fragments") {
      ws.ping();
      // Cut between bytes: a character of a text may lie in two fragments.
      const third = Math.floor(data.length / 3) + 1;
      for (let at = 0; at < 2 * third; at += third) ws.send(data.subarray(at, at + third), { binary, fin: false });
      ws.send(data.subarray(2 * third), { binary, fin: true });
    } else {
      ws.send(data, { binary });
    }
  });
});

server.listen(Number(port), "127.0.0.1", () => console.log("ready"));
