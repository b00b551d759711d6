"""What is missing, renamed, copied or damaged makes an audit red or unproven, never green."""

from __future__ import annotations

import gzip
import json
import random
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from sbpair.audit import Expected, Summary, audit
from sbpair.data.audit.result.report import headline
from sbpair.observation import WriterRole
from sbpair.pair.observation.journal_reading import JournalError
from sbpair.pair.observation.manifest import as_text, manifest, parse
from tests.data.audit.audited import Audited, audited
from tests.data.audit.story import Cast, Story


def healthy(directory: Path) -> Cast:
    """Messages that were sent, parked, forwarded and received, and one that was lost in a drained backlog."""
    cast = Cast.of(directory)
    cast.sender.sent("a", "b")
    cast.sender.parked("c", "d")
    cast.story.pause()
    cast.syphon.forwarded("c", "d")
    cast.receiver.received("a", "b", "c", "d", numbers=(1, 2, 3, 4))
    cast.story.now += 60.0
    cast.syphon.drained()
    cast.receiver.emptied()
    return cast


def with_a_loss(directory: Path) -> Cast:
    cast = Cast.of(directory)
    cast.sender.parked("lost")
    cast.story.now += 60.0
    cast.syphon.drained()
    return cast


def lines(change: Callable[[str], str], cast: Cast, role: WriterRole) -> None:
    file = cast.story.file_of(role)
    file.write_text("".join(change(line) + "\n" for line in file.read_text("utf-8").splitlines()), "utf-8")


def renamed(before: str, after: str) -> Callable[[str], str]:
    return lambda line: line.replace(f'"event":"{before}"', f'"event":"{after}"')


def a_year_on(line: str) -> str:
    is_late = json.loads(line)["ordinal"] >= 2
    return re.sub(r'"at":"2026', '"at":"2027', line) if is_late else line


def copied(cast: Cast, journals: Path) -> None:
    (journals / "copy").mkdir()
    (journals / "copy" / "sender.jsonl").write_bytes(cast.story.file_of(WriterRole.SENDER).read_bytes())


def with_a_loss_on_the_primary(directory: Path) -> Cast:
    cast = Cast.of(directory)
    cast.sender.sent("lost")
    cast.story.now += 60.0
    cast.receiver.emptied()
    return cast


def of_an_earlier_run(cast: Cast, journals: Path) -> None:
    """A run on the day before, in which the same id arrived."""
    earlier = Story(journals / "yesterday", now=-86_400.0)
    earlier.sender().sent("lost")
    earlier.receiver().received("lost", numbers=(1,))
    earlier.end()


def a_record_less(cast: Cast, journals: Path) -> None:
    file = cast.story.file_of(WriterRole.RECEIVER)
    first, _, *rest = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join([first, *rest]))


def renamed_to_bak(file: Path) -> None:
    file.rename(file.with_suffix(".bak"))


TAMPERINGS: dict[str, tuple[Callable[[Path], Cast], Callable[[Cast, Path], None], str]] = {
    "no sender": (
        healthy,
        lambda cast, _: cast.story.file_of(WriterRole.SENDER).unlink(),
        "no sender's journal of contoso",
    ),
    "an event of another version": (
        with_a_loss,
        lambda cast, _: lines(renamed("backlogs_drained", "backlogs_dried"), cast, WriterRole.SYPHON),
        "it has events that this version does not know",
    ),
    "an unknown event of a sender": (
        healthy,
        lambda cast, _: lines(renamed("message_parked", "message_stashed"), cast, WriterRole.SENDER),
        "1 journal with gaps",
    ),
    "empty ids": (
        healthy,
        lambda cast, _: lines(lambda line: line.replace('"a","b"', '"",""'), cast, WriterRole.SENDER),
        "1 journal with gaps",
    ),
    "a year off": (
        healthy,
        lambda cast, _: lines(a_year_on, cast, WriterRole.SENDER),
        "a writer's clock moved by 31536000.0 s",
    ),
    "copied into a folder": (healthy, copied, "1 journal with gaps"),
    "the end of a queue under another name": (
        with_a_loss_on_the_primary,
        lambda cast, _: lines(renamed("entity_emptied", "entity_found_empty"), cast, WriterRole.RECEIVER),
        "it has events that this version does not know",
    ),
    "ids of an earlier run": (with_a_loss, of_an_earlier_run, "its id is of senders of two runs"),
    "a line that another replaced": (
        healthy,
        lambda cast, _: lines(lambda line: line.replace('"c","d"', '"c","c"'), cast, WriterRole.SYPHON),
        "the checksum differs",
    ),
    "a record less": (healthy, a_record_less, "records are missing"),
    "a file of another kind": (
        healthy,
        lambda cast, _: renamed_to_bak(cast.story.file_of(WriterRole.RECEIVER)),
        "1 file not read",
    ),
}


