"""Archives that we made or fetched, unpacked."""

from __future__ import annotations

import tarfile
from pathlib import Path


def unpack(archive: tarfile.TarFile, into: Path) -> None:
    """Extract all of it; what would land elsewhere is refused, from Python 3.11.4 on, which has the filter."""
    archive.extraction_filter = getattr(tarfile, "data_filter", lambda member, path: member)
    archive.extractall(into)
