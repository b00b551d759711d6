const { spawn } = require("node:child_process");
const { once } = require("node:events");
const readline = require("node:readline");
const { after, before, test } = require("node:test");
const assert = require("node:assert");
const { ServiceBusClient } = require("@azure/service-bus");

let broker, client;
before(async () => {
  broker = spawn("sbpair", ["broker", "--namespace", "test:0", "--queue", "test/orders", "--json"]);
  const [line] = await once(readline.createInterface(broker.stdout), "line");
  client = new ServiceBusClient(JSON.parse(line).namespaces[0].connection_string);
});
after(() => client.close().finally(() => broker.kill()));

test("an order is received", async () => {
  await client.createSender("orders").sendMessages({ body: "two shoes" });
  const [message] = await client.createReceiver("orders").receiveMessages(1);
  assert.strictEqual(message.body, "two shoes");
});
