"""Replaying a spool with scripted answers of the brokers; tests/pair/outage uses real ones."""

from __future__ import annotations

import random
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.amqp import AmqpAnnotatedMessage
from azure.servicebus.exceptions import MessageSizeExceededError, ServiceBusError

from sbpair import PairedNamespaceOptions
from sbpair.pair.pairing.decide.pair import CaughtUpError
from sbpair.pair.pairing.decide.steps import Choice
from sbpair.pair.pairing.errors import SpoolError, SpoolFullError
from sbpair.pair.pairing.events import MessageParked, PairingEvent, SpooledMessageRefused, SpoolReplayed
from sbpair.pair.pairing.outcome import Failure, Outcome, Refused, Stored, Stranded
from sbpair.pair.pairing.request.request import SendRequest, freeze
from sbpair.pair.pairing.spool import replay
from sbpair.pair.pairing.spool.admission import Admission
from sbpair.pair.pairing.spool.codec import from_bytes, to_bytes
from sbpair.pair.pairing.spool.replay import Spooling
from sbpair.pair.pairing.spool.schedule import PAUSE
from sbpair.pair.pairing.spool.store import Entry, Spool, Spooled
from sbpair.pair.pairing.spool.units import MAX_UNIT_MESSAGES
from tests.waiting import PATIENCE

ACCEPTED = Stored(None, is_ambiguous=False)
AWAY = Stranded(())


def refused(
    failure: Failure = Failure.CALLER, *, error: Exception | None = None, is_parked: bool = False
) -> Refused:
    return Refused(error or MessageSizeExceededError(message="never"), is_parked, False, failure)


def rejected(condition: str) -> Refused:
    """Return the result of a primary that refuses a message with this condition."""
    return refused(error=ServiceBusError("refused", condition=condition))


def written(spooling: Spooling, request: SendRequest, *, is_first: bool = False) -> None:
    """Spool as a runtime does, until the messages are on disk."""
    for writing in spooling.keep("orders", request, is_first=is_first):
        assert writing is not None
        assert writing.wait(PATIENCE)


class Station:
    """A spooling whose sends are recorded and answered by ``answer``."""

    def __init__(
        self, path: Path, admission: Admission | None = None, *, keeps_order: bool = False, **bounds: int
    ) -> None:
        self.spool = Spool(path, primary="contoso", **bounds)
        self.told: list[PairingEvent] = []
        self.sent: list[list[str]] = []
        self.for_primary_only: list[list[str]] = []  # of these, what must go nowhere else
        self.choices: set[int] = set()
        self.answer: Callable[[list[str]], Outcome] = lambda ids: ACCEPTED
        self.woken = 0
        self.spooling = Spooling(
            self.spool,
            self._send,
            self._tell,
            random.Random(7),
            admission,
            keeps_order=keeps_order,
            wake=self._wake,
        )

    def _wake(self) -> None:
        self.woken += 1

    def keep(self, *ids: str, **fields: object) -> None:
        written(self.spooling, freeze([ServiceBusMessage(each, message_id=each, **fields) for each in ids]))

    def reopened(self) -> Station:
        """The next client, which reads what is on disk."""
        self.spooling.close()
        return Station(self.spool.path)

    def replay(self) -> None:
        """Replay as the worker does when a replay is due."""
        self.spooling.notify([MessageParked(1e9, "other", 0, 1)])
        assert self.spooling.due(2e9) == ["orders"]
        self.spooling.replay("orders")

    def refusals(self) -> list[tuple[str, str]]:
        return [(e.message_id, e.cause) for e in self.told if isinstance(e, SpooledMessageRefused)]

    def _send(self, path: str, request: SendRequest, choice: Choice) -> Outcome:
        assert path == "orders"
        self.choices.add(id(choice))
        self.sent.append(list(request.message_ids()))
        if request.is_for_primary_only:
            self.for_primary_only.append(self.sent[-1])
        return self.answer(self.sent[-1])

    def _tell(self, happened: Sequence[PairingEvent]) -> None:
        self.told += happened


@pytest.fixture
def station(tmp_path: Path) -> Iterator[Station]:
    station = Station(tmp_path / "spool")
    yield station
    station.spooling.close()


@pytest.mark.spec("G-4", "F-89")
def test_a_message_accepted_by_a_broker_is_not_resent_though_the_file_is_unwritable(
    station: Station,
) -> None:
    station.keep("a", "b")
    station.spool._connection.execute("PRAGMA query_only = ON")  # stands for a file system gone read-only
    station.replay()
    station.spooling.close()
    assert station.sent == [["a", "b"]]
    assert station.spooling.waiting("orders") == 0  # so that newer messages go the direct way
    assert sum(event.count for event in station.told if isinstance(event, SpoolReplayed)) == 2


