"""What an audit expects to find: journals that are missing altogether are missed by nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from sbpair.pair.observation.manifest import ManifestEntry

from .read.writers import SHORT, WriterFacts


@dataclass(frozen=True)
class Expected:
    """The number of writers by role, and the writers of manifests. Empty: whatever is there."""

    counts: Mapping[str, int] = field(default_factory=dict)
    writers: Sequence[ManifestEntry] = ()

    def differences(self, found: Iterable[WriterFacts]) -> list[str]:
        """What is missing, shorter than it was, or not expected, a sentence for each."""
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
        """Journals of a role that manifests list, but not this writer: of another run, for example."""
        roles, known = {each.role for each in self.writers}, {each.writer for each in self.writers}
        return [
            f"the journal of the {each.role} {each.writer[:SHORT]} is in no manifest: is it of another run?"
            for each in found
            if each.role in roles and each.writer not in known
        ]
