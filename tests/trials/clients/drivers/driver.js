// The driver of the JavaScript SDK, with its retry options at their defaults. See lines.py for the protocol.
// A send gets its time by an abort signal; completeMessage takes none.
"use strict";

const readline = require("node:readline");
const { ServiceBusClient } = require("@azure/service-bus");

const held = new Map();
let sender, receiver;

const commands = {
  async open(command) {
    const options = command.tls_port ? { customEndpointAddress: `sb://localhost:${command.tls_port}` } : {};
    const client = new ServiceBusClient(command.connection_string, options);
    sender = client.createSender(command.queue);
    receiver = client.createReceiver(command.queue);
  },
  async send(command) {
    const abortSignal = AbortSignal.timeout(command.limit * 1000);
    await sender.sendMessages({ body: "x", messageId: command.id }, { abortSignal });
  },
  async receive(command) {
    const abortSignal = AbortSignal.timeout(command.limit * 1000);
    const [message] = await receiver.receiveMessages(1, { maxWaitTimeInMs: command.wait * 1000, abortSignal });
    if (message) held.set(message.messageId, message);
    return message ? message.messageId : null;
  },
  async complete(command) {
    const message = held.get(command.id);
    held.delete(command.id);
    await receiver.completeMessage(message);
  },
};

async function answered(command) {
  try {
    return { outcome: "ok", id: (await commands[command.do](command)) ?? null, copies: 0 };
  } catch (error) {
    const text = String(error.message).replace(/\s+/g, " ").slice(0, 300);
    return { outcome: "error", error: error.code ?? error.name, text };
  }
}

async function main() {
  for await (const line of readline.createInterface(process.stdin)) {
    console.log(JSON.stringify(await answered(JSON.parse(line))));
  }
  process.exit(0);
}

main();
