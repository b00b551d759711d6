"""Lint, types and the tests of what a change touches: `python -m tests.tools.check`.

The change is everything since the merge base with main, committed or not. A changed module of sbpair runs the
tests of its package, and of the packages that import it; a changed test file runs itself; a changed helper of a test
package runs that package; a changed page or docs tool runs the tests of the docs; a changed part of the project itself
runs the tests that read it. What it leaves out it names. The exit code is 0 when all that it runs passes.

With --fast it runs, of its package's tests, the files that import a changed module themselves, the changed ones, those
of a changed command, whether the generated blocks of the docs are fresh, and the rules of the house (layers,
requirements): what to run after each edit. It names the other packages that
import the module, whose tests it leaves out.

Without --fast the slow tests of these run too, and it prints the lines of each part and the length of the five ways
(tests/tools/house.py), none of which may have grown.

With --part it runs, whatever changed, what a contributor to one part needs: format, lint, types, the layers, and of the
part's tests those of its loop (tests/tools/parts.py), which take less than a minute of two cores.

    python -m tests.tools.check [--fast | --part PART] [--since REVISION] [-n WORKERS] [--list]
"""

from __future__ import annotations

import argparse
import ast
import importlib.util
import re
import shlex
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path

from tests.needs import is_left_out
from tests.tools.parts import PARTS

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests"
ROOMS = {"pair/paired_client": "pair/outage"}
"""Where the tests of a room are, if not in the folder of its own name or beside the rooms of its part."""
ALWAYS = ("test_constants.py", "test_floors.py", "test_spec.py")
DOCS = "test_docs.py"
BLOCKS = f"{DOCS}::test_generated_blocks_are_up_to_date"
OF_COMMANDS = {"journal": "data/cli/test_audit.py", "spark": "data/spark/test_command.py"}
"""The test file of a command, where it does not have its name."""
OF_THE_API = (DOCS, "typing/test_public.py")
"""What any module of sbpair may change: the generated pages, and what is public."""
WITHOUT_SPARK = ("--ignore-missing-imports", "--allow-subclassing-any", "--no-warn-unused-ignores")
"""The flags of mypy where the group spark is not installed: its packages count as untyped."""
NO_TESTS = 5  # what pytest exits with when every test is deselected


def slow_too() -> tuple[str, str]:
    """The marks that pyproject.toml deselects, but for `slow`."""
    options = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["pytest"]["ini_options"]
    given = shlex.split(options["addopts"])
    return "-m", given[given.index("-m") + 1].removesuffix(" and not slow")


def git(*arguments: str) -> list[str]:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.split()


def upstream() -> str:
    """What a change is compared with: the main branch that was cloned, so that commits on one's own main count."""
    return "origin/main" if "origin/main" in git("branch", "-r", "--format=%(refname:short)") else "main"


def changed(since: str) -> list[str]:
    """Paths below the repository that differ from the merge base with ``since``, or are not tracked."""
    base = git("merge-base", since, "HEAD")[0]
    return sorted({*git("diff", "--name-only", base), *git("ls-files", "--others", "--exclude-standard")})


def tests_of(path: str) -> set[str]:
    """The test files or folders, below tests/, that a changed path asks for."""
    match Path(path).parts:
        case ("sbpair", part, room, *_) if part in PARTS:
            name = ROOMS.get(f"{part}/{room}", f"{part}/{room}")
            return {name} if (TESTS / name).is_dir() else beside_rooms(part)
        case ("sbpair", *_):
            return {"typing"}
        case ("tests", *folders, file) if file.startswith("test_"):
            return {"/".join((*folders, file))}
        case ("tests", ("trials" | "tools"), *_):
            return {DOCS}
        case ("tests", part, room, _, *_) if part in PARTS:
            return {f"{part}/{room}"}
        case ("tests", part, _) if part in PARTS:
            return beside_rooms(part)
        case ("tests", room, _, *_):
            return {room}
        case ("docs", *_):
            return {DOCS}
        case (file,) if file.endswith(".md"):
            return {DOCS, "test_readme.py"}
        case (".ci", *_) | ("pyproject.toml" | "uv.lock",):
            return {"test_suite.py"}
        case (".github", *_):
            return {"deploy/test_workflows.py", "tools/test_workflows.py"}
        case ("hatch_build.py",):
            return {"test_builds.py"}
        case ("samples", *_):
            return {"test_samples.py"}
    return set()


