"""How the suite is run: a failure is never given a second try."""

from __future__ import annotations

import ast
import tomllib

import pytest

from tests.tools import check
from tests.tools.proofs import ROOT, mark_of

RERUNNERS = {"pytest-rerunfailures", "flaky", "pytest-retry"}


@pytest.mark.spec("R-65")
def test_no_plugin_that_runs_a_failed_test_again_is_asked_for():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    asked = {requirement.partition(">")[0] for extra in extras.values() for requirement in extra}
    assert asked & RERUNNERS == set()


@pytest.mark.spec("R-65")
def test_no_test_is_marked_to_be_run_again():
    marked = [
        str(file.relative_to(ROOT))
        for file in sorted((ROOT / "tests").rglob("*.py"))
        if "flaky" in (source := file.read_text("utf-8"))  # most need no closer look
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.expr) and (mark := mark_of(node)) and mark[0] == "flaky"
    ]
    assert marked == []


@pytest.mark.parametrize(
    ("path", "tests"),
    [
        ("sbpair/pairing/pair.py", {"pairing"}),
        ("tests/pairing/test_pair.py", {"pairing/test_pair.py"}),
        ("tests/pairing/conftest.py", {"pairing"}),
        ("tests/tools/generate_docs.py", {"test_docs.py"}),
        ("docs/index.md", {"test_docs.py"}),
        ("samples/send_paired.py", {"test_samples.py"}),
        ("LICENSE", set()),
    ],
)
def test_the_check_runs_the_tests_of_what_changed(path, tests):
    assert check.tests_of(path) == tests


def test_the_check_runs_a_folder_once_and_nothing_that_is_gone():
    chosen = check.chosen(["sbpair/pairing/pair.py", "tests/pairing/test_pair.py", "tests/gone/test_gone.py"])
    assert chosen == ["pairing", "test_floors.py", "test_spec.py"]


def test_the_types_are_checked_without_the_large_packages_of_spark_too():
    """Where the groups lint and test are installed, 60 errors would be about missing packages alone."""
    assert check.types(has_spark=True) == ("mypy", "--strict", "sbpair")
    assert set(check.WITHOUT_SPARK) < set(check.types(has_spark=False))
