// The client of README.md, with Node's ws.
"use strict";

const { once } = require("node:events");
const fs = require("node:fs");
const WebSocket = require("ws");

const SIZES = [0, 1, 125, 126, 127, 4096, 65535, 65536, 1 << 20];

function check(name, holds) {
  console.log((holds ? "ok   " : "FAIL ") + name);
  if (!holds) process.exit(1);
}

function payload(size) {
  return Buffer.from(Uint8Array.from({ length: size }, (_, i) => (i * 7) % 251));
}

// Resolves with each message in turn, none lost between calls.
function inbox(ws) {
  const messages = [];
  const waiting = [];
  ws.on("message", (data, binary) => {
    const message = binary ? data : data.toString();
    const next = waiting.shift();
    if (next) next(message);
    else messages.push(message);
  });
  return () => (messages.length ? Promise.resolve(messages.shift()) : new Promise((done) => waiting.push(done)));
}

async function echo(dial) {
  let ws = await dial({ perMessageDeflate: false });
  let next = inbox(ws);
  check("no compression unless offered", ws.extensions === "");
  for (const text of ["hello", "", "Grüße, 世界 🦀"]) {
    ws.send(text);
    check(`text ${JSON.stringify(text)}`, (await next()) === text);
  }
  for (const size of SIZES) {
    ws.send(payload(size));
    check(`binary ${size}`, payload(size).equals(await next()));
  }
  for (const part of ["one ", "", "two "]) ws.send(part, { fin: false });
  ws.ping("between fragments");
  ws.send("thrée", { fin: true });
  const [pong] = await once(ws, "pong");
  check("ping between fragments", pong.toString() === "between fragments");
  check("text in fragments", (await next()) === "one two thrée");
  for (let i = 0; i < 300; i++) ws.send(`${i} ${"x".repeat(1000)}`);
  let same = true;
  for (let i = 0; i < 300; i++) same = (await next()) === `${i} ${"x".repeat(1000)}` && same;
  check("300 pipelined", same);
  ws.close(4001, "bye");
  const [code] = await once(ws, "close");
  check("close is answered with its code", code === 4001);

  ws = await dial({ perMessageDeflate: { threshold: 0 } });
  next = inbox(ws);
  check("compression negotiated", ws.extensions.includes("permessage-deflate"));
  for (const size of SIZES) {
    const text = "tautline ".repeat(size / 9 + 1).slice(0, size);
    ws.send(text);
    check(`compressed text ${size}`, (await next()) === text);
    ws.send(payload(size));
    check(`compressed binary ${size}`, payload(size).equals(await next()));
  }
  ws.send("frag", { fin: false });
  ws.send("mented", { fin: true });
  check("compressed text in fragments", (await next()) === "fragmented");
  ws.close();
  await once(ws, "close");
}

async function subprotocol(dial) {
  const ws = await dial({}, ["unknown.test", "echo.test"]);
  check("subprotocol", ws.protocol === "echo.test");
  ws.close();
  await once(ws, "close");
}

async function refused(dial) {
  try {
    const ws = await dial({});
    // With TLS 1.3 the client learns only after its own handshake that the server turned it away.
    const [code] = await Promise.race([once(ws, "close"), once(ws, "error").then(([error]) => [error.code])]);
    check(`refused: ${code}`, code !== 1000);
  } catch (error) {
    check(`refused: ${error.code ?? error.message}`, error.code !== "ECONNREFUSED");
  }
}

async function drain(dial) {
  const ws = await dial({});
  console.log("ready");
  const [code] = await once(ws, "close");
  check(`the server went away with ${code}`, code === 1001 || code === 1012);
}

async function main() {
  const [url, authority, name, chain, key] = process.argv.slice(2);
  setTimeout(() => check("done within two minutes", false), 120_000).unref();
  const dial = async (options, protocols = []) => {
    const ws = new WebSocket(url, protocols, {
      ca: fs.readFileSync(authority),
      cert: chain && fs.readFileSync(chain),
      key: key && fs.readFileSync(key),
      handshakeTimeout: 10_000,
      maxPayload: 0,
      ...options,
    });
    await once(ws, "open");
    return ws;
  };
  await { echo, subprotocol, refused, drain }[name](dial);
}

main().then(
  () => process.exit(0),
  (error) => check(error.stack, false),
);
