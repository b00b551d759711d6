"""The outcome of replaying all recorded exchanges, and the differences that are accepted, each with its reason."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from sbpair.broker import Broker
from tests.cloud.exchanges import Recording, recordings
from tests.cloud.replaying import Difference, HttpClient, Replayed, replay

ACCEPTED = Path(__file__).parent / "accepted.toml"
DRESS = {
    "reason",
    "missing header",
    "extra header",
    "header",
    "envelope",
    "extra",
    "order",
    "attribute",
    "error",
}
"""Kinds of differences in spite of which a client reads the same status, error code, entity and message."""

IN_WORDS = {
    "exchanges": "exchanges",
    "status": "with the same status",
    "client": "the same for a client, which reads status, error code, entity and message",
    "all": "the same in all that is compared",
}


@dataclass(frozen=True, slots=True)
class Acceptance:
    """Differences that stay: their kind, a pattern for where, for which exchanges, and the reason."""

    what: str
    reason: str
    where: str = ".*"
    of: str = ".*"

    def covers(self, replayed: Replayed, difference: Difference) -> bool:
        """Whether a difference is one of these."""
        return (
            re.fullmatch(self.what, difference.what) is not None
            and re.fullmatch(self.where, difference.where) is not None
            and re.fullmatch(self.of, replayed.label) is not None
        )


@cache
def accepted() -> Sequence[Acceptance]:
    """Return the accepted differences."""
    return [Acceptance(**each) for each in tomllib.loads(ACCEPTED.read_text("utf-8"))["accepted"]]


@cache
def replayed() -> Sequence[Replayed]:
    """Replay all recordings, each on a namespace of its own tier without entities."""
    return replayed_of(recordings())


def replayed_of(those: Sequence[Recording]) -> list[Replayed]:
    """Replay recordings, each on a namespace of its own tier without entities."""
    found: list[Replayed] = []
    for tier in dict.fromkeys(each.tier for each in those):
        with Broker({"contoso": 0}, tier=tier) as broker:
            contoso = broker.namespace("contoso")
            fields = dict(part.split("=", 1) for part in contoso.connection_string.split(";"))
            client = HttpClient(contoso.port, fields["SharedAccessKeyName"], fields["SharedAccessKey"])
            for recording in those:
                if recording.tier == tier:
                    found += replay(client, recording)
                    for name in (*contoso.topic_names(), *contoso.queue_names()):
                        _delete(contoso, name)
    return found


def _delete(contoso: object, name: str) -> None:
    topics = contoso.topic_names()  # type: ignore[attr-defined]
    (contoso.delete_topic if name in topics else contoso.delete_queue)(name)  # type: ignore[attr-defined]


def outcome(found: Iterable[Replayed]) -> Mapping[str, int]:
    """Return the figures, by the names of ``IN_WORDS``."""
    counts = dict.fromkeys(IN_WORDS, 0)
    for each in found:
        kinds = {difference.what for difference in each.differences}
        counts["exchanges"] += 1
        counts["status"] += "status" not in kinds
        counts["client"] += kinds <= DRESS
        counts["all"] += not kinds
    return counts
