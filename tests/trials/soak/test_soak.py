"""A shortened soak, and the criterion for growth on generated numbers."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from .course import Plan, Soak
from .flatness import Allowance, trend
from .picture import draw
from .usage import ALLOWANCES, Usage, usage_of

NONE = Allowance(least=0)


@pytest.mark.long
@pytest.mark.spec("F-71", "G-1", "G-2", "G-4")
def test_repeated_primary_outages_lose_nothing_and_leak_nothing(tmp_path: Path):
    plan = Plan(seconds=15, period=5, down=2, rate=80, sample_every=0.5)
    report = Soak(plan, tmp_path).run()
    assert report.found.is_conserved
    assert report.is_bounded
    on_disk = {"primary: disk", "secondary: disk"}  # three outages differ in how much they park
    assert set(report.not_flat) <= on_disk
    assert not any(report.exit_codes.values())
    assert {"primary", "backlog"} <= report.notes.stored_in.keys()  # else it proves nothing
    draw(report, tmp_path / "soak.svg")
    assert "sender" in (tmp_path / "soak.svg").read_text("utf-8")


@pytest.mark.parametrize(
    ("samples", "grows"),
    [
        pytest.param([100.0] * 30, False, id="level"),
        pytest.param([10.0 * n for n in range(10)] + [100.0] * 20, False, id="warm-up"),
        pytest.param([100.0 + n for n in range(30)], True, id="a slope"),
        pytest.param([100.0, 100.0, 105.0] * 10, False, id="outages"),
        pytest.param([100.0 + n // 3 for n in range(30)], True, id="one more each outage"),
        pytest.param([200.0 - n for n in range(30)], False, id="shrinking"),
        pytest.param([100.0] * 29 + [900.0], False, id="one peak"),
        pytest.param([100.0] * 20 + [101.0] * 10, True, id="a step in the last third"),
    ],
)
def test_growth_after_the_warm_up_is_not_flat(samples: list[float], grows: bool):
    assert trend(samples, NONE).is_flat is not grows


@pytest.mark.parametrize(
    ("allowance", "after", "is_flat"),
    [
        (Allowance(least=5), 105, True),
        (Allowance(least=5), 106, False),
        (Allowance(least=5, share=0.1), 110, True),
        (Allowance(least=5, share=0.1), 111, False),
    ],
)
def test_the_allowance_is_the_larger_of_an_amount_and_a_share(
    allowance: Allowance, after: float, is_flat: bool
):
    assert trend([100.0] * 6 + [after] * 3, allowance).is_flat is is_flat


def test_a_leak_of_one_descriptor_per_outage_is_found_in_twenty_minutes():
    outage = 30  # samples
    assert not trend([20.0 + n // outage for n in range(1200)], ALLOWANCES["descriptors"]).is_flat


def test_a_leak_of_a_hundred_bytes_per_message_is_found_in_twenty_minutes():
    kib_a_second = 100 * 200 / 1024  # at 200 messages a second
    assert not trend([40_000 + kib_a_second * n for n in range(1200)], ALLOWANCES["memory"]).is_flat


def test_too_few_samples_are_refused():
    with pytest.raises(ValueError, match="at least 9"):
        trend([1.0] * 8, NONE)


def test_the_resources_of_a_process_are_measured():
    before = usage_of(os.getpid())
    is_over, block = threading.Event(), b"x" * 32 * 1024 * 1024
    reading, writing = os.pipe()
    thread = threading.Thread(target=is_over.wait)
    thread.start()
    try:
        held = usage_of(os.getpid())
    finally:
        is_over.set()
        thread.join()
        os.close(reading)
        os.close(writing)
    assert len(block) // 1024 * 0.9 < held.memory - before.memory
    assert held.descriptors >= before.descriptors + 2
    assert held.threads >= before.threads + 1
    assert isinstance(held, Usage)


def test_the_kinds_of_outage_alternate_at_the_end_of_each_period():
    plan = Plan(seconds=120, period=30, down=10, rate=1, sample_every=1)
    assert list(plan.outages()) == [
        ("refuse", 20, 30),
        ("reset", 50, 60),
        ("silent", 80, 90),
        ("refuse", 110, 120),
    ]
