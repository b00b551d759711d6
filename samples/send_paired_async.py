"""Send through a pair of namespaces with asyncio: many sends at once, with the primary up and down.

In production the two connection strings are those of your namespaces; here both are a broker in this process.
"""

import asyncio
from collections import Counter
from datetime import UTC, datetime, timedelta

from azure.servicebus import ServiceBusMessage

from sbpair.aio import PairedNamespaceOptions, PairedServiceBusClient, PairedServiceBusSender, StoredIn
from sbpair.broker import Broker

OPTIONS = PairedNamespaceOptions(
    backlog_queue_count=2,
    failover_interval=timedelta(0),  # redirect the first message that fails; the default waits a minute
    primary_namespace_name="contoso",  # both are on localhost, so the host does not say it
)


async def send_many(sender: PairedServiceBusSender, count: int) -> Counter[StoredIn]:
    sends = (sender.send_messages(ServiceBusMessage(f"order {n}")) for n in range(count))
    return Counter(receipt.stored_in for receipt in await asyncio.gather(*sends))


async def main() -> None:
    with Broker({"contoso": 0, "contoso-dr": 0}) as broker:
        primary, secondary = broker.namespace("contoso"), broker.namespace("contoso-dr")
        primary.create_queue("orders")
        client = PairedServiceBusClient.from_connection_strings(
            primary.connection_string,
            secondary.connection_string,
            options=OPTIONS,
            connection_verify=str(broker.ca_file),
        )
        async with client, client.get_queue_sender("orders") as sender:
            print(f"contoso is up:   {dict(await send_many(sender, 20))}")
            primary.take_down("refuse")
            print(f"contoso is down: {dict(await send_many(sender, 20))}")

            tomorrow = datetime.now(UTC) + timedelta(days=1)
            numbers = await sender.schedule_messages(ServiceBusMessage("later"), tomorrow)
            print(f"scheduled while it is down, no number yet: {numbers}")
            assert numbers == [-1]


if __name__ == "__main__":
    asyncio.run(main())
