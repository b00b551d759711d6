"""What every benchmark shares: its rounds from the command line, and one JSON line a figure."""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Sequence


def rounds(description: str | None, default: int) -> int:
    """``--rounds N``, and ``--quick`` for one round: does it still run?"""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=default, help="default %(default)s")
    parser.add_argument("--quick", action="store_true", help="one round only: to see that it runs")
    settings = parser.parse_args()
    return 1 if settings.quick else int(settings.rounds)


def percentile(values: Sequence[float], share: float) -> float:
    """The value below which that share of the values lies."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def figure(name: str, unit: str, values: Sequence[float], digits: int = 2, **more: object) -> None:
    """Print one figure: its name, unit, number of rounds, median and 95th percentile."""
    line = {
        "name": name,
        "unit": unit,
        "n": len(values),
        "median": round(statistics.median(values), digits),
        "p95": round(percentile(values, 0.95), digits),
        **more,
    }
    print(json.dumps(line), flush=True)
