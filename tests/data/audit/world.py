"""A day of one pair as its journals tell it, which an incident changes before they are written.

The rows are what writers would have written, so what an incident leaves is sealed anew: ordinals, counts and checksums
are right, and only what happened differs. What happens to a file is done to the file that was written.
"""

from __future__ import annotations

import copy
import json
import tempfile
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any

from sbpair.broker.entities.audit_recorder import Arrival, Removal
from sbpair.observation import MessagesReceived
from sbpair.pair.syphon.status import SyphonCounters
from tests.data.audit.story import NOON, Broker, Receiver, Sender, Story

Row = dict[str, Any]
WRITERS = ("sender", "syphon", "receiver", "primary", "secondary")
SHAPES = {  # who keeps a journal
    "all": WRITERS,
    "cloud": ("sender", "syphon", "receiver"),
    "senders and syphons": ("sender", "syphon"),
}
LISTS = ("message_ids", "session_ids", "sequence_numbers", "enqueued", "checksums")
DIRECT = tuple(f"d{number:02}" for number in range(24))
PARKED = tuple(f"p{number:02}" for number in range(12))
IN_SESSION = PARKED[:4]
PUBLISHED = tuple(f"t{number}" for number in range(4))
SUBSCRIPTIONS = ("events/Subscriptions/a", "events/Subscriptions/b")


