"""Each part is imported without the others, and the few modules that stand on more are known."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.needs import wanting
from tests.tools import alone
from tests.tools.parts import PARTS, part_of


def imported(folder: Path, program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program], cwd=folder, capture_output=True, text=True, timeout=100
    )


@pytest.mark.parametrize(
    "part", [pytest.param(part, marks=wanting("pyspark") if part == "data" else ()) for part in PARTS]
)
def test_a_part_is_importable_without_the_parts_it_does_not_import(part: str, tmp_path: Path) -> None:
    alone.write(part, tmp_path)

    done = imported(tmp_path, (tmp_path / "import_all.py").read_text("utf-8"))

    assert done.returncode == 0, done.stderr
    assert done.stdout == f"sbpair {' '.join(sorted((part, *PARTS[part].imports)))} from {tmp_path}/sbpair\n"
    for name in alone.WITH_SENDERS.get(part, ()):
        module = f"sbpair.{name.removesuffix('.py').replace('/', '.')}"
        assert "ModuleNotFoundError: No module named 'sbpair" in imported(tmp_path, f"import {module}").stderr


@pytest.mark.parametrize(
    ("path", "part"),
    [
        ("sbpair/pair/pairing/decide/health.py", "pair"),
        ("sbpair/broker/errors.py", "broker"),
        ("tests/contract/cli/test_demo.py", "contract"),
        ("sbpair/syphon.py", "project"),
        ("tests/trials/kill.py", "project"),
        ("tests/test_docs.py", "project"),
    ],
)
def test_a_file_belongs_to_the_part_of_its_folder(path: str, part: str) -> None:
    assert part_of(path) == part
