// `pusher-js` (npm) and `pusher` (PyPI), as they are, against a hub that this starts, kills and starts again:
//   node client.mjs PORT PYTHON PROGRAM ARGUMENT...
// The flows are those of the documentation of both. It prints `ok NAME` for each that holds.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { once } from "node:events";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const [port, python, program, ...args] = process.argv.slice(2);
const require = createRequire(`${process.env.NODE_PATH}/`);
const Pusher = require("pusher-js");
const [id, key, secret] = ["1", "shop-key", "fedcba98765432100123456789abcdef"];

const folder = mkdtempSync(join(tmpdir(), "hub-pusher-"));
writeFileSync(join(folder, "shop.secret"), secret);
writeFileSync(
  join(folder, "hub.toml"),
  `[[app]]\nid = "${id}"\nkey = "${key}"\nfile = "shop.secret"\nprefix = "shop:"\nclient-events = true\nsubscription-counts = true\n`,
);

const children = new Set();
const start = async (command, rest) => {
  const child = spawn(command, rest, { stdio: ["ignore", "pipe", "inherit"] });
  children.add(child);
  child.first = String((await once(child.stdout, "data"))[0]);
  return child;
};
const kill = async (child) => {
  child.kill("SIGKILL");
  await once(child, "exit");
  children.delete(child);
};
process.on("exit", () => children.forEach((child) => child.kill("SIGKILL")));

const within = (what, promise) => {
  let timer;
  const late = new Promise((_, reject) => (timer = setTimeout(() => reject(new Error(`timed out: ${what}`)), 60_000)));
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
};
/** The next event of a channel or client. */
const event = (of, name) =>
  within(
    name,
    new Promise((resolve) => {
      const take = (data, metadata) => (of.unbind(name, take), resolve(metadata?.user_id ? { data, ...metadata } : data));
      of.bind(name, take);
    }),
  );
const subscribed = async (channel) =>
  channel.subscribed ? channel.members : within(channel.name, new Promise((resolve, reject) => {
    channel.bind("pusher:subscription_succeeded", resolve);
    channel.bind("pusher:subscription_error", reject);
  }));

const hub = () => start(program, [...args, "--rules", join(folder, "hub.toml")]);
let server = await hub();
const application = await start(python, [join(dirname(fileURLToPath(import.meta.url)), "server.py"), port, id, key, secret]);
const url = `http://127.0.0.1:${application.first.trim()}`;
const call = async (name, values = {}) => {
  const answer = await fetch(`${url}/call/${name}`, { method: "POST", body: JSON.stringify(values) });
  assert.equal(answer.status, 200, name);
  return answer.json();
};
const clients = [];
const connect = async (user = "ann") => {
  const client = new Pusher(key, {
    cluster: "",
    wsHost: "127.0.0.1",
    wsPort: Number(port),
    forceTLS: false,
    enabledTransports: ["ws"],
    disableStats: true,
    channelAuthorization: { endpoint: `${url}/pusher/auth`, params: { user } },
    userAuthentication: { endpoint: `${url}/pusher/user-auth`, params: { user } },
  });
  clients.push(client);
  if (client.connection.state !== "connected") await event(client.connection, "connected");
  return client;
};
const ok = (name) => console.log(`ok ${name}`);

const ann = await connect("ann");
const bob = await connect("bob");

{
  const channel = ann.subscribe("news");
  await subscribed(channel);
  const came = event(channel, "greet");
  await call("trigger", { channels: "news", event_name: "greet", data: { text: "hello" } });
  assert.deepEqual(await came, { text: "hello" });
  const batch = ["one", "two"].map((name) => ({ channel: "news", name, data: { name } }));
  const both = Promise.all([event(channel, "one"), event(channel, "two")]);
  await call("trigger_batch", { batch });
  assert.deepEqual(await both, [{ name: "one" }, { name: "two" }]);
  const seen = [];
  channel.bind("own", (data) => seen.push(data));
  const other = bob.subscribe("news");
  await subscribed(other);
  const others = event(other, "own");
  await call("trigger", { channels: ["news"], event_name: "own", data: 1, socket_id: ann.connection.socket_id });
  assert.equal(await others, 1);
  const last = event(channel, "last");
  await call("trigger", { channels: ["news"], event_name: "last", data: 2 });
  assert.equal(await last, 2);
  assert.deepEqual(seen, []);
  ok("subscribe, bind, trigger, batch and exclusion");
}

