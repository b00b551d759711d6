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
    EntityState,
    PairedServiceBusClient,
    PairFaultedError,
    SideState,
    StoredIn,
    aio,
)
from sbpair.broker import NamespaceControl
from sbpair.broker.faults import Withhold
from sbpair.events import EntityRecovered, PairFaulted, SideClosed, SideFaulted, SideRecovered
from sbpair.pair.ground.side import Side
from tests.pair.outage.conftest import AsyncPairing, Either, Pairing, options_of
from tests.pair.runtimes import runtime_of
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


def strings(pairing: Pairing | Either, *, wrong: str) -> tuple[str, str]:
    both = {
        "primary": pairing.primary.connection_string,
        "secondary": pairing.secondary.connection_string,
    }
    both[wrong] = with_a_wrong_key(both[wrong])
    return both["primary"], both["secondary"]


@pytest.mark.spec("P-50", "G-25")
@pytest.mark.parametrize("side", ["primary", "secondary"])
async def test_closing_one_side_alone_faults_the_pair(either: Either, soon: None, side: str) -> None:
    client = either.client(ping=60)
    sender = client.get_queue_sender("orders")
    await either.send(sender, ServiceBusMessage("before"))
    await either.done(getattr(client, side).close())
    assert getattr(client, side).state is SideState.CLOSED
    told = await either.heard(SideClosed)
    assert told.side == side
    await either.heard(PairFaulted)
    with pytest.raises(PairFaultedError) as raised:
        await either.send(sender, ServiceBusMessage("after"))
    assert raised.value.side == side
    for words in (client.primary.endpoint, client.secondary.endpoint, side, "close() was called"):
        assert words in str(raised.value)
    with pytest.raises(PairFaultedError):
        client.get_queue_sender("orders")
    with pytest.raises(PairFaultedError):
        client.get_queue_receiver("orders")


@pytest.mark.spec("P-50")
async def test_closing_both_sides_closes_the_client(either: Either, late: None) -> None:
    client = either.client()
    sender = client.get_queue_sender("orders")
    await either.send(sender, ServiceBusMessage("one"))
    await either.done(client.primary.close())
    await either.done(client.secondary.close())
    with pytest.raises(ValueError, match="closed"):
        await either.send(sender, ServiceBusMessage("two"))
    assert not [event for event in either.told if isinstance(event, PairFaulted)]


@pytest.mark.slow
@pytest.mark.spec("P-50", "P-33")
def test_until_the_fault_the_open_side_accepts_its_messages_without_pings(
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


@pytest.mark.spec("P-50", "F-41", "R-1")
@pytest.mark.parametrize("side", ["primary", "secondary"])
async def test_read_strictly_a_refused_key_faults_the_pair(either: Either, soon: None, side: str) -> None:
    either.ways = strings(either, wrong=side)
    client = either.client(fault_pair_on_refusal=True)
    sender = client.get_queue_sender("orders")
    if side == "secondary":
        assert (await either.send(sender, ServiceBusMessage("x"))).stored_in is StoredIn.PRIMARY  # P-2
        client.fail_over("orders")
    with pytest.raises(ServiceBusError):
        await either.send(sender, ServiceBusMessage("refused"))
    assert (await either.heard(SideFaulted)).side == side
    assert (await either.heard(PairFaulted)).side == side
    with pytest.raises(PairFaultedError, match="401"):
        await either.send(sender, ServiceBusMessage("y"))


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
    looks = runtime_of(client).sides.state._sides[Side.SECONDARY]
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
    looks = runtime_of(client).sides.state._sides[Side.PRIMARY]
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
async def test_a_refused_side_recovers_once_its_key_works(either: Either, soon: None, wrong: str) -> None:
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
def test_a_refusal_by_one_entity_does_not_fault_the_namespace(pairing: Pairing, soon: None) -> None:
    client = pairing.client()
    with pytest.raises(ServiceBusError):
        client.get_queue_sender("no-such-queue").send_messages(ServiceBusMessage("x"))
    assert client.primary.state is SideState.OPEN
    assert (
        client.get_queue_sender("orders").send_messages(ServiceBusMessage("y")).stored_in is StoredIn.PRIMARY
    )


@pytest.mark.spec("P-50")
async def test_with_asyncio_a_fault_ends_calls_in_progress(aio_pairing: AsyncPairing, soon: None) -> None:
    client = aio_pairing.client(timeout=100)
    sender = client.get_queue_sender("orders")
    await sender.send_messages(ServiceBusMessage("opened"))
    with aio_pairing.primary.fault("orders", Withhold()):
        hanging = asyncio.create_task(sender.send_messages(ServiceBusMessage("hangs")))
        await client.secondary.close()
        with pytest.raises(PairFaultedError):
            await asyncio.wait_for(hanging, PATIENCE)


@pytest.mark.spec("P-50")
async def test_a_look_that_finds_only_an_entity_missing_was_answered_by_the_namespace(either: Either) -> None:
    client = either.client()
    with pytest.raises(ServiceBusError):
        await either.send(client.get_queue_sender("no-such-queue"), ServiceBusMessage("x"))
    runtime_of(client).sides.refused(Side.PRIMARY, "status 401")
    await either.heard(SideRecovered)
    assert client.primary.state is SideState.OPEN
