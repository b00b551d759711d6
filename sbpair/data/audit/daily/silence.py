"""Silence: journals that should have had a record by now."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

from ..read.clocks import moment
from ..read.writers import WriterFacts, greatest


def silences(writers: Iterable[WriterFacts], heartbeats: Mapping[str, float], now: datetime) -> list[str]:
    """A sentence for each role whose journals have no record of the last ``heartbeats`` seconds before ``now``."""
    known = list(writers)
    found = []
    for role, within in heartbeats.items():
        last = greatest(each.last_at for each in known if each.role == role)
        if last is None:
            found.append(f"no journal of a {role} has a record")
        elif (silent := (now - moment(last)).total_seconds()) > within:
            found.append(
                f"the journals of {role}s are silent since {moment(last):%Y-%m-%d %H:%M:%S} UTC, "
                f"{silent:.0f} s ago; a record is expected every {within:g} s"
            )
    return found
