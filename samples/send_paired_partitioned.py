"""Send by a pair whose queue is partitioned, while one customer's partition is down: it is parked, and comes
home to that partition with its key, as if it had not been away.
"""

import asyncio
from datetime import timedelta

from azure.servicebus import ServiceBusClient, ServiceBusMessage

from sbpair import PairedNamespaceOptions, PairedServiceBusClient, StoredIn
from sbpair.broker import Broker
from sbpair.syphon import Syphon, SyphonOptions

OPTIONS = PairedNamespaceOptions(
    backlog_queue_count=1, failover_interval=timedelta(0), primary_namespace_name="contoso"
)
SYPHON = SyphonOptions(backlog_queue_count=1, primary_namespace_name="contoso")
ORDER = ServiceBusMessage("an order of ada", partition_key="ada")


def main() -> None:
    with Broker({"contoso": 0, "contoso-dr": 0}) as broker:
        primary, secondary = broker.namespace("contoso"), broker.namespace("contoso-dr")
        primary.create_queue("orders", enable_partitioning=True)
        strings = primary.connection_string, secondary.connection_string
        with (
            PairedServiceBusClient.from_connection_strings(
                *strings, options=OPTIONS, connection_verify=str(broker.ca_file)
            ) as client,
            client.get_queue_sender("orders") as sender,
            ServiceBusClient.from_connection_string(primary.connection_string) as plain,
            plain.get_queue_receiver("orders") as receiver,
        ):
            sender.send_messages(ORDER)
            (first,) = receiver.receive_messages(1, max_wait_time=5)
            home = (first.sequence_number or 0) >> 48
            with primary.partition("orders", home).take_down():
                receipt = sender.send_messages(ORDER)
                print(f"partition {home} is down: the message is stored in the {receipt.stored_in.value}")
                assert receipt.stored_in is StoredIn.BACKLOG
            moved = asyncio.run(Syphon.from_connection_strings(*strings, options=SYPHON).drain())
            (second,) = receiver.receive_messages(1, max_wait_time=5)
            print(f"brought home: {moved.completed}; its key is {second.partition_key}")
            assert (second.sequence_number or 0) >> 48 == home


if __name__ == "__main__":
    main()