def beside_rooms(part: str) -> set[str]:
    """The test files that stand in the folder of a part itself."""
    return {f"{part}/{file.name}" for file in (TESTS / part).glob("test_*.py")}


def users(paths: Iterable[str]) -> set[str]:
    """The folders, below tests/, of the packages of sbpair that import a changed module of another package."""
    changed = modules(paths)
    files = [path.relative_to(ROOT) for path in sorted((ROOT / "sbpair").rglob("*.py"))]
    return {
        folder
        for path in files
        if any(is_of_another(module, path.parts[1:3]) for module in changed & imported(ROOT / path))
        for folder in tests_of(path.as_posix())
    }


def is_of_another(module: str, room: tuple[str, ...]) -> bool:
    return tuple(module.split(".")[1:3]) != room


def modules(paths: Iterable[str]) -> set[str]:
    """The names of the changed modules of sbpair."""
    return {
        ".".join(Path(path).with_suffix("").parts).removesuffix(".__init__")
        for path in paths
        if path.startswith("sbpair/") and path.endswith(".py") and path != "sbpair/__init__.py"
    }


def chosen(paths: Iterable[str]) -> list[str]:
    """The tests to run, without those within a folder that runs whole, and without what no longer exists."""
    paths = list(paths)
    wanted = {*ALWAYS, *users(paths)}.union(*map(tests_of, paths))
    if modules(paths):
        wanted |= {*OF_THE_API}
    return sorted(
        name for name in wanted if (TESTS / name).exists() and wanted.isdisjoint(map(str, Path(name).parents))
    )


def of_command(path: str) -> set[str]:
    """The test files, below tests/, of the command that a module belongs to: those with its name in theirs.

    They start the command as a process or by its name, and import nothing of it.
    """
    match Path(path).parts:
        case ("sbpair", part, "cli", name, *_):
            word = Path(name).stem
            if word in OF_COMMANDS:
                return {OF_COMMANDS[word]}
            files = (TESTS / part / "cli").glob("test_*.py")
            return {f"{part}/cli/{file.name}" for file in files if f"_{word}_" in f"_{file.stem}_"}
    return set()


def imported(test: Path) -> set[str]:
    """The modules, and the names within modules, that a file imports, wherever in it."""
    found = set[str]()
    for node in ast.walk(ast.parse(test.read_text("utf-8"))):
        match node:
            case ast.Import(names=names):
                found |= {alias.name for alias in names}
            case ast.ImportFrom(module=str(module), names=names, level=0):
                found |= {module} | {f"{module}.{alias.name}" for alias in names}
    return found


def nearest(paths: Iterable[str]) -> list[str]:
    """The tests of --fast: see above."""
    paths = list(paths)
    own = {name for path in paths if path.startswith("sbpair/") for name in tests_of(path)}
    files = [
        file.relative_to(TESTS).as_posix()
        for name in sorted(own)
        for file in sorted((TESTS / name).rglob("test_*.py"))
    ]
    near_to = modules(paths)
    near = {name for name in files if near_to & imported(TESTS / name)}
    changed = {name for path in paths for name in tests_of(path) if name.endswith(".py")}
    wanted = near.union(changed, ALWAYS, *map(of_command, paths))
    if modules(paths) and DOCS not in wanted:
        wanted.add(BLOCKS)
    return sorted(name for name in wanted if (TESTS / name.partition("::")[0]).exists())


def loop(part: str) -> list[str]:
    """The tests of --part: see above."""
    files = (TESTS.glob(pattern) for pattern in PARTS[part].loop)
    return sorted({*ALWAYS, *(file.relative_to(TESTS).as_posix() for each in files for file in each)})


