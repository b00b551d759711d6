"""A fixture for tests that break connections of the blocking SDK."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator

import pytest


@pytest.fixture
def forgiving_of_sockets() -> Iterator[None]:
    """Ignore the sockets that the SDK leaves unclosed after a reset."""
    yield
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
