"""What users saw the service send over AMQP, from logs that they published: `amqp.jsonl`, a fact a line."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

DATA = Path(__file__).parent / "amqp.jsonl"


@dataclass(frozen=True, slots=True)
class Fact:
    """What the service sent, when, to which client, and where that was published.

    ``test``: the test that shows the broker to do the same; ``accepted``: why it does otherwise.
    """

    id: str
    topic: str
    when: str
    seen: str
    client: str
    year: int
    source: str
    test: str | None = None
    accepted: str | None = None


@cache
def facts() -> Sequence[Fact]:
    """Return all facts."""
    return [Fact(**json.loads(line)) for line in DATA.read_text("utf-8").splitlines()]
