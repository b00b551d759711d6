"""One side of a pair ends: what becomes of the other? (P-50, G-25) Both skins, against the real broker."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusAuthenticationError, ServiceBusError

from sbpair import (
    EntityRecovered,
    EntityState,
    PairedServiceBusClient,
    PairFaulted,
    PairFaultedError,
    Rest,
    SideClosed,
    SideFaulted,
    SideRecovered,
    SideState,
)
from sbpair.pairing.bond import Role
from tests.outage.conftest import AsyncPairing, Pairing


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a second in place of five: the machine's own tests have the true number."""
    monkeypatch.setattr("sbpair.pairing.bond.GRACE", 0.5)
    monkeypatch.setattr("sbpair.pairing.bond.LOOK", 0.1)


def with_a_wrong_key(connection_string: str) -> str:
    return re.sub("SharedAccessKey=[^;]+", "SharedAccessKey=d3Jvbmc=", connection_string)


def strings(pairing: Pairing | AsyncPairing, *, wrong: str) -> tuple[str, str]:
    both = {
        "primary": pairing.primary.connection_string,
        "secondary": pairing.secondary.connection_string,
    }
    both[wrong] = with_a_wrong_key(both[wrong])
    return both["primary"], both["secondary"]


@pytest.mark.spec("P-50", "G-25")
@pytest.mark.parametrize("side", ["primary", "secondary"])
def test_a_side_that_is_closed_alone_faults_the_pair(pairing: Pairing, soon: None, side: str) -> None:
    client = pairing.client(ping=60)
    sender = client.get_queue_sender("orders")
    sender.send_messages(ServiceBusMessage("before"))
    getattr(client, side).close()
    assert getattr(client, side).state is SideState.CLOSED
    told = pairing.wait_for(SideClosed)
    assert told.side == side
    pairing.wait_for(PairFaulted)
    with pytest.raises(PairFaultedError) as raised:
        sender.send_messages(ServiceBusMessage("after"))
    assert raised.value.side == side
    for words in (client.primary.endpoint, client.secondary.endpoint, side, "close() was called"):
        assert words in str(raised.value)
    with pytest.raises(PairFaultedError):
        client.get_queue_sender("orders")
    with pytest.raises(PairFaultedError):
        client.get_queue_receiver("orders")


@pytest.mark.spec("P-50")
def test_closing_both_sides_closes_the_client(pairing: Pairing, soon: None) -> None:
    client = pairing.client()
    sender = client.get_queue_sender("orders")
    sender.send_messages(ServiceBusMessage("one"))
    client.primary.close()
    client.secondary.close()
    with pytest.raises(ValueError, match="closed"):
        sender.send_messages(ServiceBusMessage("two"))
    assert not [event for event in pairing.told if isinstance(event, PairFaulted)]


@pytest.mark.spec("P-50", "P-33")
def test_until_then_the_side_that_is_open_takes_what_is_for_it_and_pings_have_ended(
    pairing: Pairing, failed_over: Callable[..., PairedServiceBusClient]
) -> None:
    client = failed_over(ping=1)
    sender = client.get_queue_sender("orders")
    client.primary.close()
    pairing.primary.bring_up()
    pings = client.pings_sent
    assert sender.send_messages(ServiceBusMessage("parked")).rests is Rest.BACKLOG
    with pytest.raises(ValueError, match=r"primary side .* is closed"):
        client.get_queue_sender("others").send_messages(ServiceBusMessage("x"))
    pairing.wait_for(PairFaulted)
    assert client.pings_sent == pings
    assert client.state_of("orders") is EntityState.FAILED_OVER
    assert not [event for event in pairing.told if isinstance(event, EntityRecovered)]


@pytest.mark.spec("P-50", "F-41")
def test_a_refused_key_of_the_primary_faults_the_pair(pairing: Pairing, soon: None) -> None:
    client = pairing.client_of(*strings(pairing, wrong="primary"))
    sender = client.get_queue_sender("orders")
    with pytest.raises(ServiceBusAuthenticationError):
        sender.send_messages(ServiceBusMessage("refused"))
    assert pairing.wait_for(SideFaulted).side == "primary"
    pairing.wait_for(PairFaulted)
    with pytest.raises(PairFaultedError, match="401"):
        sender.send_messages(ServiceBusMessage("x"))
    assert pairing.primary.counts("orders").active == 0


@pytest.mark.spec("P-50")
def test_a_refused_key_of_the_secondary_is_found_when_it_is_needed(pairing: Pairing, soon: None) -> None:
    client = pairing.client_of(*strings(pairing, wrong="secondary"))
    sender = client.get_queue_sender("orders")
    assert sender.send_messages(ServiceBusMessage("x")).rests is Rest.PRIMARY  # P-2
    client.fail_over("orders")
    with pytest.raises(ServiceBusError):
        sender.send_messages(ServiceBusMessage("y"))
    assert pairing.wait_for(PairFaulted).side == "secondary"
    with pytest.raises(PairFaultedError):
        sender.send_messages(ServiceBusMessage("z"))


