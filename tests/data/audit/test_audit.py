"""The audit's verdict on each message is what the journals prove; all stories are audited once."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path

import pytest

from sbpair.audit import Verdict
from sbpair.data.audit.read.clocks import moment
from sbpair.data.audit.result.bill import Meter
from sbpair.observation import WriterRole
from tests.data.audit.audited import Audited, audited
from tests.data.audit.story import EXPIRED, Cast, Story

# Each: what happened to the message of this name, before the backlogs and the queue were found empty.
CASES: dict[str, tuple[Verdict, Callable[[Cast, str], object]]] = {
    "direct": (Verdict.DELIVERED, lambda c, m: (c.sender.sent(m), c.receiver.received(m))),
    "detour": (
        Verdict.DELIVERED,
        lambda c, m: (c.sender.parked(m), c.syphon.forwarded(m), c.receiver.received(m)),
    ),
    "raised-but-there": (
        Verdict.RECOVERED,
        lambda c, m: (c.sender.raised(m, ambiguous=True), c.receiver.received(m)),
    ),
    "repeated": (
        Verdict.DELIVERED,
        lambda c, m: (c.sender.raised(m), c.sender.sent(m), c.receiver.received(m)),
    ),
    "raised": (Verdict.NOT_ACCEPTED, lambda c, m: c.sender.raised(m)),
    "nobody's": (Verdict.UNEXPECTED, lambda c, m: c.receiver.received(m)),
    "nobody's-detour": (Verdict.UNEXPECTED, lambda c, m: c.syphon.forwarded(m)),
    "poison": (Verdict.DEAD_LETTERED, lambda c, m: (c.sender.parked(m), c.syphon.set_aside(m))),
    "poison-pathless": (
        Verdict.DEAD_LETTERED,
        lambda c, m: (c.sender.parked(m), c.syphon.set_aside(m, path=None)),
    ),
    "late": (Verdict.EXPIRED, lambda c, m: (c.sender.parked(m), c.syphon.set_aside(m, EXPIRED))),
    "gone-from-backlog": (Verdict.LOST, lambda c, m: c.sender.parked(m)),
    "gone-from-primary": (Verdict.UNPROVEN, lambda c, m: c.sender.sent(m)),
    "gone-on-the-way": (Verdict.UNPROVEN, lambda c, m: (c.sender.parked(m), c.syphon.forwarded(m))),
    "landed": (Verdict.ACCEPTED, lambda c, m: (c.sender.parked(m), c.syphon.landed(m))),
    "landed-and-received": (
        Verdict.DELIVERED,
        lambda c, m: (c.sender.parked(m), c.syphon.landed(m), c.receiver.received(m)),
    ),
    "landing-undone": (
        Verdict.DELIVERED,
        lambda c, m: (c.sender.parked(m), c.syphon.landed(m), c.syphon.forwarded(m), c.receiver.received(m)),
    ),
    "elsewhere": (Verdict.ACCEPTED, lambda c, m: c.sender.sent(m, path="invoices")),
    "spooled": (Verdict.WAITING, lambda c, m: c.sender.spooled(m)),
    "spooled-home": (
        Verdict.DELIVERED,
        lambda c, m: (c.sender.spooled(m), c.sender.replayed(m), c.receiver.received(m)),
    ),
    "spooled-refused": (Verdict.DEAD_LETTERED, lambda c, m: (c.sender.spooled(m), c.sender.refused(m))),
    "redriven": (
        Verdict.UNPROVEN,
        lambda c, m: (c.sender.parked(m), c.syphon.set_aside(m), c.story.pause(), c.syphon.forwarded(m)),
    ),
    "redriven-home": (
        Verdict.ACCEPTED,
        lambda c, m: (
            c.sender.parked(m, path="invoices"),
            c.syphon.set_aside(m, path="invoices"),
            c.story.pause(),
            c.syphon.forwarded(m, path="invoices"),
        ),
    ),
    "stranger's-poison": (Verdict.DEAD_LETTERED, lambda c, m: c.syphon.set_aside(m, path=None)),
    "stranded": (Verdict.WAITING, lambda c, m: c.sender.parked(m, number=7)),
    "told-only": (Verdict.LOST, lambda c, m: c.sender.told_parked(m)),
    "published": (
        Verdict.DELIVERED,
        lambda c, m: (
            c.sender.sent(m, path="Events"),
            c.receiver.received(m, path="events/Subscriptions/a", numbers=(1,)),
            c.receiver.received(m, path="events/subscriptions/B", numbers=(2,)),
        ),
    ),
    "from-the-dead": (
        Verdict.DELIVERED,
        lambda c, m: (c.sender.sent(m), c.receiver.received(m, path="orders/$DeadLetterQueue")),
    ),
    "filtered": (Verdict.ACCEPTED, lambda c, m: c.sender.sent(m, path="events")),
    "MiXeD": (Verdict.DELIVERED, lambda c, m: (c.sender.sent(m, path="Orders"), c.receiver.received(m))),
}


def every_case(directory: Path) -> None:
    cast = Cast.of(directory, "every-case")
    for name, (_, happens) in CASES.items():
        happens(cast, name)
    cast.syphon.stranded(7)
    cast.story.now += 60.0
    cast.syphon.drained()
    cast.receiver.emptied()
    cast.receiver.emptied("events/subscriptions/a")
    cast.story.now += 60.0
    cast.sender.parked("after-the-drain")
    cast.story.end()


def without_an_end(role: WriterRole) -> Callable[[Path], None]:
    """Write a journal that ends as a killed writer leaves it."""

    def happens(directory: Path) -> None:
        cast = Cast.of(directory, f"{role.value}-killed")
        cast.sender.sent("sent")
        cast.sender.parked("parked")
        cast.story.now = 60.0
        cast.syphon.drained()
        cast.receiver.emptied()
        torn = cast.story.file_of(role)
        kept = torn.read_bytes()
        cast.story.end()
        cast.story.file_of(role).unlink()
        torn.write_bytes(kept + b'{"v":1,"writer":"half a li')

    return happens


# How a journal is damaged, and what is said of it.
DAMAGE: dict[str, tuple[Callable[[list[bytes]], list[bytes]], str]] = {
    "unreadable": (lambda lines: [*lines[:3], b"rubbish\n", *lines[4:]], "it has unreadable lines"),
    "gap": (lambda lines: [*lines[:3], *lines[4:]], "records are missing"),
    "headless": (lambda lines: lines[1:], "its beginning is missing"),
}


def damaged(damage: str) -> Callable[[Path], None]:
    def happens(directory: Path) -> None:
        cast = Cast.of(directory, damage)
        cast.sender.sent("delivered")
        cast.sender.parked("waiting")
        for number in range(5):
            cast.syphon.forwarded(f"other-{number}")
        cast.receiver.received("delivered")
        cast.story.end()
        file = cast.story.file_of(WriterRole.SYPHON)
        file.write_bytes(b"".join(DAMAGE[damage][0](file.read_bytes().splitlines(keepends=True))))

    return happens


def copies(directory: Path) -> None:
    cast = Cast.of(directory, "copies")
    cast.sender.raised("ambiguous", ambiguous=True)
    cast.sender.sent("ambiguous")
    cast.receiver.received("ambiguous", "ambiguous", numbers=(1, 2))
    cast.sender.parked("lock-lost")
    cast.syphon.forwarded("lock-lost", "lock-lost")
    cast.receiver.received("lock-lost", "lock-lost", numbers=(3, 4))
    cast.sender.sent("unexplained")
    cast.receiver.received("unexplained", "unexplained", numbers=(5, 6))
    cast.sender.sent("given-twice")  # abandoned and received again: one message, one number
    cast.receiver.received("given-twice", "given-twice", numbers=(7, 7))
    cast.story.end()


def sessions(directory: Path) -> None:
    cast = Cast.of(directory, "sessions")
    cast.sender.sent("a1", "a2", "a3", "b1", "b2")
    cast.receiver.received("a1", "a2", "a3", numbers=(10, 12, 11), session="a")
    cast.receiver.received("b2", "b1", numbers=(21, 20), session="b")  # received late, numbered in order
    cast.story.end()


def waiting(directory: Path) -> None:
    cast = Cast.of(directory, "waiting")
    for number in range(100):
        cast.sender.parked(f"m{number}", number=number % 2)
    for number in range(100):
        cast.story.now = float(number)
        cast.syphon.forwarded(f"m{number}", number=number % 2)
    cast.story.end()


def two_syphons(directory: Path) -> None:
    """One finds the backlogs empty while the other holds a message, which it gives back as it ends."""
    cast = Cast.of(directory, "two-syphons")
    other = cast.story.syphon()
    cast.sender.parked("in-the-other's-hands")
    cast.story.now = 60.0
    cast.syphon.drained()
    cast.story.now = 90.0
    other.forwarded("something-else")
    cast.story.end()


def one_after_the_other(directory: Path) -> None:
    """The first syphon has ended before the second finds the backlogs empty."""
    cast = Cast.of(directory, "one-after-the-other")
    cast.syphon.drained()
    cast.sender.parked("gone")
    cast.syphon.journal.close()
    cast.story.now = 60.0
    cast.story.syphon().drained()
    cast.story.end()


def another_secondary(directory: Path) -> None:
    """The secondary was replaced: that the new one's backlogs are empty says nothing of the old one's."""
    cast = Cast.of(directory, "moved")
    cast.sender.parked("at-the-old-one")
    cast.story.secondary = "moved-elsewhere"
    cast.story.now = 60.0
    cast.story.syphon().drained()
    cast.story.end()


def silent_senders(directory: Path) -> None:
    """A journal as it is by default: no lines on healthy sends."""
    cast = Cast.of(directory, "silent")
    cast.sender.parked("parked")
    cast.syphon.forwarded("parked")
    cast.receiver.received("parked", "healthy", numbers=(1, 2))
    cast.story.end()


def other_spelling(directory: Path) -> None:
    """The syphon was given the primary's name in capitals."""
    cast = Cast.of(directory, "spelling")
    cast.sender.parked("m")
    cast.story.primary, cast.story.secondary = "SPELLING", "Spelling-DR"
    syphon = cast.story.syphon()
    syphon.forwarded("m")
    cast.story.end()


