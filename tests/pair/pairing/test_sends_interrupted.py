"""A signal raises anywhere in a blocking send: no link, worker or lock is lost, and the next send works."""

from __future__ import annotations

import threading
import time
from datetime import timedelta
from importlib import import_module
from random import Random
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import (
    ServiceBusConnectionError,
    ServiceBusError,
    ServiceBusQuotaExceededError,
)

from sbpair import PairedNamespaceOptions
from sbpair.pair.ground import interruptible
from sbpair.pair.ground.side import Side
from sbpair.pair.pairing.blocking.runtime import Runtime
from sbpair.pair.pairing.blocking.sender import PairedServiceBusSender
from sbpair.pair.pairing.shared.address import LinkSettings, SdkNamespace, SdkSettings
from tests.interrupts import Interrupt, at_signals, codes_of, interrupted_after
from tests.waiting import wait_until

pytestmark = pytest.mark.spec("R-100")

ROOM = (
    *("blocking.runtime", "blocking.sender", "blocking.sender_pool", "decide.backlogs", "decide.fence"),
    *("decide.health", "decide.ordered_sends", "decide.pair", "decide.steps"),
    *(
        "request.request",
        "shared.base_runtime",
        "shared.failures",
        "shared.sides",
        "shared.client_spool",
        "shared.base_sender",
        "shared.dispatcher",
        "shared.threads",
    ),
    "shared.turns",
)
KEYS = "SharedAccessKeyName=Root;SharedAccessKey=c2VjcmV0"
ENDS_WITHIN = 4.0  # seconds for a close, whose parts wait up to five for what hangs


MODULES = (threading, *(import_module(f"sbpair.pair.pairing.{name}") for name in ROOM), interruptible)
INSIDE = {code for module in MODULES for code in codes_of(module)}


class SdkSender:
    """A sender of the SDK that fails as the test says."""

    def __init__(self, sdk: Sdk) -> None:
        self._sdk, self._handler, self._running = sdk, None, False

    def _create_handler(self, auth: object) -> None: ...

    def __enter__(self) -> SdkSender:
        self._running = True
        return self

    def send_messages(self, message: object, timeout: float) -> None:
        if self._sdk.error is not None:
            raise self._sdk.error

    def close(self) -> None:
        self._running = False


class Sdk:
    """The SDK's client of one side."""

    def __init__(self) -> None:
        self.error: Exception | None = None

    def get_queue_sender(self, entity: str, **_: object) -> SdkSender:
        return SdkSender(self)

    def close(self) -> None: ...


class Sending:
    """A blocking client over played sides."""

    def __init__(self, **options: Any) -> None:
        sides = (
            SdkNamespace.from_connection_string(role, f"Endpoint=sb://{role}.example;{KEYS}", SdkSettings())
            for role in Side
        )
        settings = PairedNamespaceOptions(
            assume_backlogs_exist=True, failover_interval=timedelta(0), backlog_queue_count=2, **options
        )
        self.runtime = Runtime(*sides, "contoso", settings)
        self.sdk = {role: Sdk() for role in Side}
        self.runtime.sdk_client = lambda side, *, retry_total=0: self.sdk[side.role]  # type: ignore[method-assign, assignment, return-value]
        self.told: list[object] = []
        self.runtime.on_event(self.told.append)
        self.sender = PairedServiceBusSender(
            self.runtime, "orders", "contoso", lambda _: None, LinkSettings()
        )

    def send(self) -> None:
        self.sender.send_messages(ServiceBusMessage("1", session_id="s"), timeout=20.0)

    def is_whole(self) -> bool:
        """Whether every link is idle, and nothing is taken."""
        runtime, pools = self.runtime, list(self.runtime._pools.values())
        workers = (*runtime._openers.values(), runtime._workers, runtime._closers)
        idle = {pooled for pool in pools for pooled in pool._idle.copy() if not pooled.has_overrun}
        for each in workers:
            each.push()  # a start that was interrupted waits for the next
        return (
            runtime._watch._watched == idle
            and not any(pool._openings or len(pool._waiting) for pool in pools)
            and not any(each._running or each._queued for each in workers)
            and not runtime.lock.locked()
            and not runtime.pair.has_events
            and not runtime.dispatcher._undelivered
            and not len(self.sender._turns)
            and not self.is_parking()
        )

    def is_parking(self) -> bool:
        """Whether the fence takes a message of a session for one that is being parked."""
        ordered = self.runtime.pair.ordered
        queues = [] if ordered is None else ordered.fence._queues
        return any(session.attempts for queue in queues for session in queue.fenced.values())


# What the primary answers, and how far from its beginning the signal may come: opening a link takes more than using it.
STORIES = {
    "accepted": (None, 200),
    "failed": (ServiceBusConnectionError(message="refused"), 2_500),
    "full": (ServiceBusQuotaExceededError(message="full"), 300),
}


@pytest.mark.slow
@pytest.mark.parametrize("ordering", ["none", "session"])
@pytest.mark.parametrize("story", STORIES)
def test_an_interrupted_send_loses_nothing_and_the_next_send_works(story: str, ordering: str) -> None:
    error, most = STORIES[story]
    random, it, interrupts = Random(f"{story}/{ordering}"), Sending(ordering=ordering), 0
    for _ in range(150):
        it.sdk[Side.PRIMARY].error = error
        if random.random() < 0.3:  # a new link is opened
            for pool in list(it.runtime._pools.values()):
                pool.renew()
        try:
            with interrupted_after(random.randrange(1, most), INSIDE, at_signals()):
                it.send()
        except Interrupt:
            interrupts += 1
        except ServiceBusError:  # the one above
            pass
        it.sdk[Side.PRIMARY].error = None
        it.runtime.mark_healthy("orders")
        it.send()
        wait_until(it.is_whole)
    began = time.monotonic()
    it.runtime.close()
    assert time.monotonic() - began < ENDS_WITHIN
    assert interrupts > 30
    wait_until(lambda: not [each for each in threading.enumerate() if each.name == "sbpair-watch"])
