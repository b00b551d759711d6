"""Incidents, and what an audit owes to each: a generator that takes three lines for another one.

    @incident(Owed.RED)
    def the_primary_loses_messages(day: Day) -> None:
        day.vanish(day.some(), "primary", "receiver")

What happens to whom, how often, in which files, and who keeps journals is drawn by luck (:func:`drawn`).
"""

from __future__ import annotations

import gzip
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from sbpair.audit import Expected, Summary
from sbpair.pair.observation.manifest import manifest
from tests.data.audit.world import (
    DIRECT,
    IN_SESSION,
    PARKED,
    PUBLISHED,
    SHAPES,
    SUBSCRIPTIONS,
    WRITERS,
    a_day,
)

ALL, CLOUD, FEW = SHAPES
NEW = 9000  # sequence numbers that no message of the day has


class Owed(Enum):
    """What an audit owes to an incident."""

    GREEN = "green"  # nothing is wrong
    RED = "red"  # a message is lost, doubled, misplaced or changed, or the files show that evidence is gone
    BLIND = "red with a manifest"  # evidence is gone, and nothing but a manifest shows it


class Day:
    """One day to which an incident happens: what it does, it does with this luck."""

    def __init__(self, luck: random.Random, shape: str) -> None:
        self.luck, self.shape, self.world = luck, shape, a_day()
        self.files = luck.choice((1, 1, 2, 3))  # of each journal
        self._deeds: list[Callable[[Path], object]] = []

    def one(self, among: Sequence[str] = (*DIRECT, *PARKED)) -> str:
        return self.luck.choice(among)

    def some(self, among: Sequence[str] = (*DIRECT, *PARKED)) -> list[str]:
        return self.luck.sample(list(among), self.luck.randint(1, min(6, len(among))))

    def who(self, *among: str) -> str:
        """One who keeps a journal in this shape."""
        return self.luck.choice([each for each in among or WRITERS if each in SHAPES[self.shape]])

    def vanish(self, ids: Sequence[str], *writers: str, events: Sequence[str] = ()) -> None:
        """Nobody of these ever saw the messages."""
        for who in writers:
            self.world.drop(who, ids, *events)

    def removed(self, ids: Sequence[str], how: str, reason: str = "") -> None:
        """The primary removed these messages in another way than by completing them, and nobody received them."""
        for each in ids:
            self.world.again("primary", "messages_removed", each, how=how, reason=reason)
            self.world.drop("primary", [each], "messages_removed", keep=how)
        self.vanish(ids, "receiver")

    def arrives_again(self, message: str, number: int) -> None:
        """Another copy is stored, received and completed."""
        for event in ("messages_stored", "messages_removed"):
            self.world.again("primary", event, message, sequence_numbers=[number])
        self.world.again("receiver", "messages_received", message, sequence_numbers=[number])

    def to_a_file(self, deed: Callable[[Path], None], *among: str) -> None:
        """Do this to one of the files of a writer when they are there."""
        self.to_files(self.who(*among), lambda files: deed(self.luck.choice(files)))

    def to_files(self, who: str, deed: Callable[[Sequence[Path]], object]) -> None:
        """Do this to the files of a writer when they are there."""
        self._deeds.append(lambda place: deed(self.world.files(place, who)))

    def write(self, place: Path) -> Expected:
        """Write the journals, and return what a manifest of them expects, made before anything happens to a file."""
        self.world.write(place, self.shape, files=self.files)
        expected = Expected(writers=manifest(place))
        for deed in self._deeds:
            deed(place)
        return expected


@dataclass(frozen=True)
class Incident:
    """What happens, what an audit owes to it, and in which shapes it can be seen."""

    name: str
    owed: Owed
    shapes: tuple[str, ...]
    happens: Callable[[Day], None]


INCIDENTS: dict[str, Incident] = {}


def incident(owed: Owed, *shapes: str) -> Callable[[Callable[[Day], None]], Callable[[Day], None]]:
    """Register what happens; without ``shapes`` it is owed in all of them."""

    def register(happens: Callable[[Day], None]) -> Callable[[Day], None]:
        name = happens.__name__.replace("_", " ")
        INCIDENTS[name] = Incident(name, owed, shapes or tuple(SHAPES), happens)
        return happens

    return register


