"""The regression guard finds what was made slower, and nothing where nothing was."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.trials.bench import guard
from tests.trials.bench.guard import ROOT, Comparison, MissingReferenceError, Tree, compare, sources_of

pytestmark = [pytest.mark.trial, pytest.mark.spec("R-112")]

SLOWER = """

_transfer = Reader.transfer


def _repeated(self: Reader, data: bytes, at: int, end: int) -> TransferHead:
    for _ in range(20):
        _transfer(self, data, at, end)
    return _transfer(self, data, at, end)


Reader.transfer = _repeated
"""


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "sbpair", tmp_path / "sbpair", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


@pytest.mark.long
def test_an_injected_slowdown_is_found(copy: Path) -> None:
    with (copy / "sbpair/pair/amqp/fast_path.py").open("a") as module:
        module.write(SLOWER)

    (engine,) = compare(ROOT, copy, ["engine"])

    assert engine.fell
    assert len(engine.ratios) == guard.ROUNDS + guard.MORE_ROUNDS


def test_identical_sources_are_equally_fast(copy: Path) -> None:
    assert not [str(each) for each in compare(ROOT, copy, ["engine", "enqueue"]) if each.fell]


def test_noise_is_no_slowdown_and_a_slowdown_is_found_in_noise() -> None:
    draw = random.Random(7)
    noise = [draw.uniform(0.4, 2.0) for _ in range(4)] + [draw.uniform(0.9, 1.1) for _ in range(7)]

    assert not Comparison("engine", tuple(noise)).fell
    assert Comparison("engine", tuple(each * 0.6 for each in noise)).fell


def test_a_failing_workload_is_named_with_its_tree(copy: Path) -> None:
    with (copy / "sbpair/pair/amqp/fast_path.py").open("a") as module:
        module.write("\ndel Reader.transfer\n")

    with Tree(copy) as tree, pytest.raises(RuntimeError, match=f"engine with the sources in {copy}"):
        tree.seconds("engine")


def test_a_revision_missing_in_the_clone_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(MissingReferenceError, match="no-such-revision"):
        sources_of("no-such-revision", tmp_path)

    assert guard.main(["--against", "no-such-revision"]) == guard.NO_REFERENCE
    assert "no-such-revision" in capsys.readouterr().err


def test_the_ratios_are_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    held = Comparison("engine", (1.0, 1.1, 0.9))
    fallen = Comparison("syphon", (0.5, 0.6, 0.7))
    monkeypatch.setattr(guard, "sources_of", lambda revision, directory: directory)
    monkeypatch.setattr(guard, "compare", lambda *_: [held, fallen])

    code = guard.main(["--against", "v0.1.0", "--out", str(tmp_path / "ratios.json")])

    stored = json.loads((tmp_path / "ratios.json").read_text())
    assert code == 1
    assert stored["against"] == "v0.1.0"
    assert [each["name"] for each in stored["figures"]] == ["engine", "syphon"]


def test_the_reference_is_the_newest_release_or_a_commit_before_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def git(*arguments: str) -> None:
        identity = ("-c", "user.name=t", "-c", "user.email=t@example.org")
        subprocess.run(["git", *identity, *arguments], cwd=tmp_path, check=True, capture_output=True)

    git("init", "-q")
    git("commit", "-q", "--allow-empty", "-m", "first")
    monkeypatch.setattr(guard, "ROOT", tmp_path)
    assert guard.reference_revision() == guard.REFERENCE

    for tag in ("v0.9.0", "v0.10.0", "other"):
        git("tag", tag)
    assert guard.reference_revision() == "v0.10.0"
