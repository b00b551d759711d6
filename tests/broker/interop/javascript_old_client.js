// An older JavaScript SDK of generation 7, whose rhea counts transfers from zero: one JSON line, on stdout.
// Arguments: the connection string, a queue.
"use strict";

const { ServiceBusClient } = require("@azure/service-bus");

const [connectionString, queue] = process.argv.slice(2);
const client = new ServiceBusClient(connectionString, { retryOptions: { maxRetries: 0, timeoutInMs: 15000 } });

(async () => {
  const found = {};
  const sender = client.createSender(queue);
  await sender.sendMessages([{ body: "one" }, { body: "two" }]);
  const [number] = await sender.scheduleMessages([{ body: "later" }], new Date(Date.now() + 3600e3));
  await sender.cancelScheduledMessages(number);
  const receiver = client.createReceiver(queue);
  found.peeked = (await receiver.peekMessages(9)).map((each) => each.body);
  const received = await receiver.receiveMessages(2);
  found.received = received.map((each) => each.body);
  for (const each of received) {
    await (receiver.completeMessage ? receiver.completeMessage(each) : each.complete());
  }
  await client.close();
  process.stdout.write(`${JSON.stringify(found)}\n`);
  process.exit(0);
})().catch((error) => {
  console.error(error);
  process.exit(1);
});
