"""Bring parked messages home with a syphon in your own program.

`sbpair syphon` does the same as a daemon. Here an outage parks ten messages first.
"""

import asyncio
from datetime import timedelta

from azure.servicebus import ServiceBusMessage

from sbpair import PairedNamespaceOptions, PairedServiceBusClient
from sbpair.broker import Broker
from sbpair.syphon import Syphon, SyphonOptions

OPTIONS = PairedNamespaceOptions(
    backlog_queue_count=2, failover_interval=timedelta(0), primary_namespace_name="contoso"
)
SYPHON_OPTIONS = SyphonOptions(backlog_queue_count=2, primary_namespace_name="contoso")


def main() -> None:
    with Broker({"contoso": 0, "contoso-dr": 0}) as broker:
        primary, secondary = broker.namespace("contoso"), broker.namespace("contoso-dr")
        primary.create_queue("orders")
        strings = primary.connection_string, secondary.connection_string
        primary.take_down("refuse")
        with (
            PairedServiceBusClient.from_connection_strings(
                *strings, options=OPTIONS, connection_verify=str(broker.ca_file)
            ) as client,
            client.get_queue_sender("orders") as sender,
        ):
            for number in range(10):
                sender.send_messages(ServiceBusMessage(f"order {number}"))
        primary.bring_up()
        print(f"on contoso before the syphon: {primary.counts('orders').active}")

        syphon = Syphon.from_connection_strings(*strings, options=SYPHON_OPTIONS)
        counters = asyncio.run(syphon.drain())
        print(f"brought home: {counters.completed}; on contoso now: {primary.counts('orders').active}")
        assert primary.counts("orders").active == 10


if __name__ == "__main__":
    main()
