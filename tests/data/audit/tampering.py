"""Journals that were deleted, cut, copied, renamed, mixed, re-encoded or damaged, one file and one way at a time.

Every case begins with a story whose audit is green, or red for one reason. What is done to one file of it must not
turn red into green; and where something is missing then, green is not green any more, and the file's writer is named.
"""

from __future__ import annotations

import base64
import gzip
import json
import random
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from sbpair.audit import Expected, Summary
from sbpair.data.audit.read.writers import SHORT
from sbpair.data.audit.result.report import headline
from sbpair.pair.observation.manifest import ManifestEntry, manifest
from tests.data.audit.story import Story

IDS = tuple(f"m{number}" for number in range(8))
DAY = 86_400.0


@dataclass
class Play:
    """All roles of one pair, and what happens by default to each message: sent or parked, stored, received."""

    story: Story

    def __post_init__(self) -> None:
        story = self.story
        self.sender, self.syphon, self.receiver = story.sender(), story.syphon(), story.receiver()
        self.primary, self.secondary = story.broker(), story.broker(f"{story.primary}-dr")

    def goes(self, *ids: str) -> None:
        """These messages are sent, stored and received."""
        self.story.pause()
        self.sender.sent(*ids)
        self.primary.stored(*ids)
        self.arrives(*ids)

    def parks(self, *ids: str) -> None:
        self.story.pause()
        self.sender.parked(*ids)
        self.secondary.stored(*ids, number=0)

    def comes_home(self, *ids: str) -> None:
        self.story.pause()
        self.primary.stored(*ids)
        self.syphon.forwarded(*ids)
        self.secondary.removed(*ids, number=0)
        self.arrives(*ids)

    def arrives(self, *ids: str) -> None:
        self.receiver.received(*ids, numbers=tuple(int(each[1:]) + 1 for each in ids))
        self.primary.removed(*ids)

    def ends(self) -> None:
        self.story.now += 60.0
        self.syphon.drained()
        self.receiver.emptied()
        self.story.end()


def _healthy(play: Play) -> None:
    play.goes(*IDS[:4])
    play.parks(*IDS[4:])
    play.comes_home(*IDS[4:])


def _lost_in_the_backlog(play: Play) -> None:
    _healthy(play)
    play.story.pause()
    play.sender.parked("m8")
    play.secondary.stored("m8", number=0)
    play.secondary.removed("m8", number=0)


def _lost_on_the_primary(play: Play) -> None:
    _healthy(play)
    play.story.pause()
    play.sender.sent("m8")


def _one_copy_too_many(play: Play) -> None:
    _healthy(play)
    play.story.pause()
    play.receiver.received("m0", numbers=(99,))


def _out_of_order(play: Play) -> None:
    play.story.pause()
    play.sender.parked("m0", session="s")
    play.story.pause()
    play.sender.parked("m1", session="s")
    play.secondary.stored("m0", "m1", number=0)
    play.primary.stored("m1", "m0")
    play.syphon.forwarded("m1", "m0")
    play.secondary.removed("m0", "m1", number=0)
    play.receiver.received("m0", "m1", numbers=(2, 1), session="s")
    play.primary.removed("m0", "m1")


def _from_nobody(play: Play) -> None:
    _healthy(play)
    play.story.pause()
    play.primary.stored("m9")
    play.arrives("m9")


STORIES: dict[str, Callable[[Play], None]] = {
    "healthy": _healthy,
    "lost in the backlog": _lost_in_the_backlog,
    "lost on the primary": _lost_on_the_primary,
    "one copy too many": _one_copy_too_many,
    "out of order": _out_of_order,
    "from nobody": _from_nobody,
}
FILES = ("sender", "syphon", "receiver", "broker", "broker of the secondary")


@dataclass(frozen=True)
class Told:
    """A story's journals: a file for each of FILES, and the manifest that was made before anything was done to them."""

    directory: Path
    files: dict[str, str]
    writers: Sequence[ManifestEntry]


def told(name: str, directory: Path, start: float = 0.0) -> Told:
    """Tell the story ``name`` in ``directory``."""
    play = Play(Story(directory, now=start))
    STORIES[name](play)
    play.ends()
    journals = (play.sender, play.syphon, play.receiver, play.primary, play.secondary)
    files = {
        who: next(directory.glob(f"*{each.journal.writer}*")).name
        for who, each in zip(FILES, journals, strict=True)
    }
    return Told(directory, files, manifest(directory))


Deed = Callable[[Path, random.Random], None]
"""Does something to a file."""


def _rewritten(change: Callable[[bytes], bytes]) -> Deed:
    def deed(file: Path, luck: random.Random) -> None:
        file.write_bytes(change(file.read_bytes()))

    return deed


def _line_by_line(change: Callable[[bytes], bytes]) -> Deed:
    return _rewritten(lambda content: b"".join(change(line) + b"\n" for line in content.splitlines()))


