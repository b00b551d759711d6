"""Events on the caller's span: what an outage does to one send."""

from __future__ import annotations

from collections.abc import Iterator

from sbpair.pair.tracing.current import Attributes, Tracing

from ..decide.pair import Pair, Result, SendFlow
from ..events import EntityFailedOver, MessageParked, MessageSpooled, PairingEvent
from ..outcome import Outcome


def note(flow: SendFlow, pair: Pair, tracing: Tracing) -> SendFlow:
    """The same flow, which adds what it does to the span of its caller. Advance it where ``flow`` may be advanced."""
    result: Result | None = None
    try:
        while True:
            before = pair.pending_events
            try:
                step = next(flow) if result is None else flow.send(result)
            except StopIteration as finished:
                outcome: Outcome = finished.value
                return outcome
            finally:
                for name, attributes in _span_events(pair.events_since(before)):
                    tracing.note(name, attributes)
            result = yield step
    finally:
        flow.close()


def _span_events(happened: list[PairingEvent]) -> Iterator[tuple[str, Attributes]]:
    for event in happened:
        match event:
            case EntityFailedOver(path=path, cause=cause):
                yield "sbpair.failover", {"messaging.destination.name": path, "sbpair.cause": cause}
            case MessageParked(path=path, backlog=backlog, count=count, ambiguous=ambiguous):
                attributes = _stored_attributes(path, count, ambiguous)
                yield "sbpair.parked", {**attributes, "sbpair.backlog": backlog}
            case MessageSpooled(path=path, count=count, ambiguous=ambiguous):
                yield "sbpair.spooled", _stored_attributes(path, count, ambiguous)


def _stored_attributes(path: str, count: int, ambiguous: bool) -> Attributes:
    return {
        "messaging.destination.name": path,
        "messaging.batch.message_count": count,
        "sbpair.ambiguous": ambiguous,
    }
