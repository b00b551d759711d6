"""The operations of $management: on messages, on sessions, and on the rules of a subscription."""

from __future__ import annotations

import uuid
from collections.abc import Mapping

from ....amqp.types import Array, Described, Int, Timestamp, ULong
from ...entities.message_store import DESCRIPTION, REASON
from ...entities.queue import Queue
from ...entities.quotas import Tier
from ...entities.rule_operations import add_rule, remove_rule
from ...entities.rules import CorrelationFilter, FalseFilter, Filter, Rule, SqlAction, SqlFilter, TrueFilter
from ...entities.rules.rule import SYSTEM_FIELDS
from ...entities.rules.values import Value
from ...entities.sessions import QueueSessions, SessionLock
from ...entities.stored_message import StoredMessage
from ...entities.topic import Subscription
from ...entities.transaction import SettlementVerb
from ...errors import (
    InvalidArgumentError,
    InvalidRuleError,
    MessageTooLargeError,
    NotAllowedError,
    OutOfRangeError,
)
from ..delivered_message import encode_delivered, encode_peeked
from ..received_message import stored_messages
from ..rule_form import amqp_of, value_of
from .management_call import Body, ManagementCall, nothing, ok
from .request_response import NodeResponse

_LONG, _TIMESTAMP = 0x81, 0x83
MAX_PEEKED = 256
MAX_DELETED = {Tier.BASIC: 500, Tier.STANDARD: 500, Tier.PREMIUM: 4000}  # by one request, as documented
MAX_PEEKED_BYTES = 1_000_000  # a response is one message; the next peek returns the rest


def peek(call: ManagementCall) -> NodeResponse:
    """Return messages from a sequence number on, of one session if the request names one, without locking them.

    ``omit-message-body`` leaves out the bodies, except when the partitions of an entity are peeked in turn (X-8).
    """
    start, limit = call.whole("from-sequence-number"), call.count("message-count", 1)
    session_id = call.session_id()
    may_omit = session_id is not None or not call.queue.is_partitioned
    with_body = not (may_omit and call.body.get("omit-message-body") is True)
    messages: list[object] = []
    size = 0
    for message in call.queue.peek(start, min(limit, MAX_PEEKED), call.now, session_id):
        encoded = encode_peeked(message, with_body=with_body)
        size += len(encoded)
        if messages and size > MAX_PEEKED_BYTES:
            break
        messages.append({"message": encoded})
    call.charge(len(messages) - 1)
    return ok({"messages": messages}) if messages else nothing()


def schedule(call: ManagementCall) -> NodeResponse:
    """Schedule messages, each with its own time, all or none; return their sequence numbers."""
    call.connection.frontend.check_room()
    messages = [_message_to_schedule(entry, call.queue) for entry in call.items("messages")]
    call.connection.frontend.namespace.credits.charge_messages(call.queue, len(messages), call.now)
    return ok({"sequence-numbers": Array(_LONG, tuple(call.send(messages)))})


def _message_to_schedule(entry: object, queue: Queue) -> StoredMessage:
    encoded = entry.get("message") if isinstance(entry, dict) else None
    if not isinstance(encoded, bytes):
        raise InvalidArgumentError("messages is not a list of maps, each with a binary as its message.")
    limit = queue.description.max_message_size
    if len(encoded) > limit:
        raise MessageTooLargeError(len(encoded), limit)
    (message,) = stored_messages(encoded, 0)
    return message


def cancel_scheduled(call: ManagementCall) -> NodeResponse:
    """Cancel scheduled messages, all or none."""
    call.queue.cancel_scheduled(call.sequence_numbers(), call.now)
    return ok({})


def receive_by_sequence_number(call: ManagementCall) -> NodeResponse:
    """Lock and return deferred messages or, with receiver-settle-mode 0, remove and return them; all or none."""
    deletes = call.body.get("receiver-settle-mode") == 0
    numbers, session = call.sequence_numbers(), call.session_lock()
    received = call.queue.receive_deferred(numbers, call.now, session, delete=deletes)
    return ok({"messages": [_message_entry(message, call.queue) for message in received]})


