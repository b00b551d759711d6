"""What a team would write, beside sbpair, through the same incidents: ``python -m tests.trials.alternatives``.

    python -m tests.trials.alternatives [--only CONTESTANT ...] [--scenarios NAME ...] [--slots 6]
                                        [--into docs/evidence/alternatives.json]
    python -m tests.tools.generate_docs

Runs mostly wait, so several go at once: all of them take about forty minutes in six slots. Each shows its figures.
"""

from __future__ import annotations

import argparse
import json
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.trials.grey.page import machine

from .play import play
from .scenarios import CONTESTANTS, PAIRED, SCENARIOS


def _played(run: tuple[str, str, bool]) -> dict[str, Any]:
    contestant, name, is_asyncio = run
    figures = play(contestant, SCENARIOS[name], is_asyncio=is_asyncio)
    print(json.dumps(figures), file=sys.stderr, flush=True)
    return figures


def _key(run: dict[str, Any]) -> tuple[str, bool, str]:
    return run["contestant"], run["asyncio"], run["scenario"]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=CONTESTANTS, default=[*CONTESTANTS])
    parser.add_argument("--scenarios", nargs="+", choices=SCENARIOS, default=[*SCENARIOS])
    parser.add_argument("--slots", type=int, default=6, help="runs at once (%(default)s)")
    parser.add_argument("--into", type=Path, help="stored runs, of which those played are replaced")
    asked = parser.parse_args()
    runs = [
        (contestant, name, is_asyncio)
        for name in asked.scenarios
        for contestant in asked.only
        for is_asyncio in ((False, True) if contestant in PAIRED else (False,))
    ]
    with ThreadPoolExecutor(asked.slots) as slots:
        played = list(slots.map(_played, runs))
    if asked.into is None:
        print(json.dumps(played, indent=1))
        return 0
    kept = json.loads(asked.into.read_text("utf-8"))["runs"] if asked.into.exists() else []
    by_key = {_key(each): each for each in (*kept, *played)}
    found = {"at": f"{datetime.now(UTC):%Y-%m-%d}", "machine": machine(), "runs": [*by_key.values()]}
    asked.into.write_text(json.dumps(found, indent=1) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
