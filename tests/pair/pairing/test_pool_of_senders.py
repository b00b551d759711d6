"""The pool of blocking senders over scripted senders that open, hang or fail."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from azure.servicebus.exceptions import OperationTimeoutError, ServiceBusError

from sbpair.pair.pairing.blocking.sender_pool import GRACE, IDLE, PooledSender, SenderPool
from sbpair.pair.pairing.shared import waiting
from sbpair.pair.pairing.shared.threads import Job, Workers
from sbpair.pair.pairing.shared.waiting import MAX_OPENING_SECONDS, StillWaitingError
from tests.waiting import PATIENCE

pytestmark = pytest.mark.spec("R-66")


class Sender:
    """An SDK sender with a scripted peer: it opens, fails, or hangs until ``gate`` is set."""

    def __init__(self, error: Exception | None = None, gate: threading.Event | None = None) -> None:
        self._error, self._gate = error, gate
        self._handler = None
        self._running = False
        self.opened_on = ""
        self.closed_on = ""
        self.is_entered = threading.Event()

    def _create_handler(self, auth: object) -> None: ...

    def __enter__(self) -> Sender:
        self.opened_on = threading.current_thread().name
        self.is_entered.set()
        if self._gate is not None:
            assert self._gate.wait(PATIENCE)
        if self._error is not None:
            raise self._error
        self._running = True
        return self

    def close(self) -> None:
        self.closed_on = threading.current_thread().name
        self._running = False


class Watched:
    """A client's watch without its thread, recording the calls that it would end."""

    def __init__(self) -> None:
        self.calls: set[PooledSender] = set()

    def add(self, call: PooledSender) -> None:
        self.calls.add(call)

    def remove(self, call: PooledSender) -> None:
        self.calls.discard(call)


@dataclass
class Pooled:
    pool: SenderPool
    watch: Watched
    openers: Workers
    closers: Workers
    made: list[Sender]
    next_ones: list[Sender]
    failures: list[Exception] = field(default_factory=list)

    def settled(self) -> None:
        """Wait for the background work."""
        self.openers.join(PATIENCE)
        self.closers.join(PATIENCE)

    def opened(self, count: int) -> list[PooledSender]:
        """Open ``count`` senders and keep them in use."""
        return [self.pool.acquire(time.monotonic() + PATIENCE) for _ in range(count)]


MakePool = Callable[..., Pooled]


@pytest.fixture
def make() -> MakePool:
    def build(*senders: Sender) -> Pooled:
        made: list[Sender] = []
        next_ones = list(senders)
        failures: list[Exception] = []

        def make_one() -> Sender:
            made.append(next_ones.pop(0) if next_ones else Sender())
            return made[-1]

        watch, openers, closers = Watched(), Workers(4), Workers(4)
        pool = SenderPool(make_one, watch, openers, closers, failures.append)  # type: ignore[arg-type]
        return Pooled(pool, watch, openers, closers, made, next_ones, failures)

    return build


def test_a_sender_is_opened_on_a_worker_and_used_again(make: MakePool) -> None:
    it = make()
    began = time.monotonic()
    until = began + PATIENCE
    first = it.pool.acquire(until)
    assert first.sender is it.made[0]
    assert it.made[0].opened_on == "sbpair-open"
    assert first.until == until + GRACE
    assert first.is_open
    assert first.opened_at > began
    assert it.watch.calls == {first}
    before = first.used_at
    it.pool.release(first)
    assert first.until == math.inf
    assert first.used_at >= before
    assert it.pool.acquire(until) is first
    assert len(it.made) == 1


@pytest.mark.spec("R-8")
def test_a_link_opened_before_its_call_may_have_died_while_idle_even_if_no_call_has_used_it(
    make: MakePool,
) -> None:
    it = make()
    it.pool.warm()
    it.openers.join(PATIENCE)
    began = time.monotonic()
    assert it.pool.acquire(began + PATIENCE).opened_at < began
    assert it.pool.acquire(began + PATIENCE).opened_at > began


def test_the_last_used_sender_is_used_first(make: MakePool) -> None:
    it = make()
    one, two = it.opened(2)
    assert one is not two
    it.pool.release(one)
    it.pool.release(two)
    assert [it.pool.try_acquire(), it.pool.try_acquire(), it.pool.try_acquire()] == [two, one, None]


def test_a_failed_opening_raises_its_error_only_to_the_waiting_call(
    make: MakePool,
) -> None:
    refused = ServiceBusError("refused")
    it = make(Sender(refused))
    with pytest.raises(ServiceBusError) as raised:
        it.pool.acquire(time.monotonic() + PATIENCE)
    assert raised.value is refused
    it.settled()
    assert it.watch.calls == set()
    assert it.failures == []
    assert it.pool.try_acquire() is None
    assert it.pool.acquire(time.monotonic() + PATIENCE).sender is it.made[1]


