/** A message of a topic. */
export interface HubMessage<T = unknown> {
  topic: string;
  data: T;
  /** Its place in the topic's history; plain topics have none. */
  offset?: number;
  key?: string;
}

export interface SubscribeOptions {
  /** The last offset that the client has, from an earlier life. Without it, a topic with history begins with now. */
  after?: number;
  /** The epoch of `after`. Without it, an offset counts as one of the present epoch, or as late beyond its last message. */
  epoch?: string;
  /** The name as which the client is a member of the topic. */
  as?: string;
  /** The subscription holds: at first, and after each reconnection. */
  onSubscribed?: (at: { topic: string; offset?: number }) => void;
  /** Messages up to `offset` are not kept any more: the client missed some. All that are kept follow. */
  onLate?: (at: { topic: string; offset: number }) => void;
  /** All members, by identifier, with their names: at first, and after each change. */
  onMembers?: (members: Map<string, string>) => void;
  /** The number of members: at first, and after changes, about once in a second. */
  onCount?: (number: number) => void;
  /** The hub refused the subscription, or ended it since the right to it is gone. */
  onError?: (error: HubError) => void;
}

export interface Subscription {
  readonly topic: string;
  /** The last offset that the client has. Keep it with `epoch` to go on after a restart. */
  readonly after: number | undefined;
  readonly epoch: string | undefined;
  readonly members: Map<string, string>;
  unsubscribe(): void;
}

export interface HubOptions {
  /** The class for connections, where the platform has none: that of the package `ws`. */
  WebSocket?: unknown;
  /** "closed" comes before another attempt, and "ended" when no attempt follows: both with the code and reason of the end. */
  onState?: (state: "open" | "closed" | "ended", closed?: { code: number; reason: string }) => void;
  /** A message of the application to this user. */
  onDirect?: (data: unknown) => void;
  /** Milliseconds of silence after which the hub is asked for a message; 20,000 by default. */
  pingAfter?: number;
  /**
   * The token, or a function that gets a fresh one: for each connection, and before the last one expires. With a text the client
   * ends when the hub does not accept it any more (codes 4001 and 4004).
   */
  token?: string | (() => string | Promise<string>);
  /** Milliseconds in which it then has to come, before the client connects again; 10,000 by default. */
  pongWithin?: number;
  /** Messages that may wait for the hub's answer, also without a connection; 128 by default. `publish` rejects further ones. */
  maxUnanswered?: number;
}

/** The hub or its client did not do what it was asked for. */
export class HubError extends Error {
  constructor(code: HubError["code"], reason: string);
  /** The hub says no, too many messages wait, no answer came in time, or the client has ended. */
  readonly code: "refused" | "busy" | "timeout" | "ended";
}

/** One connection to a hub. It is opened again after each end, and goes on from the offsets that it has. */
export class HubClient {
  constructor(url: string | URL, options?: HubOptions);
  readonly isOpen: boolean;
  subscribe<T = unknown>(
    topic: string,
    onMessage: (message: HubMessage<T>) => void,
    options?: SubscribeOptions,
  ): Subscription;
  /**
   * Rejects with a `HubError`, also after `timeout` milliseconds without an answer, 60,000 by default: the hub may have the message
   * all the same. `id` is an identifier of your own, for a message that an earlier life of the page may have published: in a topic
   * with history it is stored once.
   */
  publish(
    topic: string,
    data: unknown,
    options?: { key?: string; id?: string; timeout?: number },
  ): Promise<{ offset?: number; epoch?: string; reach?: "all" | "host" }>;
  close(): void;
}