@pytest.mark.spec("G-1")
def test_waiting_messages_are_sent_in_order_in_batches_and_then_deleted(station: Station) -> None:
    ids = [f"{n:04}" for n in range(MAX_UNIT_MESSAGES * 2 + 5)]
    station.keep(*ids)
    station.replay()
    assert [len(batch) for batch in station.sent] == [MAX_UNIT_MESSAGES, MAX_UNIT_MESSAGES, 5]
    assert [each for batch in station.sent for each in batch] == ids
    assert len(station.choices) == 1  # one backlog for all of them, or they would overtake each other
    assert [(e.count, e.left) for e in station.told if isinstance(e, SpoolReplayed)][-1] == (5, 0)
    assert station.spooling.next_timer() is None


@pytest.mark.spec("G-1")
def test_each_part_of_a_split_batch_is_reported_with_its_backlog(station: Station) -> None:
    for n in range(5):
        station.keep(str(n))
    outcomes = [(AWAY, [(1, 2), (4, 1)]), (Stored(4, is_ambiguous=False), [(4, 2)])]

    def send(path: str, request: SendRequest, choice: Choice) -> Outcome:
        outcome, pieces = outcomes.pop(0)
        for backlog, count in pieces:
            request._accepted(backlog, count)
        return outcome

    station.spooling._send_again = send
    station.replay()
    told = [(e.backlog, e.message_ids, e.left) for e in station.told if isinstance(e, SpoolReplayed)]
    assert told == [(1, ("0", "1"), 3), (4, ("2",), 2), (4, ("3", "4"), 0)]


@pytest.mark.spec("G-1")
def test_an_unaccepted_message_stays_and_is_retried_later(station: Station) -> None:
    station.keep("a", "b")
    for outcome in (
        AWAY,
        refused(Failure.UNAVAILABLE),
        refused(Failure.CONFIGURATION),
        refused(Failure.FULL),
    ):
        station.answer = lambda ids, outcome=outcome: outcome
        station.replay()
        assert station.spooling.waiting("orders") == 2
        assert station.spooling.next_timer() is not None
    assert station.refusals() == []


@pytest.mark.spec("G-21")
def test_the_one_message_no_broker_accepts_is_found_and_set_aside(station: Station) -> None:
    for n in range(20):
        station.keep(str(n))
    station.answer = lambda ids: refused() if "13" in ids else ACCEPTED
    station.replay()
    assert station.refusals() == [("13", "MessageSizeExceededError: never")]
    accepted = [each for batch in station.sent if "13" not in batch for each in batch]
    assert accepted == [str(n) for n in range(20) if n != 13]
    assert station.spooling.waiting("orders") == 0
    assert station.spool.refusals() == [("orders", "13", "MessageSizeExceededError: never")]


def test_a_message_refused_while_the_client_closes_is_not_set_aside(station: Station) -> None:
    station.keep("a")

    def closing(ids: list[str]) -> Outcome:
        station.spooling.stop()
        return refused()

    station.answer = closing
    station.replay()
    assert station.refusals() == []
    assert station.spooling.waiting() == 1


def test_a_replay_that_raises_is_retried(station: Station, caplog: pytest.LogCaptureFixture) -> None:
    station.keep("a")

    def broken(ids: list[str]) -> Outcome:
        raise RuntimeError("a fault of ours")

    station.answer = broken
    station.replay()
    assert "a fault of ours" in caplog.text
    station.answer = lambda ids: ACCEPTED
    station.replay()
    assert station.spooling.waiting() == 0


MIXED = (
    ("a", {"session_id": "s"}),
    ("b", {"session_id": "s"}),
    ("c", {"session_id": "t"}),
    ("d", {"partition_key": "p"}),
    ("e", {"partition_key": "p"}),
    ("f", {}),
)


@pytest.mark.spec("A-8")
def test_a_batch_mixes_sessions_and_partitions_unless_the_entity_refuses(
    station: Station,
) -> None:
    for each, fields in MIXED:
        station.keep(each, **fields)
    station.replay()
    assert station.sent == [list("abcdef")]
    for each, fields in MIXED:
        station.keep(each, **fields)
    station.answer = lambda ids: ACCEPTED if ids in (["a", "b"], ["c"], ["d", "e"], ["f"]) else refused()
    station.replay()
    accepted = [ids for ids in station.sent[1:] if station.answer(ids) is ACCEPTED]
    assert accepted == [["a", "b"], ["c"], ["d", "e"], ["f"]]
    assert station.refusals() == []


