// The JavaScript SDK, unmodified, as one of several consumers: completes what it receives until stdin ends.
// Prints "ready", then the id of each completed message, a line each. Arguments: the connection string, the queue,
// and "sessions" if the queue requires them.
"use strict";

const { ServiceBusClient } = require("@azure/service-bus");

const [connectionString, queue, kind] = process.argv.slice(2);
const client = new ServiceBusClient(connectionString);
let stopped = false;

async function consume(receiver, patience) {
  for (;;) {
    const messages = await receiver.receiveMessages(3, { maxWaitTimeInMs: patience });
    for (const message of messages) {
      await receiver.completeMessage(message);
      console.log(message.messageId);
    }
    if (stopped || (messages.length === 0 && kind === "sessions")) return;
  }
}

async function consumeSessions() {
  while (!stopped) {
    let receiver;
    try {
      receiver = await client.acceptNextSession(queue);
    } catch (error) {
      if (error.code === "ServiceTimeout") continue; // no session was available
      throw error;
    }
    await consume(receiver, 200);
    await receiver.close();
  }
}

process.stdin.resume();
process.stdin.on("end", () => {
  stopped = true;
  setTimeout(() => process.exit(0), 500);
});

console.log("ready");
(kind === "sessions" ? consumeSessions() : consume(client.createReceiver(queue), 200)).catch((error) => {
  console.error(error);
  process.exit(1);
});
