// The JavaScript client of a hub against a server that its arguments start, kill and start again:
//   node client.mjs PORT PROGRAM ARGUMENT...
// Before Node 22 it needs the package `ws`, found by NODE_PATH. It prints `ok NAME` for each check that holds.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { createHmac } from "node:crypto";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { HubClient, HubError } from "../../bindings/js/tautline-hub.js";
import { bugs } from "./bugs.mjs";

const [port, program, ...args] = process.argv.slice(2);
const require = createRequire(`${process.env.NODE_PATH ?? "."}/`);
const WebSocket = globalThis.WebSocket ?? require("ws").WebSocket;
const url = `ws://127.0.0.1:${port}/`;

const start = async (...further) => {
  const server = spawn(program, [...args, ...further], { stdio: ["ignore", "pipe", "inherit"] });
  await once(server.stdout, "data");
  return server;
};
const kill = async (server) => {
  server.kill("SIGKILL");
  await once(server, "exit");
};

const until = async (what, holds) => {
  for (const end = Date.now() + 60_000; !holds(); ) {
    assert(Date.now() < end, `timed out: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
};
const client = () => new HubClient(url, { WebSocket });
const subscribed = (hub, topic, onMessage, options = {}) =>
  new Promise((resolve, reject) => {
    const end = { onSubscribed: () => resolve(subscription), onError: reject };
    const subscription = hub.subscribe(topic, onMessage, { ...end, onLate: () => resolve(subscription), ...options });
  });
const ok = (name) => console.log(`ok ${name}`);

let server = await start();
const publisher = client();

{
  const got = [];
  const hub = client();
  await subscribed(hub, "log:a", (message) => got.push(message));
  const offsets = [];
  for (let n = 0; n < 300; n++) {
    offsets.push((await publisher.publish("log:a", { n })).offset);
  }
  await until("all messages arrive", () => got.length === 300);
  assert.deepEqual(got.map(({ data }) => data.n), [...Array(300).keys()]);
  assert.deepEqual(got.map(({ offset }) => offset), offsets);
  const again = [];
  const returned = client();
  await subscribed(returned, "log:a", (message) => again.push(message.data.n), { after: offsets[9] });
  await until("the missed messages arrive", () => again.length === 290);
  assert.deepEqual(again, [...Array(290).keys()].map((n) => n + 10));
  [hub, returned].forEach((one) => one.close());
  ok("history");
}
{
  for (let n = 0; n < 10; n++) {
    await publisher.publish("latest:p", n, { key: "x" });
    await publisher.publish("latest:p", -n, { key: "y" });
  }
  const hub = client();
  const got = new Map();
  await subscribed(hub, "latest:p", ({ key, data }) => got.set(key, [...(got.get(key) ?? []), data]));
  await until("each key has its latest value", () => got.size === 2);
  assert.deepEqual([...got], [["x", [9]], ["y", [-9]]]);
  hub.close();
  ok("latest values");
}
{
  const [ann, bob] = [client(), client()];
  let names = [];
  await subscribed(ann, "room", () => {}, { as: "ann", onMembers: (members) => (names = [...members.values()].sort()) });
  await until("ann is there", () => names.join() === "ann");
  const got = [];
  await subscribed(bob, "room", ({ data }) => got.push(data), { as: "bob" });
  await until("bob joins", () => names.join() === "ann,bob");
  assert.equal((await ann.publish("room", ["hello", "\u{1f600}\""])).reach, "all");
  await until("bob hears ann", () => got.length === 1);
  assert.deepEqual(got, [["hello", "\u{1f600}\""]]);
  bob.close();
  await until("bob leaves", () => names.join() === "ann");
  ann.close();
  ok("presence");
}
{
  const members = ["ann", "bob"].map(() => client());
  const numbers = [];
  await subscribed(publisher, "crowd", () => {}, { onCount: (number) => numbers.push(number) });
  await until("nobody is there", () => numbers.at(-1) === 0);
  await Promise.all(members.map((member, n) => subscribed(member, "crowd", () => {}, { as: `member ${n}` })));
  await until("two are there", () => numbers.at(-1) === 2);
  members.forEach((member) => member.close());
  await until("they have left", () => numbers.at(-1) === 0);
  ok("numbers of members");
}
{
  const [sent, received] = [[], []];
  class Recorded extends WebSocket {
    constructor(...to) {
      super(...to);
      this.addEventListener("message", ({ data }) => received.push(JSON.parse(data)));
    }
    send(text) {
      sent.push(JSON.parse(text));
      super.send(text);
    }
  }
  const hub = new HubClient(url, { WebSocket: Recorded, maxUnanswered: 200 });
  const got = [];
  await subscribed(hub, "burst", ({ data }) => got.push(data));
  assert.deepEqual(sent[0], { type: "hello", version: 2 });
  assert.equal(received[0].version, 2);
  const before = [sent.length, received.length];
  const published = Array.from({ length: 200 }, (_, n) => hub.publish("burst", n));
  assert((await Promise.all(published)).every(({ reach }) => reach === "all"));
  await until("all of them arrive", () => got.length === 200);
  assert.deepEqual(got, [...Array(200).keys()]);
  assert.equal(sent.length - before[0], 4, "64 messages in a frame");
  const arrays = received.slice(before[1]).filter((frame) => Array.isArray(frame));
  assert(arrays.some((array) => array.length > 10), "deliveries come together");
  hub.close();
  ok("several messages in a frame");
}
{
  // A hub that knows one message in a frame alone.
  const sent = [];
  class Old {
    constructor() {
      setTimeout(() => this.onopen?.());
    }
    send(text) {
      sent.push(text);
      if (JSON.parse(text).type === "hello") {
        const reason = "this type of message is not known: write subscribe, unsubscribe, publish, token or ping";
        setTimeout(() => this.onmessage?.({ data: JSON.stringify({ type: "error", reason }) }));
      }
    }
    close() {}
  }
  const hub = new HubClient(url, { WebSocket: Old });
  await until("it says its version", () => sent.length === 1);
  await new Promise((resolve) => setTimeout(resolve, 20));
  [1, 2, 3].forEach((n) => hub.publish("a", n).catch(() => {}));
  assert.deepEqual(sent.slice(1).map((text) => JSON.parse(text).data), [1, 2, 3]);
  hub.close();
  ok("a hub of before");
}
{
  await assert.rejects(publisher.publish("$own", 1), /not allowed/);
  await assert.rejects(publisher.publish("a", undefined), TypeError);
  await assert.rejects(subscribed(publisher, "", () => {}), /not allowed/);
  ok("refusals");
}
{
  const got = [];
  let late = 0;
  const hub = client();
  const subscription = await subscribed(hub, "log:b", ({ data }) => got.push(data), { onLate: () => late++ });
  await publisher.publish("log:b", 1);
  await until("a message arrives", () => got.length === 1);
  const { epoch } = subscription;
  await kill(server);
  const published = publisher.publish("log:b", 2);
  server = await start();
  // The embedded log is gone with its process. The client is told so, and goes on.
  await published;
  await until("the client is told", () => late === 1);
  assert.notEqual(subscription.epoch, epoch);
  await publisher.publish("log:b", 3);
  await until("later messages arrive", () => got.at(-1) === 3);
  // The one that was published before the subscriber was back is kept, so it is not lost.
  assert.deepEqual(got, [1, 2, 3]);
  hub.close();
  ok("a restart");
}
{
  // A server in this process, which can close as it likes.
  const sockets = [];
  class Scripted {
    constructor() {
      this.at = performance.now();
      sockets.push(this);
      setTimeout(() => this.onopen());
    }
    send() {}
    close() {}
  }
  const hub = new HubClient(url, { WebSocket: Scripted });
  await until("it connects", () => hub.isOpen);
  const closed = performance.now();
  sockets[0].onclose({ code: 1012, reason: "retry-after=0.75s the server restarts" });
  await until("it comes back", () => sockets.length === 2 && hub.isOpen);
  // Its own first wait would be 100 ms at most. A timer of Node may be a millisecond early.
  assert(sockets[1].at - closed >= 748, `${sockets[1].at - closed}`);
  hub.close();
  ok("a hint when to come back");
}
for (const name of await bugs({ HubClient, HubError, WebSocket, url })) {
  ok(name);
}
{
  // Values wait for a hub that was killed, and one that JSON does not have harms neither them nor the return.
  const hub = client();
  await hub.publish("log:c", 0);
  await kill(server);
  await until("the end is noticed", () => !hub.isOpen);
  const value = { n: 1 };
  const published = hub.publish("log:c", value);
  value.n = 2;
  const cycle = {};
  cycle.itself = cycle;
  await assert.rejects(hub.publish("log:c", cycle), TypeError);
  server = await start();
  const { offset, epoch } = await published;
  assert.equal((await hub.publish("log:c", null)).offset, offset + 1, "the client is open again");
  const got = [];
  const subscription = await subscribed(hub, "log:c", ({ data }) => got.push(data), { after: 0 });
  await until("both arrive", () => got.length === 2);
  assert.deepEqual([got, subscription.epoch], [[{ n: 1 }, null], epoch], "the value at the call counts");
  hub.close();
  ok("values that wait for a hub");
}
{
  // A hub that closes each connection since it does not accept the token.
  const times = [];
  class Refusing {
    constructor() {
      times.push(Date.now());
      setTimeout(() => this.onopen?.());
    }
    send(text) {
      if (JSON.parse(text).type === "token") {
        setTimeout(() => this.onclose?.({ code: 4004, reason: "" }));
      }
    }
    close() {}
  }
  const asked = [];
  const hub = new HubClient(url, { WebSocket: Refusing, token: () => asked.push("t") && "t" });
  await until("it connects again", () => times.length >= 5);
  hub.close();
  assert(times[4] - times[0] >= 600, `it waits longer each time: ${times}`);
  assert(asked.length >= 4, "each connection has a fresh token");
  ok("a token that is not accepted");
}
{
  // A hub that refuses a message twice, and later ones until it comes again.
  const publications = [];
  class Away {
    constructor() {
      setTimeout(() => this.onopen?.());
    }
    send(text) {
      const { type, id, data } = JSON.parse(text);
      if (type !== "publish") {
        return;
      }
      publications.push(data);
      const isAway = publications.filter((other) => other === 1).length < 3;
      const answer = isAway ? { type: "error", reason: "away", retry: true, id } : { type: "published", id, offset: 1 };
      setTimeout(() => this.onmessage?.({ data: JSON.stringify(answer) }));
    }
    close() {}
  }
  const hub = new HubClient(url, { WebSocket: Away });
  await until("it connects", () => hub.isOpen);
  const first = assert.rejects(hub.publish("log:e", 1, { timeout: 100 }), { code: "timeout" });
  assert.equal((await hub.publish("log:e", 2)).offset, 1);
  await first;
  assert.deepEqual(publications, [1, 2, 1, 2, 1, 2], "the hub waits for the first one, though nobody else does");
  hub.close();
  ok("a message that nobody waits for any more");
}
{
  // A socket that is never open, as behind a firewall that drops packets.
  let sockets = 0;
  class Stuck {
    constructor() {
      sockets++;
    }
    close() {}
  }
  const hub = new HubClient(url, { WebSocket: Stuck, pingAfter: 50, pongWithin: 50 });
  await until("it tries again", () => sockets >= 3);
  hub.close();
  ok("a handshake without an end");
}
{
  const hub = new HubClient(url, { WebSocket, maxUnanswered: 3 });
  const got = [];
  await subscribed(hub, "log:f", ({ data }) => got.push(data));
  const at = await hub.publish("log:f", 0, { id: "order-7" });
  assert.deepEqual(await publisher.publish("log:f", 0, { id: "order-7" }), at, "a message is stored once");
  await until("it arrives", () => got.length === 1);
  await kill(server);
  await until("the end is noticed", () => !hub.isOpen);
  const waiting = [1, 2, 3].map((n) => hub.publish("log:f", n));
  await assert.rejects(hub.publish("log:f", 4), { code: "busy", message: /^3 messages wait/ });
  server = await start();
  const offsets = (await Promise.all(waiting)).map(({ offset }) => offset);
  assert(offsets[0] < offsets[1] && offsets[1] < offsets[2]);
  await until("all of them arrive", () => got.length === 4);
  assert.deepEqual(got, [0, 1, 2, 3]);
  const last = hub.publish("log:f", 5, { timeout: Infinity });
  hub.close();
  await assert.rejects(last, { code: "ended" });
  await assert.rejects(hub.publish("log:f", 6), { code: "ended" });
  ok("messages that wait for a hub");
}
publisher.close();
await kill(server);
{
  const folder = mkdtempSync(join(tmpdir(), "hub-"));
  const secret = "0123456789abcdef0123456789abcdef";
  writeFileSync(join(folder, "secret"), secret);
  writeFileSync(
    join(folder, "hub.toml"),
    `[tokens]
    secrets = ["secret"]
    required = true
    login-within = 1
    [[namespace]]
    topics = "*"
    users = ["subscribe", "publish", "history"]
    kind = "history"
    [[key]]
    name = "app"
    file = "secret"
    scopes = ["publish", "users"]
    topics = ["*"]`,
  );
  const token = (seconds) => {
    const part = (value) => Buffer.from(JSON.stringify(value)).toString("base64url");
    const text = `${part({ alg: "HS256" })}.${part({ sub: "ann", exp: Math.floor(Date.now() / 1000 + seconds) })}`;
    return `${text}.${createHmac("sha256", secret).update(text).digest("base64url")}`;
  };
  const ask = async (operation, body) => {
    const headers = { authorization: `Bearer ${secret}` };
    const to = `http://127.0.0.1:${port}/api/${operation}`;
    assert.equal((await fetch(to, { method: "POST", headers, body: JSON.stringify(body) })).status, 200);
  };
  server = await start("--rules", join(folder, "hub.toml"));
  let asked = 0;
  const [states, direct, got] = [[], [], []];
  const hub = new HubClient(url, {
    WebSocket,
    // The hub asks for another one in the middle of a short life.
    token: async () => token(++asked === 1 ? 4 : 7200),
    onState: (state, closed) => states.push(closed ? `${state} ${closed.code}` : state),
    onDirect: (data) => direct.push(data),
  });
  await subscribed(hub, "a", ({ data }) => got.push(data));
  await until("the hub asks for a token", () => asked === 2);
  await hub.publish("a", 1);
  await until("it arrives", () => got.length === 1);
  await ask("publish", { user: "ann", data: 7 });
  await ask("disconnect", { user: "ann" });
  await until("it comes back", () => states.at(-2) === "closed 4002" && states.at(-1) === "open");
  assert.equal(asked, 3, "with a fresh token");
  await hub.publish("a", 2);
  await until("it goes on", () => got.length === 2);
  assert.deepEqual([got, direct], [[1, 2], [7]]);
  hub.close();
  assert.equal(states.at(-1), "ended");
  ok("fresh tokens");
  for (const [what, code] of [[token(3), 4001], ["a.b.c", 4004], [undefined, 4003]]) {
    const ends = [];
    const fixed = new HubClient(url, { WebSocket, token: what, onState: (...state) => ends.push(state) });
    await until("it ends", () => ends.at(-1)?.[0] === "ended");
    assert.equal(ends.at(-1)[1].code, code);
    await assert.rejects(fixed.publish("a", 1), { code: "ended" });
  }
  ok("fixed tokens");
  await kill(server);
  rmSync(folder, { recursive: true });
}