def result(journals: Path, out: Path) -> tuple[Summary, str]:
    summary = audited(journals, out).summary
    reasons = [writer.reason or "" for writer in summary.writers]
    return summary, "\n".join([headline(summary), *summary.reasons, *reasons])


def test_the_tampered_inputs_are_green_before_tampering(tmp_path: Path) -> None:
    healthy(tmp_path / "journals").story.end()
    with_a_loss(tmp_path / "others").story.end()

    assert result(tmp_path / "journals", tmp_path / "out")[0].is_conserved
    assert "lost 1" in result(tmp_path / "others", tmp_path / "out2")[1]


@pytest.mark.spec("R-141")
@pytest.mark.parametrize("name", TAMPERINGS)
def test_missing_renamed_and_copied_journals_are_not_green(tmp_path: Path, name: str) -> None:
    begin, tamper, said = TAMPERINGS[name]
    cast = begin(tmp_path / "journals")
    cast.story.end()
    tamper(cast, tmp_path / "journals")
    summary, told = result(tmp_path / "journals", tmp_path / "out")

    assert not summary.is_conserved
    assert said in told


def spelled_differently(directory: Path) -> None:
    """The client and the syphon name the secondary by its port, its broker by its name."""
    story = Story(directory, secondary="localhost-43105")
    sender, syphon, secondary = story.sender(), story.syphon(), story.broker("contoso-dr")
    sender.parked("m1", "m2", "m3")
    secondary.stored("m1", "m2", "m3", number=0)
    story.now += 60.0
    syphon.drained()
    story.end(but=(secondary.journal,))  # killed: proves nothing by its silence


def verdicts(found: Audited) -> set[str]:
    return {row.verdict for row in found.rows("messages")}


@pytest.mark.spec("R-140")
def test_messages_of_a_secondary_with_two_names_are_unproven_until_an_alias_joins_them(
    tmp_path: Path,
) -> None:
    spelled_differently(tmp_path / "journals")
    apart = audited(tmp_path / "journals", tmp_path / "out")
    assert verdicts(apart) == {"unproven"}
    assert "has several names in these journals: name one by an alias" in "".join(apart.summary.reasons)

    joined = audit(tmp_path / "journals", tmp_path / "out", aliases={"LOCALHOST-43105": "contoso-dr"})
    assert verdicts(Audited(joined, tmp_path / "out")) == {"lost"}


@pytest.mark.spec("R-140")
def test_journals_of_another_secondarys_syphon_prove_nothing_about_waiting(tmp_path: Path) -> None:
    cast = Cast.of(tmp_path / "journals")
    cast.story.secondary = "elsewhere"
    cast.story.sender().parked("m")
    cast.story.end()
    found = audited(tmp_path / "journals", tmp_path / "out")

    assert verdicts(found) == {"unproven"}
    assert "name another secondary, contoso-dr: not elsewhere" in "".join(found.summary.reasons)


@pytest.mark.parametrize("aliases", [{"a": "b", "b": "c"}, {"": "b"}, {"a": ""}])
def test_an_alias_of_an_alias_is_refused(tmp_path: Path, aliases: dict[str, str]) -> None:
    healthy(tmp_path / "journals").story.end()
    with pytest.raises(ValueError, match="invalid alias"):
        audit(tmp_path / "journals", tmp_path / "out", aliases=aliases)