@dataclass
class World:
    """The rows of each writer, in order, without those that begin and end a file."""

    rows: dict[str, list[Row]] = field(default_factory=dict)
    edges: dict[str, tuple[Row, Row]] = field(
        default_factory=dict
    )  # the first record of each journal, and the last
    names: dict[str, str] = field(default_factory=dict)  # of the file of each writer

    def copy(self) -> World:
        return copy.deepcopy(self)

    def drop(
        self, who: str, ids: Iterable[str], *events: str, path: str | None = None, keep: str = ""
    ) -> None:
        """Take messages out of the rows of these events, or of all; not out of those that say ``how`` as ``keep``."""
        gone, kept = set(ids), []
        for row in self.rows[who]:
            is_other = (events and row["event"] not in events) or (path is not None and row["path"] != path)
            if is_other or (keep and row.get("how") == keep):
                kept.append(row)
            elif "message_ids" in row:
                rest = [index for index, each in enumerate(row["message_ids"]) if each not in gone]
                lists = {name: [row[name][index] for index in rest] for name in LISTS if row.get(name)}
                if rest:
                    kept.append({**row, **lists, **({"count": len(rest)} if "count" in row else {})})
            elif row.get("message_id") not in gone:
                kept.append(row)
        self.rows[who] = kept

    def first(self, who: str, event: str, message: str) -> Row:
        """The first row of this event that names the message."""
        return next(row for row in self.of(who, event) if message in row["message_ids"])

    def of(self, who: str, *events: str) -> list[Row]:
        return [row for row in self.rows[who] if row["event"] in events]

    def again(self, who: str, told: str, message: str, **changes: object) -> None:
        """Write the row ``told`` of a message once more, about it alone and with ``changes``, right after it."""
        row = self.first(who, told, message)
        index = row["message_ids"].index(message)
        lists = {name: [row[name][index]] for name in LISTS if row.get(name)}
        count = {"count": 1} if "count" in row else {}
        self.rows[who].insert(self.rows[who].index(row) + 1, {**row, **lists, **count, **changes})

    def shift(self, who: str, seconds: float, since: int = 0) -> None:
        """Set a writer's clock forward."""
        for row in (*self.rows[who][since:], *(self.edges[who] if not since else ())):
            at = datetime.fromisoformat(row["at"]) + timedelta(seconds=seconds)
            row["at"] = at.isoformat(timespec="milliseconds").replace("+00:00", "Z")

    def write(self, directory: Path, shape: str, files: int = 1) -> dict[str, list[Path]]:
        """Write each journal in so many files, as its writer would have closed them; returns those of each writer."""
        directory.mkdir(parents=True, exist_ok=True)
        return {who: list(self._write(directory, who, files)) for who in SHAPES[shape]}

    def files(self, directory: Path, who: str) -> list[Path]:
        """The files of a writer that are there."""
        return sorted(directory.glob(f"{self.names[who].rpartition('-')[0]}-*"))

    def _write(self, directory: Path, who: str, files: int) -> Iterator[Path]:
        rows, ordinal = self.rows[who], 0
        size = max(1, -(-len(rows) // files))
        parts = [rows[start : start + size] for start in range(0, len(rows), size)] or [[]]
        opened, closed = self.edges[who]
        for number, part in enumerate(parts, 1):
            last = {**(part[-1] if number < len(parts) else closed)}
            inside = [{**_at(opened, part[0] if number > 1 else opened), "file": number}, *part]
            lines = [_line({**row, "ordinal": ordinal + place}) for place, row in enumerate(inside)]
            ordinal += len(lines)
            end = {"file": number, "records": len(lines) + 1, "lost": 0, "is_last": number == len(parts),
                   "checksum": sum(map(zlib.crc32, lines)), "ordinal": ordinal}  # fmt: skip
            lines.append(_line({**_at(closed, last), **end}))
            ordinal += 1
            file = directory / f"{self.names[who].rpartition('-')[0]}-{number:06}.jsonl"
            file.write_bytes(b"".join(line + b"\n" for line in lines))
            yield file


def _at(row: Row, other: Row) -> Row:
    """``row`` at the time of another."""
    return {**row, "at": other["at"], "mono": other["mono"]}


def _line(row: Row) -> bytes:
    return json.dumps(row, separators=(",", ":"), ensure_ascii=False).encode()


@cache
def _day() -> World:
    with tempfile.TemporaryDirectory() as place:
        directory, found = Path(place), World()
        for who, writer in zip(WRITERS, _told(Story(directory)), strict=True):
            (file,) = directory.glob(f"*{writer}*")
            opened, *found.rows[who], closed = (json.loads(line) for line in file.read_bytes().splitlines())
            found.edges[who], found.names[who] = (opened, closed), file.name
        for row in found.of("primary", "messages_stored", "messages_removed"):  # as receivers have them
            row["sequence_numbers"] = [number_of(each) for each in row["message_ids"]]
        told = ("send_accepted", "message_parked", "messages_received")
        for row in (*found.of("sender", *told), *found.of("receiver", *told)):
            row["checksums"] = [zlib.crc32(f"the body of {each}".encode()) for each in row["message_ids"]]
        return found


def a_day() -> World:
    """Messages go straight, are parked and come home, and are published; all of them arrive."""
    return _day().copy()


def _told(story: Story) -> list[str]:
    sender, syphon, receiver = story.sender(), story.syphon(), story.receiver()
    primary, secondary = story.broker(), story.broker(f"{story.primary}-dr")
    story.now += 5.0  # by now every journal has begun
    for number in range(0, 12, 2):
        _goes(story, sender, primary, receiver, DIRECT[number : number + 2])
    for message in PUBLISHED:
        _published(story, sender, primary, receiver, message)
    for number, message in enumerate(PARKED):
        story.now += 0.5
        sender.parked(message, number=number % 2, session="s" if message in IN_SESSION else "")
        secondary.stored(message, number=number % 2)
    for number in (0, 1):
        story.now += 2.0
        ids = PARKED[number::2]
        for message in ids:
            primary.stored(message, session="s" if message in IN_SESSION else "")
        syphon.forwarded(*ids, number=number)
        secondary.removed(*ids, number=number)
    for message in PARKED:
        _arrives(story, primary, receiver, (message,), "s" if message in IN_SESSION else "")
    for number in range(12, 24, 2):
        _goes(story, sender, primary, receiver, DIRECT[number : number + 2])
    story.now += 10.0
    syphon.drained()
    for path in ("orders", *SUBSCRIPTIONS):
        receiver.emptied(path)
    count = len(PARKED)
    syphon.journal.write(SyphonCounters(received=count, forwarded=count, completed=count, receives=9))
    sender.raised("nowhere")
    story.now += 10.0
    story.end()
    return [each.journal.writer for each in (sender, syphon, receiver, primary, secondary)]


def _goes(story: Story, sender: Sender, primary: Broker, receiver: Receiver, ids: tuple[str, ...]) -> None:
    story.now += 1.0
    primary.stored(*ids)
    sender.sent(*ids)
    _arrives(story, primary, receiver, ids)


def _published(story: Story, sender: Sender, primary: Broker, receiver: Receiver, message: str) -> None:
    story.now += 1.0
    primary.stored(message, path="events")
    primary.removed(message, path="events", how=Removal.PUBLISHED)
    sender.sent(message, path="events")
    for path in SUBSCRIPTIONS:
        primary.stored(message, path=path, how=Arrival.PUBLISHED)
        _arrives(story, primary, receiver, (message,), path=path)


def _arrives(
    story: Story,
    primary: Broker,
    receiver: Receiver,
    ids: tuple[str, ...],
    session: str = "",
    path: str = "orders",
) -> None:
    enqueued = tuple(round((NOON + story.now) * 1000) for _ in ids)
    story.now += 0.2
    numbers = tuple(number_of(each) for each in ids)
    receiver.journal.write(MessagesReceived(path, ids, tuple(session for _ in ids), numbers, enqueued))
    primary.removed(*ids, path=path)


def number_of(message: str) -> int:
    """The sequence number of a message of this world."""
    return 1 + (*DIRECT, *PARKED, *PUBLISHED).index(message)