def twice_the_same_file(directory: Path) -> None:
    cast = Cast.of(directory, "file-twice")
    cast.sender.sent("m")
    cast.sender.parked("waiting")
    cast.receiver.received("m")
    cast.story.end()
    file = cast.story.file_of(WriterRole.SYPHON)
    (directory / f"copy-of-{file.name}").write_bytes(file.read_bytes())


def a_month(directory: Path) -> None:
    """A gap of a month, files that are named in the wrong order, and a torn last line."""
    cast = Cast.of(directory, "month")
    cast.sender.parked("early", "never")
    cast.sender.journal.roll()
    cast.story.now = 31 * 86_400.0
    cast.syphon.forwarded("early")
    cast.sender.sent("late")
    cast.story.now += 60.0
    cast.syphon.drained()
    cast.receiver.received("late", "early", numbers=(2, 1))
    cast.story.end()
    first, second = sorted(directory.glob(f"sender-*{cast.sender.journal.writer}*"))
    swapped = first.read_bytes()
    first.write_bytes(second.read_bytes())
    second.write_bytes(swapped + b'{"v":1,"writer":"torn')


def same_ids(directory: Path) -> None:
    cast = Cast.of(directory, "same-ids")
    cast.sender.sent("1", path="orders")
    cast.sender.sent("1", path="invoices")
    cast.receiver.received("1", path="orders")
    cast.story.end()


