"""The doctor's rules about a primary that is only half down: what the options of sender and syphon mean then. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from sbpair.pair.cli.output import age_text

from .facts import PairFacts
from .finding import ERROR, NOTE, WARNING, Finding, Rule

LONG_TIMEOUT = 30.0  # seconds: a caller that waits longer has usually given up


def _sender(facts: PairFacts) -> Iterator[Finding]:
    seen = facts.sender
    if seen is None:
        return
    if seen.trouble is not None:
        what = f"no sender answers: {seen.trouble}"
        yield Finding(ERROR, "sender", what, "its options are not checked", "check --sender-status")
        return
    if seen.failover_share is not None and seen.failover_share >= 1.0:
        what = "failover_share is 1.0: it fails over only after an interval without any success"
        why = "a primary that rejects 95 of 100 sends is never left, and those sends raise"
        yield Finding(WARNING, "sender", what, why, "leave failover_share at its default of 0.5")
    budget = seen.operation_timeout
    if budget is not None and budget >= LONG_TIMEOUT:
        what = f"a send without a timeout may take {age_text(budget)} (operation_timeout)"
        why = "while the primary is slow or silent, each caller waits that long" + (
            "" if seen.redirects_suspects else ", and in the first minute of an outage raises then"
        )
        step = "a shorter operation_timeout, or timeout= for each send, as long as its caller waits"
        yield Finding(NOTE, "sender", what, why, step)


def _syphon_pace(facts: PairFacts) -> Iterator[Finding]:
    if facts.syphon is not None and facts.syphon.is_unpaced:
        what = "no rate limits the syphon (max_rate)"
        why = "after an outage its pace grows until the primary is busy, and only then leaves room for live sends"
        step = "if the primary throttles: `sbpair syphon --max-rate`, below what it can take beyond your load"
        yield Finding(NOTE, "syphon", what, why, step)


RULES: tuple[Rule, ...] = (_sender, _syphon_pace)