def _with_lines(change: Callable[[list[bytes], random.Random], list[bytes]]) -> Deed:
    def deed(file: Path, luck: random.Random) -> None:
        file.write_bytes(b"".join(change(file.read_bytes().splitlines(keepends=True), luck)))

    return deed


def _a_middle(lines: list[bytes], luck: random.Random) -> int:
    return luck.randrange(1, len(lines) - 1)


def _without_one(lines: list[bytes], luck: random.Random) -> list[bytes]:
    gone = _a_middle(lines, luck)
    return lines[:gone] + lines[gone + 1 :]


def _with_one_twice(lines: list[bytes], luck: random.Random) -> list[bytes]:
    twice = _a_middle(lines, luck)
    return lines[: twice + 1] + lines[twice:]


def _cut_within_a_line(file: Path, luck: random.Random) -> None:
    content = file.read_bytes()
    file.write_bytes(content[: luck.randrange(content.rindex(b"\n", 0, -1))])


def _renamed(to: str) -> Deed:
    return lambda file, luck: file.rename(file.with_name(to.format(file.name))) and None


def _copied(to: str) -> Deed:
    def deed(file: Path, luck: random.Random) -> None:
        copy = file.parent / to.format(file.name)
        copy.parent.mkdir(exist_ok=True)
        copy.write_bytes(file.read_bytes())

    return deed


def _packed(file: Path, luck: random.Random) -> None:
    file.with_name(file.name + ".gz").write_bytes(gzip.compress(file.read_bytes()))
    file.unlink()


def _packed_and_cut(file: Path, luck: random.Random) -> None:
    content = gzip.compress(file.read_bytes())
    file.with_name(file.name + ".gz").write_bytes(content[: luck.randrange(len(content))])
    file.unlink()


def _flipped(file: Path, luck: random.Random) -> None:
    """One bit before the closing record."""
    content = bytearray(file.read_bytes())
    content[luck.randrange(content.rindex(b"\n", 0, -1))] ^= 1 << luck.randrange(8)
    file.write_bytes(content)


def _flipped_at_the_end(file: Path, luck: random.Random) -> None:
    content = bytearray(file.read_bytes())
    content[luck.randrange(content.rindex(b"\n", 0, -1) + 1, len(content))] ^= 1 << luck.randrange(8)
    file.write_bytes(content)


def _one_byte_less(file: Path, luck: random.Random) -> None:
    content = file.read_bytes()
    place = luck.randrange(content.rindex(b"\n", 0, -1))
    file.write_bytes(content[:place] + content[place + 1 :])


def _overwritten(file: Path, luck: random.Random) -> None:
    """A block of zeros, as a disk leaves it after a power cut."""
    content = bytearray(file.read_bytes())
    place = luck.randrange(content.rindex(b"\n", 0, -1))
    size = len(content[place : place + 64])
    content[place : place + 64] = bytes(size)
    file.write_bytes(content)


def _later(line: bytes, hours: int) -> bytes:
    def moved(match: re.Match[bytes]) -> bytes:
        return b'"at":"%b%02d' % (match[1], (int(match[2]) + hours) % 24)

    return re.sub(rb'"at":"([^T]+T)(\d\d)', moved, line)


def _with_half_later(lines: list[bytes], luck: random.Random) -> list[bytes]:
    at = _a_middle(lines, luck)
    return lines[:at] + [_later(line, 2) for line in lines[at:]]


def _one_event_renamed(lines: list[bytes], luck: random.Random) -> list[bytes]:
    at = _a_middle(lines, luck)
    return [*lines[:at], lines[at].replace(b'"event":"', b'"event":"old_'), *lines[at + 1 :]]


def _ids_emptied(lines: list[bytes], luck: random.Random) -> list[bytes]:
    return [re.sub(rb'"m\d"', b'""', line) for line in lines]


def _one_id_changed(lines: list[bytes], luck: random.Random) -> list[bytes]:
    named = [number for number, line in enumerate(lines) if re.search(rb'"m\d"', line)]
    at = luck.choice(named)
    return [*lines[:at], re.sub(rb'"m(\d)"', b'"m0"', lines[at], count=1), *lines[at + 1 :]]


def _with_lines_of_another_run(file: Path, luck: random.Random) -> None:
    other = _other_run(file)
    file.write_bytes(file.read_bytes() + other.read_bytes())
    shutil.rmtree(other.parent)


def _beside_one_of_another_run(file: Path, luck: random.Random) -> None:
    other = _other_run(file)
    other.rename(file.parent / other.name)
    shutil.rmtree(other.parent)


def _replaced_by_one_of_another_run(file: Path, luck: random.Random) -> None:
    other = _other_run(file)
    file.write_bytes(other.read_bytes())
    shutil.rmtree(other.parent)


def _other_run(file: Path) -> Path:
    """The journal of the same role in a healthy run on the next day, with the same ids."""
    folder = file.parent / "other"
    other = told("healthy", folder, DAY)
    role = file.name.partition("-")[0]
    return folder / other.files[role]