def test_an_opening_that_fails_with_nobody_waiting_is_reported_unless_the_pool_is_closed(
    make: MakePool,
) -> None:
    refused, gate = ServiceBusError("refused"), threading.Event()
    it = make(Sender(refused), Sender(refused, gate))
    it.pool.warm()
    it.settled()
    assert it.failures == [refused]
    it.pool.warm()
    it.made[1].is_entered.wait(PATIENCE)
    it.pool.close()
    gate.set()
    it.settled()
    assert it.failures == [refused]
    assert it.watch.calls == set()


def test_only_one_sender_is_opened_ahead(make: MakePool) -> None:
    gate = threading.Event()
    it = make(Sender(gate=gate))
    it.pool.warm()
    it.pool.warm()
    gate.set()
    it.settled()
    it.pool.warm()
    assert len(it.made) == 1
    assert it.pool.try_acquire() is not None
    it.pool.warm()
    it.settled()
    assert len(it.made) == 2
    it.pool.close()
    taken = it.pool.try_acquire()
    assert taken is None
    it.pool.warm()
    assert len(it.made) == 2


def test_warming_waits_for_the_opening_and_raises_nothing(make: MakePool) -> None:
    gate = threading.Event()
    it = make(Sender(gate=gate), Sender(ServiceBusError("refused")))
    it.pool.warmed(time.monotonic())  # no time to wait
    assert it.pool.try_acquire() is None
    gate.set()
    it.pool.warmed(time.monotonic() + PATIENCE)
    assert it.pool.try_acquire() is not None
    it.pool.warmed(time.monotonic() + PATIENCE)
    it.settled()
    assert it.failures


def test_a_call_takes_over_the_opening_of_one_that_gave_up(make: MakePool) -> None:
    gate = threading.Event()
    it = make(Sender(gate=gate))
    it.pool.warm()
    it.made[0].is_entered.wait(PATIENCE)
    with pytest.raises(OperationTimeoutError):
        it.pool.acquire(time.monotonic() - 1.0)
    gate.set()
    assert it.pool.acquire(time.monotonic() + PATIENCE).sender is it.made[0]
    assert len(it.made) == 1


@pytest.mark.spec("R-8")
def test_after_a_call_gave_up_on_a_silent_peer_the_next_opens_a_link_of_its_own(
    make: MakePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "OVERDUE", 0.0)
    gate = threading.Event()
    it = make(Sender(ServiceBusError("refused"), gate))
    given_up(it)
    assert it.pool.acquire(time.monotonic() + PATIENCE).sender is it.made[1]
    gate.set()
    it.settled()
    assert it.failures == []  # the call that gave up has reported the peer


@pytest.mark.spec("R-8")
def test_a_slow_peer_may_still_answer_the_first_two_openings_of_calls_that_gave_up(
    make: MakePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "OVERDUE", 0.0)
    gates = [threading.Event() for _ in range(3)]
    it = make(*(Sender(gate=gate) for gate in gates))
    for _ in gates:
        given_up(it)
    overrun = {it.made.index(call.sender): call.has_overrun for call in it.watch.calls}
    assert overrun == {0: False, 1: False, 2: True}
    for gate in gates:
        gate.set()
    it.settled()
    assert {it.made.index(pooled.sender) for pooled in it.opened(2)} == {0, 1}
    assert it.failures == []


def given_up(it: Pooled) -> None:
    """Let a call wait for the opening of a link until its deadline."""
    with pytest.raises(OperationTimeoutError) as late:
        it.pool.acquire(time.monotonic() - 1.0)
    assert not isinstance(late.value, StillWaitingError)


def test_a_call_without_time_withdraws_an_opening_that_has_not_begun(make: MakePool) -> None:
    gate = threading.Event()
    it = make()
    for _ in range(4):
        it.openers.queue("busy", lambda: gate.wait(PATIENCE))
    with pytest.raises(StillWaitingError, match=r"^.*The link was not opened in time"):
        it.pool.acquire(time.monotonic() - 1.0)
    assert it.watch.calls == set()
    gate.set()
    it.settled()
    assert it.made[0].opened_on == ""


