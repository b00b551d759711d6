"""Creating the backlog queues: when a client is created, on first need, and not at all."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta

import pytest
from azure.core.exceptions import ResourceExistsError
from azure.servicebus import ServiceBusMessage
from azure.servicebus.management import ServiceBusAdministrationClient

from sbpair import BacklogUnavailableError, ObservationOptions, PairedServiceBusClient, StoredIn
from sbpair.broker import Conflict
from sbpair.broker.errors import OperationInProgressError
from sbpair.broker.frontends.admin import error_texts
from sbpair.broker.frontends.admin.error_texts import Asked, Row
from sbpair.broker.frontends.admin.requests import _Call
from sbpair.contract.cli.doctor.probes import read_sender
from sbpair.events import BacklogsCreated, BacklogsNotCreated
from sbpair.pair.pairing.outcome import Failure
from sbpair.pair.pairing.request.classify import classify
from sbpair.pair.pairing.shared.backlog import Backlogs, differences
from tests.pair.outage.conftest import options_of
from tests.pair.runtimes import runtime_of
from tests.waiting import PATIENCE, wait_until

NAMES = ["contoso/x-servicebus-transfer/0", "contoso/x-servicebus-transfer/1"]


@pytest.mark.spec("P-1", "P-10", "P-11")
def test_making_a_client_makes_its_backlog_queues_as_the_articles_say(pairing) -> None:
    pairing.client(backlogs=2)
    event = pairing.wait_for(BacklogsCreated)
    assert sorted(event.created) == NAMES
    assert pairing.secondary.queue_names() == NAMES
    with ServiceBusAdministrationClient.from_connection_string(
        pairing.secondary.connection_string, connection_verify=str(pairing.broker.ca_file)
    ) as administration:
        queue = administration.get_queue(NAMES[0])
        assert queue.max_size_in_megabytes == 5120
        assert queue.max_delivery_count == 2**31 - 1
        assert queue.default_message_time_to_live > timedelta(days=10_000_000)
        assert queue.auto_delete_on_idle > timedelta(days=10_000_000)
        assert queue.lock_duration == timedelta(minutes=1)
        assert queue.dead_lettering_on_message_expiration is True
        assert queue.enable_batched_operations is True
        assert differences(queue) == []


@pytest.mark.spec("P-1")
def test_a_late_listener_is_told_of_the_created_backlogs(pairing) -> None:
    client = PairedServiceBusClient.from_connection_strings(
        pairing.primary.connection_string,
        pairing.secondary.connection_string,
        options=options_of(),
        connection_verify=str(pairing.broker.ca_file),
    )
    runtime_of(client)._workers.join(PATIENCE)  # the thread that makes them has told it
    pairing.watched(client)
    assert sorted(pairing.wait_for(BacklogsCreated).created) == NAMES


@pytest.mark.spec("P-12", "P-13")
def test_only_missing_backlogs_are_created_and_extra_ones_kept(pairing) -> None:
    pairing.secondary.create_queue(NAMES[0])
    pairing.secondary.create_queue("contoso/x-servicebus-transfer/7")
    pairing.client(backlogs=2)
    assert pairing.wait_for(BacklogsCreated).created == (NAMES[1],)
    assert len(pairing.secondary.queue_names()) == 3


@pytest.mark.spec("P-11", "P-12", "W-4")
@pytest.mark.parametrize(
    "words",
    [
        "SubCode=40901. {text}",  # 2015, 2016
        "Resource Conflict Occurred. Another conflicting operation may be in progress.",  # since 2019
        "Something else is going on.",  # as it may be one day
    ],
)
def test_a_backlog_whose_creation_conflicts_is_not_taken_for_an_existing_one(
    pairing, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    monkeypatch.setattr(error_texts, "ROWS", (Row(OperationInProgressError, tuple(Asked), words),))

    def administration() -> ServiceBusAdministrationClient:
        return ServiceBusAdministrationClient.from_connection_string(
            pairing.secondary.connection_string, connection_verify=str(pairing.broker.ca_file)
        )

    backlogs = Backlogs("contoso", 1, administration)
    with pairing.secondary.fault(None, Conflict(), times=1):
        with pytest.raises(ResourceExistsError) as refused:
            backlogs.ensure()
        assert classify(refused.value).failure is Failure.UNAVAILABLE  # it is tried again
        assert backlogs.ensure() == (NAMES[0],)
        assert backlogs.ensure() == ()


@pytest.mark.spec("P-14", "F-47")
def test_a_backlog_with_other_settings_is_used_and_logged(
    pairing, failed_over, caplog: pytest.LogCaptureFixture
) -> None:
    pairing.secondary.create_queue(NAMES[0], max_delivery_count=10)
    with caplog.at_level(logging.WARNING, logger="sbpair"):
        client = failed_over(backlogs=1, ping=60)
        pairing.wait_for(BacklogsCreated)
    assert any("max_delivery_count is 10" in record.getMessage() for record in caplog.records)
    assert client.get_queue_sender("orders").send_messages(ServiceBusMessage("x")).backlog == 0


@pytest.mark.spec("P-2", "F-36")
def test_a_secondary_that_is_down_does_not_stop_a_client_from_using_its_primary(pairing) -> None:
    pairing.secondary.take_down("refuse")
    client = pairing.client(ping=60)
    sender = client.get_queue_sender("orders")
    assert sender.send_messages(ServiceBusMessage("x")).stored_in is StoredIn.PRIMARY
    pairing.secondary.bring_up()
    pairing.wait_for(BacklogsCreated)


@pytest.mark.spec("P-12", "F-46")
def test_a_backlog_deleted_meanwhile_is_made_again_at_first_need(pairing) -> None:
    client = pairing.client(backlogs=2, ping=60)
    pairing.wait_for(BacklogsCreated)
    for name in NAMES:
        pairing.secondary.delete_queue(name)
    pairing.primary.take_down("refuse")
    client.fail_over("orders")
    receipt = client.get_queue_sender("orders").send_messages(ServiceBusMessage("x"))
    assert pairing.secondary.queue_names() == [NAMES[receipt.backlog]]


@pytest.mark.spec("P-12")
def test_no_backlog_is_created_where_they_are_assumed(pairing, failed_over) -> None:
    client = failed_over(backlogs=1, ping=60, assume_backlogs_exist=True)
    sender = client.get_queue_sender("orders")
    with pytest.raises(BacklogUnavailableError):
        sender.send_messages(ServiceBusMessage("x"))
    assert pairing.secondary.queue_names() == []
    pairing.secondary.create_queue(NAMES[0])
    assert sender.send_messages(ServiceBusMessage("x")).backlog == 0


@pytest.mark.slow
@pytest.mark.spec("H-50")
def test_forty_clients_that_start_together_make_sixty_administration_calls_at_most(
    pairing, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(10):
        pairing.secondary.create_queue(f"contoso/x-servicebus-transfer/{number}")
    for number in range(40):
        pairing.secondary.create_queue(f"of-the-application-{number}")
    asked: list[str] = []
    answer = _Call.answer
    monkeypatch.setattr(_Call, "answer", lambda self: (asked.append(self.request.raw_path), answer(self))[1])
    for _ in range(40):
        pairing.client(interval=60, backlogs=10)
    wait_until(lambda: len([each for each in pairing.told if isinstance(each, BacklogsCreated)]) == 40)
    assert {each.created for each in pairing.told if isinstance(each, BacklogsCreated)} == {()}
    assert 40 <= len(asked) <= 60, len(asked)


@pytest.mark.spec("R-160")
def test_the_missing_backlogs_state_ends_without_a_send(pairing) -> None:
    pairing.secondary.take_down("refuse")
    client = pairing.client(ping=60)
    wait_until(lambda: runtime_of(client).backlogs_missing_because != "", PATIENCE)
    pairing.secondary.bring_up()
    wait_until(lambda: runtime_of(client).backlogs_missing_because == "", PATIENCE)


@pytest.mark.spec("R-160")
def test_every_outage_error_and_the_doctor_say_why_the_backlog_queues_are_missing(
    pairing,
) -> None:
    sender_only = pairing.secondary.add_policy("sender", rights=("Send",))
    watched = ObservationOptions(status=("127.0.0.1", 0))
    client = pairing.client_of(
        pairing.primary.connection_string, sender_only, options=options_of(observation=watched)
    )
    sender = client.get_queue_sender("orders")
    cause = pairing.wait_for(BacklogsNotCreated).cause
    pairing.primary.take_down("refuse")
    for _ in range(5):
        with pytest.raises(
            BacklogUnavailableError, match="The backlog queues could not be ensured"
        ) as raised:
            sender.send_messages(ServiceBusMessage("x"))
        assert cause in str(raised.value)
    seen = asyncio.run(read_sender(f"http://127.0.0.1:{runtime_of(client)._observer.port}"))
    assert seen.backlogs_missing == cause
