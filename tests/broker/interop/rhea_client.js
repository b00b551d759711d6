// rhea, which knows AMQP and not Service Bus, does by hand what the SDKs do. One line of JSON: what each check saw.
// Arguments: host, port, the name and the key of a policy, the authority's certificate. Entities are there, "rhea-...".
"use strict";

const fs = require("fs");
const rhea = require("rhea");
const WebSocket = require("ws");

const { types, message: codec } = rhea;
const [host, port, username, password, certificate] = process.argv.slice(2);
const credentials = { username, password, reconnect: false };
const ca = [fs.readFileSync(certificate)];
const BATCH = 0x80013700;
const LONG = 0x81;
const UUID = 0x98;
const PATIENCE = 5; // seconds a check

function happens(emitter, name) {
  return new Promise((resolve) => emitter.once(name, resolve));
}

// A refused link is attached first, without the far terminus, and detached next, with the reason (2.6.3).
function attached(link, name, refusal) {
  const terminus = () => link.remote.attach[link.is_receiver() ? "source" : "target"] || {};
  return new Promise((resolve, reject) => {
    link.once(name, () => (terminus().address ? resolve(link) : null));
    link.once(refusal, () => reject(new Error(link.error.condition)));
  });
}

async function connected(options) {
  const connection = rhea.create_container().connect({ ...credentials, ...options });
  await happens(connection, "connection_open");
  return connection;
}

async function opened(connection, address) {
  const sender = connection.open_sender(address);
  const sendable = happens(sender, "sendable");
  await attached(sender, "sender_open", "sender_error");
  await sendable;
  return sender;
}

async function send(connection, address, message, format) {
  const sender = await opened(connection, address);
  sender.send(message, undefined, format);
  await happens(sender, "accepted");
  sender.close();
}

async function listening(connection, address, how = {}) {
  const { filter, ...rest } = how;
  const source = { address, filter };
  const receiver = connection.open_receiver({ source, credit_window: 0, autoaccept: false, ...rest });
  return attached(receiver, "receiver_open", "receiver_error");
}

async function next(receiver) {
  const coming = happens(receiver, "message");
  receiver.add_credit(1);
  const { message, delivery } = await coming;
  return { message, delivery };
}

class Management {
  static async of(connection, entity) {
    const address = `${entity}/$management`;
    const replies = await listening(connection, address, { target: { address: "replies" } });
    return new Management(await opened(connection, address), replies);
  }

  constructor(requests, replies) {
    this.requests = requests;
    this.replies = replies;
  }

  async ask(operation, body) {
    const application_properties = { operation: `com.microsoft:${operation}` };
    this.requests.send({ application_properties, body, reply_to: "replies", message_id: rhea.generate_uuid() });
    const { message } = await next(this.replies);
    const status = message.application_properties.statusCode;
    if (status !== 200) throw new Error(message.application_properties.errorCondition || status);
    return message.body;
  }
}

const longs = (...numbers) => types.wrap_array(numbers, LONG);
const uuids = (...tokens) => types.wrap_array(tokens, UUID);

// The tag of a delivery is its lock token, a GUID in the byte order of .NET.
function tokenOf({ tag }) {
  const order = [3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15];
  return Buffer.from(order.map((at) => tag[at]));
}