def of_part(part: str, names: Iterable[str]) -> Iterator[str]:
    """What --part leaves out, for people."""
    rooms = (path.parent.relative_to(TESTS) for path in (TESTS / part).rglob("test_*.py"))
    left = sorted(
        {str(room) for room in rooms if {*names}.isdisjoint(map(str, (room, *room.parents)))} - {part}
    )
    left += PARTS[part].long
    if left:
        yield f"{', '.join(left)}: `pytest -n 2 tests/NAME` for what you touched"


def not_run(paths: Iterable[str], names: Iterable[str], *, fast: bool) -> Iterator[str]:
    """What a change asks for and the check leaves out, for people."""
    paths = list(paths)
    for name in names:
        if is_left_out(TESTS / name):
            yield f"{name}, which wants packages that are not here (`pytest` names them)"
    if fast and (others := users(paths)):
        yield f"{', '.join(sorted(others))}, which import what changed"
    if shared := [path for path in paths if re.fullmatch(r"tests/(?!test_)\w+\.py", path)]:
        yield f"all tests, which {', '.join(shared)} is a part of: `pytest -n 6`"


def types(*, has_spark: bool) -> tuple[str, ...]:
    """The command that checks the types."""
    return ("mypy", "--strict", *(() if has_spark else WITHOUT_SPARK), "sbpair")


class Step:
    """One command of the check, started at once: the steps run side by side."""

    def __init__(self, title: str, *command: str, is_shown: bool = False) -> None:
        self._title, self._began, self._is_pytest = title, time.monotonic(), command[0] == "pytest"
        self._is_shown = is_shown
        self._process = subprocess.Popen(
            [sys.executable, "-m", *command],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def passes(self) -> bool:
        """Wait for its end and report it, with its output if it failed or is shown always; pytest's as it comes."""
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            if self._is_pytest:
                output = ""
                for line in lines:
                    sys.stdout.write(line)
                    sys.stdout.flush()
            else:
                output = lines.read()
        self._process.wait()
        allowed = (0, NO_TESTS) if self._is_pytest else (0,)
        passes = self._process.returncode in allowed
        sys.stdout.write(
            f"{self._title:20}{'ok' if passes else 'FAILED':8}{time.monotonic() - self._began:5.1f} s\n"
        )
        if self._is_shown or not passes:
            sys.stdout.write(output)
        sys.stdout.flush()
        return passes


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--since", help="the revision to compare with (origin/main, else main)")
    only = parser.add_mutually_exclusive_group()
    only.add_argument("--fast", action="store_true", help="only the tests nearest to the change")
    only.add_argument("--part", choices=PARTS, help="the loop of one part, whatever changed")
    parser.add_argument("-n", default="2", metavar="WORKERS", help="processes for the tests (2)")
    parser.add_argument("--list", action="store_true", help="print the tests it would run, and run nothing")
    asked = parser.parse_args()
    paths = changed(asked.since or upstream())
    names = loop(asked.part) if asked.part else nearest(paths) if asked.fast else chosen(paths)
    tests = [f"tests/{name}" for name in names if not is_left_out(TESTS / name)]
    if asked.list:
        sys.stdout.write("\n".join(tests) + "\n")
        return 0
    steps = [
        Step("format", "ruff", "format", "--check", "-q", "."),
        Step("lint", "ruff", "check", "-q", "."),
        Step("types", *types(has_spark=importlib.util.find_spec("pyspark") is not None)),
        Step(
            f"tests ({len(tests)} places)",
            "pytest",
            "-q",
            "-n",
            asked.n,
            *(() if asked.fast or asked.part else slow_too()),
            *(f"--ignore=tests/{name}" for name in (PARTS[asked.part].long if asked.part else ())),
            *tests,
        ),
    ]
    if not (asked.fast or asked.part):
        steps.append(Step("house", "tests.tools.house", is_shown=True))
    passed = [step.passes() for step in steps]
    left_out = of_part(asked.part, names) if asked.part else not_run(paths, names, fast=asked.fast)
    sys.stdout.writelines(f"not run: {line}\n" for line in left_out)
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
