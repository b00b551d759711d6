"""The broker answers as the service was recorded to answer, but for a list of accepted differences."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cloud.distil import distilled
from tests.cloud.exchanges import Exchange, Recording, Seen, entry_around, markup_of, recordings
from tests.cloud.outcome import accepted, outcome, replayed
from tests.cloud.replaying import Difference, Replayed

pytestmark = [pytest.mark.client("amqp"), pytest.mark.spec("W-7")]


@pytest.mark.slow
def test_recorded_exchanges_match_except_for_accepted_differences() -> None:
    others = {
        (each.label, difference)
        for each in replayed()
        for difference in each.differences
        if not any(acceptance.covers(each, difference) for acceptance in accepted())
    }
    assert others == set()


@pytest.mark.slow
def test_every_acceptance_is_used_and_has_its_reason() -> None:
    found = [(each, difference) for each in replayed() for difference in each.differences]
    unused = [each for each in accepted() if not any(each.covers(*difference) for difference in found)]
    assert unused == []
    assert all(each.reason.endswith(".") for each in accepted())


@pytest.mark.slow
def test_statuses_agree_and_nearly_all_client_visible_values_do() -> None:
    counts = outcome(replayed())
    assert counts["exchanges"] > 1000
    assert counts["status"] >= 0.998 * counts["exchanges"]
    assert counts["client"] >= 0.995 * counts["exchanges"]


# -- the reader and the comparison themselves


def test_another_value_or_status_is_a_difference_that_a_client_sees() -> None:
    recording = Recording("1 x", "source", "2020-01-01", [])
    exchange = Exchange("GET", "/q", Seen(200))
    for what in ("status", "value", "missing", "entry", "property"):
        found = [Replayed(recording, 0, exchange, (Difference(what, "/QueueDescription/LockDuration"),))]
        assert outcome(found)["client"] == 0
        assert not any(each.covers(found[0], found[0].differences[0]) for each in accepted())


def test_recordings_name_their_source_and_date() -> None:
    assert all(each.source and (not each.date or len(each.date) == 10) for each in recordings())
    assert len({each.name for each in recordings()}) == len(recordings())


def test_a_distilled_exchange_reproduces_its_document() -> None:
    described = ["QueueDescription", [["queueName", "a<b", {"ns": ""}], ["Status", "Active"], ["ForwardTo"]]]
    document = entry_around(described).decode()
    raw = {
        "recording": "007 test_x", "source": "s", "recorded": "Tue, 30 Jun 2015 20:50:19 GMT", "method": "PUT",
        "target": "/q", "request_headers": {"if-match": "*", "authorization": "secret"}, "request_body": document,
        "status": 200, "reason": "OK", "headers": {"etag": "636917708483070000"}, "body": document,
    }  # fmt: skip
    found = distilled([raw])
    (exchange,) = found["exchanges"]
    assert (found["name"], found["date"]) == ("007 test_x", "2015-06-30")
    assert (exchange["headers"], exchange["description"]) == ({"if-match": "*"}, described)
    assert exchange["seen"]["entries"] == [["", described]]
    assert exchange["seen"]["headers"] == {"etag": "TICKS"}
    assert "secret" not in json.dumps(found)


def test_markup_of_a_node_has_its_attributes() -> None:
    assert markup_of(["Filter", [["SqlExpression", "1<2"]], {"type": "SqlFilter"}]) == (
        '<Filter i:type="SqlFilter"><SqlExpression>1&lt;2</SqlExpression></Filter>'
    )


def test_data_holds_no_key_and_no_name_of_a_real_namespace() -> None:
    text = (Path(__file__).parent / "http.jsonl").read_text("utf-8")
    assert "SharedAccessSignature" not in text
    assert text.count(".servicebus.windows.net") == text.count("contoso.servicebus.windows.net")