# What happens to messages


@incident(Owed.GREEN)
def nothing_happens(day: Day) -> None:
    pass


@incident(Owed.RED, ALL, CLOUD)
def the_primary_loses_messages_it_accepted(day: Day) -> None:
    day.vanish(day.some(), "primary", "receiver")


@incident(Owed.RED, ALL, CLOUD)
def messages_are_lost_and_nobody_says_that_the_queue_is_empty(day: Day) -> None:
    day.vanish(day.some(DIRECT[:12]), "primary", "receiver")
    day.world.rows["receiver"] = [r for r in day.world.rows["receiver"] if r["event"] != "entity_emptied"]


@incident(Owed.RED, ALL)
def the_primary_loses_messages_it_stored(day: Day) -> None:
    lost = day.some()
    day.vanish(lost, "receiver")
    day.vanish(lost, "primary", events=("messages_removed",))


@incident(Owed.RED)
def the_syphon_removes_messages_it_never_forwarded(day: Day) -> None:
    day.vanish(day.some(PARKED), "syphon", "primary", "receiver")


@incident(Owed.RED, ALL, CLOUD)
def the_syphon_says_forwarded_and_the_primary_has_nothing(day: Day) -> None:
    day.vanish(day.some(PARKED), "primary", "receiver")


@incident(Owed.RED)
def the_backlog_never_stored_what_it_accepted(day: Day) -> None:
    day.vanish(day.some(PARKED), "secondary", "syphon", "primary", "receiver")


@incident(Owed.RED, ALL)
def one_subscription_never_gives_out_its_copy(day: Day) -> None:
    path, lost = day.luck.choice(SUBSCRIPTIONS), day.some(PUBLISHED)
    day.world.drop("receiver", lost, path=path)
    day.world.drop("primary", lost, "messages_removed", path=path)


@incident(Owed.RED, ALL, CLOUD)
def a_copy_comes_from_nowhere(day: Day) -> None:
    for number, each in enumerate(day.some()):
        day.arrives_again(each, NEW + number)


@incident(Owed.RED, ALL, CLOUD)
def a_queue_is_recreated_and_another_copy_has_the_same_number(day: Day) -> None:
    for each in day.some():
        for event in ("messages_stored", "messages_removed"):
            day.world.again("primary", event, each)
        (enqueued,) = day.world.first("receiver", "messages_received", each)["enqueued"][:1]
        day.world.again("receiver", "messages_received", each, enqueued=[enqueued + 5])


@incident(Owed.RED, ALL, CLOUD)
def the_syphon_forwards_twice_and_lost_no_lock(day: Day) -> None:
    for number, each in enumerate(day.some(PARKED)):
        day.world.again("syphon", "messages_forwarded", each)
        day.arrives_again(each, NEW + number)


@incident(Owed.RED, ALL, CLOUD)
def the_syphon_forwards_more_often_than_it_lost_locks(day: Day) -> None:
    (counters,) = day.world.of("syphon", "syphon_counters")
    counters["lock_lost"] = 1
    for number, each in enumerate(day.luck.sample(PARKED, 3)):
        day.world.again("syphon", "messages_forwarded", each)
        day.arrives_again(each, NEW + number)


@incident(Owed.GREEN, ALL, CLOUD)
def the_syphon_forwards_again_what_it_could_not_remove(day: Day) -> None:
    again = day.some(PARKED[4:])
    (counters,) = day.world.of("syphon", "syphon_counters")
    counters["lock_lost"] = len(again)
    for number, each in enumerate(again):
        day.world.again("syphon", "messages_forwarded", each)
        day.arrives_again(each, NEW + number)


@incident(Owed.GREEN, ALL, CLOUD)
def a_link_of_the_syphon_ends_before_the_answer(day: Day) -> None:
    for number, each in enumerate(day.some(PARKED[4:])):
        day.world.again("syphon", "messages_forwarded", each, event="messages_in_doubt")
        day.arrives_again(each, NEW + number)


