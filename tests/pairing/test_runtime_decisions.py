"""What both runtimes decide alike: state and time are given, and nothing is sent."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import (
    MessagingEntityDisabledError,
    MessagingEntityNotFoundError,
    OperationTimeoutError,
    ServiceBusAuthenticationError,
    ServiceBusConnectionError,
    ServiceBusError,
    ServiceBusServerBusyError,
)

from sbpair import (
    BacklogsCreated,
    BacklogsNotCreated,
    ClassifierFailed,
    EntityFailedOver,
    EntityState,
    Failure,
    HeadroomShort,
    LinkProbed,
    PairedNamespaceOptions,
    PairFaulted,
    PairFaultedError,
    PairingDisabled,
    PairingEvent,
    ParkedMessageTooLargeError,
    PingSent,
    SideClosed,
    SideFaulted,
    SideRecovered,
    SpoolError,
)
from sbpair.pairing import base_runtime
from sbpair.pairing.address import LinkSettings, SdkSettings, Side
from sbpair.pairing.base_runtime import (
    BaseRuntime,
    backlogs_event,
    closed,
    counted,
    failed_over,
    not_written_in_time,
    role_of,
    spared,
    time_left,
    wall_clock,
)
from sbpair.pairing.classify import Phase
from sbpair.pairing.outcome import Classification, Stored, Stranded
from sbpair.pairing.pair import Attempt, Result
from sbpair.pairing.pair import Spool as SpoolStep
from sbpair.pairing.pair_state import Role, SideState
from sbpair.pairing.request import Cancellation, SendRequest, SpooledRequest, freeze
from sbpair.pairing.retry import RetryPolicy
from sbpair.pairing.rotation import Choice

pytestmark = pytest.mark.spec("R-66")

NOW = 1000.0
P, S = Role.PRIMARY, Role.SECONDARY
REFUSED = Classification(Failure.CONFIGURATION, "the key is wrong", is_of_namespace=True)


class Base(BaseRuntime):
    """A runtime that sends nothing; what it tells is in ``told``."""

    def __init__(self, **settings: Any) -> None:
        of_sdk = {name: settings.pop(name) for name in ("try_timeout", "retry") if name in settings}
        sides = (Side(role, f"{role}.example", SdkSettings(**of_sdk)) for role in Role)
        super().__init__(*sides, "contoso", PairedNamespaceOptions(**settings), self._none, random.Random(7))
        self.told: list[PairingEvent] = []
        self.publications = self.limits_asked = 0
        self.is_locked = False
        self.on_event(self.told.append)

    def _none(self) -> Any:
        raise AssertionError("no administration is needed here")

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        self.is_locked = True
        yield
        self.is_locked = False

    def publish(self) -> None:
        assert not self.is_locked
        self.publications += 1
        self.dispatcher.emit(self._happened())

    def _learn_limit(self) -> None:
        self.limits_asked += 1


@pytest.fixture(autouse=True)
def _frozen(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(monotonic=lambda: NOW, time_ns=lambda: 5_000_000_999_999)
    monkeypatch.setattr(base_runtime, "time", clock)
    monkeypatch.delenv("SBPAIR_DISABLE", raising=False)


@pytest.fixture
def disabled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SBPAIR_DISABLE", "1")


# --- how it begins


def test_the_options_reach_the_pair_in_seconds() -> None:
    core = Base(
        failover_interval=timedelta(seconds=11),
        ping_primary_interval=timedelta(seconds=12),
        backlog_queue_count=13,
        suspect_policy="redirect",
        spill_on_quota=True,
        failover_on_busy_after=timedelta(seconds=14),
        retry=RetryPolicy(5),
        fault_pair_on_refusal=True,
    )
    pair = core.pair
    assert (pair._failover_interval, pair._ping_interval, len(pair.rotation)) == (11.0, 12.0, 13)
    assert (pair._redirects_suspects, pair._spills_on_quota, pair._busy_limit) == (True, True, 14.0)
    assert pair._retry == RetryPolicy(5)
    assert pair._rng is core._rng is pair.rotation._rng
    assert core._rng.random() == random.Random(7).random()
    assert core.pair_state._ends == {SideState.CLOSED, SideState.REFUSED}
    assert core._backlogs.name(12) == "contoso/x-servicebus-transfer/12"
    assert core._backlogs._count == 13
    assert [side.role for side in core.sides] == [P, S]
    assert core.headroom is not None
    assert core.label == "contoso"
    usual = Base()
    assert (usual.pair._redirects_suspects, usual.pair._busy_limit) == (False, None)
    assert usual.pair_state._ends == {SideState.CLOSED}
    assert (usual.is_closed, usual.links, usual.on_receipt) == (False, {}, None)
    assert Base(headroom="off").headroom is None


@pytest.mark.spec("Q-16")
@pytest.mark.parametrize(("seconds", "lines"), [(15.0, 1), (15.001, 0)])
def test_a_time_too_short_for_the_service_to_reassign_a_message_is_told(
    seconds: float, lines: int, caplog: pytest.LogCaptureFixture
) -> None:
    Base(operation_timeout=timedelta(seconds=seconds))
    assert [record.getMessage() for record in caplog.records] == lines * [
        "operation_timeout is 0:00:15: reassigning a message to another partition can take the service "
        "0:00:15, so a send may fail that would have succeeded"
    ]


@pytest.mark.parametrize(("exists", "creates"), [(True, False), (False, True)])
def test_backlogs_are_created_unless_they_are_assumed(exists: bool, creates: bool) -> None:
    core = Base(assume_backlogs_exist=exists)
    assert core.creates_backlogs is creates
    must_exist = core._must_exist(3)
    assert (must_exist is None) is creates
    if must_exist is not None:
        assert isinstance(must_exist, MessagingEntityNotFoundError)
        assert must_exist.message == "Backlog queue contoso/x-servicebus-transfer/3 does not exist."
    assert core.retry_total == 0


def test_a_client_that_is_switched_off_says_so_once_and_leaves_all_to_the_sdk(
    disabled: None, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    core = Base(spool=tmp_path / "spool", retry=RetryPolicy(5))
    assert (core.retry_total, core.creates_backlogs, core.headroom) == (None, False, None)
    for _ in range(2):
        core.announce()
    assert core.told == [PairingDisabled(NOW, "", "SBPAIR_DISABLE is set in the environment")]
    assert core._opened_spool("contoso", None, core.told.append) is None  # type: ignore[arg-type]
    assert not (tmp_path / "spool").exists()
    core.by_hand(core.pair.fail_over, "orders")
    assert caplog.records[-1].getMessage() == "fail_over('orders') was ignored: SBPAIR_DISABLE is set"
    assert core.pair.state_of("orders") is EntityState.HEALTHY
    core.opening_failed("orders", ServiceBusConnectionError(message="refused"))
    core._hear(None, Result(NOW, None, REFUSED))
    assert (core.publications, core.pair_state.is_whole) == (0, True)
    flow = core._flow("orders", freeze(ServiceBusMessage("x")), Choice(), 990.0, 60.0, None)
    assert next(flow) == Attempt(None, 1050.0)
    with pytest.raises(StopIteration):  # the SDK has retried
        flow.send(Result(NOW, OSError(), Classification(Failure.UNAVAILABLE, "down")))


def test_a_client_that_is_not_switched_off_announces_nothing_and_obeys(
    caplog: pytest.LogCaptureFixture,
) -> None:
    core = Base()
    core.announce()
    assert core.told == []
    core.by_hand(core.pair.fail_over, "orders")
    (event,) = core.told
    assert isinstance(event, EntityFailedOver)
    assert (event.at, event.path) == (NOW, "orders")
    assert core._opened_spool("contoso", None, core.told.append) is None  # type: ignore[arg-type]


# --- what an error means


def refuses(error: Exception) -> Failure:
    raise LookupError("no table")


@pytest.mark.parametrize(
    ("classifier", "failure", "told"),
    [
        (None, Failure.BUSY, None),
        (lambda error: None, Failure.BUSY, None),
        (lambda error: Failure.FULL, Failure.FULL, None),
        (lambda error: "full", Failure.FULL, None),
        (lambda error: "odd", Failure.BUSY, "ValueError: 'odd' is not a valid Failure"),
        (refuses, Failure.BUSY, "LookupError: no table"),
    ],
)
def test_the_classifier_of_the_options_has_the_last_word_where_it_has_one(
    classifier: Any, failure: Failure, told: str | None
) -> None:
    core = Base(classifier=classifier)
    assert core.classify(ServiceBusServerBusyError(), Phase.SENDING).failure is failure
    assert core.told == ([] if told is None else [ClassifierFailed(NOW, "", told)])


class Link:
    was_reused = True

    def __init__(self, *, has_overrun: bool = False) -> None:
        self.is_open, self.has_overrun = True, has_overrun


class Store:
    def release(self, pooled: Link) -> None: ...
    def discard(self, pooled: Link) -> None: ...


def test_what_the_watch_ended_is_told_as_late_with_its_cause() -> None:
    ended = ServiceBusConnectionError(message="shut")
    result = Base()._failed(
        Store(), Link(has_overrun=True), ended, Phase.SENDING, None, freeze(ServiceBusMessage("x"))
    )
    assert isinstance(result.error, OperationTimeoutError)
    assert result.error.message == "The send did not end by its deadline."
    assert result.error.__cause__ is result.error.inner_exception is ended
    assert (result.now, result.was_reused) == (NOW, True)


@pytest.mark.parametrize("pooled", [None, Link()])
def test_what_came_of_an_attempt_says_when_and_over_which_link(pooled: Link | None) -> None:
    error = ServiceBusServerBusyError()
    result = Base()._failed(Store(), pooled, error, Phase.OPENING, None, freeze(ServiceBusMessage("x")))
    assert (result.now, result.error, result.was_reused) == (NOW, error, pooled is not None)
    assert result.classification is not None
    assert result.classification.failure is Failure.BUSY


def test_what_cannot_be_encoded_is_told_by_its_fault_unless_the_sdk_did() -> None:
    broken = freeze(ServiceBusMessage("x", application_properties={"n": 2**70}))
    down = ServiceBusConnectionError(message="refused")
    error, classification = Base()._classified(down, Phase.OPENING, None, broken)
    fault = error.__cause__
    assert isinstance(error, ServiceBusError)
    assert error.message == f"The message cannot be encoded: {fault}."
    assert error.inner_exception is fault
    assert (classification.failure, classification.is_local) == (Failure.CALLER, True)
    for same in (type(fault)("said already"), ServiceBusError("Handler failed", error=type(fault)("so"))):
        assert Base()._classified(same, Phase.OPENING, None, broken)[0] is same


@pytest.mark.spec("R-4")
def test_what_the_application_was_handling_is_no_cause_of_the_failure() -> None:
    handled = ServiceBusServerBusyError()
    error = ServiceBusError("Handler failed", error=TypeError("garbled"))
    error.__context__ = handled
    sent = freeze(ServiceBusMessage("x"))
    for pooled in (None, Link()):
        with_it = Base()._failed(Store(), pooled, error, Phase.SENDING, handled, sent).classification
        assert with_it == base_runtime.classify(error, Phase.SENDING, handled)
        assert with_it == Base().classify(error, Phase.SENDING, handled)
    seen: list[Exception] = []
    Base(classifier=seen.append).classify(error, Phase.SENDING)
    assert seen == [error]


@pytest.mark.spec("F-35")
def test_a_spool_is_opened_for_this_client(tmp_path: Path) -> None:
    core = Base(spool=tmp_path / "spool")
    told: list[Any] = []

    def send(*_: object) -> Any:
        return None

    for is_read_later in (False, True):
        spooling = core._opened_spool("contoso", send, told.append, is_read_later=is_read_later)
        assert spooling is not None
        assert (spooling._send_again, spooling._emit) == (send, told.append)
        assert spooling._spool._is_whole is not is_read_later
        assert spooling._spool._connection.execute("SELECT * FROM pairing").fetchall() == [("contoso",)]
        before = core._rng.getstate()
        spooling._schedule._jitter()
        assert core._rng.getstate() != before
        spooling.close()


# --- room in the backlogs


def room(core: Base, size: int, limit: int | None = 300_000, backlog: int | None = None, **kind: Any) -> None:
    message = ServiceBusMessage(bytes(size), message_id="m")
    request = kind.get("request", SendRequest)(message, (message,))
    core._check_room(Attempt(backlog, NOW), "orders", request, limit)


@pytest.mark.spec("P-22")
def test_a_large_message_asks_for_the_limit_of_the_backlogs_and_a_small_one_does_not() -> None:
    core = Base()
    room(core, 100)
    assert core.limits_asked == 0
    room(core, 250_000)
    room(core, 250_000)
    assert core.limits_asked == 1
    assert core.told == []


@pytest.mark.spec("P-22")
def test_a_message_too_large_to_be_parked_is_told_or_refused_but_not_once_it_was_promised() -> None:
    core = Base()
    room(core, 250_000, limit=240_000)
    (event,) = core.told
    assert isinstance(event, HeadroomShort)
    assert (event.at, event.path, event.message_id, event.limit) == (NOW, "orders", "m", 240_000)
    assert event.size > 250_000
    strict = Base(headroom="refuse")
    with pytest.raises(ParkedMessageTooLargeError) as told:
        room(strict, 250_000, limit=240_000)
    assert f"{event.size} bytes, where the smaller limit of the pair is 240000" in str(told.value)
    assert "orders" in str(told.value)
    room(strict, 250_000, limit=240_000, request=SpooledRequest)
    assert [type(each) for each in strict.told] == [HeadroomShort]


@pytest.mark.spec("P-22")
def test_of_several_messages_each_is_looked_at_and_what_goes_to_a_backlog_is_not() -> None:
    core = Base()
    small, large = ServiceBusMessage("x"), ServiceBusMessage(bytes(250_000), message_id="l")
    core._check_room(Attempt(None, NOW), "orders", freeze([small, large, small, large]), 240_000)
    assert [event.message_id for event in core.told] == ["l", "l"]  # type: ignore[attr-defined]
    fits = ServiceBusMessage(bytes(200_000))
    core._check_room(Attempt(None, NOW), "orders", freeze([fits, large]), 240_000)
    assert len(core.told) == 3
    room(core, 250_000, limit=100_000, backlog=0)
    assert len(core.told) == 3
    assert core.headroom is not None
    assert core.headroom._backlog == 100_000  # it is learned from such a link
    Base(headroom="off")._check_room(Attempt(None, NOW), "orders", freeze(large), 1)


# --- the two sides


@pytest.mark.spec("P-50", "R-1")
@pytest.mark.parametrize(("backlog", "role"), [(None, P), (0, S), (3, S)])
def test_a_refusal_of_the_namespace_closes_its_side_until_it_accepts(backlog: int | None, role: Role) -> None:
    core = Base()
    core._hear(backlog, Result(5.0, OSError(), REFUSED))
    assert core.told == [SideFaulted(NOW, "", role.value, "the key is wrong")]
    assert core.pair_state._sides[role].since == NOW
    core._hear(backlog, Result(5.0))
    assert core.told[1:] == [SideRecovered(NOW, "", role.value, "it accepts again")]
    core._hear(backlog, Result(5.0))
    assert (len(core.told), core.publications) == (2, 2)


@pytest.mark.spec("P-50", "R-1")
@pytest.mark.parametrize(
    "classification",
    [
        Classification(Failure.CONFIGURATION, "one entity's"),
        Classification(Failure.UNAVAILABLE, "an outage", is_of_namespace=True),
    ],
)
def test_other_failures_say_nothing_of_a_side(classification: Classification) -> None:
    core = Base()
    core._hear(None, Result(5.0, OSError(), classification))
    assert (core.pair_state.is_whole, core.told, core.publications) == (True, [], 0)


@pytest.mark.spec("P-50", "R-1")
def test_what_another_part_of_the_process_learned_of_a_side_counts_too() -> None:
    core = Base()
    core.side_refused(S, "no rights")
    core.side_accepted(S)
    assert core.told == [
        SideFaulted(NOW, "", "secondary", "no rights"),
        SideRecovered(NOW, "", "secondary", "it accepts again"),
    ]


@pytest.mark.spec("P-50", "R-1")
@pytest.mark.parametrize(
    ("error", "accepts"),
    [
        (MessagingEntityNotFoundError(), True),
        (MessagingEntityDisabledError(), True),
        (ServiceBusConnectionError(message="refused"), False),
        (ServiceBusAuthenticationError(message="claim"), False),
        (ValueError("closed"), False),
    ],
)
def test_a_look_that_fails_for_its_entity_was_answered_by_the_namespace(
    error: Exception, accepts: bool
) -> None:
    core = Base()
    core.side_refused(S, "no rights")
    core._look_failed(S, error)
    assert core.pair_state.is_whole is accepts


@pytest.mark.spec("P-50")
def test_a_side_is_closed_alone_and_the_pair_with_the_second() -> None:
    core = Base()
    assert core._side_closed(S) is False
    assert core.told == [SideClosed(NOW, "", "secondary", "close() was called")]
    core._check_side(P)
    with pytest.raises(ValueError, match=r"^the secondary side of the paired client is closed$"):
        core._check_side(S)
    assert core._side_closed(P) is True
    core.is_closed = True
    with pytest.raises(ValueError, match=r"^the paired client is closed$"):
        core._check_side(P)


@pytest.mark.spec("P-50")
def test_a_pair_whose_partner_does_not_follow_is_faulted_once_and_every_call_says_so() -> None:
    core = Base()
    core._side_closed(S)
    assert core._timer() == NOW + 5.0
    assert core._sides_tick(NOW + 4.9) == []
    assert not core.is_closed
    for later in (5.0, 6.0):
        assert core._sides_tick(NOW + later) == []
    why = "the secondary was closed (close() was called); the primary did not follow"
    assert core._happened() == [PairFaulted(NOW + 5.0, "", "secondary", why)]
    assert core._happened() == []
    with pytest.raises(PairFaultedError) as told:
        core._check_side(P)
    names = "primary.example", "secondary.example"
    assert str(told.value) == str(PairFaultedError(*names, "secondary", why))


@pytest.mark.spec("R-1")
def test_a_refused_side_is_looked_at_and_the_nearest_timer_counts() -> None:
    core = Base()
    assert core._timer() is None
    core.side_refused(S, "no rights")
    assert core._timer() == NOW + 1.0
    assert core._sides_tick(NOW + 1.0) == [S]
    core.pair.fail_over("orders", NOW - 90.0)
    ping = core.pair.next_timer()
    assert ping is not None
    assert core._timer() == ping < NOW
    assert not core.is_closed


@pytest.mark.spec("R-1", "R-8")
def test_an_opening_that_a_side_refused_is_told_of_the_side() -> None:
    core = Base()
    core.opening_failed("orders", ServiceBusAuthenticationError(message="claim"))
    core.opening_failed("orders", ServiceBusAuthenticationError(message="claim"))
    assert [type(event) for event in core.told] == [SideFaulted]
    assert core.pair.state_of("orders") is EntityState.HEALTHY


@pytest.mark.spec("R-1")
def test_news_of_a_side_wait_for_those_before_them() -> None:
    core = Base()
    for role in Role:
        core._note(core.pair_state.refused(role, "no rights", NOW))
    assert [event.side for event in core._happened()] == ["primary", "secondary"]  # type: ignore[attr-defined]


@pytest.mark.spec("R-8")
def test_an_opening_that_failed_with_nobody_waiting_counts_against_entity_and_side() -> None:
    core = Base()
    core.opening_failed("orders", ServiceBusConnectionError(message="refused"))
    assert core.pair.state_of("orders") is EntityState.SUSPECT
    assert core.publications == 1
    core.opening_failed("orders", ServiceBusServerBusyError())
    assert core.publications == 1


# --- attempts


def test_an_attempt_takes_no_longer_than_a_try() -> None:
    core = Base(try_timeout=4.0)
    assert (core.bounded(3.0), core.bounded(5.0)) == (3.0, 4.0)
    step = Attempt(2, NOW + 9.0, is_fresh=True)
    assert core._bounded(step) == Attempt(2, NOW + 4.0, is_fresh=True)
    assert core._bounded(Attempt(None, NOW + 1.0)) == Attempt(None, NOW + 1.0)
    assert Base().bounded(5.0) == 5.0
    assert Base()._bounded(step) is step


def test_settings_of_a_link_are_for_its_entity_alone() -> None:
    core = Base()
    core.links["orders"] = LinkSettings(client_identifier="me")
    assert core._link_keywords("orders") == {"client_identifier": "me"}
    assert core._link_keywords("/0") == {}


@pytest.mark.spec("P-30")
@pytest.mark.parametrize(
    ("probe", "timeout", "until", "event", "count"),
    [
        ("message", 60.0, NOW + 30.0, PingSent(NOW, "orders", 1), 1),
        ("link", 20.0, NOW + 20.0, LinkProbed(NOW, "orders"), 0),
    ],
)
def test_a_ping_is_a_message_or_a_link_over_a_fresh_link_and_is_told(
    probe: Any, timeout: float, until: float, event: PairingEvent, count: int
) -> None:
    core = Base(probe=probe, operation_timeout=timedelta(seconds=timeout))
    attempt, request = core._ping_attempt("orders")
    assert attempt == Attempt(None, until, is_fresh=True)
    assert len(request) == count
    assert core._happened() == [event]


def test_only_while_an_entity_is_suspect_its_backlog_is_warmed() -> None:
    core, choice = Base(), Choice(backlog=4)
    assert core._backlog_to_warm("orders", choice) is None
    core.opening_failed("orders", ServiceBusConnectionError(message="refused"))
    assert core._backlog_to_warm("orders", choice) == 4
    core.pair.rotation.failed(4, NOW)
    assert core._backlog_to_warm("orders", choice) not in (4, None)  # it is out now
    core.by_hand(core.pair.fail_over, "orders")
    assert core._backlog_to_warm("orders", choice) is None


def test_a_backlog_that_was_created_is_no_error_and_one_that_was_not_is_classified() -> None:
    core = Base()
    assert core._creation_result(None) == Result(NOW)
    error = ServiceBusServerBusyError()
    result = core._creation_result(error)
    assert (result.now, result.error) == (NOW, error)
    assert result.classification is not None
    assert result.classification.failure is Failure.BUSY


# --- the spool


class Spooled:
    """A spool of a client: which entities have messages ahead, and what was written."""

    def __init__(self) -> None:
        self.ahead: dict[str, int] = {}
        self.kept: list[tuple[str, SendRequest]] = []
        self.error: Exception | None = None
        self.is_left = False

    def in_line(self, path: str) -> int:
        return self.ahead.get(path, 0)

    def waiting(self, path: str | None) -> int:
        return 70 if path is None else 7

    def keep(self, path: str, request: SendRequest) -> None:
        if self.error is not None:
            raise self.error
        self.kept.append((path, request))

    def disown(self) -> None:
        self.is_left = True


def spooling(**options: Any) -> tuple[Base, Spooled]:
    core, spool = Base(spool="the spool", **options), Spooled()
    core._spooling = spool  # type: ignore[assignment]
    return core, spool


def test_who_has_no_spool_spools_nothing() -> None:
    core = Base()
    core._spooling = None
    assert (core.is_spooling("orders"), core.spooled(None), core.spooled("orders")) == (False, 0, 0)
    core._leave_spool()
    assert core._has_left_spool is False
    error = core._write("orders", freeze(ServiceBusMessage("x")))
    assert isinstance(error, SpoolError)
    assert str(error) == "the spool belongs to the process that this one was forked from"


def test_newer_messages_queue_behind_one_that_waits() -> None:
    core, spool = spooling()
    assert not core.is_spooling("orders")
    spool.ahead["orders"] = 1
    assert core.is_spooling("orders")
    assert not core.is_spooling("invoices")
    assert (core.spooled(None), core.spooled("orders")) == (70, 7)
    flow = core._flow("orders", freeze(ServiceBusMessage("x")), Choice(), 990.0, 60.0, None)
    assert next(flow) == SpoolStep(1050.0)
    flow = core._flow("invoices", freeze(ServiceBusMessage("x")), Choice(), 990.0, 60.0, None)
    assert next(flow) == Attempt(None, 1050.0)


def test_what_the_spool_says_is_the_answer() -> None:
    core, spool = spooling()
    request = freeze(ServiceBusMessage("x"))
    assert core._write("orders", request) is None
    assert spool.kept == [("orders", request)]
    spool.error = SpoolError("full")
    assert core._write("orders", request) is spool.error


@pytest.mark.spec("F-19")
def test_a_forked_child_leaves_the_spool_to_its_parent_and_says_so_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    core, spool = spooling()
    core._leave_spool()
    assert (spool.is_left, core._spooling) == (True, None)
    for _ in range(2):
        core._flow("orders", freeze(ServiceBusMessage("x")), Choice(), 990.0, 60.0, None)
    (line,) = [record.getMessage() for record in caplog.records]
    assert line == (
        "the spool the spool stays with the process that this one was forked from: here, what neither "
        "namespace takes is raised; a client that is made after the fork can have a spool of its own"
    )


@pytest.mark.spec("G-15", "F-88")
@pytest.mark.parametrize(("policy", "deadlines"), [("deadline", [4_990_000 + 60_000]), ("restart", None)])
def test_a_time_to_live_runs_from_the_first_attempt_by_the_wall_clock_of_now(
    policy: Any, deadlines: list[int] | None
) -> None:
    core = Base(ttl_policy=policy)
    core._spooling = None
    request = freeze(ServiceBusMessage("x", time_to_live=timedelta(minutes=1)))
    core._flow("orders", request, Choice(), 990.0, 60.0, None)
    assert request.deadlines == deadlines
    assert wall_clock(NOW) == 5_000_000
    assert wall_clock(NOW - 0.25) == 4_999_750


def test_the_flow_of_a_send_has_its_first_attempt_its_count_and_its_ids() -> None:
    core = Base(failover_interval=timedelta(0))
    core._spooling = None
    request = freeze([ServiceBusMessage("x", message_id=each) for each in "ab"])
    first = Result(NOW, OSError(), Classification(Failure.UNAVAILABLE, "down"))
    flow = core._flow("orders", request, Choice(backlog=3), 990.0, 60.0, first)
    step = next(flow)
    assert isinstance(step, Attempt)
    assert step.backlog == 3  # the choice is the sender's
    with pytest.raises(StopIteration) as landed:
        flow.send(Result(NOW))
    assert landed.value.value == Stored(3, is_ambiguous=False)
    parked = core._happened()[-1]
    assert (parked.path, parked.count, parked.message_ids) == ("orders", 2, ("a", "b"))  # type: ignore[attr-defined]


def test_what_only_the_primary_can_do_goes_nowhere_else_with_its_retries() -> None:
    core = Base(retry=RetryPolicy(1, 0.0))
    core._spooling = None
    flow = core._flow("orders", Cancellation([1]), Choice(), NOW, 60.0, None)
    down = Result(NOW, OSError(), Classification(Failure.UNAVAILABLE, "down"))
    steps = [next(flow), flow.send(down)]
    assert Attempt(None, NOW + 60.0) in steps
    flow = core._flow("orders", Cancellation([1]), Choice(), NOW, 60.0, Result(NOW))
    with pytest.raises(StopIteration):
        next(flow)


def test_a_replay_goes_the_same_way_but_not_into_the_spool_again() -> None:
    core, _ = spooling(operation_timeout=timedelta(seconds=20), failover_interval=timedelta(0))
    request = freeze([ServiceBusMessage("x", message_id=each) for each in "ab"])
    flow = core._flow_again("orders", request, Choice(backlog=3))
    assert next(flow) == Attempt(None, NOW + 15.0)  # a backlog is to have time too
    step = flow.send(Result(NOW, OSError(), Classification(Failure.UNAVAILABLE, "down")))
    assert isinstance(step, Attempt)
    assert step.backlog == 3
    with pytest.raises(StopIteration):
        flow.send(Result(NOW))
    parked = core._happened()[-1]
    assert (parked.path, parked.count, parked.message_ids) == ("orders", 2, ("a", "b"))  # type: ignore[attr-defined]


@pytest.mark.spec("P-4", "R-2")
def test_a_replay_for_the_primary_alone_waits_while_nothing_is_sent_there() -> None:
    core, _ = spooling(operation_timeout=timedelta(seconds=20))
    assert next(core._flow_again("orders", Cancellation([1]), Choice())) == Attempt(None, NOW + 20.0)
    core.by_hand(core.pair.fail_over, "orders")
    with pytest.raises(StopIteration) as landed:
        next(core._flow_again("orders", Cancellation([1]), Choice()))
    assert landed.value.value == Stranded(())


# --- small ones


def test_results_say_when_and_why() -> None:
    error = ValueError("closed")
    why = "the client, or this side of it, is closed"
    assert closed(error) == Result(NOW, error, Classification(Failure.CALLER, why, is_local=True))
    late = not_written_in_time()
    assert str(late.error) == "the spool did not answer in time; the message may be in it nevertheless"
    assert isinstance(late.error, SpoolError)
    stalls = Classification(Failure.UNAVAILABLE, "the disk stalls", is_ambiguous=True)
    assert (late.now, late.classification) == (NOW, stalls)
    assert counted(late, 2).accepted == 2
    assert counted(late, 0) is late


def test_an_attempt_without_time_is_not_made() -> None:
    assert time_left(NOW + 0.5) == 0.5
    for until in (NOW, NOW - 1.0):
        with pytest.raises(OperationTimeoutError) as told:
            time_left(until)
        assert told.value.message == "No time was left for this attempt."


def test_what_came_of_the_backlogs_is_told_with_its_cause() -> None:
    assert backlogs_event(("a", "b")) == BacklogsCreated(NOW, "", ("a", "b"))
    event = backlogs_event(ServiceBusServerBusyError())
    assert isinstance(event, BacklogsNotCreated)
    assert (event.at, event.path) == (NOW, "")
    assert event.cause.startswith("ServiceBusServerBusyError: ")


def test_a_pool_belongs_to_a_backlog_by_its_slash_and_keeps_one_link_for_the_primary() -> None:
    assert (role_of("/0"), role_of("orders"), role_of("topic/orders")) == (S, P, P)
    assert (spared("/0"), spared("orders")) == (0, 1)
    over = EntityFailedOver(NOW, "orders", "why")
    assert failed_over([BacklogsCreated(NOW, "", ()), over]) == ["orders"]


@pytest.mark.parametrize("value", ["maybe" * 10, "2"])
def test_a_switch_that_says_neither_is_quoted_in_part(value: str) -> None:
    with pytest.raises(ValueError) as told:
        base_runtime.is_disabled({"SBPAIR_DISABLE": value})
    quoted = repr(value[:32])
    assert str(told.value) == f"the environment variable SBPAIR_DISABLE must be 1 or 0, not {quoted}"
