"""Gauges of trouble and alert rules over recorded outages: what fires, and that all is calm again without a send."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from azure.servicebus import ServiceBusMessage

from sbpair.broker.auth import Grant, InvalidTokenError
from sbpair.broker.errors import BrokerError
from sbpair.pair.envelope.names import backlog_queue_name
from sbpair.pair.envelope.park import park
from sbpair.pair.observation.metrics import METRICS, READ
from tests.peers import prometheus_program
from tests.trials.simulation.entities import CLOCK
from tests.trials.simulation.grey import ShortAccess
from tests.trials.simulation.payloads import encoded, stored
from tests.trials.simulation.plan import PRIMARY, SECONDARY, Fault, Kind
from tests.trials.simulation.world import World

from .reading import ROOT, RULES, named_in, rules
from .recorded import EVERY, SYPHON, Recorded, Series, recorded

pytestmark = pytest.mark.slow

BACKLOG, BEYOND = backlog_queue_name(PRIMARY, 0), backlog_queue_name(PRIMARY, 2)
UNTRANSFERRED = f"{BACKLOG}/$Transfer/$DeadLetterQueue"
BEGINS = 600.0  # seconds
RUNBOOK = ROOT / "docs" / "how-to" / "answer-alerts.md"
CALM_STATES = {"sbpair_entity_state": "healthy", "sbpair_syphon_state": "running"}
NO_TROUBLE = {
    "sbpair_backlog_bytes": "how full a queue is",
    "sbpair_backlog_limit_bytes": "a limit",
    "sbpair_backlog_messages": "how full a queue is",
    "sbpair_processor_in_flight": "work",
    "sbpair_syphon_pace": "a speed",
}
ELSEWHERE = {  # trouble of the parts that a recorded client has not, and where its end is proved
    "sbpair_side_state": ("pairing/test_runtime_sides.py", "probed_until_it_accepts"),
    "sbpair_backlogs_missing": ("pairing/test_missing_backlogs.py", "no_longer_missing"),
    "sbpair_spool_messages": ("outage/test_accept_first.py", "spools_once_there_is_room"),
    "sbpair_spool_writable": ("outage/test_accept_first.py", "spools_once_there_is_room"),
}


@dataclass(frozen=True)
class Outage:
    """A recorded outage; ``over`` when the last of its faults ends, in seconds."""

    plan: list[Fault]
    over: float
    sends: float = 700.0
    options: dict[str, Any] = field(default_factory=dict)
    fires: dict[float, set[str]] = field(default_factory=dict)
    """By second, all alerts that fire then."""


def _wrong_key(world: World) -> None:
    class Refusing(ShortAccess):
        def verify(self, token: str, now_s: int) -> Grant:
            if BEGINS <= world.now < BEGINS + 600:
                raise InvalidTokenError("the key was rotated")
            return super().verify(token, now_s)

    for server in world.servers.values():
        server.frontend.verifier = Refusing()


def _until_somebody_acts(world: World) -> None:
    """A message for nowhere, a backlog queue that is missing, and one beyond the count: somebody acts at 1200 s."""
    namespace = world.namespace(SECONDARY)

    def begin() -> None:
        lost = stored(encoded(park(ServiceBusMessage(b"x", message_id="lost"), "nowhere", None)))
        namespace.queue(BACKLOG).enqueue_all([lost], CLOCK.now())
        world.servers[SECONDARY].end_turn()

    def act() -> None:
        for path in (f"{BACKLOG}/$DeadLetterQueue", UNTRANSFERRED):
            namespace.queue(path).receive_and_delete(CLOCK.now())
        namespace.delete_queue(BEYOND, CLOCK.now())
        world.create_backlog(backlog_queue_name(PRIMARY, 1))

    world.create_backlog(BEYOND)
    beyond = stored(encoded(park(ServiceBusMessage(b"x", message_id="beyond"), "orders", None)))
    namespace.queue(BEYOND).enqueue_all([beyond], CLOCK.now())
    namespace.queue(BACKLOG).dead_letter_untransferred(replace(beyond), BrokerError("full"), CLOCK.now())
    world.loop.call_at(BEGINS, begin)
    world.loop.call_at(1200.0, act)


OUTAGES = {
    "the primary is down for half an hour": Outage(
        [Fault(Kind.DOWN, PRIMARY, BEGINS, 1800.0)],
        over=2400.0,
        fires={
            590: set(),
            720: set(),
            780: {"SbpairFailedOver"},
            960: {"SbpairFailedOver", "SbpairSyphonWaits"},
            2390: {"SbpairFailedOver", "SbpairSyphonWaits"},
            2700: set(),
        },
    ),
    "the primary is down, and its messages land": Outage(
        [Fault(Kind.DOWN, PRIMARY, BEGINS, 1800.0)],
        over=2400.0,
        options={"lands": True},
        fires={2390: {"SbpairFailedOver", "SbpairLanding"}, 2700: set()},
    ),
    "both are down for two minutes": Outage(
        [Fault(Kind.DOWN, side, BEGINS, 120.0) for side in (PRIMARY, SECONDARY)],
        over=720.0,
        fires={
            690: {"SbpairSendsRaise", "SbpairSecondarySilent"},
            840: {"SbpairSendsRaise"},
            1080: set(),
        },
    ),
    "most sends to an entity fail": Outage(
        [Fault(Kind.SHARE, "orders", BEGINS, 400.0, 80)],
        over=1000.0,
        fires={900: {"SbpairFailedOver"}, 1300: set()},
    ),
    "one partition is down": Outage(
        [Fault(Kind.PARTITION, "parts", BEGINS, 400.0, 1)],
        over=1000.0,
        sends=1000.0,
        options={"paths": ("parts",)},
        fires={780: {"SbpairKeysAside"}, 1300: set()},
    ),
    "sends end with a fault of a second": Outage(
        [Fault(Kind.DOWN, PRIMARY, BEGINS, 1.0)], over=601.0, sends=601.0, fires={690: set(), 900: set()}
    ),
    "a key is wrong on both sides": Outage(
        [Fault(Kind.DOWN, side, BEGINS, 1.0) for side in (PRIMARY, SECONDARY)],
        over=1200.0,
        sends=100.0,
        options={"prepare": _wrong_key},
        fires={720: {"SbpairSyphonRefused"}, 1400: set()},
    ),
    "somebody has to act": Outage(
        [Fault(Kind.MISSING, backlog_queue_name(PRIMARY, 1), BEGINS, 1.0)],
        over=1200.0,
        sends=100.0,
        options={"prepare": _until_somebody_acts, "lands": True},
        fires={
            1170: {
                "SbpairBacklogsMissing",
                "SbpairBacklogStranded",
                "SbpairDeadLetters",
                "SbpairSetAside",
                "SbpairUntransferred",
            },
            1500: set(),
        },
    ),
}


@cache
def recording(name: str) -> Recorded:
    outage = OUTAGES[name]
    return recorded(outage.plan, sends=outage.sends, lasts=outage.over + 600.0, **outage.options)


@cache
def announced() -> dict[str, float]:
    """Seconds after which a gauge is calm again, as the page says."""
    rows = re.findall(r"^\| `(sbpair_\w+)` \|.*\| (\d+) s \|$", RUNBOOK.read_text("utf-8"), re.MULTILINE)
    return {name: float(seconds) for name, seconds in rows}


def is_calm(series: Series, value: float) -> bool:
    """Whether a value of a gauge is no trouble."""
    calm = CALM_STATES.get(series[0])
    return value == 0.0 or (calm is not None and dict(series[1])["state"] == calm)


def gauges() -> set[str]:
    names = {each.name for each in (*METRICS, *READ)} | {"sbpair_syphon_state"}
    return {name for name in names if not name.endswith("_total")}


@pytest.mark.spec("R-179")
def test_every_gauge_is_harmless_or_announced_to_end() -> None:
    assert gauges() == set(announced()) | set(NO_TROUBLE)
    for path, name in ELSEWHERE.values():
        assert name in (ROOT / "tests" / "pair" / path).read_text("utf-8"), name


@pytest.mark.spec("R-179")
@pytest.mark.parametrize("name", OUTAGES)
def test_all_gauges_return_to_normal_within_the_announced_time_without_a_send(name: str) -> None:
    found, over = recording(name), OUTAGES[name].over
    for gauge, within in announced().items():
        scrape = int((over + within) / EVERY) + 2
        for series, values in found.values(gauge).items():
            trouble = [number for number, value in enumerate(values) if not is_calm(series, value)]
            assert max(trouble, default=0) < scrape, (series, max(trouble) * EVERY)


@pytest.mark.spec("R-179")
def test_every_trouble_gauge_was_observed_in_trouble() -> None:
    seen = {
        series[0]
        for name in OUTAGES
        for gauge in announced()
        for series, values in recording(name).values(gauge).items()
        if not all(is_calm(series, value) for value in values[10:])
    }
    assert set(announced()) - seen == set(ELSEWHERE)


@pytest.mark.spec("R-178")
@pytest.mark.parametrize("name", OUTAGES)
def test_an_outage_is_told_in_few_lines_however_often_it_is_tried_again(name: str) -> None:
    """One for each change; and of what lasts, one after a minute, two, four and so on."""
    lines = recording(name).lines
    assert len(lines) <= 20, lines


@pytest.mark.spec("R-178")
def test_an_hour_of_lost_connections_is_told_in_fewer_lines_than_it_has_faults() -> None:
    plan = [
        Fault(Kind.CUT, f"{SYPHON} {side}", 60.0 * minute + 30.0 * (side == PRIMARY), 0.1)
        for minute in range(1, 60)
        for side in (PRIMARY, SECONDARY)
    ]
    lines = recorded(plan, sends=10.0, lasts=3700.0).lines
    assert 2 <= len(lines) <= len(plan) / 4, lines


@pytest.mark.spec("R-179")
def test_every_alert_uses_a_current_gauge_or_a_recent_counter() -> None:
    for rule in rules():
        named = named_in(rule["expr"])
        assert named <= set(announced()) | set(NO_TROUBLE) or re.search(
            r"(increase|rate)\(|up\{", rule["expr"]
        ), rule["alert"]


@pytest.mark.interop
@pytest.mark.spec("R-179", "R-191")
@pytest.mark.parametrize("name", OUTAGES)
def test_the_right_alerts_fire_over_a_recorded_outage(name: str, tmp_path: Path) -> None:
    found = recording(name)
    up: dict[Series, dict[int, float]] = {
        ("up", (("instance", SYPHON), ("job", "sbpair-syphon"))): dict.fromkeys(range(found.scrapes), 1.0)
    }
    case = {
        "name": name,
        "interval": f"{EVERY:g}s",
        "input_series": [
            {"series": _spelled(series), "values": _values(values, found.scrapes)}
            for series, values in (found.series | up).items()
        ],
        "promql_expr_test": [
            {
                "expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
                "eval_time": f"{second:g}s",
                "exp_samples": [
                    {"labels": f'{{alertname="{alert}"}}', "value": 1} for alert in sorted(alerts)
                ],
            }
            for second, alerts in OUTAGES[name].fires.items()
        ],
    }
    cases = tmp_path / "cases.yml"
    tests = {"rule_files": [str(RULES)], "evaluation_interval": f"{EVERY:g}s", "tests": [case]}
    cases.write_text(yaml.safe_dump(tests))
    program = prometheus_program("promtool")
    done = subprocess.run([program, "test", "rules", str(cases)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr


def _spelled(series: Series) -> str:
    name, labels = series
    return f"{name}{{" + ",".join(f'{key}="{value}"' for key, value in labels) + "}"


def _values(values: dict[int, float], scrapes: int) -> str:
    """The values as promtool wants them; a series that is gone is stale, as after a scrape without it."""
    return " ".join(
        "stale" if (value := values.get(number)) is None else f"{value:g}" for number in range(scrapes)
    )
