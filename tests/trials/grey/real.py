"""The run of a scenario in real time: brokers, senders and syphon are processes; figures by contestant come of it."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from statistics import quantiles
from typing import Any

from sbpair.syphon import Syphon, SyphonOptions

from .load import GRACE, Load, run_load, withdrawals
from .scenarios import Scenario
from .stage import BACKLOGS, NAMES, SPAWN, Stage

GOOD = 5.0  # seconds within which a message is stored, to count as goodput
LATE = 8_000  # milliseconds until a parked message is home
READY = 180.0  # seconds for a client to be ready
SYPHON_STARTS = 3.0  # seconds


def run_syphon(strings: tuple[str, str, str]) -> None:  # the target of a process
    """Run the daemon until the process ends."""
    options = SyphonOptions(backlog_queue_count=BACKLOGS, primary_namespace_name=NAMES[0])
    asyncio.run(Syphon.from_connection_strings(*strings[:2], options=options).run(asyncio.Event()))


def play(scenario: Scenario) -> dict[str, Any]:
    """Play a scenario with each of its contestants; the figures, and whether they are what is promised."""
    figures = {contestant: _played(scenario, contestant) for contestant in scenario.contestants}
    return {
        "scenario": scenario.name,
        "title": scenario.title,
        "promise": scenario.promise,
        "holds": scenario.bar(figures),
        "figures": figures,
    }


def _played(scenario: Scenario, contestant: str) -> dict[str, Any]:
    with Stage(scenario) as stage:
        ours, theirs = SPAWN.Pipe()
        process = None
        if contestant != "syphon":
            process = SPAWN.Process(
                target=run_load, args=(theirs, scenario.plain, contestant, stage.strings), daemon=True
            )
            process.start()
            if not ours.poll(READY):
                raise RuntimeError(f"{contestant} was not ready within {READY:g} s")
            ours.recv()
        syphon = _started(stage, scenario)
        try:
            stage.begin()
            return _measured(scenario, stage, process, ours)
        finally:
            for each in (syphon, process):
                if each is not None:
                    each.terminate()
                    each.join(10)


def _started(stage: Stage, scenario: Scenario) -> Any:
    """The syphon, where something is parked; what does not come at a rate is there before it starts."""
    if not scenario.parked:
        return None
    if scenario.parked_rate is None:
        stage.park(0, scenario.parked)
    syphon = SPAWN.Process(target=run_syphon, args=(stage.strings,), daemon=True)
    syphon.start()
    time.sleep(SYPHON_STARTS if scenario.parked_rate is not None else 0.0)
    return syphon


def _measured(scenario: Scenario, stage: Stage, process: Any, ours: Any) -> dict[str, Any]:
    load, began = Load(), time.monotonic()
    parked: dict[str, int] = {}
    if process is not None:
        ours.send("go")
    if scenario.parked_rate is not None:
        for number in range(scenario.parked):
            time.sleep(max(began + number / scenario.parked_rate - time.monotonic(), 0.0))
            parked[f"parked-{number}"] = stage.park(number, 1)
    time.sleep(max(began + scenario.seconds - time.monotonic(), 0.0))
    home = stage.arrivals() if scenario.parked else {}
    if process is not None:
        if not ours.poll(scenario.timeout + 60):
            raise RuntimeError("the sends did not end")
        load = ours.recv()
        ours.send("go home")
        process.join(15)
    figures = _figures(scenario, load) if load.sends else {}
    if scenario.parked:
        figures["home"] = sum(name.startswith("parked-") for name in home)
    if parked:
        waits = [home[name] - at if name in home else LATE + 1 for name, at in parked.items()]
        figures["late"] = sum(each > LATE for each in waits)
        figures["p99"] = round(quantiles(waits, n=100)[98] / 1000, 2)
    return figures


def _figures(scenario: Scenario, load: Load) -> dict[str, Any]:
    count = len(load.sends)
    took = sorted(seconds for _, seconds, _ in load.sends)
    good = sum(seconds < GOOD for _, seconds, how in load.sends if not how.startswith("raised"))
    raised = [(seconds, how) for _, seconds, how in load.sends if how.startswith("raised")]
    within = sum(at + seconds <= scenario.seconds for at, seconds, _ in load.sends)
    stored = sum(
        at + seconds <= scenario.seconds for at, seconds, how in load.sends if not how.startswith("raised")
    )
    copies = Counter(how for *_, how in load.sends)
    first = scenario.timeout if scenario.rate is not None else 0.0
    return {
        "sends": count,
        "goodput": round(good / count, 4),
        "goodput_per_s": round(stored / scenario.seconds, 2),
        "answers_per_s": round(within / max(scenario.seconds - first, 1.0), 1),
        "raised": round(len(raised) / count, 4),
        "raised_after": round(min((seconds for seconds, _ in raised), default=0.0), 2),
        "time_each": round(sum(took) / max(count - len(raised), 1), 4),
        "parked": round((copies["backlog"] + copies["spool"]) / count, 4),
        "p50": round(took[count // 2], 3),
        "p99": round(took[min(count * 99 // 100, count - 1)], 2),
        "longest": round(took[-1], 2),
        "failed_over_at": None if load.failed_over_at is None else round(load.failed_over_at, 1),
        "withdrawals": withdrawals(load),
        "errors": dict(Counter(how for _, how in raised).most_common(3)),
        "is_in_time": took[-1] <= scenario.timeout + GRACE,
    }