def _message_entry(message: StoredMessage, queue: Queue) -> dict[object, object]:
    entry: dict[object, object] = {"message": encode_delivered(message, queue)}
    if message.lock_token is not None:
        entry["lock-token"] = uuid.UUID(bytes_le=message.lock_token)
    return entry


def renew_lock(call: ManagementCall) -> NodeResponse:
    """Renew message locks and return their new expiries."""
    until = tuple(Timestamp(call.renew(token)) for token in call.lock_tokens())
    return ok({"expirations": Array(_TIMESTAMP, until)})


def update_disposition(call: ManagementCall) -> NodeResponse:
    """Settle messages received over any link, or deferred ones by number."""
    disposition = call.body.get("disposition-status")
    verb = _DISPOSITIONS.get(disposition) if isinstance(disposition, str) else None
    if verb is None:
        raise InvalidArgumentError(
            f"disposition-status is {disposition!r:.60}: use one of {', '.join(_DISPOSITIONS)}."
        )
    call.session_lock()
    properties = {
        **_changes(call.body),
        **(_reasons(call.body) if verb is SettlementVerb.DEAD_LETTER else {}),
    }
    for token in call.lock_tokens():
        call.settle(token, verb, properties)
    return ok({})


def batch_delete(call: ManagementCall) -> NodeResponse:
    """Delete the oldest active messages, up to a count; with ``enqueued-time-utc``, only those enqueued before it."""
    tier = call.connection.frontend.namespace.tier
    limit, requested = MAX_DELETED[tier], call.whole("message-count")
    if not 1 <= requested <= limit:
        raise OutOfRangeError(
            f"message-count is {requested}: use 1 to {limit} in a namespace of the {tier.value} tier."
        )
    before = call.body.get("enqueued-time-utc")
    if before is not None and not isinstance(before, Timestamp):
        raise InvalidArgumentError(f"enqueued-time-utc is {before!r:.60}: use a timestamp.")
    deleted = call.queue.delete_waiting(requested, before, call.now, call.session_lock())
    return ok({"message-count": Int(deleted)}) if deleted else nothing()


# spelled as on the wire, including "defered"
_DISPOSITIONS = {
    "completed": SettlementVerb.COMPLETE,
    "abandoned": SettlementVerb.ABANDON,
    "defered": SettlementVerb.DEFER,
    "suspended": SettlementVerb.DEAD_LETTER,
}


def _reasons(body: Body) -> dict[str, object]:
    given = {REASON: body.get("deadletter-reason"), DESCRIPTION: body.get("deadletter-description")}
    return {key: value for key, value in given.items() if isinstance(value, str)}


def _changes(body: Body) -> dict[str, object]:
    changes = body.get("properties-to-modify")
    if not isinstance(changes, dict):
        return {}
    return {key: value for key, value in changes.items() if isinstance(key, str)}


_STRING = 0xB1
EVERY_SESSION = 253_402_300_800_000  # the first millisecond of the year 10000, which requests all sessions
MAX_SESSIONS = 100


def list_sessions(call: ManagementCall) -> NodeResponse:
    """Return a page of the sessions with active messages or state, or with state set after a given time."""
    after = call.whole("last-updated-time", EVERY_SESSION)
    skip, limit = call.count("skip", 0, 0), min(call.count("top", 1, MAX_SESSIONS), MAX_SESSIONS)
    call.queue.touch(call.now)
    ids = _sessions(call).ids(skip, limit, None if after >= EVERY_SESSION else after)
    return (
        ok({"skip": Int(skip + len(ids)), "sessions-ids": Array(_STRING, tuple(ids))}) if ids else nothing()
    )


def get_state(call: ManagementCall) -> NodeResponse:
    """Return the state of the session, or null."""
    return ok({"session-state": _sessions(call).state(_lock(call), call.now)})


def set_state(call: ManagementCall) -> NodeResponse:
    """Set the state of the session; null clears it."""
    state = call.body.get("session-state")
    if state is not None and not isinstance(state, bytes):
        raise InvalidArgumentError(f"session-state is a {type(state).__name__}: use a binary or null.")
    if state is not None:
        call.connection.frontend.check_room()
    _sessions(call).set_state(_lock(call), state, call.now)
    return ok({})