@incident(Owed.RED, ALL, CLOUD)
def a_link_ends_before_one_answer_and_two_copies_come(day: Day) -> None:
    doubted = day.one(PARKED[4:])
    day.world.again("syphon", "messages_forwarded", doubted, event="messages_in_doubt")
    for number in range(2):
        day.arrives_again(doubted, NEW + number)


@incident(Owed.RED, ALL, CLOUD)
def an_id_is_accepted_twice_and_arrives_once(day: Day) -> None:
    day.world.again("sender", "send_accepted", day.one(DIRECT))


@incident(Owed.RED, ALL)
def of_two_messages_of_one_id_one_stays_in_the_store(day: Day) -> None:
    message = day.one(DIRECT)
    day.world.again("sender", "send_accepted", message)
    day.world.again("primary", "messages_stored", message, sequence_numbers=[NEW])


@incident(Owed.GREEN, ALL, CLOUD)
def two_messages_of_one_id_arrive(day: Day) -> None:
    message = day.one(DIRECT)
    day.world.again("sender", "send_accepted", message)
    day.arrives_again(message, NEW)


@incident(Owed.GREEN, ALL)
def a_repeated_send_is_dropped_as_a_duplicate(day: Day) -> None:
    message = day.one(DIRECT)
    day.world.again("sender", "send_accepted", message)
    day.world.again("primary", "messages_stored", message, event="duplicates_dropped")


@incident(Owed.RED, ALL, CLOUD)
def ids_are_changed_on_their_way(day: Day) -> None:
    changed = set(day.some())
    for row in (*day.world.rows["primary"], *day.world.rows["receiver"]):
        if "message_ids" in row:
            row["message_ids"] = [f"x-{each}" if each in changed else each for each in row["message_ids"]]


@incident(Owed.RED, ALL, CLOUD)
def messages_arrive_without_their_ids(day: Day) -> None:
    blank, who = set(day.some()), day.who("primary", "receiver")
    for row in day.world.rows[who]:
        if "message_ids" in row:
            row["message_ids"] = ["" if each in blank else each for each in row["message_ids"]]


@incident(Owed.RED, ALL, CLOUD)
def messages_arrive_in_another_entity(day: Day) -> None:
    astray = day.some(DIRECT[:12])
    for who in ("primary", "receiver"):
        for each in astray:
            for row in [row for row in day.world.rows[who] if each in row.get("message_ids", ())]:
                day.world.again(who, row["event"], each, path="invoices")
        day.world.drop(who, astray, path="orders")


@incident(Owed.RED, ALL, CLOUD)
def messages_arrive_in_another_session(day: Day) -> None:
    for each in day.some(IN_SESSION):
        (row,) = [row for row in day.world.of("receiver", "messages_received") if each in row["message_ids"]]
        row["session_ids"] = day.luck.choice((["another"], [""]))


@incident(Owed.RED, ALL, CLOUD)
def messages_arrive_with_another_body(day: Day) -> None:
    changed = set(day.some((*DIRECT, *PARKED, *PUBLISHED)))
    for row in day.world.of("receiver", "messages_received"):
        row["checksums"] = [
            each ^ 1 if message in changed else each
            for message, each in zip(row["message_ids"], row["checksums"], strict=True)
        ]


@incident(Owed.GREEN, ALL, CLOUD)
def a_writer_records_no_checksums_or_not_one_for_each_body(day: Day) -> None:
    for row in (*day.world.rows["sender"], *day.world.rows["receiver"]):
        if day.luck.random() < 0.5 and "checksums" in row:
            none = [-1 for _ in row["checksums"]]
            row["checksums"] = day.luck.choice(([], none, [7, *row["checksums"]]))


@incident(Owed.RED, ALL)
def messages_are_deleted(day: Day) -> None:
    day.removed(day.some(), "deleted", day.luck.choice(("", "the entity was deleted")))


@incident(Owed.RED, ALL)
def a_copy_in_one_subscription_is_deleted(day: Day) -> None:
    path = day.luck.choice(SUBSCRIPTIONS)
    for row in [row for row in day.world.of("primary", "messages_removed") if row["path"] == path][:2]:
        row["how"] = "deleted"
        day.world.drop("receiver", row["message_ids"], path=path)


