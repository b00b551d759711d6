"""The environment variable that disables pairing."""

from __future__ import annotations

import pytest

from sbpair.pair.pairing.options import is_disabled


@pytest.mark.parametrize(
    ("value", "expected"),
    [("1", True), ("true", True), (" YES ", True), ("on", True), ("0", False), ("", False), ("off", False)],
)
def test_the_switch_accepts_yes_and_no(value: str, expected: bool) -> None:
    assert is_disabled({"SBPAIR_DISABLE": value}) is expected


def test_pairing_is_enabled_without_the_variable() -> None:
    assert is_disabled({}) is False


def test_an_invalid_value_is_an_error_that_names_the_variable() -> None:
    with pytest.raises(ValueError, match="SBPAIR_DISABLE must be 1 or 0, not 'ture'"):
        is_disabled({"SBPAIR_DISABLE": "ture"})
