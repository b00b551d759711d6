"""The table: every fault against every client, in several processes at the same time, with what it was run on."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from datetime import UTC, datetime
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.trials.clients import contestants, faults
from tests.trials.clients.contestants import Start
from tests.trials.clients.rounds import NotBegunError, play
from tests.trials.clients.score import score

ROOT = Path(__file__).resolve().parents[3]
TRIES = 2  # of a round whose first operations failed


@dataclass(frozen=True, slots=True)
class Settings:
    """What a run is asked for. ``limit``: seconds for each operation; ``messages``: that must succeed after a fault."""

    clients: tuple[str, ...]
    faults: tuple[str, ...]
    seed: int = 1
    messages: int = 3
    limit: float = 15.0
    jobs: int = 6


def played(fault: str, client: str, start: Start, settings: Settings) -> dict[str, Any]:
    """Play one round and return its score, or why it did not begin."""
    began = time.monotonic()
    for _ in range(TRIES):
        try:
            facts = play(
                faults.BY_NAME[fault],
                start,
                seed=settings.seed,
                messages=settings.messages,
                limit=settings.limit,
            )
        except NotBegunError as error:
            found: dict[str, Any] = {"symbols": "?", "errors": [str(error)]}
        else:
            found = score(facts).as_dict()
            break
    return {"fault": fault, "client": client, "seconds": round(time.monotonic() - began, 1), **found}


def played_again(stored: Mapping[str, Any], show: Callable[[str], object]) -> dict[str, Any]:
    """Play the rounds of a stored run that did not begin once more, and return the run with them."""
    settings = Settings(
        tuple(each["name"] for each in stored["clients"]),
        tuple(dict.fromkeys(each["fault"] for each in stored["rounds"])),
        stored["seed"],
        stored["messages"],
        stored["limit"],
        jobs=1,
    )
    kept = {(each["fault"], each["client"]): each for each in stored["rounds"] if each["symbols"] != "?"}
    rounds = _rounds(settings, show, kept)
    return {**stored, "again": len(rounds) - len(kept), "rounds": rounds}


def run(settings: Settings, show: Callable[[str], object]) -> dict[str, Any]:
    """Play every round, several at a time, and report each to ``show`` as it ends."""
    began, load = datetime.now(UTC), os.getloadavg()[0]
    rounds = _rounds(settings, show, {})
    return {
        "seed": settings.seed,
        "messages": settings.messages,
        "limit": settings.limit,
        "jobs": settings.jobs,
        "began": began.isoformat(timespec="seconds"),
        "seconds": round((datetime.now(UTC) - began).total_seconds()),
        "machine": _machine(load),
        "clients": [_of_client(name) for name in settings.clients],
        "rounds": rounds,
    }


def _rounds(
    settings: Settings, show: Callable[[str], object], kept: Mapping[tuple[str, str], dict[str, Any]]
) -> list[dict[str, Any]]:
    """All rounds by fault and client: those that are kept, and the others played."""
    rounds = dict(kept)
    with (
        TemporaryDirectory(prefix="sbpair-clients-") as scratch,
        ProcessPoolExecutor(settings.jobs, mp_context=get_context("spawn")) as pool,
    ):
        # installs and builds what is missing, once
        starts = {name: contestants.BY_NAME[name].start(Path(scratch)) for name in settings.clients}
        pairs = [(fault, client) for fault in settings.faults for client in settings.clients]
        waiting = {
            pool.submit(played, *pair, starts[pair[1]], settings): pair for pair in pairs if pair not in kept
        }
        for done in as_completed(waiting):
            rounds[waiting[done]] = found = done.result()
            show(f"{len(rounds):3}/{len(pairs)}  {_line(found)}")
    return [rounds[pair] for pair in pairs]


def _line(found: Mapping[str, Any]) -> str:
    return f"{found['fault']:20} {found['client']:16} {found['symbols']:10} {found['seconds']:5.1f} s"


def _of_client(name: str) -> dict[str, str]:
    contestant = contestants.BY_NAME[name]
    return {"name": name, "title": contestant.title, "version": contestant.version}


def _machine(load: float) -> dict[str, Any]:
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return {
        "cores": os.cpu_count(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "node": _first_line("node", "--version"),
        "java": _first_line("java", "-version"),
        "go": _first_line("go", "version"),
        "commit": commit.stdout.strip(),
        "load_before": round(load, 1),
    }


def _first_line(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    except OSError:
        return "not installed"
    return (done.stdout or done.stderr).splitlines()[0].strip()