STORIES = (
    every_case,
    without_an_end(WriterRole.SYPHON),
    without_an_end(WriterRole.RECEIVER),
    *map(damaged, DAMAGE),
    copies,
    sessions,
    waiting,
    a_month,
    same_ids,
    two_syphons,
    one_after_the_other,
    another_secondary,
    silent_senders,
    other_spelling,
    twice_the_same_file,
)


@dataclass
class Found:
    """The tables of the one audit, as rows."""

    messages: list
    writers: list
    duplicates: list
    order: list
    waits: list
    missing: list

    def verdicts(self, primary: str) -> dict[str, str]:
        return {row.message_id: row.verdict for row in self.messages if row.primary == primary}


@pytest.fixture(scope="module")
def found(tmp_path_factory) -> Found:
    """All stories in one directory, audited once: each has a primary of its own."""
    directory = tmp_path_factory.mktemp("journals")
    for story in STORIES:
        story(directory)
    result = audited(directory, tmp_path_factory.mktemp("out"))
    return Found(*(result.rows(field.name) for field in fields(Found)))


@pytest.mark.spec("G-1", "G-2", "G-3")
@pytest.mark.parametrize("name", CASES)
def test_each_message_gets_the_verdict_proved_by_its_journals(found: Found, name: str) -> None:
    assert found.verdicts("every-case")[name] == CASES[name][0].value


