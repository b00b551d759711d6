"""How often a stream polls the broker, and its progress reports, without a JVM."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from sbpair.broker import Broker
from sbpair.data.spark import message_source
from sbpair.data.spark.checkpoint import positions_in
from sbpair.data.spark.entities import Entities
from sbpair.data.spark.polling import Polling
from sbpair.data.spark.ranges import numbers
from sbpair.data.spark.source_options import SourceOptions
from tests.data.spark.ledger import send, string
from tests.data.spark.test_message_source import Engine

HOUR = 3600.0


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker({"contoso": 0}) as running:
        running.namespace("contoso").create_queue("orders")
        yield running


def options(broker: Broker, **more: str) -> SourceOptions:
    given = {"connectionString": string(broker, "contoso"), "queueName": "orders", "safetyLagMs": "0"}
    return SourceOptions.of(given | more)


class Clock:
    """Time that passes only while the reader waits."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        self.asked: list[tuple[float, str]] = []
        monkeypatch.setattr(message_source, "sleep", self.sleep)
        monkeypatch.setattr(message_source, "time", SimpleNamespace(monotonic=lambda: self.now))
        for name in ("spans", "settle"):
            monkeypatch.setattr(Entities, name, self._noted(name, getattr(Entities, name)))

    def sleep(self, seconds: float) -> None:
        assert seconds <= message_source.POLL, "a query that is stopped is not held up"
        self.now += seconds

    def _noted(self, name: str, inner: object) -> object:
        def noted(*args: object, **more: object) -> object:
            self.asked.append((self.now, name))
            return inner(*args, **more)  # type: ignore[operator]

        return noted

    def times(self, name: str) -> list[float]:
        return [when for when, what in self.asked if what == name]


@pytest.mark.spec("R-76")
def test_an_idle_query_polls_twice_a_minute_and_remembers_what_is_settled(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    send(broker, "orders", ["a", "b"])
    engine = Engine(options(broker, settlement="complete"))
    while clock.now < HOUR:
        if engine.plan():
            engine.work()

    polls = clock.times("spans")
    assert polls[:7] == [0, 1, 2, 4, 8, 16, 32]
    assert len(polls) <= HOUR / 30 + 6
    assert len(clock.times("settle")) == 1, "nothing was left the first time"
    assert broker.namespace("contoso").counts("orders").active == 0


@pytest.mark.spec("R-76")
def test_a_query_with_more_to_read_does_not_wait_and_a_finished_one_waits_a_second(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(monkeypatch)
    send(broker, "orders", list("abcdef"))
    engine = Engine(options(broker, maxMessagesPerTrigger="2"))
    for _ in range(3):
        assert engine.plan()
        engine.work()
    assert clock.now == 0
    send(broker, "orders", ["g"])
    assert engine.plan()
    assert clock.now == 1


@pytest.mark.spec("R-76")
def test_the_polling_intervals_are_configurable(broker: Broker) -> None:
    never = Polling(0, 30)
    never.polled(5.0, has_found=False, has_more=False)
    assert never.wait(5.0) == 0
    slow = Polling(10, 30)
    for now, due in ((0.0, 10), (10.0, 20), (30.0, 30), (60.0, 30)):
        slow.polled(now, has_found=False, has_more=False)
        assert slow.wait(now) == due
    slow.polled(90.0, has_found=True, has_more=False)
    assert slow.wait(90.0) == 10
    assert options(broker, minPollIntervalSeconds="5").min_poll_interval == 5
    with pytest.raises(ValueError, match="maxPollIntervalSeconds must be a number of seconds"):
        options(broker, maxPollIntervalSeconds="often")


def test_the_progress_shows_how_far_the_broker_is_ahead(broker: Broker) -> None:
    send(broker, "orders", list("abcdef"))
    engine = Engine(options(broker, maxMessagesPerTrigger="2"))
    assert engine.plan()

    latest = engine.reader.reportLatestOffset()
    assert latest is not None
    assert numbers(positions_in(latest)) == {"orders": 6}
    assert numbers(positions_in(engine.offsets[-1])) == {"orders": 2}
