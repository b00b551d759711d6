"""$management of message sessions: which there are, their state, their locks (3.5).

State and lock are for the connection whose link holds the session; the list is for anybody who may listen.
"""

from __future__ import annotations

from ....amqp.types import Array, Timestamp
from ...entities.entity import Sessions
from ...entities.message_session import SessionLock
from ...errors import InvalidArgument, NotAllowed
from .management_call import ManagementCall, nothing, ok
from .request_node import Answer

_STRING = 0xB1
EVERY_SESSION = 253_402_300_800_000  # the first millisecond of the year 10000: not a time, but "all"
MOST_SESSIONS = 100


def list_sessions(call: ManagementCall) -> Answer:
    """A page of the sessions with active messages or state, or of those whose state was set after a time."""
    after = call.whole("last-updated-time", EVERY_SESSION)
    skip, most = call.count("skip", 0, 0), min(call.count("top", 1, MOST_SESSIONS), MOST_SESSIONS)
    call.queue.touch(call.now)
    ids = _sessions(call).ids(skip, most, None if after >= EVERY_SESSION else after)
    return ok({"skip": skip + len(ids), "sessions-ids": Array(_STRING, tuple(ids))}) if ids else nothing()


def get_state(call: ManagementCall) -> Answer:
    """What was noted on the session, or null."""
    return ok({"session-state": _sessions(call).state(_lock(call), call.now)})


def set_state(call: ManagementCall) -> Answer:
    """Note a binary on the session; null clears it."""
    state = call.body.get("session-state")
    if state is not None and not isinstance(state, bytes):
        raise InvalidArgument(f"session-state is a {type(state).__name__}: a binary or null is needed.")
    if state is not None:
        call.connection.face.check_room()
    _sessions(call).set_state(_lock(call), state, call.now)
    return ok({})


def renew_session_lock(call: ManagementCall) -> Answer:
    """Restart the session's lock; until when it holds."""
    return ok({"expiration": Timestamp(_sessions(call).renew(_lock(call), call.now))})


def _sessions(call: ManagementCall) -> Sessions:
    if call.queue.sessions is None:
        raise NotAllowed(f"The entity '{call.queue.path}' does not require sessions: it has none.")
    return call.queue.sessions


def _lock(call: ManagementCall) -> SessionLock:
    _sessions(call)
    lock = call.session_lock()
    if lock is None:
        raise InvalidArgument("session-id is missing: a text is needed.")
    return lock
