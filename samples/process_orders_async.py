"""Handle messages of both namespaces with asyncio, while the primary is up and while it is down.

In production the two connection strings are those of your namespaces, and `await processor.run()` is the program.
"""

import asyncio
import signal

from azure.servicebus import ServiceBusMessage
from azure.servicebus.aio import ServiceBusClient

from sbpair.aio import PairedNamespaceOptions, PairedServiceBusClient
from sbpair.broker import Broker
from sbpair.processor import ReceivedMessage

OPTIONS = PairedNamespaceOptions(primary_namespace_name="contoso")  # both are on localhost
handled = asyncio.Semaphore(0)


async def handle(message: ReceivedMessage) -> None:
    print(f"handling {message} from the {message.side}")
    await asyncio.sleep(0.01)  # 16 of these at a time
    handled.release()


async def send(connection_string: str, body: str) -> None:
    client = ServiceBusClient.from_connection_string(connection_string)
    async with client, client.get_queue_sender("orders") as sender:
        await sender.send_messages(ServiceBusMessage(body))
    await asyncio.wait_for(handled.acquire(), 30)


async def main() -> None:
    with Broker({"contoso": 0, "contoso-dr": 0}) as broker:
        strings = [namespace.connection_string for namespace in broker.namespaces]
        for namespace in broker.namespaces:
            namespace.create_queue("orders")
        async with PairedServiceBusClient.from_connection_strings(*strings, options=OPTIONS) as client:
            processor = client.get_queue_processor("orders", handle)
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, processor.request_stop)
            running = asyncio.create_task(processor.run())
            await send(strings[0], "order 1")
            broker.namespaces[0].take_down("refuse")
            await send(strings[1], "order 2")
            processor.request_stop()
            await running


if __name__ == "__main__":
    asyncio.run(main())
