"""Control of a running namespace; every call runs in the broker's loop and returns when it is done."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, Unpack

from ..access import SharedAccess
from ..auth import Right, SharedAccessPolicy, cloud_connection_string, connection_string
from ..clock import Clock
from ..entities.descriptions import (
    AccessRule,
    AnyDescription,
    QueueDescription,
    QueueFields,
    SubscriptionDescription,
    SubscriptionFields,
    TopicDescription,
    TopicFields,
    check_access_rules,
    check_rights,
)
from ..entities.namespace import Namespace
from ..entities.partition import Health
from ..entities.queue import Queue
from ..entities.queue_context import OperationCounts
from ..entities.queue_partition import QueueCounts
from ..entities.rule_operations import add_rule, remove_rule
from ..entities.rules import Rule
from ..entities.topic import Subscription, Topic
from ..errors import BrokerError, InvalidDescriptionError
from ..faults import ActiveFault, Down, Effect, FaultRule, Outage, StandingEffect, operation_named
from .namespace_server import NamespaceServer

if TYPE_CHECKING:
    from ..configuration import NamespacePlan

Result = TypeVar("Result")
Rules = tuple[AccessRule, ...]


class InLoop(Protocol):
    """Runs a function as a turn of the broker's loop, if there is one, and returns its result or raises its error."""

    def __call__(self, function: Callable[[], Result], /) -> Result:
        """Return the result of ``function``."""


