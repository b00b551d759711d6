"""Two namespaces of a broker as the targets of a run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, TransportType
from azure.servicebus.management import ServiceBusAdministrationClient

from sbpair.broker import Broker, NamespaceControl
from sbpair.contract.book import entries
from sbpair.contract.entry import Entry, Finding, Price
from sbpair.contract.plan import Plan, make_plan, select
from sbpair.contract.rights import rights_of
from sbpair.contract.run import Run
from sbpair.contract.tapped_socket import NewTap, tapped
from sbpair.contract.target import Target
from sbpair.pair.auth.connection_string import parse
from sbpair.pair.auth.dialling import BoundedHandshake, trusting
from sbpair.pair.auth.route import Route
from sbpair.pair.ground.side import Side
from sbpair.pair.pairing.shared.administration import ServiceOrder

NAMES = {Side.PRIMARY: "contoso", Side.SECONDARY: "contoso-dr"}


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One certificate authority for all brokers."""
    return tmp_path_factory.mktemp("certificates")


@pytest.fixture
def broker_of(certificates: Path) -> Callable[..., Broker]:
    """Return a function that makes a broker with the two namespaces."""

    def make(
        tier: str = "Standard", *, is_partitioned: bool = False, takes_any_token: bool = False
    ) -> Broker:
        partitions = dict.fromkeys(NAMES.values(), 4) if is_partitioned else None
        namespaces = dict.fromkeys(NAMES.values(), 0)
        return Broker(
            namespaces,
            tier=tier,
            partitions=partitions,
            tls_directory=certificates,
            open_access=takes_any_token,
        )

    return make


def target_of(namespace: NamespaceControl, ca_file: str, connection_string: str | None = None) -> Target:
    text = connection_string or namespace.connection_string
    return Target(
        parse(text).along(Route(ca_file)),
        lambda exchanged=None: ServiceBusAdministrationClient.from_connection_string(
            text, connection_verify=ca_file, logging_policy=ServiceOrder(exchanged=exchanged)
        ),
        lambda new_tap=None: ServiceBusClient.from_connection_string(text, retry_total=0),
    )


def targets_of(broker: Broker) -> dict[Side, Target]:
    return {side: target_of(broker.namespace(name), str(broker.ca_file)) for side, name in NAMES.items()}


def over(target: Target, *, tls: bool) -> Target:
    """The same target, with or without TLS; the port of a broker serves both."""
    return replace(target, namespace=replace(target.namespace, uses_tls=tls))


def over_tls_with_the_sdk(namespace: NamespaceControl, ca_file: str) -> Target:
    """A target that the SDK reaches by TLS too, as it does the cloud."""
    text = namespace.connection_string.removesuffix(";UseDevelopmentEmulator=true")

    def sdk(new_tap: NewTap | None = None) -> ServiceBusClient:
        context = trusting(ca_file)
        return ServiceBusClient.from_connection_string(
            text,
            retry_total=0,
            custom_endpoint_address=f"sb://localhost:{namespace.port}",
            transport_type=TransportType.Amqp,
            ssl_context=BoundedHandshake(context if new_tap is None else tapped(context, new_tap)),
        )

    return replace(over(target_of(namespace, ca_file), tls=True), sdk=sdk)


def counted(broker: Broker) -> Price:
    """What the broker counted, by the kinds of a price."""
    found = [broker.namespace(name).operations for name in NAMES.values()]
    return Price(
        sends=sum(each.sends for each in found),
        pings=sum(each.pings for each in found),
        receives=sum(each.receives for each in found),
        management=sum(each.management for each in found),
    )


def verified(
    broker: Broker,
    only: Iterable[str] = (),
    selected: Iterable[Entry] | None = None,
    *,
    over_tls: bool = False,
) -> tuple[Plan, dict[str, Finding]]:
    """Run entries against a broker; the plan, and the findings by id. Those that are ``selected`` may be slow."""
    targets = {side: over(target, tls=over_tls) for side, target in targets_of(broker).items()}

    async def run() -> tuple[Plan, list[Finding]]:
        powers = {side: await rights_of(target) for side, target in targets.items()}
        wanted = select(entries(), only) if selected is None else selected
        plan = make_plan(wanted, powers, run="0badcafe", slow=selected is not None)
        return plan, await Run(targets, plan).findings()

    plan, found = asyncio.run(run())
    return plan, {each.entry.id: each for each in found}
