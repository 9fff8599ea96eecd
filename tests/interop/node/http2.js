// The client over HTTP/2 of README.md, with Node's http2, and the frames of ws.
"use strict";

const { once } = require("node:events");
const fs = require("node:fs");
const http2 = require("node:http2");
const { Receiver, Sender } = require("ws");

const SIZES = [0, 1, 125, 126, 127, 4096, 65535, 65536, 1 << 20];

function check(name, holds) {
  console.log((holds ? "ok   " : "FAIL ") + name);
  if (!holds) process.exit(1);
}

function payload(size) {
  return Buffer.from(Uint8Array.from({ length: size }, (_, i) => (i * 7) % 251));
}

async function request(session, headers, body) {
  const stream = session.request(headers);
  stream.end(body);
  const [answer] = await once(stream, "response");
  const parts = [];
  for await (const part of stream) parts.push(part);
  return { status: answer[":status"], body: Buffer.concat(parts) };
}

// A WebSocket on a stream.
class Socket {
  constructor(stream) {
    this.stream = stream;
    this.sender = new Sender(stream, {});
    this.receiver = new Receiver({ isServer: false, extensions: {}, binaryType: "nodebuffer" });
    this.messages = [];
    this.waiting = [];
    this.receiver.on("message", (data, binary) => this.take(binary ? data : data.toString()));
    this.receiver.on("pong", (data) => this.take({ pong: data.toString() }));
    this.receiver.on("conclude", (code) => this.take({ code }));
    stream.on("data", (part) => this.receiver.write(part));
    this.ended = once(stream, "end");
  }

  static async open(session, fields = {}) {
    const stream = session.request({
      ":method": "CONNECT",
      ":protocol": "websocket",
      ":path": "/socket",
      "sec-websocket-version": 13,
      ...fields,
    });
    const [answer] = await once(stream, "response");
    return answer[":status"] === 200 ? new Socket(stream) : answer[":status"];
  }

  take(message) {
    const next = this.waiting.shift();
    if (next) next(message);
    else this.messages.push(message);
  }

  next() {
    return this.messages.length
      ? Promise.resolve(this.messages.shift())
      : new Promise((done) => this.waiting.push(done));
  }

  send(data, fin = true) {
    this.sender.send(data, { binary: Buffer.isBuffer(data), mask: true, fin });
  }
}

async function main() {
  const [url, authority] = process.argv.slice(2);
  setTimeout(() => check("done within two minutes", false), 120_000).unref();
  const session = http2.connect(url, { ca: fs.readFileSync(authority) });
  session.on("goaway", () => check("no GOAWAY", false));
  session.on("error", (error) => check(error.stack, false));
  const [settings] = await once(session, "remoteSettings");
  check("the server offers extended CONNECT", settings.enableConnectProtocol === true);

  const page = await request(session, { ":path": "/" });
  check("GET", page.status === 200 && page.body.includes("WebSocket"));
  for (const size of [0, 1, 16384, 65536]) {
    const answer = await request(session, { ":method": "POST", ":path": "/echo" }, payload(size));
    check(`POST ${size}`, answer.status === 200 && answer.body.equals(payload(size)));
  }

  const ws = await Socket.open(session);
  for (const text of ["hello", "", "Grüße, 世界 🦀"]) {
    ws.send(text);
    check(`text ${JSON.stringify(text)}`, (await ws.next()) === text);
  }
  for (const size of SIZES) {
    ws.send(payload(size));
    check(`binary ${size}`, payload(size).equals(await ws.next()));
  }
  ws.send("one ", false);
  ws.sender.ping("between fragments", true);
  ws.send("two");
  check("ping between fragments", (await ws.next()).pong === "between fragments");
  check("text in fragments", (await ws.next()) === "one two");
  const others = await Promise.all(Array.from({ length: 20 }, () => Socket.open(session)));
  others.forEach((other, at) => other.send(`socket ${at}`));
  const echoes = await Promise.all(others.map((other) => other.next()));
  check("20 sockets at once", echoes.every((echo, at) => echo === `socket ${at}`));
  check("a foreign origin is refused", (await Socket.open(session, { origin: "https://elsewhere.example" })) === 403);
  ws.sender.close(4001, "bye", true);
  check("close is answered with its code", (await ws.next()).code === 4001);
  await ws.ended;
  check("its stream has ended", ws.stream.rstCode === http2.constants.NGHTTP2_NO_ERROR);
  others[0].stream.close(http2.constants.NGHTTP2_CANCEL);
  others[1].send("still");
  check("another socket stays", (await others[1].next()) === "still");
  check("one connection", !session.closed && !session.destroyed);
}

main().then(
  () => process.exit(0),
  (error) => check(error.stack, false),
);
