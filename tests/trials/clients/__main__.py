"""The same forty faults against the SDKs of four languages and the paired client: who hangs, loses, duplicates.

    python -m tests.trials.clients [--clients python go] [--faults killed mute] [--seed 1] [--messages 3] [--limit 15]
                                   [--jobs 6] [--out docs/evidence/clients.json]
    python -m tests.trials.clients --list

Each round, one fault against one client, has a broker, a proxy and a driver process of its own. The whole table takes
about half an hour on two cores. Node, npm, a JDK, Maven and Go are needed for the clients of these languages.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from tests.trials.clients import contestants, faults
from tests.trials.clients.table import Settings, played_again, run


def _one_of(known: Iterable[str], what: str, asked: Sequence[str] | None) -> tuple[str, ...]:
    names = list(known)
    for name in asked or ():
        if name not in names:
            raise SystemExit(f"there is no {what} '{name}'; there are: {', '.join(names)}")
    return tuple(asked or names)


def _show(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--clients", nargs="+", metavar="NAME", help="default: all")
    parser.add_argument("--faults", nargs="+", metavar="NAME", help="default: all forty")
    parser.add_argument("--seed", type=int, default=1, help="of the pauses between two steps")
    parser.add_argument(
        "--messages", type=int, default=3, help="that must succeed after a fault; default %(default)s"
    )
    parser.add_argument(
        "--limit", type=float, default=15, help="seconds for an operation; default %(default)s"
    )
    parser.add_argument("--jobs", type=int, default=6, help="rounds at the same time; default %(default)s")
    parser.add_argument("--out", type=Path, help="the file for the result; default: standard output")
    parser.add_argument("--list", action="store_true", help="print the faults")
    parser.add_argument(
        "--again", type=Path, help="a stored run whose rounds that did not begin are played again"
    )
    asked = parser.parse_args()
    if asked.list:
        for fault in faults.FAULTS:
            print(f"{fault.name:20} {fault.role.value:8} {fault.title}")
        return 0
    settings = Settings(
        clients=_one_of(contestants.BY_NAME, "client", asked.clients),
        faults=_one_of(faults.BY_NAME, "fault", asked.faults),
        seed=asked.seed,
        messages=asked.messages,
        limit=asked.limit,
        jobs=asked.jobs,
    )
    if asked.again is not None:
        found = played_again(json.loads(asked.again.read_text()), _show)
    else:
        found = run(settings, _show)
    text = json.dumps(found, indent=1) + "\n"
    if asked.out is None:
        sys.stdout.write(text)
    else:
        asked.out.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
