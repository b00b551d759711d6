"""Manifests: which journals were written where, so that an audit misses those that never arrived.

    journals in DIR  --manifest()-->  {"manifest": 1, "writers": [{"writer": ..., "records": 120}, ...]}

A manifest is made where the journals were written, before they are copied, and goes to the audit beside them.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from .journal_reading import OPEN_PREFIX, JournalError

VERSION = 1


@dataclass(frozen=True, slots=True)
class ManifestEntry:
    """One writer: its role, the names of its pair, and how many records its files have."""

    writer: str
    role: str
    primary: str
    secondary: str
    records: int


@dataclass(frozen=True, slots=True)
class Accepted:
    """The number of messages for which a verdict such as ``deleted`` is accepted, and the reason."""

    verdict: str
    count: int
    reason: str


def manifest(directory: str | Path) -> list[ManifestEntry]:
    """Return the writers of the journals below ``directory``, by role and writer.

    Raises JournalError for a file whose first line is not a record of a journal, and OSError when one cannot be read.
    """
    found: dict[str, ManifestEntry] = {}
    for path in _files(Path(directory)):
        entry = _entry(path)
        if entry is not None:
            known = found.get(entry.writer)
            records = entry.records + (known.records if known is not None else 0)
            found[entry.writer] = ManifestEntry(
                entry.writer, entry.role, entry.primary, entry.secondary, records
            )
    return sorted(found.values(), key=lambda each: (each.role, each.writer))


def as_text(entries: list[ManifestEntry], accepted: Sequence[Accepted] = ()) -> str:
    """Return a manifest as JSON."""
    content: dict[str, object] = {"manifest": VERSION, "writers": [asdict(each) for each in entries]}
    if accepted:
        content["accepted"] = [asdict(each) for each in accepted]
    return json.dumps(content, indent=1) + "\n"


def parse_accepted(text: str) -> list[Accepted]:
    """Return the accepted deviations in a manifest. Raises JournalError if it is malformed."""
    try:
        return [
            Accepted(str(each["verdict"]), int(each["count"]), str(each["reason"]))
            for each in json.loads(text).get("accepted", ())
        ]
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise JournalError("not a manifest: `accepted` is a list of verdict, count and reason") from error


def parse(text: str) -> list[ManifestEntry]:
    """Return the entries of a manifest. Raises JournalError if ``text`` is no manifest or has another version."""
    try:
        content = json.loads(text)
        if content["manifest"] != VERSION:
            raise JournalError(f"a manifest of version {content['manifest']!r}; this is version {VERSION}")
        return [
            ManifestEntry(
                str(each["writer"]), str(each["role"]), str(each["primary"]), str(each["secondary"]),
                int(each["records"]),
            )
            for each in content["writers"]
        ]  # fmt: skip
    except (ValueError, LookupError, TypeError) as error:
        if isinstance(error, JournalError):
            raise
        raise JournalError("not a manifest: `sbpair journal manifest DIR` makes one") from error


def _files(directory: Path) -> Iterator[Path]:
    """Yield the journal files below ``directory``.

    A file that exists with and without .gz, or open and closed, counts once.
    """
    plain = {path for path in directory.rglob("*.jsonl") if not _is_left_of(path)}
    packed = {path for path in directory.rglob("*.jsonl.gz") if path.with_suffix("") not in plain}
    return iter(sorted(plain | packed, key=lambda path: path.name.removeprefix(OPEN_PREFIX)))


def _is_left_of(path: Path) -> bool:
    """Whether the closed form of this open file exists too."""
    return path.name.startswith(OPEN_PREFIX) and path.with_name(path.name.removeprefix(OPEN_PREFIX)).exists()


def _entry(path: Path) -> ManifestEntry | None:
    """Return the writer of a file and the number of its complete lines; None if it has none."""
    with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
        first = file.readline()
        if not first.endswith(b"\n"):
            return None
        try:
            record = json.loads(first)
            pair = record["pair"]
            writer, role, primary, secondary = (
                record["writer"],
                record["role"],
                pair["primary"],
                pair["secondary"],
            )
        except (ValueError, LookupError, TypeError) as error:
            raise JournalError(f"{path}, line 1: not a record") from error
        return ManifestEntry(writer, role, primary, secondary, 1 + sum(line.endswith(b"\n") for line in file))
