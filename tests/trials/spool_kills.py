"""A client that accepts every message into its spool first is killed (-9) at random moments, many times.

    python -m tests.trials.spool_kills --kills 200 --seed 1

Four threads send as fast as they can, while either namespace, both or neither are away for a while; each process is
killed after a random time, and the next goes on with the file. Nothing is lost or out of order; a kill repeats at most
what was on its way. One line of JSON; exit code 1 when that does not hold.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from collections.abc import Callable
from itertools import chain
from pathlib import Path

from sbpair.broker import Broker
from sbpair.broker.testing.ledger import Ledger
from tests.trials.spool_process import (
    ENTITIES,
    REPEATED,
    SendingProcess,
    out_of_order,
    received,
    settled,
    stored,
    two_namespaces,
)

AWAY = ((), ("contoso",), ("contoso-dr",), ("contoso", "contoso-dr"))
MOST = 10_000  # messages of one process


def trial(
    broker: Broker, spool: Path, kills: int, seed: int, say: Callable[[str], None]
) -> dict[str, object]:
    chance, ledger = random.Random(seed), Ledger()
    names = ("contoso", "contoso-dr")
    before = 0
    for run in range(kills):
        away = chance.choice(AWAY)
        for name in away:
            broker.namespace(name).take_down(chance.choice(("refuse", "silent")))
        client = SendingProcess(broker, spool, ledger, start=run * MOST, count=MOST, policy="always")
        client.wait_for(chance.choice((1, 5, 50, 200)))
        if not away and chance.random() < 0.5:
            settled(lambda before=before: sum(stored(broker.namespace(name)) for name in names) > before)
        client.kill()
        before = sum(stored(broker.namespace(name)) for name in names)
        for name in away:
            broker.namespace(name).bring_up()
        say(f"{run + 1} kills, {ledger.check().acknowledged} acknowledged, {before} at home or parked")
    last = SendingProcess(broker, spool, ledger, start=kills * MOST, count=1, policy="always")
    exit_code = last.finish()
    arrived = received(broker.namespace("contoso"))
    parked = chain.from_iterable(received(broker.namespace("contoso-dr")).values())
    at_home = list(chain.from_iterable(arrived.values()))
    ledger.received_all([*at_home, *parked])
    report = ledger.check()
    return {
        "kills": kills,
        "acknowledged": report.acknowledged,
        "lost": len(report.lost),
        "unexpected": len(report.unexpected),
        "duplicates": report.duplicates,
        "most_duplicates": kills * len(ENTITIES) * REPEATED,
        "out_of_order": len(out_of_order(at_home)),
        "exit_code": exit_code,
    }


def is_right(found: dict[str, object]) -> bool:
    return not (found["lost"] or found["unexpected"] or found["out_of_order"] or found["exit_code"]) and (
        int(str(found["duplicates"])) <= int(str(found["most_duplicates"]))
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    with two_namespaces() as broker, tempfile.TemporaryDirectory() as directory:
        found = trial(
            broker,
            Path(directory) / "spool",
            asked.kills,
            asked.seed,
            lambda what: print(what, file=sys.stderr, flush=True),
        )
    print(json.dumps(found))
    return 0 if is_right(found) else 1


if __name__ == "__main__":
    sys.exit(main())
