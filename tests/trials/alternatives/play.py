"""The run of one contestant through one scenario, and the judgement by its own ledger."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import quantiles
from tempfile import TemporaryDirectory
from typing import Any

from sbpair.syphon import Syphon, SyphonOptions

from .contestants.forwarder import forward
from .ends import Ends
from .load import RATE, Ledger, run_load
from .scenarios import BEFORE, PAIRED, Scenario
from .stage import SPAWN, Arrivals, Stage

READY = 120.0  # seconds for a process to start
HOME = 180.0  # seconds for what is parked to come home
SETTLED = 3.0  # seconds in which copies may still come


def play(contestant: str, scenario: Scenario, *, is_asyncio: bool = False) -> dict[str, Any]:
    """Play a scenario; the figures."""
    with (
        TemporaryDirectory() as folder,
        Stage(scenario) as stage,
        _companion(contestant, stage.ends),
        _process(run_load, contestant, scenario, stage.ends, folder, is_asyncio) as pipe,
    ):
        if not pipe.poll(READY):
            raise RuntimeError(f"{contestant} was not ready within {READY:g} s")
        pipe.recv()
        began = time.time()
        pipe.send(began)
        time.sleep(max(began + BEFORE - time.time(), 0.0))
        stage.fail()
        time.sleep(max(began + BEFORE + scenario.span - time.time(), 0.0))
        stage.heal()
        healed = time.time()
        ledger = pipe.recv()
        ended = time.time()
        arrivals = _when_home(stage, ledger)
        pipe.send("end")
    figures = judge(ledger, arrivals, offered=RATE * scenario.seconds, healed=healed, ended=ended)
    return {"contestant": contestant, "asyncio": is_asyncio, "scenario": scenario.name, **figures}


def judge(
    ledger: Ledger, arrivals: Arrivals, *, offered: float, healed: float, ended: float
) -> dict[str, Any]:
    """What became of the sends: a message that was stored, and did not come, is lost."""
    stored = {name: each for name, each in ledger.items() if each.took is not None and each.error is None}
    raised = [each for each in ledger.values() if each.error is not None]
    took = [ended - each.began if each.took is None else each.took for each in ledger.values()]
    home = [arrivals[name][0][0] for name, each in stored.items() if each.began < healed and name in arrivals]
    return {
        "stored": round(len(stored) / offered, 4),
        "raised": len(raised),
        "under_way": len(ledger) - len(stored) - len(raised),
        "p99": round(quantiles(took, n=100)[98], 2) if len(took) > 1 else None,
        "longest": round(max(took, default=0.0), 2),
        "lost": sum(name not in arrivals for name in stored),
        "twice": sum(len(arrivals.get(name, ())) > 1 for name in stored),
        "second": sum(any(is_second for _, is_second in copies) for copies in arrivals.values()),
        "home_after": round(max(max(home, default=healed) - healed, 0.0), 1),
    }


def _when_home(stage: Stage, ledger: Ledger) -> Arrivals:
    """What came, once everything that was stored did, or no more is to be expected."""
    stored = {name for name, each in ledger.items() if each.took is not None and each.error is None}
    until, is_last = time.time() + HOME, False
    while True:
        arrivals = stage.arrivals()
        if is_last or time.time() >= until:
            return arrivals
        is_last = stored <= arrivals.keys()
        time.sleep(SETTLED if is_last else 1.0)


def _run_syphon(ends: Ends) -> None:  # the target of a process
    """As the command does."""
    syphon = Syphon.from_connection_strings(ends.primary, ends.secondary, options=SyphonOptions())
    asyncio.run(syphon.run(asyncio.Event()))


@contextmanager
def _process(target: Any, *arguments: Any) -> Iterator[Any]:
    """A process, and the pipe to it, which is its first argument."""
    ours, theirs = SPAWN.Pipe()
    process = SPAWN.Process(target=target, args=(theirs, *arguments), daemon=True)
    process.start()
    try:
        yield ours
    finally:
        process.join(2)
        process.kill()
        process.join()


@contextmanager
def _companion(contestant: str, ends: Ends) -> Iterator[None]:
    """The process that brings home what a contestant parks."""
    if contestant in PAIRED:
        process = SPAWN.Process(target=_run_syphon, args=(ends,), daemon=True)
    elif contestant == "forwarder":
        process = SPAWN.Process(target=forward, args=(ends,), daemon=True)
    else:
        yield
        return
    process.start()
    try:
        yield
    finally:
        process.kill()
        process.join()