@pytest.mark.parametrize("when", ["before", "during"])
def test_an_opening_that_overran_is_not_used(make: MakePool, when: str) -> None:
    gate, held = threading.Event(), threading.Event()
    it = make(Sender(gate=gate))
    if when == "before":
        for _ in range(4):
            it.openers.queue("busy", lambda: held.wait(PATIENCE))
    it.pool.warm()
    (pooled,) = it.watch.calls
    if when == "during":
        it.made[0].is_entered.wait(PATIENCE)
        assert pooled.until <= time.monotonic() + MAX_OPENING_SECONDS
        assert pooled.until > time.monotonic() + MAX_OPENING_SECONDS / 2
    pooled.overrun()
    held.set()
    gate.set()
    it.settled()
    assert it.pool.try_acquire() is None
    (failure,) = it.failures
    assert "The link was not opened in time." in str(failure)
    assert isinstance(failure, StillWaitingError) is (when == "before")
    assert bool(it.made[0].opened_on) is (when == "during")
    assert it.watch.calls == set()


def test_a_sender_in_doubt_is_closed_on_a_worker_and_not_watched(make: MakePool) -> None:
    it = make()
    (pooled,) = it.opened(1)
    it.pool.discard(pooled)
    it.settled()
    assert pooled.until == math.inf
    assert it.made[0].closed_on == "sbpair-close"
    assert it.watch.calls == set()
    assert it.pool.try_acquire() is None


def test_after_a_failure_a_fresh_call_uses_no_previously_idle_sender(make: MakePool) -> None:
    it = make()
    idle, failed, working = it.opened(3)
    it.pool.release(idle)
    it.pool.discard(failed)
    it.pool.release(working)
    assert it.pool.acquire(time.monotonic() + PATIENCE, is_fresh=True) is working
    it.settled()
    assert it.made[0].closed_on == it.made[1].closed_on == "sbpair-close"
    assert it.pool.try_acquire() is None


def test_a_call_that_is_not_fresh_uses_any_idle_sender(make: MakePool) -> None:
    it = make()
    idle, failed = it.opened(2)
    it.pool.release(idle)
    it.pool.discard(failed)
    assert it.pool.acquire(time.monotonic() + PATIENCE) is idle


def test_renewing_leaves_nothing_of_before(make: MakePool) -> None:
    gate = threading.Event()
    it = make(Sender(), Sender(gate=gate))
    (idle,) = it.opened(1)
    it.pool.release(idle)
    it.pool.renew()
    it.settled()
    assert it.made[0].closed_on == "sbpair-close"
    it.pool.warm()
    it.pool.renew()  # while a sender opens: no later call adopts that one
    taken: list[PooledSender] = []
    calling = threading.Thread(target=lambda: taken.append(it.pool.acquire(time.monotonic() + PATIENCE)))
    calling.start()
    calling.join(PATIENCE)
    assert [each.sender for each in taken] == [it.made[2]]
    gate.set()
    it.settled()


def test_a_waiting_call_is_recalled_when_its_entity_fails_over(make: MakePool) -> None:
    gate = threading.Event()
    it = make(Sender(gate=gate))
    raised: list[BaseException] = []

    def call() -> None:
        try:
            it.pool.acquire(time.monotonic() + PATIENCE)
        except StillWaitingError as error:
            raised.append(error)

    calling = threading.Thread(target=call)
    calling.start()
    while not it.made:
        calling.join(0.001)
    it.made[0].is_entered.wait(PATIENCE)
    while calling.is_alive():
        it.pool.recall()
        calling.join(0.001)
    assert ["failed over meanwhile" in str(each) for each in raised] == [True]
    gate.set()
    it.settled()


@pytest.mark.parametrize("keep", [0, 1, 2])
def test_senders_that_are_idle_for_a_minute_are_closed_but_for_those_kept(make: MakePool, keep: int) -> None:
    it = make()
    used = it.opened(3)
    for at, pooled in enumerate(used):
        it.pool.release(pooled)
        pooled.used_at = 100.0 + at
    assert it.pool.trim(100.0 + IDLE - 0.5, keep) == 100.0 + IDLE
    assert it.pool.trim(100.0 + IDLE, keep) == (101.0 + IDLE if keep < 2 else None)
    assert it.pool.trim(1000.0, keep) is None
    it.settled()
    assert [sender.closed_on for sender in it.made] == ["sbpair-close"] * (3 - keep) + [""] * keep
    assert len(it.watch.calls) == keep
    assert [it.pool.try_acquire() for _ in range(keep)] == used[::-1][:keep]


def test_a_pool_that_is_closed_closes_idle_senders_now_and_the_others_as_they_return(make: MakePool) -> None:
    it = make()
    idle, busy = it.opened(2)
    it.pool.release(idle)
    it.pool.close()
    it.settled()
    assert [sender.closed_on for sender in it.made] == ["sbpair-close", ""]
    it.pool.release(busy)
    it.settled()
    assert it.made[1].closed_on == "sbpair-close"
    assert it.watch.calls == set()
    assert it.pool.try_acquire() is None


