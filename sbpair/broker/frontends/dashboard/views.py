"""The dashboard's views of a namespace and its entities, as plain values for JSON.

Each view is bounded: a page of entities, a page of messages, and counts that entities keep anyway. Viewing neither
counts as use nor receives messages, and shows no keys.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from itertools import islice

from sbpair.pair.amqp.message import DataBody
from sbpair.pair.ground.entity_settings import SESSIONS, SETTINGS, ValueKind

from ...entities.descriptions import QueueDescription, TopicDescription
from ...entities.message_store import DESCRIPTION, REASON
from ...entities.partition import Health
from ...entities.queue import Queue
from ...entities.queue_partition import QueueCounts
from ...entities.rules import CorrelationFilter, Rule, SqlFilter, TrueFilter
from ...entities.sessions import MessageSession
from ...entities.stored_message import StoredMessage
from ...entities.topic import Subscription, Topic
from ..amqp.client_connection import ClientConnection
from ..amqp.node import Node
from ..amqp.queue_receiver import QueueReceiver
from ..amqp.queue_sender import QueueSender
from ..amqp.session_receiver import SessionQueueReceiver, SessionWait
from ..namespace_frontend import NamespaceFrontend
from ..rest.receiver import RestReceiver
from .message import body_view

SAMPLES = 90
EVERY = 900  # milliseconds, minimum between two samples, for any number of viewers
MAX_KEYS = 400

Sample = tuple[int, tuple[int, ...]]


class History:
    """The most recent samples by key; the key unused for longest is dropped first."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, deque[Sample]] = OrderedDict()

    def add(self, key: str, at: int, values: Sequence[int]) -> list[Sample]:
        """Add a sample taken at ``at`` (milliseconds), unless the last one is less than EVERY ms old.

        Returns all samples of the key, oldest first.
        """
        samples = self._kept.setdefault(key, deque(maxlen=SAMPLES))
        self._kept.move_to_end(key)
        if not samples or at - samples[-1][0] >= EVERY:
            samples.append((at, tuple(values)))
        while len(self._kept) > MAX_KEYS:
            self._kept.popitem(last=False)
        return list(samples)


Row = dict[str, object]
MAX_ROWS = 100
MAX_MESSAGES = 50
MAX_SEARCHED_AT_ONCE = 500  # messages of one turn of the broker's loop
MAX_RULES = 100
MAX_LINKS = 20
LATELY = 300_000  # milliseconds: refusals that need attention now
MAX_STATE = 1024  # bytes of a session's state
MAX_TEXT = 300  # characters of untrusted text

_FLAGS = tuple(each for each in SETTINGS.values() if each.label)


def summary(frontend: NamespaceFrontend, now: int) -> Row:
    """Return the summary of a namespace: its name, tier, counts and faults."""
    namespace = frontend.namespace
    stores = namespace.layout.stores
    return {
        "name": namespace.name,
        "tier": namespace.tier.value,
        "now": now,
        "entities": len(namespace.directory),
        "rejected": frontend.rejections.total,
        "rejected_lately": frontend.rejections.since(now - LATELY),
        "faults": [active.rule.effect.name for active in frontend.faults.active][:MAX_ROWS],
        "stores_down": [store.index for store in stores if store.health is not Health.UP],
    }


@dataclass(frozen=True, slots=True)
class EntityRow:
    """An entity with its counts; ``quota`` in bytes, ``flags`` in words."""

    path: str
    kind: str
    status: str
    health: str
    flags: tuple[str, ...]
    forward_to: str | None
    quota: int
    counts: QueueCounts


def entities(frontend: NamespaceFrontend, now: int, skip: int, find: str) -> tuple[int, list[EntityRow]]:
    """Return the number of entities with ``find`` in their path, and a page of them, by path."""
    total, found = frontend.namespace.directory.page(skip, MAX_ROWS, find)
    return total, [entity_row(each, now) for each in found]


def entity_row(entity: Queue, now: int) -> EntityRow:
    """Return one entity with its counts."""
    requested = entity.description
    return EntityRow(
        path=entity.path,
        kind=kind_of(entity),
        status=entity.status,
        health=_health(entity),
        flags=(
            *(each.label for each in _FLAGS if each.value_in(requested)),
            *(f"{each.name} not in force: sent too late" for each in entity.kept.late),
            *_stranded(entity),
        ),
        forward_to=requested.forward_to,
        quota=requested.quota_in_bytes,
        counts=entity.counts(now),
    )