class NamespaceControl:
    """One namespace of a broker; safe to use from any thread."""

    def __init__(
        self,
        server: NamespaceServer,
        policy: SharedAccessPolicy,
        clock: Clock,
        in_loop: InLoop,
        policies: Iterable[SharedAccessPolicy] = (),
        save: Callable[[Iterable[SharedAccessPolicy]], None] | None = None,
    ) -> None:
        self._server = server
        self._policy = policy
        self._clock = clock
        self._in_loop = in_loop
        self._policies = {each.name: each for each in policies}  # policies that were added, by name
        self._save = save  # None for a namespace in memory

    def __repr__(self) -> str:
        return f"NamespaceControl({self.name!r}, port={self.port})"

    @property
    def server(self) -> NamespaceServer:
        """The server of the namespace; for the broker's own modules."""
        return self._server

    @property
    def _namespace(self) -> Namespace:
        return self._server.frontend.namespace

    @property
    def name(self) -> str:
        """The namespace's name."""
        return self._namespace.name

    @property
    def port(self) -> int:
        """The port it listens on; 0 before the broker has started if any free port was requested."""
        return self._server.port

    @property
    def is_partitioned(self) -> bool:
        """Whether this is a partitioned Premium namespace, all of whose entities are partitioned."""
        return self._namespace.layout.is_premium

    @property
    def management_url(self) -> str | None:
        """The address of the management port, None without one."""
        port = self._server.management_port
        return None if port is None else f"http://{self._server.advertised or 'localhost'}:{port}"

    @property
    def connection_string(self) -> str:
        """A connection string with all rights, for plain TCP.

        On a shared port it contains the namespace's cloud host name, and clients need the actual address
        separately: ``custom_endpoint_address="https://localhost:PORT"`` and the broker's ``ca_file``.
        """
        return self._connection_string(self._policy)

    def _connection_string(self, policy: SharedAccessPolicy) -> str:
        if self._server.neighbours.are_several:
            return cloud_connection_string(self.name, policy)
        # the name by which clients know this machine
        host = self._server.advertised or _host_to_connect_to(self._server.host)
        return connection_string(host, self.port, policy)

    # -- keys

    def add_policy(
        self, name: str, rights: Iterable[str | Right] = ("Send", "Listen"), *, entity: str = ""
    ) -> str:
        """Create a policy on the whole namespace, or on one queue or topic, and return its connection string.

        ``rights``: any of Manage, Send and Listen; Manage requires the other two. ``entity``: the path of a queue or
        topic, empty for the whole namespace.

        Raises BrokerError when the name is taken or the broker has open access, InvalidDescriptionError for an invalid
        name or right, EntityNotFoundError.
        """
        requested = frozenset(right.value if isinstance(right, Right) else right for right in rights)
        check_rights(name, requested)
        policy = SharedAccessPolicy.generate(name, frozenset(Right(right) for right in requested))
        right_names = tuple(right.value for right in Right if right in policy.rights)
        rule = AccessRule(name, right_names, policy.primary_key, policy.secondary_key)
        check_access_rules((rule,))
        if entity:
            self._change_rules(entity, lambda rules: (*rules, rule))
        else:
            self._in_loop(lambda: self._add_policy(policy))
        made = self._connection_string(policy)
        return f"{made};EntityPath={entity}" if entity else made

    def remove_policy(self, name: str, *, entity: str = "") -> None:
        """Delete a policy; its keys are no longer accepted.

        Raises BrokerError when the namespace has no such policy, EntityNotFoundError.
        """
        if entity:
            self._change_rules(entity, lambda rules: tuple(rule for rule in rules if rule.name != name))
        else:
            self._in_loop(lambda: self._remove_policy(name))

    def _add_policy(self, policy: SharedAccessPolicy) -> None:
        self._verifier.add(policy)
        self._policies[policy.name] = policy
        self._save_policies()

    def _remove_policy(self, name: str) -> None:
        self._verifier.remove(name)
        if self._policies.pop(name, None) is not None:
            self._save_policies()

    def _save_policies(self) -> None:
        if self._save is not None:
            self._save(self._policies.values())

    def _change_rules(self, path: str, change: Callable[[Rules], Rules]) -> None:

        def changed() -> None:
            entity, now = self._namespace.queue(path), self._clock.now()
            rules = change(entity.description.authorization_rules)
            if isinstance(entity, Topic):
                self._namespace.update_topic(path, replace(entity.requested, authorization_rules=rules), now)
            else:
                self._namespace.update_queue(
                    path, replace(entity.description, authorization_rules=rules), now
                )

        self._apply(changed)

    @property
    def _verifier(self) -> SharedAccess:
        verifier = self._server.frontend.verifier
        if not isinstance(verifier, SharedAccess):
            raise BrokerError(
                "A broker with open access accepts any key and has no policies: create it without "
                "open_access."
            )
        return verifier

    def inspect(self, view: Callable[[NamespaceServer], Result]) -> Result:
        """Call ``view`` in the broker's loop and return its result; ``view`` must be quick and change nothing."""
        return self._in_loop(lambda: view(self._server))

    def act(self, action: Callable[[NamespaceServer], Result]) -> Result:
        """Call ``action`` in the broker's loop, deliver and store its changes, and return its result."""

        return self._in_loop(lambda: action(self._server))

    # -- entities

    def create_entities(self, plan: NamespacePlan) -> None:
        """Create the missing entities of a configuration file, all or none. Raises BadConfigurationError."""
        self._apply(lambda: plan.create_entities(self._namespace, self._clock.now()))

    def create_queue(
        self, path: str, *, description: QueueDescription | None = None, **fields: Unpack[QueueFields]
    ) -> None:
        """Create a queue from its fields or from a whole description.

        From its fields it is partitioned if the namespace is a partitioned Premium one.
        Raises InvalidDescriptionError, NotSupportedError, EntityAlreadyExistsError.
        """
        requested = _requested(QueueDescription, description, fields, enable_partitioning=self.is_partitioned)
        self._in_loop(lambda: self._namespace.create_queue(path, requested, self._clock.now()))

    def update_queue(self, path: str, description: QueueDescription) -> None:
        """Replace a queue's description. Raises EntityNotFoundError, InvalidDescriptionError, NotSupportedError."""
        self._apply(lambda: self._namespace.update_queue(path, description, self._clock.now()))

    def delete_queue(self, path: str) -> None:
        """Delete a queue and its messages; its links are detached. Raises EntityNotFoundError."""
        self._apply(lambda: self._namespace.delete_queue(path, self._clock.now()))

    def queue_names(self) -> list[str]:
        """Return the paths of all queues, sorted."""
        return self._in_loop(lambda: [queue.path for queue in self._namespace.queues()])

    # -- topics

    def create_topic(
        self, path: str, *, description: TopicDescription | None = None, **fields: Unpack[TopicFields]
    ) -> None:
        """Create a topic from its fields or from a whole description. Raises as :meth:`create_queue`."""
        requested = _requested(TopicDescription, description, fields, enable_partitioning=self.is_partitioned)
        self._in_loop(lambda: self._namespace.create_topic(path, requested, self._clock.now()))

    def update_topic(self, path: str, description: TopicDescription) -> None:
        """Replace a topic's description. Raises EntityNotFoundError, InvalidDescriptionError, NotSupportedError."""
        self._apply(lambda: self._namespace.update_topic(path, description, self._clock.now()))

    def delete_topic(self, path: str) -> None:
        """Delete a topic and its subscriptions; their links are detached. Raises EntityNotFoundError."""
        self._apply(lambda: self._namespace.delete_topic(path))

    def topic_names(self) -> list[str]:
        """Return the paths of all topics, sorted."""
        return self._in_loop(lambda: [topic.path for topic in self._namespace.topics()])

    def create_subscription(
        self,
        topic: str,
        name: str,
        *,
        description: SubscriptionDescription | None = None,
        **fields: Unpack[SubscriptionFields],
    ) -> None:
        """Create a subscription of a topic from its fields or from a whole description.

        Raises as :meth:`create_queue`, and EntityNotFoundError without the topic.
        """
        requested = _requested(SubscriptionDescription, description, fields)
        self._in_loop(lambda: self._namespace.create_subscription(topic, name, requested, self._clock.now()))

    def update_subscription(self, topic: str, name: str, description: SubscriptionDescription) -> None:
        """Replace a subscription's description. Raises as :meth:`update_topic`."""
        self._apply(lambda: self._namespace.update_subscription(topic, name, description, self._clock.now()))

    def delete_subscription(self, topic: str, name: str) -> None:
        """Delete a subscription and its messages; its links are detached. Raises EntityNotFoundError."""
        self._apply(lambda: self._namespace.delete_subscription(topic, name))

    def subscription_names(self, topic: str) -> list[str]:
        """Return the names of a topic's subscriptions, sorted. Raises EntityNotFoundError."""
        return self._in_loop(lambda: [each.name for each in self._namespace.subscriptions(topic)])

    # -- rules

    def add_rule(self, topic: str, subscription: str, rule: Rule) -> None:
        """Add a rule to a subscription. Raises EntityNotFoundError, EntityAlreadyExistsError, TooManyEntitiesError."""
        self._apply(lambda: add_rule(self._subscription(topic, subscription), rule, self._clock.now()))

    def remove_rule(self, topic: str, subscription: str, name: str) -> None:
        """Remove a rule from a subscription. Raises EntityNotFoundError."""
        self._apply(lambda: remove_rule(self._subscription(topic, subscription), name))

    def rules(self, topic: str, subscription: str) -> list[Rule]:
        """Return the rules of a subscription. Raises EntityNotFoundError."""
        return self._in_loop(lambda: list(self._subscription(topic, subscription).rules))

    def _subscription(self, topic: str, name: str) -> Subscription:
        return self._namespace.subscription(topic, name)

    # -- all entities

    def description(self, path: str) -> QueueDescription:
        """Return the description of a queue, or the one by which a topic or subscription stores messages.

        Raises EntityNotFoundError.
        """
        return self._in_loop(lambda: self._namespace.queue(path).description)

    def counts(self, path: str) -> QueueCounts:
        """Messages by state of a queue, a topic or ``topic/Subscriptions/name``. Raises EntityNotFoundError."""
        return self._in_loop(lambda: self._namespace.queue(path).counts(self._clock.now()))

    def message_ids(self, path: str) -> list[str]:
        """Return the ids of all messages in an entity, including copies. Raises EntityNotFoundError."""
        return self._in_loop(lambda: _ids_in(self._namespace.queue(path), self._clock.now()))

    @property
    def operations(self) -> OperationCounts:
        """The billable operations so far."""
        return self._in_loop(lambda: self._namespace.operations)

    @property
    def connection_count(self) -> int:
        """The number of open AMQP connections."""
        return self._in_loop(lambda: len(self._server.wires))

    # -- faults

    def take_down(self, how: str | Outage = "refuse", *, delay: float = 0.2) -> None:
        """Make the namespace fail: ``refuse``, ``reset``, ``silent``, ``slow`` or ``half-open`` (see Outage).

        ``delay``: seconds by which each answer is delayed, for ``slow``. Raises InvalidArgumentError for another outage
        or a negative delay.
        """
        way = how.value if isinstance(how, Outage) else how
        FaultRule(Down(way, delay))  # validates both
        outage = Outage(way)
        self._in_loop(lambda: self._server.take_down(outage, delay))

    def bring_up(self) -> None:
        """End the outage; does nothing without one."""
        self._in_loop(self._server.bring_up)

    @contextmanager
    def fault(
        self,
        entity: str | None,
        effect: Effect,
        *,
        operation: str | None = None,
        nth: int | None = None,
        times: int | None = None,
        probability: float = 1.0,
        seed: int = 0,
        after: float = 0.0,
        lasting: float | None = None,
        every: float | None = None,
    ) -> Iterator[ActiveFault]:
        """Apply ``effect`` inside the ``with``; the yielded fault counts its ``hits``.

        ``entity``: a path, a pattern with ``*``, or None for all. The other arguments are those of
        :class:`FaultRule`, with the operation given by name. Raises EntityNotFoundError, InvalidArgumentError.
        """
        requested = None if operation is None else operation_named(operation)
        rule = FaultRule(effect, entity, requested, nth, times, probability, seed, after, lasting, every)
        active = self.set_fault(rule)
        try:
            yield active
        finally:
            self.clear_fault(active)

    @contextmanager
    def scenario(self, name: str, entity: str | None = None, *, seed: int = 0) -> Iterator[list[ActiveFault]]:
        """Apply a named scenario (docs/reference/faults.md) inside the ``with``. Raises as :meth:`fault`."""
        from ..faults.scenarios import scenario_named  # late: rarely needed

        rules = scenario_named(name).of(entity, seed)
        active: list[ActiveFault] = []
        try:
            active.extend(map(self.set_fault, rules))  # when one is refused, the others are cleared
            yield active
        finally:
            for fault in active:
                self.clear_fault(fault)

    def set_fault(self, rule: FaultRule) -> ActiveFault:
        """Set a fault until it is cleared; :meth:`fault` does both.

        Raises EntityNotFoundError, InvalidArgumentError.
        """
        return self._in_loop(lambda: self._set_fault(rule))

    def clear_fault(self, active: ActiveFault) -> None:
        """Clear a fault; does nothing when it is not set."""
        self._in_loop(lambda: self._clear_fault(active))

    @property
    def faults(self) -> list[ActiveFault]:
        """All faults that are set, the oldest first."""
        return self._in_loop(lambda: self._server.frontend.faults.active)

    def _set_fault(self, rule: FaultRule) -> ActiveFault:
        server = self._server
        active = server.frontend.set_fault(rule, server.read_clocks().idle)
        try:
            refusal = self._update_standing(rule).get(active)
            if refusal is not None:
                raise refusal
        except Exception:
            server.frontend.faults.remove(active)
            raise
        return active

    def _clear_fault(self, active: ActiveFault) -> None:
        self._server.frontend.faults.remove(active)
        self._update_standing(active.rule)

    def _update_standing(self, rule: FaultRule) -> dict[ActiveFault, BrokerError]:
        if isinstance(rule.effect, StandingEffect) and self._server.is_open:
            return self._server.active_faults.apply()
        return {}

    def partition(self, path: str, index: int) -> PartitionControl:
        """Return one partition of a queue or topic, with its dead letters and subscriptions.

        Using it raises EntityNotFoundError, and InvalidDescriptionError when the partition does not exist.
        """
        return PartitionControl(
            lambda health, after: self._set_health(
                lambda at: self._namespace.set_health(path, index, health, at), after
            ),
            f"{path!r}, {index}",
        )

    def store(self, index: int) -> PartitionControl:
        """Return the store of one index, under every partitioned entity of the namespace."""
        return PartitionControl(
            lambda health, after: self._set_health(
                lambda at: self._namespace.set_store_health(index, health, at), after
            ),
            f"store {index}",
        )

    def let_front_ends_cache(self, cache: bool = True) -> None:
        """Let the front end of each connection cache messages of partitioned entities; affects new links."""
        self._in_loop(lambda: self._namespace.let_front_ends_cache(cache))

    def let_updates_take_locks(self, take: bool = True) -> None:
        """Let an update of a queue or subscription end all its message locks, as the service may."""

        def let() -> None:
            self._namespace.updates_take_locks = take

        self._in_loop(let)

    def _set_health(self, change: Callable[[int], None], known_after: int) -> None:
        self._apply(lambda: change(self._clock.now() + known_after))

    def _apply(self, change: Callable[[], object]) -> None:
        self.act(lambda server: change())


