"""How the suite is run: a failure is never given a second try."""

from __future__ import annotations

import ast
import asyncio
import os
import re
import socket
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from sbpair.pair.cli.group import COMMANDS
from tests import needs
from tests.needs import NEEDS, Need
from tests.tools import check
from tests.tools.proofs import ROOT, mark_of

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
RERUNNERS = {"pytest-rerunfailures", "flaky", "pytest-retry"}


@pytest.mark.spec("R-65")
def test_no_plugin_that_reruns_failed_tests_is_required():
    extras = PROJECT["project"]["optional-dependencies"]
    asked = {requirement.partition(">")[0] for extra in extras.values() for requirement in extra}
    assert asked & RERUNNERS == set()


@pytest.mark.spec("R-65")
def test_no_test_is_marked_to_be_rerun():
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
        ("sbpair/pair/pairing/decide/pair.py", {"pair/pairing"}),
        ("sbpair/pair/paired_client/base.py", {"pair/outage"}),
        ("sbpair/broker/store/schema.py", {"broker/store"}),
        ("sbpair/syphon.py", {"typing"}),
        ("tests/pair/pairing/test_pair.py", {"pair/pairing/test_pair.py"}),
        ("tests/pair/pairing/conftest.py", {"pair/pairing"}),
        ("tests/typing/user_blocking.py", {"typing"}),
        ("tests/tools/generate_docs.py", {"test_docs.py"}),
        ("tests/tools/test_workflows.py", {"tools/test_workflows.py"}),
        ("tests/trials/soak/test_soak.py", {"trials/soak/test_soak.py"}),
        ("docs/index.md", {"test_docs.py"}),
        ("SECURITY.md", {"test_docs.py", "test_readme.py"}),
        ("pyproject.toml", {"test_suite.py"}),
        (".ci/run", {"test_suite.py"}),
        (".github/workflows/ci.yml", {"deploy/test_workflows.py", "tools/test_workflows.py"}),
        ("hatch_build.py", {"test_builds.py"}),
        ("samples/send_paired.py", {"test_samples.py"}),
        ("LICENSE", set()),
    ],
)
def test_the_check_runs_the_tests_of_changed_files(path, tests):
    assert check.tests_of(path) == tests


@pytest.mark.slow
def test_the_check_runs_a_folder_once_and_no_deleted_file():
    chosen = check.chosen(
        ["sbpair/pair/pairing/decide/pair.py", "tests/pair/pairing/test_pair.py", "tests/gone/test_gone.py"]
    )
    assert chosen == sorted(["pair/pairing", *check.ALWAYS, *check.OF_THE_API])


@pytest.mark.slow
def test_the_check_runs_the_tests_of_packages_that_import_changed_files():
    assert {"pair/client", "pair/syphon", "pair/processor", "broker/cli"} <= set(
        check.chosen(["sbpair/pair/client/locks.py"])
    )
    assert check.users(["sbpair/pair/processor/session_link.py"]) == set()


def test_the_fast_check_runs_changed_tests_and_tests_that_import_changed_files():
    nearest = check.nearest(["sbpair/pair/pairing/decide/backlogs.py", "docs/index.md"])
    assert {"pair/pairing/test_rotation.py", *check.ALWAYS, "test_docs.py"} <= set(nearest)
    assert not {"pair/pairing", "pair/pairing/test_spool_schedule.py"} & set(nearest)


@pytest.mark.parametrize("part", check.PARTS)
def test_the_check_of_a_part_runs_its_tests_and_names_what_it_leaves_out(part: str) -> None:
    names = check.loop(part)
    own = {name for name in names if name.startswith(part)}
    assert {*own, *check.ALWAYS} == set(names)
    rooms = {file.parent.relative_to(check.TESTS) for file in (check.TESTS / part).rglob("test_*.py")}
    left_out = set("".join(check.of_part(part, names)).partition(":")[0].split(", "))
    for room in rooms - {Path(part)}:
        assert (str(room) in left_out) != bool({part, str(room)} & own), room
    long = check.PARTS[part].long
    assert set(long) <= left_out
    assert all((check.TESTS / name).exists() for name in long)


