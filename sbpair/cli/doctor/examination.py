"""How are the facts about a pairing found out? By links that carry nothing, peeks, and descriptions.

Nothing is sent but one ping, to the scratch queue, if there is one. Nothing is received, locked or settled
but that ping. Nothing is created but that queue, where it was asked for.
"""

from __future__ import annotations

import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace

from azure.core.exceptions import AzureError
from azure.servicebus.management import (
    QueueProperties,
    QueueRuntimeProperties,
    ServiceBusAdministrationClient,
)

from sbpair.cli.backlog.ages import age_seconds
from sbpair.cli.errors import one_line
from sbpair.cli.source import Source
from sbpair.pairing.inventory import take_inventory
from sbpair.pairing.names import backlog_queue_name, namespace_label
from sbpair.syphon.connection import NamespaceConnection
from sbpair.syphon.connection_string import Namespace
from sbpair.syphon.destination_path import path_refusal
from sbpair.syphon.dial import connect
from sbpair.syphon.errors import LinkRefused, SyphonError, TokenRefused
from sbpair.syphon.look import DEAD_LETTERS, look

from .descriptions import administration, described_backlog, described_destination, queue_of
from .facts import Backlog, Destination, Facts, Load, Ping, Refusal
from .ping_trial import ping_trial, scratch_queue
from .syphon_status import asked