def test_with_ordering_each_session_has_its_own_batches(tmp_path: Path) -> None:
    station = Station(tmp_path / "spool", keeps_order=True)
    for each, fields in MIXED:
        station.keep(each, **fields)
    station.replay()
    assert station.sent == [["a", "b"], ["c"], ["d", "e"], ["f"]]
    station.spooling.close()


def test_large_messages_are_replayed_in_smaller_batches(station: Station) -> None:
    for each in "abcd":
        written(station.spooling, freeze(ServiceBusMessage(bytes(120_000), message_id=each)))
    station.replay()
    assert station.sent == [["a", "b"], ["c", "d"]]


@pytest.mark.spec("F-90")
def test_a_message_damaged_on_the_disk_is_set_aside_and_the_next_ones_go(station: Station) -> None:
    station.keep("a")
    station.spool.append("orders", [Entry("garbage", b"\x00\x00\x00\x09nonsense")], 1)
    station.keep("b", "c")
    station.spool._connection.execute("UPDATE spooled SET message = x'00' WHERE message_id = 'b'")
    station = station.reopened()
    station.replay()
    assert station.sent == [["a"], ["c"]]
    assert [each for each, _ in station.refusals()] == ["garbage", "b"]
    assert "checksum" in station.refusals()[1][1]


@pytest.mark.spec("G-4")
def test_only_the_unaccepted_rest_of_a_batch_is_sent_again(station: Station) -> None:
    station.keep("a", "b", "c")
    requests: list[SendRequest] = []
    send = station._send

    def in_part(path: str, request: SendRequest, choice: Choice) -> Outcome:
        outcome = send(path, request, choice)
        if not requests:
            requests.append(request)
            request._accepted(0, 2)  # as after two chunks that a backlog accepted
            return AWAY
        return outcome

    station.spooling._send_again = in_part
    station.replay()
    assert station.sent == [["a", "b", "c"], ["c"]]


def test_a_sender_waits_for_the_end_of_a_replay_and_then_sends_directly(
    station: Station, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay, "HOLD", 60.0)
    station.keep("a")
    another = station.spooling.keep("orders", freeze(ServiceBusMessage("c")), is_first=True)

    def sends_meanwhile(ids: list[str]) -> Outcome:
        if ids == ["a"]:
            station.keep("b")
        else:  # the last one is on its way
            assert next(another) is None
        return ACCEPTED

    station.answer = sends_meanwhile
    station.replay()
    with pytest.raises(CaughtUpError):
        next(another)
    assert station.sent == [["a"], ["b"]]
    assert station.spooling.waiting() == 0


def test_a_sender_is_delayed_by_a_replay_only_for_a_moment(
    station: Station, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay, "HOLD", 0.0)
    station.keep("a", "b")
    station.spooling._hold("orders")  # of a replay that now hangs
    written(station.spooling, freeze(ServiceBusMessage("c")), is_first=True)
    assert station.spooling.waiting() == 3


@pytest.mark.spec("G-15", "F-86")
def test_a_spooled_message_past_its_deadline_is_set_aside_and_the_others_continue(tmp_path: Path) -> None:
    station = Station(tmp_path / "spool")
    now = time.time_ns() // 1_000_000
    for name, first_attempt in (("late", now - 61_000), ("in time", now)):
        request = freeze(ServiceBusMessage("x", message_id=name, time_to_live=timedelta(minutes=1)))
        request.fix_deadlines(first_attempt)
        written(station.spooling, request)
    station.spooling.replay("orders")
    assert station.sent == [["in time"]]
    (refusal,) = [event for event in station.told if isinstance(event, SpooledMessageRefused)]
    assert refusal.message_id == "late"
    assert refusal.cause.startswith("TTLExpiredException")
    station.spooling.close()


@pytest.mark.spec("R-2")
def test_a_message_a_backlog_refuses_waits_for_the_primary_and_others_overtake_it(station: Station) -> None:
    station.keep("a", "bad", "b")
    primary_is_back = False

    def answer(ids: list[str]) -> Outcome:
        if "bad" not in ids or primary_is_back:
            return ACCEPTED
        return AWAY if station.for_primary_only[-1:] == [ids] else refused(is_parked=True)

    station.answer = answer
    station.replay()
    assert station.refusals() == []
    assert station.spooling.waiting("orders") == 1
    assert station.spooling.in_line("orders") == 0  # newer messages go the direct way
    accepted = [
        each for event in station.told if isinstance(event, SpoolReplayed) for each in event.message_ids
    ]
    assert accepted == ["a", "b"]

    station.replay()
    assert station.for_primary_only == [["bad"]]  # nowhere else, and it is not forgotten
    assert station.spooling.next_timer() is not None

    primary_is_back = True
    station.keep("c")
    station.replay()
    assert station.sent[-2:] == [["bad"], ["c"]]  # first the older one
    assert station.spooling.waiting() == 0
    assert station.spooling.next_timer() is None


