"""An independent implementation on DuckDB comes to the same verdicts over the same files."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from tests.audit import oracle
from tests.audit.audited import audited
from tests.audit.story import Story

MESSAGES = 2000


def write_at_random(directory: Path, seed: int) -> Counter[str]:
    """Stories of many messages; what really happened to them, counted while it is told."""
    rng, story, truth = random.Random(seed), Story(directory), Counter()
    sender, syphon, receiver = story.sender(), story.syphon(), story.receiver()
    for number in range(MESSAGES):
        key, luck = f"m{number}", rng.random()
        raised = rng.random() < 0.1
        if raised:
            sender.raised(key, ambiguous=rng.random() < 0.5)
        if luck < 0.02:
            sender.parked(key)
            syphon.set_aside(key, rng.choice(["MissingPath", "TTLExpiredException"]))
            continue
        if luck < 0.05 and raised:
            arrives = rng.random() < 0.5
            truth["recovered" if arrives else "not accepted"] += 1
        else:
            arrives = rng.random() > 0.01
            is_home = True
            if rng.random() < 0.6:
                sender.sent(key)
            else:
                sender.parked(key, number=rng.randrange(4))
                if is_home := arrives or rng.random() < 0.5:
                    syphon.forwarded(key)
            truth["delivered" if arrives else "unproven" if is_home else "lost"] += 1
        if arrives:
            receiver.received(key, numbers=(number + 1,))
    receiver.received("nobody's")
    receiver.received("sbpair-canary-9e2eacc70e99-probe")
    truth |= {"unexpected": 1, "canary": 1}
    story.now = 3600.0
    syphon.drained()
    receiver.emptied()
    story.end()
    return truth


@pytest.mark.spec("G-1", "G-2")
def test_two_engines_and_the_truth_agree_on_every_count(tmp_path: Path) -> None:
    truth = write_at_random(tmp_path / "journals", seed=20261121)

    found = audited(tmp_path / "journals", tmp_path / "out").summary.verdicts
    ours = {verdict.value: count for verdict, count in found.items() if count}
    theirs = oracle.verdicts(tmp_path / "journals")

    assert ours == theirs
    assert {name: ours[name] for name in truth} == dict(truth)
    assert sum(ours.values()) == MESSAGES + 2