@pytest.mark.spec("R-165")
@pytest.mark.parametrize("module", sorted({module for module, _ in COMMANDS.values()}))
def test_the_fast_check_runs_the_tests_of_a_changed_command(module: str) -> None:
    file = ROOT / Path(*module.split("."))
    path = file.with_suffix(".py") if file.with_suffix(".py").exists() else file / "__init__.py"

    tests = check.of_command(path.relative_to(ROOT).as_posix())

    assert tests
    assert tests <= set(check.nearest([path.relative_to(ROOT).as_posix()]))


@pytest.mark.spec("R-165")
def test_the_fast_check_compares_the_generated_blocks_with_the_code() -> None:
    name, _, test = check.BLOCKS.partition("::")
    assert check.BLOCKS in check.nearest(["sbpair/pair/cli/peek.py"])
    assert f"def {test}(" in (check.TESTS / name).read_text("utf-8")


def test_the_check_shows_running_tests_and_other_output_only_on_failure(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert check.Step("tests (1 places)", "pytest", "--version").passes()
    assert check.Step("fine", "json.tool", "--help").passes()
    assert not check.Step("wrong", "json.tool", "--no-such-flag").passes()
    shown = capsys.readouterr().out
    assert shown.index("pytest ") < shown.index("tests (1 places)")
    assert "show this help" not in shown
    assert "--no-such-flag" in shown


@pytest.mark.parametrize(
    ("branches", "compared"),
    [(["origin/main", "origin/HEAD"], "origin/main"), (["fork/main"], "main"), ([], "main")],
)
def test_the_check_compares_with_the_cloned_main_branch(
    monkeypatch: pytest.MonkeyPatch, branches: list[str], compared: str
) -> None:
    monkeypatch.setattr(check, "git", lambda *arguments: branches)
    assert check.upstream() == compared


def test_the_check_runs_slow_tests_that_pytest_omits() -> None:
    assert check.slow_too() == ("-m", "not spark and not interop and not trial and not long")


def test_the_check_names_what_it_omits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(needs, "missing", lambda: (Need("pyspark", "", ("data/spark",)),))
    paths = ["sbpair/pair/auth/token.py", "tests/waiting.py", "tests/test_suite.py"]

    said = list(check.not_run(paths, ["data/spark", "pair/pairing"], fast=False))

    assert [line.partition(",")[0] for line in said] == ["data/spark", "all tests"]
    assert "tests/waiting.py" in said[1]
    assert "test_suite" not in said[1]


def test_types_are_checked_without_the_large_spark_packages_too():
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
def test_contributors_install_the_packages_the_readme_tests_with():
    (extras, groups) = re.findall(
        r"^uv pip install -e '\.\[([\w,]+)\]'((?: --group \w+)+)$", PAGE, re.MULTILINE
    )[0]
    assert (extras, groups.replace("--group", "").split()) == ("test", ["lint"])
    assert "uv pip install -q '.[test]' && pytest -q" in (ROOT / "README.md").read_text("utf-8")


@pytest.mark.spec("R-130")
def test_the_readme_tests_install_neither_spark_nor_a_jdk_nor_the_audit_packages():
    heavy = of_extra("spark") | of_extra("jdk") | of_extra("audit") | of_group("pipeline")
    assert of_extra("test") & heavy == set()


@pytest.mark.spec("R-130")
def test_each_test_with_extra_needs_exists_and_its_needs_are_checked():
    asked = {"mypy"} | of_extra("spark") | of_group("pipeline")
    for need in NEEDS:
        assert need.package.replace("_", "-") in asked
        assert [path for path in need.paths if not (ROOT / "tests" / path).exists()] == []


def test_a_test_without_its_package_is_omitted_by_name_and_an_error_in_ci(monkeypatch):
    lacking = Need("not_there", "'.[more]'", ("data/audit",))
    monkeypatch.setattr("tests.needs.missing", lambda: (lacking,))
    monkeypatch.delenv("SBPAIR_REQUIRE_PEERS", raising=False)
    assert needs.is_left_out(ROOT / "tests" / "data" / "audit" / "test_audit.py")
    assert not needs.is_left_out(ROOT / "tests" / "data" / "cli" / "test_audit.py")
    assert list(needs.lines()) == ["left out, for want of not_there: data/audit (pip install '.[more]')"]


@pytest.mark.slow
@pytest.mark.parametrize(("required", "code"), [("", 0), ("1", pytest.ExitCode.USAGE_ERROR)])
def test_a_quiet_run_names_what_it_omits_and_in_ci_does_not_start(required, code):
    program = (
        "import pytest; from tests import needs; "
        "needs.NEEDS = (needs.Need('not_there', 'more', ('audit',)),); "
        "raise SystemExit(pytest.main(['-q', '--collect-only', '-p', 'no:cacheprovider', 'tests/test_turns.py']))"
    )

    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env=os.environ | {"SBPAIR_REQUIRE_PEERS": required},
    )

    assert done.returncode == code, done.stderr
    assert "left out, for want of not_there: audit (pip install more)" in done.stdout + done.stderr


