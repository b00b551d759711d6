"""A namespace as a test holds it: every call runs in the broker's loop and returns when it is done."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol, TypeVar, overload

from ..access import SharedAccess
from ..auth import Right, SharedAccessPolicy, cloud_connection_string, connection_string
from ..clock import Clock
from ..entities.access_rule import AccessRule, check_rights, check_rules
from ..entities.description import QueueDescription
from ..entities.entity import Entity
from ..entities.kinds import AnySubscription, AnyTopic
from ..entities.operations import OperationCounts
from ..entities.queue import QueueCounts
from ..entities.rule_operations import add_rule, remove_rule
from ..entities.rules import Rule
from ..entities.topic_description import SubscriptionDescription, TopicDescription
from ..errors import BrokerError, InvalidDescription
from ..faults import ActiveFault, Down, Effect, FaultRule, Outage, Standing, operation_named
from .partition_control import PartitionControl
from .station import Station

if TYPE_CHECKING:
    from ..configuration import NamespacePlan

Result = TypeVar("Result")
Rules = tuple[AccessRule, ...]
LOOPBACK = ("127.0.0.1", "::1", "localhost")


class InLoop(Protocol):
    """Runs a function in the broker's loop, and returns its result or raises its error."""

    def __call__(self, function: Callable[[], Result], /) -> Result:
        """What ``function`` returned."""


