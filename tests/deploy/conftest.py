"""Connection strings in files, as deployments mount them."""

from __future__ import annotations

from pathlib import Path

import pytest

from .reading import STRING


@pytest.fixture
def credentials(tmp_path: Path) -> Path:
    """A directory with the files ``primary`` and ``secondary``."""
    for side, host in (("primary", "contoso"), ("secondary", "contoso-dr")):
        (tmp_path / side).write_text(STRING.format(host), "utf-8")
    return tmp_path
