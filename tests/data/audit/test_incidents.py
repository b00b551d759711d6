"""Incidents: no audit is green by mistake, and none red; the short form of ``python -m tests.trials.incidents``."""

from __future__ import annotations

import random
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sbpair.audit import Expected, LocalEngine, Verdict, audit
from sbpair.data.audit import job
from sbpair.data.audit.daily import Terms, audit_daily
from sbpair.data.audit.result.report import Provenance, headline, page
from sbpair.pair.observation.manifest import Accepted, as_text, parse, parse_accepted
from tests.data.audit.incidents import INCIDENTS, Day, Drawn, drawn
from tests.data.audit.world import SHAPES, WRITERS, a_day

SHORT = list(drawn((7,)))
ON_MESSAGES = [each for each in SHORT if each.shape == "all"]


@pytest.fixture(autouse=True)
def _no_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures take most of the time, and nothing here is about them."""
    monkeypatch.setattr(job, "page", lambda *given: "")


@pytest.mark.spec("R-221", "R-222", "R-223", "R-224", "R-225", "R-226", "R-227")
@pytest.mark.parametrize("each", SHORT, ids=str)
def test_an_audit_without_a_manifest_finds_the_expected_incidents(each: Drawn, tmp_path: Path) -> None:
    each.happens(tmp_path / "journals")
    found = audit(tmp_path / "journals", tmp_path / "out", engine=LocalEngine(1))

    assert each.what_is_wrong(found, has_manifest=False) is None, headline(found)


@pytest.mark.spec("R-221", "R-222", "R-223", "R-224", "R-225", "R-226", "R-227")
@pytest.mark.parametrize("each", ON_MESSAGES, ids=str)
def test_a_daily_audit_reports_an_incident_like_a_single_audit(each: Drawn, tmp_path: Path) -> None:
    expected = each.happens(tmp_path / "journals")
    once = audit(tmp_path / "journals", tmp_path / "out", engine=LocalEngine(1), expected=expected)
    daily = audit_daily(tmp_path / "journals", tmp_path / "state", terms=Terms(expected=expected)).summary

    assert headline(daily) == headline(once)


# What the first line says of an incident, beside the numbers.
SAID = {
    "a file is cut": "a file was cut",
    "a last file was not collected": "1 journal whose next file is missing",
    "a file goes on after its end": "a file goes on after its closing record",
    "a restore was interrupted": "file not read",
    "the receivers clock is behind": "differ by at least",
    "the senders clock is off": "differ by at least",
    "messages are deleted": "deleted",
    "messages expire": "expired",
    "messages are dead lettered": "dead-lettered",
    "a repeated send is dropped as a duplicate": "dropped as duplicates 1",
    "the syphon forwards again what it could not remove": "arrived more than once",
    "messages arrive in another session": "misplaced",
    "messages arrive with another body": "changed",
    "messages arrive without their ids": "messages without an id",
}


@pytest.mark.spec("R-221", "R-222", "R-224", "R-225", "R-226")
@pytest.mark.parametrize("name", SAID)
def test_the_first_line_summarises_the_incident(name: str, tmp_path: Path) -> None:
    Drawn(INCIDENTS[name], "all", 7).happens(tmp_path / "journals")
    found = audit(tmp_path / "journals", tmp_path / "out", engine=LocalEngine(1))

    assert SAID[name] in headline(found)


@pytest.mark.spec("R-224")
def test_messages_deleted_as_announced_are_no_failure_and_further_ones_are(tmp_path: Path) -> None:
    day = Day(random.Random(1), "all")
    deleted = day.some()
    day.removed(deleted, "deleted")
    day.write(tmp_path / "journals")

    def result(count: int) -> bool:
        accept = {"deleted": count}
        return audit(tmp_path / "journals", tmp_path / "out", accept=accept).is_conserved

    assert (result(len(deleted)), result(len(deleted) - 1)) == (True, False)
    with pytest.raises(ValueError, match="lost=1 cannot be accepted"):
        audit(tmp_path / "journals", tmp_path / "out", accept={"lost": 1})


@pytest.mark.spec("R-224")
def test_a_manifest_can_announce_deletions_and_the_page_explains_them(tmp_path: Path) -> None:
    day = Day(random.Random(1), "all")
    deleted = day.some()
    day.removed(deleted, "deleted")
    writers = day.write(tmp_path / "journals").writers
    text = as_text(list(writers), [Accepted("deleted", len(deleted), "test data of the <drill>")])
    expected = Expected(writers=parse(text), accepted=parse_accepted(text))
    found = audit(tmp_path / "journals", tmp_path / "out", expected=expected)
    daily = audit_daily(tmp_path / "journals", tmp_path / "state", terms=Terms(expected=expected)).summary

    assert (found.is_conserved, daily.is_conserved) == (True, True)
    assert f"deleted {len(deleted)} (accepted {len(deleted)})" in headline(found)
    assert found.meant == daily.meant == [Accepted("deleted", len(deleted), "test data of the <drill>")]
    assert "test data of the &lt;drill&gt;" in page(found, Provenance("journals", datetime.now(UTC), "out"))
    lost = Expected(accepted=[Accepted("lost", 1, "never mind")])
    with pytest.raises(ValueError, match="lost=1 cannot be accepted"):
        audit(tmp_path / "journals", tmp_path / "out", expected=lost)


@pytest.mark.spec("R-222")
def test_a_wrong_clock_proves_no_loss(tmp_path: Path) -> None:
    """Its sender's clock is two hours behind: what it parked after the backlogs were found empty seems to be older."""
    world = a_day()
    late = "p11"
    world.drop("syphon", [late])
    for who in ("primary", "receiver"):
        world.drop(who, [late])
    (drained,) = world.of("syphon", "backlogs_drained")
    first = world.first("sender", "message_parked", late)
    drained["at"] = first["at"]  # a moment before it was parked, by the syphon's clock
    world.rows["syphon"].sort(key=lambda row: row["at"])
    world.shift("sender", -7200.0)
    world.write(tmp_path / "journals", "cloud")
    found = audit(tmp_path / "journals", tmp_path / "out")

    assert not found.is_conserved
    assert not found.verdicts[Verdict.LOST]


