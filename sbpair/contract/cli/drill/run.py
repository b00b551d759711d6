"""One drill: probe, hold, park, release, watch the canaries come home, clean up.

After an error or Ctrl-C, too, the entity is marked healthy and canaries that have come home are cancelled before
a consumer can receive them. Only this process is affected: each client has its own view of an entity's health.

"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from sbpair.aio import PairedNamespaceOptions, PairedServiceBusClient, StoredIn
from sbpair.data.audit.canary_ids import PROBE, canary_id
from sbpair.events import EntityRecovered
from sbpair.pair.cli.errors import ConfigurationError, one_line
from sbpair.pair.cli.namespaces import NamespaceArgument, client_between, syphon_between
from sbpair.pair.client.errors import ClientError, LinkRefusedError, TokenRefusedError
from sbpair.pair.envelope.names import backlog_queue_name, namespace_label
from sbpair.pair.pairing.events import PairingEvent
from sbpair.pair.syphon.options import SyphonOptions

from ...search import CanarySearch
from .plan import (
    ARRIVED,
    AWAY,
    CONTENT_TYPE,
    MARGIN,
    PROPERTY,
    TIME_TO_LIVE,
    Canary,
    DrillPlan,
    Fate,
    Proof,
    canaries,
)

TIMEOUT = 15.0  # seconds to connect to a side, and for a ping to bring the entity home
CLEANUP_TIMEOUT = 5.0  # seconds
FIRST_PAUSE, MAX_PAUSE = 0.1, 2.0  # seconds between two searches


@dataclass(slots=True)
class Drill:
    """One drill; after `run` the fields hold its result."""

    plan: DrillPlan
    primary: NamespaceArgument
    secondary: NamespaceArgument
    say: Callable[[str], object]
    """Receives a line of progress at each step."""

    id: str = field(default_factory=lambda: uuid.uuid4().hex[:12])
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
        """Run all steps. Raises ServiceBusError and ClientError, after restoring everything."""
        self.canaries = canaries(self.id, self.plan.count)
        async with AsyncExitStack() as stack:
            client = await stack.enter_async_context(self._client())
            stack.callback(client.on_event(self._on_event))
            search = self._search()
            stack.push_async_callback(search.close)
            await self._check(search)
            await self._probe(client, search)
            try:
                self._began, self.is_held = time.monotonic(), True
                client.hold(self.plan.entity)
                self.say(
                    f"{self.plan.entity} is held in failover, in this process only: "
                    f"parking {self.plan.count} canaries"
                )
                await self._park(client)
                client.release(self.plan.entity)
                self.say(f"{len(self._away())} are parked; waiting for a ping to bring the entity home")
                async with self._syphon():
                    await self._wait_recovered()
                    await self._come_home(client, search)
            finally:
                self.say("cleaning up")
                self.is_held = False
                client.mark_path_healthy(self.plan.entity)
                await self._clean_up(client, search)
                self.pings, self.peeks = client.pings_sent, search.peeks

    # Setting up.

    def _client(self) -> PairedServiceBusClient:
        options = PairedNamespaceOptions(
            backlog_queue_count=self.plan.backlogs,
            assume_backlogs_exist=True,  # a drill uses the queues that an outage would use
            primary_namespace_name=self.plan.primary_namespace_name,
            operation_timeout=timedelta(seconds=2 * TIMEOUT),
        )
        return client_between(self.primary, self.secondary, options, self.plan.ca_file)

    def _search(self) -> CanarySearch:
        trusted, path = self.plan.ca_file, self.plan.arrival_path
        return CanarySearch(self.primary.namespace(trusted), self.secondary.namespace(trusted), path)

    async def _check(self, search: CanarySearch) -> None:
        """Raise ConfigurationError when the entity does not exist, or is not empty with --proof receive."""
        try:
            is_empty = await search.is_empty()
        except (LinkRefusedError, TokenRefusedError) as error:
            symbol = str(error.condition.symbol) if error.condition else ""
            if symbol == "amqp:unauthorized-access":
                raise
            text = f"{search.path} on the primary: {one_line(error)}"
            raise ConfigurationError(f"{text}; check the name; a topic needs --subscription") from error
        if self.plan.proof is Proof.RECEIVE and not is_empty:
            raise ConfigurationError(f"{search.path} is not empty: --proof receive is for a scratch entity")

    async def _probe(self, client: PairedServiceBusClient, search: CanarySearch) -> None:
        """Schedule one message on the entity, see it, and cancel it; later searches start after it."""
        message = self._message(canary_id(self.id, PROBE))
        async with client.get_queue_sender(self.plan.entity) as sender:  # also sends to topics
            (number,) = await sender.schedule_messages(message, self._due(), timeout=2 * TIMEOUT)
            try:
                if self.plan.subscription is None:
                    search.start = number
                    if not await search.at_home({str(message.message_id)}):
                        raise ConfigurationError(
                            f"{search.path} shows no messages: a topic needs --subscription"
                        )
            finally:
                await sender.cancel_scheduled_messages(number)

    def _message(self, message_id: str) -> ServiceBusMessage:
        return ServiceBusMessage(
            b"sbpair drill",
            message_id=message_id,
            session_id=f"sbpair-canary-{self.id}",  # required by entities with sessions
            content_type=CONTENT_TYPE,
            application_properties={PROPERTY: self.id},
            time_to_live=TIME_TO_LIVE,
        )

    def _due(self) -> datetime:
        return datetime.now(UTC) + timedelta(seconds=self.plan.wait + 2 * TIMEOUT) + MARGIN

    # The steps.

    async def _park(self, client: PairedServiceBusClient) -> None:
        """Send each canary from a sender of its own, which picks a random backlog queue."""
        await asyncio.gather(*(self._park_one(client, canary) for canary in self.canaries))

    async def _park_one(self, client: PairedServiceBusClient, canary: Canary) -> None:
        message = self._message(canary.message_id)
        if self.plan.proof is Proof.CANCEL:
            message.scheduled_enqueue_time_utc = self._due()
        try:
            async with client.get_queue_sender(self.plan.entity) as sender:
                canary.fate = Fate.IN_DOUBT  # for a drill that is interrupted from here on
                receipt = await sender.send_messages(message)
        except ServiceBusError as error:
            canary.fate, canary.why = Fate.REFUSED, one_line(error)
            return
        if receipt.stored_in is not StoredIn.BACKLOG:
            raise AssertionError(f"a held entity let a canary through to {receipt.stored_in}")
        canary.fate, canary.backlog = Fate.PARKED, receipt.backlog
        canary.parked_after = time.monotonic() - self._began

    def _on_event(self, event: PairingEvent) -> None:
        if isinstance(event, EntityRecovered) and self.is_held:  # no other entity is used
            self.has_recovered = True
            self._recovered.set()

    async def _wait_recovered(self) -> None:
        try:
            await asyncio.wait_for(self._recovered.wait(), TIMEOUT)
        except TimeoutError:
            pass  # reported through has_recovered; the search for the canaries continues

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
        return {each.message_id: each for each in self.canaries if each.fate in AWAY}

    async def _come_home(self, client: PairedServiceBusClient, search: CanarySearch) -> None:
        """Search until every canary is home or the time is up; then locate the others."""
        searches = {Proof.CANCEL: self._find, Proof.PEEK: self._find_everywhere, Proof.RECEIVE: self._receive}
        find = searches[self.plan.proof]
        until, pause, said = time.monotonic() + self.plan.wait, FIRST_PAUSE, -1
        while self._away() and time.monotonic() < until:
            if said != len(self._away()):
                said = len(self._away())
                self.say(f"{said} canaries are on their way home; waiting at most {self.plan.wait:g} s")
            await find(client, search)
            await asyncio.sleep(pause if self._away() else 0)
            pause = min(1.5 * pause, MAX_PAUSE)
        if self._away():
            await self._find_everywhere(client, search)

    async def _find(self, client: PairedServiceBusClient, search: CanarySearch) -> None:
        """Search the primary; with --proof cancel, cancel the canaries found at once."""
        away = self._away()
        found = await search.at_home(away)
        if found and self.plan.proof is Proof.CANCEL:
            async with client.get_queue_sender(self.plan.entity) as sender:
                await sender.cancel_scheduled_messages(list(found.values()))
        for message_id in found:
            self._came_home(away[message_id])

    async def _find_everywhere(self, client: PairedServiceBusClient, search: CanarySearch) -> None:
        """Search the backlogs, then the primary, then the dead letters.

        A canary found nowhere was received by a consumer: a syphon completes it on the backlog only after the
        primary has accepted it.
        """
        away = self._away()
        backlogs = {self._backlog(each) for each in away.values()}
        parked = {found for name in backlogs for found in await search.in_backlog(name, away)}
        await self._find(client, search)
        gone = {name: each for name, each in self._away().items() if name not in parked}
        why: dict[str, str] = {}
        for name in {self._backlog(each) for each in gone.values()}:
            why |= await search.dead_lettered(name, gone)
        for message_id, canary in gone.items():
            if message_id in why:
                canary.fate, canary.why = Fate.DEAD_LETTERED, why[message_id]
            else:
                canary.fate = Fate.TAKEN if self.plan.proof is Proof.PEEK else Fate.MISSING

    async def _receive(self, client: PairedServiceBusClient, search: CanarySearch) -> None:
        entity, subscription = self.plan.entity, self.plan.subscription
        receiver = (
            client.get_queue_receiver(entity)
            if subscription is None
            else client.get_subscription_receiver(entity, subscription)
        )
        async with receiver:
            for message in await receiver.receive_messages(
                max_message_count=100, max_wait_time=CLEANUP_TIMEOUT
            ):
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

    async def _clean_up(self, client: PairedServiceBusClient, search: CanarySearch) -> None:
        """Cancel the canaries that have come home meanwhile, so that no consumer has to skip them."""
        if self.plan.proof is not Proof.CANCEL or not self._away():
            return
        try:
            async with asyncio.timeout(CLEANUP_TIMEOUT):
                await self._find(client, search)
        except (ClientError, ServiceBusError, TimeoutError):
            pass  # they come home marked and expire
