"""A short cut of the comparison that ``python -m tests.trials.partitioned_model`` makes at length."""

from __future__ import annotations

import pytest
from hypothesis import settings

from .partitioned_model import Both

TestBoth = Both.TestCase
TestBoth.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)
TestBoth = pytest.mark.spec("Q-8", "Q-9", "Q-10")(TestBoth)
