const { ServiceBusClient } = require("@azure/service-bus");

async function main() {
  const client = new ServiceBusClient(process.env.SBPAIR_PRIMARY);
  await client.createSender("orders").sendMessages({ body: "hello from JavaScript" });
  const receiver = client.createReceiver("orders");
  for (const message of await receiver.receiveMessages(1)) {
    console.log("received:", message.body);
    await receiver.completeMessage(message);
  }
  await client.close();
}

main();
