"""The ledger classifies messages as Jepsen does: lost, duplicated, unexpected and recovered."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbpair.testing import Inversion, Ledger

IDS = st.sampled_from([f"order-{i}" for i in range(6)])
EVENTS = st.lists(st.tuples(st.sampled_from(["attempted", "acknowledged", "received"]), IDS), max_size=60)


def told(events):
    ledger = Ledger()
    for verb, message_id in events:
        getattr(ledger, verb)(message_id)
    return ledger


@pytest.mark.spec("G-1")
def test_an_acknowledged_message_that_never_arrives_is_lost():
    report = told([("attempted", "a"), ("acknowledged", "a")]).check()

    assert report.lost == {"a"}
    assert not report.is_conserved


def test_a_failed_send_that_never_arrives_is_not_lost():
    report = told([("attempted", "a")]).check()

    assert report.lost == frozenset()
    assert report.sent == 1
    assert report.is_conserved


@pytest.mark.spec("G-7")
def test_a_failed_send_that_arrives_is_recovered():
    report = told([("attempted", "a"), ("received", "a")]).check()

    assert report.recovered == {"a"}
    assert report.unexpected == frozenset()
    assert report.delivered == 1


@pytest.mark.spec("G-2")
def test_a_message_nobody_sent_is_unexpected_and_not_delivered():
    report = told([("received", "ghost")]).check()

    assert report.unexpected == {"ghost"}
    assert report.delivered == 0
    assert not report.is_conserved


@pytest.mark.spec("G-4")
def test_three_arrivals_are_one_duplicated_id_and_two_extra_copies():
    report = told([("acknowledged", "a"), *[("received", "a")] * 3]).check()

    assert report.duplicated == {"a"}
    assert report.duplicates == 2
    assert report.delivered == 1


def test_a_retry_with_the_same_id_counts_as_one_message():
    report = told([("attempted", "a"), ("attempted", "a"), ("acknowledged", "a"), ("received", "a")]).check()

    assert (report.sent, report.delivered, report.duplicates) == (1, 1, 0)


def test_the_report_reads_as_a_sentence():
    assert str(told([("acknowledged", "a")]).check()) == (
        "sent 1, acknowledged 1, delivered 0, lost 1, duplicated 0 (+0 copies), unexpected 0, recovered 0"
    )


@given(EVENTS, st.randoms(use_true_random=False))
def test_the_order_of_calls_does_not_matter(events, rng):
    shuffled = list(events)
    rng.shuffle(shuffled)

    assert told(events).check() == told(shuffled).check()


@pytest.mark.spec("G-2")
@given(EVENTS)
def test_every_id_is_accounted_for_exactly_once(events):
    ledger = told(events)
    report = ledger.check()
    arrived = {message_id for verb, message_id in events if verb == "received"}
    known = {message_id for verb, message_id in events if verb != "received"}

    assert report.lost.isdisjoint(arrived)
    assert report.recovered | report.unexpected <= arrived
    assert report.recovered.isdisjoint(report.unexpected)
    assert report.delivered == len(arrived & known)
    assert report.acknowledged == report.delivered - len(report.recovered) + len(report.lost)
    assert report.delivered + len(report.unexpected) + report.duplicates == ledger.arrivals
    assert len(report.lost) == ledger.outstanding


@given(EVENTS)
def test_the_report_equals_a_count_by_hand(events):
    copies = {m: sum(1 for v, i in events if (v, i) == ("received", m)) for _, m in events}
    report = told(events).check()

    assert report.duplicated == {m for m, n in copies.items() if n > 1}
    assert report.duplicates == sum(n - 1 for n in copies.values() if n > 1)
    assert report.sent == len({m for v, m in events if v != "received"})


def acknowledged_in(session, *ids):
    ledger = Ledger()
    for key in ids:
        ledger.acknowledged(key, session)
    return ledger


@pytest.mark.spec("O-1")
def test_a_session_that_arrives_in_send_order_is_in_order_even_with_copies():
    ledger = acknowledged_in("s", "5", "6", "7")
    ledger.received_all(["5", "6", "5", "6", "7"])

    assert (ledger.check().sessions, ledger.check().is_ordered) == (1, True)


@pytest.mark.spec("O-1")
def test_a_message_that_arrives_after_a_later_one_of_its_session_is_an_inversion():
    ledger = acknowledged_in("s", "5", "6", "7", "8")
    ledger.acknowledged("1", "another")
    ledger.received_all(["5", "7", "1", "6", "8"])
    report = ledger.check()

    assert report.inversions == (Inversion("s", "6", "7"),)
    assert (report.sessions, report.is_ordered, report.is_conserved) == (2, False, True)
    assert repr(report).startswith("<out of order: 6; ")


@pytest.mark.spec("O-1")
def test_missing_messages_and_failed_sends_break_no_order():
    ledger = acknowledged_in("s", "5", "6", "7")
    ledger.attempted("8")
    ledger.received_all(["8", "5", "7"])

    assert ledger.check().is_ordered
    assert ledger.check().lost == {"6"}


@given(st.permutations("abcdef"))
def test_order_holds_if_no_message_arrives_before_an_earlier_one(arrivals):
    ledger = acknowledged_in("s", *"abcdef")
    ledger.received_all(arrivals)

    assert ledger.check().is_ordered == (arrivals == sorted(arrivals))


def test_threads_may_write_at_the_same_time():
    ledger = Ledger()
    ids = [f"m{i}" for i in range(2000)]
    calls = [(verb, m) for m in ids for verb in (ledger.attempted, ledger.acknowledged, ledger.received)]
    random.Random(1).shuffle(calls)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda call: call[0](call[1]), calls))

    report = ledger.check()
    assert (report.sent, report.delivered, report.duplicates) == (2000, 2000, 0)
    assert report.is_conserved


def test_a_report_names_lost_messages_first_and_in_order():
    ledger = told([("acknowledged", f"order-{number:02}") for number in range(30)])
    ledger.received_all(["order-00", "order-00", "order-00", "order-07", "alien"])
    ledger.ambiguous("order-00")

    assert repr(ledger.check()) == (
        "<lost: order-01, order-02, order-03, order-04, order-05 and 23 more; unexpected: alien; "
        "more copies than ambiguities: order-00; sent 30, acknowledged 30, delivered 2, lost 28, "
        "duplicated 1 (+2 copies), unexpected 1, recovered 0>"
    )


def test_a_report_without_findings_has_only_counts():
    ledger = told([("acknowledged", "a"), ("received", "a")])
    assert repr(ledger.check()) == f"<{ledger.check()}>"
