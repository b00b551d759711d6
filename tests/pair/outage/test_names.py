"""The name of a namespace that is not found is looked up a few times, not for each message."""

from __future__ import annotations

import re
import socket

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from sbpair import StoredIn
from tests.pair.outage.conftest import AsyncPairing, Pairing, options_of

NAME = "primary.contoso.example"
POLICIES = pytest.mark.parametrize("policy", ["redirect", "raise"])


@pytest.fixture
def looked_up(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The look-ups of a name that does not exist."""
    made: list[object] = []
    find = socket.getaddrinfo

    def missing(host: object, *given: object, **named: object) -> object:
        if host != NAME:
            return find(host, *given, **named)  # type: ignore[arg-type]
        made.append(host)
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", missing)
    return made


def unfound(pairing: Pairing | AsyncPairing) -> str:
    return re.sub(r"//[^:/;]+", f"//{NAME}", pairing.primary.connection_string)


@pytest.mark.spec("H-23")
@POLICIES
def test_a_name_that_is_not_found_is_not_looked_up_for_each_message(
    pairing: Pairing, looked_up: list[object], policy: str
) -> None:
    options = options_of(interval=60, ping=60, suspect_policy=policy)
    client = pairing.client_of(unfound(pairing), pairing.secondary.connection_string, options=options)
    with client.get_queue_sender("orders") as sender:
        for _ in range(30):
            if policy == "redirect":
                assert sender.send_messages(ServiceBusMessage("x")).stored_in is StoredIn.BACKLOG
                continue
            with pytest.raises(ServiceBusError, match="not known"):
                sender.send_messages(ServiceBusMessage("x"))
    assert 1 <= len(looked_up) <= 5


@pytest.mark.spec("H-23")
@POLICIES
async def test_with_asyncio_an_unresolvable_name_is_not_looked_up_per_message(
    aio_pairing: AsyncPairing, looked_up: list[object], policy: str
) -> None:
    options = options_of(interval=60, ping=60, suspect_policy=policy)
    client = aio_pairing.client_of(
        unfound(aio_pairing), aio_pairing.secondary.connection_string, options=options
    )
    async with client.get_queue_sender("orders") as sender:
        for _ in range(30):
            if policy == "redirect":
                assert (await sender.send_messages(ServiceBusMessage("x"))).stored_in is StoredIn.BACKLOG
                continue
            with pytest.raises(ServiceBusError, match="not known"):
                await sender.send_messages(ServiceBusMessage("x"))
    assert 1 <= len(looked_up) <= 8
