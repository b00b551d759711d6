"""The canaries of `sbpair drill`, which keeps no journal, do not make an audit red, and hide nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from sbpair.audit import Verdict
from sbpair.contract.cli.drill.plan import canaries
from sbpair.data.audit.daily import audit_daily
from tests.data.audit.audited import Audited, audited
from tests.data.audit.story import Story
from tests.data.audit.tampering import Play

DRILL = "9e2eacc70e99"
(CANARY,) = [each.message_id for each in canaries(DRILL, 1)]
PROBE = f"sbpair-canary-{DRILL}-probe"


def _probed(play: Play) -> None:
    play.primary.stored(PROBE)
    play.primary.removed(PROBE)


def _seen_by_the_syphon_alone(play: Play) -> None:
    play.syphon.forwarded(CANARY)


def _received_twice(play: Play) -> None:
    play.receiver.received(CANARY, CANARY, numbers=(100, 101))


def _came_home_and_was_cancelled(play: Play) -> None:
    play.secondary.stored(CANARY, number=0)
    play.syphon.forwarded(CANARY)
    play.secondary.removed(CANARY, number=0)
    play.primary.stored(CANARY)
    play.primary.removed(CANARY)


def _sent_by_a_sender_and_lost(play: Play) -> None:
    play.sender.sent(CANARY)


def _lost_from_its_backlog(play: Play) -> None:
    play.secondary.stored(CANARY, number=0)
    play.secondary.removed(CANARY, number=0)


def _not_the_id_of_a_canary(play: Play) -> None:
    play.receiver.received(f"sbpair-canary-{DRILL}-1000")


def _too_many_copies_of_a_senders_own(play: Play) -> None:
    play.sender.sent(CANARY)
    play.primary.stored(CANARY)
    play.receiver.received(CANARY, CANARY, numbers=(100, 101))


def heard(tmp_path: Path, tells: Callable[[Play], None]) -> Audited:
    play = Play(Story(tmp_path / "journals"))
    play.goes("m0", "m1")
    play.story.pause()
    tells(play)
    play.ends()
    return audited(tmp_path / "journals", tmp_path / "out")


def _name(tells: Callable[[Play], None]) -> str:
    return tells.__name__[1:].replace("_", " ")


@pytest.mark.spec("G-2", "R-131")
@pytest.mark.parametrize(
    "tells", [_probed, _seen_by_the_syphon_alone, _received_twice, _came_home_and_was_cancelled], ids=_name
)
def test_a_drill_leaves_a_green_audit_that_counts_its_canaries(
    tmp_path: Path, tells: Callable[[Play], None]
) -> None:
    result = heard(tmp_path, tells)

    assert result.summary.is_conserved
    assert result.summary.canaries == {DRILL: 1}
    assert f"<td>{DRILL}</td><td class=n>1</td>" in (result.out / "report.html").read_text("utf-8")
    assert audit_daily(tmp_path / "journals", tmp_path / "state").summary.canaries == {DRILL: 1}


@pytest.mark.spec("G-2", "R-141")
@pytest.mark.parametrize(
    ("tells", "verdict"),
    [
        (_sent_by_a_sender_and_lost, Verdict.LOST),
        (_lost_from_its_backlog, Verdict.UNPROVEN),
        (_not_the_id_of_a_canary, Verdict.UNEXPECTED),
    ],
)
def test_a_canary_id_does_not_hide_a_lost_message(
    tmp_path: Path, tells: Callable[[Play], None], verdict: Verdict
) -> None:
    summary = heard(tmp_path, tells).summary

    assert (summary.verdicts[verdict], summary.is_conserved) == (1, False)


@pytest.mark.spec("G-4", "R-141")
def test_copies_of_a_senders_message_need_an_explanation_whatever_its_id(tmp_path: Path) -> None:
    summary = heard(tmp_path, _too_many_copies_of_a_senders_own).summary

    assert (summary.unexplained, summary.canaries) == (1, {})
