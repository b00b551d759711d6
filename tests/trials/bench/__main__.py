"""Runs every benchmark, one after the other, and prints each aim with its figure.

    python -m tests.trials.bench [--rounds N] [--quick] [--only NAME ...] [--peers DIR] [--out FILE | --again FILE]
    python -m tests.trials.bench --docs [FILE]    write docs/evidence/performance.md and its plots from a stored run

``--out`` stores the run as JSON. ``--again`` replaces the run in a file by a new one and keeps the former figures
as those of the earlier run; with ``--only``, it replaces the figures of these benchmarks alone.
``--docs`` reads docs/evidence/performance.json by default.
A peer that is not installed (``python -m tests.trials.bench.install_peers``) is skipped with a notice.
Exit code 1 when a benchmark fails, never for a missed aim.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.trials.bench.aims import AIMS, Figure
from tests.trials.bench.machine import machine
from tests.trials.bench.peers import PEERS, directory

HERE = Path(__file__).parent
STORED = HERE.parents[2] / "docs" / "evidence" / "performance.json"
ARGUMENTS = {"bench_audit": ("--events", "1000000")}  # its own default takes most of an hour's quarter
WITHIN = 1200  # seconds, each
ASKED_FOR = ("audit", "spark")  # they take minutes, and have a page of their own


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--rounds", type=int, help="rounds of each; each has a default of its own, 5 at least"
    )
    parser.add_argument(
        "--quick", action="store_true", help="one small round, two benchmarks at once: to see that all run"
    )
    parser.add_argument(
        "--only",
        nargs="+",
        metavar="NAME",
        help=f"these only; a run without it leaves out {' and '.join(ASKED_FOR)}",
    )
    parser.add_argument(
        "--peers", type=Path, metavar="DIR", help="where install_peers put the other brokers; default %(default)s",
        default=directory(),
    )  # fmt: skip
    to = parser.add_mutually_exclusive_group()
    to.add_argument("--out", type=Path, metavar="FILE", help="store the figures as JSON")
    to.add_argument("--again", type=Path, metavar="FILE", help="store them in place of those in this file")
    parser.add_argument("--docs", nargs="?", type=Path, const=STORED, metavar="FILE", help="write the page")
    asked = parser.parse_args()
    os.environ[PEERS] = str(asked.peers)
    if asked.docs is not None:
        from tests.trials.bench.page import write  # late: it draws

        write(json.loads(asked.docs.read_text()))
        return 0
    names = [path.stem.removeprefix("bench_") for path in sorted(HERE.glob("bench_*.py"))]
    if unknown := set(asked.only or ()) - set(names):
        parser.error(f"no such benchmark: {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    by_default = names if asked.quick else [name for name in names if name not in ASKED_FOR]
    return run([name for name in names if name in (asked.only or by_default)], asked)


def run(names: Sequence[str], asked: argparse.Namespace) -> int:
    begun, run_on = time.time(), machine()
    figures: list[Figure] = []
    failed = []
    with ThreadPoolExecutor(2 if asked.quick else 1) as at_once:
        for name, (found, code) in zip(
            names, at_once.map(lambda name: one(f"bench_{name}", asked), names), strict=True
        ):
            figures += found
            if code:
                failed.append(f"{name} ended with exit code {code}")
    stored: dict[str, Any] = {
        "machine": run_on,
        "quick": asked.quick,
        "load_after": round(os.getloadavg()[0], 1),
        "seconds": round(time.time() - begun),
        "figures": figures,
    }
    if asked.out is not None:
        asked.out.write_text(json.dumps(stored, indent=1) + "\n")
    if asked.again is not None:
        former = json.loads(asked.again.read_text())
        if asked.only:
            merged = with_parts(former, stored, names)
        else:
            former.pop("earlier", None)
            merged = {**stored, "earlier": former}
        asked.again.write_text(json.dumps(merged, indent=1) + "\n")
    print("\n".join(table(figures)))
    print(f"{stored['seconds']} s", *failed, sep="\n")
    return 1 if failed else 0


def with_parts(former: dict[str, Any], stored: dict[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """The former run with the figures of these benchmarks replaced, and a note of when they were measured."""
    modules = {f"bench_{name}" for name in names}
    kept = [figure for figure in former["figures"] if figure["by"] not in modules]
    at = {key: stored["machine"][key] for key in ("at", "commit", "load_before")}
    return {
        **former,
        "figures": kept + stored["figures"],
        "measured_again": former.get("measured_again", {}) | dict.fromkeys(names, at),
    }


def one(module: str, asked: argparse.Namespace) -> tuple[list[Figure], int]:
    """The figures of one benchmark, shown as they come, and its exit code."""
    begun = time.monotonic()
    print(f"== {module}", flush=True)
    command = [sys.executable, "-m", f"tests.trials.bench.{module}", *ARGUMENTS.get(module, ())]
    command += ["--quick"] if asked.quick else []
    command += ["--rounds", str(asked.rounds)] if asked.rounds else []
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    patience = (
        threading.Timer(WITHIN, process.terminate),  # it ends what it started
        threading.Timer(WITHIN + 60, process.kill),
    )
    for timer in patience:
        timer.start()
    figures: list[Figure] = []
    for line in process.stdout:
        print(line, end="", flush=True)
        if line.startswith('{"name"'):
            figures.append({**json.loads(line), "by": module})
    code = process.wait()
    for timer in patience:
        timer.cancel()
    print(f"== {module} took {time.monotonic() - begun:.0f} s", flush=True)
    return figures, code


def table(figures: Sequence[Figure]) -> list[str]:
    """One line an aim: whether it holds, the bound, what was measured."""
    lines = ["", f"{'aim':<92} {'bound':>10} {'median':>12}  holds"]
    for aim in AIMS:
        found = aim.figure.find(figures)
        bound = f"{aim.sign} {aim.bound:g}"
        if found is None:
            lines.append(f"{aim.what:<92} {bound:>10} {'not measured':>12}")
            continue
        value = float(str(found["median"]))
        holds = "yes" if aim.holds(value) else "no"
        lines.append(f"{aim.what:<92} {bound:>10} {value:>12,.6g}  {holds}")
        if holds == "no" and (reason := aim.because(figures)):
            lines.append(f"    {reason}")
    return lines


if __name__ == "__main__":
    sys.exit(main())
