// The JavaScript SDK, unmodified: schedules, deferral, sessions. One JSON line a finding, on stdout.
// Arguments: the connection string, a plain queue, a queue that requires sessions.
"use strict";

const { ServiceBusClient } = require("@azure/service-bus");

const [connectionString, plain, sessions] = process.argv.slice(2);
const client = new ServiceBusClient(connectionString, { retryOptions: { maxRetries: 0 } });
const found = {};

async function failure(promise) {
  try {
    await promise;
    return null;
  } catch (error) {
    return error.code;
  }
}

async function schedule() {
  const sender = client.createSender(plain); // its first operation: a claim for $management and no other
  const at = new Date(Date.now() + 365 * 24 * 3600e3);
  const numbers = await sender.scheduleMessages([{ body: "x" }, { body: "y" }], at);
  found.scheduled = numbers.map(Number);
  await sender.cancelScheduledMessages(numbers[0]);
  found.cancelledTwice = await failure(sender.cancelScheduledMessages(numbers[0]));
  await sender.sendMessages({ body: "aside" });
}

async function defer() {
  const receiver = client.createReceiver(plain);
  const [message] = await receiver.receiveMessages(1);
  await receiver.deferMessage(message);
  const [deferred] = await receiver.receiveDeferredMessages(message.sequenceNumber);
  found.deferred = [deferred.body, deferred.state];
  await receiver.completeMessage(deferred);
  found.peeked = (await receiver.peekMessages(9)).map((each) => [each.body, each.state]);
  await receiver.close();
}

async function useSessions() {
  await client.createSender(sessions).sendMessages([
    { body: "1", sessionId: "a" },
    { body: "2", sessionId: "b" },
    { body: "3", sessionId: "a" },
  ]);
  const named = await client.acceptSession(sessions, "a");
  found.received = (await named.receiveMessages(2)).map((each) => each.body);
  await named.setSessionState({ step: 2 });
  found.state = await named.getSessionState();
  found.renewed = (await named.renewSessionLock()) > new Date();
  const next = await client.acceptNextSession(sessions);
  found.next = next.sessionId;
  found.heldByAnother = await failure(client.acceptSession(sessions, "b"));
  await next.close();
  await named.close();
}

(async () => {
  await schedule();
  await defer();
  await useSessions();
  await client.close();
  console.log(JSON.stringify(found));
})().catch((error) => {
  console.error(error);
  process.exit(1);
});
