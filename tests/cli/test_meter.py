"""Metering of operations, with the figures of the published articles."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbpair.cli.meter import Usage, bill, pings

HOUR, MINUTE, SECOND = timedelta(hours=1), timedelta(minutes=1), timedelta(seconds=1)


@pytest.mark.spec("P-41")
@pytest.mark.parametrize(("days", "receives"), [(1, 960), (30, 28_800), (0, 0)])
def test_ten_idle_backlogs_are_960_receives_a_day(days, receives):
    assert bill(Usage(days=days, outages=0)).total == receives


@pytest.mark.spec("P-41")
def test_every_syphon_waits_on_every_backlog():
    assert bill(Usage(days=30, syphons=3, outages=0)).idle_receives == 3 * 28_800


@pytest.mark.spec("P-43")
def test_a_parked_message_is_four_operations_two_more_than_direct():
    found = bill(Usage(days=0, parked=1000, outages=2, entities=0))

    assert found.total == 8000
    assert found.beyond_direct == 4000


@pytest.mark.spec("P-34")
@pytest.mark.parametrize(
    ("failed_over", "interval", "count"),
    [
        (0 * SECOND, MINUTE, 1),
        (1 * SECOND, MINUTE, 2),
        (MINUTE, MINUTE, 2),
        (61 * SECOND, MINUTE, 3),
        (HOUR, MINUTE, 61),
    ],
)
def test_pings_go_out_at_failover_and_until_the_first_after_the_recovery(failed_over, interval, count):
    assert pings(failed_over, interval) == count


@pytest.mark.spec("P-32", "P-34")
def test_each_entity_of_each_process_pings_in_each_outage():
    usage = Usage(days=0, outages=2, entities=3, processes=4, failed_over=HOUR, ping_interval=MINUTE)
    assert bill(usage).pings == bill(usage).total == 2 * 3 * 4 * 61


@given(st.integers(0, 10**6), st.integers(1, 10**4))
def test_counting_the_pings_one_by_one_comes_to_the_same(failed_over, interval):
    at, counted = 0, 1
    while at < failed_over and counted < 1000:
        at += interval
        counted += 1
    if counted < 1000:
        assert pings(failed_over * SECOND, interval * SECOND) == counted


@pytest.mark.parametrize(
    "wrong", [{"backlogs": -1}, {"ping_interval": timedelta(0)}, {"failed_over": -SECOND}], ids=str
)
def test_usage_out_of_range_is_refused_by_name(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Usage(**wrong)
