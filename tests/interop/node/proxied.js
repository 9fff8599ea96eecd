// A client of backends behind `taut proxy`, with Node's ws and https: the same routes as in proxied.py.
//   node proxied.js URL CA_FILE
"use strict";

const assert = require("node:assert/strict");
const { once } = require("node:events");
const fs = require("node:fs");
const https = require("node:https");
const { WebSocket } = require("ws");

const [url, authority] = process.argv.slice(2);
const ca = fs.readFileSync(authority);
const agent = new https.Agent({ ca, keepAlive: true, maxSockets: 1 });
const ok = (name) => console.log(`ok   ${name}`);

const open = async (path, protocols, options) => {
  const ws = new WebSocket(url.replace("https", "wss") + path, protocols, { ca, ...options });
  await once(ws, "open");
  return ws;
};
const answer = async (ws) => {
  const [data, binary] = await once(ws, "message");
  return binary ? data : data.toString();
};
const ask = async (method, path, body) => {
  const request = https.request(url + path, { method, agent });
  request.end(body);
  const [response] = await once(request, "response");
  const parts = await response.toArray();
  return { status: response.statusCode, body: Buffer.concat(parts).toString(), reused: request.reusedSocket };
};

async function main(way) {
  assert.equal((await ask("GET", `${way}/hello`)).body, "hello");
  const sum = await ask("POST", `${way}/sum`, Buffer.alloc(1 << 20, 7));
  assert.deepEqual([sum.status, JSON.parse(sum.body).length, sum.reused], [200, 1 << 20, true]);
  ok(`${way}: requests on one connection`);

  const ws = await open(`${way}/echo`, ["unknown.test", "echo.test"]);
  assert.equal(ws.protocol, "echo.test");
  assert.equal(ws.extensions.includes("permessage-deflate"), way === "t");
  for (const message of ["Grüße, 世界 🦀", Buffer.alloc(70_000, 9), "x".repeat(70_000)]) {
    ws.send(message);
    assert.deepEqual(await answer(ws), message);
  }
  ws.send("one ", { fin: false });
  ws.send("two", { fin: true });
  assert.equal(await answer(ws), "one two");
  ws.ping("there?");
  assert.equal((await once(ws, "pong"))[0].toString(), "there?");
  ok(`${way}: echoes`);
  ws.close(4003, "enough");
  assert.equal((await once(ws, "close"))[0], 4003);
  ok(`${way}: the client closes`);

  const closed = await open(`${way}/close`);
  closed.send("4001 bye");
  const [code, reason] = await once(closed, "close");
  assert.deepEqual([code, reason.toString()], [4001, "bye"]);
  ok(`${way}: the backend closes`);

  const refused = new WebSocket(url.replace("https", "wss") + `${way}/refused`, { ca });
  const [, response] = await once(refused, "unexpected-response");
  assert.equal(response.statusCode, 401);
  assert.equal(Buffer.concat(await response.toArray()).toString(), "no entry");
  ok(`${way}: a refused upgrade`);
}

main("t")
  .then(() => main("m"))
  // The connection of a refused upgrade would keep the process.
  .then(() => process.exit());
