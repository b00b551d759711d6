"""The examination of a pairing: collects the facts by opening idle links, peeking and describing queues.

It sends, receives and settles nothing except one ping on the scratch queue, and creates nothing except that
queue, both only on request.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from datetime import timedelta

from azure.core.exceptions import AzureError, ResourceNotFoundError
from azure.servicebus.management import (
    QueueProperties,
    QueueRuntimeProperties,
    ServiceBusAdministrationClient,
)

from sbpair.contract.search import is_empty
from sbpair.pair.auth.connection_string import NamespaceAccess
from sbpair.pair.cli.connection import is_certificate
from sbpair.pair.cli.errors import one_line
from sbpair.pair.cli.namespaces import NamespaceArgument
from sbpair.pair.cli.output import age_seconds
from sbpair.pair.cli.twins import EntityListing, TwinComparison, compare, read
from sbpair.pair.client.connection import NamespaceConnection, connect
from sbpair.pair.client.errors import ClientError, LinkRefusedError, TokenRefusedError
from sbpair.pair.envelope import aliases
from sbpair.pair.envelope.names import (
    backlog_queue_name,
    is_ordered_backlog,
    namespace_label,
    ordered_backlog_name,
    path_key,
    path_refusal,
    take_inventory,
)
from sbpair.pair.ground.entity_settings import SESSIONS
from sbpair.pair.pairing.shared.backlog import differences
from sbpair.pair.syphon.watch.claims import NAMESPACE, refusal_of
from sbpair.pair.syphon.watch.peeking import DEAD_LETTERS, TRANSFER_DEAD_LETTERS, peek_parked

from .facts import Backlog, Load, NotInForce, PairFacts, Ping, PrimaryEntity, Refusal
from .probes import ping_trial, read_sender, read_status, scratch_queue

TIMEOUT = 15.0  # seconds to connect to a side
PEEKED = 100  # messages of each backlog queue, the oldest
MEBIBYTE = 1_048_576
LIMITLESS = timedelta(days=10_000_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExaminationPlan:
    """The subject of an examination; ``rights`` are those that the key needs on the secondary."""

    primary: NamespaceAccess
    secondary: NamespaceAccess
    sources: dict[str, NamespaceArgument]
    """By side, for the administration clients."""

    name: str | None
    backlogs: int
    ca_file: str | None
    rights: tuple[str, ...]
    queues: tuple[str, ...]
    scratch_queue: str | None
    creates_scratch: bool
    syphon_status: str | None
    sender_status: str | None
    load: Load | None
    keeps_order: bool = False
    compares_twins: bool = False


@dataclass(slots=True)
class Examination:
    """One examination of a pairing; the fields collect facts while it runs."""

    plan: ExaminationPlan
    unreachable: dict[str, str] = field(default_factory=dict)
    refusals: list[Refusal] = field(default_factory=list)
    not_in_force: set[NotInForce] = field(default_factory=set)
    undescribed: dict[str, str] = field(default_factory=dict)
    untrusted: dict[str, str] = field(default_factory=dict)
    oldest: dict[str, float | None] = field(default_factory=dict)

    async def run(self) -> PairFacts:
        """Collect all facts. Raises ConnectionLostError when a connection that was open is lost."""
        plan = self.plan
        primary, secondary = plan.primary, plan.secondary
        label = plan.name or namespace_label(primary.netloc)
        facts = PairFacts(
            label=label,
            secondary_label=namespace_label(secondary.netloc),
            has_given_name=plan.name is not None,
            is_one_namespace=primary.netloc.casefold() == secondary.netloc.casefold(),
            unreachable=self.unreachable,
            keeps_order=plan.keeps_order,
        )
        if facts.is_one_namespace:
            return facts
        self.oldest = dict.fromkeys(plan.queues)
        names = [backlog_queue_name(label, index) for index in range(plan.backlogs)]
        if plan.keeps_order:
            names += [ordered_backlog_name(label, index) for index in range(plan.backlogs)]
        async with AsyncExitStack() as stack:
            from_secondary = await self._connect(stack, "secondary", secondary)
            to_primary = await self._connect(stack, "primary", primary)
            backlogs = [await self._backlog(from_secondary, name) for name in names] if from_secondary else []
            described = self._descriptions("secondary") if from_secondary else None
            if described is not None:
                sizes = self._sizes()
                backlogs = [_described_backlog(each, described, sizes) for each in backlogs]
                inventory = take_inventory(described, label, plan.backlogs)
                ordered = take_inventory(described, label, plan.backlogs, is_ordered=True)
                counts = {path_key(each): queue.active_message_count or 0 for each, queue in sizes.items()}
                elsewhere = (*inventory.extra, *ordered.extra, *(() if plan.keeps_order else ordered.present))
                stranded = {name: counts.get(path_key(name), 0) for name in elsewhere}
                facts = replace(facts, inventory=inventory, ordered_inventory=ordered, stranded=stranded)
            facts = replace(
                facts, backlogs=tuple(backlogs), undescribed=self.undescribed, untrusted=self.untrusted
            )
            if to_primary:
                destinations = await self._destinations(to_primary)
                if not destinations:  # else a link has already proved the key
                    await self._check_claim(to_primary, "primary", "Send")
                facts = replace(facts, destinations=destinations, ping=await self._ping(to_primary))
        if plan.compares_twins:
            facts = replace(facts, twins=self._twins())
        syphon = await read_status(plan.syphon_status) if plan.syphon_status else None
        sender = await read_sender(plan.sender_status) if plan.sender_status else None
        return replace(
            facts,
            refusals=tuple(self.refusals),
            not_in_force=frozenset(self.not_in_force),
            syphon=syphon,
            sender=sender,
            load=plan.load,
        )

    async def _connect(
        self, stack: AsyncExitStack, side: str, namespace: NamespaceAccess
    ) -> NamespaceConnection | None:
        try:
            connection = await connect(namespace, timeout=TIMEOUT)
        except ClientError as error:
            self.unreachable[side] = one_line(error)
            return None
        stack.push_async_callback(connection.close)
        return connection

    async def _check_claim(self, connection: NamespaceConnection, side: str, right: str) -> None:
        """Check that the namespace accepts the key, when there is no entity to open a link to."""
        refusal = await refusal_of(connection, (NAMESPACE,))
        if refusal is not None:
            self._refused(side, NAMESPACE, right, refusal)

    # The secondary.

    async def _backlog(self, connection: NamespaceConnection, name: str) -> Backlog:
        backlog = Backlog(name)
        if "Send" in self.plan.rights:
            largest = await self._largest(connection, "secondary", name)
            if largest is None:
                return backlog
            backlog = replace(backlog, largest=largest or None)
        is_ordered = is_ordered_backlog(name)
        if "Listen" not in self.plan.rights and not is_ordered:  # a sender peeks at the ordered ones
            return backlog
        try:
            if is_ordered:
                await connection.authorize(name)  # a receiver would have to take a session
            else:
                receiver = await connection.open_receiver(name, lambda event: None)  # without credit
                await receiver.close()
            return await self._peek(connection, backlog)
        except (LinkRefusedError, TokenRefusedError) as error:
            self._refused("secondary", name, "Listen", error)
            return backlog

    async def _peek(self, connection: NamespaceConnection, backlog: Backlog) -> Backlog:
        name = backlog.name
        now = time.time_ns() // 1_000_000
        ages: list[float] = []
        has_sessions = False
        async for message in peek_parked(connection, name, most=PEEKED):
            age = age_seconds(message.parked_at, now) or 0.0
            ages.append(age)
            has_sessions = has_sessions or aliases.SESSION_ID in message.aliases
            if message.path is not None and path_refusal(message.path) is None:
                self.oldest[message.path] = max(age, self.oldest.get(message.path) or 0.0)
        return replace(
            backlog,
            oldest_age=max(ages, default=None),
            has_sessions=has_sessions,
            has_dead_letters=not await is_empty(connection, name + DEAD_LETTERS),
            has_untransferred=not await is_empty(connection, name + TRANSFER_DEAD_LETTERS),
        )

    # The primary.

    async def _destinations(self, connection: NamespaceConnection) -> tuple[PrimaryEntity, ...]:
        found = {path: await self._largest(connection, "primary", path) for path in self.oldest}
        there = {path: largest for path, largest in found.items() if largest is not None}
        described = (self._descriptions("primary", list(there)) if there else None) or {}
        return tuple(
            _described_destination(
                PrimaryEntity(path, self.oldest[path], largest=largest or None),
                described.get(path.casefold()),
            )
            for path, largest in there.items()
        )

    async def _largest(self, connection: NamespaceConnection, side: str, path: str) -> int | None:
        """Return the maximum size in bytes of a message sent to ``path``: 0 without a limit; None when refused."""
        try:
            sender = await connection.open_sender(path)
        except (LinkRefusedError, TokenRefusedError) as error:
            self._refused(side, path, "Send", error)
            return None
        await sender.close()
        return sender.link.max_message_size or 0

    def _refused(self, side: str, path: str, right: str, error: ClientError) -> None:
        condition = str(error.condition.symbol) if error.condition else ""
        is_of_key = isinstance(error, TokenRefusedError)
        self.refusals.append(Refusal(side, path, right, condition, one_line(error), is_of_key))

    async def _ping(self, connection: NamespaceConnection) -> Ping | None:
        path = self.plan.scratch_queue
        try:
            if path is not None:
                return await ping_trial(connection, path)
            if not self.plan.creates_scratch:
                return None
            with self._administration("primary") as client, scratch_queue(client) as path:
                return await ping_trial(connection, path)
        except (LinkRefusedError, TokenRefusedError) as error:
            self._refused("primary", path or "", "Send and Listen", error)
        except AzureError as error:
            self.undescribed["primary"] = f"no scratch queue: {one_line(error)}"
        return None

    # Descriptions, if the key has Manage.

    def _descriptions(self, side: str, paths: list[str] | None = None) -> dict[str, QueueProperties] | None:
        try:
            with self._administration(side) as client:
                if paths is None:
                    return {queue.name: queue for queue in client.list_queues()}
                found = {path.casefold(): _queue_of(client, path) for path in paths}
                return {path: queue for path, queue in found.items() if queue is not None}
        except AzureError as error:
            self._not_described(side, error)
            return None

    def _twins(self) -> tuple[TwinComparison, ...]:
        """Compare all entities of the primary with their twins."""
        found: list[EntityListing] = []
        for side in ("primary", "secondary"):
            if side in self.unreachable:
                return ()
            try:
                with self._administration(side) as client:
                    found.append(read(client))
            except AzureError as error:
                self._not_described(side, error)
                return ()
        return tuple(compare(*found))

    def _not_described(self, side: str, error: AzureError) -> None:
        known = self.untrusted if is_certificate(error) else self.undescribed
        known[side] = one_line(error)

    def _administration(self, side: str) -> ServiceBusAdministrationClient:
        def report(path: str, elements: Sequence[str]) -> None:
            self.not_in_force.update(NotInForce(side, path, each) for each in elements)

        return self.plan.sources[side].administration(side, self.plan.ca_file, report)

    def _sizes(self) -> dict[str, QueueRuntimeProperties]:
        try:
            with self._administration("secondary") as client:
                return {queue.name: queue for queue in client.list_queues_runtime_properties()}
        except AzureError as error:
            self._not_described("secondary", error)
            return {}


def _queue_of(client: ServiceBusAdministrationClient, path: str) -> QueueProperties | None:
    try:
        return client.get_queue(path)
    except ResourceNotFoundError:
        return None  # possibly a topic


def _described_backlog(
    backlog: Backlog, described: dict[str, QueueProperties], sizes: dict[str, QueueRuntimeProperties]
) -> Backlog:
    queue = next(
        (each for name, each in described.items() if name.casefold() == backlog.name.casefold()), None
    )
    if queue is None:
        return backlog
    return replace(
        backlog,
        differences=tuple(differences(queue)),
        time_to_live=_seconds(queue.default_message_time_to_live),
        lock=_seconds(queue.lock_duration),
        capacity=MEBIBYTE * queue.max_size_in_megabytes if queue.max_size_in_megabytes else None,
        used=(sizes[queue.name].size_in_bytes or 0) if queue.name in sizes else 0,
    )


def _described_destination(destination: PrimaryEntity, queue: QueueProperties | None) -> PrimaryEntity:
    if queue is None:
        return destination
    window = queue.duplicate_detection_history_time_window if queue.requires_duplicate_detection else None
    return replace(
        destination,
        status=str(getattr(queue.status, "value", queue.status)),
        needs_sessions=bool(SESSIONS.value_in(queue)),
        duplicate_window=_seconds(window),
        time_to_live=_seconds(queue.default_message_time_to_live),
    )


def _seconds(span: object) -> float | None:
    return span.total_seconds() if isinstance(span, timedelta) and span < LIMITLESS else None
