"""A checkpoint used with a namespace other than its own: nothing is read or completed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from sbpair.broker import Broker
from sbpair.data.spark import entities, message_source
from sbpair.data.spark.checkpoint import (
    ForeignCheckpointError,
    check_origin,
    origin_in,
    origin_name,
    with_origin,
)
from sbpair.data.spark.source_options import SourceOptions
from tests.data.spark.ledger import ids_in, send, string
from tests.data.spark.test_message_source import Engine
from tests.data.spark.test_polling import Clock

SENT = [f"m{number}" for number in range(5)]


@pytest.fixture
def broker() -> Iterator[Broker]:
    """Two namespaces with the same queue, and five messages in each."""
    with Broker({"contoso": 0, "contoso-dr": 0}) as running:
        for name in ("contoso", "contoso-dr"):
            running.namespace(name).create_queue("orders")
            send(running, "orders", SENT, name)
        yield running


def options(reference: str, **more: str) -> SourceOptions:
    return SourceOptions.of({"connectionString": reference, "queueName": "orders", "safetyLagMs": "0"} | more)


def elsewhere(engine: Engine, reference: str, **more: str) -> Engine:
    """The same checkpoint, and another connection."""
    moved = Engine(options(reference, **more))
    moved.offsets, moved.done = json.loads(json.dumps(engine.offsets)), engine.done
    if not engine.done:
        moved.initial = json.loads(json.dumps(engine.start))
    return moved


@pytest.mark.spec("R-71")
@pytest.mark.parametrize("settlement", ["none", "complete"])
def test_a_query_on_another_namespace_ends_before_it_completes_anything(
    broker: Broker, settlement: str
) -> None:
    engine = Engine(options(string(broker, "contoso"), settlement=settlement))
    assert engine.plan()
    engine.work()
    moved = elsewhere(engine, string(broker, "contoso-dr"), settlement=settlement)
    with pytest.raises(
        ForeignCheckpointError, match=r"the checkpoint belongs to the namespace .* Start a new checkpoint"
    ):
        moved.available_now()

    assert ids_in(broker, "orders", "contoso-dr") == SENT


@pytest.mark.spec("R-71")
@pytest.mark.parametrize("done", [0, 1], ids=["the first batch", "a later batch"])
def test_a_repeated_batch_does_not_run_on_another_namespace(broker: Broker, done: int) -> None:
    engine = Engine(options(string(broker, "contoso"), settlement="complete", maxMessagesPerTrigger="2"))
    for _ in range(done):
        assert engine.plan()
        engine.work()
    assert engine.plan()  # in the offset log, and then the driver was killed
    moved = elsewhere(engine, string(broker, "contoso-dr"), settlement="complete")
    with pytest.raises(ForeignCheckpointError):
        moved.work()

    assert ids_in(broker, "orders", "contoso-dr") == SENT


@pytest.mark.spec("R-71")
def test_a_task_whose_reference_changed_settles_nothing(broker: Broker, tmp_path: Path) -> None:
    reference = tmp_path / "connection"
    reference.write_text(string(broker, "contoso"))
    engine = Engine(options(f"file:{reference}", settlement="complete", maxMessagesPerTrigger="2"))
    assert engine.plan()
    engine.work()
    assert engine.plan()
    start, end = engine.start, engine.offsets[engine.done]
    (partition,) = engine.reader.partitions(start, end)
    broker.namespace("contoso").take_down("reset")  # the next question opens another connection
    reference.write_text(string(broker, "contoso-dr"))
    with pytest.raises(ForeignCheckpointError):
        list(engine.reader.read(partition))

    assert ids_in(broker, "orders", "contoso-dr") == SENT


@pytest.mark.spec("R-71")
def test_an_old_checkpoint_is_refused_where_it_would_complete_and_adopted_elsewhere(
    broker: Broker,
) -> None:
    old = {"orders": 3, "orders@until": 2**50}
    consuming = Engine(options(string(broker, "contoso"), settlement="complete"))
    consuming.offsets, consuming.done = [old], 1
    with pytest.raises(ForeignCheckpointError, match="does not record its namespace"):
        consuming.available_now()
    browsing = Engine(options(string(broker, "contoso")))
    browsing.offsets, browsing.done = [{"orders": 3}], 1

    assert browsing.available_now() == ["body of m3", "body of m4"]
    assert origin_in(browsing.offsets[-1]) == browsing.options.namespace.origin
    assert ids_in(broker, "orders") == SENT


@pytest.mark.spec("R-71")
def test_a_checkpoint_of_a_peeking_query_does_not_start_to_consume(broker: Broker) -> None:
    """It may have begun behind unread messages, as this one did."""
    browsing = Engine(options(string(broker, "contoso"), startingSequenceNumbers='{"orders": 4}'))
    assert browsing.available_now() == ["body of m3", "body of m4"]
    consuming = elsewhere(browsing, string(broker, "contoso"), settlement="complete")
    with pytest.raises(ForeignCheckpointError, match="settlement=none and completed nothing"):
        consuming.available_now()

    assert ids_in(broker, "orders") == SENT


@pytest.mark.spec("R-71")
def test_a_deferred_settlement_does_not_complete_messages_of_a_recreated_entity(
    broker: Broker,
) -> None:
    """The entity is created again, and the batch after that could not settle: the next one would."""
    namespace = broker.namespace("contoso")
    engine = Engine(options(string(broker, "contoso"), settlement="complete"))
    assert engine.plan()
    engine.work()
    namespace.delete_queue("orders")
    namespace.create_queue("orders")
    send(broker, "orders", [f"new {number}" for number in range(8)])
    with pytest.raises(Exception, match="deleted and created again since this checkpoint"):
        engine.plan()

    assert namespace.counts("orders").active == 8


@pytest.mark.parametrize(
    "netloc",
    ["contoso.example", "Contoso.Example:5671", "sb://contoso.example/", "sb://contoso.example:5671"],
)
def test_a_namespace_is_identified_by_its_host_in_any_spelling(netloc: str) -> None:
    assert origin_name(netloc) == "contoso.example"
    assert origin_name("localhost:5672") != origin_name("localhost:5673")


def test_an_unchanged_offset_has_the_same_text() -> None:
    offset = with_origin({"b": 1, "a": 2}, "contoso")
    again = with_origin(
        {name: number for name, number in offset.items() if isinstance(number, int)}, "contoso"
    )

    assert json.dumps(offset) == json.dumps(again)
    check_origin({"@namespace": "contoso"}, "contoso", settles=True)
    check_origin({}, "contoso", settles=True)


@pytest.mark.spec("R-71", "R-72")
def test_an_outage_of_ten_minutes_with_a_switch_of_namespace_loses_nothing(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The time is driven. An operator switches the string half-way, and a query of its own reads the other side."""
    clock = Clock(monkeypatch)
    monkeypatch.setattr(entities, "PAUSE", 0.0)
    reference = tmp_path / "connection"
    reference.write_text(string(broker, "contoso"))
    engine = Engine(options(f"file:{reference}", settlement="complete", maxMessagesPerTrigger="2"))
    assert engine.plan()
    engine.work()
    broker.namespace("contoso").take_down("refuse")
    began = clock.now
    while clock.now < began + 300:
        assert not engine.plan(), "nothing new, and no error"
    assert message_source.OUTAGE in (engine.reader.reportLatestOffset() or {})

    reference.write_text(string(broker, "contoso-dr"))
    with pytest.raises(ForeignCheckpointError, match=r"belongs to the namespace .* Start a new checkpoint"):
        [engine.plan() for _ in range(600)]
    assert ids_in(broker, "orders", "contoso-dr") == SENT, "nothing was completed unread"
    other = Engine(options(string(broker, "contoso-dr"), settlement="complete"))
    assert len(other.available_now()) == len(SENT)
    assert ids_in(broker, "orders", "contoso-dr") == []

    reference.write_text(string(broker, "contoso"))
    engine.restart()
    while clock.now < began + 600:
        assert not engine.plan()
    broker.namespace("contoso").bring_up()
    while len(engine.sink) < len(SENT):
        if engine.plan():
            engine.work()
    for _ in range(3):
        engine.plan()
    assert engine.sink == [f"body of {each}" for each in SENT], "each once"
    assert ids_in(broker, "orders", "contoso") == []