def renew_session_lock(call: ManagementCall) -> NodeResponse:
    """Renew the session's lock and return its new expiry."""
    return ok({"expiration": Timestamp(_sessions(call).renew(_lock(call), call.now))})


def _sessions(call: ManagementCall) -> QueueSessions:
    if call.queue.sessions is None:
        raise NotAllowedError(f"The entity '{call.queue.path}' does not require sessions: it has none.")
    return call.queue.sessions


def _lock(call: ManagementCall) -> SessionLock:
    _sessions(call)
    lock = call.session_lock()
    if lock is None:
        raise InvalidArgumentError("session-id is missing: use a string.")
    return lock


MAX_RULES = 1_000  # because an answer is one message
RULE, NO_ACTION, ACTION = ULong(0x13700000004), ULong(0x13700000005), ULong(0x13700000006)
SQL, TRUE, FALSE, CORRELATION = (ULong(0x1370000006 + offset) for offset in range(4))


def add(call: ManagementCall) -> NodeResponse:
    """Add a rule to the subscription."""
    described = _map(call.body, "rule-description")
    rule = Rule(_name(call), _filter(described), _action(described), call.now)
    add_rule(_subscription(call), rule, call.now)
    return ok({})


def remove(call: ManagementCall) -> NodeResponse:
    """Remove a rule from the subscription."""
    remove_rule(_subscription(call), _name(call))
    return ok({})


def enumerate_rules(call: ManagementCall) -> NodeResponse:
    """Return a page of the rules, by name."""
    skip, top = call.count("skip", 0, 0), min(call.count("top", 1, MAX_RULES), MAX_RULES)
    page = list(_subscription(call).rules)[skip : skip + top]
    return ok({"rules": [{"rule-description": _encode_rule(rule)} for rule in page]}) if page else nothing()


def _subscription(call: ManagementCall) -> Subscription:
    if not isinstance(call.queue, Subscription):
        raise NotAllowedError(f"The entity '{call.queue.path}' has no rules: only subscriptions have.")
    return call.queue


def _name(call: ManagementCall) -> str:
    return _text(call.body, "rule-name") or ""


def _map(body: Mapping[object, object], name: str) -> dict[object, object]:
    found = body.get(name)
    if not isinstance(found, dict):
        raise InvalidArgumentError(f"{name} is not a map.")
    return found


def _text(body: Mapping[object, object], name: str) -> str | None:
    value = body.get(name)
    if value is not None and not isinstance(value, str):
        raise InvalidArgumentError(f"{name} is {value!r:.60}: use a string.")
    return value


def _filter(described: dict[object, object]) -> Filter:
    if "sql-filter" in described:
        return SqlFilter(_text(_map(described, "sql-filter"), "expression") or "")
    if "correlation-filter" not in described:
        raise InvalidRuleError("The rule-description has neither a sql-filter nor a correlation-filter.")
    named = _map(described, "correlation-filter")
    texts = {name: _text(named, name.replace("_", "-")) for name in SYSTEM_FIELDS}
    return CorrelationFilter(**texts, properties=_properties(named))


def _properties(named: dict[object, object]) -> dict[str, Value]:
    if named.get("properties") is None:
        return {}
    return {str(name): value_of(value) for name, value in _map(named, "properties").items()}


def _action(described: dict[object, object]) -> SqlAction | None:
    if not described.get("sql-rule-action"):  # Rust's client sends an empty map
        return None
    return SqlAction(_text(_map(described, "sql-rule-action"), "expression") or "")


def _encode_rule(rule: Rule) -> Described:
    action = Described(NO_ACTION, []) if rule.action is None else Described(ACTION, [rule.action.expression])
    return Described(RULE, [_encode_filter(rule.filter), action, rule.name, Timestamp(rule.created_at)])


def _encode_filter(found: Filter) -> Described:
    match found:
        case TrueFilter():
            return Described(TRUE, [])
        case FalseFilter():
            return Described(FALSE, [])
        case SqlFilter():
            return Described(SQL, [found.expression])
        case CorrelationFilter():
            texts = [getattr(found, name) for name in SYSTEM_FIELDS]
            return Described(CORRELATION, [*texts, {k: amqp_of(v) for k, v in found.properties.items()}])
