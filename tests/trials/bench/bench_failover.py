"""How long a message waits when an entity fails over and when it returns (P-4, P-33).

Failover: from the end of the failover interval to the first message that a backlog queue accepted, with the
link to it opened while the entity was suspect. Return: from the event of an accepted ping to the first
message that the primary accepted. Milliseconds.

    python -m tests.trials.bench.bench_failover [--rounds N]
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from datetime import timedelta

from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from sbpair import PairedNamespaceOptions, PairedServiceBusClient
from sbpair.broker import Broker
from sbpair.events import EntityFailedOver, EntityRecovered, PairingEvent
from tests.trials.bench.report import figure, rounds


def one_round(broker: Broker) -> tuple[float, float]:
    primary, secondary = broker.namespace("contoso"), broker.namespace("contoso-dr")
    options = PairedNamespaceOptions(
        primary_namespace_name="contoso",
        failover_interval=timedelta(seconds=2),
        ping_primary_interval=timedelta(seconds=1),
        backlog_queue_count=1,
        suspect_policy="raise",  # no message is parked before
    )
    told: dict[type[PairingEvent], threading.Event] = {
        EntityFailedOver: threading.Event(),
        EntityRecovered: threading.Event(),
    }
    with PairedServiceBusClient.from_connection_strings(
        primary.connection_string,
        secondary.connection_string,
        options=options,
        connection_verify=str(broker.ca_file),
        retry_total=0,  # from the first failure on
    ) as client:
        client.on_event(lambda event: told[type(event)].set() if type(event) in told else None)
        sender = client.get_queue_sender("orders")
        sender.send_messages(ServiceBusMessage("warm"))
        primary.take_down("refuse")
        with contextlib.suppress(ServiceBusError):
            sender.send_messages(ServiceBusMessage("suspect"))
        spans = []
        for kind in (EntityFailedOver, EntityRecovered):
            assert told[kind].wait(30)
            start = time.perf_counter()
            sender.send_messages(ServiceBusMessage("next"))
            spans.append((time.perf_counter() - start) * 1000)
            if kind is EntityFailedOver:
                primary.bring_up()
        return spans[0], spans[1]


def main(count: int) -> None:
    print(f"settings: rounds={count} interval=2s ping=1s loopback python={sys.version.split()[0]}")
    with Broker({"contoso": 0, "contoso-dr": 0}) as broker:
        broker.namespace("contoso").create_queue("orders")
        spans = [one_round(broker) for _ in range(count)]
    for name, column in zip(
        ("failover.first_parked", "failover.first_home"), zip(*spans, strict=True), strict=True
    ):
        figure(name, "ms", column)


if __name__ == "__main__":
    main(rounds(__doc__, 5))
