"""Which links the runtimes would open, and to which side, without opening any."""

from __future__ import annotations

import inspect
import threading
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from azure.servicebus.exceptions import OperationTimeoutError, ServiceBusConnectionError

from sbpair import EntityState, PairedNamespaceOptions
from sbpair.pair.ground.side import Side
from sbpair.pair.pairing.aio.runtime import AsyncRuntime
from sbpair.pair.pairing.blocking.runtime import Runtime
from sbpair.pair.pairing.decide.pair import CreateBacklog, Pause, Result
from sbpair.pair.pairing.decide.pair_state import SideState
from sbpair.pair.pairing.decide.rotation import Choice
from sbpair.pair.pairing.request.request import freeze
from sbpair.pair.pairing.shared.address import LinkSettings, SdkNamespace, SdkSettings
from sbpair.pair.pairing.shared.threads import MAX_WORKERS
from tests.waiting import wait_until

pytestmark = pytest.mark.spec("R-66")

KEYS = "SharedAccessKeyName=Root;SharedAccessKey=c2VjcmV0"
DOWN = ServiceBusConnectionError(message="refused")


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


async def test_an_entity_has_one_pool_whatever_its_case_and_its_links_lead_to_the_primary(runtime) -> None:
    runtime.links["orders"] = LinkSettings(client_identifier="me")
    pool = runtime.primary_pool("Orders")
    assert runtime.primary_pool("ORDERS") is pool
    assert runtime.primary_pool("invoices") is not pool
    sender = pool._make()
    assert (sender.fully_qualified_namespace, sender.entity_name) == ("primary.example", "Orders")
    assert sender.client_identifier == "me"
    assert sender._config.retry_total == 0
    assert pool._failed is not None
    pool._failed(DOWN)
    assert runtime.pair.state_of("orders") is EntityState.SUSPECT


async def test_a_backlog_has_one_pool_for_all_entities_on_the_secondary(runtime) -> None:
    pool = runtime._backlog_pool(3)
    assert runtime._backlog_pool(3) is pool
    assert list(runtime._pools) == ["/3"]
    sender = pool._make()
    assert sender.fully_qualified_namespace == "secondary.example"
    assert sender.entity_name == "contoso/x-servicebus-transfer/3"
    assert pool._failed is None  # a backlog is judged by the sends to it


async def test_the_sdk_has_one_client_for_a_side_and_a_way_to_retry(runtime) -> None:
    primary, secondary = runtime.sides
    assert runtime.sdk_client(primary) is runtime.sdk_client(primary, retry_total=0)
    assert runtime.sdk_client(primary) is not runtime.sdk_client(primary, retry_total=None)
    assert runtime.sdk_client(secondary) is not runtime.sdk_client(primary)
    assert set(runtime._clients) == {(Side.PRIMARY, 0), (Side.PRIMARY, None), (Side.SECONDARY, 0)}


async def test_an_entity_that_nobody_uses_any_more_has_no_pool(runtime) -> None:
    pool = runtime.primary_pool("Orders")
    runtime.release_path("ORDERS")
    assert (runtime._pools, pool._is_closed) == ({}, True)
    runtime.release_path("orders")
    assert runtime.primary_pool("orders") is not pool


async def test_only_a_suspect_entity_warms_the_backlog_of_its_sender(runtime, monkeypatch) -> None:
    warmed: list[object] = []
    monkeypatch.setattr(type(runtime._backlog_pool(4)), "warm", lambda pool: warmed.append(pool))
    runtime.warm_backlog("orders", Choice(backlog=4))
    assert warmed == []
    runtime.opening_failed("orders", DOWN)
    runtime.warm_backlog("orders", Choice(backlog=4))
    assert warmed == [runtime._backlog_pool(4)]
    runtime.is_closed = True
    runtime.warm_backlog("orders", Choice(backlog=4))
    assert len(warmed) == 1
    runtime.is_closed = False


@pytest.mark.spec("P-50")
async def test_of_a_side_that_is_closed_nothing_is_left_and_the_other_stays(runtime) -> None:
    kept = runtime.primary_pool("orders")
    runtime._backlog_pool(0)
    for side in runtime.sides:
        runtime.sdk_client(side)
    await done(runtime.close_side(Side.SECONDARY))
    assert runtime.pair_state.state_of(Side.SECONDARY) is SideState.CLOSED
    assert runtime._pools == {"orders": kept}
    assert set(runtime._clients) == {(Side.PRIMARY, 0)}
    with pytest.raises(ValueError, match="the secondary side of the paired client is closed"):
        runtime._backlog_pool(0)
    assert not runtime.is_closed
    await done(runtime.close_side(Side.PRIMARY))
    assert (runtime.is_closed, runtime._pools, runtime._clients) == (True, {}, {})


async def test_a_side_without_an_entity_in_use_cannot_be_looked_at(runtime) -> None:
    with pytest.raises(OperationTimeoutError) as told:
        await done(runtime.reach(Side.PRIMARY, 0.0))
    assert told.value.message == "No entity of the primary is in use."


async def test_a_backlog_that_may_not_be_created_and_a_pause_that_is_over_are_answered_at_once(
    runtime,
) -> None:
    step = CreateBacklog(2, 0.0)
    result: Result = await done(runtime._perform(step, "orders", freeze([])))
    assert "Backlog queue contoso/x-servicebus-transfer/2 does not exist." in str(result.error)
    assert result.classification is not None
    result = await done(runtime._perform(Pause(0.0), "orders", freeze([])))
    assert (result.error, result.classification) == (None, None)
    runtime._closed.set()
    if isinstance(runtime, AsyncRuntime):
        runtime._closing.set()
        return
    with pytest.raises(ValueError, match="the paired client is closed"):
        runtime._perform(Pause(0.0), "orders", freeze([]))


@pytest.mark.spec("P-50")
async def test_a_turn_of_the_timers_tells_when_the_next_is_due(runtime) -> None:
    later = time.monotonic() + 1000.0
    assert runtime._tick(later) is None
    runtime.pair.fail_over("orders", later)
    runtime.publish()
    assert runtime._tick(later + 1.0) == runtime.pair.next_timer() > later + 1.0


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
