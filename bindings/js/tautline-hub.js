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
/** Milliseconds without a message of the hub after which it is asked for one, those until it has to come, and those for an answer. */
const PING_AFTER = 20_000;
const PONG_WITHIN = 10_000;
const PUBLISH_WITHIN = 60_000;
/** Messages of a frame, and characters of them, beside one that is longer. */
const MOST_JOINED = 64;
const MOST_JOINED_LENGTH = 64 << 10;
/** The begin of the reason with which hubs that know one message in a frame alone refuse `hello`. */
const OLD_HUB = "this type of message is not known";

/** Calls a listener. Its exception is its own, and must not end what the client does. */
const call = (listener, ...values) => {
  try {
    listener?.(...values);
  } catch (error) {
    console.error("a listener of HubClient failed:", error);
  }
};

const jittered = (longest) => longest * (0.5 + Math.random() / 2);

/** The milliseconds after which a server that restarts wants this client back; 0 if it does not say. */
const retryAfter = ({ code, reason }) => {
  const hint = code === 1012 || code === 1013 ? /^retry-after=(\d{1,7}(?:\.\d{1,3})?)s(?: |$)/.exec(reason) : null;
  return hint ? Number(hint[1]) * 1000 : 0;
};

/**
 * The hub or its client did not do what it was asked for. `code` is "refused" if the hub says no, "busy" if too many messages wait
 * for an answer, "timeout" if none came in time, and "ended" if the client has ended.
 */
export class HubError extends Error {
  constructor(code, reason) {
    super(reason);
    this.name = "HubError";
    this.code = code;
  }
}

/** One connection to a hub. It is opened again after each end, and goes on from the offsets that it has. */
export class HubClient {
  #url;
  #WebSocket;
  #onState;
  #onDirect;
  #socket = null;
  #open = false;
  /** The reason why the client has ended for ever. */
  #ended = null;
  #failures = 0;
  #timer = null;
  #retryTimer = null;
  #pingAfter;
  #pongWithin;
  #maxUnanswered;
  #token;
  /** Whether the token of this connection was sent. */
  #ready = false;
  /** Whether the hub takes several messages in a frame, and those that wait for the end of this turn. */
  #takesMany = false;
  #outbox = [];
  #liveness = null;
  #topics = new Map();
  #unanswered = new Map();
  #retries = new Set();
  #name = [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  #nextId = 0;

  constructor(
    url,
    {
      WebSocket = globalThis.WebSocket,
      onState,
      onDirect,
      pingAfter = PING_AFTER,
      pongWithin = PONG_WITHIN,
      maxUnanswered = MOST_UNANSWERED,
      token,
    } = {},
  ) {
    if (!WebSocket) {
      throw new TypeError("this platform has no WebSocket: pass one as an option");
    }
    this.#url = url;
    this.#WebSocket = WebSocket;
    this.#onState = onState;
    this.#onDirect = onDirect;
    this.#maxUnanswered = maxUnanswered;
    this.#pingAfter = pingAfter;
    this.#pongWithin = pongWithin;
    this.#token = token;
    this.#connect();
  }

  /** Whether the connection is open now. */
  get isOpen() {
    return this.#open;
  }