{
  const [one, two] = [ann.subscribe("private-chat"), bob.subscribe("private-chat")];
  await Promise.all([subscribed(one), subscribed(two)]);
  const came = event(two, "client-typing");
  assert(one.trigger("client-typing", { is: true }));
  assert.deepEqual(await came, { is: true });
  const limited = event(ann.connection, "error");
  for (let n = 0; n < 40; n++) one.trigger("client-typing", { n });
  assert.equal((await limited).data.code, 4301);
  await assert.rejects(subscribed(ann.subscribe("private-forbidden")), (error) => error.status === 403);
  ok("private channels and events of clients");
}

{
  const room = ann.subscribe("presence-room");
  const members = await subscribed(room);
  assert.equal(members.count, 1);
  assert.deepEqual(members.me, { id: "ann", info: { name: "Ann" } });
  const added = event(room, "pusher:member_added");
  const other = bob.subscribe("presence-room");
  assert.equal((await subscribed(other)).count, 2);
  assert.deepEqual(await added, { id: "bob", info: { name: "Bob" } });
  const from = event(room, "client-wave");
  other.trigger("client-wave", {});
  assert.equal((await from).user_id, "bob");
  assert.deepEqual(await call("users_info", { channel: "presence-room" }), { users: [{ id: "ann" }, { id: "bob" }] });
  const channels = await call("channels_info", { prefix_filter: "presence-", attributes: ["user_count"] });
  assert.deepEqual(channels, { channels: { "presence-room": { user_count: 2 } } });
  const info = await call("channel_info", { channel: "presence-room", attributes: ["user_count"] });
  assert.deepEqual(info, { occupied: true, user_count: 2 });
  const removed = event(room, "pusher:member_removed");
  bob.unsubscribe("presence-room");
  assert.equal((await removed).id, "bob");
  assert.equal(room.members.count, 1);
  ok("presence");
}

{
  const channel = ann.subscribe("live");
  const first = event(channel, "pusher:subscription_count");
  await subscribed(channel);
  assert.deepEqual(await first, { subscription_count: 1 });
  const second = event(channel, "pusher:subscription_count");
  await subscribed(bob.subscribe("live"));
  assert.deepEqual(await second, { subscription_count: 2 });
  assert.equal(channel.subscriptionCount, 2);
  ok("numbers of subscribers");
}

{
  const secret = ann.subscribe("private-encrypted-diary");
  await subscribed(secret);
  const came = event(secret, "entry");
  await call("trigger_encrypted", { channels: "private-encrypted-diary", event_name: "entry", data: { day: 1 } });
  assert.deepEqual(await came, { day: 1 });
  ok("encrypted channels");
}

{
  const cached = ann.subscribe("cache-price");
  await event(cached, "pusher:cache_miss");
  const came = event(cached, "price");
  await call("trigger", { channels: "cache-price", event_name: "price", data: 7 });
  assert.equal(await came, 7);
  assert.equal(await event(bob.subscribe("cache-price"), "price"), 7);
  ok("cache channels");
}

{
  const carl = await connect("carl");
  carl.signin();
  const came = event(carl.user, "hello");
  await event(carl, "pusher:signin_success");
  await call("send_to_user", { user_id: "carl", event_name: "hello", data: { to: "carl" } });
  assert.deepEqual(await came, { to: "carl" });
  const ended = event(carl.connection, "disconnected");
  await call("terminate_user_connections", { user_id: "carl" });
  await Promise.race([ended, event(carl.connection, "connecting"), event(carl.connection, "failed")]);
  carl.disconnect();
  ok("users");
}

{
  assert.equal(await call("bad_auth"), "refused");
  assert.equal(await call("bad_request"), "refused");
  const stranger = new Pusher("other-key", { cluster: "", wsHost: "127.0.0.1", wsPort: Number(port), forceTLS: false, enabledTransports: ["ws"] });
  clients.push(stranger);
  const error = await event(stranger.connection, "error");
  assert.equal((error.data ?? error.error.data).code, 4001);
  ok("errors");
}

{
  const channel = ann.channel("presence-room");
  const gone = event(ann.connection, "connecting");
  await kill(server);
  await gone;
  server = await hub();
  await event(channel, "pusher:subscription_succeeded");
  const came = event(ann.channel("news"), "again");
  await call("trigger", { channels: "news", event_name: "again", data: { n: 1 } });
  assert.deepEqual(await came, { n: 1 });
  ok("reconnection");
}

clients.forEach((client) => client.disconnect());
await kill(server);
await kill(application);
rmSync(folder, { recursive: true });
process.exit(0);
