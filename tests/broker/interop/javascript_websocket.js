// The unmodified JavaScript SDK over WebSocket, which in Node.js is always wss: argv is connection string, queue.
const WebSocket = require("ws");
const { ServiceBusClient } = require("@azure/service-bus");

async function main() {
  const [connectionString, queue] = process.argv.slice(2);
  const client = new ServiceBusClient(connectionString, {
    webSocketOptions: { webSocket: WebSocket },
    retryOptions: { maxRetries: 0 },
  });
  const sender = client.createSender(queue);
  await sender.sendMessages([{ body: "a" }, { body: "b" }]);
  const receiver = client.createReceiver(queue);
  const bodies = [];
  while (bodies.length < 2) {
    for (const message of await receiver.receiveMessages(2, { maxWaitTimeInMs: 5000 })) {
      bodies.push(message.body);
      await receiver.completeMessage(message);
    }
  }
  await client.close();
  console.log(JSON.stringify(bodies));
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