def _spelled_anew(content: bytes) -> bytes:
    return b"".join(json.dumps(json.loads(line)).encode() + b"\n" for line in content.splitlines())


@dataclass(frozen=True)
class Tampering:
    """Something that is done to a file; ``hides``: records are missing or changed then, which must be seen."""

    deed: Deed
    hides: bool = True


TAMPERINGS: dict[str, Tampering] = {
    "deleted": Tampering(lambda file, luck: file.unlink()),
    "emptied": Tampering(_rewritten(lambda content: b"")),
    "cut after a line": Tampering(
        _with_lines(lambda lines, luck: lines[: luck.randrange(1, len(lines) - 1)])
    ),
    "cut within a line": Tampering(_cut_within_a_line),
    "without its beginning": Tampering(_with_lines(lambda lines, luck: lines[_a_middle(lines, luck) :])),
    "without a line": Tampering(_with_lines(_without_one)),
    "with a line twice": Tampering(_with_lines(_with_one_twice)),
    "copied into a folder": Tampering(_copied("copy/{}")),
    "copied under another name": Tampering(_copied("copy-of-{}")),
    "copied with its name in full": Tampering(_copied("{}.bak")),
    "renamed to .bak": Tampering(_renamed("{}.bak")),
    "renamed to .txt": Tampering(_renamed("journal.txt")),
    "renamed to an open one": Tampering(_renamed("_open-{}"), hides=False),
    "renamed to another journal": Tampering(_renamed("sender-x-000001.jsonl"), hides=False),
    "hidden": Tampering(_renamed(".{}")),
    "with lines of another run": Tampering(_with_lines_of_another_run),
    "beside one of another run": Tampering(_beside_one_of_another_run),
    "replaced by one of another run": Tampering(_replaced_by_one_of_another_run),
    "hours late": Tampering(_line_by_line(lambda line: _later(line, 2))),
    "hours early": Tampering(_line_by_line(lambda line: _later(line, -2))),
    "late from one line on": Tampering(_with_lines(_with_half_later)),
    "in UTF-16": Tampering(_rewritten(lambda content: content.decode().encode("utf-16"))),
    "with a byte order mark": Tampering(_rewritten(lambda content: b"\xef\xbb\xbf" + content), hides=False),
    "with carriage returns": Tampering(
        _rewritten(lambda content: content.replace(b"\n", b"\r\n")), hides=False
    ),
    "in base64": Tampering(_rewritten(base64.b64encode)),
    "spelled anew": Tampering(_rewritten(_spelled_anew), hides=False),
    "on one line": Tampering(_rewritten(lambda content: content.replace(b"\n", b" ") + b"\n")),
    "packed": Tampering(_packed, hides=False),
    "packed and cut": Tampering(_packed_and_cut),
    "with its lines backwards": Tampering(_with_lines(lambda lines, luck: lines[::-1]), hides=False),
    "with an event renamed": Tampering(_with_lines(_one_event_renamed)),
    "with its ids emptied": Tampering(_with_lines(_ids_emptied)),
    "with an id changed": Tampering(_with_lines(_one_id_changed), hides=False),
    "with a bit flipped": Tampering(_flipped),
    "with a bit of its end flipped": Tampering(_flipped_at_the_end, hides=False),
    "without a byte": Tampering(_one_byte_less),
    "with a block of zeros": Tampering(_overwritten),
}


@dataclass(frozen=True)
class Case:
    """One story, one of its files, and what is done to it with the luck of ``seed``."""

    story: str
    file: str
    tampering: str
    seed: int

    def __str__(self) -> str:
        return f"{self.story}: the {self.file} {self.tampering} ({self.seed})"


def cases(seeds: Sequence[int]) -> Iterator[Case]:
    """Every story, file and tampering, once for each of ``seeds``."""
    for seed in seeds:
        for story in STORIES:
            for file in FILES:
                yield from (Case(story, file, tampering, seed) for tampering in TAMPERINGS)


def tampered(case: Case, original: Told, directory: Path) -> Expected:
    """A copy of the journals in ``directory``, with one file tampered with, and what an audit of it should expect."""
    shutil.copytree(original.directory, directory)
    TAMPERINGS[case.tampering].deed(directory / original.files[case.file], random.Random(str(case)))
    return Expected(writers=original.writers)


def what_is_wrong(case: Case, original: Told, summary: Summary) -> str | None:
    """Why the audit of a case does not hold: it is green by mistake, or does not say what is wrong; else None."""
    hides = TAMPERINGS[case.tampering].hides
    if summary.is_conserved:
        return "green by mistake" if case.story != "healthy" or hides else None
    said = [headline(summary), *summary.missed, *summary.reasons, *(each.name for each in summary.unread)]
    said += [f"{each.writer} {each.reason}" for each in summary.writers if each.reason]
    said += [each.message_id for each in summary.troubles]
    file = original.files[case.file]
    writer = next(each.writer for each in original.writers if each.writer in file)
    text = "\n".join(said)
    return None if not hides or writer[:SHORT] in text or "another run" in text else "not named"
