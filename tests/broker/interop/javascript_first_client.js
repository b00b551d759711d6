// The JavaScript SDK of generation 1: one JSON line, on stdout. Arguments: the connection string, a queue, a topic.
"use strict";

const { ReceiveMode, ServiceBusClient, TopicClient } = require("@azure/service-bus");

const [connectionString, queue, topic] = process.argv.slice(2);

(async () => {
  const found = {};
  const client = ServiceBusClient.createFromConnectionString(connectionString);
  const queueClient = client.createQueueClient(queue);
  await queueClient.createSender().send({ body: "one" });
  const receiver = queueClient.createReceiver(ReceiveMode.peekLock);
  const [message] = await receiver.receiveMessages(1, 10);
  found.received = message.body;
  await message.complete();

  await client.createTopicClient(topic).createSender().send({ body: "published" });
  const subscription = client.createSubscriptionClient(topic, "all").createReceiver(ReceiveMode.peekLock);
  const [published] = await subscription.receiveMessages(1, 10);
  await published.deadLetter({ deadletterReason: "because" });
  const graves = client.createSubscriptionClient(TopicClient.getDeadLetterTopicPath(topic, "all"), "all");
  const [dead] = await graves.createReceiver(ReceiveMode.peekLock).receiveMessages(1, 10);
  found.dead = [dead.body, dead.userProperties.DeadLetterReason];
  found.path = graves.entityPath || graves._context.entityPath;
  await dead.complete();
  await client.close();
  process.stdout.write(`${JSON.stringify(found)}\n`);
  process.exit(0);
})().catch((error) => {
  console.error(error);
  process.exit(1);
});
