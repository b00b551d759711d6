// The JavaScript SDK, unmodified: every way to send, to receive and to settle. One line of JSON on stdout.
// Arguments: the connection string, a queue, a topic with the subscription "s".
"use strict";

const { ServiceBusClient } = require("@azure/service-bus");

const [connectionString, queue, topic] = process.argv.slice(2);
const client = new ServiceBusClient(connectionString, { retryOptions: { maxRetries: 0 } });
const found = {};

async function send(sender) {
  await sender.sendMessages({
    body: { greeting: "hello" },
    messageId: "one",
    subject: "subject",
    applicationProperties: { n: 7 },
  });
  const batch = await sender.createMessageBatch();
  for (let i = 0; i < 4; i++) batch.tryAddMessage({ body: `batched ${i}` });
  await sender.sendMessages(batch);
  found.batch = [batch.count, batch.maxSizeInBytes];
}

async function settle(receiver) {
  found.peeked = (await receiver.peekMessages(9)).map((each) => Number(each.sequenceNumber));
  const [first, ...rest] = await receiver.receiveMessages(5);
  found.received = [first.body, first.messageId, first.subject, first.applicationProperties.n];
  found.renewed = (await receiver.renewMessageLock(first)) > new Date();
  await receiver.completeMessage(first);
  for (const each of rest.slice(1)) await receiver.deadLetterMessage(each, { deadLetterReason: "because" });
  await receiver.abandonMessage(rest[0]);
  const [again] = await receiver.receiveMessages(1);
  found.abandoned = [again.body, again.deliveryCount];
  await receiver.completeMessage(again);
}

async function bury() {
  const dead = client.createReceiver(queue, { subQueueType: "deadLetter", receiveMode: "receiveAndDelete" });
  found.dead = (await dead.receiveMessages(3)).map((each) => [each.body, each.deadLetterReason]);
}

async function publish() {
  await client.createSender(topic).sendMessages({ body: "paid" });
  const receiver = client.createReceiver(topic, "s");
  const [paid] = await receiver.receiveMessages(1);
  await receiver.completeMessage(paid);
  found.published = paid.body;
}

(async () => {
  await send(client.createSender(queue));
  await settle(client.createReceiver(queue));
  await bury();
  await publish();
  await client.close();
  console.log(JSON.stringify(found));
})().catch((error) => {
  console.error(error);
  process.exit(1);
});
