"""An entry that fails is tried once more: what fails each time on a namespace that answers differs, and none holds."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest

from sbpair.broker import Broker
from sbpair.contract.book import entries
from sbpair.contract.entry import DifferenceError, Entry, Finding, Verdict
from sbpair.contract.plan import Rights, make_plan, select
from sbpair.contract.run import Run
from sbpair.contract.scratch import Scratch
from sbpair.pair.client.errors import ConnectionLostError
from sbpair.pair.ground.side import Side
from tests.contract.conftest import targets_of

pytestmark = [pytest.mark.client("sbpair"), pytest.mark.spec("R-170")]
Check = Callable[[Scratch], Awaitable[str]]


def found(broker: Broker, check: Check, *, keeps: bool = False) -> Finding:
    """What a run finds of one entry with this check."""
    (some,) = select(entries(), ["sending-1"])
    each: Entry = replace(some, check=check)
    targets = targets_of(broker)
    plan = make_plan([each], {side: Rights() for side in Side}, run="0badcafe")
    (finding,) = asyncio.run(Run(targets, plan, keeps=keeps).findings())
    return finding


def losing(times: int) -> Check:
    """A check that loses its connection so often, and then holds."""
    left = iter(range(times))

    async def check(ctx: Scratch) -> str:
        await ctx.send(ctx.message())
        if next(left, None) is not None:
            raise ConnectionLostError("the peer is gone")
        return "it holds"

    return check


def test_an_entry_that_loses_its_connection_once_is_unknown(broker_of: Callable[..., Broker]) -> None:
    with broker_of() as broker:
        finding = found(broker, losing(1))

    assert finding.verdict is Verdict.UNKNOWN
    assert finding.seen == "the connection was lost: the peer is gone (once: a second try held)"


def test_an_entry_that_loses_its_connection_and_then_differs_differs(
    broker_of: Callable[..., Broker],
) -> None:
    lose = losing(1)

    async def check(ctx: Scratch) -> str:
        raise DifferenceError(f"{await lose(ctx)}, and something is missing")

    with broker_of() as broker:
        finding = found(broker, check)

    assert (finding.verdict, finding.seen) == (Verdict.DIFFERS, "it holds, and something is missing")


@pytest.mark.parametrize("keeps", [False, True])
def test_repeated_connection_loss_on_an_answering_namespace_is_a_difference(
    broker_of: Callable[..., Broker], keeps: bool
) -> None:
    with broker_of() as broker:
        finding = found(broker, losing(2), keeps=keeps)

    assert finding.verdict is Verdict.DIFFERS
    assert finding.seen == "the connection was lost: the peer is gone (twice, and the namespace answers)"


def test_an_entry_that_loses_its_connection_while_the_namespace_is_away_is_unknown(
    broker_of: Callable[..., Broker],
) -> None:
    tries = []

    async def check(ctx: Scratch) -> str:
        tries.append(ctx)
        if len(tries) == 2:
            await asyncio.to_thread(broker.stop)
        raise ConnectionLostError("the peer is gone")

    with broker_of() as broker:
        finding = found(broker, check)

    assert (finding.verdict, finding.seen) == (Verdict.UNKNOWN, "the connection was lost: the peer is gone")
