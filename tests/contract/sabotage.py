"""Brokers that behave otherwise: each shows that entries of the contract can fail."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, fields, replace
from datetime import timedelta
from unittest.mock import patch

from aiohttp import web
from azure.core.exceptions import HttpResponseError, ResourceExistsError
from azure.servicebus.management import QueueProperties, ServiceBusAdministrationClient

from sbpair.broker import Broker, Effect, RejectWith
from sbpair.broker.entities.entity import Entity as AnyEntity
from sbpair.broker.entities.stored_message import StoredMessage
from sbpair.broker.frontends.amqp.request_response import status
from sbpair.broker.frontends.delivered_message import _delivered
from sbpair.contract.entry import Entity, Entry, Queue, Subscription, Topic
from sbpair.contract.target import Target
from tests.contract.conftest import NAMES

DEFAULTS = {kind: kind() for kind in (Queue, Topic, Subscription)}
SETTINGS = (
    "lock",
    "time_to_live",
    "duplicates_within",
    "max_deliveries",
    "dead_letters_expired",
    "forward_to",
    "forward_dead_letters_to",
    "partitioned",
    "max_megabytes",
)
"""Settings of an entity that a broker might ignore."""

BUSY = RejectWith("com.microsoft:server-busy", "busy")


class OtherAdministration:
    """An administration API with other defaults, without conflicts, that finds what is missing."""

    def __init__(self, inner: ServiceBusAdministrationClient) -> None:
        self._inner = inner

    def __enter__(self) -> OtherAdministration:
        return self

    def __exit__(self, *what: object) -> None:
        self._inner.close()

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    def create_queue(self, name: str, *, forward_to: str | None = None, **settings: object) -> None:
        with suppress(ResourceExistsError):
            self._inner.create_queue(name, **settings)

    def get_queue(self, name: str) -> QueueProperties:
        try:
            found = self._inner.get_queue(name)
        except HttpResponseError:
            return next(iter(self._inner.list_queues()))
        found.lock_duration = timedelta(seconds=30)
        found.default_message_time_to_live = timedelta(days=7)
        found.auto_delete_on_idle = timedelta(days=7)
        return found

    def update_queue(self, queue: QueueProperties) -> None:
        """Change nothing."""


@dataclass(frozen=True, slots=True)
class Sabotage:
    """One way to behave otherwise, and the entries that it shows to be able to fail."""

    shows: tuple[str, ...]
    effect: Effect | None = None
    operation: str | None = None
    ignores: tuple[str, ...] = ()
    """Settings of entities that are as if they had not been asked for."""

    stands: bool = False
    """The clock of the broker stands."""

    is_open: bool = False
    """The broker takes any token."""

    administers: bool = False
    """The administration API is another one."""

    patches: dict[str, object] = field(default_factory=dict)
    """What takes the place of parts of the broker, by their dotted name."""

    @contextmanager
    def at_work(self, broker: Broker) -> Iterator[None]:
        with ExitStack() as stack:
            for name, other in self.patches.items():
                stack.enter_context(patch(name, other))
            if self.effect is not None:
                for name in NAMES.values():
                    namespace = broker.namespace(name)
                    stack.enter_context(namespace.fault(None, self.effect, operation=self.operation))
            yield

    def target(self, target: Target) -> Target:
        if not self.administers:
            return target
        make: Callable[[], ServiceBusAdministrationClient] = target.administration
        return replace(target, administration=lambda: OtherAdministration(make()))

    def entry(self, each: Entry) -> Entry:
        """The entry, with entities that lack what is ignored."""
        return replace(each, entities=tuple(self._entity(entity) for entity in each.entities))

    def _entity(self, entity: Entity) -> Entity:
        known = {each.name for each in fields(entity)}
        default = DEFAULTS[type(entity)]
        return replace(entity, **{name: getattr(default, name) for name in self.ignores if name in known})


def _altered(message: StoredMessage, queue: AnyEntity, is_copy: bool) -> bytes:
    """Deliver a message with a property and a session id that were changed."""
    payload = _delivered(message, queue, is_copy)
    return payload.replace(b"\xa1\x04text", b"\xa1\x04test").replace(b"s-1", b"s-2")


def _status(code: int, text: str, **more: object) -> object:
    """Accept tokens for what is missing, and answer others with 250."""
    return status({404: 202, 202: 250}.get(code, code), text, **more)


def _refused_upgrade(*what: object, **more: object) -> object:
    raise web.HTTPNotFound()


AMQP = "sbpair.broker.frontends.amqp"
SABOTAGES: dict[str, Sabotage] = {
    "what is missing is forbidden": Sabotage(
        ("sending-5", "errors-5", "tokens-8"),
        patches={
            "sbpair.broker.errors.EntityNotFound.condition": "amqp:not-allowed",
            f"{AMQP}.request_response.status": lambda code, text, **more: status(
                202 if code == 404 else code, text, **more
            ),
        },
    ),
    "there is no WebSocket": Sabotage(
        ("wire-7",), patches={"sbpair.broker.server.http.web.WebSocketResponse": _refused_upgrade}
    ),
    "transactions are otherwise unknown": Sabotage(
        ("transactions-6",), patches={"sbpair.broker.errors.UnknownTransaction.condition": "amqp:not-found"}
    ),
    "errors are not tracked": Sabotage(
        ("errors-8",), patches={f"{AMQP}.request_response.tracked": lambda text, tracker, now: text}
    ),
    "filters are ignored": Sabotage(
        ("deadletters-6", "topics-8", "errors-9"),
        patches={f"{AMQP}.attach.has_session_filter": lambda attach: False},
    ),
    "messages are changed": Sabotage(
        ("fidelity-8", "fidelity-9", "fidelity-10"),
        patches={"sbpair.broker.frontends.delivered_message._delivered": _altered},
    ),
    "any number of claim links": Sabotage(
        ("tokens-5",), patches={f"{AMQP}.attach.NodeFactory._check_claim_links": lambda self, link: None}
    ),
    "any token is taken": Sabotage(
        ("tokens-2", "tokens-3", "tokens-4", "tokens-6", "tokens-7"), is_open=True
    ),
    "the administration is another": Sabotage(
        (
            "names-4",
            "names-5",
            "names-6",
            "names-8",
            "names-9",
            "forwarding-2",
            "forwarding-4",
            "errors-1",
            "errors-2",
            "errors-3",
            "errors-4",
        ),
        administers=True,
    ),
    "time stands still": Sabotage(
        (
            "locks-3",
            "locks-6",
            "expiry-1",
            "expiry-2",
            "expiry-4",
            "expiry-5",
            "expiry-6",
            "expiry-9",
            "topics-9",
        ),
        stands=True,
    ),
    "settings are ignored": Sabotage(
        (
            "names-2",
            "names-3",
            "names-7",
            "locks-8",
            "duplicates-1",
            "duplicates-2",
            "duplicates-5",
            "topics-11",
            "partitions-2",
            "partitions-3",
            "partitions-5",
            "partitions-6",
            "partitions-8",
        ),
        ignores=SETTINGS,
    ),
    "sessions are ignored": Sabotage(
        (
            "peeking-5",
            "pings-3",
            "sessions-1",
            "sessions-2",
            "sessions-3",
            "sessions-4",
            "sessions-5",
            "sessions-6",
            "sessions-7",
            "sessions-8",
            "sessions-9",
            "sessions-10",
            "sessions-11",
            "sessions-12",
            "sessions-13",
            "partitions-7",
        ),
        ignores=("sessions",),
    ),
    "settlements are refused": Sabotage(
        ("names-11", "settling-1", "settling-4", "settling-7", "locks-5", "expiry-3", "transactions-3"),
        BUSY,
        "settle",
    ),
    "requests are refused": Sabotage(
        (
            "settling-8",
            "locks-7",
            "locks-10",
            "expiry-8",
            "schedule-3",
            "schedule-4",
            "schedule-5",
            "peeking-1",
            "peeking-2",
            "peeking-3",
            "peeking-4",
            "peeking-6",
            "peeking-7",
            "pings-5",
            "deadletters-7",
            "topics-3",
            "topics-4",
            "topics-5",
            "topics-6",
            "transactions-1",
            "transactions-2",
            "partitions-4",
        ),
        BUSY,
        "manage",
    ),
    "sends are refused": Sabotage(
        (
            "names-1",
            "sending-1",
            "sending-2",
            "sending-3",
            "sending-4",
            "sending-6",
            "sending-8",
            "fidelity-1",
            "fidelity-2",
            "fidelity-3",
            "fidelity-4",
            "fidelity-5",
            "fidelity-6",
            "fidelity-7",
            "settling-2",
            "settling-3",
            "settling-5",
            "settling-6",
            "settling-9",
            "settling-10",
            "settling-11",
            "locks-1",
            "locks-2",
            "locks-4",
            "locks-9",
            "expiry-7",
            "expiry-10",
            "schedule-1",
            "schedule-2",
            "schedule-7",
            "peeking-8",
            "pings-1",
            "pings-2",
            "pings-4",
            "deadletters-2",
            "deadletters-3",
            "deadletters-4",
            "deadletters-5",
            "duplicates-3",
            "duplicates-4",
            "duplicates-6",
            "topics-1",
            "topics-2",
            "topics-7",
            "topics-12",
            "forwarding-1",
            "forwarding-3",
            "forwarding-5",
            "forwarding-6",
            "transactions-4",
            "transactions-5",
            "partitions-1",
            "limits-2",
            "limits-5",
            "limits-7",
            "limits-9",
            "wire-1",
            "wire-4",
            "wire-6",
        ),
        BUSY,
        "send",
    ),
    "links are refused": Sabotage(
        (
            "names-10",
            "sending-7",
            "schedule-6",
            "pings-6",
            "transactions-7",
            "limits-1",
            "limits-3",
            "limits-4",
            "limits-6",
            "limits-8",
            "errors-6",
            "errors-7",
            "wire-2",
            "wire-3",
            "wire-5",
            "wire-8",
        ),
        BUSY,
        "attach",
    ),
    "tokens are answered with 250": Sabotage(
        ("tokens-1",), patches={f"{AMQP}.request_response.status": _status}
    ),
}