@pytest.mark.spec("P-50", "P-2", "F-42")
def test_a_refusal_by_one_entity_is_no_fault_of_its_namespace(pairing: Pairing, soon: None) -> None:
    client = pairing.client()
    with pytest.raises(ServiceBusError):
        client.get_queue_sender("no-such-queue").send_messages(ServiceBusMessage("x"))
    assert client.primary.state is SideState.OPEN
    assert client.get_queue_sender("orders").send_messages(ServiceBusMessage("y")).rests is Rest.PRIMARY


@pytest.mark.spec("P-50", "G-25")
@pytest.mark.parametrize("side", ["primary", "secondary"])
async def test_with_asyncio_a_side_that_is_closed_alone_faults_the_pair(
    aio_pairing: AsyncPairing, soon: None, side: str
) -> None:
    client = aio_pairing.client(ping=60)
    sender = client.get_queue_sender("orders")
    await sender.send_messages(ServiceBusMessage("before"))
    await getattr(client, side).close()
    await aio_pairing.heard(SideClosed)
    await aio_pairing.heard(PairFaulted)
    with pytest.raises(PairFaultedError) as raised:
        await sender.send_messages(ServiceBusMessage("after"))
    assert raised.value.side == side
    with pytest.raises(PairFaultedError):
        client.get_queue_receiver("orders")


@pytest.mark.spec("P-50")
async def test_with_asyncio_closing_both_sides_closes_the_client(
    aio_pairing: AsyncPairing, soon: None
) -> None:
    client = aio_pairing.client()
    sender = client.get_queue_sender("orders")
    await sender.send_messages(ServiceBusMessage("one"))
    await client.secondary.close()
    await client.primary.close()
    with pytest.raises(ValueError, match="closed"):
        await sender.send_messages(ServiceBusMessage("two"))


@pytest.mark.spec("P-50", "F-41")
async def test_with_asyncio_a_refused_key_faults_the_pair(aio_pairing: AsyncPairing, soon: None) -> None:
    client = aio_pairing.client_of(*strings(aio_pairing, wrong="primary"))
    sender = client.get_queue_sender("orders")
    with pytest.raises(ServiceBusAuthenticationError):
        await sender.send_messages(ServiceBusMessage("refused"))
    await aio_pairing.heard(PairFaulted)
    with pytest.raises(PairFaultedError, match="401"):
        await sender.send_messages(ServiceBusMessage("x"))


@pytest.mark.spec("P-50")
async def test_with_asyncio_a_call_under_way_ends_with_the_fault(
    aio_pairing: AsyncPairing, soon: None
) -> None:
    from sbpair.broker.faults import Withhold

    client = aio_pairing.client(timeout=30)
    sender = client.get_queue_sender("orders")
    await sender.send_messages(ServiceBusMessage("opened"))
    with aio_pairing.primary.fault("orders", Withhold()):
        hanging = asyncio.create_task(sender.send_messages(ServiceBusMessage("hangs")))
        await client.secondary.close()
        with pytest.raises(PairFaultedError):
            await asyncio.wait_for(hanging, 10)


@pytest.mark.spec("P-50")
def test_a_key_that_is_cured_in_time_ends_nothing(pairing: Pairing, monkeypatch: pytest.MonkeyPatch) -> None:
    from azure.core.credentials import AzureNamedKeyCredential

    monkeypatch.setattr("sbpair.pairing.bond.LOOK", 0.2)
    fields = dict(part.split("=", 1) for part in pairing.primary.connection_string.split(";") if part)
    credential = AzureNamedKeyCredential(fields["SharedAccessKeyName"], "wrong")
    client = pairing.client_with(credential)
    sender = client.get_queue_sender("orders")
    with pytest.raises(ServiceBusError):
        sender.send_messages(ServiceBusMessage("refused"))
    pairing.wait_for(SideFaulted)
    credential.update(fields["SharedAccessKeyName"], fields["SharedAccessKey"])
    pairing.wait_for(SideRecovered)  # a look, and no send, found it
    assert client.primary.state is SideState.OPEN
    assert sender.send_messages(ServiceBusMessage("x")).rests is Rest.PRIMARY


@pytest.mark.spec("P-50")
def test_a_look_that_finds_only_an_entity_missing_was_answered_by_the_namespace(pairing: Pairing) -> None:
    client = pairing.client()
    with pytest.raises(ServiceBusError):
        client.get_queue_sender("no-such-queue").send_messages(ServiceBusMessage("x"))
    client._runtime.side_refused(Role.PRIMARY, "status 401")
    pairing.wait_for(SideRecovered)
    assert client.primary.state is SideState.OPEN


@pytest.mark.spec("P-50")
async def test_with_asyncio_such_a_look_was_answered_too(aio_pairing: AsyncPairing) -> None:
    client = aio_pairing.client()
    with pytest.raises(ServiceBusError):
        await client.get_queue_sender("no-such-queue").send_messages(ServiceBusMessage("x"))
    client._runtime.side_refused(Role.PRIMARY, "status 401")
    await aio_pairing.heard(SideRecovered)
    assert client.primary.state is SideState.OPEN