const checks = {
  async settle(connection) {
    await send(connection, "rhea-settle", { message_id: "one", body: "hello", application_properties: { n: 7 } });
    const receiver = await listening(connection, "rhea-settle");
    const first = await next(receiver);
    first.delivery.modified({ delivery_failed: true, undeliverable_here: false });
    const again = await next(receiver);
    again.delivery.reject({ condition: "com.microsoft:dead-letter" });
    const graves = await listening(connection, "rhea-settle/$DeadLetterQueue");
    const grave = await next(graves);
    grave.delivery.accept();
    const { message } = first;
    const said = [message.body, message.message_id, message.application_properties.n];
    return [...said, message.message_annotations["x-opt-sequence-number"], again.message.delivery_count, grave.message.body];
  },

  async batch(connection) {
    const messages = ["a", "b", "c"].map((body) => codec.encode({ body }));
    const batch = codec.encode({ body: codec.data_sections(messages) });
    await send(connection, "rhea-batch", batch, BATCH);
    const receiver = await listening(connection, "rhea-batch", { snd_settle_mode: 1 });
    const bodies = [];
    while (bodies.length < 3) bodies.push((await next(receiver)).message.body);
    return bodies;
  },

  async defer(connection) {
    await send(connection, "rhea-defer", { body: "a" });
    const receiver = await listening(connection, "rhea-defer");
    const { message, delivery } = await next(receiver);
    delivery.modified({ delivery_failed: false, undeliverable_here: true });
    const management = await Management.of(connection, "rhea-defer");
    const number = message.message_annotations["x-opt-sequence-number"];
    const found = await management.ask("receive-by-sequence-number", { "sequence-numbers": longs(number) });
    const [{ message: aside, "lock-token": token }] = found.messages;
    await management.ask("update-disposition", { "disposition-status": "completed", "lock-tokens": uuids(token) });
    return codec.decode(aside).body;
  },

  async renew(connection) {
    await send(connection, "rhea-renew", { body: "a" });
    const receiver = await listening(connection, "rhea-renew");
    const { message, delivery } = await next(receiver);
    const management = await Management.of(connection, "rhea-renew");
    const { expirations } = await management.ask("renew-lock", { "lock-tokens": uuids(tokenOf(delivery)) });
    delivery.accept();
    return expirations[0] >= message.message_annotations["x-opt-locked-until"];
  },

  async schedule(connection) {
    const management = await Management.of(connection, "rhea-schedule");
    const annotations = { "x-opt-scheduled-enqueue-time": types.wrap_timestamp(Date.now() + 365 * 24 * 3600e3) };
    const numbers = [];
    for (const body of ["a", "b"]) {
      const message = codec.encode({ message_id: body, body, message_annotations: annotations });
      const found = await management.ask("schedule-message", { messages: [{ "message-id": body, message }] });
      numbers.push(found["sequence-numbers"][0]);
    }
    await management.ask("cancel-scheduled-message", { "sequence-numbers": longs(numbers[0]) });
    const asked = { "from-sequence-number": types.wrap_long(1), "message-count": types.wrap_int(9) };
    const { messages } = await management.ask("peek-message", asked);
    return [numbers, messages.map((entry) => codec.decode(entry.message).body)];
  },

  async sessions(connection) {
    for (const [group_id, body] of [["a", "a1"], ["b", "b1"], ["a", "a2"]])
      await send(connection, "rhea-sessions", { group_id, body });
    const asks = (name) => ({ filter: { "com.microsoft:session-filter": name } });
    const named = await listening(connection, "rhea-sessions", asks("a"));
    const saw = [];
    for (let i = 0; i < 2; i++) {
      const { message, delivery } = await next(named);
      saw.push(message.body);
      delivery.accept();
    }
    const following = await listening(connection, "rhea-sessions", asks(null));
    saw.push(following.remote.attach.source.filter["com.microsoft:session-filter"]);
    const management = await Management.of(connection, "rhea-sessions");
    const session = { "session-id": "a" };
    await management.ask("set-session-state", { ...session, "session-state": Buffer.from("noted") });
    saw.push(String((await management.ask("get-session-state", session))["session-state"]));
    saw.push((await management.ask("renew-session-lock", session)).expiration > Date.now());
    const refused = await listening(connection, "rhea-sessions", asks("b")).catch((error) => error.message);
    return [...saw, refused];
  },

  async claims(connection) {
    const twice = [];
    for (let turn = 0; turn < 2; turn += 1) {
      const link = connection.open_sender({ target: { address: "$cbs" }, name: `cbs-${turn}` });
      twice.push(await attached(link, "sender_open", "sender_error").then(() => "open", (error) => error.message));
    }
    return twice;
  },

  async rules(connection) {
    const subscription = "rhea-events/Subscriptions/dear";
    const management = await Management.of(connection, subscription);
    await management.ask("remove-rule", { "rule-name": "$Default" });
    const described = { "sql-filter": { expression: "price > 10" } };
    await management.ask("add-rule", { "rule-name": "dear", "rule-description": described });
    const { rules } = await management.ask("enumerate-rules", {});
    for (const price of [10, 11])
      await send(connection, "rhea-events", { body: `at ${price}`, application_properties: { price } });
    const { message, delivery } = await next(await listening(connection, subscription));
    delivery.accept();
    return [rules.length, message.body];
  },
};

async function toAndFro(connection, queue) {
  await send(connection, queue, { body: "hello" });
  const { message, delivery } = await next(await listening(connection, queue));
  delivery.accept();
  return message.body;
}

// What hangs is seen by its name.
function within(seconds, promise) {
  const late = new Promise((_, reject) => setTimeout(() => reject(new Error("it took too long")), seconds * 1000));
  return Promise.race([promise, late]);
}

async function main() {
  const seen = {};
  const look = async (name, run) => {
    seen[name] = await within(PATIENCE, run()).catch((error) => `FAILED ${error.message}`);
  };
  const plain = await connected({ host, port });
  for (const [name, check] of Object.entries(checks)) await look(name, () => check(plain));
  await look("over TLS", async () =>
    toAndFro(await connected({ host, port, transport: "tls", ca, servername: host }), "rhea-tls"),
  );
  await look("over WebSocket", async () => {
    const dial = rhea.create_container().websocket_connect(WebSocket);
    const url = `wss://${host}:${port}/$servicebus/websocket`;
    return toAndFro(await connected({ connection_details: dial(url, ["amqp"], { ca }) }), "rhea-websocket");
  });
  fs.writeSync(1, JSON.stringify(seen) + "\n");
  process.exit(0);
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
