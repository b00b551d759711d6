"""Are the backlog queues there, and if not, who makes them? (P-11 … P-14)

Looks first, creates only what is missing, leaves everything else as it is. Blocking; runs on a worker.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import TYPE_CHECKING

from azure.core.exceptions import ResourceExistsError, ResourceNotFoundError

from .failure import Failure
from .names import backlog_queue_name
from .outcome import judge

if TYPE_CHECKING:
    from azure.servicebus.management import QueueProperties, ServiceBusAdministrationClient

_logger = logging.getLogger("sbpair")

FOREVER = "P10675199DT2H48M5.4775807S"  # how the service writes "no limit"
_LIMITLESS = timedelta(days=10_000_000)  # the SDK reads FOREVER back as something above this

UNDER_WAY = "SubCode=40901"  # another change meets ours; the SDK has one exception for each 409
LONGEST_WAIT = 60.0  # seconds between two attempts in the background


class Backlogs:
    """The backlog queues of one primary namespace, on the secondary."""

    def __init__(
        self, namespace: str, count: int, administration: Callable[[], ServiceBusAdministrationClient]
    ) -> None:
        self._namespace = namespace
        self._count = count
        self._administration = administration

    def name(self, index: int) -> str:
        return backlog_queue_name(self._namespace, index)

    def ensure(self, indexes: Iterable[int] | None = None) -> tuple[str, ...]:
        """Make sure of these backlog queues (all by default); the names of those that were created.

        Raises what the SDK's administration client raises.
        """
        names = [self.name(index) for index in (range(self._count) if indexes is None else indexes)]
        with self._administration() as administration:
            return tuple([name for name in names if _ensure_one(administration, name)])

    def ensure_in_background(self, closed: threading.Event) -> tuple[str, ...]:
        """As :meth:`ensure`, again and again while the secondary is unavailable, until closed.

        Raises what the last attempt raised.
        """
        import tenacity

        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception(_may_pass),
            wait=tenacity.wait_exponential_jitter(initial=1.0, max=LONGEST_WAIT),
            stop=tenacity.stop_when_event_set(closed),
            sleep=tenacity.sleep_using_event(closed),
            reraise=True,
        )
        return retrying(self.ensure)


def _may_pass(error: BaseException) -> bool:
    return isinstance(error, Exception) and judge(error).failure in (Failure.UNAVAILABLE, Failure.BUSY)


def _ensure_one(administration: ServiceBusAdministrationClient, name: str) -> bool:
    try:
        found = administration.get_queue(name)  # P-12
    except ResourceNotFoundError:
        return _create(administration, name)
    for difference in differences(found):
        _logger.warning("backlog queue %s is used as it is (P-14): %s", name, difference)
    return False


def _create(administration: ServiceBusAdministrationClient, name: str) -> bool:
    try:
        administration.create_queue(  # P-11
            name,
            max_size_in_megabytes=5120,
            max_delivery_count=2**31 - 1,
            default_message_time_to_live=FOREVER,
            auto_delete_on_idle=FOREVER,
            lock_duration=timedelta(minutes=1),
            dead_lettering_on_message_expiration=True,
            enable_batched_operations=True,
        )
    except ResourceExistsError as error:
        if UNDER_WAY in str(error):
            raise  # it need not be there
        return False  # another client of this pairing was faster
    _logger.info("backlog queue %s created", name)
    return True


def differences(found: QueueProperties) -> list[str]:
    """How an existing backlog queue differs from what we would have made, in words (P-14)."""
    checks: list[tuple[str, object, bool]] = [
        ("max_size_in_megabytes", found.max_size_in_megabytes, found.max_size_in_megabytes == 5120),
        ("max_delivery_count", found.max_delivery_count, found.max_delivery_count == 2**31 - 1),
        (
            "default_message_time_to_live",
            found.default_message_time_to_live,
            _is_limitless(found.default_message_time_to_live),
        ),
        ("auto_delete_on_idle", found.auto_delete_on_idle, _is_limitless(found.auto_delete_on_idle)),
        ("lock_duration", found.lock_duration, found.lock_duration == timedelta(minutes=1)),
        (
            "dead_lettering_on_message_expiration",
            found.dead_lettering_on_message_expiration,
            found.dead_lettering_on_message_expiration is True,
        ),
        ("requires_session", found.requires_session, not found.requires_session),
        ("forward_to", found.forward_to, not found.forward_to),
    ]
    return [f"{name} is {value}" for name, value, is_ours in checks if not is_ours]


def _is_limitless(span: object) -> bool:
    return span is None or (isinstance(span, timedelta) and span >= _LIMITLESS)