TIMEOUT = 15.0  # seconds for a side to answer the first word
LOOKED_AT = 100  # messages of each backlog queue, the oldest


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is to be examined; ``rights`` are those the key needs on the secondary."""

    primary: Namespace
    secondary: Namespace
    sources: dict[str, Source]
    """By side: what the administration client is made of."""

    name: str | None
    backlogs: int
    ca_file: str | None
    rights: tuple[str, ...]
    queues: tuple[str, ...]
    scratch_queue: str | None
    creates_scratch: bool
    syphon_status: str | None
    load: Load | None


@dataclass(slots=True)
class Examination:
    """The facts of one pairing, as they come in."""

    plan: Plan
    unreachable: dict[str, str] = field(default_factory=dict)
    refusals: list[Refusal] = field(default_factory=list)
    undescribed: dict[str, str] = field(default_factory=dict)
    oldest: dict[str, float | None] = field(default_factory=dict)

    async def run(self) -> Facts:
        """Find out everything. Raises ConnectionLost when a side that was reached goes."""
        plan = self.plan
        primary, secondary = plan.primary, plan.secondary
        label = plan.name or namespace_label(primary.netloc)
        facts = Facts(
            label=label,
            secondary_label=namespace_label(secondary.netloc),
            has_given_name=plan.name is not None,
            is_one_namespace=primary.netloc.casefold() == secondary.netloc.casefold(),
            unreachable=self.unreachable,
        )
        if facts.is_one_namespace:
            return facts
        self.oldest = dict.fromkeys(plan.queues)
        names = [backlog_queue_name(label, index) for index in range(plan.backlogs)]
        async with AsyncExitStack() as stack:
            from_secondary = await self._reached(stack, "secondary", secondary)
            to_primary = await self._reached(stack, "primary", primary)
            backlogs = [await self._backlog(from_secondary, name) for name in names] if from_secondary else []
            described = self._described("secondary") if from_secondary else None
            if described is not None:
                sizes = self._sizes()
                backlogs = [described_backlog(each, described, sizes) for each in backlogs]
                inventory = take_inventory(described, label, plan.backlogs)
                stranded = {
                    name: sizes[name].active_message_count or 0 for name in inventory.extra if name in sizes
                }
                facts = replace(facts, inventory=inventory, stranded=stranded)
            facts = replace(facts, backlogs=tuple(backlogs), undescribed=self.undescribed)
            if to_primary:
                destinations = await self._destinations(to_primary)
                facts = replace(facts, destinations=destinations, ping=await self._ping(to_primary))
        syphon = await asked(plan.syphon_status) if plan.syphon_status else None
        return replace(facts, refusals=tuple(self.refusals), syphon=syphon, load=plan.load)

    async def _reached(
        self, stack: AsyncExitStack, side: str, namespace: Namespace
    ) -> NamespaceConnection | None:
        try:
            connection = await connect(namespace, ca_file=self.plan.ca_file, timeout=TIMEOUT)
        except SyphonError as error:
            self.unreachable[side] = one_line(error)
            return None
        stack.push_async_callback(connection.close)
        return connection

    # The secondary.

    async def _backlog(self, connection: NamespaceConnection, name: str) -> Backlog:
        backlog = Backlog(name)
        if "Send" in self.plan.rights:
            largest = await self._largest(connection, "secondary", name)
            if largest is None:
                return backlog
            backlog = replace(backlog, largest=largest or None)
        if "Listen" not in self.plan.rights:
            return backlog
        try:
            receiver = await connection.open_receiver(name, lambda event: None)  # without credit
            await receiver.close()
            return await self._looked_into(connection, backlog)
        except (LinkRefused, TokenRefused) as error:
            self._refused("secondary", name, "Listen", error)
            return backlog

    async def _looked_into(self, connection: NamespaceConnection, backlog: Backlog) -> Backlog:
        name = backlog.name
        now = time.time_ns() // 1_000_000
        ages: list[float] = []
        async for message in look(connection, name, most=LOOKED_AT):
            age = age_seconds(message.parked_at, now) or 0.0
            ages.append(age)
            if message.path is not None and path_refusal(message.path) is None:
                self.oldest[message.path] = max(age, self.oldest.get(message.path) or 0.0)
        dead = [each async for each in look(connection, name + DEAD_LETTERS, most=1)]
        return replace(backlog, oldest_age=max(ages, default=None), has_dead_letters=bool(dead))

    # The primary.

    async def _destinations(self, connection: NamespaceConnection) -> tuple[Destination, ...]:
        found = {path: await self._largest(connection, "primary", path) for path in self.oldest}
        there = {path: largest for path, largest in found.items() if largest is not None}
        described = (self._described("primary", list(there)) if there else None) or {}
        return tuple(
            described_destination(
                Destination(path, self.oldest[path], largest=largest or None), described.get(path.casefold())
            )
            for path, largest in there.items()
        )

    async def _largest(self, connection: NamespaceConnection, side: str, path: str) -> int | None:
        """The most bytes of a message we may send there, 0 without a limit; None when we may not at all."""
        try:
            sender = await connection.open_sender(path)
        except (LinkRefused, TokenRefused) as error:
            self._refused(side, path, "Send", error)
            return None
        await sender.close()
        return sender.link.max_message_size or 0

    def _refused(self, side: str, path: str, right: str, error: SyphonError) -> None:
        condition = str(error.condition.symbol) if error.condition else ""
        self.refusals.append(Refusal(side, path, right, condition, one_line(error)))

    async def _ping(self, connection: NamespaceConnection) -> Ping | None:
        path = self.plan.scratch_queue
        try:
            if path is not None:
                return await ping_trial(connection, path)
            if not self.plan.creates_scratch:
                return None
            with self._administration("primary") as client, scratch_queue(client) as path:
                return await ping_trial(connection, path)
        except (LinkRefused, TokenRefused) as error:
            self._refused("primary", path or "", "Send and Listen", error)
        except AzureError as error:
            self.undescribed["primary"] = f"no scratch queue: {one_line(error)}"
        return None

    # Descriptions, where the key may see them.

    def _described(self, side: str, paths: list[str] | None = None) -> dict[str, QueueProperties] | None:
        try:
            with self._administration(side) as client:
                if paths is None:
                    return {queue.name: queue for queue in client.list_queues()}
                found = {path.casefold(): queue_of(client, path) for path in paths}
                return {path: queue for path, queue in found.items() if queue is not None}
        except AzureError as error:
            self.undescribed[side] = one_line(error)
            return None

    def _administration(self, side: str) -> ServiceBusAdministrationClient:
        return administration(self.plan.sources[side], side, self.plan.ca_file)

    def _sizes(self) -> dict[str, QueueRuntimeProperties]:
        try:
            with self._administration("secondary") as client:
                return {queue.name: queue for queue in client.list_queues_runtime_properties()}
        except AzureError as error:
            self.undescribed["secondary"] = one_line(error)
            return {}
