"""The numbers that the broker announces and grants over AMQP: those of the service, or larger ones.

The service's were seen in frame logs that users published, 2017 to 2026. Programs that break on them (several frames
for a message, 255 links in a session, a window of 5,000 frames, answers that a client must settle) break here too. The
larger ones are for tests that move many messages and do not depend on these limits.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from uuid import uuid4

from sbpair.pair.amqp.limits import Limits
from sbpair.pair.amqp.performatives import Open

_SHORTEST_IDLE, _LONGEST_IDLE = 120_000, 240_000  # milliseconds


@dataclass(frozen=True, slots=True)
class WireNumbers:
    """The limits that the broker announces in open, begin and attach, and the credit of request links.

    ``answers_settled``: answers of $cbs and $management are sent settled. ``largest_claim``: the max-message-size that
    $cbs announces, whatever it accepts. ``first_delivery_id``: of each session.
    """

    max_frame_size: int
    handle_max: int
    limits: Limits
    request_credit: int
    answers_settled: bool
    largest_claim: int
    first_delivery_id: int


SERVICE = WireNumbers(
    max_frame_size=65_536,
    handle_max=255,
    limits=Limits(incoming_window=5_000, outgoing_window=None),
    request_credit=100,
    answers_settled=False,
    largest_claim=2**64 - 1,
    first_delivery_id=0,
)
FAST = WireNumbers(
    max_frame_size=1_048_576,
    handle_max=1023,
    limits=Limits(),
    request_credit=200,
    answers_settled=True,
    largest_claim=65_536,
    # far from the client's own ids, since the Python SDK mixes up the two directions
    first_delivery_id=2**30,
)


def container_id() -> str:
    """Return a container id in the service's form, of a gateway."""
    return f"{uuid4().hex}_G0"


def answer_open(ours: Open, theirs: Open) -> Open:
    """Return our open in answer to a client's: frames no larger than the client's, and its pace of heartbeats."""
    idle = theirs.idle_time_out
    span = _LONGEST_IDLE if not idle else max(_SHORTEST_IDLE, min(_LONGEST_IDLE, 2 * idle))
    return replace(
        ours,
        max_frame_size=min(ours.max_frame_size, theirs.max_frame_size),
        idle_time_out=span,
    )
