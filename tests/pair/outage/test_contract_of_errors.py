"""What a caller gets wrong raises the same error whatever the namespaces do, from either client, and stores nothing."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageProperties
from azure.servicebus.exceptions import MessageSizeExceededError, ServiceBusError

from sbpair import PairedServiceBusClient
from tests.pair.outage.conftest import Either


def with_property(value: object) -> ServiceBusMessage:
    return ServiceBusMessage("x", application_properties={"a": value})  # type: ignore[dict-item]


MISTAKES: dict[str, tuple[Callable[[], Any], type[Exception]]] = {
    "a property beyond 64 bits": (lambda: with_property(2**63), ServiceBusError),
    "a set as a property": (lambda: with_property({1, 2}), ServiceBusError),
    "an object as a property": (lambda: with_property(object()), ServiceBusError),
    "a complex number as a property": (lambda: with_property(1j), ServiceBusError),
    "a lone surrogate": (lambda: with_property("\ud800"), ServiceBusError),
    "a lone surrogate as subject": (lambda: ServiceBusMessage("x", subject="\ud800"), ServiceBusError),
    "a negative time to live": (
        lambda: ServiceBusMessage("x", time_to_live=timedelta(seconds=-1)),
        ServiceBusError,
    ),
    "a time to live beyond 32 bits": (
        lambda: ServiceBusMessage("x", time_to_live=timedelta(days=50)),
        ServiceBusError,
    ),
    "an object as the body": (lambda: AmqpAnnotatedMessage(value_body=object()), ServiceBusError),
    "a session id that is too long": (
        lambda: AmqpAnnotatedMessage(data_body=b"x", properties=AmqpMessageProperties(group_id="s" * 129)),
        ServiceBusError,
    ),
    "too large": (lambda: ServiceBusMessage(bytes(300_000)), MessageSizeExceededError),
    "a property that is too large": (lambda: with_property("x" * 33_000), MessageSizeExceededError),
    "no message": (lambda: None, TypeError),
    "a number": (lambda: 5, TypeError),
}


async def client_in(state: str, either: Either, folder: Path) -> PairedServiceBusClient:
    """A client whose queue is healthy, failed over, or whose messages go to the spool first."""
    spooled = {"spool": folder / "spool", "spool_policy": "always"} if state == "spool first" else {}
    client = either.client(interval=60, ping=60, **spooled)
    if state == "failed over":
        either.primary.take_down("refuse")
        client.hold("orders")
    return client


@pytest.mark.spec("R-155")
@pytest.mark.parametrize("form", ["message", "list"])
@pytest.mark.parametrize("state", ["healthy", "failed over", "spool first"])
async def test_a_caller_error_raises_one_error_in_every_state(
    either: Either, state: str, form: str, tmp_path: Path
) -> None:
    client = await client_in(state, either, tmp_path)
    sender = client.get_queue_sender("orders")
    raised = {}
    for name, (make, error) in MISTAKES.items():
        if (state, form, name) == ("failed over", "list", "too large"):
            continue  # the others of the list are parked: PartlyParkedError says which
        given = make() if form == "message" else [ServiceBusMessage("fits"), make()]
        try:
            await either.send(sender, given)
        except Exception as told:
            raised[name] = type(told).__name__ if not isinstance(told, error) else error.__name__
    assert raised == {name: MISTAKES[name][1].__name__ for name in raised}
    assert len(raised) >= len(MISTAKES) - 1
    either.primary.bring_up()
    stored = either.primary.counts("orders").active, sum(either.parked()), client.count_spooled()
    assert stored == (0, 0, 0)
