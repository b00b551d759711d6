"""One side of a pair is closed or refuses its key, and what that does to the other (P-50, G-25, R-1)."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable

import pytest
from azure.core.credentials import AzureNamedKeyCredential
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusAuthenticationError, ServiceBusError

from sbpair import (
    BacklogUnavailableError,
    EntityRecovered,
    EntityState,
    PairedServiceBusClient,
    PairFaulted,
    PairFaultedError,
    SideClosed,
    SideFaulted,
    SideRecovered,
    SideState,
    StoredIn,
    aio,
)
from sbpair.broker import NamespaceControl
from sbpair.broker.faults import Withhold
from sbpair.pair.ground.side import Side
from tests.pair.outage.conftest import AsyncPairing, Either, Pairing, options_of
from tests.waiting import PATIENCE


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the grace period to half a second; the tests of the pair state check the real five seconds."""
    monkeypatch.setattr("sbpair.pair.pairing.decide.pair_state.GRACE", 0.5)
    monkeypatch.setattr("sbpair.pair.pairing.decide.pair_state.LOOK", 0.1)


@pytest.fixture
def late(monkeypatch: pytest.MonkeyPatch) -> None:
    """Extend the grace period to ten minutes, so that a slow machine closes the partner in time."""
    monkeypatch.setattr("sbpair.pair.pairing.decide.pair_state.GRACE", 600.0)


def with_a_wrong_key(connection_string: str) -> str:
    return re.sub("SharedAccessKey=[^;]+", "SharedAccessKey=d3Jvbmc=", connection_string)


def policy_of(namespace: NamespaceControl) -> tuple[str, str]:
    """Return the policy name and the key of a namespace's connection string."""
    fields = dict(part.split("=", 1) for part in namespace.connection_string.split(";") if part)
    return fields["SharedAccessKeyName"], fields["SharedAccessKey"]


def strings(pairing: Pairing | AsyncPairing | Either, *, wrong: str) -> tuple[str, str]:
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
def test_closing_both_sides_closes_the_client(pairing: Pairing, late: None) -> None:
    client = pairing.client()
    sender = client.get_queue_sender("orders")
    sender.send_messages(ServiceBusMessage("one"))
    client.primary.close()
    client.secondary.close()
    with pytest.raises(ValueError, match="closed"):
        sender.send_messages(ServiceBusMessage("two"))
    assert not [event for event in pairing.told if isinstance(event, PairFaulted)]


@pytest.mark.slow
@pytest.mark.spec("P-50", "P-33")
def test_until_then_the_side_that_is_open_takes_what_is_for_it_and_pings_have_ended(
    pairing: Pairing, failed_over: Callable[..., PairedServiceBusClient]
) -> None:
    client = failed_over(ping=1)
    sender = client.get_queue_sender("orders")
    client.primary.close()
    pairing.primary.bring_up()
    pings = client.pings_sent
    assert sender.send_messages(ServiceBusMessage("parked")).stored_in is StoredIn.BACKLOG
    with pytest.raises(ValueError, match=r"primary side .* is closed"):
        client.get_queue_sender("others").send_messages(ServiceBusMessage("x"))
    pairing.wait_for(PairFaulted)
    assert client.pings_sent == pings
    assert client.state_of("orders") is EntityState.FAILED_OVER
    assert not [event for event in pairing.told if isinstance(event, EntityRecovered)]


STRICT = options_of(fault_pair_on_refusal=True)


@pytest.mark.spec("P-50", "F-41", "R-1")
@pytest.mark.parametrize("side", ["primary", "secondary"])
def test_read_strictly_a_refused_key_faults_the_pair(pairing: Pairing, soon: None, side: str) -> None:
    client = pairing.client_of(*strings(pairing, wrong=side), options=STRICT)
    sender = client.get_queue_sender("orders")
    if side == "secondary":
        assert sender.send_messages(ServiceBusMessage("x")).stored_in is StoredIn.PRIMARY  # P-2
        client.fail_over("orders")
    with pytest.raises(ServiceBusError):
        sender.send_messages(ServiceBusMessage("refused"))
    assert pairing.wait_for(SideFaulted).side == side
    assert pairing.wait_for(PairFaulted).side == side
    with pytest.raises(PairFaultedError, match="401"):
        sender.send_messages(ServiceBusMessage("y"))


@pytest.mark.spec("R-1")
async def test_a_secondary_that_refuses_its_key_never_stops_a_send_to_the_primary(
    either: Either, soon: None
) -> None:
    either.ways = strings(either, wrong="secondary")
    client = either.client()
    either.primary.create_queue("invoices")
    healthy, failed_over = client.get_queue_sender("orders"), client.get_queue_sender("invoices")
    client.hold("invoices")
    with pytest.raises(BacklogUnavailableError):
        await either.send(failed_over, ServiceBusMessage("nowhere to go"))
    assert (await either.heard(SideFaulted)).side == "secondary"
    assert client.secondary.state is SideState.REFUSED
    looks = client._runtime.pair_state._sides[Side.SECONDARY]
    await either.until(lambda: looks.looks >= 3)  # longer than the grace period, which `soon` makes 0.5 s
    for number in range(69):
        receipt = await either.send(healthy, ServiceBusMessage(str(number)))
        assert receipt.stored_in is StoredIn.PRIMARY
    assert not [event for event in either.told if isinstance(event, PairFaulted)]
    client.mark_path_healthy("invoices")
    assert (await either.send(failed_over, ServiceBusMessage("x"))).stored_in is StoredIn.PRIMARY


