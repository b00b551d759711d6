"""The trial of :mod:`tests.trials.many_entities`, cut short."""

from __future__ import annotations

import pytest

from tests.trials.many_entities import is_right, trial


@pytest.mark.spec("B-17")
def test_messages_of_thousands_of_entities_are_parked_in_time_with_few_descriptors() -> None:
    for report in trial(entities=2000, descriptors=256, seconds=20, rate=50.0):
        assert is_right(report, 1000, 256), report