def test_a_message_parked_after_the_drain_is_waiting(found: Found) -> None:
    assert found.verdicts("every-case")["after-the-drain"] == Verdict.WAITING.value


def test_the_messages_to_resend_are_the_lost_ones(found: Found) -> None:
    lost = {name for name, (verdict, _) in CASES.items() if verdict is Verdict.LOST}
    assert {row.message_id for row in found.missing if row.primary == "every-case"} == lost


KILLED = {
    WriterRole.SYPHON: {"sent": Verdict.UNPROVEN, "parked": Verdict.UNPROVEN},
    WriterRole.RECEIVER: {"sent": Verdict.UNPROVEN, "parked": Verdict.LOST},
}


@pytest.mark.parametrize("role", KILLED)
def test_silence_of_a_journal_without_a_closing_record_proves_nothing(found: Found, role: WriterRole) -> None:
    expected = {name: verdict.value for name, verdict in KILLED[role].items()}

    assert found.verdicts(f"{role.value}-killed") == expected


@pytest.mark.spec("F-90")
@pytest.mark.parametrize("damage", DAMAGE)
def test_silence_of_a_damaged_journal_proves_nothing(found: Found, damage: str) -> None:
    said = found.verdicts(damage)

    assert (said["delivered"], said["waiting"]) == (Verdict.DELIVERED.value, Verdict.UNPROVEN.value)


@pytest.mark.spec("F-90")
def test_each_incomplete_journal_is_named_with_the_reason(found: Found) -> None:
    no_end = "it has no closing record: killed, or still writing"
    reasons = sorted((row.role, row.reason) for row in found.writers if not row.is_whole)

    copied = "records occur twice: was a file copied?"
    expected = [
        ("receiver", no_end),
        ("sender", "a file goes on after its closing record"),
        ("syphon", no_end),
        ("syphon", copied),
        *(("syphon", why) for _, why in DAMAGE.values()),
    ]
    assert reasons == sorted(expected)


# What else is true of several journals in one directory: primary, message, verdict.
SEVERAL = (
    ("two-syphons", "in-the-other's-hands", Verdict.WAITING),
    ("one-after-the-other", "gone", Verdict.LOST),
    ("moved", "at-the-old-one", Verdict.WAITING),
    ("silent", "parked", Verdict.DELIVERED),
    ("silent", "healthy", Verdict.DELIVERED),
    ("spelling", "m", Verdict.ACCEPTED),
    ("file-twice", "waiting", Verdict.UNPROVEN),
)


@pytest.mark.spec("G-1", "G-2")
@pytest.mark.parametrize(("primary", "message", "verdict"), SEVERAL)
def test_a_missing_record_in_one_journal_is_no_conclusion(
    found: Found, primary: str, message: str, verdict: Verdict
) -> None:
    assert found.verdicts(primary)[message] == verdict.value


@pytest.mark.spec("G-4")
def test_copies_are_matched_with_the_ambiguities_that_explain_them(found: Found) -> None:
    assert {(row.message_id, row.copies, row.is_explained) for row in found.duplicates} == {
        ("ambiguous", 2, True),
        ("lock-lost", 2, True),
        ("unexplained", 2, False),
    }


@pytest.mark.spec("G-8")
def test_session_order_is_judged_by_broker_sequence_numbers(found: Found) -> None:
    rows = {row.session_id: (row.messages, row.inversions, row.is_kept) for row in found.order}

    assert rows == {"a": (3, 1, False), "b": (2, 0, True)}


def test_waiting_times_are_reported_by_backlog(found: Found) -> None:
    rows = {row.backlog: row for row in found.waits if row.primary == "waiting"}

    assert (rows[0].messages, rows[0].p50, rows[0].longest) == (50, 48.0, 98.0)
    assert (rows[1].messages, rows[1].p99, rows[1].longest) == (50, 99.0, 99.0)


def test_one_id_at_two_entities_is_two_messages(found: Found) -> None:
    rows = {(row.path, row.verdict) for row in found.messages if row.primary == "same-ids"}

    assert rows == {("orders", "delivered"), ("invoices", "accepted")}