@pytest.mark.spec("R-1", "F-41")
async def test_a_primary_that_refuses_its_key_raises_the_sdks_own_error_at_each_send(
    either: Either, soon: None
) -> None:
    either.ways = strings(either, wrong="primary")
    client = either.client()
    sender = client.get_queue_sender("orders")
    with pytest.raises(ServiceBusAuthenticationError, match="check the key and its name"):
        await either.send(sender, ServiceBusMessage("refused"))
    assert (await either.heard(SideFaulted)).side == "primary"
    assert client.primary.state is SideState.REFUSED
    looks = client._runtime.pair_state._sides[Side.PRIMARY]
    await either.until(lambda: looks.looks >= 3)
    with pytest.raises(ServiceBusAuthenticationError):
        await either.send(sender, ServiceBusMessage("refused again"))
    assert client.state_of("orders") is EntityState.HEALTHY
    assert not [event for event in either.told if isinstance(event, PairFaulted)]
    client.fail_over("orders")  # the secondary works and takes what is diverted by hand
    assert (await either.send(sender, ServiceBusMessage("parked"))).stored_in is StoredIn.BACKLOG


def with_credentials(either: Either, primary: object, secondary: object) -> PairedServiceBusClient:
    """Create a client with a separate credential for each side."""
    kind = aio.PairedServiceBusClient if either.is_asyncio else PairedServiceBusClient
    addresses = [f"localhost:{side.port}" for side in (either.primary, either.secondary)]
    return either.watched(
        kind(  # type: ignore[arg-type]
            *addresses,
            primary,  # type: ignore[arg-type]
            secondary_credential=secondary,  # type: ignore[arg-type]
            options=options_of(assume_backlogs_exist=True),
            custom_endpoint_address=f"sb://{addresses[0]}",
            secondary_custom_endpoint_address=f"sb://{addresses[1]}",
            connection_verify=str(either.broker.ca_file),
        )
    )


@pytest.mark.spec("R-1")
@pytest.mark.parametrize("wrong", ["primary", "secondary"])
async def test_a_refused_side_heals_by_itself_once_its_key_works(
    either: Either, soon: None, wrong: str
) -> None:
    for index in range(2):
        either.secondary.create_queue(f"contoso/x-servicebus-transfer/{index}")
    keys = {"primary": policy_of(either.primary), "secondary": policy_of(either.secondary)}
    credentials = {
        side: AzureNamedKeyCredential(name, "d3Jvbmc=" if side == wrong else key)
        for side, (name, key) in keys.items()
    }
    client = with_credentials(either, **credentials)
    sender = client.get_queue_sender("orders")
    if wrong == "secondary":
        client.hold("orders")
    with pytest.raises(ServiceBusError):
        await either.send(sender, ServiceBusMessage("refused"))
    await either.heard(SideFaulted)
    side = getattr(client, wrong)
    assert side.state is SideState.REFUSED
    credentials[wrong].update(*keys[wrong])
    assert (await either.heard(SideRecovered)).side == wrong  # found by a probe, not by a send
    assert side.state is SideState.OPEN
    stored_in = (await either.send(sender, ServiceBusMessage("x"))).stored_in
    assert stored_in is (StoredIn.BACKLOG if wrong == "secondary" else StoredIn.PRIMARY)


@pytest.mark.spec("P-50", "P-2", "F-42")
def test_a_refusal_by_one_entity_is_no_fault_of_its_namespace(pairing: Pairing, soon: None) -> None:
    client = pairing.client()
    with pytest.raises(ServiceBusError):
        client.get_queue_sender("no-such-queue").send_messages(ServiceBusMessage("x"))
    assert client.primary.state is SideState.OPEN
    assert (
        client.get_queue_sender("orders").send_messages(ServiceBusMessage("y")).stored_in is StoredIn.PRIMARY
    )


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
    aio_pairing: AsyncPairing, late: None
) -> None:
    client = aio_pairing.client()
    sender = client.get_queue_sender("orders")
    await sender.send_messages(ServiceBusMessage("one"))
    await client.secondary.close()
    await client.primary.close()
    with pytest.raises(ValueError, match="closed"):
        await sender.send_messages(ServiceBusMessage("two"))


@pytest.mark.spec("P-50", "F-41")
async def test_with_asyncio_read_strictly_a_refused_key_faults_the_pair(
    aio_pairing: AsyncPairing, soon: None
) -> None:
    client = aio_pairing.client_of(*strings(aio_pairing, wrong="primary"), options=STRICT)
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
    client = aio_pairing.client(timeout=100)
    sender = client.get_queue_sender("orders")
    await sender.send_messages(ServiceBusMessage("opened"))
    with aio_pairing.primary.fault("orders", Withhold()):
        hanging = asyncio.create_task(sender.send_messages(ServiceBusMessage("hangs")))
        await client.secondary.close()
        with pytest.raises(PairFaultedError):
            await asyncio.wait_for(hanging, PATIENCE)


@pytest.mark.spec("P-50")
def test_a_look_that_finds_only_an_entity_missing_was_answered_by_the_namespace(pairing: Pairing) -> None:
    client = pairing.client()
    with pytest.raises(ServiceBusError):
        client.get_queue_sender("no-such-queue").send_messages(ServiceBusMessage("x"))
    client._runtime.side_refused(Side.PRIMARY, "status 401")
    pairing.wait_for(SideRecovered)
    assert client.primary.state is SideState.OPEN


@pytest.mark.spec("P-50")
async def test_with_asyncio_such_a_look_was_answered_too(aio_pairing: AsyncPairing) -> None:
    client = aio_pairing.client()
    with pytest.raises(ServiceBusError):
        await client.get_queue_sender("no-such-queue").send_messages(ServiceBusMessage("x"))
    client._runtime.side_refused(Side.PRIMARY, "status 401")
    await aio_pairing.heard(SideRecovered)
    assert client.primary.state is SideState.OPEN
