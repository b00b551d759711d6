"""The regression guard: key figures of this tree over those of a reference, in the same minutes on the same machine.

    python -m tests.trials.bench.guard [--against REVISION] [--only NAME ...] [--out FILE]

The reference is the newest release tag, and without one the commit :data:`REFERENCE`; its sources come from git's
history. Both trees run the workloads of workloads.py in a process of their own, in turn, in short rounds. What counts
is the ratio of processor time in neighbouring rounds: load on the machine meets both alike. A median below 0.75 is
looked at for longer, and fails if it stays there. Waiting takes no processor time, and is not seen.

Exit code 1 when a figure fell by a quarter, 3 when this clone does not have the reference.
"""

from __future__ import annotations

import argparse
import io
import json
import statistics
import subprocess
import sys
import tarfile
import tempfile
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.tools.archives import unpack
from tests.trials.bench.machine import machine
from tests.trials.bench.workloads import WORKLOADS

ROOT = Path(__file__).resolve().parents[3]
REFERENCE = "75d54a2"  # until there is a release
NAMES = tuple(WORKLOADS)
LEAST = 0.75  # of the reference's speed
ROUNDS, MORE_ROUNDS = 11, 30
WITHIN = 120.0  # seconds, a round
NO_REFERENCE = 3
# The package of the first directory, the workloads of the second, whatever is installed.
START = "import sys; sys.path[:0] = sys.argv[1:]; from tests.trials.bench import workloads; workloads.main()"


class MissingReferenceError(Exception):
    """The sources to compare with are not in this clone."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """A figure's ratios, one a round: the speed of this tree over that of the reference."""

    name: str
    ratios: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.ratios)

    @property
    def fell(self) -> bool:
        """Whether at least a quarter of the speed is gone."""
        return self.median < LEAST

    def __str__(self) -> str:
        low, _, high = statistics.quantiles(self.ratios, n=4)
        verdict = "fell by a quarter or more" if self.fell else "holds"
        rounds = len(self.ratios)
        return f"{self.name:<14} {self.median:>6.3f}  {low:.3f} to {high:.3f}  {rounds:>3} rounds  {verdict}"


class Tree:
    """A process that runs the workloads with the package `sbpair` of a directory."""

    def __init__(self, directory: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", START, str(directory), str(ROOT)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=directory,
        )
        self._directory = directory

    def seconds(self, name: str) -> float:
        """The processor time of one round. Raises RuntimeError when the workload fails, or takes two minutes."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        patience = threading.Timer(WITHIN, self._process.kill)
        patience.start()
        try:
            stdin.write(f"{name}\n")
            stdin.flush()
            line = stdout.readline()
        finally:
            patience.cancel()
        answer = json.loads(line) if line else {"error": "the process ended"}
        if "error" in answer:
            raise RuntimeError(f"{name} with the sources in {self._directory}: {answer['error']}")
        return float(answer["seconds"])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._process.kill()
        self._process.communicate()  # closes its input, at which it ends


def compare(reference: Path, present: Path, names: Sequence[str] = NAMES) -> list[Comparison]:
    """Measure each figure with the packages of both directories.

    Raises RuntimeError when a workload fails.
    """
    with ExitStack() as running:
        trees = [running.enter_context(Tree(each)) for each in (reference, present)]
        ratios: dict[str, list[float]] = {name: [] for name in names}
        for number in range(ROUNDS):
            for name in names:
                ratios[name].append(one_ratio(trees, name, number))
        found = [Comparison(name, tuple(each)) for name, each in ratios.items()]
        return [look_longer(trees, each) if each.fell else each for each in found]


def one_ratio(trees: Sequence[Tree], name: str, number: int) -> float:
    """One round of both, in turn the first."""
    order = (0, 1) if number % 2 else (1, 0)
    seconds = {index: trees[index].seconds(name) for index in order}
    return seconds[0] / seconds[1]


def look_longer(trees: Sequence[Tree], first: Comparison) -> Comparison:
    """The same comparison with more rounds, those it has included."""
    more = (one_ratio(trees, first.name, number) for number in range(MORE_ROUNDS))
    return Comparison(first.name, (*first.ratios, *more))


def reference_revision() -> str:
    """The newest release tag, else :data:`REFERENCE`. Raises MissingReferenceError."""
    tags = _git("tag", "--list", "v[0-9]*", "--sort=-version:refname").decode().split()
    return tags[0] if tags else REFERENCE


def sources_of(revision: str, directory: Path) -> Path:
    """Write the package of a revision below `directory`. Raises MissingReferenceError."""
    packed = _git("archive", revision, "sbpair")
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        unpack(archive, directory)
    return directory


def _git(*arguments: str) -> bytes:
    done = subprocess.run(("git", *arguments), cwd=ROOT, capture_output=True, check=False)
    if done.returncode:
        raise MissingReferenceError(
            f"git {' '.join(arguments)}: {done.stderr.decode().strip()}. The guard needs the history of the "
            "sources: in a shallow clone run git fetch --unshallow, or give another revision with --against"
        )
    return done.stdout


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--against", metavar="REVISION", help="instead of the newest release")
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=NAMES, default=NAMES)
    parser.add_argument("--out", type=Path, metavar="FILE", help="store the ratios as JSON")
    asked = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="sbpair-guard-") as directory:
        try:
            revision = asked.against or reference_revision()
            reference = sources_of(revision, Path(directory))
        except MissingReferenceError as error:
            print(error, file=sys.stderr)
            return NO_REFERENCE
        found = compare(reference, ROOT, asked.only)
    print(f"speed of this tree over that of {revision}: median, half of the rounds", *found, sep="\n")
    if asked.out is not None:
        stored = {"machine": machine(), "against": revision, "figures": [asdict(each) for each in found]}
        asked.out.write_text(json.dumps(stored, indent=1) + "\n")
    return int(any(each.fell for each in found))


if __name__ == "__main__":
    sys.exit(main())
