// A client of a hub of Tautline (docs/hub.md): topics with history, latest values and presence. One file without dependencies,
// for browsers and for Node. Before Node 22, pass the `WebSocket` of the package `ws`.
//
//   const hub = new HubClient("wss://example.com/");
//   hub.subscribe("log:orders", (message) => console.log(message.offset, message.data));
//   await hub.publish("log:orders", { price: 7 });

const FIRST_WAIT = 100;
const LONGEST_WAIT = 5_000;
const LONGEST_HINT = 30_000;
const RETRY = 500;
const MOST_UNANSWERED = 128;

const jittered = (longest) => longest * (0.5 + Math.random() / 2);

/** The milliseconds after which a server that restarts wants this client back; 0 if it does not say. */
const retryAfter = ({ code, reason }) => {
  const hint = code === 1012 || code === 1013 ? /^retry-after=(\d{1,7}(?:\.\d{1,3})?)s(?: |$)/.exec(reason) : null;
  return hint ? Number(hint[1]) * 1000 : 0;
};

/** One connection to a hub. It is opened again after each end, and goes on from the offsets that it has. */
export class HubClient {
  #url;
  #WebSocket;
  #onState;
  #socket = null;
  #open = false;
  #closed = false;
  #failures = 0;
  #timer = null;
  #retryTimer = null;
  #topics = new Map();
  #unanswered = new Map();
  #retries = new Set();
  #name = [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  #nextId = 0;

  constructor(url, { WebSocket = globalThis.WebSocket, onState = () => {} } = {}) {
    if (!WebSocket) {
      throw new TypeError("this platform has no WebSocket: pass one as an option");
    }
    this.#url = url;
    this.#WebSocket = WebSocket;
    this.#onState = onState;
    this.#connect();
  }

  /** Whether the connection is open now. */
  get isOpen() {
    return this.#open;
  }

  /** Subscribes to a topic, now and on each later connection. A second call for a topic replaces the first. */
  subscribe(topic, onMessage, options = {}) {
    const { after, epoch, as, onSubscribed, onLate, onMembers, onError } = options;
    const state = { topic, onMessage, after, epoch, as, onSubscribed, onLate, onMembers, onError, members: new Map() };
    this.#topics.set(topic, state);
    this.#sendSubscription(state);
    const client = this;
    return {
      topic,
      get after() {
        return state.after;
      },
      get epoch() {
        return state.epoch;
      },
      get members() {
        return new Map(state.members);
      },
      unsubscribe() {
        if (client.#topics.get(topic) === state) {
          client.#topics.delete(topic);
          client.#send({ type: "unsubscribe", topic });
        }
      },
    };
  }

  /**
   * Publishes a value, and repeats it until the hub answers. In a topic with history it is stored once. The promise gives its
   * offset, or in a plain topic whether all hosts got it.
   */
  publish(topic, data, { key } = {}) {
    if (this.#closed) {
      return Promise.reject(new Error("the client is closed"));
    }
    if (this.#unanswered.size >= MOST_UNANSWERED) {
      return Promise.reject(new Error("too many messages wait for an answer"));
    }
    if (data === undefined) {
      return Promise.reject(new TypeError("a message needs a value that JSON has"));
    }
    const id = `${this.#name}-${this.#nextId++}`;
    const request = { type: "publish", topic, data, key, id };
    return new Promise((resolve, reject) => {
      this.#unanswered.set(id, { request, resolve, reject });
      // Behind messages that have to be repeated, so that the order holds.
      if (this.#retries.size === 0) {
        this.#send(request);
      }
    });
  }

  /** Closes the connection for ever. Messages without an answer are rejected. */
  close() {
    this.#closed = true;
    clearTimeout(this.#timer);
    clearTimeout(this.#retryTimer);
    this.#socket?.close(1000);
    for (const { reject } of this.#unanswered.values()) {
      reject(new Error("the client was closed"));
    }
    this.#unanswered.clear();
  }

  #connect() {
    const socket = new this.#WebSocket(this.#url);
    this.#socket = socket;
    socket.onopen = () => {
      this.#open = true;
      this.#failures = 0;
      this.#retries.clear();
      this.#topics.forEach((state) => this.#sendSubscription(state));
      this.#unanswered.forEach(({ request }) => this.#send(request));
      this.#onState("open");
    };
    socket.onmessage = ({ data }) => this.#receive(data);
    socket.onerror = () => {};
    socket.onclose = (closed) => {
      const wasOpen = this.#open;
      this.#open = false;
      if (wasOpen) {
        this.#onState("closed");
      }
      if (!this.#closed) {
        const own = jittered(Math.min(FIRST_WAIT * 2 ** this.#failures++, LONGEST_WAIT));
        const hint = retryAfter(closed);
        const told = hint > LONGEST_HINT ? jittered(LONGEST_HINT) : hint;
        this.#timer = setTimeout(() => this.#connect(), Math.max(own, told));
      }
    };
  }

  #send(request) {
    if (this.#open) {
      this.#socket.send(JSON.stringify(request));
    }
  }

  #sendSubscription({ topic, after, epoch, as, onMembers }) {
    this.#send({ type: "subscribe", topic, after, epoch, as, presence: onMembers ? true : undefined });
  }

  #receive(text) {
    let answer;
    try {
      answer = JSON.parse(text);
    } catch {
      return;
    }
    const state = this.#topics.get(answer.topic);
    switch (answer.type) {
      case "message":
        if (!state || (answer.offset !== undefined && state.after !== undefined && answer.offset <= state.after)) {
          return;
        }
        state.after = answer.offset;
        state.onMessage({ topic: answer.topic, data: answer.data, offset: answer.offset, key: answer.key });
        break;
      case "subscribed":
      case "late": {
        if (!state) {
          return;
        }
        const isLate = answer.type === "late";
        // An offset of another epoch means nothing. A conflating topic has none here: it begins with the latest of each key.
        if (isLate || state.after === undefined || (state.epoch !== undefined && state.epoch !== answer.epoch)) {
          state.after = answer.offset;
        }
        state.epoch = answer.epoch;
        (isLate ? state.onLate : state.onSubscribed)?.({ topic: answer.topic, offset: answer.offset });
        break;
      }
      case "resync":
        if (state) {
          this.#sendSubscription(state);
        }
        break;
      case "members":
        this.#setMembers(state, (members) => {
          members.clear();
          answer.members.forEach(([id, name]) => members.set(id, name));
        });
        break;
      case "join":
        this.#setMembers(state, (members) => members.set(answer.member, answer.name));
        break;
      case "leave":
        this.#setMembers(state, (members) => members.delete(answer.member));
        break;
      case "published":
        this.#answered(answer.id, ({ resolve }) => resolve({ offset: answer.offset, reach: answer.reach }));
        break;
      case "error":
        if (answer.retry && answer.id) {
          this.#retries.add(answer.id);
          this.#retryTimer ??= setTimeout(() => this.#retry(), RETRY);
        } else if (answer.id) {
          this.#answered(answer.id, ({ reject }) => reject(new Error(answer.reason)));
        } else {
          state?.onError?.(new Error(answer.reason));
        }
        break;
    }
  }

  #setMembers(state, change) {
    if (state) {
      change(state.members);
      state.onMembers?.(new Map(state.members));
    }
  }

  #answered(id, act) {
    const waiting = this.#unanswered.get(id);
    this.#unanswered.delete(id);
    if (waiting) {
      act(waiting);
    }
  }

  #retry() {
    this.#retryTimer = null;
    this.#retries.clear();
    this.#unanswered.forEach(({ request }) => this.#send(request));
  }
}
