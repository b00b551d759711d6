"""Which links the runtimes would open, and to which side, without opening any."""

from __future__ import annotations

import inspect
import threading
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from sbpair import PairedNamespaceOptions
from sbpair.pair.ground.side import Side
from sbpair.pair.pairing.aio.runtime import AsyncRuntime
from sbpair.pair.pairing.blocking.runtime import Runtime
from sbpair.pair.pairing.shared.address import SdkNamespace, SdkSettings
from sbpair.pair.pairing.shared.threads import MAX_WORKERS
from tests.waiting import wait_until

pytestmark = pytest.mark.spec("R-66")

KEYS = "SharedAccessKeyName=Root;SharedAccessKey=c2VjcmV0"


async def done(answer: Any) -> Any:
    return await answer if inspect.isawaitable(answer) else answer


@pytest.fixture(params=[Runtime, AsyncRuntime])
async def runtime(request: pytest.FixtureRequest) -> AsyncIterator[Any]:
    sides = (
        SdkNamespace.from_connection_string(role, f"Endpoint=sb://{role}.example;{KEYS}", SdkSettings())
        for role in Side
    )
    runtime = request.param(*sides, "contoso", PairedNamespaceOptions(assume_backlogs_exist=True))
    yield runtime
    await done(runtime.close())


@pytest.mark.spec("R-94", "G-18")
def test_a_creation_that_waits_for_a_worker_holds_no_lock() -> None:
    sides = (
        SdkNamespace.from_connection_string(role, f"Endpoint=sb://{role}.example;{KEYS}", SdkSettings())
        for role in Side
    )
    runtime = Runtime(*sides, "contoso", PairedNamespaceOptions(assume_backlogs_exist=True))
    may_end = threading.Event()
    for number in range(MAX_WORKERS):
        runtime._workers.start(f"hangs-{number}", may_end.wait)
    runtime._backlogs.ensure = lambda numbers: None  # type: ignore[method-assign, assignment]
    waits = threading.Thread(target=runtime._creation, args=(3, time.monotonic() + 60))
    waits.start()
    wait_until(lambda: runtime._workers._waiting)  # type: ignore[attr-defined]
    is_free = runtime._making.acquire(blocking=False)
    if is_free:
        runtime._making.release()
    may_end.set()
    waits.join()
    runtime.close()
    assert is_free
