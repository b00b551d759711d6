"""What the daily audit keeps is read back as it was, and a foreign file runs nothing."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime

import numpy as np
import pytest

from sbpair.data.audit.daily import plain

pytestmark = pytest.mark.spec("R-146")


def test_every_kind_of_value_round_trips() -> None:
    given = {
        "a": (1, 2.5, None),
        3: {"x", "y"},
        "c": Counter(a=2),
        "t": datetime(2026, 1, 1, tzinfo=UTC),
        "b": b"\0",
    }
    assert plain.loads(plain.dumps(given)) == given
    array = np.arange(5, dtype=np.uint64)
    assert np.array_equal(plain.loads(plain.dumps(array)), array)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text",
    [
        b"[1",
        b"{}",
        json.dumps({"!": "os:system", "=": "true"}).encode(),
        json.dumps({"!": "sbpair.data.audit.daily.plain:import_module", "=": {}}).encode(),
        json.dumps({"!": "sbpair.data.audit.daily.plain:json.JSONDecoder", "=": {}}).encode(),
    ],
)
def test_an_invalid_state_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError):
        plain.loads(text)


def test_a_value_without_a_plain_form_is_named() -> None:
    with pytest.raises(TypeError, match="has no plain form"):
        plain.dumps(object())
