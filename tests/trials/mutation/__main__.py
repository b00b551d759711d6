"""Mutation testing, room by room: `python -m tests.trials.mutation pairing --sample 300`.

mutmut changes one thing in one function and runs the room's tests that reach it; a mutant that no test
notices survives. A room has thousands of mutants, so a run takes a random sample of them, chosen by a seed,
unless `--all` is given. The command prints one line of JSON for each room, with the survivors as differences,
and exits with 1 when fewer than 85 of 100 mutants are noticed (R-66).

Of the tests that reach a function the quickest are run, as many as take `--seconds` together: the score is
then at most too low. A test that hangs with a mutant fails after half a minute, so that every run ends; mutants that
hang mostly wait, so `-n` may be twice the number of cores. To find out which test reaches what takes a run of all of
them, so `--keep DIR` keeps that for the next command, which does it only for tests that are new. `--again FILE` tries
what survived in an earlier command, whose output is in that file.

mutmut runs a mutant in a process that has imported everything already. What runs on import (a table of readers)
is not mutated then, and a mutant that breaks the data of a test module ends its process before any test. Such a
mutant is run once more, in a process of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.trials.mutation.equivalents import difference, equivalents

ROOT = Path(__file__).resolve().parent.parent.parent.parent
AIM = 0.85
_NUMBER = re.compile(r"__mutmut_\d+$")
BRAILLE = re.compile("\\s*[\u2800-\u28ff]")
SURVIVED, FAILED, UNREACHED, TIMED_OUT = (
    0,
    1,
    33,
    36,
)  # exit codes of mutmut; 33: no test reaches the function
CRASHED = 255  # the process of the mutant ended before its tests
LIMIT = 10  # seconds for each second that the tests take without a mutant, and for the start
HANGS = 30  # seconds after which a test fails; the quickest are run, which take far less


@dataclass(frozen=True, slots=True)
class Room:
    """What is mutated, and which tests should notice; ``left_out`` are files of tests, or single tests.

    mutmut adds a method for each mutant, so a test that walks the names of a class fails without any mutant;
    and it counts the calls of each function, so a test that measures time may.
    """

    sources: tuple[str, ...]
    tests: tuple[str, ...]
    left_out: tuple[str, ...] = ()


ROOMS = {
    "pairing": Room(
        ("sbpair/pair/pairing/*", "sbpair/pair/envelope/*", "sbpair/pair/auth/*"),
        (
            "tests/pair/pairing",
            "tests/pair/envelope",
            "tests/pair/auth",
            *(
                f"tests/pair/outage/test_{each}.py"
                for each in (
                    "failover",
                    "aio_failover",
                    "drop_in",
                    "backlogs",
                    "policy",
                    "close_and_fault",
                    "spool",
                    "schedule",
                    "input",
                    "reused_message",
                    "time_to_live",
                    "retries",
                    "failure_classes",
                    "credentials",
                    "cancelled_send",
                    "topics",
                    "order",
                )
            ),
            "tests/pair/tracing",
        ),
        (
            "tests/pair/pairing/test_surface.py",
            "tests/pair/outage/test_input.py::"
            "test_the_backlog_link_is_open_before_the_first_message_needs_it",
        ),
    ),
    "syphon": Room(
        ("sbpair/pair/syphon/*", "sbpair/pair/client/*", "sbpair/pair/envelope/*"),
        ("tests/pair/syphon", "tests/pair/client", "tests/pair/envelope"),
        (  # thousands of messages: minutes while the calls of each function are counted
            "tests/pair/syphon/test_stuck.py",
            "tests/pair/syphon/test_many_destinations.py",
            "tests/pair/syphon/test_large.py",
        ),
    ),
    "store": Room(("sbpair/broker/store/*",), ("tests/broker/store",)),
    "amqp": Room(
        ("sbpair/pair/amqp/*",),
        ("tests/pair/amqp",),
        (
            "tests/pair/amqp/test_fuzz.py",
            "tests/pair/amqp/test_hostile_input.py::test_a_hostile_stream_costs_little",
            "tests/pair/amqp/test_hostile_input.py::test_a_frame_arriving_byte_by_byte_is_not_copied_repeatedly",
            "tests/pair/amqp/test_message.py::test_a_hundred_thousand_data_sections_split_in_linear_time",
            "tests/pair/amqp/test_rhea.py",
            "tests/pair/amqp/test_limits.py::test_useless_disposition_ranges_end_the_session_early",
        ),
    ),
}


def main(words: list[str] | None = None, rooms: Mapping[str, Room] = ROOMS, source: Path = ROOT) -> int:
    """Run the command with these words (default: the process's) on the working tree in ``source``."""
    asked = _arguments(words, rooms)
    with TemporaryDirectory(prefix="mutation-") as scratch:
        trees = (asked.keep or Path(scratch)).absolute()
        scores = [_run(name, rooms[name], asked, source, trees / name) for name in asked.rooms]
    return 0 if all(score >= AIM for score in scores) else 1


def _arguments(words: list[str] | None, rooms: Mapping[str, Room]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.trials.mutation", description=__doc__)
    parser.add_argument("rooms", nargs="+", choices=sorted(rooms), help="the rooms to mutate")
    parser.add_argument("--sample", type=int, default=300, help="mutants of each room (default 300)")
    parser.add_argument("--all", action="store_true", help="every mutant: hours")
    parser.add_argument("--seed", type=int, default=1, help="chooses the sample (default 1)")
    parser.add_argument("--only", default="", help="mutants whose name contains this text, such as spool")
    parser.add_argument("--again", type=Path, metavar="FILE", help="the survivors that this output names")
    parser.add_argument(
        "--keep", type=Path, metavar="DIR", help="where the mutants stay for the next command"
    )
    parser.add_argument("--seconds", type=float, default=20.0, help="of tests for a mutant (default 20)")
    parser.add_argument("-n", type=int, default=os.cpu_count() or 1, help="processes (default: the cores)")
    return parser.parse_args(words)


def _run(name: str, room: Room, asked: argparse.Namespace, source: Path, tree: Path) -> float:
    """Mutate one room in a copy of the working tree; its score, from 0 to 1."""
    _copy(source, tree)
    _configure(tree, room)
    _find_mutants(tree, asked.n, asked.seconds)
    known = sorted(mutant for mutant in _different(tree) if asked.only in mutant)
    if asked.again is not None:
        known = sorted(_survivors_of(asked.again) & set(known))
    if not known or not (tree / "reached.json").exists():
        raise SystemExit(f"{name}: no mutants, or the tests fail without any:\n{_log(tree)[-3000:]}")
    chosen = known if asked.all else random.Random(asked.seed).sample(known, min(asked.sample, len(known)))
    _mutmut(tree, "run", "--max-children", str(asked.n), *chosen, limit=HANGS)
    verdicts = _verdicts(tree)
    on_import = _called_on_import(tree)
    doubtful = [
        mutant
        for mutant in chosen
        if verdicts[mutant] == CRASHED or (verdicts[mutant] == SURVIVED and _function(mutant) in on_import)
    ]
    verdicts |= _alone(tree, doubtful)
    unchecked = [mutant for mutant in chosen if verdicts[mutant] is None]
    if unchecked:
        raise SystemExit(f"{name}: {len(unchecked)} mutants were not tried:\n{_log(tree)[-3000:]}")
    survived = [mutant for mutant in chosen if verdicts[mutant] == SURVIVED]
    unreached = [mutant for mutant in chosen if verdicts[mutant] == UNREACHED]
    score = 1 - (len(survived) + len(unreached)) / len(chosen)
    told = {
        "room": name,
        "mutants": len(known),
        "tried": len(chosen),
        "killed": round(score, 3),
        "survived": {mutant: _difference(tree, mutant) for mutant in survived},
        "no test reaches": {mutant: _difference(tree, mutant) for mutant in unreached},
    }
    print(json.dumps(told, ensure_ascii=False), flush=True)
    return score


def _find_mutants(tree: Path, processes: int, seconds: float) -> None:
    """Write all mutants, and find out which tests reach which function; the slowest of them are left out."""
    found, whole = tree / "mutants" / "mutmut-stats.json", tree / "reached.json"
    if whole.exists():  # by an earlier command: with the tests that were left out
        shutil.copy2(whole, found)
    _mutmut(
        tree, "run", "--max-children", str(processes), "nothing"
    )  # it tries no mutant: none has this name
    if found.exists():
        shutil.copy2(found, whole)
        reached = json.loads(found.read_text())
        durations = reached["duration_by_test"]
        table = reached["tests_by_mangled_function_name"]
        first = list(durations)[:1]  # what is called when modules are imported counts as called by this test
        for function, tests in table.items():
            table[function] = _quickest(list(durations) if tests == first else tests, durations, seconds)
        found.write_text(json.dumps(reached))


def _called_on_import(tree: Path) -> set[str]:
    """The functions that run when modules are imported: mutmut counts them as called by the first test."""
    reached = json.loads((tree / "reached.json").read_text())
    first = next(iter(reached["duration_by_test"]), None)
    return {name for name, tests in reached["tests_by_mangled_function_name"].items() if first in tests}


def _function(mutant: str) -> str:
    return _NUMBER.sub("", mutant)


def _alone(tree: Path, mutants: list[str]) -> dict[str, int]:
    """Run each mutant in a process of its own, so that it is there when modules are imported."""
    if not mutants:
        return {}
    reached = json.loads((tree / "mutants" / "mutmut-stats.json").read_text())
    verdicts = {}
    for mutant in mutants:
        tests = reached["tests_by_mangled_function_name"][_function(mutant)]
        seconds = sum(reached["duration_by_test"][test] for test in tests)
        verdicts[mutant] = _pytest(tree, mutant, tests, LIMIT * (HANGS + seconds))
        if verdicts[mutant] not in (SURVIVED, FAILED, TIMED_OUT):  # the mutant broke what the tests import,
            if _pytest(
                tree, "", ["--collect-only", *tests], LIMIT * (HANGS + seconds)
            ):  # or the fault is ours
                raise SystemExit(f"the tests of {mutant} cannot be collected: see {tree / 'alone.log'}")
            verdicts[mutant] = FAILED
    return verdicts


def _pytest(tree: Path, mutant: str, words: list[str], limit: float) -> int:
    command = [sys.executable, "-m", "pytest", "--rootdir=.", "-x", "-q", "-p", "no:cacheprovider", *words]
    command += [f"--timeout={HANGS}"]
    environment = {**os.environ, "MUTANT_UNDER_TEST": mutant}
    with (tree / "alone.log").open("a") as log:
        print(mutant, file=log, flush=True)
        try:
            return subprocess.run(
                command,
                cwd=tree / "mutants",
                env=environment,
                stdout=log,
                stderr=log,
                timeout=limit,
                check=False,
            ).returncode
        except subprocess.TimeoutExpired:
            return TIMED_OUT


def _quickest(tests: list[str], durations: Mapping[str, float], seconds: float) -> list[str]:
    """The tests that take so long together, quickest first; at least one, if there is any."""
    ordered = sorted(tests, key=lambda test: durations[test])
    totals = accumulate(durations[test] for test in ordered)
    return [test for test, total in zip(ordered, totals, strict=True) if total <= seconds] or ordered[:1]


def _survivors_of(output: Path) -> set[str]:
    rooms = [json.loads(line) for line in output.read_text().splitlines() if line.startswith("{")]
    return {mutant for told in rooms for kind in ("survived", "no test reaches") for mutant in told[kind]}


def _copy(source: Path, tree: Path) -> None:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=source,
        capture_output=True,
        check=True,
    )
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (source / name).is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source / name, tree / name)


