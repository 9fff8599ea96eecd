// A program against the types of the JavaScript client. `tsc --strict` compiles it and nothing runs it. A line after
// `@ts-expect-error` has to be an error, so types that allow too much fail as well.
import { HubClient, HubError } from "../../bindings/js/tautline-hub.js";
import type { HubMessage, HubOptions, SubscribeOptions, Subscription } from "../../bindings/js/tautline-hub.js";

interface Order {
  price: number;
}

const options: HubOptions = {
  WebSocket,
  token: async () => "a.b.c",
  onState: (state, closed) => {
    const known: "open" | "closed" | "ended" = state;
    const code: number | undefined = closed?.code;
    console.log(known, code, closed?.reason.length);
  },
  onDirect: (data) => {
    // @ts-expect-error: the application may send anything.
    console.log(data.length);
  },
  pingAfter: 20_000,
  pongWithin: 10_000,
  maxUnanswered: 128,
};
const hub = new HubClient(new URL("wss://hub.example/"), options);
const plain = new HubClient("wss://hub.example/", { token: "a.b.c" });
new HubClient("wss://hub.example/");

const how: SubscribeOptions = {
  after: 7,
  epoch: "e",
  as: "ann",
  onSubscribed: ({ topic, offset }) => console.log(topic.length, offset?.toFixed()),
  onLate: ({ offset }) => console.log(offset.toFixed()),
  onMembers: (members) => members.forEach((name, member) => console.log(name.length, member.length)),
  onCount: (number) => console.log(number.toFixed()),
  onError: (error) => console.log(error.code, error.message),
};
const orders: Subscription = hub.subscribe<Order>("log:orders", ({ topic, data, offset, key }) => {
  console.log(topic.length, data.price.toFixed(), offset?.toFixed(), key?.length);
}, how);
const listener = (message: HubMessage): void => console.log(message.data);
const room = plain.subscribe("room", listener);
const [after, epoch]: [number | undefined, string | undefined] = [orders.after, orders.epoch];
const names: string[] = [...room.members.values()];
// @ts-expect-error: a place is the hub's to move.
orders.after = 7;
room.unsubscribe();

const isOpen: boolean = hub.isOpen;
const { offset, reach } = await hub.publish("log:orders", { price: 7 }, { key: "k", id: "order-7", timeout: 5_000 });
const known: "all" | "host" | undefined = reach;
console.log(after, epoch, names, isOpen, offset?.toFixed(), known);
try {
  await hub.publish("log:orders", null);
} catch (error) {
  if (error instanceof HubError) {
    const code: "refused" | "busy" | "timeout" | "ended" = error.code;
    console.log(code, error.message);
  }
}
hub.close();

// @ts-expect-error: a topic has a name.
hub.subscribe(7, listener);
// @ts-expect-error: a subscription without a listener.
hub.subscribe("room");
// @ts-expect-error: no such option.
hub.subscribe("room", listener, { onPresence: () => {} });
// @ts-expect-error: data of another type.
hub.subscribe<Order>("log:orders", ({ data }) => console.log(data.amount));
// @ts-expect-error: a number of milliseconds.
new HubClient("wss://hub.example/", { pingAfter: "20s" });
// @ts-expect-error: a key is a text.
void hub.publish("latest:prices", 7, { key: 7 });
// @ts-expect-error: a code that is none.
new HubError("lost", "no such code");
