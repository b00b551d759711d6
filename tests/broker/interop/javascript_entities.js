// The JavaScript SDK, unmodified: the life of a queue, a topic and a subscription. One line of JSON on stdout.
// Argument: the connection string.
"use strict";

const { ServiceBusAdministrationClient } = require("@azure/service-bus");

const admin = new ServiceBusAdministrationClient(process.argv[2]);
const found = {};

async function names(pages, field) {
  const listed = [];
  for await (const each of pages) listed.push(each[field]);
  return listed.filter((name) => name.startsWith("javascript-made"));
}

async function failure(promise) {
  try {
    await promise;
    return null;
  } catch (error) {
    return [error.code, error.statusCode];
  }
}

async function queues() {
  const made = await admin.createQueue("javascript-made", { lockDuration: "PT30S", maxDeliveryCount: 5 });
  found.queue = [made.name, made.lockDuration, made.maxDeliveryCount];
  made.maxDeliveryCount = 7;
  found.queueUpdated = (await admin.updateQueue(made)).maxDeliveryCount;
  found.queues = await names(admin.listQueues(), "name");
  found.queueCount = (await admin.getQueueRuntimeProperties("javascript-made")).totalMessageCount;
  found.queueTwice = await failure(admin.createQueue("javascript-made"));
  await admin.deleteQueue("javascript-made");
  found.queueExists = await admin.queueExists("javascript-made");
}

async function topics() {
  const topic = await admin.createTopic("javascript-made", { maxSizeInMegabytes: 2048 });
  found.topic = [topic.name, topic.maxSizeInMegabytes];
  topic.maxSizeInMegabytes = 3072;
  found.topicUpdated = (await admin.updateTopic(topic)).maxSizeInMegabytes;
  found.topics = await names(admin.listTopics(), "name");
  const made = await admin.createSubscription("javascript-made", "billing", { maxDeliveryCount: 3 });
  found.subscription = [made.topicName, made.subscriptionName, made.maxDeliveryCount];
  made.maxDeliveryCount = 4;
  found.subscriptionUpdated = (await admin.updateSubscription(made)).maxDeliveryCount;
  found.subscriptions = [];
  for await (const each of admin.listSubscriptions("javascript-made"))
    found.subscriptions.push(each.subscriptionName);
  found.topicCount = (await admin.getTopicRuntimeProperties("javascript-made")).subscriptionCount;
  await admin.deleteSubscription("javascript-made", "billing");
  found.subscriptionExists = await admin.subscriptionExists("javascript-made", "billing");
  await admin.deleteTopic("javascript-made");
  found.topicExists = await admin.topicExists("javascript-made");
}

(async () => {
  await queues();
  await topics();
  console.log(JSON.stringify(found));
})().catch((error) => {
  console.error(error);
  process.exit(1);
});
