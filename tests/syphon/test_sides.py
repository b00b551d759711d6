"""What does the syphon do when one side refuses it as a whole? (P-50, G-25)"""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from sbpair.syphon import SyphonFaulted, SyphonState
from sbpair.syphon.credential import SharedKey
from sbpair.syphon.events import SideAccepted, SideRefused
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
