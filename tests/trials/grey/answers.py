"""How a primary that is only half down answers an attempt: the models of the scenarios in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf, log
from random import Random

from sbpair.pair.pairing.outcome import Classification, Failure

USUAL = 0.02  # seconds
HINT = 2.0  # seconds
PARTITIONS = 16
DEVIATIONS_TO_P99 = 2.3263  # of a normal distribution
REJECTED = Classification(Failure.UNAVAILABLE, "rejected by the model")
BUSY = Classification(Failure.BUSY, "busy by the model", retry_after=HINT)
SILENT = Classification(Failure.UNAVAILABLE, "no answer from the model", is_ambiguous=True)


@dataclass(frozen=True, slots=True)
class Answer:
    """What comes ``after`` so many seconds, infinity for never; without a ``refusal`` the message is accepted."""

    refusal: Classification | None = None
    after: float = USUAL


ACCEPTED = Answer()
Answers = Callable[[float, str | None, Random], Answer]
"""The answer to an attempt at this second, for a message with this key."""


def rejecting(share: float) -> Answers:
    """A primary that rejects this share of all attempts."""
    return lambda now, key, rng: Answer(REJECTED) if rng.random() < share else ACCEPTED


def flapping(up: float, down: float) -> Answers:
    """A primary that is up and down in turn, for these seconds."""
    return lambda now, key, rng: Answer(REJECTED) if now % (up + down) >= up else ACCEPTED


def silent(share: float) -> Answers:
    """A primary that never answers this share of all attempts, nor stores their messages."""
    return lambda now, key, rng: Answer(SILENT, inf) if rng.random() < share else ACCEPTED


def slow(seconds: float) -> Answers:
    """A primary that accepts everything, after so many seconds."""
    return lambda now, key, rng: Answer(after=seconds)


def uneven(median: float, p99: float) -> Answers:
    """A healthy primary whose answers take times of a log-normal distribution."""
    mu, sigma = log(median), log(p99 / median) / DEVIATIONS_TO_P99
    return lambda now, key, rng: Answer(after=rng.lognormvariate(mu, sigma))


def pausing(every: float, seconds: float) -> Answers:
    """A healthy primary that answers nothing for some seconds of each period, and then all that waits."""

    def answer(now: float, key: str | None, rng: Random) -> Answer:
        left = every - now % every
        return Answer(after=left + USUAL) if left <= seconds else ACCEPTED

    return answer


def failing_in(spans: tuple[tuple[float, float], ...]) -> Answers:
    """A healthy primary that rejects all attempts from the one to the other second of these spans."""
    return lambda now, key, rng: (
        Answer(REJECTED) if any(first <= now < last for first, last in spans) else ACCEPTED
    )


def busy(share: float, hint: float | None = HINT) -> Answers:
    """A primary that answers *busy* to this share, and how long to wait, or not."""
    refusal = BUSY._replace(retry_after=hint)
    return lambda now, key, rng: Answer(refusal) if rng.random() < share else ACCEPTED


def one_partition(refusal: Classification) -> Answers:
    """A primary of 16 partitions, of which one refuses everything for this reason."""

    def answer(now: float, key: str | None, rng: Random) -> Answer:
        partition = rng.randrange(PARTITIONS) if key is None else int(key) % PARTITIONS
        return ACCEPTED if partition else Answer(refusal)

    return answer
