"""The syphon as a Spark job: its tasks, when they end, and its stream, without a JVM."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import timedelta

import pytest
from azure.servicebus import ServiceBusMessage
from pyspark.sql.streaming.datasource import ReadAllAvailable

from sbpair import PairedNamespaceOptions, PairedServiceBusClient
from sbpair.broker import Broker
from sbpair.data.spark.syphon_source import (
    COUNTERS,
    DrainOptions,
    DrainReader,
    DrainStreamReader,
    drain,
    emptied,
)
from sbpair.pair.envelope.names import ordered_backlog_name
from tests.data.spark.ledger import BACKLOGS, ids_in, park, parked, string

ALL = ReadAllAvailable()
GIVEN = {
    "connectionString": "env:PRIMARY",
    "secondaryConnectionString": "env:SECONDARY",
    "primaryNamespaceName": "contoso",
    "backlogQueueCount": "2",
}


def options(**more: str) -> DrainOptions:
    return DrainOptions.of(GIVEN | more)


def numbers(tasks: list) -> list[int]:
    return sorted(task.number for task in tasks)


@pytest.mark.spec("P-40")
def test_each_receiver_of_each_backlog_has_a_task() -> None:
    assert numbers(DrainReader(options()).partitions()) == [0, 1]
    assert numbers(DrainReader(options(receiversPerBacklog="3")).partitions()) == [0, 0, 0, 1, 1, 1]


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("receiversPerBacklog", "0", "receiversPerBacklog must be a whole number from 1 to 64"),
        ("emptyWaitSeconds", "-1", "emptyWaitSeconds must be a number of seconds from 0 to 3600"),
        ("receiverPerBacklog", "2", "did you mean receiversPerBacklog?"),
        ("land", "secondary", "land must be one of primary, either"),
        ("ordering", "queue", "ordering must be one of none, session"),
        ("landAfterSeconds", "-1", "landAfterSeconds must be a number of seconds from 0 to 86400"),
        ("journal", "here", "journal must be an absolute path"),
    ],
)
def test_an_unusable_option_is_named(name: str, value: str, told: str) -> None:
    with pytest.raises(ValueError, match="sbpair-syphon") as raised:
        options(**{name: value})
    assert told in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.spec("C-1")
def test_a_task_that_lands_messages_has_enough_time_or_is_refused() -> None:
    syphon = options(land="either", landAfterSeconds="90").of_backlog(0)
    assert (syphon.land, syphon.land_after) == ("either", timedelta(seconds=90))
    assert options().of_backlog(0).land == "primary"
    with pytest.raises(ValueError, match=r"landAfterSeconds must be less than maxDurationSeconds \(60\)"):
        options(land="either", landAfterSeconds="60", maxDurationSeconds="60")


def test_a_stream_drains_once_at_each_trigger() -> None:
    reader = DrainStreamReader(options())
    start = reader.initialOffset()
    first = reader.latestOffset(start, ALL)
    second = reader.latestOffset(first, ALL)

    assert numbers(reader.partitions(first, second)) == [0, 1]
    assert reader.partitions(second, second) == []


def test_an_available_now_run_drains_once_and_ends() -> None:
    reader = DrainStreamReader(options())
    reader.prepareForTriggerAvailableNow()
    first = reader.latestOffset({"tick": 7}, ALL)
    assert first == {"tick": 8}
    assert reader.latestOffset(first, ALL) == first


@dataclass
class Counters:
    received: int = 0


@dataclass
class Script:
    """A syphon that receives a given number of messages in each drain."""

    comes: list[int]
    counters: Counters = field(default_factory=Counters)

    async def drain(self) -> None:
        self.counters.received += self.comes.pop(0)


@pytest.mark.parametrize(("wait", "left"), [(0.0, [0, 3, 0, 9]), (0.001, [9])], ids=["at once", "waiting"])
async def test_a_backlog_must_stay_empty_for_the_configured_time(wait: float, left: list[int]) -> None:
    script = Script([5, 0, 3, 0, 9] if not wait else [5, 3, 0, 9])
    await emptied(script, wait)  # type: ignore[arg-type]
    assert script.comes == left


@pytest.mark.spec("P-44", "G-1")
def test_two_receivers_per_backlog_bring_every_message_home_once(tmp_path) -> None:
    sent = [f"m{number}" for number in range(60)]
    with Broker({"contoso": 0, "contoso-dr": 0}) as broker:
        broker.namespace("contoso").create_queue("orders")
        park(broker, "orders", sent)
        reader = DrainReader(
            options(
                connectionString=string(broker, "contoso"),
                secondaryConnectionString=string(broker, "contoso-dr"),
                backlogQueueCount=str(BACKLOGS),
                receiversPerBacklog="2",
                window="5",
                journal=str(tmp_path),
            )
        )
        rows = [row for task in reader.partitions() for row in reader.read(task)]
        assert sorted(ids_in(broker, "orders")) == sorted(sent)
        assert parked(broker) == 0
    completed = 2 + COUNTERS.index("completed")
    assert len(rows) == 2 * BACKLOGS
    assert sum(row[completed] for row in rows) == len(sent)


@pytest.mark.spec("O-1", "O-6")
async def test_tasks_sharing_ordered_sessions_keep_their_order_when_killed(tmp_path) -> None:
    sessions, each = [f"s{number}" for number in range(6)], 40
    async with asyncio.timeout(60):
        with Broker({"contoso": 0, "contoso-dr": 0}) as broker:
            broker.namespace("contoso").create_queue("sessions", requires_session=True)
            await asyncio.to_thread(park_in_order, broker, sessions, each)
            drains = options(
                connectionString=string(broker, "contoso"),
                secondaryConnectionString=string(broker, "contoso-dr"),
                backlogQueueCount=str(BACKLOGS),
                ordering="session",
            )
            killed = [asyncio.ensure_future(drain(drains, number)) for number in range(BACKLOGS)]
            while broker.namespace("contoso").counts("sessions").active < each:
                await asyncio.sleep(0.001)
            for task in killed:
                task.cancel()
            rows = await asyncio.gather(*(drain(drains, n) for n in range(BACKLOGS) for _ in range(2)))
            arrived = dict.fromkeys(broker.namespace("contoso").message_ids("sessions"))
            left = [broker.namespace("contoso-dr").counts(name).active for name in ordered_backlogs()]
            await asyncio.gather(*killed, return_exceptions=True)
    assert [row[1] for row in rows] == [True] * len(rows)
    assert left == [0] * BACKLOGS
    for session in sessions:
        assert [key for key in arrived if key.startswith(f"{session}.")] == [
            f"{session}.{n}" for n in range(each)
        ]


def test_ordered_backlogs_are_excluded_by_default() -> None:
    assert options().of_backlog(0).ordering == "none"


def ordered_backlogs() -> list[str]:
    return [ordered_backlog_name("contoso", number) for number in range(BACKLOGS)]


def park_in_order(broker: Broker, sessions: list[str], each: int) -> None:
    """Park messages of ordered sessions in the ordered backlogs."""
    ends = string(broker, "contoso"), string(broker, "contoso-dr")
    keeping = PairedNamespaceOptions(
        backlog_queue_count=BACKLOGS, primary_namespace_name="contoso", ordering="session"
    )
    with (
        PairedServiceBusClient.from_connection_strings(
            *ends, options=keeping, connection_verify=str(broker.ca_file)
        ) as client,
        client.get_queue_sender("sessions") as sender,
    ):
        client.hold("sessions")
        for session in sessions:
            batch = [
                ServiceBusMessage("", message_id=f"{session}.{number}", session_id=session)
                for number in range(each)
            ]
            sender.send_messages(batch)
