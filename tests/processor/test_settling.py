"""Settlements that their link could not send."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from sbpair.processor.delivery import Delivery
from sbpair.processor.settling import SettlementCallbacks, Settlements


@pytest.mark.spec("C-19")
async def test_a_handled_message_is_reported_when_its_link_ends_before_it_is_settled() -> None:
    reported: list[Delivery] = []
    strays: list[tuple[Delivery, bool]] = []
    report = SettlementCallbacks(reported.extend, lambda *_: None, lambda *stray: strays.append(stray))
    link = SimpleNamespace(detached=asyncio.get_running_loop().create_future())
    settlements = Settlements(link, report)  # type: ignore[arg-type]
    delivery = SimpleNamespace()

    settlements.add(delivery)  # type: ignore[arg-type]
    link.detached.set_result(None)
    settlements.end()
    await asyncio.sleep(0)

    assert reported == [delivery]
    assert strays == [(delivery, False)]