def _stranded(entity: Queue) -> list[str]:
    """Return a text with the number of dead letters that can neither be forwarded nor received, and why; or nothing."""
    each = [queue.forwarding.stranded for part in entity.partitions for queue in part.sub_queues]
    count = sum(number for number, _ in each)
    return [f"{count:,} dead letters not forwarded: {max(why for _, why in each)}"] if count else []


def kind_of(entity: Queue) -> str:
    """Return the name of the entity's kind."""
    if isinstance(entity, Topic):
        return "topic"
    return "subscription" if isinstance(entity, Subscription) else "queue"


def _health(entity: Queue) -> str:
    states = {partition.health for partition in entity.partitions}
    if states == {Health.DOWN}:
        return "down"
    return "limited" if Health.DOWN in states else "throttled" if Health.THROTTLED in states else "up"


def detail(frontend: NamespaceFrontend, path: str, now: int) -> tuple[EntityRow, Row]:
    """Return the details of one entity without its messages. Raises EntityNotFoundError."""
    entity = frontend.namespace.queue(path).top
    tenants = frontend.tenants_of(entity)
    return entity_row(entity, now), {
        "created_at": entity.created_at,
        "updated_at": entity.updated_at,
        "accessed_at": entity.accessed_at,
        "description": _settings(entity.requested if isinstance(entity, Topic) else entity.description),
        "spans": [each.name for each in SETTINGS.values() if each.kind is ValueKind.SPAN],
        "needs_sessions": SESSIONS.value_in(entity.description),
        "partitions": _partitions(entity, now),
        "senders": sum(isinstance(node, QueueSender) for node in tenants),
        "receivers": sum(isinstance(node, QueueReceiver | RestReceiver) for node in tenants),
        "waiting": sum(isinstance(node, SessionWait) for node in tenants),
        "rules": _rules(entity),
        "subscriptions": _subscriptions(entity),
    }


def _settings(requested: QueueDescription | TopicDescription) -> Row:
    """Return the entity's settings; of its authorization rules only names and rights, never a key."""
    rules = (f"{rule.name} ({', '.join(rule.rights)})" for rule in requested.authorization_rules)
    return {**asdict(requested), "authorization_rules": ", ".join(rules) or None}


def _partitions(entity: Queue, now: int) -> list[Row]:
    if not entity.is_partitioned:
        return []
    return [
        {"index": index, "health": part.health.value, "counts": asdict(part.counts(now))}
        for index, part in enumerate(entity.partitions)
    ]


def _subscriptions(entity: Queue) -> list[str]:
    return (
        [each.path for each in entity.subscriptions.values()][:MAX_ROWS] if isinstance(entity, Topic) else []
    )


def _rules(entity: Queue) -> list[Row]:
    if not isinstance(entity, Subscription):
        return []
    rules = [rule for rule, _ in zip(entity.rules, range(MAX_RULES), strict=False)]
    return [
        {
            "name": rule.name,
            "filter": _filter(rule),
            "action": rule.action.expression if rule.action else None,
        }
        for rule in rules
    ]


def _filter(rule: Rule) -> str:
    match rule.filter:
        case TrueFilter():
            return "all messages"
        case SqlFilter(expression=expression):
            return expression
        case CorrelationFilter() as wanted:
            terms = {
                **{k: v for k, v in asdict(wanted).items() if k != "properties" and v},
                **wanted.properties,
            }
            return " and ".join(f"{name} = {value}" for name, value in terms.items())
        case _:
            return "no messages"


# -- messages


def messages(entity: Queue, start: int) -> list[Row]:
    """Return the messages from a sequence number on, one row each, without locking them."""
    return [message_row(each) for each in entity.browse(start, MAX_MESSAGES)]


