"""Is the page readable, whatever the journals hold? Told from numbers: no Spark in here."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta

import pytest

from sbpair.spark.audit.bill import Charge, Meter
from sbpair.spark.audit.instants import EPOCH
from sbpair.spark.audit.report import headline, page
from sbpair.spark.audit.summary import MOST_ROWS, Duplicate, Entity, Flow, Summary, Trouble, Wait, Writer
from sbpair.spark.audit.timeline import Episode
from sbpair.spark.audit.verdict import Verdict

NOON = EPOCH + timedelta(days=20_000, hours=12)
NOTHING = Summary([], [], [], 0, 0, 0, [], 0, 0, [], [], [], [], 0.1)


def after(seconds: float):
    return NOON + timedelta(seconds=seconds)


def episode(number: int, path: str = "orders", primary: str = "contoso") -> Episode:
    return Episode(primary, path, f"w{number}", None, after(number), after(number + 9), "refused")


def text_of(html: str) -> str:
    return re.sub(r"<svg.*?</svg>", "", html, flags=re.DOTALL)


def test_nothing_at_all_is_a_page_without_empty_tables() -> None:
    html = page(NOTHING)

    assert "no messages in these journals" in html
    assert "<table><tr><th>verdict" not in html
    assert headline(NOTHING) == "no messages in these journals"


def test_several_entities_are_told_apart_the_worst_first() -> None:
    several = replace(
        NOTHING,
        entities=[
            Entity("contoso", "invoices", {Verdict.DELIVERED: 100_000}),
            Entity("fabrikam", "orders", {Verdict.DELIVERED: 5, Verdict.LOST: 2}),
        ],
    )
    html = page(several)

    assert several.verdicts[Verdict.DELIVERED] == 100_005
    assert html.index("fabrikam") < html.index("contoso")
    assert "100007 messages, of these 2 lost" in html


def test_a_long_table_is_cut_and_says_so() -> None:
    many = replace(
        NOTHING,
        entities=[Entity("contoso", "orders", {Verdict.LOST: 4000})],
        troubles=[Trouble("contoso", "orders", f"m{n}", "lost") for n in range(MOST_ROWS)],
        writers=[Writer(f"w{n}", "sender", 1, NOON, NOON, None) for n in range(1000)],
        timeline=[episode(n) for n in range(1000)],
    )
    html = text_of(page(many))

    assert f"{MOST_ROWS} of 4000 are shown" in html
    assert html.count(f"{MOST_ROWS} of 1000 are shown") == 2
    assert html.count("<tr") < 4 * (MOST_ROWS + 5)


@pytest.mark.parametrize(
    "name", ["$a$b$", "orders/$DeadLetterQueue", "<script>alert(1)</script>", "\\frac{$}$"]
)
def test_a_name_is_a_name_and_neither_a_formula_nor_markup(name: str) -> None:
    hostile = replace(
        NOTHING,
        entities=[Entity(name, name, {Verdict.DELIVERED: 1}), Entity("b", "b", {Verdict.LOST: 1})],
        troubles=[Trouble(name, name, name, "lost")],
        duplicates=[Duplicate(name, name, name, 2, 0)],
        duplicated=1,
        writers=[Writer(name, name, 1, None, None, name)],
        waits=[Wait(name, 0, 1, 0.1, 0.1, 0.1, 0.1), Wait("b", 0, 1, 0.1, 0.1, 0.1, 0.1)],
        timeline=[episode(0, name, name), episode(0, "b", "b")],
        flow=[Flow(NOON, 1, 1, 1)],
        bill=[Charge(Meter.OPERATIONS, name, 1)],
    )

    assert "<script" not in page(hostile)


def test_ids_that_were_sent_again_are_told() -> None:
    again = replace(NOTHING, entities=[Entity("c", "o", {Verdict.DELIVERED: 9})], repeated=3)

    assert "3 messages were accepted more than once" in page(again)


def test_a_month_without_a_message_still_has_its_picture() -> None:
    gap = replace(
        NOTHING,
        entities=[Entity("c", "o", {Verdict.DELIVERED: 2})],
        flow=[Flow(NOON, 1, 0, 0), Flow(NOON + timedelta(days=31), 1, 0, 0)],
        step=22_320.0,
        timeline=[Episode("c", "o", "w", NOON, after(60), None, "refused")],
    )

    assert page(gap).count("<svg") == 1
