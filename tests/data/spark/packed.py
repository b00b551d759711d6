"""The package as one file for a cluster, packed by the command of docs/how-to/audit.md."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import sbpair

HOME = Path(sbpair.__file__).resolve().parent


def packed(directory: Path) -> Path:
    """``sbpair.zip`` in ``directory``."""
    target = directory / "sbpair.zip"
    command = [sys.executable, "-m", "zipfile", "-c", str(target), f"{HOME.name}/"]
    subprocess.run(command, check=True, cwd=HOME.parent)
    return target
