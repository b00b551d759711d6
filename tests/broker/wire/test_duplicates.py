"""The unmodified SDK sends the same message twice."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from azure.core.exceptions import HttpResponseError
from azure.servicebus import ServiceBusMessage
from azure.servicebus.management import ServiceBusAdministrationClient


@pytest.fixture
def queue(make_queue):
    """The path of a queue that detects duplicates, for 20 seconds."""
    return make_queue(requires_duplicate_detection=True, duplicate_detection_history_time_window=20_000)


def test_a_second_copy_is_accepted_and_dropped_until_the_window_has_passed(client, contoso, queue, broker):
    with client.get_queue_sender(queue) as sender:
        sender.send_messages(ServiceBusMessage("first", message_id="m"))
        sender.send_messages(ServiceBusMessage("second", message_id="m"))
        sender.send_messages(
            [ServiceBusMessage("third", message_id="m"), ServiceBusMessage("o", message_id="o")]
        )
        assert contoso.counts(queue).active == 2
        broker.advance(timedelta(seconds=21))
        sender.send_messages(ServiceBusMessage("fourth", message_id="m"))
    with client.get_queue_receiver(queue) as receiver:
        assert [str(message) for message in receiver.receive_messages(5, max_wait_time=20)] == [
            "first",
            "o",
            "fourth",
        ]


def test_a_message_that_is_scheduled_again_keeps_its_number(client, contoso, queue):
    at = datetime.now(UTC) + timedelta(days=365)
    with client.get_queue_sender(queue) as sender:
        numbers = [sender.schedule_messages(ServiceBusMessage("x", message_id="m"), at) for _ in range(2)]
        assert numbers == [[1], [1]]
        sender.send_messages(ServiceBusMessage("x", message_id="m"))
    assert (contoso.counts(queue).scheduled, contoso.counts(queue).active) == (1, 0)


def test_the_administration_client_creates_duplicate_detection_and_cannot_change_it(broker, contoso):
    path = "made-by-the-administration-client"
    with ServiceBusAdministrationClient.from_connection_string(
        contoso.connection_string, connection_verify=str(broker.ca_file), retry_total=0
    ) as admin:
        made = admin.create_queue(
            path,
            requires_session=True,
            requires_duplicate_detection=True,
            duplicate_detection_history_time_window=timedelta(minutes=1),
        )
        assert (made.requires_session, made.requires_duplicate_detection) == (True, True)
        assert made.duplicate_detection_history_time_window == timedelta(minutes=1)
        made.requires_session = False
        with pytest.raises(
            HttpResponseError,
            match="value for the RequiresSession property of an existing Queue cannot be changed",
        ):
            admin.update_queue(made)
        made.requires_session = True
        made.duplicate_detection_history_time_window = timedelta(minutes=2)
        admin.update_queue(made)
        got = admin.get_queue(path)
        assert got.duplicate_detection_history_time_window == timedelta(minutes=2)
        admin.delete_queue(path)