class NamespaceControl:
    """One namespace of a broker; safe to use from any thread."""

    def __init__(self, station: Station, policy: SharedAccessPolicy, clock: Clock, in_loop: InLoop) -> None:
        self._station = station
        self._policy = policy
        self._clock = clock
        self._in_loop = in_loop

    def __repr__(self) -> str:
        return f"NamespaceControl({self.name!r}, port={self.port})"

    @property
    def station(self) -> Station:
        """Where it is served; for the broker."""
        return self._station

    @property
    def name(self) -> str:
        """The namespace's name."""
        return self._station.face.namespace.name

    @property
    def port(self) -> int:
        """The port it answers on; 0 until the broker has started, if any free one was asked for."""
        return self._station.port

    @property
    def connection_string(self) -> str:
        """What clients are configured with: all rights, plain TCP.

        Behind a shared port it names the namespace's host in the cloud, and clients are told separately where
        that is: ``custom_endpoint_address="https://localhost:PORT"`` and the broker's ``ca_file``.
        """
        return self._connection_string(self._policy)

    def _connection_string(self, policy: SharedAccessPolicy) -> str:
        if self._station.neighbours.are_several:
            return cloud_connection_string(self.name, policy)
        host = self._station.host
        return connection_string("localhost" if host in LOOPBACK else host, self.port, policy)

    # -- keys

    def add_policy(
        self, name: str, rights: Iterable[str | Right] = ("Send", "Listen"), *, entity: str = ""
    ) -> str:
        """A connection string with these rights only: on the whole namespace, or on one queue or topic.

        ``rights``: of Manage, Send and Listen. Raises BrokerError for a name that is taken,
        InvalidDescription, EntityNotFound.
        """
        asked = frozenset(right.value if isinstance(right, Right) else right for right in rights)
        check_rights(name, asked)
        policy = SharedAccessPolicy.generate(name, frozenset(Right(right) for right in asked))
        given = tuple(right.value for right in Right if right in policy.rights)
        rule = AccessRule(name, given, policy.primary_key, policy.secondary_key)
        check_rules((rule,))
        if entity:
            self._change_rules(entity, lambda rules: (*rules, rule))
        else:
            self._in_loop(lambda: self._verifier.add(policy))
        made = self._connection_string(policy)
        return f"{made};EntityPath={entity}" if entity else made

    def remove_policy(self, name: str, *, entity: str = "") -> None:
        """Take its keys no more. Raises BrokerError when there is none, EntityNotFound."""
        if entity:
            self._change_rules(entity, lambda rules: tuple(rule for rule in rules if rule.name != name))
        else:
            self._in_loop(lambda: self._verifier.remove(name))

    def _change_rules(self, path: str, change: Callable[[Rules], Rules]) -> None:
        namespace = self._station.face.namespace

        def changed() -> None:
            entity, now = namespace.queue(path), self._clock.now()
            rules = change(entity.description.authorization_rules)
            if isinstance(entity, AnyTopic):
                namespace.update_topic(path, replace(entity.asked, authorization_rules=rules), now)
            else:
                namespace.update_queue(path, replace(entity.description, authorization_rules=rules), now)

        self._settled(changed)

    @property
    def _verifier(self) -> SharedAccess:
        verifier = self._station.face.verifier
        if not isinstance(verifier, SharedAccess):
            raise BrokerError("A broker with open access takes any key: it has no policies.")
        return verifier

    def look(self, view: Callable[[Station], Result]) -> Result:
        """What ``view`` makes of it, in the broker's loop: it is to be quick, and to change nothing."""
        return self._in_loop(lambda: view(self._station))

    # -- entities

    def follow(self, plan: NamespacePlan) -> None:
        """Make what a configuration file says and is not there yet. Raises BadConfiguration."""
        namespace = self._station.face.namespace
        self._settled(lambda: plan.follow(namespace, self._clock.now()))

    @overload
    def create_queue(self, path: str, *, description: QueueDescription) -> None: ...
    @overload
    def create_queue(
        self,
        path: str,
        *,
        lock_duration: int = ...,
        max_size_in_megabytes: int = ...,
        requires_duplicate_detection: bool = ...,
        requires_session: bool = ...,
        default_message_time_to_live: int | None = ...,
        dead_lettering_on_message_expiration: bool = ...,
        duplicate_detection_history_time_window: int = ...,
        max_delivery_count: int = ...,
        enable_batched_operations: bool = ...,
        status: str = ...,
        forward_to: str | None = ...,
        auto_delete_on_idle: int | None = ...,
        enable_partitioning: bool = ...,
        forward_dead_lettered_messages_to: str | None = ...,
        user_metadata: str | None = ...,
        enable_express: bool = ...,
        max_message_size_in_kilobytes: int | None = ...,
        authorization_rules: Rules = ...,
    ) -> None: ...
    def create_queue(
        self, path: str, *, description: QueueDescription | None = None, **fields: object
    ) -> None:
        """Make a queue, by its fields or by a whole description.

        Raises InvalidDescription, NotSupported, EntityAlreadyExists.
        """
        if description is not None and fields:
            raise InvalidDescription("Give a description or its fields, not both.")
        asked = description if description is not None else QueueDescription(**fields)  # type: ignore[arg-type]
        namespace = self._station.face.namespace
        self._in_loop(lambda: namespace.create_queue(path, asked, self._clock.now()))

    def update_queue(self, path: str, description: QueueDescription) -> None:
        """Give a queue another description. Raises EntityNotFound, InvalidDescription, NotSupported."""
        namespace = self._station.face.namespace
        self._settled(lambda: namespace.update_queue(path, description, self._clock.now()))

    def delete_queue(self, path: str) -> None:
        """Remove a queue and its messages; its links are detached. Raises EntityNotFound."""
        namespace = self._station.face.namespace
        self._settled(lambda: namespace.delete_queue(path, self._clock.now()))

    def queue_names(self) -> list[str]:
        """The paths of all queues, sorted."""
        namespace = self._station.face.namespace
        return self._in_loop(lambda: [queue.path for queue in namespace.queues()])

    # -- topics

    @overload
    def create_topic(self, path: str, *, description: TopicDescription) -> None: ...
    @overload
    def create_topic(
        self,
        path: str,
        *,
        default_message_time_to_live: int | None = ...,
        max_size_in_megabytes: int = ...,
        requires_duplicate_detection: bool = ...,
        duplicate_detection_history_time_window: int = ...,
        enable_batched_operations: bool = ...,
        filtering_messages_before_publishing: bool = ...,
        status: str = ...,
        support_ordering: bool = ...,
        auto_delete_on_idle: int | None = ...,
        enable_partitioning: bool = ...,
        enable_subscription_partitioning: bool = ...,
        enable_express: bool = ...,
        user_metadata: str | None = ...,
        max_message_size_in_kilobytes: int | None = ...,
        authorization_rules: Rules = ...,
    ) -> None: ...
    def create_topic(
        self, path: str, *, description: TopicDescription | None = None, **fields: object
    ) -> None:
        """Make a topic, by its fields or by a whole description. Raises as :meth:`create_queue`."""
        if description is not None and fields:
            raise InvalidDescription("Give a description or its fields, not both.")
        asked = description if description is not None else TopicDescription(**fields)  # type: ignore[arg-type]
        namespace = self._station.face.namespace
        self._in_loop(lambda: namespace.create_topic(path, asked, self._clock.now()))

    def update_topic(self, path: str, description: TopicDescription) -> None:
        """Give a topic another description. Raises EntityNotFound, InvalidDescription, NotSupported."""
        namespace = self._station.face.namespace
        self._settled(lambda: namespace.update_topic(path, description, self._clock.now()))

    def delete_topic(self, path: str) -> None:
        """Remove a topic and its subscriptions; their links are detached. Raises EntityNotFound."""
        namespace = self._station.face.namespace
        self._settled(lambda: namespace.delete_topic(path))

    def topic_names(self) -> list[str]:
        """The paths of all topics, sorted."""
        namespace = self._station.face.namespace
        return self._in_loop(lambda: [topic.path for topic in namespace.topics()])

    @overload
    def create_subscription(self, topic: str, name: str, *, description: SubscriptionDescription) -> None: ...
    @overload
    def create_subscription(
        self,
        topic: str,
        name: str,
        *,
        lock_duration: int = ...,
        requires_session: bool = ...,
        default_message_time_to_live: int | None = ...,
        dead_lettering_on_message_expiration: bool = ...,
        dead_lettering_on_filter_evaluation_exceptions: bool = ...,
        max_delivery_count: int = ...,
        enable_batched_operations: bool = ...,
        status: str = ...,
        forward_to: str | None = ...,
        user_metadata: str | None = ...,
        forward_dead_lettered_messages_to: str | None = ...,
        auto_delete_on_idle: int | None = ...,
    ) -> None: ...
    def create_subscription(
        self, topic: str, name: str, *, description: SubscriptionDescription | None = None, **fields: object
    ) -> None:
        """Make a subscription of a topic, by its fields or by a whole description.

        Raises as :meth:`create_queue`, and EntityNotFound without the topic.
        """
        if description is not None and fields:
            raise InvalidDescription("Give a description or its fields, not both.")
        asked = description if description is not None else SubscriptionDescription(**fields)  # type: ignore[arg-type]
        namespace = self._station.face.namespace
        self._in_loop(lambda: namespace.create_subscription(topic, name, asked, self._clock.now()))

    def update_subscription(self, topic: str, name: str, description: SubscriptionDescription) -> None:
        """Give a subscription another description. Raises as :meth:`update_topic`."""
        namespace = self._station.face.namespace
        self._settled(lambda: namespace.update_subscription(topic, name, description, self._clock.now()))

    def delete_subscription(self, topic: str, name: str) -> None:
        """Remove a subscription and its messages; its links are detached. Raises EntityNotFound."""
        namespace = self._station.face.namespace
        self._settled(lambda: namespace.delete_subscription(topic, name))

    def subscription_names(self, topic: str) -> list[str]:
        """The names of a topic's subscriptions, sorted. Raises EntityNotFound."""
        namespace = self._station.face.namespace
        return self._in_loop(lambda: [each.name for each in namespace.subscriptions(topic)])

    # -- rules

    def add_rule(self, topic: str, subscription: str, rule: Rule) -> None:
        """Publish by this rule too. Raises EntityNotFound, EntityAlreadyExists, TooManyEntities."""
        self._settled(lambda: add_rule(self._subscription(topic, subscription), rule, self._clock.now()))

    def remove_rule(self, topic: str, subscription: str, name: str) -> None:
        """Publish by that rule no longer. Raises EntityNotFound."""
        self._settled(lambda: remove_rule(self._subscription(topic, subscription), name))

    def rules(self, topic: str, subscription: str) -> list[Rule]:
        """The rules of a subscription. Raises EntityNotFound."""
        return self._in_loop(lambda: list(self._subscription(topic, subscription).rules))

    def _subscription(self, topic: str, name: str) -> AnySubscription:
        return self._station.face.namespace.subscription(topic, name)

    # -- all entities

    def description(self, path: str) -> QueueDescription:
        """What a queue, or the keeping of a topic or subscription, follows. Raises EntityNotFound."""
        namespace = self._station.face.namespace
        return self._in_loop(lambda: namespace.queue(path).description)

    def counts(self, path: str) -> QueueCounts:
        """Messages by state of a queue, a topic or ``topic/Subscriptions/name``. Raises EntityNotFound."""
        namespace = self._station.face.namespace
        return self._in_loop(lambda: namespace.queue(path).counts(self._clock.now()))

    def message_ids(self, path: str) -> list[str]:
        """The ids of all messages that are in an entity, copies included. Raises EntityNotFound."""
        namespace = self._station.face.namespace
        return self._in_loop(lambda: _ids_in(namespace.queue(path), self._clock.now()))

    @property
    def operations(self) -> OperationCounts:
        """Operations that would have been billed, up to now (P-34, P-43)."""
        return self._in_loop(lambda: self._station.face.namespace.operations)

    @property
    def connection_count(self) -> int:
        """AMQP connections that are open now."""
        return self._in_loop(lambda: len(self._station.wires))

    # -- faults

    def take_down(self, how: str | Outage = "refuse", *, delay: float = 0.2) -> None:
        """Let the namespace fail: ``refuse``, ``reset``, ``silent``, ``slow`` or ``half-open`` (see Outage).

        ``delay``: seconds each answer waits, for ``slow``. Raises InvalidArgument.
        """
        way = how.value if isinstance(how, Outage) else how
        FaultRule(Down(way, delay))  # checks them
        outage = Outage(way)
        self._in_loop(lambda: self._station.take_down(outage, delay))

    def bring_up(self) -> None:
        """End the outage; nothing happens when there is none."""
        self._in_loop(self._station.bring_up)

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
        """Let ``effect`` strike inside the ``with``; what it yields counts the ``hits``.

        ``entity``: a path, a pattern with ``*``, or None for all. The rest is as in :class:`FaultRule`, the
        operation by its name. Raises EntityNotFound, InvalidArgument.
        """
        asked = None if operation is None else operation_named(operation)
        rule = FaultRule(effect, entity, asked, nth, times, probability, seed, after, lasting, every)
        active = self.set_fault(rule)
        try:
            yield active
        finally:
            self.clear_fault(active)

    @contextmanager
    def scenario(self, name: str, entity: str | None = None, *, seed: int = 0) -> Iterator[list[ActiveFault]]:
        """Let a named scenario (docs/testing.md) hold inside the ``with``. Raises as :meth:`fault`."""
        from ..faults.scenarios import scenario_named  # late: few ask for one

        rules = scenario_named(name).of(entity, seed)
        active: list[ActiveFault] = []
        try:
            active.extend(map(self.set_fault, rules))  # those that were set are cleared if one is refused
            yield active
        finally:
            for fault in active:
                self.clear_fault(fault)

    def set_fault(self, rule: FaultRule) -> ActiveFault:
        """Set a rule until it is cleared; :meth:`fault` does both. Raises EntityNotFound, InvalidArgument."""
        return self._in_loop(lambda: self._set_fault(rule))

    def clear_fault(self, active: ActiveFault) -> None:
        """Take a fault away; nothing happens when it is not set."""
        self._in_loop(lambda: self._clear_fault(active))

    @property
    def faults(self) -> list[ActiveFault]:
        """All faults that are set, the oldest first."""
        return self._in_loop(lambda: self._station.face.faults.active)

    def _set_fault(self, rule: FaultRule) -> ActiveFault:
        station = self._station
        active = station.face.set_fault(rule, station.moment().idle)
        try:
            refusal = self._stand(rule).get(active)
            if refusal is not None:
                raise refusal
        except Exception:
            station.face.faults.remove(active)
            raise
        return active

    def _clear_fault(self, active: ActiveFault) -> None:
        self._station.face.faults.remove(active)
        self._stand(active.rule)

    def _stand(self, rule: FaultRule) -> dict[ActiveFault, BrokerError]:
        if isinstance(rule.effect, Standing) and self._station.is_open:
            return self._station.standing.apply()
        return {}

    def partition(self, path: str, index: int) -> PartitionControl:
        """One partition of a queue or topic, with its dead letters and subscriptions (Q-4, Q-5).

        Using it raises EntityNotFound, and InvalidDescription where there is no such partition.
        """
        return PartitionControl(
            lambda health, after: self._partition_fails(
                lambda at: self._station.face.namespace.set_health(path, index, health, at), after
            ),
            f"{path!r}, {index}",
        )

    def store(self, index: int) -> PartitionControl:
        """The store of one index, under every partitioned entity of the namespace (Q-17)."""
        return PartitionControl(
            lambda health, after: self._partition_fails(
                lambda at: self._station.face.namespace.set_store_health(index, health, at), after
            ),
            f"store {index}",
        )

    def let_front_ends_cache(self, cache: bool = True) -> None:
        """Let each connection's front end keep messages of partitioned entities (Q-18), for new links."""
        namespace = self._station.face.namespace
        self._in_loop(lambda: namespace.let_front_ends_cache(cache))

    def let_updates_take_locks(self, take: bool = True) -> None:
        """Let an update of a queue or subscription end all locks of it, as it may in the service (3.1)."""
        namespace = self._station.face.namespace

        def let() -> None:
            namespace.updates_take_locks = take

        self._in_loop(let)

    def _partition_fails(self, change: Callable[[int], None], known_after: int) -> None:
        self._settled(lambda: change(self._clock.now() + known_after))

    def _settled(self, change: Callable[[], object]) -> None:
        def change_and_settle() -> None:
            change()
            self._station.settle()

        self._in_loop(change_and_settle)


def _ids_in(queue: Entity, now: int) -> list[str]:
    found: list[str] = []
    start = 1
    while messages := queue.peek(start, 1000, now):  # of a partitioned entity one partition at a time
        found += [str(message.message_id) for message in messages]
        start = messages[-1].sequence_number + 1
    return found