def _configure(tree: Path, room: Room) -> None:
    options = {
        "source_paths": sorted({each.partition("/")[0] for each in room.sources}),
        "debug": True,  # the log names a test that fails without any mutant
        "only_mutate": list(room.sources),
        "also_copy": ["docs", "samples", "README.md"],
        "pytest_add_cli_args_test_selection": list(room.tests),
        "pytest_add_cli_args": ["-p", "no:cacheprovider", *map(_leaving_out, room.left_out)],
        "timeout_constant": HANGS,  # on a busy machine a process needs seconds to start: by mutmut's own limit
        "timeout_multiplier": LIMIT,  # such a mutant would be taken for noticed
        "process_isolation": "forkserver",  # some tests leave threads behind that do not survive a fork
    }
    lines = [f"{key} = {json.dumps(value)}" for key, value in options.items()]
    with (tree / "pyproject.toml").open("a") as file:
        file.write("\n".join(["", "[tool.mutmut]", *lines, ""]))


def _leaving_out(tests: str) -> str:
    return f"--deselect={tests}" if "::" in tests else f"--ignore={tests}"


def _mutmut(tree: Path, *words: str, limit: float | None = None) -> None:
    """Run mutmut, each test for ``limit`` seconds; what it prints goes to a log, since its verdicts are in files."""
    more = {} if limit is None else {"PYTEST_ADDOPTS": f"--timeout={limit}"}
    with (tree / "mutmut.log").open("a") as log:
        print(f"mutmut {words[0]}: {len(words)} words", file=sys.stderr, flush=True)
        command = [sys.executable, "-c", "from mutmut.__main__ import cli; cli()", *words]
        environment = {**os.environ, **more}
        subprocess.run(command, cwd=tree, env=environment, stdout=log, stderr=subprocess.STDOUT, check=False)


def _verdicts(tree: Path) -> dict[str, int | None]:
    found: dict[str, int | None] = {}
    for meta in (tree / "mutants").rglob("*.meta"):
        found.update(json.loads(meta.read_text())["exit_code_by_key"])
    return found


def _different(tree: Path) -> Iterator[str]:
    """All mutants but those that are the same program."""
    for meta in (tree / "mutants").rglob("*.meta"):
        same = set(equivalents(meta.with_suffix("")))
        for mutant in json.loads(meta.read_text())["exit_code_by_key"]:
            if mutant.rpartition(".")[2] not in same:
                yield mutant


def _difference(tree: Path, mutant: str) -> list[str]:
    *home, name = mutant.split(".")
    module = (tree / "mutants").joinpath(*home).with_suffix(".py")
    return difference(module if module.exists() else module.with_suffix("") / "__init__.py", name)


def _log(tree: Path) -> str:
    """What mutmut printed, without the frames of its progress display."""
    lines = (tree / "mutmut.log").read_text(errors="replace").splitlines()
    return "\n".join(line for line in lines if line.strip() and not BRAILLE.match(line))


if __name__ == "__main__":
    raise SystemExit(main())
