"""What the code asks of its system exists on Linux, macOS and Windows, or is asked for behind a check: mypy says so.

It does not say that it works there: nothing was run on macOS or Windows.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.tools.source import ROOT

LIMIT = 300  # seconds: mypy begins without a cache


def checked(folder: Path, platform: str, *files: str) -> str:
    """What mypy says of files where the system is another one."""
    options = ["--strict", "--platform", platform, "--cache-dir", str(folder)]
    command = [sys.executable, "-m", "mypy", *options, *files]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout


@pytest.mark.long
@pytest.mark.timeout(LIMIT)
@pytest.mark.parametrize("platform", ["darwin", "win32"])
def test_no_platform_specific_name_is_used_elsewhere(tmp_path: Path, platform: str) -> None:
    assert checked(tmp_path, platform, "sbpair").startswith("Success")


@pytest.mark.timeout(LIMIT)
def test_a_name_missing_on_windows_would_be_found(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("import os\n\nprint(os.statvfs('.'))\n")
    assert 'no attribute "statvfs"' in checked(tmp_path, "win32", str(program))
