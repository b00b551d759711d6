"""Reports of forwarded messages, emitted at the latest before their backlog removes them."""

from __future__ import annotations

import time
from collections.abc import Callable

from sbpair.pair.envelope.inspect import message_id_of
from sbpair.pair.ground.side import Side

from ..events import MessagesForwarded, SyphonEvent
from .in_flight import InFlightMessage


class ForwardReports:
    """The messages of one backlog that were accepted and are not reported yet."""

    def __init__(self, backlog: str, emit: Callable[[SyphonEvent], None], *, is_wanted: bool) -> None:
        self._backlog = backlog
        self._emit = emit
        self._is_wanted = is_wanted
        self._ids: dict[tuple[str, str], list[str]] = {}  # by path and side

    def add(self, message: InFlightMessage) -> bool:
        """Add a message; return whether it has to be reported."""
        if self._is_wanted:
            side = Side.SECONDARY if message.is_landing else Side.PRIMARY
            self._ids.setdefault((message.path, side.value), []).append(message_id_of(message.payload))
        return self._is_wanted

    def emit(self) -> None:
        """Emit MessagesForwarded for all messages added since the last call."""
        added, self._ids = self._ids, {}
        for (path, side), ids in added.items():
            self._emit(MessagesForwarded(time.time(), self._backlog, path, tuple(ids), side))
