"""The messages that wait for their destination, in the order in which they are sent."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from operator import attrgetter

from .in_flight import InFlightMessage
from .rejections import MIN_ANSWERS


class WaitingMessages:
    """Messages of one destination that are neither sent nor waiting by themselves."""

    def __init__(self) -> None:
        # A dict would pass over all that were sent to find the next.
        self._messages: OrderedDict[InFlightMessage, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._messages)

    def add(self, message: InFlightMessage) -> None:
        """Let ``message`` wait, after the others."""
        self._messages[message] = None

    def add_all(self, messages: Iterable[InFlightMessage]) -> None:
        """Let ``messages`` wait, after the others."""
        self._messages.update(dict.fromkeys(messages))

    def add_first(self, messages: Iterable[InFlightMessage]) -> None:
        """Let ``messages`` wait, before the others."""
        self._messages = OrderedDict.fromkeys([*messages, *self._messages])

    def withdraw(self, message: InFlightMessage) -> None:
        """Remove ``message`` if it waits here."""
        self._messages.pop(message, None)

    def take_movable(self) -> list[InFlightMessage]:
        """Remove and return the messages that may go elsewhere, in order."""
        taken = [message for message in self._messages if not message.stays]
        for message in taken:
            del self._messages[message]
            message.resume()
        return taken

    def take_all(self) -> list[InFlightMessage]:
        """Remove and return all messages, in order."""
        taken = list(self._messages)
        self._messages.clear()
        return taken

    def clear(self) -> None:
        """Forget all messages."""
        self._messages.clear()

    def hold_all(self) -> None:
        """Let all messages be held by their origins."""
        for message in list(self._messages):
            message.hold()

    def next(self) -> InFlightMessage | None:
        """Remove the next message to send; from now on it cannot be released."""
        if not self._messages:
            return None
        message, _ = self._messages.popitem(last=False)
        message.resume()
        return message

    def next_probe(self) -> InFlightMessage | None:
        """Remove the next message, or a fresh one while only few are rejected time and again."""
        first = next(iter(self._messages), None)
        if first is not None and first.rejections > 1:
            fresh = [message for message in self._messages if not message.rejections]
            if len(self._messages) - len(fresh) < MIN_ANSWERS:
                self.add_first(fresh[:1])
        return self.next()

    def restore_order(self) -> None:
        """Sort by delivery-id: a message that was refused precedes those posted meanwhile."""
        self._messages = OrderedDict.fromkeys(sorted(self._messages, key=attrgetter("delivery_id")))