  /** Subscribes to a topic, now and on each later connection. A second call for a topic replaces the first. */
  subscribe(topic, onMessage, options = {}) {
    const { after, epoch, as, onSubscribed, onLate, onMembers, onCount, onError } = options;
    const listeners = { onMessage, onSubscribed, onLate, onMembers, onCount, onError };
    const state = { topic, after, epoch, as, ...listeners, members: new Map() };
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
   * offset and the offset's epoch, or in a plain topic whether all hosts got it. Without an answer in time it is rejected: the hub
   * may have the message all the same. `id` is an identifier of your own, for a message that an earlier life of the page may have
   * published.
   */
  publish(topic, data, { key, id = `${this.#name}-${this.#nextId++}`, timeout = PUBLISH_WITHIN } = {}) {
    if (this.#ended) {
      return Promise.reject(new HubError("ended", this.#ended));
    }
    if (this.#unanswered.size >= this.#maxUnanswered) {
      const reason = `${this.#maxUnanswered} messages wait for an answer: publish this one later`;
      return Promise.reject(new HubError("busy", reason));
    }
    if (this.#unanswered.has(id)) {
      return Promise.reject(new HubError("busy", `the message ${id} waits for its answer`));
    }
    let request;
    try {
      if (JSON.stringify(data) === undefined) {
        throw new TypeError("a message needs a value that JSON has");
      }
      // Now, so that later changes of the value do not count, and a value that JSON does not have is rejected.
      request = JSON.stringify({ type: "publish", topic, data, key, id });
    } catch (error) {
      return Promise.reject(error);
    }
    return new Promise((resolve, reject) => {
      const message = { request, resolve, reject, timer: null, isSent: false, isGivenUp: false };
      const late = () => {
        reject(new HubError("timeout", `the hub has not answered in ${timeout} ms`));
        message.isGivenUp = true;
        // The hub may wait for one that it has had: it is repeated until its answer, or the connection's end.
        if (!message.isSent) {
          this.#unanswered.delete(id);
        }
      };
      message.timer = Number.isFinite(timeout) ? setTimeout(late, timeout) : null;
      this.#unanswered.set(id, message);
      // Behind messages that have to be repeated, so that the order holds.
      if (this.#retries.size === 0) {
        this.#sendMessage(message);
      }
    });
  }

  /** Closes the connection for ever. Messages without an answer are rejected. */
  close() {
    this.#flush();
    this.#end("the client was closed");
    this.#socket?.close(1000);
  }

  #end(reason, closed) {
    if (this.#ended) {
      return;
    }
    this.#ended = reason;
    this.#open = false;
    clearTimeout(this.#timer);
    clearTimeout(this.#retryTimer);
    clearTimeout(this.#liveness);
    for (const { reject, timer } of this.#unanswered.values()) {
      clearTimeout(timer);
      reject(new HubError("ended", reason));
    }
    this.#unanswered.clear();
    call(this.#onState, "ended", closed);
  }

  #connect() {
    const socket = new this.#WebSocket(this.#url);
    this.#socket = socket;
    // A handshake takes no longer than a silent connection does.
    clearTimeout(this.#liveness);
    this.#liveness = setTimeout(() => this.#giveUp(), this.#pingAfter + this.#pongWithin);
    socket.onopen = () => {
      this.#open = true;
      this.#retries.clear();
      this.#watch();
      this.#ready = false;
      this.#takesMany = false;
      this.#outbox = [];
      this.#sendToken(socket, () => {
        this.#ready = true;
        this.#send({ type: "hello", version: 2 });
        this.#topics.forEach((state) => this.#sendSubscription(state));
        this.#unanswered.forEach((message) => this.#sendMessage(message));
        call(this.#onState, "open");
      });
    };
    socket.onmessage = ({ data }) => {
      // A hub that does not accept the token closes the connection without a message.
      this.#failures = 0;
      this.#watch();
      this.#receive(data);
    };
    socket.onerror = () => {};
    socket.onclose = (closed) => {
      const wasOpen = this.#open;
      this.#open = false;
      clearTimeout(this.#liveness);
      for (const [id, message] of this.#unanswered) {
        message.isSent = false;
        if (message.isGivenUp) {
          this.#unanswered.delete(id);
        }
      }
      const { code, reason } = closed;
      if (wasOpen) {
        call(this.#onState, "closed", { code, reason });
      }
      // A text that has expired or is not accepted stays so, and no token stays none.
      const isFinal = typeof this.#token === "string" ? code === 4001 || code === 4004 : !this.#token && code === 4003;
      if (isFinal) {
        this.#end(`the hub does not accept the token, and there is no other: ${code} ${reason}`, { code, reason });
      }
      if (!this.#ended) {
        const own = jittered(Math.min(FIRST_WAIT * 2 ** this.#failures++, LONGEST_WAIT));
        const hint = retryAfter(closed);
        const told = hint > LONGEST_HINT ? jittered(LONGEST_HINT) : hint;
        this.#timer = setTimeout(() => this.#connect(), Math.max(own, told));
      }
    };
  }

  /**
   * Waits for the next message. A hub that is silent is asked for one, and a connection on which it does not come is given up: a
   * socket whose network is gone can stay open for many minutes.
   */
  #watch() {
    clearTimeout(this.#liveness);
    if (this.#ended || !this.#open) {
      return;
    }
    this.#liveness = setTimeout(() => {
      this.#send({ type: "ping" });
      this.#liveness = setTimeout(() => this.#giveUp(), this.#pongWithin);
    }, this.#pingAfter);
  }

  /** Ends the connection now. The socket's own end may come minutes later, or not at all. */
  #giveUp() {
    const socket = this.#socket;
    const { onclose } = socket;
    socket.onopen = socket.onmessage = socket.onclose = null;
    socket.close();
    onclose({ code: 1006, reason: "" });
  }

  #send(request) {
    this.#sendText(JSON.stringify(request));
  }

  #sendText(text) {
    if (!this.#open || !this.#ready) {
      return;
    }
    if (!this.#takesMany) {
      this.#socket.send(text);
      return;
    }
    this.#outbox.push(text);
    if (this.#outbox.length === 1) {
      queueMicrotask(() => this.#flush());
    }
  }

  /** Sends the messages of this turn, several in a frame. */
  #flush() {
    const outbox = this.#open && this.#ready ? this.#outbox : [];
    this.#outbox = [];
    for (let at = 0; at < outbox.length; ) {
      const from = at;
      let length = outbox[at++].length;
      while (at < outbox.length && at - from < MOST_JOINED && (length += outbox[at].length) <= MOST_JOINED_LENGTH) {
        at++;
      }
      this.#socket.send(at - from === 1 ? outbox[from] : `[${outbox.slice(from, at).join(",")}]`);
    }
  }

  #sendMessage(message) {
    message.isSent = this.#open && this.#ready;
    this.#sendText(message.request);
  }

  /** Sends a fresh token, and then does the rest. A connection without one is given up, and the next has another try. */
  async #sendToken(socket, then) {
    if (this.#token) {
      try {
        const token = typeof this.#token === "function" ? await this.#token() : this.#token;
        if (this.#socket !== socket || !this.#open) {
          return;
        }
        socket.send(JSON.stringify({ type: "token", token }));
      } catch {
        if (this.#socket === socket && this.#open) {
          socket.close(4003);
        }
        return;
      }
    }
    then();
  }

  #sendSubscription({ topic, after, epoch, as, onMembers, onCount }) {
    const [presence, count] = [onMembers, onCount].map((listener) => (listener ? true : undefined));
    this.#send({ type: "subscribe", topic, after, epoch, as, presence, count });
  }

  #receive(text) {
    let answer;
    try {
      answer = JSON.parse(text);
    } catch {
      return;
    }
    (Array.isArray(answer) ? answer : [answer]).forEach((one) => this.#take(one));
  }

  #take(answer) {
    if (typeof answer !== "object" || answer === null) {
      return;
    }
    const state = this.#topics.get(answer.topic);
    switch (answer.type) {
      case "message":
        if (!state || (answer.offset !== undefined && state.after !== undefined && answer.offset <= state.after)) {
          return;
        }
        state.after = answer.offset;
        call(state.onMessage, { topic: answer.topic, data: answer.data, offset: answer.offset, key: answer.key });
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
        call(isLate ? state.onLate : state.onSubscribed, { topic: answer.topic, offset: answer.offset });
        break;
      }
      case "resync":
        if (state) {
          this.#sendSubscription(state);
        }
        break;
      case "members":
        this.#setMembers(state, (members) => {
          if (!answer.more) {
            members.clear();
          }
          (answer.members ?? []).forEach(([id, name]) => members.set(id, name));
        });
        break;
      case "join":
        this.#setMembers(state, (members) => members.set(answer.member, answer.name));
        break;
      case "leave":
        this.#setMembers(state, (members) => members.delete(answer.member));
        break;
      case "count":
        call(state?.onCount, answer.number);
        break;
      case "hello":
        this.#takesMany = answer.version === 2;
        break;
      case "published":
        this.#answered(answer.id, ({ resolve }) => resolve({ offset: answer.offset, epoch: answer.epoch, reach: answer.reach }));
        break;
      case "token":
        this.#sendToken(this.#socket, () => {});
        break;
      case "unsubscribed":
        // Without a reason the client has asked for it.
        if (state && answer.reason) {
          this.#topics.delete(answer.topic);
          call(state.onError, new HubError("refused", answer.reason));
        }
        break;
      case "direct":
        call(this.#onDirect, answer.data);
        break;
      case "error":
        if (answer.retry && answer.id) {
          if (this.#unanswered.has(answer.id)) {
            this.#retries.add(answer.id);
            this.#retryTimer ??= setTimeout(() => this.#retry(), RETRY);
          }
        } else if (answer.id) {
          this.#answered(answer.id, ({ reject }) => reject(new HubError("refused", answer.reason)));
        } else if (!String(answer.reason).startsWith(OLD_HUB)) {
          call(state?.onError, new HubError("refused", answer.reason));
        }
        break;
    }
  }

  #setMembers(state, change) {
    if (state) {
      change(state.members);
      call(state.onMembers, new Map(state.members));
    }
  }

  #answered(id, act) {
    const waiting = this.#unanswered.get(id);
    this.#unanswered.delete(id);
    clearTimeout(waiting?.timer);
    if (waiting) {
      act(waiting);
    }
  }

  #retry() {
    this.#retryTimer = null;
    this.#retries.clear();
    this.#unanswered.forEach((message) => this.#sendMessage(message));
  }
}
