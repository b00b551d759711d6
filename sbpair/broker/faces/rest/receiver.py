"""A request over HTTP that waits in line for one message, among the links that do."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import quote

from ....amqp.performatives import Condition
from ...entities.entity import Entity
from ...entities.stored_message import StoredMessage
from ...errors import BrokerError, EntityNotFound
from ...faults import Operation
from ..administration.http_messages import Request, Response
from ..moment import Moment
from ..namespace_face import NamespaceFace
from .faults import UNTOUCHED, Fate, fate_of
from .message import lock_id, message_reference, told

NOTHING = Response(204)


class RestReceiver:
    """Takes one message of ``queue``, locked or, if it ``deletes``, gone; ``fate`` then tells of it."""

    has_cache = False

    def __init__(
        self,
        face: NamespaceFace,
        queue: Entity,
        request: Request,
        span: float,
        *,
        deletes: bool,
        refuse: Callable[[BrokerError, Moment], Response],
    ) -> None:
        self.queue = queue
        self.span = span
        self.fate: Fate | None = None
        self.on_fate: Callable[[], None] = lambda: None
        self._face = face
        self._request = request
        self._deletes = deletes
        self._refuse = refuse
        self._last: Moment

    @property
    def line(self) -> Entity:
        """Where it stands."""
        return self.queue

    @property
    def is_hungry(self) -> bool:
        """It takes one message, and no other."""
        return self.fate is None

    def begin(self, moment: Moment) -> None:
        """Stand in line."""
        self._last = moment
        self._face.namespace.receive_began()  # P-41
        self._face.wait(self, moment)
        self._face.settle_at(self.queue, self)

    def end(self, moment: Moment) -> None:
        """Go, with a message or without."""
        self._face.leave(self, moment)
        self._face.move_out(self.queue, self)

    def deliver(self, moment: Moment) -> bool:
        """Take one message; False when there is none. Raises EntityDisabled, SessionRequired."""
        take = self.queue.receive_and_delete if self._deletes else self.queue.receive
        message = take(moment.entity)
        if message is None:
            return False
        effect = self._face.strike(Operation.RECEIVE, self.queue.path, moment)
        self._settle(fate_of(effect, self._request, moment).of(self._response(message)))
        return True

    def deliver_run(self, moment: Moment) -> bool:
        """It takes one at most."""
        return self.deliver(moment)

    def refused(self, error: BrokerError, moment: Moment) -> None:
        """There is nothing to be had here."""
        self._settle(UNTOUCHED.of(self._refuse(error, moment)))

    def deleted(self, path: str, condition: Condition) -> None:
        """The entity is gone."""
        self._settle(UNTOUCHED.of(self._refuse(EntityNotFound(path), self._last)))

    def stir(self) -> None:
        """What there is to say waits in ``fate``."""

    def _settle(self, fate: Fate) -> None:
        if self.fate is None:
            self.fate = fate
            self.on_fate()

    def _response(self, message: StoredMessage) -> Response:
        headers, body = told(message, self.queue)
        if self._deletes:
            return Response(200, headers, body)
        segments = (quote(self.queue.path, safe="/$"), "messages", quote(message_reference(message), safe=""))
        asked = self._request
        host = asked.headers.get("host", self._face.namespace.name)
        headers["Location"] = f"{asked.scheme}://{host}/{'/'.join(segments)}/{lock_id(message)}"
        return Response(201, headers, body)
