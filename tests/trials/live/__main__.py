"""The SDK's own live tests, as published, against the broker: `python -m tests.trials.live`.

    sdist (fetched) -> pytest -p plugin: many workers that mostly wait, each with a broker -> table, exit code

Exit code 1 when a test fails that is not in known.txt, when one of known.txt passes, or when fewer than
95 of 100 pass.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import certifi

from sbpair.broker.certificates import provide

from .plugin import FIRST, PAIRED, RESULTS, TLS, WORKERS
from .report import Note, Verdict, classify
from .sdist import tests_directory

HERE = Path(__file__).parent
ROOT = HERE.parent.parent.parent
AT_ONCE = 32
TEST_WITHIN = 900  # seconds: the longest of them sleeps for minutes
SECONDS = HERE / "seconds.txt"
FILES = ("queues", "sessions", "topic", "subscriptions", "list_sessions", "sb_client", "message")
SKIPPED_FOLDERS = ("unittests", "perf_tests")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run, print, and say by the exit code whether it is as it should be."""
    asked = _parser().parse_args(arguments)
    started = time.monotonic()
    source = tests_directory()
    with tempfile.TemporaryDirectory(prefix="sbpair-live-") as scratch:
        results = _run(source, Path(scratch), asked)
    notes = [Note.of(json.loads(line)) for line in results]
    verdict = classify(notes, is_paired=asked.paired, is_whole=not (asked.only or asked.within))
    print(verdict.table())
    print(f"{time.monotonic() - started:.0f} s on {asked.n} workers")
    if asked.seconds:
        _keep_seconds(notes)
    return _exit_code(verdict)


def _exit_code(verdict: Verdict) -> int:
    for line in verdict.complaints():
        print(line)
    return 1 if verdict.complaints() else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.trials.live", description=__doc__.split("\n")[0])
    parser.add_argument("--paired", action="store_true", help="the paired client's senders for the SDK's own")
    parser.add_argument("--only", default="", metavar="EXPRESSION", help="as pytest -k")
    parser.add_argument("--within", type=float, metavar="SECONDS", help="those that took no longer than that")
    parser.add_argument("-n", type=int, default=AT_ONCE, metavar="WORKERS")
    parser.add_argument("--keep", type=Path, metavar="FILE", help="what became of each test, JSON lines")
    parser.add_argument("--seconds", action="store_true", help="write seconds.txt anew")
    return parser


def _run(source: Path, scratch: Path, asked: argparse.Namespace) -> list[str]:
    results, first, bundle = scratch / "results", scratch / "first", scratch / "bundle.pem"
    results.touch()
    took = _seconds()
    first.write_text("\n".join(sorted(took, key=lambda test: -took[test])))
    tls = provide((), int(time.time()), scratch / "tls")
    bundle.write_bytes(Path(certifi.where()).read_bytes() + tls.ca_file.read_bytes())
    environment = {
        **os.environ,
        RESULTS: str(results),
        TLS: str(tls.directory),
        FIRST: str(first),
        WORKERS: str(asked.n),
        PAIRED: "1" if asked.paired else "",
        "SSL_CERT_FILE": str(bundle),
        "REQUESTS_CA_BUNDLE": str(bundle),
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
    }
    command = [
        sys.executable,
        "-m",
        "pytest",
        *_chosen(source, took, asked.within),
        *_options(asked, scratch),
    ]
    with (scratch / "log").open("w") as log:
        subprocess.run(command, cwd=source, env=environment, stdout=log, stderr=subprocess.STDOUT)
    lines = results.read_text().splitlines()
    if asked.keep:
        asked.keep.write_text("".join(f"{line}\n" for line in lines))
    if not lines:
        raise SystemExit(f"no test ran:\n{(scratch / 'log').read_text()[-3000:]}")
    return lines


def _options(asked: argparse.Namespace, scratch: Path) -> list[str]:
    return [
        *(
            "-p",
            "tests.trials.live.plugin",
            *_without("cacheprovider", "sbpair", "xdist", "logging"),
        ),
        *("-c", str(HERE / "live.ini"), "--rootdir", ".", "--basetemp", str(scratch / "temp")),
        *("-q", "--capture=sys", "--tb=short", "--show-capture=no", "--timeout", str(TEST_WITHIN)),
        *(("-k", asked.only) if asked.only else ()),
    ]


def _without(*plugins: str) -> list[str]:
    return [word for plugin in plugins for word in ("-p", f"no:{plugin}")]


def _chosen(source: Path, took: dict[str, float], within: float | None) -> list[str]:
    if within is not None:
        return [test for test, seconds in took.items() if seconds <= within]
    found = [str(path.relative_to(source)) for path in sorted(source.rglob("test_*.py"))]
    mine = (
        "mgmt_tests",
        *(f"test_{name}.py" for name in FILES),
        *(f"async_tests/test_{name}_async.py" for name in FILES),
    )
    return [path for path in found if path.startswith(mine) or path in mine]


def _seconds() -> dict[str, float]:
    if not SECONDS.exists():
        return {}
    lines = (line.split(maxsplit=1) for line in SECONDS.read_text().splitlines() if line[:1] != "#")
    return {test: float(seconds) for seconds, test in lines}


def _keep_seconds(notes: Sequence[Note]) -> None:
    passed = sorted((note for note in notes if note.outcome == "passed"), key=lambda note: note.test)
    lines = [f"{note.seconds:.1f} {note.test}" for note in passed]
    SECONDS.write_text("# what each test took, in seconds: written by --seconds, read by --within\n")
    SECONDS.write_text(SECONDS.read_text() + "\n".join(lines) + "\n")


if __name__ == "__main__":
    raise SystemExit(main())
