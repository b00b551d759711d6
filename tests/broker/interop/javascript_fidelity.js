// The JavaScript SDK, unmodified: what its own live tests expect of the service. One JSON line, on stdout.
// Arguments: the connection string, one with a SharedAccessSignature, a plain queue, a queue that requires sessions,
// and the broker's time a little later, in milliseconds.
"use strict";

const { ServiceBusClient } = require("@azure/service-bus");

const [connectionString, signed, plain, sessions, soon] = process.argv.slice(2);
const client = new ServiceBusClient(connectionString, { retryOptions: { maxRetries: 0 } });
const found = {};

async function annotated(sender, receiver) {
  await sender.sendMessages({
    body: "x",
    bodyType: "data",
    header: { durable: false, firstAcquirer: false, priority: 20, timeToLive: 100000 },
    footer: { propFooter: "foot" },
  });
  const [message] = await receiver.receiveMessages(1);
  found.annotated = [message.body, message._rawAmqpMessage.footer, message._rawAmqpMessage.header.firstAcquirer];
}

async function scheduled(sender, receiver) {
  await sender.scheduleMessages({ body: "later" }, new Date(Number(soon)));
  const [message] = await receiver.receiveMessages(1);
  found.scheduled = message.state;
}

async function peeked(sender, receiver) {
  await sender.sendMessages({ body: "x", applicationProperties: { n: 1 } });
  const [message] = await receiver.peekMessages(1, { omitMessageBody: true });
  found.peeked = [message.body === undefined, message.applicationProperties];
  await receiver.receiveMessages(1);
}

async function deferred(sender) {
  const receiver = client.createReceiver(plain);
  await sender.sendMessages({ body: "x" });
  const [message] = await receiver.receiveMessages(1);
  await receiver.deferMessage(message);
  const [again] = await receiver.receiveDeferredMessages(message.sequenceNumber);
  found.deferred = again.deliveryCount;
  await receiver.deadLetterMessage(again);
  const graves = client.createReceiver(plain, { subQueueType: "deadLetter" });
  const counts = [];
  for (let turn = 0; turn < 3; turn += 1) {
    const [dead] = await graves.receiveMessages(1);
    counts.push(dead.deliveryCount);
    await graves.abandonMessage(dead);
  }
  found.dead = counts;
}

async function emptySession() {
  await client.createSender(sessions).sendMessages({ body: "x", sessionId: "", partitionKey: "key" });
  const peeked = await client.createReceiver(sessions).peekMessages(1); // the SDK itself accepts no session ""
  found.session = peeked.map((each) => [each.body, each.sessionId, each.partitionKey]);
}

async function withSignature() {
  const bearer = new ServiceBusClient(signed, { retryOptions: { maxRetries: 0 } });
  await bearer.createSender(plain).sendMessages({ body: "signed" });
  found.signed = (await client.createReceiver(plain, { receiveMode: "receiveAndDelete" }).receiveMessages(1)).map(
    (each) => each.body
  );
  await bearer.close();
}

(async () => {
  const sender = client.createSender(plain);
  const receiver = client.createReceiver(plain, { receiveMode: "receiveAndDelete" });
  await scheduled(sender, receiver);
  await annotated(sender, receiver);
  await peeked(sender, receiver);
  await receiver.close();
  await deferred(sender);
  await emptySession();
  await withSignature();
  await client.close();
  process.stdout.write(`${JSON.stringify(found)}\n`);
  process.exit(0);
})().catch((error) => {
  console.error(error);
  process.exit(1);
});
