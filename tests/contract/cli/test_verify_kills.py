"""`sbpair verify` killed at random moments: what it leaves is found, and nothing else."""

from __future__ import annotations

import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from sbpair.broker import Broker
from tests.pair.cli.conftest import Run, environment

KILLS, AT_A_TIME = 20, 4
SUBJECTS = ("sending", "locks", "topics", "forwarding")


def _killed(moment: float, broker: Broker) -> int:
    """Start a run and kill it ``moment`` seconds after it has begun; its exit code."""
    arguments = ["verify", "--yes", "--ca-file", str(broker.ca_file)]
    for subject in SUBJECTS:
        arguments += ["--only", subject]
    process = subprocess.Popen(
        [sys.executable, "-m", "sbpair", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=environment(
            SBPAIR_PRIMARY=broker.namespace("contoso").connection_string,
            SBPAIR_SECONDARY=broker.namespace("contoso-dr").connection_string,
        ),
    )
    with process:
        assert process.stdout is not None
        assert any(line.startswith("It takes") for line in process.stdout), "it has not begun"
        try:
            return process.wait(moment)
        except subprocess.TimeoutExpired:
            process.kill()
            return process.wait()


@pytest.mark.long
@pytest.mark.trial
@pytest.mark.spec("K-1")
def test_clean_removes_the_remains_of_twenty_kills_and_nothing_else(broker: Broker, sbpair: Run) -> None:
    moments = random.Random(20)
    contoso = broker.namespace("contoso")
    contoso.create_topic("events")
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        codes = list(
            pool.map(
                lambda moment: _killed(moment, broker), [moments.uniform(0.0, 4.0) for _ in range(KILLS)]
            )
        )
    left = [*contoso.queue_names(), *contoso.topic_names()]
    done = sbpair(
        "verify", "--clean", "--yes", "--ca-file", str(broker.ca_file),
        SBPAIR_PRIMARY=contoso.connection_string,
        SBPAIR_SECONDARY=broker.namespace("contoso-dr").connection_string,
    )  # fmt: skip

    assert codes.count(-9) > KILLS // 2
    assert len(left) > 2, "no kill left anything: the moments are wrong"
    assert done.returncode == 0, done.stderr
    assert (contoso.queue_names(), contoso.topic_names()) == (["orders"], ["events"])
