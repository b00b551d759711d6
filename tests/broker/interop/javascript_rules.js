// The JavaScript SDK, unmodified: rules by its administration client and by its rule manager. One line of JSON.
// Arguments: the connection string, a topic with the subscription "s".
"use strict";

const { ServiceBusAdministrationClient, ServiceBusClient } = require("@azure/service-bus");

const [connectionString, topic] = process.argv.slice(2);
const client = new ServiceBusClient(connectionString, { retryOptions: { maxRetries: 0 } });
const admin = new ServiceBusAdministrationClient(connectionString);
const found = {};

async function failure(promise) {
  try {
    await promise;
    return null;
  } catch (error) {
    return error.code;
  }
}

function named(filter) {
  return Object.fromEntries(Object.entries(filter).filter(([, value]) => value !== null && value !== undefined));
}

async function administer() {
  const dear = { sqlExpression: "price > @least", sqlParameters: { "@least": 10 } };
  const created = await admin.createRule(topic, "s", "dear", dear, { sqlExpression: "SET hot = 'yes'" });
  found.created = [created.name, created.filter, created.action.sqlExpression];
  const red = { subject: "red", applicationProperties: { n: 1, sure: true, s: "x" } };
  await admin.createRule(topic, "s", "red", red);
  const got = await admin.getRule(topic, "s", "red");
  found.got = [got.filter.subject, got.filter.applicationProperties];
  got.filter = { sqlExpression: "a = 1" };
  found.updated = (await admin.updateRule(topic, "s", got)).filter.sqlExpression;
  found.exists = [await admin.ruleExists(topic, "s", "red"), await admin.ruleExists(topic, "s", "none")];
  await admin.deleteRule(topic, "s", "red");
  found.listed = [];
  for await (const each of admin.listSubscriptions(topic)) found.listed.push(each.subscriptionName);
  for await (const rule of admin.listRules(topic, "s")) found.listed.push(rule.name);
  found.refused = await failure(admin.createRule(topic, "s", "bad", { sqlExpression: "sys.Nope = 1" }));
}

async function manage() {
  const rules = client.createRuleManager(topic, "s");
  await rules.deleteRule("$Default");
  await rules.createRule("sql", { sqlExpression: "a = 1" }, { sqlExpression: "SET b = 2" });
  await rules.createRule("correlation", { subject: "red", applicationProperties: { n: 1 } });
  found.managed = [];
  for await (const rule of rules.listRules()) found.managed.push([rule.name, named(rule.filter), rule.action]);
  found.twice = await failure(rules.createRule("sql", { sqlExpression: "a = 1" }));
  found.unknown = await failure(rules.deleteRule("none"));
}

async function publish() {
  await client.createSender(topic).sendMessages([
    { body: "red", subject: "red", applicationProperties: { n: 1 } },
    { body: "one", applicationProperties: { a: 1 } },
    { body: "dear", applicationProperties: { price: 11 } },
    { body: "none", subject: "Red", applicationProperties: { a: 2, price: 10, n: 1 } },
  ]);
  const receiver = client.createReceiver(topic, "s", { receiveMode: "receiveAndDelete" });
  const messages = await receiver.receiveMessages(3);
  messages.push(...(await receiver.receiveMessages(3, { maxWaitTimeInMs: 500 })));
  found.received = messages.map((each) => [each.body, each.applicationProperties]);
}

(async () => {
  await administer();
  await manage();
  await publish();
  await client.close();
  console.log(JSON.stringify(found));
})().catch((error) => {
  console.error(error);
  process.exit(1);
});
