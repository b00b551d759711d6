"""How long sends take, by where their messages were stored and by outcome (H-53)."""

from __future__ import annotations

import pytest

from sbpair.pair.pairing.outcome import Failure, Refused, Stored, Stranded
from sbpair.pair.pairing.shared.base_runtime import BOUNDS, SendTimes

pytestmark = pytest.mark.spec("H-53")

ERROR = RuntimeError("no")


@pytest.mark.parametrize(
    ("outcome", "key"),
    [
        (Stored(None, False), ("primary", "accepted")),
        (Stored(3, False), ("secondary", "accepted")),
        (Stored(None, False, is_spooled=True), ("spool", "accepted")),
        (Refused(ERROR, False, False, Failure.CALLER), ("primary", "raised")),
        (Refused(ERROR, True, False, Failure.CALLER), ("secondary", "raised")),
        (Stranded((ERROR,)), ("secondary", "raised")),
    ],
)
def test_a_send_is_counted_by_where_it_was_stored_or_by_its_last_refusal(
    outcome: Stored | Refused | Stranded, key: tuple[str, str]
) -> None:
    times = SendTimes()
    times.ended(outcome, 0.02)
    assert {name: each.cumulative_counts()[-1] for name, each in times.by_side().items()} == {
        ("primary", "accepted"): 0,
        key: 1,
    }


def test_each_bucket_counts_the_sends_within_its_bound() -> None:
    times = SendTimes().primary
    for seconds in (0.0001, 0.001, 0.0011, 7.0, 61.0):
        times.add(seconds)
    by_bound = dict(zip([*BOUNDS, None], times.cumulative_counts(), strict=True))
    assert (by_bound[0.001], by_bound[0.0025], by_bound[5.0], by_bound[10.0], by_bound[None]) == (
        2,
        3,
        3,
        4,
        5,
    )
    assert times.total == pytest.approx(68.0022)
