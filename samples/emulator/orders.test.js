const { spawn } = require("node:child_process");
const { once } = require("node:events");
const fs = require("node:fs");
const readline = require("node:readline");
const { after, before, test } = require("node:test");
const assert = require("node:assert");
const { ServiceBusAdministrationClient, ServiceBusClient } = require("@azure/service-bus");

let broker, client, administration;
before(async () => {
  const flags = ["--namespace", "test:0", "--queue", "test/orders", "--json", "--stop-with-stdin"];
  // its input is a pipe, which closes when this process ends; what it says is shown
  broker = spawn("sbpair", ["broker", ...flags], { stdio: ["pipe", "pipe", "inherit"] });
  const ended = once(broker, "exit").then(() => {
    throw new Error("the broker did not start: it says why above");
  });
  const [line] = await Promise.race([once(readline.createInterface(broker.stdout), "line"), ended]);
  const started = JSON.parse(line);
  const connectionString = started.namespaces[0].connection_string;
  client = new ServiceBusClient(connectionString);
  const tlsOptions = { ca: fs.readFileSync(started.ca_file) };
  administration = new ServiceBusAdministrationClient(connectionString, { tlsOptions });
});
after(async () => {
  await client?.close();
  broker.kill();
});

test("an order is received", async () => {
  await client.createSender("orders").sendMessages({ body: "two shoes" });
  const receiver = client.createReceiver("orders");
  const [message] = await receiver.receiveMessages(1);
  assert.strictEqual(message.body, "two shoes");
  await receiver.completeMessage(message);
  const { totalMessageCount } = await administration.getQueueRuntimeProperties("orders");
  assert.strictEqual(totalMessageCount, 0);
});
