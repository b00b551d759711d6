// rhea as a peer: `node rhea_peer.js client PORT` or `node rhea_peer.js server`.
// Prints one JSON line for each thing it learns; a server prints its port first.
const rhea = require("rhea");
const { types } = rhea;
const say = (what) => process.stdout.write(JSON.stringify(what) + "\n");
const [mode, port] = process.argv.slice(2);
const container = rhea.create_container({ id: "rhea" });

const typed = {
  null: null, boolean: true, ubyte: types.wrap_ubyte(200), ushort: types.wrap_ushort(60000),
  uint: types.wrap_uint(4000000000), ulong: types.wrap_ulong(Buffer.from("8000000000000001", "hex")),
  byte: types.wrap_byte(-100), short: types.wrap_short(-30000), int: types.wrap_int(-2000000000),
  long: types.wrap_long(-1234567890123), float: types.wrap_float(1.5), double: types.wrap_double(2.25),
  char: types.wrap_char(0x20ac), timestamp: types.wrap_timestamp(1700000000123),
  uuid: types.wrap_uuid(Buffer.from("00112233445566778899aabbccddeeff", "hex")),
  binary: types.wrap_binary(Buffer.from([0, 255])), string: types.wrap_string("h\u00e9llo"),
  symbol: types.wrap_symbol("sym"), list: types.wrap_list([1, "a"]),
  map: types.wrap_map({ k: "v" }), array: types.wrap_array(["a", "b"], 0xb1),
};
const show = (value) => {
  if (Buffer.isBuffer(value)) return "hex:" + value.toString("hex");
  if (value instanceof Date) return "date:" + value.getTime();
  if (value && typeof value === "object" && !Array.isArray(value)) {
    if (value.type && "value" in value) return show(value.value);
    return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, show(v)]));
  }
  return Array.isArray(value) ? value.map(show) : value;
};
const describe = (message) => {
  const body = message.body && message.body.content !== undefined ? message.body.content : message.body;
  return { id: show(message.message_id), properties: show(message.application_properties || {}), body: show(body) };
};

container.on("sender_open", (c) => { if (mode === "server") c.sender.set_source(c.sender.source); });
container.on("message", (c) => {
  say({ event: "message", tag: show(c.delivery.tag), ...describe(c.message) });
  const outcome = (c.message.application_properties || {}).outcome;
  if (outcome === "reject") c.delivery.reject({ condition: "a:b", description: "bad" });
  else if (outcome === "release") c.delivery.release({ delivery_failed: true, undeliverable_here: true });
  else c.delivery.accept();
});
for (const name of ["accepted", "rejected", "released", "modified", "settled"])
  container.on(name, (c) => {
    const error = c.delivery.remote_state && c.delivery.remote_state.error;
    say({ event: name, condition: error ? error.condition : null });
  });
for (const name of ["receiver_error", "sender_error", "session_error", "connection_error", "protocol_error"])
  container.on(name, (c) => {
    const end = c.receiver || c.sender || c.connection || {};
    say({ event: name, condition: end.error ? end.error.condition : String(c.message || c) });
  });
container.on("receiver_drained", () => say({ event: "drained" }));
container.on("sender_draining", (c) => c.sender.set_drained(true));
container.on("receiver_close", () => say({ event: "receiver_close" }));
container.on("sender_close", () => say({ event: "sender_close" }));
container.on("connection_close", () => say({ event: "connection_close" }));
container.on("disconnected", () => { if (mode === "client") process.exit(0); });

if (mode === "client") {
  const connection = container.connect({ host: "127.0.0.1", port: Number(port), username: "anyone", reconnect: false, max_frame_size: 1024 });
  const sender = connection.open_sender({ target: "q", name: "outward" });
  sender.once("sendable", () => {
    sender.send({ message_id: "typed", application_properties: typed, body: rhea.message.data_section(Buffer.alloc(5000, "x")) });
    sender.send(rhea.message.encode({ message_id: "batch", body: "second" }), Buffer.from("tag"), 0x80013700);
  });
  const receiver = connection.open_receiver({ source: "q", name: "inward", credit_window: 0, autoaccept: false });
  receiver.once("receiver_open", () => receiver.add_credit(10));
  const refused = connection.open_receiver({ source: "refused", name: "refused" });
  process.stdin.on("data", (line) => {
    const command = line.toString().trim();
    if (command === "drain") { receiver.drain = true; receiver.add_credit(5); }
    if (command === "close") connection.close();
  });
} else {
  container.options.max_frame_size = 1024;
  container.on("sendable", (c) => {
    if (c.sender.already) return;
    c.sender.already = true;
    c.sender.send({ message_id: "typed", application_properties: typed, body: "z".repeat(5000) });
  });
  const listener = container.listen({ host: "127.0.0.1", port: 0, max_frame_size: 1024 });
  listener.on("listening", () => say({ event: "listening", port: listener.address().port }));
}
