"""What a team would write, beside sbpair: a short outage, and the judgement of the ledger."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from tests.trials.alternatives.load import Send
from tests.trials.alternatives.page import lines_of, stored
from tests.trials.alternatives.play import judge, play
from tests.trials.alternatives.scenarios import CONTESTANTS, PAIRED, SCENARIOS

SHORT = replace(SCENARIOS["refuse"], span=6.0)
RUNS = (("sdk", False), ("outbox", False), ("forwarder", False), ("paired", False), ("paired", True))


@pytest.fixture(scope="module")
def played() -> Mapping[tuple[str, bool], Mapping[str, Any]]:
    """The figures of a short outage, by contestant and skin; the runs mostly wait, and go at once."""
    with ThreadPoolExecutor(len(RUNS)) as slots:
        figures = slots.map(lambda run: play(run[0], SHORT, is_asyncio=run[1]), RUNS)
        return dict(zip(RUNS, figures, strict=True))


@pytest.mark.timeout(240)
@pytest.mark.parametrize("run", RUNS, ids=lambda run: f"{run[0]}{'-asyncio' * run[1]}")
def test_no_contestant_loses_a_message_in_a_short_outage(
    played: Mapping[tuple[str, bool], Mapping[str, Any]], run: tuple[str, bool]
) -> None:
    assert played[run]["lost"] == 0


@pytest.mark.timeout(240)
@pytest.mark.spec("H-56")
@pytest.mark.parametrize("is_asyncio", [False, True], ids=["blocking", "asyncio"])
def test_the_defaults_store_every_message_sent_in_an_outage_without_waiting(
    played: Mapping[tuple[str, bool], Mapping[str, Any]], is_asyncio: bool
) -> None:
    figures = played["paired", is_asyncio]
    assert (figures["raised"], figures["under_way"]) == (0, 0)
    assert figures["stored"] >= 0.95
    assert figures["longest"] <= 5.0


@pytest.mark.timeout(240)
def test_an_outbox_stores_everything_and_the_bare_sdk_does_not(
    played: Mapping[tuple[str, bool], Mapping[str, Any]],
) -> None:
    assert played["outbox", False]["stored"] >= 0.99
    assert played["sdk", False]["stored"] < 0.8


def test_a_stored_message_that_never_arrived_is_lost_and_one_that_arrived_twice_is_a_duplicate() -> None:
    ledger = {
        "home": Send(1.0, 0.1),
        "lost": Send(2.0, 0.1),
        "twice": Send(3.0, 0.1),
        "raised": Send(4.0, 5.0, "ServiceBusError"),
        "hangs": Send(5.0),
    }
    arrivals = {
        "home": [(1.1, False)],
        "twice": [(12.0, False), (13.0, True)],
        "raised": [(9.0, False)],
    }
    found = judge(ledger, arrivals, offered=6, healed=10.0, ended=65.0)
    assert found["stored"] == 0.5
    assert (found["lost"], found["twice"], found["raised"], found["under_way"]) == (1, 1, 1, 1)
    assert (found["second"], found["longest"], found["home_after"]) == (1, 60.0, 2.0)


def test_the_page_has_every_contestant_and_scenario() -> None:
    runs = {(each["contestant"], each["asyncio"], each["scenario"]) for each in stored()["runs"]}
    assert runs == {
        (contestant, is_asyncio, name)
        for contestant in CONTESTANTS
        for is_asyncio in ((False, True) if contestant in PAIRED else (False,))
        for name in SCENARIOS
    }


def test_the_lines_of_a_contestant_are_those_of_its_code() -> None:
    assert lines_of("sdk") < lines_of("two_clients") < lines_of("breaker") < lines_of("forwarder")
    assert lines_of("paired") < lines_of("spooled")
