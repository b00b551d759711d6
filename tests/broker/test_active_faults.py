"""Overlapping standing faults: whichever ends first, the others stay, and the one set last applies."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

from sbpair.broker.access import OpenAccess
from sbpair.broker.clock import ClockReading
from sbpair.broker.entities import QueueDescription
from sbpair.broker.entities.partition import Health
from sbpair.broker.faults import Disabled, Down, FaultRule, Outage, PartitionDown
from sbpair.broker.frontends.namespace_frontend import NamespaceFrontend
from sbpair.broker.server.active_faults import ActiveFaults

from .conftest import NOON


@dataclass
class NamespaceServer:
    """A namespace server without a port, which records how it is down."""

    frontend: NamespaceFrontend
    outage: Outage | None = None
    seconds: float = 0.0
    taken_down: list[Outage] = field(default_factory=list)

    def read_clocks(self) -> ClockReading:
        return ClockReading(self.seconds, NOON, NOON, 0.0)

    def end_turn(self) -> None:
        """Do nothing: there is no connection to deliver to."""

    def take_down(self, outage: Outage, delay: float = 0.2) -> None:
        self.outage = outage
        self.taken_down.append(outage)

    def bring_up(self) -> None:
        self.outage = None


class Lab:
    def __init__(self, namespace) -> None:
        namespace.create_queue("orders", QueueDescription(), NOON)
        namespace.create_queue("parts", QueueDescription(enable_partitioning=True), NOON)
        self.namespace = namespace
        self.server = NamespaceServer(NamespaceFrontend(namespace, OpenAccess()))
        self.active_faults = ActiveFaults(self.server)

    def set(self, effect, path=None, **limits):
        active = self.server.frontend.faults.add(FaultRule(effect, path, **limits), self.server.seconds)
        return active, self.active_faults.apply()

    def end(self, active):
        self.server.frontend.faults.remove(active)
        assert self.active_faults.apply() == {}

    def seen(self):
        """Return the status of the queue, of partition 0 and of the namespace."""
        parts = self.namespace.queue("parts").partitions[0]
        return self.namespace.queue("orders").status, parts.health, self.server.outage


HEALTHY = ("Active", Health.UP, None)


@pytest.fixture
def lab(namespace):
    return Lab(namespace)


OVERLAPPING = [
    (Disabled("SendDisabled"), Disabled("Disabled"), "orders"),
    (PartitionDown(0), PartitionDown(0, throttled=True), "parts"),
    (Down("refuse"), Down("silent"), None),
]


@pytest.mark.parametrize(("lower", "upper", "path"), OVERLAPPING, ids=["status", "partition", "namespace"])
def test_when_one_of_two_faults_ends_the_other_takes_effect(lab, lower, upper, path):
    one, _ = lab.set(lower, path)
    beneath = lab.seen()
    other, _ = lab.set(upper, path)
    above = lab.seen()
    assert HEALTHY != beneath != above != HEALTHY
    lab.end(other)
    assert lab.seen() == beneath
    other, _ = lab.set(upper, path)
    lab.end(one)
    assert lab.seen() == above
    lab.end(other)
    assert lab.seen() == HEALTHY


@pytest.mark.parametrize(("lower", "upper", "path"), OVERLAPPING, ids=["status", "partition", "namespace"])
def test_each_fault_counts_only_its_own_activations(lab, lower, upper, path):
    one, _ = lab.set(lower, path)
    other, _ = lab.set(upper, path)
    lab.end(other)
    assert (one.hits, other.hits) == (1, 1)


def test_faults_of_other_entities_and_partitions_do_not_overlap(lab):
    one, _ = lab.set(Disabled(), "orders")
    lab.set(Disabled("SendDisabled"), "parts")
    lab.set(PartitionDown(1), "parts")
    lab.end(one)
    assert lab.seen() == HEALTHY
    assert lab.namespace.queue("PARTS").status == "SendDisabled"
    assert lab.namespace.queue("parts").partitions[1].health is Health.DOWN


def test_a_fault_set_first_but_starting_later_stays_underneath(lab, monkeypatch):
    monkeypatch.setattr(lab.active_faults, "_arm", lambda seconds: None)  # the test looks at the clock
    late, _ = lab.set(Disabled("SendDisabled"), "orders", after=5.0)
    lab.set(Disabled("ReceiveDisabled"), "orders", lasting=10.0)
    statuses = []
    for lab.server.seconds in (1.0, 6.0, 11.0):
        lab.active_faults.apply()
        statuses.append(lab.seen()[0])
    assert statuses == ["ReceiveDisabled", "ReceiveDisabled", "SendDisabled"]
    assert late.hits == 1


def test_operator_changes_during_a_fault_are_kept_after_it(lab):
    fault, _ = lab.set(Disabled("ReceiveDisabled"), "orders")
    asked = replace(lab.namespace.queue("orders").description, status="SendDisabled")
    assert asked.status != fault.rule.effect.status
    lab.namespace.update_queue("orders", asked, NOON)
    assert lab.seen()[0] == "ReceiveDisabled"
    lab.end(fault)
    assert lab.seen()[0] == "SendDisabled"


def test_a_fault_that_cannot_start_is_refused_and_ends_no_other(lab):
    stands, _ = lab.set(Disabled(), "orders")
    nowhere, refused = lab.set(Disabled(), "nowhere")
    assert refused.keys() == {nowhere}
    assert (stands.hits, nowhere.hits) == (1, 0)
    assert lab.seen()[0] == "Disabled"


def test_stopping_ends_all_faults(lab):
    for effect, path in ((Disabled(), "orders"), (PartitionDown(0), "parts"), (Down(), None)):
        lab.set(effect, path)
    lab.active_faults.stop()
    assert lab.seen() == HEALTHY
