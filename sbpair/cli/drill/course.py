"""The course of a drill: probe, hold, park, release, watch the canaries come home, and leave nothing behind.

Whatever happens in between, an error or Ctrl-C, the entity is marked healthy and canaries that could still
reach a consumer are cancelled as far as they are home. All of it concerns this process alone: the health of
an entity is its client's own (P-6).
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from sbpair.aio import EntityRecovered, PairedNamespaceOptions, PairedServiceBusClient, Rest
from sbpair.cli.errors import ConfigurationError, one_line
from sbpair.cli.source import Source, client_between, syphon_between
from sbpair.pairing.events import PairingEvent
from sbpair.pairing.names import backlog_queue_name, namespace_label
from sbpair.syphon import LinkRefused, SyphonError, SyphonOptions, TokenRefused

from .canary import ARRIVED, CONTENT_TYPE, MARGIN, PROPERTY, TIME_TO_LIVE, Canary, Fate, Proof, canaries
from .plan import Plan
from .sight import Sight

TIMEOUT = 15.0  # seconds for a side to answer the first word, and for a ping to bring the entity home
LAST_LOOK = 5.0  # seconds to clean up in, when the drill is interrupted
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 2.0  # seconds between two looks


@dataclass(slots=True)
class Course:
    """One drill, from its first word to its result."""

    plan: Plan
    primary: Source
    secondary: Source
    drill: str = field(default_factory=lambda: uuid.uuid4().hex[:12])
    canaries: list[Canary] = field(default_factory=list)
    has_recovered: bool = False
    """Whether a ping has brought the entity home."""

    is_held: bool = False
    pings: int = 0
    peeks: int = 0
    _began: float = 0.0
    _recovered: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def is_passed(self) -> bool:
        return self.has_recovered and all(each.fate in ARRIVED for each in self.canaries)

    async def run(self) -> None:
        """Do it all. Raises errors of the SDK and of the raw connections, with everything restored."""
        self.canaries = canaries(self.drill, self.plan.count)
        async with AsyncExitStack() as stack:
            client = await stack.enter_async_context(self._client())
            stack.callback(client.on_event(self._noted))
            sight = self._sight()
            stack.push_async_callback(sight.close)
            await self._check(sight)
            await self._probe(client, sight)
            try:
                self._began, self.is_held = time.monotonic(), True
                client.hold(self.plan.entity)
                await self._park(client)
                client.release(self.plan.entity)
                async with self._syphon():
                    await self._wait_recovered()
                    await self._come_home(client, sight)
            finally:
                self.is_held = False
                client.mark_path_healthy(self.plan.entity)
                await self._clean_up(client, sight)
                self.pings, self.peeks = client.pings_sent, sight.peeks

    # Setting up.

    def _client(self) -> PairedServiceBusClient:
        options = PairedNamespaceOptions(
            backlog_queue_count=self.plan.backlogs,
            assume_backlogs_exist=True,  # a drill uses what an outage would find
            primary_namespace_name=self.plan.primary_namespace_name,
            operation_timeout=timedelta(seconds=2 * TIMEOUT),
        )
        return client_between(self.primary, self.secondary, options, self.plan.ca_file)

    def _sight(self) -> Sight:
        sides = self.primary.namespace(), self.secondary.namespace()
        return Sight(*sides, self.plan.looked_at, self.plan.ca_file)

    async def _check(self, sight: Sight) -> None:
        """Raises CommandError when there is no such entity, or --proof needs an empty one."""
        try:
            is_empty = await sight.is_empty()
        except (LinkRefused, TokenRefused) as error:
            symbol = str(error.condition.symbol) if error.condition else ""
            if symbol == "amqp:unauthorized-access":
                raise
            text = f"{sight.path} on the primary: {one_line(error)}"
            raise ConfigurationError(f"{text}; check the name, a topic needs --subscription") from error
        if self.plan.proof is Proof.RECEIVE and not is_empty:
            raise ConfigurationError(f"{sight.path} is not empty: --proof receive is for a scratch entity")

    async def _probe(self, client: PairedServiceBusClient, sight: Sight) -> None:
        """Have the entity take one message directly, see it, and cancel it; looking begins behind it."""
        message = self._message(f"sbpair-canary-{self.drill}-probe")
        async with client.get_queue_sender(self.plan.entity) as sender:  # a topic's is no other
            (number,) = await sender.schedule_messages(message, self._due(), timeout=2 * TIMEOUT)
            try:
                if self.plan.subscription is None:
                    sight.start = number
                    if not await sight.at_home({str(message.message_id)}):
                        raise ConfigurationError(
                            f"{sight.path} shows no messages: a topic needs --subscription"
                        )
            finally:
                await sender.cancel_scheduled_messages(number)

    def _message(self, message_id: str) -> ServiceBusMessage:
        return ServiceBusMessage(
            b"sbpair drill",
            message_id=message_id,
            session_id=f"sbpair-canary-{self.drill}",  # or an entity with sessions would refuse it
            content_type=CONTENT_TYPE,
            application_properties={PROPERTY: self.drill},
            time_to_live=TIME_TO_LIVE,
        )

    def _due(self) -> datetime:
        return datetime.now(UTC) + timedelta(seconds=self.plan.wait + 2 * TIMEOUT) + MARGIN

    # The steps.

    async def _park(self, client: PairedServiceBusClient) -> None:
        """Send every canary, from a sender of its own: each picks its backlog queue at random (P-7)."""
        await asyncio.gather(*(self._park_one(client, canary) for canary in self.canaries))

    async def _park_one(self, client: PairedServiceBusClient, canary: Canary) -> None:
        message = self._message(canary.message_id)
        if self.plan.proof is Proof.CANCEL:
            message.scheduled_enqueue_time_utc = self._due()
        try:
            async with client.get_queue_sender(self.plan.entity) as sender:
                receipt = await sender.send_messages(message)
        except ServiceBusError as error:
            canary.fate, canary.why = Fate.REFUSED, one_line(error)
            return
        if receipt.rests is not Rest.BACKLOG:
            raise AssertionError(f"a held entity let a canary through to {receipt.rests}")
        canary.fate, canary.backlog = Fate.PARKED, receipt.backlog
        canary.parked_after = time.monotonic() - self._began

    def _noted(self, event: PairingEvent) -> None:
        if isinstance(event, EntityRecovered) and self.is_held:  # no other entity is used
            self.has_recovered = True
            self._recovered.set()

    async def _wait_recovered(self) -> None:
        try:
            await asyncio.wait_for(self._recovered.wait(), TIMEOUT)
        except TimeoutError:
            pass  # told by has_recovered; the canaries are looked for all the same

    @asynccontextmanager
    async def _syphon(self) -> AsyncIterator[None]:
        if not self.plan.with_syphon:
            yield
            return
        options = SyphonOptions(
            backlog_queue_count=self.plan.backlogs,
            primary_namespace_name=self.plan.primary_namespace_name,
            connection_verify=self.plan.ca_file,
        )
        stop = asyncio.Event()
        syphon = syphon_between(self.primary, self.secondary, options)
        running = asyncio.ensure_future(syphon.run(stop))
        try:
            yield
        finally:
            stop.set()
            await running

    # Coming home.

    def _away(self) -> dict[str, Canary]:
        return {each.message_id: each for each in self.canaries if each.fate is Fate.PARKED}

    async def _come_home(self, client: PairedServiceBusClient, sight: Sight) -> None:
        """Look until every canary has come home, or the time is up; then find out where the others are."""
        looks = {Proof.CANCEL: self._look, Proof.PEEK: self._look_everywhere, Proof.RECEIVE: self._receive}
        look = looks[self.plan.proof]
        until, pause = time.monotonic() + self.plan.wait, FIRST_PAUSE
        while self._away() and time.monotonic() < until:
            await look(client, sight)
            await asyncio.sleep(pause if self._away() else 0)
            pause = min(1.5 * pause, LONGEST_PAUSE)
        if self._away():
            await self._look_everywhere(client, sight)

    async def _look(self, client: PairedServiceBusClient, sight: Sight) -> None:
        """Peek the primary; what is to be cancelled is, at once."""
        away = self._away()
        found = await sight.at_home(away)
        if found and self.plan.proof is Proof.CANCEL:
            async with client.get_queue_sender(self.plan.entity) as sender:
                await sender.cancel_scheduled_messages(list(found.values()))
        for message_id in found:
            self._came_home(away[message_id])

    async def _look_everywhere(self, client: PairedServiceBusClient, sight: Sight) -> None:
        """What is neither in its backlog nor on the primary, looked for in this order, has been taken.

        It was accepted by the primary: a syphon completes it on the backlog only then (G-20).
        """
        away = self._away()
        backlogs = {self._backlog(each) for each in away.values()}
        parked = {found for name in backlogs for found in await sight.in_backlog(name, away)}
        await self._look(client, sight)
        gone = {name: each for name, each in self._away().items() if name not in parked}
        why: dict[str, str] = {}
        for name in {self._backlog(each) for each in gone.values()}:
            why |= await sight.set_aside(name, gone)
        for message_id, canary in gone.items():
            if message_id in why:
                canary.fate, canary.why = Fate.DEAD_LETTERED, why[message_id]
            else:
                canary.fate = Fate.TAKEN if self.plan.proof is Proof.PEEK else Fate.MISSING

    async def _receive(self, client: PairedServiceBusClient, sight: Sight) -> None:
        entity, subscription = self.plan.entity, self.plan.subscription
        receiver = (
            client.get_queue_receiver(entity)
            if subscription is None
            else client.get_subscription_receiver(entity, subscription)
        )
        async with receiver:
            for message in await receiver.receive_messages(max_message_count=100, max_wait_time=LAST_LOOK):
                canary = self._away().get(str(message.message_id))
                if canary is None:
                    await receiver.abandon_message(message)
                else:
                    await receiver.complete_message(message)
                    self._came_home(canary)

    def _backlog(self, canary: Canary) -> str:
        label = self.plan.primary_namespace_name or namespace_label(self.primary.netloc)
        return backlog_queue_name(label, canary.backlog or 0)

    def _came_home(self, canary: Canary) -> None:
        canary.fate, canary.home_after = Fate.HOME, time.monotonic() - self._began

    async def _clean_up(self, client: PairedServiceBusClient, sight: Sight) -> None:
        """Cancel what has come home meanwhile, so that no consumer has to skip it."""
        if self.plan.proof is not Proof.CANCEL or not self._away():
            return
        try:
            async with asyncio.timeout(LAST_LOOK):
                await self._look(client, sight)
        except (SyphonError, ServiceBusError, TimeoutError):
            pass  # it comes home marked, and its time to live ends it
