"""Pairs of which one namespace, or both, is a partitioned Premium one: parking and coming home, end to end."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator

import pytest
from azure.core.exceptions import HttpResponseError, ResourceNotFoundError
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from azure.servicebus.management import ServiceBusAdministrationClient

from sbpair import PairedServiceBusClient, StoredIn
from sbpair.broker import Broker
from sbpair.pair.cli.twins import create_missing
from sbpair.pair.pairing.shared.backlog import Backlogs
from sbpair.syphon import Syphon, SyphonOptions

from .conftest import options_of

pytestmark = pytest.mark.spec("R-80")

NAMES = ("contoso", "contoso-dr")
SIDES = [("contoso",), ("contoso-dr",), NAMES]


@pytest.fixture(params=SIDES, ids=["the primary", "the secondary", "both"])
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    """A pair whose partitioned Premium namespaces are the parameter."""
    with Broker(dict.fromkeys(NAMES, 0), partitions=dict.fromkeys(request.param, 2)) as running:
        yield running


def administration(broker: Broker, name: str) -> ServiceBusAdministrationClient:
    return ServiceBusAdministrationClient.from_connection_string(
        broker.namespace(name).connection_string, connection_verify=str(broker.ca_file)
    )


@pytest.mark.parametrize("ordering", [None, "session"])
def test_messages_are_parked_in_queues_that_the_client_creates_and_come_home(
    broker: Broker, ordering: str | None
) -> None:
    primary, secondary = (broker.namespace(name) for name in NAMES)
    both = (primary.connection_string, secondary.connection_string)
    primary.create_queue("orders", requires_session=ordering is not None)
    session = None if ordering is None else "one"
    options = options_of(backlogs=2, ping=600, **{} if ordering is None else {"ordering": ordering})
    with (
        PairedServiceBusClient.from_connection_strings(
            *both, options=options, connection_verify=str(broker.ca_file)
        ) as client,
        client.get_queue_sender("orders") as sender,
    ):
        primary.take_down()
        for n in range(20):
            receipt = sender.send_messages(ServiceBusMessage(str(n), session_id=session))
            assert receipt.stored_in is StoredIn.BACKLOG
        primary.bring_up()
    settings = SyphonOptions(
        primary_namespace_name="contoso", **{} if ordering is None else {"ordering": ordering}
    )
    assert asyncio.run(Syphon.from_connection_strings(*both, options=settings).drain()).forwarded == 20
    with ServiceBusClient.from_connection_string(primary.connection_string) as foreign:
        receiver = foreign.get_queue_receiver("orders", session_id=session)
        found: list[int] = []
        while len(found) < 20:
            found += [int(str(message)) for message in receiver.receive_messages(20, max_wait_time=10)]
    assert (found if ordering else sorted(found)) == list(range(20))


def test_twins_are_created_in_the_form_their_namespace_accepts(broker: Broker) -> None:
    with administration(broker, "contoso") as primary, administration(broker, "contoso-dr") as secondary:
        primary.create_queue("orders", requires_session=True)
        primary.create_topic("prices")
        primary.create_subscription("prices", "all")

        assert sorted(create_missing(primary, secondary)) == ["orders", "prices", "prices/Subscriptions/all"]
        is_partitioned = broker.namespace("contoso-dr").is_partitioned
        assert secondary.get_queue("orders").enable_partitioning is is_partitioned
        assert secondary.get_topic("prices").enable_partitioning is is_partitioned


class Strict:
    """The administration of a namespace that takes partitioned queues only, and only if they are asked for."""

    def __init__(self, refusal: str) -> None:
        self._refusal = refusal
        self.asked: list[object] = []

    def __enter__(self) -> Strict:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def list_queues(self) -> list[object]:
        return []

    def get_queue(self, name: str) -> object:
        raise ResourceNotFoundError(name)

    def create_queue(self, name: str, **settings: object) -> None:
        self.asked.append(settings["enable_partitioning"])
        if settings["enable_partitioning"] is not True:
            raise HttpResponseError(message=self._refusal)


def test_a_namespace_that_only_accepts_partitioned_queues_gets_them() -> None:
    strict = Strict(
        "SubCode=40000. Non-partitioned entities are not allowed in partitioned namespace. "
        "The property EnablePartitioning must be set to true."
    )

    assert Backlogs("contoso", 2, lambda: strict).ensure() == tuple(  # type: ignore[arg-type, return-value]
        f"contoso/x-servicebus-transfer/{index}" for index in range(2)
    )
    assert strict.asked == [None, True] * 2


def test_any_other_refusal_is_raised_unchanged() -> None:
    strict = Strict("SubCode=40000. The name is too long.")

    with pytest.raises(HttpResponseError, match=re.escape("The name is too long.")):
        Backlogs("contoso", 1, lambda: strict).ensure()  # type: ignore[arg-type, return-value]
    assert strict.asked == [None]