def search(entity: Queue, start: int, find: str) -> tuple[list[Row], int | None]:
    """Return the messages that contain ``find``, of MAX_SEARCHED_AT_ONCE from a number on, and the next number or None.

    Ids, session ids and dead-letter reasons are compared without regard to case, the sent sections byte by byte.
    """
    page = entity.browse(start, MAX_SEARCHED_AT_ONCE)
    lower, raw = find.casefold(), find.encode("utf-8", "surrogatepass")
    rows = [message_row(each) for each in page if raw in each.bare or _names(each, lower)]
    return rows, page[-1].sequence_number + 1 if page else None


def _names(message: StoredMessage, find: str) -> bool:
    amended = message.amended or {}
    texts = (message.message_id, message.session_id, message.sequence_number, amended.get(REASON))
    return any(find in str(text).casefold() for text in texts if text is not None)


def message_row(message: StoredMessage) -> Row:
    """Return one message without its body."""
    amended = message.amended or {}
    return {
        "number": message.sequence_number,
        "partition": message.partition_id,
        "state": message.state.name.lower(),
        "message_id": str(message.message_id)[:MAX_TEXT],
        "session_id": message.session_id,
        "enqueued_at": message.enqueued_at,
        "expires_at": message.expires_at,
        "scheduled_for": message.scheduled_for,
        "locked_until": message.locked_until or None,
        "deliveries": message.delivery_count,
        "size": message.size,
        "reason": _cut(amended.get(REASON)),
        "why": _cut(amended.get(DESCRIPTION)),
        "source": message.dead_letter_source,
    }


def message_of(entity: Queue, number: int) -> StoredMessage | None:
    """Return the message with that sequence number, without locking it, or None."""
    found: Iterable[StoredMessage] = entity.browse(number, 1)
    return next((each for each in found if each.sequence_number == number), None)


def _cut(value: object) -> str | None:
    return None if value is None else str(value)[:MAX_TEXT]


# -- sessions


def sessions(frontend: NamespaceFrontend, entity: Queue, skip: int) -> tuple[int, list[Row]]:
    """Return the number of an entity's sessions and a page of them; none when it does not use sessions."""
    known = entity.sessions
    if known is None:
        return 0, []
    holders = {
        node.lock.session_id: node.connection.container
        for node in frontend.tenants_of(entity)
        if isinstance(node, SessionQueueReceiver) and not node.lock.is_lost
    }
    page = islice(known.browse(), skip, skip + MAX_ROWS)
    return len(known), [_session(each, holders.get(each.id)) for each in page]


def _session(session: MessageSession, holder: str | None) -> Row:
    """Return one session; ``holder`` is the container id of the client whose receiver holds it."""
    state = session.state
    return {
        "id": session.id[:MAX_TEXT],
        "messages": session.count,
        "locked_until": session.lock.locked_until if session.lock else None,
        "holder": None if holder is None or session.lock is None else holder[:MAX_TEXT],
        "state_size": None if state is None else len(state),
        "state": None if state is None else body_view(DataBody((state[:MAX_STATE],))),
        "state_set_at": session.state_set_at or None,
    }


# -- connections


def connection(client: ClientConnection, peer: str) -> Row:
    """Return one AMQP connection and its links."""
    nodes = [node for node in client.links if node.queue is not None]
    return {
        "peer": peer,
        "container": client.container[:MAX_TEXT],
        "links": [_link(node) for node in nodes[:MAX_LINKS]],
        "more": max(0, len(nodes) - MAX_LINKS),
    }


def _link(node: Node) -> Row:
    kinds = (
        (QueueSender, "sends to"),
        (SessionWait, "waits for a session of"),
        (QueueReceiver, "receives from"),
    )
    word = next((word for kind, word in kinds if isinstance(node, kind)), "manages")
    path = node.queue.path if node.queue is not None else ""
    return {"what": word, "path": path, "credit": node.link.credit}


# -- refusals


def rejections(frontend: NamespaceFrontend, now: int) -> Row:
    """Return the most recent refusals, newest first, and their numbers in recent periods."""
    rejections = frontend.rejections
    return {
        "total": rejections.total,
        "lately": rejections.since(now - LATELY),
        "last_hour": rejections.since(now - 12 * LATELY),
        "by_condition": dict(rejections.by_condition.most_common()),
        "recent": [asdict(each) for each in reversed(rejections.recent)],
    }
