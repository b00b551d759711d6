"""A namespace on disk without a broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.broker.store.kept import Kept


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Kept]:
    namespace = Kept(tmp_path / "data")
    yield namespace
    namespace.close()
