"""Keep a recording of `sbpair verify` that somebody sent, as data of the tests.

    python -m tests.cloud.keep RECORDING NAME     NAME as 2026-12-01-westeurope-standard

Writes `tests/cloud/verified/NAME.jsonl`, replays it against a broker of its tier, and prints what that answers
otherwise: a difference is mended in the broker, or accepted with its reason in accepted.toml. What holds in it is a
witness from then on; generate the pages anew. Exit code 1 if something is answered otherwise.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from sbpair.broker import Broker
from tests.cloud.distil import exchange_of
from tests.cloud.exchanges import of_runs
from tests.cloud.outcome import accepted, replayed_of
from tests.cloud.replaying import HOST
from tests.cloud.verified import DATA, Verified, runs
from tests.contract.conftest import NAMES, targets_of
from tests.contract.replay import replay

FORMAT = 2


def keep(recording: Path, name: str, directory: Path = DATA) -> Verified:
    """Write a recording as data, and return it. Raises ValueError for another form of file, or one with a secret."""
    head, *lines = (json.loads(line) for line in recording.read_text("utf-8").splitlines())
    if head.get("format") != FORMAT:
        raise ValueError(
            f"{recording} is of form {head.get('format')}, not {FORMAT}: record it with this version"
        )
    neutral = _neutral(head["hosts"])
    for line in lines:
        line["exchanges"] = [[side, exchange_of(neutral(found))] for side, found in line["exchanges"]]
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in (head, *lines))
    if re.search(r"sig=(?!\*\*\*)|SharedAccessKey=(?!\*\*\*)", text):
        raise ValueError(f"{recording} has a key or a signature in it")
    directory.mkdir(exist_ok=True)
    (directory / f"{name}.jsonl").write_text(text, "utf-8")
    (kept,) = [each for each in runs(directory) if each.name == name]
    return kept


def _neutral(hosts: list[str]) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """Replaces what stands for the names of hosts: the longer ones have the domain, the others are the name alone."""
    longest = {letters[0]: len(letters) for letters in sorted(hosts, key=len)}
    patterns = [
        (
            re.compile(rf"(?<!{each[0]}){each}(?!{each[0]})"),
            HOST if len(each) == longest[each[0]] else "contoso",
        )
        for each in hosts
    ]

    def of(value: Any) -> Any:
        if isinstance(value, str):
            for pattern, name in patterns:
                value = pattern.sub(name, value)
            return value
        if isinstance(value, dict):
            return {key: of(each) for key, each in value.items()}
        return value

    return of


def differences(kept: Verified, directory: Path = DATA) -> Iterator[str]:
    """Replay a run against a broker of its tier, and yield what it answers otherwise, in words."""
    for each in replayed_of([found for found in of_runs(directory) if found.source == kept.source]):
        for difference in each.differences:
            if not any(acceptance.covers(each, difference) for acceptance in accepted()):
                said, here = difference.service, difference.broker
                yield f"{each.label}: {difference.what} {difference.where}: {said!r}, here {here!r}"
    frames = kept.frames()
    with Broker(dict.fromkeys(NAMES.values(), 0), tier=kept.tier) as broker:
        for recorded in frames:
            for text in asyncio.run(replay(recorded, targets_of(broker))):
                yield f"{kept.label(recorded.entry)}: {text}"


def main() -> int:
    """Keep what is named on the command line."""
    if len(sys.argv) != 3:
        print(__doc__)
        return 2
    kept = keep(Path(sys.argv[1]), sys.argv[2])
    found = list(differences(kept))
    for line in found:
        print(line)
    counts = {verdict: len(kept.with_verdict(verdict)) for verdict in ("holds", "differs", "unknown")}
    print(
        f"{kept.file}: {counts}, {len(kept.frames())} entries with all their frames, {len(found)} differences"
    )
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
