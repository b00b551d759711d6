"""Rows as messages: columns, ids, batches; without a JVM."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbpair.data.spark.encoded_batch import EncodedBatch
from sbpair.data.spark.encoded_rows import COLUMNS
from sbpair.data.spark.message_sink import SinkOptions
from sbpair.data.spark.outgoing import (
    RowMessage,
    digest,
    id_maker,
    id_strategy,
    known_names,
    outgoing,
    outgoing_message,
    to_message,
)
from sbpair.data.spark.sending import batches
from sbpair.data.spark.syphon_source import DrainOptions
from sbpair.pair.amqp.message import Message
from sbpair.pair.pairing.request.request import PairedMessageBatch

PLAIN = {"body": "string"}
UUID = "0dcd6d7c-3c3e-4f67-8d5c-1a1a1a1a1a1a"
BOTH = {"connectionString": "env:ONE", "secondaryConnectionString": "env:TWO"}


def row(body: object = "x", **values: object):
    return outgoing(("body", *values), (body, *values.values()))


@pytest.mark.spec("R-237")
def test_column_names_ignore_case_as_in_spark() -> None:
    assert known_names(["Body", "SUBJECT", "own"]) == ("body", "subject", "own")
    assert known_names(["subject", "Subject"]) == ("subject", "Subject")


def test_a_hash_id_covers_everything_of_a_message_but_its_id() -> None:
    assert digest(row("a", subject="s")) == digest(row(b"a", subject="s", message_id="m"))
    assert len({digest(row("a")), digest(row("b")), digest(row("a", subject="s"))}) == 3


def test_an_id_column_must_contain_valid_ids() -> None:
    by_column = id_maker("column", "")
    assert by_column(row(message_id="m"), 0) == "m"
    with pytest.raises(ValueError, match="message_id of a row is null or empty"):
        by_column(row(message_id=None), 0)
    with pytest.raises(ValueError, match="has more than 128 characters"):
        by_column(row(message_id="m" * 129), 0)


def test_a_column_of_ids_is_used_automatically() -> None:
    assert id_strategy(PLAIN | {"message_id": "string"}, None, "q") == "column"
    assert id_strategy(PLAIN | {"message_id": "string"}, "hash", "q") == "hash"


@pytest.mark.spec("R-70")
def test_without_an_id_column_each_row_gets_a_new_id_in_every_run() -> None:
    assert id_strategy(PLAIN, None, "q") == "unique"
    runs = [id_maker("unique", f"{UUID}:{2**63}:{2**31}") for _ in range(2)]
    ids = [run(row(), place) for run in runs for place in (0, 2**63)]

    assert len(set(ids)) == 4
    assert all(each.startswith(f"{UUID}:{2**63}:") for each in ids), "whose batch it is can be seen"
    assert max(map(len, ids)) <= 128


@pytest.mark.spec("R-70")
def test_a_hash_id_covers_the_chosen_columns() -> None:
    options = SinkOptions.of(BOTH | {"messageIdColumns": "subject, correlation_id"})
    assert (options.strategy, options.id_columns) == ("hash", ("subject", "correlation_id"))
    by_hash = id_maker("hash", "any", options.id_columns)

    assert by_hash(row("a", subject="s", to="x"), 0) == by_hash(row("b", subject="s", to="y"), 7)
    assert by_hash(row(subject="s"), 0) != by_hash(row(correlation_id="s"), 0)
    assert (
        digest(row("a", subject="s"), ("body",)) == digest(row("a"), ("body",)) != digest(row("b"), ("body",))
    )
    with pytest.raises(ValueError, match="messageIdColumns names 'to'; the rows have body"):
        id_strategy(PLAIN, "hash", "q", ("to",))
    with pytest.raises(ValueError, match="messageIdColumns needs messageIdStrategy=hash, not unique"):
        SinkOptions.of(BOTH | {"messageIdColumns": "subject", "messageIdStrategy": "unique"})


@pytest.mark.spec("R-70")
def test_position_ids_are_refused_because_they_can_lose_rows() -> None:
    with pytest.raises(ValueError, match="messageIdStrategy"):
        SinkOptions.of(BOTH | {"messageIdStrategy": "batch"})


@pytest.mark.spec("R-70")
def test_a_hash_does_not_depend_on_the_time_zone_of_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    due = datetime(2026, 11, 21, 12, tzinfo=UTC)
    found = set()
    for zone in ("UTC", "America/New_York"):
        monkeypatch.setenv("TZ", zone)
        time.tzset()
        local = due.astimezone().replace(tzinfo=None)  # as Spark hands it to Python
        found.add(digest(row(scheduled_enqueue_time=local)))
    monkeypatch.undo()
    time.tzset()

    assert len(found) == 1


WRONG = {
    "unknown": (
        {"body": "string", "subjekt": "string"},
        None,
        "unknown column 'subjekt'; did you mean subject",
    ),
    "type": ({"body": "int"}, None, "the column body must be binary or string, not int"),
    "body": ({"subject": "string"}, None, "the column body is missing"),
    "ids": (PLAIN, "column", "messageIdStrategy=column needs a column message_id"),
}


@pytest.mark.parametrize("name", WRONG)
def test_unsendable_rows_are_refused_by_column(name: str) -> None:
    columns, strategy, text = WRONG[name]
    with pytest.raises(ValueError, match=text):
        id_strategy(columns, strategy, "q")
    with pytest.raises(ValueError, match="no destination"):
        id_strategy(PLAIN, None, None)


def test_a_row_becomes_the_described_message() -> None:
    due = datetime(2026, 11, 21, 12, tzinfo=UTC)
    sent = row(
        bytearray(b"x"),
        session_id="s",
        time_to_live=90,
        scheduled_enqueue_time=due,
        application_properties={"a": "b"},
        reply_to=None,
    )

    message = to_message(sent, "m")

    assert (message.message_id, message.session_id, message.time_to_live) == ("m", "s", timedelta(seconds=90))
    assert message.scheduled_enqueue_time_utc == due
    assert message.application_properties == {"a": "b"}
    assert message.reply_to is None


def message(message_id: str, body: object = "x") -> RowMessage:
    return outgoing_message(row(body), message_id, {})


def test_batches_respect_order_count_and_size_and_a_large_message_goes_alone() -> None:
    messages = [message(str(number), b"x" * 100_000) for number in range(5)]
    large = message("large", b"x" * 400_000)

    made = list(batches([*messages[:3], large, *messages[3:]], 100))

    ids = [each.message_id if isinstance(each, RowMessage) else each.message_ids() for each in made]
    assert ids == [("0", "1"), ("2",), "large", ("3", "4")]
    small = [message(str(number)) for number in range(5)]
    assert [len(each.messages) for each in batches(small, 2) if isinstance(each, EncodedBatch)] == [2, 2, 1]


TEXT = st.text(max_size=300)
VALUES = st.fixed_dictionaries(
    {},
    optional={
        "session_id": st.text(max_size=128),
        "content_type": TEXT,
        "subject": TEXT,
        "correlation_id": TEXT,
        "to": TEXT,
        "reply_to": TEXT,
        "time_to_live": st.integers(1, 1000),
        "application_properties": st.dictionaries(TEXT, st.none() | TEXT, max_size=40),
    },
)


@given(st.binary(max_size=300), st.text(min_size=1, max_size=128), VALUES)
def test_an_encoded_row_equals_the_message_sent_by_the_sdk(
    body: bytes, message_id: str, values: dict[str, object]
) -> None:
    made = outgoing_message(row(body, **values), message_id, {})
    batch = PairedMessageBatch()
    batch.add_message(made.original())
    (by_sdk,) = Message.decode(_encoded(batch)).body.sections  # type: ignore[union-attr]
    unusual = [name for name, value in values.items() if name in COLUMNS and not value]

    assert (made.encoded is None) == ("time_to_live" in values or bool(unusual) or not _is_ascii(values))
    if made.encoded is not None:
        assert Message.decode(made.encoded) == Message.decode(by_sdk)


def _is_ascii(values: dict[str, object]) -> bool:
    return str(values.get("content_type", "")).isascii()


def _encoded(batch: PairedMessageBatch) -> bytes:
    from azure.servicebus._pyamqp._encode import encode_payload

    return bytes(encode_payload(bytearray(), batch._message))


SINK = {
    "one": ({"connectionString": "env:ONE"}, "secondaryConnectionString and .* are missing"),
    "unknown": (BOTH | {"entityPat": "q"}, "unknown option 'entitypat'; did you mean entityPath"),
    "strategy": (
        BOTH | {"messageIdStrategy": "random"},
        "messageIdStrategy must be one of column, unique, hash",
    ),
    "seconds": (
        BOTH | {"failoverIntervalSeconds": "-1"},
        "failoverIntervalSeconds must be a number of seconds",
    ),
}


@pytest.mark.parametrize("name", SINK)
def test_an_unusable_sink_option_is_refused_by_name(name: str) -> None:
    given, text = SINK[name]
    with pytest.raises(ValueError, match=text):
        SinkOptions.of(given)


def test_the_options_spark_adds_for_every_sink_are_accepted() -> None:
    assert SinkOptions.of(BOTH | {"checkpointLocation": "/x", "ENTITYPATH": "q"}).entity_path == "q"
    with pytest.raises(ValueError, match="journal must be an absolute path"):
        DrainOptions.of(BOTH | {"journal": "here"})


def test_a_secret_is_in_no_repr() -> None:
    one, other = (
        f"Endpoint=sb://{host};SharedAccessKeyName=n;SharedAccessKey={key}"
        for host, key in (("x", "k1"), ("y", "k2"))
    )
    given = {"connectionString": one, "secondaryConnectionString": other}
    for made in (SinkOptions.of(given), DrainOptions.of(given)):
        assert "k1" not in repr(made)
        assert "k2" not in repr(made)
