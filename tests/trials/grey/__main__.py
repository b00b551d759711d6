"""What callers get while a side is only half down: ``python -m tests.trials.grey``.

    python -m tests.trials.grey [--virtual] [--real] [--defaults] [--only NAME ...]
                                [--into docs/evidence/half-down.json]
    python -m tests.trials.grey --table [TEXT ...] [--policies default] [--clients 500] [--minutes 10] [--rate 0.5]
    python -m tests.tools.generate_docs

--virtual: the pure machines of many clients, with default options, in virtual time; seconds. --real: brokers, senders
and syphon as processes, in real time, beside the bare SDK; about twelve minutes. --defaults: the slow ones of these,
with default options; ten minutes. Without any of them: --virtual and --real. --table: the scenarios in virtual time
whose names have one of these texts, a line each, to read at a terminal. Exits with 1 when a promise does not hold.
"""

from __future__ import annotations

import argparse
import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.trials.grey import virtual
from tests.trials.grey.page import machine
from tests.trials.grey.real import play
from tests.trials.grey.scenarios import DEFAULTS, SCENARIOS


def _show(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _virtual(asked: argparse.Namespace) -> dict[str, Any]:
    _show(virtual.HEAD)
    rows = []
    for name in virtual.SCENARIOS:
        if asked.table and not any(text in name for text in asked.table):
            continue
        for policy in asked.policies:
            row = virtual.row(name, policy, clients=asked.clients, minutes=asked.minutes, rate=asked.rate)
            rows.append(row)
            _show(virtual.line(row, asked.clients))
    return {"clients": asked.clients, "minutes": asked.minutes, "rate": asked.rate, "rows": rows}


def _played(names: list[str]) -> list[dict[str, Any]]:
    found = []
    for name in names:
        each = play({**SCENARIOS, **DEFAULTS}[name])
        _show(json.dumps(each))
        found.append(each)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--virtual", action="store_true")
    parser.add_argument("--real", action="store_true")
    parser.add_argument("--defaults", action="store_true")
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=[*SCENARIOS, *DEFAULTS], default=[])
    parser.add_argument("--table", nargs="*", metavar="TEXT")
    parser.add_argument("--policies", nargs="+", choices=virtual.POLICIES, default=[*virtual.POLICIES])
    parser.add_argument("--clients", type=int, default=virtual.CLIENTS, help="default %(default)s")
    parser.add_argument("--minutes", type=float, default=virtual.MINUTES, help="default %(default)s")
    parser.add_argument(
        "--rate", type=float, default=virtual.RATE, help="sends a second, default %(default)s"
    )
    parser.add_argument(
        "--into", type=Path, help="a stored result, of which the scenarios played are replaced"
    )
    asked = parser.parse_args()
    if asked.table is not None:
        return 1 if any(row["broken"] for row in _virtual(asked)["rows"]) else 0
    names = list(asked.only)
    is_all = not (asked.virtual or asked.real or asked.defaults or names)
    names += [*SCENARIOS] if asked.real or is_all else []
    names += [*DEFAULTS] if asked.defaults else []
    found: dict[str, Any] = {"real": []}
    if asked.into is not None and asked.into.exists():
        found = json.loads(asked.into.read_text("utf-8"))
    played = _played(names)
    kept = {each["scenario"]: each for each in (*found["real"], *played)}
    found["real"] = [kept[name] for name in (*SCENARIOS, *DEFAULTS) if name in kept]
    if asked.virtual or is_all:
        found["virtual"] = _virtual(asked)
    found |= {"at": f"{datetime.now(UTC):%Y-%m-%d}", "machine": machine()}
    text = json.dumps(found, indent=1) + "\n"
    if asked.into is None:
        sys.stdout.write(text)
    else:
        asked.into.write_text(text, "utf-8")
    return 0 if all(each["holds"] for each in played) else 1


if __name__ == "__main__":
    sys.exit(main())
