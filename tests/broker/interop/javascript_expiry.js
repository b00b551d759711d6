// The JavaScript SDK, unmodified, and messages whose time is over. One JSON line on stdout.
// Arguments: the connection string, a queue, and what to do: send, look, or bury (take a dead letter).
"use strict";

const { ServiceBusClient } = require("@azure/service-bus");

const [connectionString, queue, act] = process.argv.slice(2);
const client = new ServiceBusClient(connectionString, { retryOptions: { maxRetries: 0 } });
const HOUR = 3600e3;

const acts = {
  async send() {
    const sender = client.createSender(queue);
    await sender.sendMessages([{ body: "short", timeToLive: HOUR }, { body: "without" }]);
    return null;
  },
  async look() {
    const receiver = client.createReceiver(queue);
    const peeked = await receiver.peekMessages(9);
    const received = await receiver.receiveMessages(9, { maxWaitTimeInMs: 500 });
    return {
      peeked: peeked.map((each) => [each.body, each.timeToLive ?? null]),
      received: received.map((each) => [each.body, each.expiresAtUtc - each.enqueuedTimeUtc]),
    };
  },
  async bury() {
    const receiver = client.createReceiver(queue, { subQueueType: "deadLetter" });
    const [dead] = await receiver.receiveMessages(1);
    await receiver.completeMessage(dead);
    return [dead.body, dead.deadLetterReason];
  },
};

acts[act]()
  .then((found) => console.log(JSON.stringify(found)))
  .catch((error) => {
    console.error(error);
    process.exitCode = 1;
  })
  .finally(() => client.close());
