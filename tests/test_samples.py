"""Every sample runs on a laptop, without arguments and without an account."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.warm import Warm

FILES = sorted((Path(__file__).resolve().parent.parent / "samples").glob("*.py"))
SAMPLES = [
    file for file in FILES if not file.name.startswith("test_")
]  # those: tests/broker/testing/test_plugin.py
COLD = ("send_paired", "spark_messages")  # the first one a reader starts, and a JVM
MOST_LINES = 50
PATIENCE = 240  # seconds: Spark starts, beside five other workers


def _marked(file: Path) -> Any:
    marks = [pytest.mark.spark, pytest.mark.long] if file.stem.startswith("spark") else []
    return pytest.param(file, marks=marks, id=file.stem)


def _run(sample: Path, warm: Warm | None) -> subprocess.CompletedProcess[str]:
    if warm is None or sample.stem in COLD:
        program = [sys.executable, "-W", "error", str(sample)]
        return subprocess.run(program, capture_output=True, text=True, timeout=PATIENCE)
    return warm.run([str(sample)], dict(os.environ), PATIENCE, program="file")


def test_there_are_samples() -> None:
    assert len(SAMPLES) >= 4


@pytest.mark.slow
@pytest.mark.timeout(PATIENCE + 10)
@pytest.mark.parametrize("sample", [_marked(file) for file in SAMPLES])
def test_a_sample_runs_and_exits_with_0(
    sample: Path, tmp_path: Path, warm: Warm | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = _run(sample, warm)

    assert done.returncode == 0, done.stderr
    assert done.stdout.strip(), "a sample shows something"
    assert "skipped" not in done.stdout
    assert "SharedAccessKey=" not in done.stdout + done.stderr
    if "spark" not in sample.stem:  # a JVM says a word about itself
        assert done.stderr == ""


@pytest.mark.spec("R-81")
@pytest.mark.parametrize(
    "sample", [file for file in SAMPLES if file.stem.startswith("spark")], ids=lambda file: file.stem
)
def test_a_spark_sample_without_its_requirements_says_what_to_install(sample: Path, tmp_path: Path) -> None:
    (tmp_path / "pyspark.py").write_text(
        "raise ModuleNotFoundError('No module named pyspark', name='pyspark')\n"
    )
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    }
    program = [sys.executable, str(sample)]
    done = subprocess.run(program, capture_output=True, text=True, timeout=60, cwd=tmp_path, env=environment)

    assert done.returncode == 1
    assert "pip install" in done.stderr.splitlines()[-1]


@pytest.mark.spark
@pytest.mark.spec("R-81")
@pytest.mark.timeout(PATIENCE + 10)
def test_the_spark_sample_shows_the_rows_it_wrote(tmp_path: Path) -> None:
    program = [sys.executable, str(FILES[0].parent / "spark_messages.py")]
    done = subprocess.run(program, capture_output=True, text=True, timeout=PATIENCE, cwd=tmp_path)

    assert "orders that wait, and invoices: [0, 25]" in done.stdout
    assert done.stdout.count("invoice for order") == 3


@pytest.mark.parametrize("sample", FILES, ids=lambda path: path.stem)
def test_a_sample_is_short(sample: Path) -> None:
    assert len(sample.read_text("utf-8").splitlines()) <= MOST_LINES