@incident(Owed.GREEN, ALL)
def messages_expire(day: Day) -> None:
    day.removed(day.some(), "expired", "TTLExpiredException")


@incident(Owed.GREEN, ALL)
def messages_are_dead_lettered(day: Day) -> None:
    day.removed(day.some(), "dead-lettered", "MaxDeliveryCountExceeded")


@incident(Owed.GREEN, ALL, CLOUD)
def a_message_is_given_out_twice_with_one_number(day: Day) -> None:
    day.world.again("receiver", "messages_received", day.one())


@incident(Owed.GREEN, ALL)
def a_scheduled_message_waits_for_its_time(day: Day) -> None:
    later = day.one(DIRECT)
    day.world.again("primary", "messages_stored", later, how="scheduled")
    day.world.drop("primary", [later], "messages_stored", keep="scheduled")
    day.vanish([later], "primary", events=("messages_removed",))
    day.vanish([later], "receiver")


# Clocks


@incident(Owed.RED, ALL, CLOUD)
def a_clock_is_off_and_messages_are_lost(day: Day) -> None:
    day.vanish(day.some(), "primary", "receiver")
    day.world.shift(day.who("sender", "receiver"), day.luck.choice((-1, 1)) * day.luck.uniform(20, 9000))


@incident(Owed.RED, ALL, CLOUD)
def the_receivers_clock_is_behind(day: Day) -> None:
    day.world.shift("receiver", -day.luck.uniform(20, 9000))


@incident(Owed.RED, ALL, CLOUD)
def the_senders_clock_is_off(day: Day) -> None:
    day.world.shift("sender", day.luck.choice((-1, 1)) * day.luck.uniform(20, 9000))


