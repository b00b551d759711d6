"""How are the facts about a pairing found out? By links that carry nothing, peeks, and descriptions.

Nothing is sent but one ping, to the scratch queue, if there is one. Nothing is received, locked or settled
but that ping.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from datetime import timedelta

from azure.core.exceptions import AzureError, ResourceNotFoundError
from azure.servicebus.management import QueueProperties, ServiceBusAdministrationClient

from sbpair.amqp.message import DataBody, Header, Message, Properties
from sbpair.amqp.performatives import Accepted
from sbpair.cli.backlog.ages import age_seconds
from sbpair.cli.errors import one_line
from sbpair.cli.source import Source
from sbpair.pairing.address import SdkSettings
from sbpair.pairing.aliases import PING_CONTENT_TYPE
from sbpair.pairing.backlog import differences
from sbpair.pairing.inventory import take_inventory
from sbpair.pairing.names import backlog_queue_name, namespace_label
from sbpair.syphon.connection import NamespaceConnection
from sbpair.syphon.connection_string import Namespace
from sbpair.syphon.destination_path import path_refusal
from sbpair.syphon.dial import connect
from sbpair.syphon.errors import LinkRefused, SyphonError, TokenRefused
from sbpair.syphon.look import DEAD_LETTERS, look

from .facts import Backlog, Destination, Facts, Ping, Refusal

TIMEOUT = 15.0  # seconds for a side to answer the first word
PING_WAIT = 2.0  # seconds a ping is given to be delivered in: twice its time to live
LOOKED_AT = 100  # messages of each backlog queue, the oldest
LIMITLESS = timedelta(days=10_000_000)


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
                backlogs = [_with_description(each, described) for each in backlogs]
                facts = replace(facts, inventory=take_inventory(described, label, plan.backlogs))
            facts = replace(facts, backlogs=tuple(backlogs), undescribed=self.undescribed)
            if to_primary:
                destinations = await self._destinations(to_primary)
                facts = replace(facts, destinations=destinations, ping=await self._ping(to_primary))
        return replace(facts, refusals=tuple(self.refusals))

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
        if "Send" in self.plan.rights and not await self._may_send(connection, "secondary", name):
            return Backlog(name)
        if "Listen" not in self.plan.rights:
            return Backlog(name)
        try:
            receiver = await connection.open_receiver(name, lambda event: None)  # without credit
            await receiver.close()
            return await self._looked_into(connection, name)
        except (LinkRefused, TokenRefused) as error:
            self._refused("secondary", name, "Listen", error)
            return Backlog(name)

    async def _looked_into(self, connection: NamespaceConnection, name: str) -> Backlog:
        now = time.time_ns() // 1_000_000
        ages: list[float] = []
        async for message in look(connection, name, most=LOOKED_AT):
            age = age_seconds(message.parked_at, now) or 0.0
            ages.append(age)
            if message.path is not None and path_refusal(message.path) is None:
                self.oldest[message.path] = max(age, self.oldest.get(message.path) or 0.0)
        dead = [each async for each in look(connection, name + DEAD_LETTERS, most=1)]
        return Backlog(name, oldest_age=max(ages, default=None), has_dead_letters=bool(dead))

    # The primary.

    async def _destinations(self, connection: NamespaceConnection) -> tuple[Destination, ...]:
        there = [path for path in self.oldest if await self._may_send(connection, "primary", path)]
        described = self._described("primary", there) if there else {}
        return tuple(
            _destination(path, self.oldest[path], (described or {}).get(path.casefold())) for path in there
        )

    async def _may_send(self, connection: NamespaceConnection, side: str, path: str) -> bool:
        try:
            sender = await connection.open_sender(path)
        except (LinkRefused, TokenRefused) as error:
            self._refused(side, path, "Send", error)
            return False
        await sender.close()
        return True

    def _refused(self, side: str, path: str, right: str, error: SyphonError) -> None:
        condition = str(error.condition.symbol) if error.condition else ""
        self.refusals.append(Refusal(side, path, right, condition, one_line(error)))

    async def _ping(self, connection: NamespaceConnection) -> Ping | None:
        path = self.plan.scratch_queue
        if path is None:
            return None
        try:
            if [each async for each in look(connection, path, most=1)]:
                return Ping.NOT_EMPTY
            return Ping.DELIVERED if await _is_delivered(connection, path) else Ping.HIDDEN
        except (LinkRefused, TokenRefused) as error:
            self._refused("primary", path, "Send and Listen", error)
            return None

    # Descriptions, where the key may see them.

    def _described(self, side: str, paths: list[str] | None = None) -> dict[str, QueueProperties] | None:
        try:
            with _administration(side, self.plan) as client:
                if paths is None:
                    return {queue.name: queue for queue in client.list_queues()}
                found = {path.casefold(): _queue(client, path) for path in paths}
                return {path: queue for path, queue in found.items() if queue is not None}
        except AzureError as error:
            self.undescribed[side] = one_line(error)
            return None


def _administration(side: str, plan: Plan) -> ServiceBusAdministrationClient:
    settings = SdkSettings(connection_verify=plan.ca_file)
    return plan.sources[side].side(side, settings).administration()


def _queue(client: ServiceBusAdministrationClient, path: str) -> QueueProperties | None:
    try:
        return client.get_queue(path)
    except ResourceNotFoundError:
        return None  # a topic, perhaps


def _with_description(backlog: Backlog, described: dict[str, QueueProperties]) -> Backlog:
    queue = next(
        (each for name, each in described.items() if name.casefold() == backlog.name.casefold()), None
    )
    if queue is None:
        return backlog
    return replace(
        backlog,
        differences=tuple(differences(queue)),
        time_to_live=_seconds(queue.default_message_time_to_live),
    )


def _destination(path: str, oldest: float | None, queue: QueueProperties | None) -> Destination:
    if queue is None:
        return Destination(path, oldest)
    window = queue.duplicate_detection_history_time_window if queue.requires_duplicate_detection else None
    return Destination(
        path,
        oldest,
        status=str(getattr(queue.status, "value", queue.status)),
        duplicate_window=_seconds(window),
        time_to_live=_seconds(queue.default_message_time_to_live),
    )


def _seconds(span: object) -> float | None:
    return span.total_seconds() if isinstance(span, timedelta) and span < LIMITLESS else None


async def _is_delivered(connection: NamespaceConnection, path: str) -> bool:
    """Send one ping, as senders do, with a receiver waiting for it."""
    arrived = asyncio.Event()
    deliveries: list[int] = []

    def on_message(event: object) -> None:
        deliveries.append(event.delivery_id)  # type: ignore[attr-defined]
        arrived.set()

    receiver = await connection.open_receiver(path, on_message)
    sender = await connection.open_sender(path)
    receiver.flow(1)
    ping = Message(
        header=Header(ttl=1000),
        properties=Properties(
            message_id=str(uuid.uuid4()), content_type=PING_CONTENT_TYPE, group_id=str(uuid.uuid4())
        ),
        body=DataBody((b"",)),
    )
    await sender.send(ping.encode())
    try:
        await asyncio.wait_for(arrived.wait(), PING_WAIT)
    except TimeoutError:
        pass
    for delivery_id in deliveries:
        await receiver.settled(delivery_id, Accepted())
    await asyncio.gather(receiver.close(), sender.close())
    return arrived.is_set()
