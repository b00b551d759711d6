"""A stand-in for ``ServiceBusAdministrationClient``, for a library that declares a queue before it sends to it.

    azureservicebus.ServiceBusAdministrationClient = client.stand_in().administration

It uses the primary's administration API. While that is unavailable, a queue counts as existing, and its counts are
those last seen in this process. The library then sends its message, which is parked.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, Self, cast

from azure.core.exceptions import (
    HttpResponseError,
    ResourceExistsError,
    ServiceRequestError,
    ServiceResponseError,
)

from sbpair.pair.envelope.names import path_key
from sbpair.pair.pairing.decide.health import EntityState

if TYPE_CHECKING:
    from azure.servicebus.management import (
        QueueProperties,
        QueueRuntimeProperties,
        ServiceBusAdministrationClient,
    )

logger = logging.getLogger("sbpair")
AWAY_SECONDS = 30.0
"""How long the primary is not asked again after it did not answer: each question may take seconds."""
AWAY_STATUS = frozenset({408, 429, 500, 502, 503, 504})


class QueueCounts(NamedTuple):
    """The runtime properties of an unreachable queue: the fields of ``QueueRuntimeProperties``, all zero."""

    name: str
    total_message_count: int = 0
    active_message_count: int = 0
    dead_letter_message_count: int = 0
    scheduled_message_count: int = 0
    transfer_message_count: int = 0
    transfer_dead_letter_message_count: int = 0
    size_in_bytes: int = 0


class AdministrationStandIn:
    """Takes the place of the class ``ServiceBusAdministrationClient``; arguments are ignored.

    ``make`` makes the SDK's client of the primary, and ``state_of`` returns the state of an entity.
    """

    def __init__(
        self,
        make: Callable[[], ServiceBusAdministrationClient],
        state_of: Callable[[str], EntityState],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.make = make
        self._state_of = state_of
        self._clock = clock
        self._asked_again_at = 0.0
        self.seen: dict[str, QueueRuntimeProperties] = {}
        """The counts last seen, by queue."""

    def __call__(self, *args: object, **keywords: object) -> AdministrationLoan:
        return AdministrationLoan(self)

    def from_connection_string(self, *args: object, **keywords: object) -> AdministrationLoan:
        """Return a borrowed client, as :meth:`__call__`."""
        return AdministrationLoan(self)

    def is_away(self, queue: str) -> bool:
        """Whether to answer without the primary: the queue has failed over, or the primary recently did not answer."""
        return self._state_of(queue) is EntityState.FAILED_OVER or self._clock() < self._asked_again_at

    def did_not_answer(self, error: Exception) -> None:
        """Record that the primary did not answer: for a while it is not asked."""
        self._asked_again_at = self._clock() + AWAY_SECONDS
        logger.warning(
            "the administration of the primary does not answer (%s): queues count as existing for %.0f s",
            type(error).__name__,
            AWAY_SECONDS,
        )


class AdministrationLoan:
    """The primary's administration client; the stand-in answers while the primary is away. See the module.

    Any other attribute is the SDK's method, and raises the SDK's errors.
    """

    def __init__(self, source: AdministrationStandIn) -> None:
        self._source = source
        self._made: ServiceBusAdministrationClient | None = None

    def create_queue(self, queue_name: str, **settings: object) -> QueueProperties:
        """Create a queue with the settings that the SDK takes.

        Raises ResourceExistsError when the queue exists, or counts as existing because the primary is away; otherwise
        the SDK's errors.
        """
        created = self._ask("create_queue", queue_name, settings)
        if created is None:
            raise ResourceExistsError(f"The primary is away: queue '{queue_name}' counts as existing.")
        return cast("QueueProperties", created)

    def get_queue_runtime_properties(
        self, queue_name: str, **settings: object
    ) -> QueueRuntimeProperties | QueueCounts:
        """Return the counts of a queue; while the primary is away, those last seen in this process, or zeros."""
        key = path_key(queue_name)
        answer = self._ask("get_queue_runtime_properties", queue_name, settings)
        if answer is None:
            return self._source.seen.get(key) or QueueCounts(queue_name)
        found = cast("QueueRuntimeProperties", answer)
        self._source.seen[key] = found
        return found

    def close(self) -> None:
        """Close the SDK's client, if one was made."""
        if self._made is not None:
            self._made.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __getattr__(self, name: str) -> object:
        return getattr(self._sdk(), name)

    def _sdk(self) -> ServiceBusAdministrationClient:
        if self._made is None:
            self._made = self._source.make()
        return self._made

    def _ask(self, method: str, queue: str, settings: Mapping[str, object]) -> object | None:
        """Return the primary's answer; None while it is away."""
        if self._source.is_away(queue):
            return None
        try:
            answer: object = getattr(self._sdk(), method)(queue, **settings)
        except (ServiceRequestError, ServiceResponseError, HttpResponseError) as error:
            if isinstance(error, HttpResponseError) and error.status_code not in AWAY_STATUS:
                raise
            self._source.did_not_answer(error)
            return None
        return answer
