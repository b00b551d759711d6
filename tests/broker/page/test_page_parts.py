"""The history behind the page and its rendering, without a broker or a browser."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest

from sbpair.broker.frontends.dashboard.message import MAX_BODY, body_view, message_view
from sbpair.broker.frontends.dashboard.timeline import KEPT, MAX_ENTITIES, PairTimeline
from sbpair.broker.frontends.dashboard.views import MAX_KEYS, SAMPLES, History
from sbpair.broker.frontends.refusals import KEPT as REFUSALS_KEPT
from sbpair.broker.frontends.refusals import MAX_CONDITIONS, Rejections
from sbpair.pair.amqp.message import DataBody, Message, Properties, SequenceBody, ValueBody
from sbpair.pair.amqp.types import Int, Symbol, Timestamp
from sbpair.pair.observation.journal_reading import INITIAL_BYTES, JournalTail


def record(event, at, path="orders", **more):
    return {"event": event, "at": f"2026-11-21T06:34:{at:02}.000Z", "path": path, "role": "sender", **more}


def test_a_repeated_event_within_one_state_is_shown_once_with_its_count():
    story = PairTimeline()
    story.take(
        [record("entity_failed_over", 1), *(record("ping_failed", n, cause="no") for n in range(2, 9))]
    )
    story.take([record("entity_recovered", 20), record("ping_failed", 21)])
    told = [(each["event"], each["times"]) for each in story.view()["events"]]
    assert told == [
        ("ping_failed", 1),
        ("entity_recovered", 1),
        ("ping_failed", 7),
        ("entity_failed_over", 1),
    ]


def test_broker_message_events_are_excluded_from_the_pairing_story():
    story = PairTimeline()
    story.take([record("messages_stored", 1) | {"role": "broker"}, record("entity_failed_over", 2)])
    assert [each["event"] for each in story.view()["events"]] == ["entity_failed_over"]


@pytest.mark.spec("C-3")
def test_landed_messages_are_distinguished_from_returned_ones():
    story = PairTimeline()
    forwarded = {"message_ids": ["a", "b"], "backlog_queue": "b0"}
    story.take([record("landing_began", 1), record("landing_began", 1, "bills")])
    story.take([record("messages_forwarded", 2, side="secondary", **forwarded)] * 3)
    assert story.view()["landing"] == ["orders", "bills"]
    story.take([record("landing_refused", 3, "bills", reason="not found"), record("landing_ended", 4)])
    story.take([record("messages_forwarded", 5, side="primary", **forwarded)])
    view = story.view()
    assert view["landing"] == []
    assert [(each["event"], each["messages"]) for each in view["events"]] == [
        ("messages_forwarded", 2),
        ("landing_ended", 0),
        ("landing_refused", 0),
        ("messages_landed", 6),
        ("landing_began", 0),
        ("landing_began", 0),
    ]


@pytest.mark.spec("C-3")
def test_the_number_of_shown_landings_is_bounded():
    story = PairTimeline()
    story.take(record("landing_began", n % 60, path=f"path-{n}") for n in range(500))
    assert len(story.view()["landing"]) == MAX_ENTITIES


def test_the_length_of_a_story_is_bounded():
    story = PairTimeline()
    story.take(record("entity_suspected", n % 60, path=f"path-{n}", cause="x" * 9999) for n in range(2000))
    story.take([{}, {"event": 7, "at": None}, {"event": "x" * 999, "at": "never", "path": None}])
    story.take(record(f"event-{n}", n % 60) for n in range(20_000))
    view = story.view()
    assert len(view["events"]) == KEPT
    assert len(json.dumps(view)) < 300_000


def test_samples_are_taken_no_faster_than_the_page_shows_them():
    history = History()
    for at in range(0, 200_000, 100):
        kept = history.add("orders", at, (at,))
    assert len(kept) == SAMPLES
    assert min(b[0] - a[0] for a, b in pairwise(kept)) >= 900
    for number in range(MAX_KEYS):
        history.add(f"{number}", 0, (0,))
    assert len(history.add("orders", 200_000, (1,))) == 1  # older entries were dropped


def test_refusals_are_counted_permanently_and_kept_for_a_while():
    refusals = Rejections()
    for number in range(1000):
        refusals.note(number, "p" * 9999, f"condition-{number}", "t" * 9999)
    assert refusals.total == 1000
    assert len(refusals.recent) == REFUSALS_KEPT
    assert len(refusals.by_condition) == MAX_CONDITIONS + 1
    assert max(len(each.text) for each in refusals.recent) == 300


def test_bodies_of_each_kind_are_shown_and_long_ones_truncated():
    assert body_view(DataBody((b"caf\xc3\xa9",)))["text"] == "café"
    assert body_view(DataBody((b"\xff\xfe",)))["hex"] == "ff fe"
    assert body_view(ValueBody({"a": [1, None, True]}))["text"] == "{a: [1, null, true]}"
    assert body_view(SequenceBody(([1, "two"], [3])))["text"] == "[1, two, 3]"
    assert body_view(ValueBody([Int(1), Symbol("red"), Timestamp(0)]))["text"] == (
        "[1, red, 1970-01-01 00:00:00.000 UTC]"
    )
    assert body_view(None)["kind"] == "none"
    long = body_view(DataBody((b"x" * 10**6,)))
    assert (long["size"], len(long["text"]), long["is_whole"]) == (10**6, MAX_BODY, False)


def test_an_unreadable_message_is_marked_as_unreadable():
    assert "cannot be shown" in message_view(b"\x00\x53\xff")["error"]
    shown = message_view(Message(properties=Properties(subject="hi"), body=ValueBody("there")).encode())
    assert shown["properties"] == [{"name": "subject", "type": "str", "text": "hi"}]


def test_a_tail_yields_each_record_once_across_a_file_rename(tmp_path):
    tail, growing = JournalTail(tmp_path), tmp_path / "_open-sender-1-000001.jsonl"
    assert tail.new_records() == []
    growing.write_bytes(b'{"ordinal":0}\n{"ord')
    assert tail.new_records() == [{"ordinal": 0}]
    growing.write_bytes(b'{"ordinal":0}\n{"ordinal":1}\nnot json\n[]\n{"ordinal":2}\n')
    assert tail.new_records() == [{"ordinal": 1}, {"ordinal": 2}]
    growing.rename(tmp_path / "sender-1-000001.jsonl")
    assert tail.new_records() == []


def test_a_tail_starts_near_the_end_of_an_existing_file(tmp_path):
    line = json.dumps({"text": "x" * 1000}).encode() + b"\n"
    (tmp_path / "sender-1-000001.jsonl").write_bytes(line * 10_000 + b'{"ordinal":9}\n')
    found = JournalTail(tmp_path).new_records()
    assert found[-1] == {"ordinal": 9}
    assert len(found) <= INITIAL_BYTES // len(line) + 2
    assert all(each.keys() <= {"text", "ordinal"} for each in found)
