"""During a real outage, journal, metrics and states agree with the client's events."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from azure.servicebus import ServiceBusMessage

from sbpair import PairedNamespaceOptions, PairedServiceBusClient
from sbpair.broker import Broker
from sbpair.observation import (
    EntityStates,
    Journal,
    Metrics,
    PairLabels,
    WriterRole,
    attach,
    journal_files,
    read,
    send_accepted,
)
from sbpair.pair.pairing.events import PingSent
from tests.waiting import wait_until


class Told:
    """A source of events that the test drives."""

    def __init__(self) -> None:
        self.callbacks: list[Callable[[object], None]] = []

    def on_event(self, callback: Callable[[object], None]) -> Callable[[], None]:
        self.callbacks.append(callback)
        return lambda: self.callbacks.remove(callback)

    def tell(self, event: object) -> None:
        for callback in self.callbacks:
            callback(event)


class Kept:
    def __init__(self) -> None:
        self.events: list[object] = []

    def write(self, event: object) -> None:
        self.events.append(event)


class Broken:
    def write(self, event: object) -> None:
        raise RuntimeError("a watcher's own fault")


def test_a_watcher_that_fails_does_not_keep_the_event_from_the_others(caplog):
    source, before, after = Told(), Kept(), Kept()
    attach(source, before, Broken(), after)

    source.tell(event := PingSent(0.0, "orders", 1))

    assert before.events == after.events == [event]
    assert "Broken failed on PingSent" in caplog.text


def test_a_detached_watcher_gets_no_more_events():
    source, kept = Told(), Kept()
    detach = attach(source, kept)
    detach()

    source.tell(PingSent(0.0, "orders", 1))

    assert kept.events == []


@pytest.mark.spec("P-3", "P-4", "P-6", "G-7")
def test_an_outage_is_in_the_journal_from_the_first_failure_to_the_return(tmp_path):
    with Broker({"contoso": 0, "contoso-dr": 0}) as broker:
        primary, secondary = broker.namespace("contoso"), broker.namespace("contoso-dr")
        primary.create_queue("orders")
        metrics, states = Metrics(), EntityStates()
        client = PairedServiceBusClient.from_connection_strings(
            primary.connection_string,
            secondary.connection_string,
            options=PairedNamespaceOptions(
                primary_namespace_name="contoso",
                backlog_queue_count=2,
                failover_interval=timedelta(0),
                ping_primary_interval=timedelta(seconds=1),
            ),
            connection_verify=str(broker.ca_file),
        )
        pair = PairLabels("contoso", "contoso-dr")
        with (
            Journal(tmp_path, role=WriterRole.SENDER, pair=pair) as journal,
            client,
            client.get_queue_sender("orders") as sender,
        ):
            attach(client, journal, metrics, states)
            journal.write(
                send_accepted("orders", sender.send_messages(ServiceBusMessage("1", message_id="a")))
            )
            primary.take_down("refuse")
            receipt = sender.send_messages([ServiceBusMessage(str(n), message_id=f"b{n}") for n in range(3)])
            journal.write(send_accepted("orders", receipt))
            assert states.snapshot() == {"orders": "failed_over"}
            primary.bring_up()
            wait_until(lambda: states.snapshot() == {"orders": "healthy"})

    (path,) = journal_files(tmp_path, with_open=True)
    records = list(read(path))
    assert [record["ordinal"] for record in records] == list(range(len(records)))
    events = [record["event"] for record in records]
    milestones = [
        "send_accepted",
        "entity_failed_over",
        "message_parked",
        "send_accepted",
        "entity_recovered",
    ]
    assert [event for event in events if event in milestones] == milestones
    assert events[-1] == "journal_closed"
    times = [record["mono"] for record in records if record["event"] in milestones]
    assert times == sorted(times)
    sent, parked = (record for record in records if record["event"] == "send_accepted")
    assert (sent["stored_in"], sent["message_ids"], sent["backlog"]) == ("primary", ["a"], None)
    assert (parked["stored_in"], parked["message_ids"]) == ("backlog", ["b0", "b1", "b2"])
    exposed = metrics.exposition().decode()
    assert (
        f'sbpair_parked_messages_total{{backlog="{parked["backlog"]}",path="orders",reason="rejected"}} 3.0'
        in exposed
    )
    assert 'sbpair_failbacks_total{path="orders"} 1.0' in exposed
    text = path.read_text()
    for namespace in (primary, secondary):
        assert namespace.connection_string.split("SharedAccessKey=")[1].split(";")[0] not in text
