"""A REST request that waits for one message, in line with the AMQP receivers."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from sbpair.pair.amqp.performatives import Condition

from ...clock import ClockReading
from ...entities.queue import FrontEnd, Queue
from ...entities.stored_message import StoredMessage
from ...errors import BrokerError, EntityNotFoundError
from ...faults import Operation
from ..admin.http_messages import Request, Response, entity_headers
from ..namespace_frontend import NamespaceFrontend
from .faults import UNTOUCHED, FaultedResponse, faulted_response
from .message import WITHOUT_TYPE, lock_id, response_parts


def answer_headers(request: Request, queue: Queue) -> dict[str, str]:
    """Return the headers of an answer without a message."""
    return {"Content-Type": WITHOUT_TYPE, **entity_headers(request, queue.top.updated_at)}


class RestReceiver:
    """Receives one message of ``queue`` and sets ``fate`` to the outcome of the request.

    ``span``: seconds that the request waits. ``deletes``: remove the message instead of locking it. ``refuse``: returns
    the response for an error.
    """

    def __init__(
        self,
        frontend: NamespaceFrontend,
        queue: Queue,
        request: Request,
        span: float,
        front_end: Hashable,
        *,
        deletes: bool,
        refuse: Callable[[BrokerError, ClockReading], Response],
    ) -> None:
        self.queue = queue
        self._source = queue.source_for(front_end)
        self.span = span
        self.fate: FaultedResponse | None = None
        self.on_fate: Callable[[], None] = lambda: None
        self._frontend = frontend
        self._request = request
        self._deletes = deletes
        self._refuse = refuse
        self._last: ClockReading

    @property
    def has_cache(self) -> bool:
        """Whether the receiver may find a message where another receiver of the queue does not."""
        return isinstance(self._source, FrontEnd)

    @property
    def line(self) -> Queue:
        """The queue on whose messages the request waits."""
        return self.queue

    @property
    def is_hungry(self) -> bool:
        """Whether the request still waits; it takes one message only."""
        return self.fate is None

    def nothing(self) -> Response:
        """Return the answer for a request that received no message."""
        return Response(204, answer_headers(self._request, self.queue))

    def begin(self, now: ClockReading) -> None:
        """Join the line."""
        self._last = now
        self._frontend.namespace.receive_began()
        self._frontend.wait(self, now)
        self._frontend.add_tenant(self.queue, self)

    def end(self, now: ClockReading) -> None:
        """Stop waiting, with or without a message."""
        self._frontend.leave(self, now)
        self._frontend.remove_tenant(self.queue, self)

    def deliver(self, now: ClockReading) -> bool:
        """Take one message; return False when there is none. Raises EntityDisabledError, SessionRequiredError."""
        take = self._source.receive_and_delete if self._deletes else self._source.receive
        message = take(now.entity)
        if message is None:
            return False
        effect = self._frontend.apply_fault(Operation.RECEIVE, self.queue.path, now)
        self._settle(faulted_response(effect, self._request, now).of(self._response(message)))
        return True

    def deliver_run(self, limit: int, now: ClockReading) -> int:
        """Take at most one message; return the number taken."""
        return int(self.deliver(now))

    def passed_over(self) -> None:
        """Do nothing: the request has its answer."""

    def refused(self, error: BrokerError, now: ClockReading) -> None:
        """Answer with the error."""
        self._settle(UNTOUCHED.of(self._refuse(error, now)))

    def updated(self, now: ClockReading) -> None:
        """Do nothing: the request continues."""

    def deleted(self, path: str, condition: Condition) -> None:
        """Answer that the entity was deleted."""
        self._settle(UNTOUCHED.of(self._refuse(EntityNotFoundError(path), self._last)))

    def stir(self) -> None:
        """Do nothing: the answer is in ``fate``."""

    def _settle(self, fate: FaultedResponse) -> None:
        if self.fate is None:
            self.fate = fate
            self.on_fate()

    def _response(self, message: StoredMessage) -> Response:
        requested = self._request
        headers, body = response_parts(message, self.queue)
        headers |= entity_headers(requested, self.queue.top.updated_at)
        if self._deletes:
            return Response(200, headers, body)
        host = requested.headers.get("host", self._frontend.namespace.name)
        entity = requested.raw_path[: requested.raw_path.lower().rindex("/messages")]
        address = f"{requested.scheme}://{host}{entity}/messages"
        headers["Location"] = f"{address}/{message.sequence_number}/{lock_id(message)}"
        return Response(201, headers, body)
