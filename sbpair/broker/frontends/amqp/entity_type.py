"""The kind of entity that a client takes the address of a link for, in the link property of the Java SDKs."""

from __future__ import annotations

from collections.abc import Mapping

from ...entities.queue import Queue
from ...entities.topic import Subscription, Topic
from ...errors import NotAllowedError

ENTITY_TYPE = "com.microsoft:entity-type"
_KINDS = ("queue", "topic", "subscription")  # by their numbers on the wire; others are not of Service Bus


def check_entity_type(properties: Mapping[object, object] | None, entity: Queue) -> None:
    """Raise NotAllowedError if the properties of an attach name another kind of entity than that at its address."""
    number = (properties or {}).get(ENTITY_TYPE)
    if not isinstance(number, int) or not 0 <= number < len(_KINDS):
        return
    top = entity.top
    kind = "topic" if isinstance(top, Topic) else "subscription" if isinstance(top, Subscription) else "queue"
    if _KINDS[number] != kind:
        raise NotAllowedError(
            f"The entity '{entity.path}' is a {kind}, and the link is for a {_KINDS[number]}."
        )
