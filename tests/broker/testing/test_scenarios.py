"""In each named scenario a paired sender loses nothing and makes at most one copy for each ambiguous send."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import timedelta

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusServerBusyError

from sbpair import EntityState
from sbpair.broker import Broker, ShiftedClock
from sbpair.broker.faults.scenarios import SCENARIOS
from sbpair.broker.testing.pair import QUICK, NamespacePair
from sbpair.testing import Ledger
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.usefixtures("forgiving_of_sockets"),
    pytest.mark.filterwarnings("ignore:unclosed <s:ResourceWarning"),
]
MESSAGES = 12
SLOW = {"ack-lost", "throttle-storm"}
OF_SENDERS = [name for name in SCENARIOS if name != "silent-receiver"]
PATIENT = replace(QUICK, operation_timeout=timedelta(seconds=60))


@pytest.fixture
def parks_early(monkeypatch):
    """Give the primary 4.5 of 60 seconds, so that a send that hangs is parked soon and has time left for that."""
    monkeypatch.setattr("sbpair.pair.pairing.decide.steps.MAX_RESERVE_SECONDS", 60.0)
    monkeypatch.setattr("sbpair.pair.pairing.decide.steps.RESERVE_SHARE", 0.925)


@pytest.fixture
def broker():
    with Broker({"contoso": 0, "contoso-dr": 0}, clock=ShiftedClock()) as running:
        yield running


@pytest.fixture
def pair(broker):
    primary, secondary = broker.namespace("contoso"), broker.namespace("contoso-dr")
    with NamespacePair(broker, primary, secondary) as paired:
        yield paired


def message(number):
    """Create message ``number``; two in three have a key, and some of these belong to the partition that is down."""
    key = f"k{number}" if number % 3 else None
    return ServiceBusMessage(f"{number}", message_id=f"m{number}", partition_key=key)


def send_all(client, ledger, pause=0.0):
    """Send each message, and again when the service is busy, as an application would."""
    with client.get_queue_sender("orders") as sender:
        for number in range(MESSAGES):
            for _ in range(40):
                ledger.attempted(f"m{number}")
                try:
                    receipt = sender.send_messages(message(number))
                except ServiceBusServerBusyError:
                    continue
                ledger.acknowledged(f"m{number}")
                ledger.ambiguous(f"m{number}", receipt.ambiguous)
                break
            time.sleep(pause)


@pytest.mark.spec("G-1", "G-4")
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in OF_SENDERS],
)
def test_a_paired_sender_loses_nothing_in_the_scenario(name, broker, pair, parks_early):
    pair.primary.create_queue("orders", enable_partitioning=name == "partition-down")
    client, ledger = pair.client(PATIENT), Ledger()
    with pair.primary.scenario(name, "orders", seed=3) as faults:
        send_all(client, ledger, pause=0.12 if name == "flapping" else 0.0)
        assert sum(fault.hits for fault in faults) > 0, "the scenario did not apply"
    broker.advance(timedelta(minutes=2))  # delayed messages become visible
    wait_until(lambda: client.state_of("orders") is EntityState.HEALTHY)
    pair.drain()
    ledger.received_all(pair.receive_all("orders"))

    report = ledger.check()
    assert report.is_conserved, report
    assert report.is_bounded, report
    assert report.acknowledged == MESSAGES, report


def test_under_silent_receiver_the_next_receiver_gets_everything(broker, pair):
    pair.primary.create_queue("orders")
    with pair.client() as client, client.get_queue_sender("orders") as sender:
        sender.send_messages([message(number) for number in range(MESSAGES)])
    sdk = ServiceBusClient.from_connection_string(pair.primary.connection_string)
    with sdk, pair.primary.scenario("silent-receiver", "orders"), sdk.get_queue_receiver("orders") as silent:
        assert silent.receive_messages(MESSAGES, max_wait_time=1) == []
        assert pair.primary.counts("orders").active == MESSAGES
        with sdk.get_queue_receiver("orders") as other:
            received = []
            while len(received) < MESSAGES:
                received += other.receive_messages(MESSAGES, max_wait_time=20)
    assert [each.message_id for each in received] == [f"m{number}" for number in range(MESSAGES)]
    assert {each.delivery_count for each in received} == {0}
