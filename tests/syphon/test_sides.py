"""What does the syphon do when one side refuses it as a whole? (P-50, G-25)"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from sbpair.syphon import SyphonFaulted, SyphonState
from sbpair.syphon.credential import SharedKey, Token, TokenSource
from sbpair.syphon.events import DestinationHeld, SideAccepted, SideRefused
from tests.syphon.pair import PATIENCE, Pair, parked, until

WRONG = SharedKey(lambda: ("RootManageSharedAccessKey", "d3Jvbmcga2V5"))


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a second in place of five: the machine's own tests have the true number."""
    monkeypatch.setattr("sbpair.pairing.bond.GRACE", 0.5)


@pytest.mark.spec("P-50", "G-25")
@pytest.mark.parametrize("side", ["primary", "secondary"])
async def test_a_side_that_stays_refused_stops_the_syphon_and_nothing_is_settled(
    pair: Pair, soon: None, side: str
) -> None:
    syphon = pair.syphon()
    setattr(syphon, f"_{side}", replace(getattr(syphon, f"_{side}"), tokens=WRONG))
    await pair.park([parked(n) for n in range(10)])
    async with asyncio.timeout(PATIENCE):
        with pytest.raises(SyphonFaulted, match=f"the {side} was faulted .*unauthorized") as raised:
            await syphon.run(asyncio.Event())
    assert "secondary" in str(raised.value)
    assert "primary" in str(raised.value)
    assert syphon.status.state is SyphonState.FAULTED
    assert pair.said(SideRefused)[0].side == side
    await until(lambda: pair.secondary.connection_count == 0 and pair.primary.connection_count == 0)
    assert (pair.waiting(), pair.set_aside()) == (10, 0)
    assert syphon.counters.completed == 0


@pytest.mark.spec("P-50")
async def test_a_side_that_accepts_again_in_time_ends_nothing(pair: Pair) -> None:
    syphon = pair.syphon()
    right, syphon._secondary = syphon._secondary, replace(syphon._secondary, tokens=WRONG)
    shutdown = asyncio.Event()
    running = asyncio.create_task(syphon.run(shutdown))
    await until(lambda: bool(pair.said(SideRefused)))
    syphon._secondary = right
    pair.secondary.take_down("reset")  # the next connection has the right key
    pair.secondary.bring_up()
    await until(lambda: bool(pair.said(SideAccepted)))
    shutdown.set()
    async with asyncio.timeout(PATIENCE):
        await running


class RefusedFor:
    """The right tokens, but for one path: a key for single entities."""

    def __init__(self, right: TokenSource, path: str) -> None:
        self.right, self.path = right, path

    async def token(self, audience: str) -> Token:
        return await (WRONG if self.path in audience else self.right).token(audience)


@pytest.mark.spec("P-50", "G-21", "F-61")
async def test_a_path_that_our_key_does_not_cover_ends_nothing_while_others_are_served(
    pair: Pair, soon: None
) -> None:
    syphon = pair.syphon(retry_backoff_max=timedelta(milliseconds=200))
    syphon._primary = replace(syphon._primary, tokens=RefusedFor(syphon._primary.tokens, "invoices"))
    shutdown = asyncio.Event()
    running = asyncio.create_task(syphon.run(shutdown))
    await pair.park([parked(0)])
    await until(lambda: syphon.counters.completed == 1)
    await pair.park([parked(1, "invoices")])
    await until(lambda: sum(event.path == "invoices" for event in pair.said(DestinationHeld)) >= 8)
    await pair.park([parked(2)])
    await until(lambda: syphon.counters.completed == 2)
    shutdown.set()
    async with asyncio.timeout(PATIENCE):
        await running

    assert not pair.said(SideRefused)
    assert (pair.waiting(), pair.set_aside()) == (1, 0)
