"""Tests that want more than the extra `test`: they are left out, and named, where their package is not installed.

`python -m tests.needs` prints them; CI runs them where everything is installed, with SBPAIR_REQUIRE_PEERS, under which
a missing package is an error.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True, slots=True)
class Need:
    """A package, what installs it, the tests below tests/ that want it, and those of which some do (`wanting`)."""

    package: str
    line: str
    paths: tuple[str, ...]
    partly: tuple[str, ...] = ()


NEEDS = (
    Need("mypy", "--group lint", ("typing",)),
    Need("kubernetes_validate", "--group pipeline", ("deploy/test_kubernetes.py",)),
    Need(
        "pyarrow",
        "'.[test,audit]' --group pipeline",
        (
            "data/audit",
            "data/cli",
            "contract/cli/test_demo.py",
            "test_expressions.py",
            "test_readme.py",
            "trials/test_daily.py",
            "trials/test_tampering.py",
        ),
    ),
    Need(
        "pyspark",
        "'.[test,spark,connect,jdk]' --group pipeline",
        (
            "data/spark",
            "test_help.py",
            "trials/soak/test_soak.py",
            "trials/test_spark_cluster.py",
            "trials/test_spark_kills.py",
        ),
        partly=("test_docs.py",),
    ),
    Need("deltalake", "--group pipeline", ("data/spark/test_lakehouse.py",)),
    Need("pyiceberg", "'.[test,audit]' --group pipeline", ("data/audit/test_lakehouse.py",)),
)


@cache
def missing() -> tuple[Need, ...]:
    """The needs that this environment does not meet."""
    return tuple(need for need in NEEDS if importlib.util.find_spec(need.package) is None)


def is_left_out(path: Path) -> bool:
    """Whether a file or folder of tests wants a package that is not here."""
    return not _paths(missing()).isdisjoint((path, *path.parents))


@cache
def _paths(needs: tuple[Need, ...]) -> frozenset[Path]:
    return frozenset(ROOT / "tests" / name for need in needs for name in need.paths)


def wanting(package: str) -> pytest.MarkDecorator:
    """The mark of a test that wants a package, in a file of which the others do not."""
    is_missing = any(need.package == package for need in missing())
    return pytest.mark.skipif(is_missing, reason=f"{package} is not installed")


def lines() -> Iterator[str]:
    """What is left out here, for people."""
    for need in missing():
        yield f"left out, for want of {need.package}: {', '.join(need.paths)} (pip install {need.line})"


def check() -> None:
    """Raise UsageError where nothing may be left out, and something would be."""
    if os.environ.get("SBPAIR_REQUIRE_PEERS") and missing():
        raise pytest.UsageError("\n".join(lines()))


def main() -> None:
    sys.stdout.writelines(f"tests/{name}\n" for need in NEEDS for name in (*need.paths, *need.partly))


if __name__ == "__main__":
    main()
