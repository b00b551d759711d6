"""The environment variable that disables pairing."""

from __future__ import annotations

import pytest

from sbpair.pair.pairing.options import is_disabled


@pytest.mark.parametrize(
    ("value", "expected"),
    [("1", True), ("true", True), (" YES ", True), ("on", True), ("0", False), ("", False), ("off", False)],
)
def test_the_switch_reads_yes_and_no(value: str, expected: bool) -> None:
    assert is_disabled({"SBPAIR_DISABLE": value}) is expected


def test_without_the_variable_nothing_is_switched_off() -> None:
    assert is_disabled({}) is False


def test_a_value_that_says_neither_is_an_error_that_names_the_variable() -> None:
    with pytest.raises(ValueError, match="SBPAIR_DISABLE must be 1 or 0, not 'ture'"):
        is_disabled({"SBPAIR_DISABLE": "ture"})