@pytest.mark.spec("R-221")
@pytest.mark.parametrize("who", WRITERS)
def test_a_duplicate_of_another_file_proves_neither_loss_nor_copy(who: str, tmp_path: Path) -> None:
    first, second = a_day().write(tmp_path / "journals", "all", files=2)[who]
    second.write_bytes(first.read_bytes())
    found = audit(tmp_path / "journals", tmp_path / "out")

    assert (found.is_conserved, found.verdicts[Verdict.LOST], found.duplicated) == (False, 0, 0)


@pytest.mark.spec("R-226")
@pytest.mark.parametrize(("arrived", "changed"), [((1, 2, 3), 0), ((2,), 0), ((4,), 1)])
def test_a_body_counts_as_changed_if_no_sender_of_its_id_sent_it(
    arrived: tuple[int, ...], changed: int, tmp_path: Path
) -> None:
    world = a_day()
    for each in (1, 2, 3):
        world.again("sender", "send_accepted", "d03", checksums=[each])
    for number, each in enumerate(arrived):
        world.again(
            "receiver", "messages_received", "d03", checksums=[each], sequence_numbers=[9000 + number]
        )
    world.write(tmp_path / "journals", "cloud")

    assert audit(tmp_path / "journals", tmp_path / "out").verdicts[Verdict.CHANGED] == changed


@pytest.mark.spec("R-242")
@pytest.mark.parametrize("shape", SHAPES)
def test_a_landed_message_is_one_message(shape: str, tmp_path: Path) -> None:
    world = a_day()
    landed = next(row["message_ids"] for row in world.of("syphon", "messages_forwarded"))
    for row in world.of("syphon", "messages_forwarded"):
        if row["message_ids"] == landed:
            row["side"] = "secondary"
    for row in world.of("receiver", "messages_received"):
        if row["message_ids"][0] in landed:
            row["side"] = "secondary"
    for row in [row for row in world.rows["primary"] if row.get("message_ids", ["-"])[0] in landed]:
        world.rows["primary"].remove(row)
        there = {name: world.edges["secondary"][0][name] for name in ("writer", "pair")}
        world.rows["secondary"].append({**row, **there})
    world.write(tmp_path / "journals", shape)
    found = audit(tmp_path / "journals", tmp_path / "out")

    assert (found.is_conserved, found.messages) == (True, 41)
    assert {each.primary for each in found.entities} == {"contoso"}


@pytest.mark.spec("R-229")
def test_a_lost_message_shows_its_last_record(tmp_path: Path) -> None:
    world = a_day()
    for who in ("secondary", "syphon", "primary", "receiver"):
        world.drop(who, ["p05"])
    files = world.write(tmp_path / "journals", "all")
    (lost,) = audit(tmp_path / "journals", tmp_path / "out").troubles
    (file,) = files["sender"]
    ordinal = next(
        index
        for index, line in enumerate(file.read_bytes().splitlines())
        if b"message_parked" in line and b"p05" in line
    )

    assert (lost.verdict, lost.message_id) == ("lost", "p05")
    assert lost.last_seen.endswith(f" UTC, record {ordinal} of {file.name}")