@pytest.mark.spec("R-130")
def test_the_page_names_every_group_and_ci_installs_them():
    rows = re.findall(
        r"^\| (`[a-z`, ]+`) \|", PAGE.partition("| group |")[2].partition("\n\n")[0], re.MULTILINE
    )
    told = {name for row in rows for name in re.findall(r"\w+", row)}
    assert told == PROJECT["dependency-groups"].keys()
    commands = (ROOT / ".ci" / "run").read_text("utf-8")
    assert told == set(re.findall(r"--group (\w+)", commands))
    assert '"$work/dev/bin/python" -m tests.tools.check --since HEAD\n' in commands


def requirements_of(extra: str) -> list[Requirement]:
    """Those of an extra, with those of the extras that it names in their place."""
    parsed = [Requirement(each) for each in PROJECT["project"]["optional-dependencies"][extra]]
    inner = [name for each in parsed if each.name == "sbpair" for name in each.extras]
    return [each for each in parsed if each.name != "sbpair"] + [
        each for name in inner for each in requirements_of(name)
    ]


def test_the_lock_file_matches_the_project_requirements():
    """`uv lock --check` says so too, and in CI, with the registry; this needs no network."""
    lock = tomllib.loads((ROOT / "uv.lock").read_text("utf-8"))
    (ours,) = [package for package in lock["package"] if package["name"] == "sbpair"]
    project = PROJECT["project"]
    asked = {
        (Requirement(each).name, "", str(Requirement(each).specifier)) for each in project["dependencies"]
    }
    for extra in project["optional-dependencies"]:
        asked |= {(each.name, extra, str(each.specifier)) for each in requirements_of(extra)}
    locked = {
        (
            each["name"],
            (re.findall(r"extra == '([\w-]+)'", each.get("marker", "")) or [""])[0],
            str(SpecifierSet(each.get("specifier", ""))),
        )
        for each in ours["metadata"]["requires-dist"]
    }
    assert locked == asked, "stale: run `uv lock`"
    groups = {
        (name, Requirement(each).name, str(Requirement(each).specifier))
        for name, requirements in PROJECT["dependency-groups"].items()
        for each in requirements
    }
    assert groups == {
        (name, each["name"], str(SpecifierSet(each.get("specifier", ""))))
        for name, requirements in ours["metadata"]["requires-dev"].items()
        for each in requirements
    }, "stale: run `uv lock`"


@pytest.mark.spec("R-65")
async def test_an_unclosed_transport_is_reported_with_its_test() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        _, writer = await asyncio.open_connection(*listener.getsockname())
        opened = "opened in tests/test_suite.py::test_an_unclosed_transport_is_reported_with_its_test"
        assert opened in repr(writer.transport)
        writer.transport.abort()