@incident(Owed.RED)
def a_clock_moves_while_its_writer_writes(day: Day) -> None:
    who = day.who()
    day.world.shift(who, -day.luck.uniform(20, 900), since=max(1, len(day.world.rows[who]) // 2))


@incident(Owed.GREEN)
def it_is_another_year(day: Day) -> None:
    for who in WRITERS:
        day.world.shift(who, -400 * 86_400.0)


# What happens to files


@incident(Owed.RED)
def a_file_is_cut(day: Day) -> None:
    day.to_a_file(lambda file: file.write_bytes(file.read_bytes()[: -day.luck.randrange(1, _size(file) - 2)]))


@incident(Owed.RED)
def a_file_is_cut_between_two_lines(day: Day) -> None:
    day.to_a_file(lambda file: _rewrite(file, lambda lines: lines[: day.luck.randrange(1, len(lines))]))


@incident(Owed.RED)
def a_file_lacks_a_line(day: Day) -> None:
    day.to_a_file(
        lambda file: _rewrite(file, lambda lines: _without(lines, day.luck.randrange(len(lines) - 1)))
    )


@incident(Owed.RED)
def a_file_has_a_line_twice(day: Day) -> None:
    day.to_a_file(lambda file: _rewrite(file, lambda lines: [lines[0], *lines]))


@incident(Owed.RED)
def a_file_goes_on_after_its_end(day: Day) -> None:
    more = day.luck.choice((b'{"v":1}\n', b'{"v":1,"wri', b"\0" * 64))
    day.to_a_file(lambda file: file.write_bytes(file.read_bytes() + more))


@incident(Owed.RED)
def a_block_of_a_file_is_zero(day: Day) -> None:
    def zero(file: Path) -> None:
        content, at = bytearray(file.read_bytes()), day.luck.randrange(_size(file) - 1)
        content[at : at + 64] = bytes(len(content[at : at + 64]))
        file.write_bytes(content)

    day.to_a_file(zero)


@incident(Owed.RED)
def a_file_is_empty(day: Day) -> None:
    day.to_a_file(lambda file: file.write_bytes(b""))


@incident(Owed.RED)
def a_last_file_was_not_collected(day: Day) -> None:
    who, day.files = day.who(), 3
    day.to_files(who, lambda files: files[-1].unlink())


@incident(Owed.RED)
def a_first_file_was_not_collected(day: Day) -> None:
    who, day.files = day.who(), 3
    day.to_files(who, lambda files: files[0].unlink())


@incident(Owed.BLIND)
def a_whole_journal_is_gone(day: Day) -> None:
    who = day.who("syphon", "receiver", "primary", "secondary")
    day.to_files(who, _unlink)


@incident(Owed.RED)
def no_senders_journal_is_there(day: Day) -> None:
    day.to_files("sender", _unlink)


@incident(Owed.RED)
def a_restore_was_interrupted(day: Day) -> None:
    def partial(file: Path) -> None:
        file.with_name(f"{file.name}.gz").write_bytes(gzip.compress(file.read_bytes()))
        _rewrite(file, lambda lines: lines[: day.luck.randrange(len(lines))])

    day.to_a_file(partial)


@incident(Owed.GREEN)
def a_file_is_compressed(day: Day) -> None:
    def packed(file: Path) -> None:
        file.with_name(f"{file.name}.gz").write_bytes(gzip.compress(file.read_bytes()))
        if day.luck.random() < 0.5:
            file.unlink()

    day.to_a_file(packed)


@incident(Owed.GREEN)
def files_were_sent_as_text(day: Day) -> None:
    def as_text(file: Path) -> None:
        mark = day.luck.choice((b"", b"\xef\xbb\xbf"))
        file.write_bytes(mark + file.read_bytes().replace(b"\n", b"\r\n"))

    day.to_a_file(as_text)


@incident(Owed.RED)
def a_file_lies_in_a_second_folder_too(day: Day) -> None:
    def copied(file: Path) -> None:
        (file.parent / "old").mkdir()
        (file.parent / "old" / file.name).write_bytes(file.read_bytes())

    day.to_a_file(copied)


@incident(Owed.GREEN)
def files_lie_in_folders(day: Day) -> None:
    def moved(file: Path) -> None:
        (file.parent / "host-7").mkdir()
        file.rename(file.parent / "host-7" / file.name)

    day.to_a_file(moved)


@incident(Owed.RED)
def a_host_was_cloned(day: Day) -> None:
    def cloned(file: Path) -> None:
        (file.parent / "clone").mkdir()
        (file.parent / "clone" / file.name).write_bytes(file.read_bytes().replace(b'"d', b'"c'))

    day.to_a_file(cloned, "sender")


def _unlink(files: Sequence[Path]) -> None:
    for file in files:
        file.unlink()


def _size(file: Path) -> int:
    return file.stat().st_size


def _rewrite(file: Path, change: Callable[[list[bytes]], list[bytes]]) -> None:
    file.write_bytes(b"".join(change(file.read_bytes().splitlines(keepends=True))))


def _without(lines: list[bytes], index: int) -> list[bytes]:
    return lines[:index] + lines[index + 1 :]


@dataclass(frozen=True)
class Drawn:
    """An incident in a shape, with the luck of a seed."""

    incident: Incident
    shape: str
    seed: int

    def __str__(self) -> str:
        return f"{self.incident.name} [{self.shape}, {self.seed}]"

    def happens(self, place: Path) -> Expected:
        """Write the journals of a day on which it happened; returns what a manifest of them expects."""
        day = Day(random.Random(str(self)), self.shape)
        self.incident.happens(day)
        return day.write(place)

    def what_is_wrong(self, summary: Summary, *, has_manifest: bool) -> str | None:
        """Why the audit does not give what is owed; None if it does."""
        match self.incident.owed:
            case Owed.GREEN:
                return None if summary.is_conserved else "red by mistake"
            case Owed.BLIND if not has_manifest:
                return None
            case _:
                return "green by mistake" if summary.is_conserved else None


def drawn(seeds: Sequence[int]) -> Iterator[Drawn]:
    """Every incident in each shape in which it is owed, once for each of ``seeds``."""
    for seed in seeds:
        for each in INCIDENTS.values():
            yield from (Drawn(each, shape, seed) for shape in each.shapes)