def _requested(
    kind: type[AnyDescription],
    description: AnyDescription | None,
    fields: Mapping[str, object],
    **usual: object,
) -> AnyDescription:
    """Return the description, or one with the fields; ``usual`` are the defaults that differ from those of the kind.

    Raises InvalidDescriptionError when both are given.
    """
    if description is None:
        given: dict[str, Any] = {**usual, **fields}
        return kind(**given)
    if fields:
        raise InvalidDescriptionError("Give a description or its fields, not both.")
    return description


def _ids_in(queue: Queue, now: int) -> list[str]:
    found: list[str] = []
    start = 1
    while messages := queue.peek(start, 1000, now):  # of a partitioned entity one partition at a time
        found += [str(message.message_id) for message in messages]
        start = messages[-1].sequence_number + 1
    return found


def _host_to_connect_to(listening: str) -> str:
    """Return the host for connection strings of clients on this machine, given the address listened on."""
    try:
        address = ip_address(listening)
    except ValueError:
        return listening  # a name
    return "localhost" if address.is_loopback or address.is_unspecified else listening


class PartitionControl:
    """A partition of an entity, or the store of one index under all entities; safe to use from any thread."""

    def __init__(self, set_health: Callable[[Health, int], None], description: str) -> None:
        self._set_health = set_health
        self._description = description

    def __repr__(self) -> str:
        return f"PartitionControl({self._description})"

    @contextmanager
    def take_down(self, *, reroute_after: int = 0) -> Iterator[None]:
        """Keep the partition down inside the ``with``: its messages wait, and sends with its keys are refused.

        ``reroute_after``: milliseconds of entity time after which messages without a key go to other partitions; a
        message whose turn falls on this one waits until then (up to 15,000 in the service). Raises ValueError
        below 0.
        """
        if reroute_after < 0:
            raise ValueError(f"reroute_after is {reroute_after!r}: use milliseconds, at least 0")
        with self._while(Health.DOWN, reroute_after):
            yield

    @contextmanager
    def throttle(self) -> Iterator[None]:
        """Throttle the partition inside the ``with``: it delivers messages and accepts none."""
        with self._while(Health.THROTTLED, 0):
            yield

    @contextmanager
    def _while(self, health: Health, reroute_after: int) -> Iterator[None]:
        self._set_health(health, reroute_after)
        try:
            yield
        finally:
            self._set_health(Health.UP, 0)
