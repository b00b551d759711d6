"""The parts that all benchmarks share: rounds from the command line, and one JSON line per figure."""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import sys
from collections.abc import Sequence


def settings(description: str | None, default: int) -> argparse.Namespace:
    """``rounds`` (``--rounds N``), and ``quick`` (``--quick``): one small round, does it still run?"""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=default, help="default %(default)s")
    parser.add_argument("--quick", action="store_true", help="one small round: to see that it runs")
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, _end)
    if asked.quick:
        asked.rounds = 1
    return asked


def _end(number: int, _: object) -> None:
    """An exception, so that what was opened is closed: other brokers outlive this process otherwise."""
    sys.exit(128 + number)


def rounds(description: str | None, default: int) -> int:
    """The rounds alone, where a quick one is no smaller."""
    return int(settings(description, default).rounds)


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which that share of the values lies."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def figure(name: str, unit: str, values: Sequence[float], digits: int = 2, **more: object) -> None:
    """Print one figure: its name, unit, number of rounds, median, range and 95th percentile.

    What is ``more`` says which of several it is (a peer, a number of waiting messages).
    """
    line = {
        "name": name,
        "unit": unit,
        "n": len(values),
        "median": round(statistics.median(values), digits),
        "p95": round(percentile(values, 0.95), digits),
        "least": round(min(values), digits),
        "most": round(max(values), digits),
        **more,
    }
    print(json.dumps(line), flush=True)


def ratio(name: str, ours: Sequence[float], theirs: Sequence[float], **more: object) -> None:
    """Print one figure: how many times theirs ours is, round by round, for both had the same weather."""
    figure(name, "ratio", [our / their for our, their in zip(ours, theirs, strict=True)], 3, **more)
