"""The report page is readable whatever the journals contain. Summaries are built by hand, without Spark."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta

import pytest

from sbpair import __version__
from sbpair.data.audit.judge.folding import MAX_ROWS
from sbpair.data.audit.judge.verdict import Verdict
from sbpair.data.audit.read.clocks import EPOCH, ClockCorrection
from sbpair.data.audit.read.journal_listing import Unread
from sbpair.data.audit.result.bill import Charge, Meter
from sbpair.data.audit.result.flow import FlowStep
from sbpair.data.audit.result.report import Provenance, headline, page, sources
from sbpair.data.audit.result.summary import (
    ClocksApart,
    Duplicate,
    EntityVerdicts,
    Summary,
    Trouble,
    Wait,
    Writer,
)
from sbpair.data.audit.result.timeline import Episode

NOON = EPOCH + timedelta(days=20_000, hours=12)
NOTHING = Summary([], [], [], 0, 0, 0, [], 0, 0, [], [], [], [], 0.1)


def after(seconds: float):
    return NOON + timedelta(seconds=seconds)


def episode(number: int, path: str = "orders", primary: str = "contoso") -> Episode:
    return Episode(primary, path, f"w{number}", None, after(number), after(number + 9), "refused")


def shown(summary: Summary) -> str:
    return page(summary, Provenance("journals", NOON, "results"))


def text_of(html: str) -> str:
    return re.sub(r"<svg.*?</svg>", "", html, flags=re.DOTALL)


def test_a_report_without_data_has_no_empty_tables() -> None:
    html = shown(NOTHING)

    assert "no messages in these journals" in html
    assert "<table><tr><th>verdict" not in html
    assert headline(NOTHING) == "no messages in these journals"


def test_several_entities_are_listed_separately_with_the_worst_first() -> None:
    several = replace(
        NOTHING,
        entities=[
            EntityVerdicts("contoso", "invoices", {Verdict.DELIVERED: 100_000}),
            EntityVerdicts("fabrikam", "orders", {Verdict.DELIVERED: 5, Verdict.LOST: 2}),
        ],
    )
    html = shown(several)

    assert several.verdicts[Verdict.DELIVERED] == 100_005
    assert html.index("<td>fabrikam") < html.index("<td>contoso")
    assert "100007 messages: lost 2, waiting 0" in html


TALLIES = (
    ({Verdict.DELIVERED: 39_607, Verdict.WAITING: 18}, "39625 messages: lost 0, waiting 18"),
    ({Verdict.LOST: 2, Verdict.UNPROVEN: 1}, "3 messages: lost 2, waiting 0, unproven 1"),
    ({Verdict.UNEXPECTED: 1}, "1 messages: lost 0, waiting 0, unexpected 1"),
)


@pytest.mark.spec("R-131")
@pytest.mark.parametrize(("verdicts", "said"), TALLIES)
def test_the_first_sentence_gives_the_numbers_of_lost_and_waiting_messages_even_if_zero(
    verdicts: dict[Verdict, int], said: str
) -> None:
    sender = Writer("w", "sender", 1, NOON, NOON, None, "contoso")
    several = replace(NOTHING, entities=[EntityVerdicts("contoso", "orders", verdicts)], writers=[sender])
    html = shown(several)

    assert headline(several).partition(";")[0] == said
    assert html.count(said) == 1
    assert f"<td>lost</td><td class=n>{verdicts.get(Verdict.LOST, 0)}</td>" in html


@pytest.mark.spec("R-131")
def test_the_first_sentence_does_not_claim_more_than_the_journals_prove() -> None:
    doubtful = replace(
        NOTHING,
        entities=[EntityVerdicts("contoso", "orders", {Verdict.DELIVERED: 1})],
        unread=[Unread("a.zip", "an archive")],
    )

    assert "all accounted for" not in headline(doubtful)


def test_a_long_table_is_cut_and_says_so() -> None:
    many = replace(
        NOTHING,
        entities=[EntityVerdicts("contoso", "orders", {Verdict.LOST: 4000})],
        troubles=[Trouble("contoso", "orders", f"m{n}", "lost") for n in range(MAX_ROWS)],
        writers=[Writer(f"w{n}", "sender", 1, NOON, NOON, None) for n in range(1000)],
        timeline=[episode(n) for n in range(1000)],
    )
    html = text_of(shown(many))

    assert f"{MAX_ROWS} of 4000 are shown" in html
    assert html.count(f"{MAX_ROWS} of 1000 are shown") == 2
    assert html.count("<tr") < 4 * (MAX_ROWS + 5)


@pytest.mark.parametrize(
    "name", ["$a$b$", "orders/$DeadLetterQueue", "<script>alert(1)</script>", "\\frac{$}$"]
)
def test_a_name_is_shown_as_text_and_never_as_formula_or_markup(name: str) -> None:
    hostile = replace(
        NOTHING,
        entities=[
            EntityVerdicts(name, name, {Verdict.DELIVERED: 1}),
            EntityVerdicts("b", "b", {Verdict.LOST: 1}),
        ],
        troubles=[Trouble(name, name, name, "lost")],
        duplicates=[Duplicate(name, name, name, 2, 0)],
        duplicated=1,
        writers=[Writer(name, name, 1, None, None, name)],
        waits=[Wait(name, 0, 1, 0.1, 0.1, 0.1, 0.1), Wait("b", 0, 1, 0.1, 0.1, 0.1, 0.1)],
        timeline=[episode(0, name, name), episode(0, "b", "b")],
        flow=[FlowStep(NOON, 1, 1, 1)],
        bill=[Charge(Meter.OPERATIONS, name, 1)],
    )

    assert "<script" not in shown(hostile)


def test_ids_that_were_sent_again_are_reported() -> None:
    again = replace(NOTHING, entities=[EntityVerdicts("c", "o", {Verdict.DELIVERED: 9})], repeated=3)

    assert "3 messages were accepted more than once" in shown(again)


def test_a_month_without_messages_has_a_chart() -> None:
    gap = replace(
        NOTHING,
        entities=[EntityVerdicts("c", "o", {Verdict.DELIVERED: 2})],
        flow=[FlowStep(NOON, 1, 0, 0), FlowStep(NOON + timedelta(days=31), 1, 0, 0)],
        step=22_320.0,
        timeline=[Episode("c", "o", "w", NOON, after(60), None, "refused")],
    )

    assert shown(gap).count("<svg") == 1


SENDER = Writer("w", "sender", 1, NOON, NOON, None, "c")
ONE = replace(NOTHING, entities=[EntityVerdicts("c", "o", {Verdict.DELIVERED: 1})], writers=[SENDER])


@pytest.mark.spec("R-74")
def test_an_audit_of_no_messages_is_not_green() -> None:
    assert not NOTHING.is_conserved
    assert "class='verdict bad'" in shown(NOTHING)
    assert ONE.is_conserved


@pytest.mark.spec("R-74")
def test_unread_files_are_listed_and_make_the_verdict_unproven() -> None:
    some = replace(ONE, unread=[Unread("host/<b>.zst", "packed")])

    assert not some.is_conserved
    assert headline(some) == ("1 messages: lost 0, waiting 0; unproven: 1 file not read")
    assert "host/&lt;b&gt;.zst" in shown(some)
    lost = replace(some, entities=[EntityVerdicts("c", "o", {Verdict.LOST: 1})])
    assert headline(lost) == "1 messages: lost 1, waiting 0; unproven: 1 file not read"


@pytest.mark.spec("R-74")
@pytest.mark.parametrize(
    ("role", "reason", "is_green"),
    [
        ("sender", "records are missing", False),
        ("sender", "its beginning is missing", False),
        ("sender", "events could not be written", False),
        ("sender", "it has unreadable lines", False),
        ("sender", "it has no closing record: killed, or still writing", True),
        ("?", "it has no closing record: killed, or still writing", False),
        ("receiver", "records are missing", False),  # a copy, or that its queue was empty
        ("syphon", "its lines are not those that were written: the checksum differs", False),
        ("receiver", "it has no closing record: killed, or still writing", True),
    ],
)
def test_gaps_in_a_journal_of_an_unknown_role_may_be_messages(role: str, reason: str, is_green: bool) -> None:
    holed = replace(ONE, writers=[SENDER, Writer("w", role, 1, NOON, NOON, reason)])

    assert holed.is_conserved is is_green


@pytest.mark.spec("R-75")
def test_corrected_and_widely_differing_clocks_are_reported() -> None:
    corrected = replace(ONE, clocks=[ClockCorrection("a-syphon's-uuid", -10.0)], skew=1.0)

    assert corrected.is_conserved
    assert "-10.0 s" in shown(corrected)
    assert "Clocks" not in shown(ONE)
    pair = ClocksApart("the sender a", "the receiver b", 8.0)
    apart = replace(ONE, skew=1.0, shown=8.0, apart=[pair])
    assert headline(apart).endswith(
        "; unproven: clocks of the sender a and the receiver b differ by at least 8.0 s (--skew 1s)"
    )
    assert "a larger --skew" in shown(apart)


@pytest.mark.spec("R-131")
def test_the_headline_claims_only_what_the_journals_prove() -> None:
    accepted = replace(ONE, entities=[EntityVerdicts("c", "o", {Verdict.ACCEPTED: 3})])
    some = replace(ONE, entities=[EntityVerdicts("c", "o", {Verdict.ACCEPTED: 1, Verdict.DELIVERED: 2})])

    assert headline(ONE) == "1 messages: lost 0, waiting 0; all accounted for"
    assert headline(accepted).endswith(
        "of all of them none shows what became of them after they were accepted"
    )
    assert "; all accounted for as far as these journals go: of 1 of them none" in headline(some)
    assert sources(accepted) == "By the journals of 1 sender; there are none of receivers or brokers."


@pytest.mark.spec("R-131")
def test_the_report_shows_writers_directories_times_and_versions() -> None:
    html = page(ONE, Provenance("s3://<incidents>", NOON, "results"))

    assert "By the journals of 1 sender" in html
    assert f"s3://&lt;incidents&gt;, {NOON:%Y-%m-%d} 12:00:00 UTC, sbpair {__version__}" in html
    assert "name=viewport" in html


@pytest.mark.spec("R-141")
def test_an_audit_without_a_sender_journal_is_not_green() -> None:
    nobody = replace(ONE, writers=[replace(SENDER, role="syphon")])

    assert not nobody.is_conserved
    assert headline(nobody).endswith("; unproven: no sender's journal of c")


@pytest.mark.spec("R-141")
def test_a_clock_changed_while_its_writer_ran_is_not_green() -> None:
    moved = replace(ONE, moved=3600.0, skew=1.0)

    assert not moved.is_conserved
    assert headline(moved).endswith("; unproven: a writer's clock moved by 3600.0 s (--skew 1s)")