@pytest.mark.spec("R-2")
def test_the_next_owner_tries_every_route_again(station: Station, tmp_path: Path) -> None:
    station.keep("bad")
    station.answer = lambda ids: refused(is_parked=True)
    station.replay()
    station.spooling.close()
    again = Station(tmp_path / "spool")
    again.replay()
    assert again.sent == [["bad"]]
    assert again.for_primary_only == []
    again.spooling.close()


@pytest.mark.spec("R-2")
@pytest.mark.parametrize(
    "error",
    [
        AttributeError("'NoneType' object has no attribute 'x'"),
        TypeError("a garbled answer"),
        ValueError("the primary side of the paired client is closed"),
        ServiceBusError("gone", condition="amqp:illegal-state"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_that_does_not_concern_the_message_sets_nothing_aside(
    station: Station, error: Exception
) -> None:
    station.keep("a", "b")
    station.answer = lambda ids: refused(error=error)
    station.replay()
    assert station.refusals() == []
    assert station.spooling.waiting("orders") == 2
    station.answer = lambda ids: ACCEPTED
    station.replay()
    assert station.sent[-2:] == [["a"], ["b"]]  # after a failure a small one is tried first


@pytest.mark.spec("R-2")
@pytest.mark.parametrize(
    "condition", ["amqp:not-allowed", "amqp:link:message-size-exceeded", "com.microsoft:argument-error"]
)
def test_a_message_the_primary_refuses_for_its_content_is_set_aside(station: Station, condition: str) -> None:
    station.keep("bad")
    station.answer = lambda ids: rejected(condition)
    station.replay()
    assert [each for each, _ in station.refusals()] == ["bad"]
    assert station.spooling.waiting() == 0


@pytest.mark.spec("R-2")
def test_a_message_only_for_the_primary_is_set_aside_when_the_primary_refuses_it(station: Station) -> None:
    station.keep("bad")
    station.answer = lambda ids: (
        rejected("amqp:not-allowed") if station.for_primary_only else refused(is_parked=True)
    )
    station.replay()
    station.replay()
    assert [each for each, _ in station.refusals()] == ["bad"]
    assert station.spooling.waiting() == 0
    assert station.spooling.next_timer() is None


@pytest.mark.spec("R-2")
def test_a_message_that_the_sdk_cannot_encode_does_not_block_others(
    station: Station, monkeypatch: pytest.MonkeyPatch
) -> None:
    station.keep("a", "odd", "b")
    stored = station.spool.oldest("orders", 2)[1]
    message = from_bytes(stored.message)
    message.application_properties = {"n": 2**80}  # as an older SDK may have taken it
    station.spool._connection.execute(
        "UPDATE spooled SET message = ?, checksum = ? WHERE number = ?",
        (to_bytes(message), zlib.crc32(to_bytes(message)), stored.number),
    )
    station = station.reopened()
    station.replay()
    assert [each for each, _ in station.refusals()] == ["odd"]
    assert station.spooling.waiting() == 0


@pytest.mark.spec("R-2", "R-66")
def test_a_message_written_as_a_replay_ends_is_replayed(
    station: Station, monkeypatch: pytest.MonkeyPatch
) -> None:
    station.keep("a")
    oldest = station.spool.oldest

    def written_behind(path: str, most: int, **others: int) -> list[Spooled]:
        found = oldest(path, most, **others)
        if not found:
            monkeypatch.undo()
            station.spool.append("orders", [Entry("b", to_bytes(AmqpAnnotatedMessage(data_body=b"x")))], 1)
        return found

    monkeypatch.setattr(station.spool, "oldest", written_behind)
    station.replay()
    assert len(station.sent) == 2
    assert station.spooling.waiting() == 0
    assert station.spooling.next_timer() is None


@pytest.mark.spec("R-66", "F-35")
def test_a_spool_is_opened_as_configured(tmp_path: Path) -> None:
    def opened(**options: object) -> Spooling | None:
        given = PairedNamespaceOptions(**options)  # type: ignore[arg-type]
        return Spooling.open(given, "contoso", send, told.append, random.Random(7))

    def send(path: str, request: SendRequest, choice: Choice) -> Outcome:
        sent.append(path)
        return ACCEPTED

    sent: list[str] = []
    told: list[Sequence[PairingEvent]] = []
    assert opened() is None
    spooling = opened(spool=tmp_path / "spool", spool_max_messages=1)
    assert spooling is not None
    written(spooling, freeze(ServiceBusMessage("x", message_id="a")))
    with pytest.raises(SpoolFullError, match="1 of 1 messages"):
        written(spooling, freeze(ServiceBusMessage("x")))
    spooling.close()
    spooling = opened(spool=tmp_path / "spool", spool_max_bytes=1)
    assert spooling is not None
    with pytest.raises(SpoolFullError, match="of 1 bytes"):
        written(spooling, freeze(ServiceBusMessage("x")))
    (path,) = spooling.due(time.monotonic())  # what an earlier client left is sent at once
    spooling.replay(path)
    assert sent == ["orders"]
    ((event,),) = told
    assert isinstance(event, SpoolReplayed)
    assert (event.path, event.backlog, event.message_ids) == ("orders", None, ("a",))
    spooling.close()
    with pytest.raises(SpoolError, match="'contoso', not for 'fabrikam'"):
        Spooling.open(
            PairedNamespaceOptions(spool=tmp_path / "spool"), "fabrikam", send, told.append, random.Random(7)
        )


@pytest.mark.spec("R-66", "F-90")
@pytest.mark.parametrize("is_read_later", [True, False])
def test_a_damaged_spool_is_refused_at_once_or_at_the_first_read(tmp_path: Path, is_read_later: bool) -> None:
    path = tmp_path / "spool"
    spool = Spool(path, primary="contoso")
    spool.append("orders", [Entry("x", b"Q" * 20_000)], now=1)
    spool.close()
    stored = path.read_bytes()
    page = stored.index(b"Q" * 4092) - 4  # where the next page of this message is named
    path.write_bytes(stored[:page] + bytes(4096) + stored[page + 4096 :])
    options = PairedNamespaceOptions(spool=path)

    def opened() -> Spooling | None:
        return Spooling.open(
            options, "contoso", lambda *_: AWAY, lambda _: None, random.Random(7), is_read_later=is_read_later
        )

    if not is_read_later:
        with pytest.raises(SpoolError, match="damaged"):
            opened()
        return
    spooling = opened()
    assert spooling is not None
    with pytest.raises(SpoolError, match="damaged"):
        written(spooling, freeze(ServiceBusMessage("x")))
    spooling.close()


@pytest.mark.spec("R-66")
def test_a_replay_without_a_free_worker_is_due_again(station: Station) -> None:
    station.keep("a")
    assert station.spooling.due(2e9) == ["orders"]
    assert station.spooling.next_timer() is None
    before = time.monotonic()
    station.spooling.not_started("ORDERS")
    timer = station.spooling.next_timer()
    assert timer is not None
    assert timer >= before + PAUSE * 0.75  # as after a replay that moved nothing
    assert station.spooling.waiting("orders") == 1


@pytest.mark.spec("R-66")
def test_a_closing_spool_has_nothing_due(station: Station) -> None:
    station.keep("a")
    station.spooling.stop()
    assert station.spooling.next_timer() is None
    assert station.spooling.due(2e9) == []
    station.spooling.replay("orders")
    assert station.sent == []


@pytest.mark.spec("R-66")
def test_spool_events_are_logged(station: Station, caplog: pytest.LogCaptureFixture) -> None:
    station.keep("a")
    station.keep("b")  # told once, while something waits
    station.answer = lambda ids: refused(is_parked=True)
    station.replay()
    station.answer = lambda ids: 1 / 0  # type: ignore[return-value]
    station.replay()
    where = station.spool.path
    waits = "spooled message {} waits for the primary entity orders: MessageSizeExceededError: never"
    assert [record.getMessage() for record in caplog.records] == [
        f"spooling messages for orders to {where}",
        waits.format("a"),
        waits.format("b"),
        f"messages for orders wait in the spool {where}: MessageSizeExceededError",
        "the replay of orders stopped: ZeroDivisionError: division by zero",
    ]


@pytest.mark.spec("R-66", "R-2")
def test_a_reason_is_one_line_of_at_most_three_hundred_characters(station: Station) -> None:
    station.keep("a")
    station.answer = lambda ids: refused(error=MessageSizeExceededError(message="so \n large" + "e" * 400))
    station.replay()
    ((_, cause),) = station.refusals()
    assert cause == ("MessageSizeExceededError: so large" + "e" * 400)[:300]
    assert station.spool.refusals() == [("orders", "a", cause)]
