"""The spool of one client. After a fork, the child has none: the spool stays with the parent."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import TYPE_CHECKING

from ..decide.pair import SpoolMessages, SpoolUse
from ..errors import SpoolError
from ..events import PairingEvent
from ..options import PairedNamespaceOptions
from ..request.headroom import Headroom
from ..request.request import SendRequest

if TYPE_CHECKING:
    from ..spool.replay import SendAgain, Spooling
    from ..spool.writer import Writing

logger = logging.getLogger("sbpair")


class ClientSpool:
    """The spool of one client, if it has any."""

    def __init__(self, options: PairedNamespaceOptions, *, is_disabled: bool) -> None:
        self.flow: Spooling | None = None
        """Writes to the spool and sends from it; None without a spool."""
        self._options, self._is_disabled = options, is_disabled
        self.has_left = False
        """Whether it stayed with the parent of this process, which is not logged yet."""

    def open(
        self,
        label: str,
        send_again: SendAgain,
        emit: Callable[[Sequence[PairingEvent]], object],
        rng: Random,
        headroom: Headroom | None,
        wake: Callable[[], None],
        *,
        is_read_later: bool = False,
    ) -> None:
        """Open the spool that the options name. If pairing is disabled, open none: the messages in the file wait."""
        if self._is_disabled or self._options.spool is None:
            return
        from ..spool.replay import Spooling  # it imports SQLite, which most clients do without

        self.flow = Spooling.open(
            self._options,
            label,
            send_again,
            emit,
            rng,
            headroom=headroom,
            is_read_later=is_read_later,
            wake=wake,
        )

    def leave(self) -> None:
        """Give up the spool in a forked child, because it belongs to the parent."""
        if self.flow is not None:
            self.flow.disown()
            self.flow, self.has_left = None, True

    def use(self, path: str, request: SendRequest) -> SpoolUse:
        """Return how the flow of a send may use the spool."""
        if self.has_left:
            self.has_left = False
            logger.warning(
                "the spool %s stays with the process that this one was forked from: here, what neither "
                "namespace takes is raised; a client that is made after the fork can have a spool of its own",
                self._options.spool,
            )
        if self.flow is None:
            return SpoolUse.NEVER
        is_first = self.flow.takes_first(path, request.session, wants_numbers=request.wants_numbers)
        return SpoolUse.AT_ONCE if is_first else SpoolUse.LAST_RESORT

    def writes(self, path: str, request: SendRequest, step: SpoolMessages) -> Iterator[Writing | None]:
        """Yield the writes to the spool for one step, as :meth:`Spooling.keep`."""
        if self.flow is None:
            raise SpoolError("the spool belongs to the process that this one was forked from")
        request.carry_trace()
        return self.flow.keep(path, request, is_first=step.is_first)

    def waiting(self, path: str | None) -> int:
        """Return the number of messages in the spool, for this entity or for all."""
        return 0 if self.flow is None else self.flow.waiting(path)

    def depth(self) -> dict[str, float]:
        """Return the number of messages in the spool by entity; 0 for entities whose messages have left it."""
        return {} if self.flow is None else self.flow.depth()

    def takes_messages(self) -> bool | None:
        """Whether the spool can be written, as far as is known; None without a spool."""
        return None if self.flow is None else self.flow.takes_messages
