"""The journals that an audit expects; without this list, a journal that is missing completely would go unnoticed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from sbpair.pair.observation.manifest import Accepted, ManifestEntry

from .read.writers import SHORT, WriterFacts


@dataclass(frozen=True)
class Expected:
    """The number of writers by role, and the writers in manifests. If empty, any set of journals is accepted.

    ``accepted``: the numbers of messages by verdict that manifests declare as intended.
    """

    counts: Mapping[str, int] = field(default_factory=dict)
    writers: Sequence[ManifestEntry] = ()
    accepted: Sequence[Accepted] = ()

    def all_accepted(self, given: Mapping[str, int]) -> dict[str, int]:
        """Return the accepted number of messages per verdict, from manifests and ``given`` together."""
        count = Counter(given)
        for each in self.accepted:
            count[each.verdict] += each.count
        return dict(count)

    def differences(self, found: Iterable[WriterFacts]) -> list[str]:
        """Return a sentence for each journal that is missing, shorter than before, or unexpected."""
        facts = {each.writer: each for each in found}
        count = Counter(each.role for each in facts.values())
        wrong = [
            f"{expected} journals of {role}s are expected, there are {count[role]}"
            for role, expected in self.counts.items()
            if count[role] != expected
        ]
        for entry in self.writers:
            there, who = facts.get(entry.writer), f"the journal of the {entry.role} {entry.writer[:SHORT]}"
            if there is None:
                wrong.append(f"{who} is missing")
            elif there.records < entry.records:
                wrong.append(f"{who} has {there.records} of {entry.records} records")
        return wrong + self._strangers(facts.values())

    def _strangers(self, found: Iterable[WriterFacts]) -> list[str]:
        """Return the journals whose role is in manifests but whose writer is not, for example of another run."""
        roles, known = {each.role for each in self.writers}, {each.writer for each in self.writers}
        return [
            f"the journal of the {each.role} {each.writer[:SHORT]} is in no manifest: is it of another run?"
            for each in found
            if each.role in roles and each.writer not in known
        ]