def test_a_sender_that_opens_while_the_pool_closes_is_closed(make: MakePool) -> None:
    gate = threading.Event()
    it = make(Sender(gate=gate))
    it.pool.warm()
    it.made[0].is_entered.wait(PATIENCE)
    it.pool.close()
    gate.set()
    it.settled()
    assert it.pool.try_acquire() is None
    assert it.watch.calls == set()


@pytest.mark.spec("R-8")
@pytest.mark.parametrize("comes", ["opened", "released"])
def test_a_call_waiting_while_the_last_sender_of_its_entity_closes_gets_the_next_link(
    make: MakePool, monkeypatch: pytest.MonkeyPatch, comes: str
) -> None:
    it = make()
    busy, gate, opened = it.opened(2), threading.Event(), it.pool._open

    def open_in_one_go(opening: object) -> None:
        assert gate.wait(PATIENCE)
        with it.pool._lock:  # so that the call runs only when all is done
            opened(opening)  # type: ignore[arg-type]

    monkeypatch.setattr(it.pool, "_open", open_in_one_go)
    taken: list[PooledSender] = []
    calling = threading.Thread(target=lambda: taken.append(it.pool.acquire(time.monotonic() + PATIENCE)))
    calling.start()
    waits_for_a_link(it, calling)
    it.pool.close()
    if comes == "opened":
        gate.set()
    else:
        with it.pool._lock:
            while busy:
                it.pool.release(busy.pop(0))
    calling.join(PATIENCE)
    assert [it.made.index(each.sender) for each in taken] == [2 if comes == "opened" else 1]
    assert len(it.made) == 3
    gate.set()
    for pooled in busy + taken:
        it.pool.release(pooled)
    it.settled()
    assert it.watch.calls == set()
    assert it.pool.try_acquire() is None
    assert {sender.closed_on for sender in it.made if sender.opened_on} == {"sbpair-close"}


def test_the_opening_for_which_a_call_waits_is_ended_as_its_client_is_closed(make: MakePool) -> None:
    gate = threading.Event()
    it = make(Sender(gate=gate))
    raised: list[Exception] = []

    def call() -> None:
        try:
            it.pool.acquire(time.monotonic() + PATIENCE)
        except OperationTimeoutError as error:
            raised.append(error)

    calling = threading.Thread(target=call)
    calling.start()
    waits_for_a_link(it, calling)
    it.made[0].is_entered.wait(PATIENCE)
    it.pool.close()
    assert not any(each.has_overrun for each in it.watch.calls)
    it.pool.close(now=True)
    assert all(each.has_overrun for each in it.watch.calls)
    gate.set()
    calling.join(PATIENCE)
    assert len(raised) == len(it.made) == 1
    it.settled()


def waits_for_a_link(it: Pooled, calling: threading.Thread) -> None:
    """Wait until the call waits in the pool."""
    while calling.is_alive():
        with it.pool._lock:
            if it.pool._waiting:
                return
        calling.join(0.001)


def test_a_link_is_tried_out_apart_from_the_pool(make: MakePool) -> None:
    refused = ServiceBusError("refused")
    it = make(Sender(), Sender(refused))
    it.pool.try_out(time.monotonic() + PATIENCE)
    it.settled()
    assert it.made[0].opened_on == "sbpair-open"
    assert it.made[0].closed_on == "sbpair-close"
    with pytest.raises(ServiceBusError) as raised:
        it.pool.try_out(time.monotonic() + PATIENCE)
    assert raised.value is refused
    it.settled()
    assert it.made[1].closed_on == ""
    assert it.watch.calls == set()
    assert it.pool.try_acquire() is None


def test_a_trial_link_that_does_not_open_is_closed(make: MakePool) -> None:
    gate = threading.Event()
    it = make(Sender(gate=gate))
    with pytest.raises(OperationTimeoutError, match="The link was not opened in time"):
        it.pool.try_out(time.monotonic())
    (pooled,) = it.watch.calls  # until its worker returns
    assert pooled.has_overrun
    gate.set()
    it.settled()
    assert it.watch.calls == set()
    assert it.made[0].closed_on


def test_a_trial_without_a_worker_leaves_no_state(make: MakePool) -> None:
    gate = threading.Event()
    it = make()
    jobs = [it.openers.start("busy", lambda: gate.wait(PATIENCE)) for _ in range(4)]
    assert all(isinstance(job, Job) for job in jobs)
    with pytest.raises(StillWaitingError, match="still hang"):
        it.pool.try_out(time.monotonic())
    assert it.watch.calls == set()
    gate.set()
    it.settled()


def test_closing_a_sender_that_fails_is_no_error(make: MakePool, monkeypatch: pytest.MonkeyPatch) -> None:
    it = make()
    (pooled,) = it.opened(1)

    def broken() -> None:
        raise OSError("gone")

    monkeypatch.setattr(it.made[0], "close", broken)
    pooled.close()
    pooled.discard()
