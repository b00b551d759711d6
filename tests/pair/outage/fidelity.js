// A foreign sender and receiver (rhea): typed messages out, raw bytes and decoded values in.
//
//   node fidelity.js send PORT ADDRESS PARKED      one message to ADDRESS; parked for PARKED when that is not "-"
//   node fidelity.js receive PORT ADDRESS          one message, as JSON on one line: its raw bytes in hex, and values
"use strict";

const rhea = require("rhea");
const codec = require("rhea/lib/message");
const types = rhea.types;

const [mode, port, address, parked] = process.argv.slice(2);
const container = rhea.create_container({ id: "fidelity-" + process.pid });

function typed() {
  return {
    message_id: types.wrap_uuid(Buffer.from("00112233445566778899aabbccddeeff", "hex")),
    user_id: Buffer.from("ff00fe", "hex"),
    subject: "fidelity",
    content_type: "application/x-test",
    application_properties: {
      long: types.wrap_long(Math.pow(2, 40)),
      uint: types.wrap_uint(4000000000),
      timestamp: types.wrap_timestamp(1795219200000),
      uuid: types.wrap_uuid(Buffer.from("ffeeddccbbaa99887766554433221100", "hex")),
      binary: types.wrap_binary(Buffer.from("fffe8000c3", "hex")),
      symbol: types.wrap_symbol("a-symbol"),
      ubyte: types.wrap_ubyte(255),
      float: types.wrap_float(0.5),
      nested: types.wrap_map({ inner: types.wrap_map({ deep: types.wrap_long(5) }), list: types.wrap_list([1, "a"]) }),
    },
    body: rhea.message.data_section(Buffer.from("c3280000ff", "hex")),
  };
}

function park(message) {
  message.application_properties["x-ms-path"] = parked;
  message.application_properties["x-ms-sessionid"] = "session-1";
  message.application_properties["x-ms-scheduledenqueuetimeutc"] = types.wrap_timestamp(1700000000000);
  message.application_properties["x-sbpair-partitionkey"] = "session-1";
  return message;
}

function direct(message) {
  message.group_id = "session-1";
  message.message_annotations = {
    "x-opt-partition-key": "session-1",
    "x-opt-scheduled-enqueue-time": types.wrap_timestamp(1700000000000),
  };
  return message;
}

if (mode === "receive") {
  let raw;
  const decode = codec.decode;
  codec.decode = (bytes) => {
    raw = Buffer.from(bytes);
    return decode(bytes);
  };
  container.once("message", (context) => {
    const properties = context.message.application_properties;
    const said = {
      raw: raw.toString("hex"),
      long: properties.long,
      uint: properties.uint,
      timestamp: Number(properties.timestamp),
      uuid: Buffer.from(properties.uuid).toString("hex"),
      binary: Buffer.from(properties.binary).toString("hex"),
      symbol: String(properties.symbol),
      deep: properties.nested.inner.deep,
      group_id: context.message.group_id,
      names: Object.keys(properties).sort(),
    };
    console.log(JSON.stringify(said));
    context.delivery.accept();
    setTimeout(() => context.connection.close(), 50);
  });
} else {
  container.once("sendable", (context) => {
    context.sender.send(parked === "-" ? direct(typed()) : park(typed()));
  });
  container.on("accepted", (context) => context.connection.close());
  for (const bad of ["rejected", "released", "modified"]) {
    container.on(bad, () => {
      console.error("the message was " + bad);
      process.exit(1);
    });
  }
}

container.on("disconnected", (context) => {
  console.error("disconnected " + (context.error || ""));
  process.exit(2);
});
const connection = container.connect({ port: Number(port), host: "localhost", username: "anonymous", reconnect: false });
if (mode === "receive") {
  connection.open_receiver({ source: address, autoaccept: false, credit_window: 1 });
} else {
  connection.open_sender({ target: address });
}
