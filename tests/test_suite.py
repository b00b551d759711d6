"""How the suite is run: a failure is never given a second try."""

from __future__ import annotations

import ast
import re
import tomllib

import pytest

from tests.tools import check
from tests.tools.proofs import ROOT, mark_of

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
RERUNNERS = {"pytest-rerunfailures", "flaky", "pytest-retry"}


@pytest.mark.spec("R-65")
def test_no_plugin_that_runs_a_failed_test_again_is_asked_for():
    extras = PROJECT["project"]["optional-dependencies"]
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


def of_extra(name: str) -> set[str]:
    """The packages of an extra, with those of the extras that it names."""
    found: set[str] = set()
    for requirement in PROJECT["project"]["optional-dependencies"][name]:
        package, extras = re.match(r"([\w.-]+)(?:\[([\w,]+)\])?", requirement).groups()  # type: ignore[union-attr]
        others = extras.split(",") if package == "sbpair" else ()
        found = found.union({package} - {"sbpair"}, *map(of_extra, others))
    return found


def of_group(name: str) -> set[str]:
    """The packages of a group, with those of the groups that it includes."""
    found: set[str] = set()
    for entry in PROJECT["dependency-groups"][name]:
        more = (
            of_group(entry["include-group"]) if isinstance(entry, dict) else {re.split(r"[\[<>=]", entry)[0]}
        )
        found |= more
    return found


PAGE = (ROOT / "docs" / "how-to" / "contribute.md").read_text("utf-8")


@pytest.mark.spec("R-130")
def test_what_a_contributor_installs_brings_all_that_the_tests_of_the_readme_need():
    (extras, groups) = re.findall(
        r"^pip install -e '\.\[([\w,]+)\]'((?: --group \w+)+)$", PAGE, re.MULTILINE
    )[0]
    named = groups.replace("--group", "").split()
    installed = set().union(*map(of_extra, extras.split(",")), *map(of_group, named))
    assert named == ["lint", "test"]
    assert of_extra("test") - installed == set()


@pytest.mark.spec("R-130")
def test_the_page_names_every_group_and_ci_installs_what_it_says():
    rows = re.findall(
        r"^\| (`[a-z`, ]+`) \|", PAGE.partition("| group |")[2].partition("\n\n")[0], re.MULTILINE
    )
    told = {name for row in rows for name in re.findall(r"\w+", row)}
    assert told == PROJECT["dependency-groups"].keys()
    commands = (ROOT / ".ci" / "run").read_text("utf-8")
    assert told == set(re.findall(r"--group (\w+)", commands))
    assert '"$work/dev/bin/python" -m tests.tools.check --since HEAD\n' in commands
