// Bugs that the JavaScript client of a hub had, each reproduced in Node (client.mjs) and in Chromium (`cargo xtask browser`).
// It imports nothing, so that a page can have it as it is.

const check = (holds, what) => {
  if (!holds) {
    throw new Error(what);
  }
};
const same = (found, wanted, what) => {
  const [text, due] = [found, wanted].map((value) => JSON.stringify(value));
  check(text === due, `${what}: ${text} instead of ${due}`);
};
const until = async (what, holds) => {
  for (const end = Date.now() + 60_000; !holds(); ) {
    check(Date.now() < end, `timed out: ${what}`);
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
};

// A class of sockets, whose hub says what a bug needs, or nothing. They open when `opens` says so.
const scripted = (opens = true) => {
  const sockets = [];
  class Scripted {
    sent = [];
    constructor() {
      sockets.push(this);
      if (opens) {
        setTimeout(() => this.onopen?.());
      }
    }
    send(text) {
      const message = JSON.parse(text);
      // The hub of this socket has the first version of the protocol.
      if (message.type !== "hello") {
        this.sent.push(message);
      }
    }
    // As with a network that is gone: the end does not come.
    close() {}
    say(value) {
      this.onmessage({ data: typeof value === "string" ? value : JSON.stringify(value) });
    }
  }
  return { Scripted, sockets };
};

const all = {
  async "after 0, and the epoch of what was published"({ HubClient, WebSocket, url }) {
    const hub = new HubClient(url, { WebSocket });
    const topic = `log:${Math.random()}`;
    const { offset, epoch } = await hub.publish(topic, 1);
    const got = [];
    let subscription;
    await new Promise((onSubscribed, onError) => {
      subscription = hub.subscribe(topic, ({ data }) => got.push(data), { after: 0, onSubscribed, onError });
    });
    await until("what is kept arrives", () => got.length === 1);
    same([got, offset > 0], [[1], true], "0 begins with the first message that is kept");
    check(epoch && epoch === subscription.epoch, "an offset comes with its epoch");
    hub.close();
  },
  async "what is kept after another epoch"({ HubClient, WebSocket, url }) {
    const hub = new HubClient(url, { WebSocket });
    const topic = `log:${Math.random()}`;
    for (const n of [1, 2, 3, 4, 5]) {
      await hub.publish(topic, n);
    }
    const got = [];
    const onLate = () => got.push("late");
    const options = { after: 5, epoch: "of an earlier life", onLate };
    const subscription = hub.subscribe(topic, ({ data }) => got.push(data), options);
    await until("all that is kept arrives", () => got.length === 6);
    same(got, ["late", 1, 2, 3, 4, 5], "an offset of another epoch says nothing about these");
    same(subscription.epoch, (await hub.publish(topic, 6)).epoch, "the subscription goes on in this epoch");
    await until("so do messages", () => got.at(-1) === 6);
    hub.close();
  },
  async "the reason for an unknown type"({ WebSocket, url }) {
    const socket = new WebSocket(url);
    const answers = [];
    socket.onmessage = ({ data }) => answers.push(JSON.parse(data));
    await new Promise((resolve) => (socket.onopen = resolve));
    socket.send('{"type":"dance"}');
    await until("the hub answers", () => answers.length > 0);
    const [{ type, reason }] = answers;
    check(type === "error" && reason.includes("write subscribe, unsubscribe, publish"), `${type}: ${reason}`);
    socket.close();
  },
  async "values are those of the call, also while the hub is away"({ HubClient, url }) {
    const { Scripted, sockets } = scripted(false);
    const hub = new HubClient(url, { WebSocket: Scripted });
    const value = { n: 1 };
    const cycle = {};
    cycle.itself = cycle;
    const published = hub.publish("log:a", value);
    value.n = 2;
    for (const bad of [cycle, 1n, undefined, () => {}]) {
      const error = await hub.publish("log:a", bad).catch((error) => error);
      check(error instanceof TypeError, `${error}`);
    }
    const later = hub.publish("log:a", null);
    same(hub.isOpen, false, "the hub is away");
    sockets[0].onopen();
    await until("what waited is sent", () => sockets[0].sent.length === 2);
    same(sockets[0].sent.map(({ data }) => data), [{ n: 1 }, null], "a value that cannot be sent stops no other");
    sockets[0].sent.forEach(({ id }, at) => sockets[0].say({ type: "published", id, offset: at + 1 }));
    same([(await published).offset, (await later).offset, hub.isOpen], [1, 2, true], "both are published");
    hub.close();
  },
  async "odd messages, and listeners that throw"({ HubClient, url }) {
    const { Scripted, sockets } = scripted();
    const called = [];
    const failed = [];
    const throwing = (name) => (...values) => {
      called.push(name);
      throw new Error(`${name} ${values.length}`);
    };
    const { error } = console;
    console.error = (...words) => failed.push(words);
    try {
      const [onState, onDirect] = ["state", "direct"].map(throwing);
      const hub = new HubClient(url, { WebSocket: Scripted, onState, onDirect });
      await until("it connects", () => hub.isOpen);
      const [onMembers, onSubscribed, onLate, onError] = ["members", "subscribed", "late", "error"].map(throwing);
      hub.subscribe("t", throwing("message"), { onMembers, onSubscribed, onLate, onError });
      for (const odd of ["null", "7", "[]", "no JSON", "{}", '{"type":"members","topic":"other"}']) {
        sockets[0].say(odd);
      }
      sockets[0].say({ type: "subscribed", topic: "t", offset: 0, epoch: "e" });
      sockets[0].say({ type: "late", topic: "t", offset: 0, epoch: "f" });
      sockets[0].say({ type: "members", topic: "t", members: [["1", "ann"]] });
      sockets[0].say({ type: "join", topic: "t", member: "2", name: "bob" });
      sockets[0].say({ type: "direct", data: 7 });
      sockets[0].say({ type: "message", topic: "t", data: 1 });
      sockets[0].say({ type: "message", topic: "t", data: 2 });
      sockets[0].say({ type: "error", topic: "t", reason: "no" });
      sockets[0].say({ type: "unsubscribed", topic: "t", reason: "revoked" });
      const due = ["state", "subscribed", "late", "members", "members", "direct", "message", "message", "error", "error"];
      same(called, due, "no exception of a listener stops the client");
      check(failed.length === due.length && failed.every(([what]) => what.includes("listener")), JSON.stringify(failed));
      const published = hub.publish("log:a", 1);
      sockets[0].say({ type: "published", id: sockets[0].sent.at(-1).id, offset: 5 });
      same((await published).offset, 5, "the client goes on");
      hub.close();
    } finally {
      console.error = error;
    }
  },
  async "a connection that is half open"({ HubClient, url }) {
    const { Scripted, sockets } = scripted();
    const hub = new HubClient(url, { WebSocket: Scripted, pingAfter: 100, pongWithin: 100 });
    await until("a silent hub is asked", () => sockets[0].sent.some(({ type }) => type === "ping"));
    await until("it is given up", () => sockets.length >= 2);
    await until("it connects again", () => hub.isOpen);
    hub.close();
  },
  async "a publish without an answer"({ HubClient, HubError, url }) {
    const { Scripted } = scripted();
    const hub = new HubClient(url, { WebSocket: Scripted });
    await until("it connects", () => hub.isOpen);
    const late = await hub.publish("log:d", 1, { timeout: 50 }).catch((error) => error);
    check(late instanceof HubError, `${late}`);
    same([late.code, late.message], ["timeout", "the hub has not answered in 50 ms"], "it has a time limit");
    hub.close();
  },
};

// Runs all of them with a client and a hub; returns their names.
export async function bugs(site) {
  for (const [name, run] of Object.entries(all)) {
    await run(site).catch((error) => {
      throw new Error(`${name}: ${error.message}`);
    });
  }
  return Object.keys(all);
}
