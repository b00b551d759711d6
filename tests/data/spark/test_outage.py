"""A stream during an outage or throttling waits, reports it and goes on, without a JVM."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import pytest

from sbpair.broker import Broker, Throttle
from sbpair.data.spark import entities, message_source, sending
from sbpair.data.spark.entities import Entities
from sbpair.data.spark.message_sink import SinkOptions, client_of, destination
from sbpair.data.spark.message_source import MessageReader, MessageStreamReader
from sbpair.data.spark.outage import OutageState, pause_of
from sbpair.data.spark.outgoing import id_maker, outgoing
from sbpair.data.spark.sending import Sending
from sbpair.data.spark.source_errors import NoAnswerError, SourceError
from sbpair.data.spark.source_options import SourceOptions
from tests.data.spark import message_rows
from tests.data.spark.ledger import bodies_in, send, string
from tests.data.spark.message_rows import schema
from tests.data.spark.test_message_source import Engine


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker({"contoso": 0, "contoso-dr": 0}) as running:
        running.namespace("contoso").create_queue("orders")
        yield running


def options(broker: Broker, **more: str) -> SourceOptions:
    given = {"connectionString": string(broker, "contoso"), "queueName": "orders", "safetyLagMs": "0"}
    given["minPollIntervalSeconds"] = "0"
    return SourceOptions.of(given | {"operationTimeoutSeconds": "30"} | more)


def instead_of_sleep(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> list[float]:
    """Replace waiting: the first wait calls ``act``. Return the requested waits."""
    asked: list[float] = []

    def sleep(seconds: float) -> None:
        if seconds:
            asked.append(seconds)
            if len(asked) == 1:
                act()

    for module in (entities, message_source, sending):
        monkeypatch.setattr(module, "sleep", sleep)
    return asked


def asked_again(engine: Engine) -> bool:
    """Plan again after the wait."""
    engine.reader._outage.retry_at = 0.0
    return engine.plan()


@pytest.mark.spec("R-72")
@pytest.mark.parametrize("how", ["reset", "refuse", "silent"])
def test_a_stream_waits_through_an_outage_and_reports_it_in_its_progress(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    send(broker, "orders", ["a"])
    patience = {"operationTimeoutSeconds": "4"} if how == "silent" else {}  # that one uses it up
    engine = Engine(options(broker, settlement="complete", **patience))
    assert engine.plan()
    engine.work()
    waits = instead_of_sleep(monkeypatch, lambda: None)
    broker.namespace("contoso").take_down(how)
    for _ in range(2):
        assert not engine.plan(), "nothing new, and no error"
    assert max(waits) <= message_source.POLL, "a query that is stopped is not held up"
    told = engine.reader.reportLatestOffset()
    assert told is not None
    assert "since 20" in str(told[message_source.OUTAGE])
    assert told["orders"] == 1

    broker.namespace("contoso").bring_up()
    send(broker, "orders", ["b"])
    assert asked_again(engine)
    assert engine.work() == ["body of b"]
    assert message_source.OUTAGE not in (engine.reader.reportLatestOffset() or {})


@pytest.mark.spec("R-72")
@pytest.mark.parametrize("operation", ["manage", "attach"])
def test_a_stream_waits_through_a_throttle(broker: Broker, operation: str) -> None:
    send(broker, "orders", ["a"])
    engine = Engine(options(broker, settlement="complete"))
    with broker.namespace("contoso").fault("orders", Throttle(), operation=operation):
        assert not engine.plan()
        outage = engine.reader._outage
        assert outage.began is not None
        assert outage.retry_at - outage.began >= 2, "what the service asks for"
    assert asked_again(engine)
    assert engine.work() == ["body of a"]


@pytest.mark.spec("R-72")
@pytest.mark.parametrize("settlement", ["none", "complete"])
def test_a_task_waits_through_an_outage_and_reads_each_message_once(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, settlement: str
) -> None:
    sent = [f"m{number:03}" for number in range(450)]  # three pages
    send(broker, "orders", sent)
    engine = Engine(options(broker, settlement=settlement))
    assert engine.plan()
    (task,) = engine.reader.partitions(engine.start, engine.offsets[-1])
    namespace = broker.namespace("contoso")
    waits = instead_of_sleep(monkeypatch, namespace.bring_up)
    rows = engine.reader.read(task)
    found = [next(rows)]
    namespace.take_down("reset")
    found += rows

    assert [row["body"].decode() for row in message_rows.rows(found)] == [f"body of {each}" for each in sent]
    assert waits


@pytest.mark.spec("R-72")
def test_a_throttled_task_waits_for_the_requested_time(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(broker, "orders", ["a"])
    engine = Engine(options(broker))
    assert engine.plan()
    (task,) = engine.reader.partitions(engine.start, engine.offsets[-1])
    namespace = broker.namespace("contoso")
    with namespace.fault("orders", Throttle(), operation="manage") as active:
        waits = instead_of_sleep(monkeypatch, lambda: namespace.clear_fault(active))
        assert len(message_rows.rows(engine.reader.read(task))) == 1
    assert waits[0] >= 2


@pytest.mark.spec("R-72")
def test_a_stream_gives_up_when_its_outage_timeout_is_over(broker: Broker) -> None:
    engine = Engine(options(broker, outageTimeout="0"))
    broker.namespace("contoso").take_down("refuse")
    with pytest.raises(NoAnswerError, match="check the address and the network"):
        engine.plan()


@pytest.mark.spec("R-72")
def test_an_available_now_run_does_not_end_as_empty_in_an_outage(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(broker, "orders", ["a"])
    namespace = broker.namespace("contoso")
    waits = instead_of_sleep(monkeypatch, namespace.bring_up)
    engine = Engine(options(broker, settlement="complete"))
    namespace.take_down("refuse")

    assert engine.available_now() == ["body of a"]
    assert waits
    namespace.take_down("refuse")
    with pytest.raises(NoAnswerError):
        Engine(options(broker, outageTimeout="0")).available_now()


@pytest.mark.spec("R-72")
def test_by_default_a_batch_waits_a_minute_and_a_stream_forever(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits: list[float] = []

    class AskedError(Exception):
        """The namespace would be asked now."""

    def ask(given: SourceOptions, origin: str | None, patience: float) -> Entities:
        waits.append(patience)
        raise AskedError

    monkeypatch.setattr(message_source, "Entities", ask)
    for timeout in ({}, {"outageTimeout": "forever"}, {"outageTimeout": "600"}):
        given = options(broker, **timeout)
        for act in (
            MessageReader(given, schema()).partitions,
            MessageStreamReader(given, schema()).initialOffset,
        ):
            with pytest.raises(AskedError):
                act()

    assert waits == [60, math.inf, math.inf, math.inf, 600, 600]
    with pytest.raises(ValueError, match="outageTimeout must be a number of seconds"):
        options(broker, outageTimeout="soon")


@pytest.mark.spec("R-72")
def test_an_error_that_waiting_cannot_cure_ends_a_stream_at_once(broker: Broker) -> None:
    with pytest.raises(SourceError, match="check its name") as raised:
        Engine(options(broker, queueName="nowhere")).plan()
    assert not isinstance(raised.value, NoAnswerError)


@pytest.mark.spec("R-72")
def test_a_sink_retries_while_neither_namespace_accepts_a_message(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = SinkOptions.of(
        {
            "connectionString": string(broker, "contoso"),
            "secondaryConnectionString": string(broker, "contoso-dr"),
            "primaryNamespaceName": "contoso",
            "backlogQueueCount": "1",
            "caFile": str(broker.ca_file),
            "entityPath": "orders",
            "operationTimeoutSeconds": "16",
        }
    )
    both = [broker.namespace(name) for name in ("contoso", "contoso-dr")]
    for namespace in both:
        namespace.take_down("refuse")
    waits = instead_of_sleep(monkeypatch, lambda: [each.bring_up() for each in both])
    rows = [outgoing(("body",), (f"m{number}",)) for number in range(3)]
    try:
        Sending(destination(given, math.inf), id_maker("unique", "w")).send(rows)
        for namespace in both:
            namespace.take_down("refuse")
        with pytest.raises(Exception, match="No backlog queue accepted"):
            Sending(destination(given), id_maker("unique", "w")).send(rows)
    finally:
        for namespace in both:
            namespace.bring_up()
        client_of(given).close()
    home, parked = bodies_in(broker, "orders"), broker.namespace("contoso-dr")

    assert waits
    assert len(home) + parked.counts("contoso/x-servicebus-transfer/0").active == 3


def test_the_waits_of_an_outage_grow_and_end_with_its_limit() -> None:
    outage = OutageState(100.0, jitter=lambda: 1.0)
    waits, now = [], 1000.0
    while (wait := outage.failed(now)) is not None:
        waits.append(wait)
        now += wait

    assert waits[:4] == [0.5, 1.0, 2.0, 4.0]
    assert max(waits) == 30.0
    assert sum(waits) == pytest.approx(100.0)
    outage.answered()
    assert (outage.failed(now), outage.wait(now), outage.wait(now + 9)) == (0.5, 0.5, 0.0)


@pytest.mark.parametrize(("said", "pause"), [("Please wait 2 seconds and try again.", 2.0), ("busy", 10.0)])
def test_the_pause_given_by_a_throttle_is_used(said: str, pause: float) -> None:
    assert pause_of(said) == pause
    assert OutageState(math.inf).failed(0.0, pause_of(said)) == pause
