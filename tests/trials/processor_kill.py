"""A processor that is killed (-9) again and again while it handles messages: `python -m tests.trials.processor_kill`.

Every message is handled at least once: what a killed processor had in hand comes again when its lock ends. A message is
handled again at most once for each kill that met it in hand.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from random import Random

from sbpair.aio import PairedServiceBusClient
from sbpair.broker import Broker, NamespaceControl
from sbpair.processor import ProcessorOptions, ReceivedMessage
from tests.processor.pair import numbered, put

CALLS = 16
PATIENCE = 120.0  # seconds for the rest after the last kill


async def consume(primary: str, secondary: str, log: Path) -> None:
    """Handle messages until killed; each is one line in ``log``, written in one call."""
    file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    async def handle(message: ReceivedMessage) -> None:
        await asyncio.sleep(0.01)
        os.write(file, f"{message.message_id}\n".encode())

    async with PairedServiceBusClient.from_connection_strings(primary, secondary) as client:
        options = ProcessorOptions(max_concurrent_calls=CALLS)
        await client.get_queue_processor("orders", handle, options=options).run()


def start(sides: tuple[NamespaceControl, NamespaceControl], log: Path) -> subprocess.Popen[bytes]:
    """A consumer in a process of its own; the keys are in its environment."""
    environment = os.environ | {"P": sides[0].connection_string, "S": sides[1].connection_string}
    return subprocess.Popen(
        [sys.executable, "-m", "tests.trials.processor_kill", "--log", log], env=environment
    )


def lines(log: Path) -> list[str]:
    return log.read_text().splitlines() if log.exists() else []


async def trial(messages: int, kills: int, seed: int) -> dict[str, int]:
    """Kill a consumer ``kills`` times while it handles ``messages``; what came of it."""
    rng = Random(seed)
    with tempfile.TemporaryDirectory() as directory, Broker({"contoso": 0, "contoso-dr": 0}) as broker:
        sides = broker.namespace("contoso"), broker.namespace("contoso-dr")
        for side in sides:
            side.create_queue("orders", lock_duration=5000, max_delivery_count=2**31 - 1)
        log = Path(directory, "handled")
        await put(sides[0], "orders", [numbered(n) for n in range(0, messages, 2)])
        await put(sides[1], "orders", [numbered(n) for n in range(1, messages, 2)])
        for number in range(1, kills + 1):
            consumer = start(sides, log)
            enough = min(len(lines(log)) + rng.randrange(1, messages // kills), messages * number // kills)
            await reaches(lambda enough=enough: len(lines(log)) >= enough or is_empty(sides))
            consumer.kill()
            consumer.wait()
        consumer = start(sides, log)
        await reaches(lambda: is_empty(sides))
        consumer.kill()
        consumer.wait()
        counts = Counter(lines(log))
    return {
        "messages": messages,
        "kills": kills,
        "lost": messages - len(counts),
        "handled again": counts.total() - len(counts),
        "most again": max(counts.values()) - 1,
    }


def is_empty(sides: tuple[NamespaceControl, NamespaceControl]) -> bool:
    return not any(side.counts("orders").active for side in sides)


async def reaches(holds) -> None:
    async with asyncio.timeout(PATIENCE):
        while not holds():
            await asyncio.sleep(0.02)


def verdict(found: dict[str, int]) -> bool:
    """Whether nothing was lost, and no more came twice than the kills explain."""
    explained = found["kills"] * 4 * CALLS  # handled, and not yet settled when killed
    return not found["lost"] and found["handled again"] <= explained and found["most again"] <= found["kills"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--log", type=Path, help="consume, and write what was handled here")
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    if given.log is not None:
        asyncio.run(consume(os.environ["P"], os.environ["S"], given.log))
        return 0
    found = asyncio.run(trial(given.messages, given.kills, given.seed))
    print(json.dumps(found))
    return 0 if verdict(found) else 1


if __name__ == "__main__":
    sys.exit(main())
