"""Durations and timestamps in a parked message, written and read back."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbpair.pair.envelope.aliases import (
    format_duration,
    format_instant,
    instant_of,
    parse_duration,
    parse_instant,
)

DAY = 86_400_000


@pytest.mark.spec("P-20", "G-16")
@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (0, "PT0S"),
        (1, "PT0.001S"),
        (300_000, "PT5M"),
        (3_661_500, "PT1H1M1.5S"),
        (DAY, "P1D"),
        (60 * DAY, "P60D"),
        (25 * DAY + 10, "P25DT0.01S"),
        (922_337_203_685_477, "P10675199DT2H48M5.477S"),
    ],
)
def test_a_span_is_written_as_iso_8601_and_read_back(milliseconds: int, text: str) -> None:
    assert format_duration(milliseconds) == text
    assert parse_duration(text) == milliseconds


@pytest.mark.spec("G-16")
@given(st.integers(0, 2**53))
def test_every_span_survives(milliseconds: int) -> None:
    assert parse_duration(format_duration(milliseconds)) == milliseconds


@pytest.mark.spec("P-20")
@given(st.integers(-62_135_596_800_000, 253_402_300_799_999))
def test_every_instant_from_year_1_to_9999_survives(milliseconds: int) -> None:
    assert parse_instant(format_instant(milliseconds)) == milliseconds


@pytest.mark.spec("P-20")
def test_an_instant_is_written_in_utc() -> None:
    assert format_instant(instant_of(datetime(2026, 11, 21, tzinfo=UTC))) == "2026-11-21T00:00:00Z"
    assert format_instant(1) == "1970-01-01T00:00:00.001Z"


def test_an_offset_is_honoured_and_a_naive_instant_is_utc() -> None:
    east = datetime(2026, 1, 1, 2, tzinfo=timezone(timedelta(hours=2)))
    assert instant_of(east) == instant_of(datetime(2026, 1, 1, tzinfo=UTC))
    assert parse_instant("2026-01-01T02:00:00+02:00") == parse_instant("2026-01-01T00:00:00")


@pytest.mark.parametrize("text", ["", "P", "PT", "P1Y", "P1M", "-PT1S", "PT1", "5M", "PT1.S", "P1DT"])
def test_an_invalid_duration_is_refused_by_name(text: str) -> None:
    with pytest.raises(ValueError, match="not an ISO 8601 duration"):
        parse_duration(text)


@pytest.mark.parametrize("text", ["", "tomorrow", "2026-13-01T00:00:00Z"])
def test_an_invalid_time_is_refused_by_name(text: str) -> None:
    with pytest.raises(ValueError, match="not an ISO 8601 instant"):
        parse_instant(text)


def test_a_negative_span_and_a_year_beyond_9999_cannot_be_written() -> None:
    with pytest.raises(ValueError, match="negative"):
        format_duration(-1)
    with pytest.raises(ValueError, match="years 1 to 9999"):
        format_instant(2**60)