@pytest.mark.spec("R-142")
@pytest.mark.parametrize("role", [WriterRole.SENDER, WriterRole.SYPHON, WriterRole.RECEIVER])
def test_an_undecodable_byte_makes_an_unreadable_line_of_its_writer(tmp_path: Path, role: WriterRole) -> None:
    cast = healthy(tmp_path / "journals")
    cast.story.end()
    file = cast.story.file_of(role)
    content = file.read_bytes()
    for place in (content.index(b"contoso"), content.index(b"orders"), content.index(b'"event"') + 2):
        file.write_bytes(content[:place] + b"\xff" + content[place + 1 :])
        summary, told = result(tmp_path / "journals", tmp_path / "out")
        assert "it has unreadable lines" in told
        assert not summary.is_conserved


@pytest.mark.spec("R-142")
def test_a_failed_audit_keeps_the_earlier_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    healthy(tmp_path / "journals").story.end()
    audited(tmp_path / "journals", tmp_path / "out")
    before = {path: path.read_bytes() for path in (tmp_path / "out").rglob("*") if path.is_file()}
    with_a_loss(tmp_path / "more").story.end()
    monkeypatch.setattr("sbpair.data.audit.job.as_json", lambda summary: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        audited(tmp_path / "more", tmp_path / "out")

    assert {path: path.read_bytes() for path in before} == before
    monkeypatch.undo()
    assert not audited(tmp_path / "more", tmp_path / "out").summary.is_conserved
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(
        ("messages", "writers", "duplicates", "order", "waits", "missing", "report.html", "summary.json")
    )


@pytest.mark.spec("R-141")
def test_a_changed_but_readable_line_is_found_by_the_file_checksum(tmp_path: Path) -> None:
    cast = healthy(tmp_path / "journals")
    cast.story.end()
    lines(lambda line: line.replace('"path":"orders"', '"path":"ordres"'), cast, WriterRole.SENDER)
    summary, told = result(tmp_path / "journals", tmp_path / "out")

    assert not summary.is_conserved
    assert "the checksum differs" in told


@pytest.mark.spec("R-141")
def test_a_journal_of_an_older_version_without_checksums_is_read(tmp_path: Path) -> None:
    cast = healthy(tmp_path / "journals")
    cast.story.end()
    for file in (tmp_path / "journals").iterdir():
        file.write_text(re.sub(r',"checksum":\d+', "", file.read_text("utf-8")), "utf-8")

    assert result(tmp_path / "journals", tmp_path / "out")[0].is_conserved


@pytest.mark.spec("R-141", "R-142")
def test_a_flipped_bit_in_a_sender_record_is_never_green(tmp_path: Path) -> None:
    cast = healthy(tmp_path / "journals")
    cast.story.end()
    file = cast.story.file_of(WriterRole.SENDER)
    content = file.read_bytes()
    end = content.rindex(b"\n", 0, -1)  # the closing record names no message
    flips = random.Random(7)
    for _ in range(20):
        place, bit = flips.randrange(end), 1 << flips.randrange(8)
        file.write_bytes(content[:place] + bytes((content[place] ^ bit,)) + content[place + 1 :])
        assert not audited(tmp_path / "journals", tmp_path / "out").summary.is_conserved, (place, bit)


def test_an_id_used_in_two_runs_is_judged_once_a_journal_or_both_arrivals_tie_them(
    tmp_path: Path,
) -> None:
    """A program that repeats a send after a crash, while a receiver runs on; and two runs that both went well."""
    story = Story(tmp_path / "tied")
    receiver = story.receiver()
    story.sender().sent("a")
    receiver.received("a", numbers=(1,))
    story.now += 3600.0
    story.sender().sent("a")
    receiver.received("a", numbers=(2,))
    story.end()
    assert result(tmp_path / "tied", tmp_path / "out")[0].is_conserved

    for number, day in enumerate((0.0, 86_400.0)):
        run = Story(tmp_path / "apart", now=day)
        run.sender().sent("a")
        run.receiver().received("a", numbers=(number + 1,))
        run.end()
    assert result(tmp_path / "apart", tmp_path / "out")[0].is_conserved


def three_senders(directory: Path) -> list[Cast]:
    """Three machines, whose journals are collected."""
    casts = [Cast.of(directory / f"host-{number}") for number in range(3)]
    for number, cast in enumerate(casts):
        cast.sender.sent(f"m{number}")
        cast.receiver.received(f"m{number}", numbers=(number + 1,))
        cast.story.end()
    return casts


@pytest.mark.spec("R-141")
@pytest.mark.parametrize(
    ("expected", "said"),
    [
        (Expected({"sender": 3}), ""),
        (Expected({"sender": 2}), "2 journals of senders are expected, there are 3"),
        (Expected({"broker": 1}), "1 journals of brokers are expected, there are 0"),
    ],
)
def test_the_expected_number_of_journals_of_a_role_must_be_present(
    tmp_path: Path, expected: Expected, said: str
) -> None:
    three_senders(tmp_path / "journals")
    summary = audit(tmp_path / "journals", tmp_path / "out", expected=expected)

    assert summary.is_conserved is not bool(said)
    assert said in headline(summary)


@pytest.mark.spec("R-141")
def test_a_listed_journal_that_is_missing_or_shorter_is_reported(tmp_path: Path) -> None:
    casts = three_senders(tmp_path / "journals")
    entries = manifest(tmp_path / "journals")
    assert parse(as_text(entries)) == entries
    assert audit(tmp_path / "journals", tmp_path / "out", expected=Expected(writers=entries)).is_conserved

    casts[2].story.file_of(WriterRole.SENDER).unlink()
    short = casts[1].story.file_of(WriterRole.SENDER)
    short.write_bytes(
        b"".join(short.read_bytes().splitlines(keepends=True)[:-1])
    )  # as if it were still written
    summary = audit(tmp_path / "journals", tmp_path / "out", expected=Expected(writers=entries))
    writers = [cast.sender.journal.writer[:8] for cast in casts]
    assert set(summary.missed) == {
        f"the journal of the sender {writers[2]} is missing",
        f"the journal of the sender {writers[1]} has 2 of 3 records",
    }


@pytest.mark.spec("R-141")
def test_a_journal_of_another_run_is_in_no_manifest(tmp_path: Path) -> None:
    three_senders(tmp_path / "journals")
    entries = manifest(tmp_path / "journals")
    three_senders(tmp_path / "journals" / "yesterday")
    summary = audit(tmp_path / "journals", tmp_path / "out", expected=Expected(writers=entries))

    assert not summary.is_conserved
    assert len([each for each in summary.missed if "is it of another run?" in each]) == 9


def test_a_compressed_copy_matches_its_manifest_entry(tmp_path: Path) -> None:
    (cast, *_) = three_senders(tmp_path / "journals")
    before = manifest(tmp_path / "journals")
    file = cast.story.file_of(WriterRole.SENDER)
    file.with_suffix(".jsonl.gz").write_bytes(gzip.compress(file.read_bytes()))
    assert manifest(tmp_path / "journals") == before

    file.unlink()
    assert manifest(tmp_path / "journals") == before


@pytest.mark.spec("R-145")
def test_a_closed_file_wins_over_an_earlier_copy_of_it(tmp_path: Path) -> None:
    cast = healthy(tmp_path / "journals")
    cast.story.end()
    entries = manifest(tmp_path / "journals")
    for file in list((tmp_path / "journals").iterdir()):
        part = file.read_bytes().splitlines(keepends=True)[:2]
        file.with_name(f"_open-{file.name}").write_bytes(b"".join(part))

    assert manifest(tmp_path / "journals") == entries
    summary = audit(tmp_path / "journals", tmp_path / "out", expected=Expected(writers=entries))
    assert summary.is_conserved, headline(summary)


@pytest.mark.parametrize(
    "text", ["", "[]", '{"manifest": 2, "writers": []}', '{"manifest": 1, "writers": [{}]}']
)
def test_an_invalid_manifest_is_refused(text: str) -> None:
    with pytest.raises(JournalError, match="manifest"):
        parse(text)


@pytest.mark.spec("R-197")
@pytest.mark.parametrize("damage", ["cut", "flipped", "checksum"])
def test_a_damaged_compressed_journal_makes_the_audit_red(tmp_path: Path, damage: str) -> None:
    (cast, *_) = three_senders(tmp_path / "journals")
    file = cast.story.file_of(WriterRole.SENDER)
    packed = bytearray(gzip.compress(file.read_bytes()))
    file.unlink()
    if damage == "cut":
        packed = packed[: len(packed) // 2]
    else:
        packed[-6 if damage == "checksum" else len(packed) // 2] ^= 0xFF
    file.with_suffix(".jsonl.gz").write_bytes(packed)

    assert not audit(tmp_path / "journals", tmp_path / "out").is_conserved