def test_the_clocks_of_two_machines_may_differ_by_the_skew(tmp_path: Path) -> None:
    cast = Cast.of(tmp_path / "journals")
    cast.sender.parked("m")
    cast.story.now = 3.0
    cast.syphon.drained()
    cast.story.end()

    counts = audited(tmp_path / "journals", tmp_path / "out", skew=5.0).summary.verdicts

    assert (counts[Verdict.WAITING], counts[Verdict.LOST]) == (1, 0)


def test_a_negative_skew_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="skew must be 0 or more seconds, not -1"):
        audited(tmp_path, tmp_path / "out", skew=-1)


def test_file_order_long_gaps_and_torn_lines_do_not_change_a_verdict(found: Found) -> None:
    assert Counter(found.verdicts("month").values()) == {"delivered": 2, "lost": 1}


def test_journals_without_events_contain_no_messages(tmp_path: Path) -> None:
    (tmp_path / "sender-a-000001.jsonl").write_bytes(b"")

    result = audited(tmp_path, tmp_path / "out")

    assert not any(result.summary.verdicts.values())
    assert result.summary.timeline == []
    assert not any(charge.operations for charge in result.summary.bill)
    assert result.rows("messages") == result.rows("missing") == []


@pytest.mark.spec("P-43")
def test_the_report_and_the_tables_name_the_lost_messages(tmp_path: Path) -> None:
    journals, out = tmp_path / "journals", tmp_path / "out"
    cast = Cast.of(journals)
    cast.sender.sent("a", "b")
    cast.sender.parked("<b>lost</b>", "d", "e")
    cast.syphon.forwarded("d", "e")
    cast.story.now = 60.0
    cast.syphon.drained()
    cast.story.end()

    summary = audited(journals, out).summary

    assert not summary.is_conserved
    # Two direct messages at two operations, two whole detours at four, and one that got no further.
    operations = sum(c.operations for c in summary.bill if c.meter is Meter.PAIRED_NAMESPACES)
    assert operations == 2 * 2 + 2 * 4 + 1
    assert [writer.first_at for writer in summary.writers] == [moment(1_795_262_400_000_000)] * 3  # noon, UTC
    page = (out / "report.html").read_text("utf-8")
    assert "5 messages: lost 1" in page
    assert "&lt;b&gt;lost&lt;/b&gt;" in page
    assert "<b>lost" not in page
    assert "http" not in page.replace("http://www.w3.org", "")  # nothing is fetched
    assert json.loads((out / "summary.json").read_text("utf-8"))["verdicts"]["lost"] == 1
    assert [row.message_id for row in Audited(summary, out).rows("missing")] == ["<b>lost</b>"]


@pytest.mark.spec("R-74")
def test_a_lost_message_in_a_compressed_folder_is_found_and_unread_files_are_reported(
    tmp_path: Path,
) -> None:
    journals, out = tmp_path / "journals", tmp_path / "out"
    cast = Cast.of(journals)
    cast.sender.sent("delivered")
    cast.receiver.received("delivered")
    other = cast.story.sender()
    other.parked("lost")
    cast.story.now = 60.0
    cast.syphon.drained()
    cast.story.end()
    (plain,) = journals.glob(f"sender-{other.journal.writer}*")
    (journals / "host-7").mkdir()
    (journals / "host-7" / f"{plain.name}.gz").write_bytes(gzip.compress(plain.read_bytes()))
    plain.unlink()

    assert audited(journals, out).summary.verdicts[Verdict.LOST] == 1

    (journals / "host-7" / f"{plain.name}.gz").rename(journals / "host-7" / f"{plain.name}.zst")
    summary = audited(journals, out).summary

    assert not summary.is_conserved
    assert [each.name for each in summary.unread] == [f"host-7/{plain.name}.zst"]
    said = json.loads((out / "summary.json").read_text("utf-8"))
    assert said["unread"][0]["name"] == f"host-7/{plain.name}.zst"
    assert said["headline"].endswith("unproven: 1 file not read")
    assert "may be journals" in (out / "report.html").read_text("utf-8")


@pytest.mark.spec("R-74")
def test_journals_without_a_message_are_not_green(tmp_path: Path) -> None:
    story = Story(tmp_path / "journals")
    story.sender()
    story.end()

    assert not audited(tmp_path / "journals", tmp_path / "out").summary.is_conserved
