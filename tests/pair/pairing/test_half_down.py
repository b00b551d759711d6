"""A primary that is only half down: a share of failures, slow answers, failing keys, and the return (H-1 to H-9)."""

from __future__ import annotations

import gc
import random
import weakref
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusConnectionError

from sbpair.pair.pairing.decide.attempts import RecentAttempts
from sbpair.pair.pairing.decide.backlogs import EVIDENCE
from sbpair.pair.pairing.decide.failing_keys import ASIDE, FORGOTTEN, MAX_KEYS, FailingKeys
from sbpair.pair.pairing.decide.health import EntityHealth, EntityState, HealthPolicy
from sbpair.pair.pairing.decide.pair import Attempt, Result
from sbpair.pair.pairing.decide.steps import Choice
from sbpair.pair.pairing.events import (
    EntityRecovered,
    EntityReturning,
    KeySetAside,
    PrimarySlow,
    ReturnAborted,
)
from sbpair.pair.pairing.outcome import Failure, Refused, Stored

if TYPE_CHECKING:
    from conftest import Driver

LETTER = HealthPolicy(failover_share=1.0)
BUSY = ConnectionError("busy")


def entity(policy: HealthPolicy | None = None, interval: float = 60.0) -> EntityHealth:
    return EntityHealth(interval, 60.0, lambda: 0.0, policy=policy)


def live_through(health: EntityHealth, failing: float, seconds: int, seed: int = 3) -> float | None:
    """Make two attempts a second, of which this share fails; return when the entity failed over, if it did."""
    rng = random.Random(seed)
    for half in range(2 * seconds):
        now = half / 2
        if rng.random() < failing:
            health.attempt_failed(now)
            health.send_failed(now)
        else:
            health.send_succeeded(now)
        while (timer := health.next_timer()) is not None and timer <= now:
            health.handle_timer(timer)
            if health.state is EntityState.FAILED_OVER:
                return now
        if health.state is EntityState.FAILED_OVER:
            return now
    return None


@pytest.mark.spec("H-1", "G-12")
@pytest.mark.parametrize("share", [0.6, 0.8, 0.95])
def test_an_entity_whose_attempts_mostly_fail_fails_over_after_one_to_two_intervals(
    share: float,
) -> None:
    failed_over = live_through(entity(), share, 300)
    assert failed_over is not None
    assert 60.0 <= failed_over <= 120.0


@pytest.mark.spec("H-1")
@pytest.mark.parametrize("share", [0.05, 0.2])
def test_an_entity_whose_attempts_mostly_succeed_stays_healthy(share: float) -> None:
    assert live_through(entity(), share, 1800) is None


@pytest.mark.spec("H-1")
def test_with_a_failure_share_of_one_a_single_success_ends_the_suspicion() -> None:
    assert live_through(entity(LETTER), 0.95, 600) is None


@pytest.mark.spec("H-2")
def test_two_good_buckets_end_a_suspicion_and_a_single_success_does_not() -> None:
    health = entity()
    for second in range(10):
        health.attempt_failed(second)
        health.send_failed(second)
    health.send_succeeded(10.0)
    assert health.state is EntityState.SUSPECT
    for second in range(11, 30):
        health.send_succeeded(second)
    assert health.state is EntityState.HEALTHY


@pytest.mark.spec("H-3")
def test_trouble_that_returns_at_once_does_not_start_from_zero() -> None:
    health = entity()
    assert live_through(health, 1.0, 100) is not None
    health.ping_accepted(61.0)
    assert health.state is EntityState.HEALTHY
    health.attempt_failed(64.0)
    assert health.state is EntityState.SUSPECT


@pytest.mark.spec("H-3", "H-7")
@pytest.mark.parametrize("redirects", [True])
def test_an_hour_of_ten_seconds_up_and_sixty_down_raises_no_error(
    pair_of: Callable[..., Driver], redirects: bool
) -> None:
    driver = pair_of(interval=60.0, ping=60.0, redirects=redirects)
    outcomes = Counter[type]()
    while driver.now < 3600:
        is_up = driver.now % 70 < 10
        outcomes[type(driver.primary(driver.ok if is_up else driver.fail))] += 1
        for path in driver.advance(1.0):
            refusal = None if is_up else driver.fail().classification
            driver.pair.ping_finished(path, refusal, driver.now)
    assert set(outcomes) == {Stored}


@pytest.mark.spec("H-4")
def test_a_primary_that_takes_forty_seconds_per_send_is_left(pair_of: Callable[..., Driver]) -> None:
    health = entity()
    for second in range(100):  # of many senders
        health.send_succeeded(second, took=40.0)
        health.handle_timer(second)
    assert health.state is EntityState.FAILED_OVER
    driver = pair_of()
    assert isinstance(driver.primary(lambda: driver.ok(after=40.0)), Stored)
    (slow,) = driver.pair.events()
    assert isinstance(slow, PrimarySlow)
    assert slow.seconds == 40.0


@pytest.mark.spec("H-5", "F-40")
def test_a_service_busy_in_four_of_five_attempts_fails_over_like_one_always_busy() -> None:
    health = EntityHealth(60.0, 60.0, lambda: 0.0, busy_limit=30.0)
    counted = []
    for second in range(60):
        if second % 5:
            counted.append(health.busy_counts(second))
        else:
            health.send_succeeded(second)
    assert not any(counted[:24])
    assert counted[-1]


@pytest.mark.spec("H-6")
def test_a_parkable_send_makes_one_short_attempt_at_the_primary(
    pair_of: Callable[..., Driver],
) -> None:
    driver = pair_of(redirects=True)
    for _ in range(2):
        driver.steps.clear()
        driver.primary(driver.fail)
        attempts = [step for step in driver.steps if isinstance(step, Attempt)]
        assert [step.backlog is None for step in attempts] == [True, False]
        assert (attempts[0].until, attempts[0].open_by) == (driver.now + 3.0, driver.now + 4.0)


@pytest.mark.spec("H-6")
def test_a_send_waiting_for_a_link_to_a_suspect_primary_is_parked_in_time(
    pair_of: Callable[..., Driver],
) -> None:
    driver = pair_of(redirects=True)
    driver.primary(driver.fail)
    driver.steps.clear()
    outcome = driver.primary(lambda: driver.fail(after=1.0, is_own=True))
    assert isinstance(outcome, Stored)
    assert outcome.backlog is not None
    assert driver.now == 1.0


def failed_over_by_share(policy: HealthPolicy | None = None) -> EntityHealth:
    health = entity(policy)
    assert live_through(health, 0.8, 300) is not None
    return health


@pytest.mark.spec("H-7")
def test_after_a_failover_by_share_two_pings_start_a_gradual_return() -> None:
    health = failed_over_by_share()
    health.ping_accepted(200.0)
    assert health.returning_since is None
    health.ping_accepted(260.0)
    taken = [
        sum(health.takes_trial(draw / 100, 260.0 + second) for draw in range(100)) for second in (0, 15, 29)
    ]
    assert taken == sorted(taken)
    assert taken[0] <= 6
    assert taken[-1] >= 95
    (transition,), _ = health.handle_timer(290.0)
    assert transition.after is EntityState.HEALTHY


@pytest.mark.spec("H-7")
def test_a_refused_ping_between_two_accepted_ones_begins_the_count_anew() -> None:
    health = failed_over_by_share()
    health.ping_accepted(200.0)
    health.ping_failed()
    health.ping_accepted(260.0)
    assert health.returning_since is None


@pytest.mark.spec("H-7")
@pytest.mark.parametrize("failure", [Failure.UNAVAILABLE, Failure.BUSY, Failure.CONFIGURATION, Failure.FULL])
def test_a_failed_trial_is_parked_and_ends_the_return(
    pair_of: Callable[..., Driver], failure: Failure
) -> None:
    policy = HealthPolicy(returns_always=True)
    driver = pair_of(ping=10.0, policy=policy)
    driver.fail_over()
    for _ in range(2):
        driver.advance(11.0)
        driver.pair.ping_finished("orders", None, driver.now)
    driver.advance(28.0)
    outcomes = [driver.primary(lambda: driver.fail(failure)) for _ in range(50)]
    assert {type(outcome) for outcome in outcomes} == {Stored}
    told = [type(event) for event in driver.pair.events()]
    assert told.count(EntityReturning) == told.count(ReturnAborted) == 1
    assert EntityRecovered not in told
    assert driver.pair.next_timer() is not None


@pytest.mark.spec("H-7", "P-33")
def test_after_a_total_outage_one_accepted_ping_ends_it_for_all() -> None:
    health = entity()
    assert live_through(health, 1.0, 100) is not None
    (transition,) = health.ping_accepted(65.0)
    assert transition.after is EntityState.HEALTHY


@pytest.mark.spec("H-8")
def test_the_pings_of_a_hundred_clients_do_not_march(pair_of: Callable[..., Driver]) -> None:
    seconds = set()
    for seed in range(100):
        driver = pair_of(seed=seed)
        driver.fail_over()
        for _ in range(3):
            timer = driver.pair.next_timer()
            assert timer is not None
            driver.now = timer
            driver.pair.handle_timer(timer)
            driver.pair.ping_finished("orders", driver.fail().classification, timer)
        seconds.add(round(driver.now))
        assert 2 * 54 <= driver.now <= 2 * 66 + 5
    assert len(seconds) > 10


def keyed(driver: Driver, key: str, answer: Callable[[], Result]) -> Stored | Refused:
    """Run a send with this partition key, whose attempts at the primary get this answer."""
    flow = driver.pair.send_flow(
        "orders", 1, Choice(), now=driver.now, deadline=driver.now + 60, key=lambda: key
    )
    try:
        step = next(flow)
        while True:
            driver.steps.append(step)
            is_primary = isinstance(step, Attempt) and step.backlog is None
            step = flow.send(answer() if is_primary else driver.ok())
    except StopIteration as ended:
        outcome: Stored | Refused = ended.value
        return outcome


@pytest.mark.spec("H-9")
@pytest.mark.parametrize("redirects", [True, False])
def test_a_key_failing_three_times_while_others_succeed_is_parked_for_a_while(
    pair_of: Callable[..., Driver], redirects: bool
) -> None:
    driver = pair_of(redirects=redirects)
    for _ in range(3):
        keyed(driver, "good", driver.ok)
        keyed(driver, "bad", driver.fail)
    assert [event.key for event in driver.pair.events() if isinstance(event, KeySetAside)] == ["bad"]
    driver.steps.clear()
    outcome = keyed(driver, "bad", driver.fail)
    assert isinstance(outcome, Stored if redirects else Refused)
    assert not any(isinstance(step, Attempt) and step.backlog is None for step in driver.steps)
    assert keyed(driver, "good", driver.ok) == Stored(None, is_ambiguous=False)
    driver.advance(ASIDE + 1)
    assert keyed(driver, "bad", driver.ok) == Stored(None, is_ambiguous=False)
    assert keyed(driver, "bad", driver.ok) == Stored(None, is_ambiguous=False)


def keyed_sends(
    share: float, bad: frozenset[int], *, keys: int, attempts: int
) -> tuple[FailingKeys, int, int]:
    """Sends of these keys for ten minutes, one a second and key; each makes a number of attempts.

    The attempts of bad keys fail, others by chance. Returns the keys, and how many of the others' sends failed or were
    set aside.
    """
    failing, rng, now, failed, aside = FailingKeys(), random.Random(1), 0.0, 0, 0
    for _ in range(600 * keys):
        now += 1 / keys
        key = rng.randrange(keys)
        if failing.set_aside(str(key), now) is not None:
            aside += key not in bad
            continue
        for attempt in range(attempts):
            if key not in bad and rng.random() >= share:
                failing.succeeded(str(key), now, is_first=attempt == 0)
                break
            failing.failed(str(key), BUSY, now, is_first=attempt == 0)
        else:
            failed += key not in bad
    return failing, failed, aside


@pytest.mark.spec("B-14")
@pytest.mark.parametrize("attempts", [1, 4])
@pytest.mark.parametrize("share", [0.05, 0.2, 0.3, 0.4])
def test_keys_that_fail_by_chance_are_not_set_aside(share: float, attempts: int) -> None:
    _keys, failed, aside = keyed_sends(share, frozenset(), keys=20, attempts=attempts)
    assert aside <= 0.3 * failed


@pytest.mark.spec("B-14")
@pytest.mark.parametrize("share", [0.0, 0.1, 0.3])
@pytest.mark.parametrize("partitions", [2, 16])
def test_the_keys_of_a_partition_that_is_down_are_set_aside_although_others_fail_too(
    share: float, partitions: int
) -> None:
    bad = frozenset(range(0, 64, partitions))
    keys, _failed, aside = keyed_sends(share, bad, keys=64, attempts=4)
    assert sum(keys.is_aside(str(key), 600.0) for key in bad) >= 0.9 * len(bad)
    assert aside == 0


@pytest.mark.spec("B-15")
def test_a_key_that_is_set_aside_raises_a_new_error_each_time_which_keeps_no_message() -> None:
    keys, bodies = FailingKeys(), weakref.WeakSet[ServiceBusMessage]()

    def refused(message: ServiceBusMessage) -> Exception:
        bodies.add(message)
        try:
            raise ServiceBusConnectionError(message="x" * 100_000, error=OSError(104, "gone"))
        except ServiceBusConnectionError as error:
            return error

    for _ in range(3):
        keys.succeeded("good", 0.0)
        keys.failed("bad", refused(ServiceBusMessage(b"")), 0.0, is_first=True)
    gc.collect()
    assert len(bodies) == 0
    raised = [keys.set_aside("bad", 1.0) for _ in range(2)]
    assert raised[0] is not raised[1]
    for error in raised:
        assert isinstance(error, ServiceBusConnectionError)
        assert str(error).startswith("xxx")
        assert len(str(error)) <= 1000
        assert (error.__traceback__, error.__cause__, error.exc_traceback) == (None, None, None)


@pytest.mark.spec("H-9")
def test_the_keys_that_are_remembered_are_bounded() -> None:
    keys = FailingKeys()
    for number in range(5 * MAX_KEYS):
        keys.failed(str(number), BUSY, 0.0, is_first=True)
    assert len(keys) == MAX_KEYS


@pytest.mark.spec("H-9")
def test_no_send_takes_the_fast_path_while_a_key_is_set_aside(
    pair_of: Callable[..., Driver],
) -> None:
    driver = pair_of(interval=10.0, redirects=True)
    health, _ = driver.pair.fast_path("orders", 60.0)
    for _ in range(3):
        keyed(driver, "bad", driver.fail)
        keyed(driver, "good", driver.ok)
    driver.advance(15.0)  # the interval has forgotten the failures, and the key is still set aside
    keyed(driver, "good", driver.ok)
    assert not health.is_calm
    driver.advance(FORGOTTEN)
    keyed(driver, "good", driver.ok)
    assert health.is_calm


@pytest.mark.spec("H-9")
def test_an_entity_is_calm_again_when_its_failing_key_succeeds(pair_of: Callable[..., Driver]) -> None:
    driver = pair_of(interval=10.0, redirects=True)
    health, _ = driver.pair.fast_path("orders", 60.0)
    keyed(driver, "bad", driver.fail)
    keyed(driver, "good", driver.ok)
    driver.advance(15.0)
    keyed(driver, "good", driver.ok)
    assert not health.is_calm
    keyed(driver, "bad", driver.ok)
    assert health.is_calm


def busy_sends(share: float, partition: int | None, *, sends: int) -> FailingKeys:
    """Sends of 320 keys of 16 partitions, one of which is throttled; others are busy for this share, by chance."""
    keys, rng, now = FailingKeys(), random.Random(1), 0.0
    for _ in range(sends):
        now += 0.05
        key = rng.randrange(320)
        if keys.set_aside(str(key), now) is not None:
            continue
        for attempt in range(10):
            if key % 16 != partition and rng.random() >= share:
                keys.succeeded(str(key), now, is_first=attempt == 0)
                break
            keys.failed(str(key), BUSY, now, is_first=attempt == 0)
    return keys


@pytest.mark.spec("H-9")
def test_the_keys_of_a_throttled_partition_are_set_aside() -> None:
    keys = busy_sends(0.0, 3, sends=4000)
    now = 4000 * 0.05
    aside = {number for number in range(320) if keys.set_aside(str(number), now) is not None}
    assert len(aside) >= 15
    assert {number % 16 for number in aside} == {3}


@pytest.mark.spec("H-9")
@pytest.mark.parametrize("share", [0.05, 0.2, 0.5, 0.8])
def test_keys_that_are_busy_by_chance_are_not_set_aside(share: float) -> None:
    keys = busy_sends(share, None, sends=20_000)
    assert not any(keys.set_aside(str(number), 0.0) for number in range(320))


@pytest.mark.spec("H-9")
@pytest.mark.parametrize("redirects", [True, False])
def test_a_key_that_is_busy_while_others_succeed_skips_the_primary_for_a_while(
    pair_of: Callable[..., Driver], redirects: bool
) -> None:
    driver = pair_of(redirects=redirects)

    def busy() -> Result:
        return driver.fail(Failure.BUSY, retry_after=60.0)

    keyed(driver, "other", busy)
    for _ in range(8):
        for _ in range(8):
            keyed(driver, "good", driver.ok)
        keyed(driver, "bad", busy)
    assert [event.key for event in driver.pair.events() if isinstance(event, KeySetAside)] == ["bad"]
    driver.steps.clear()
    assert isinstance(keyed(driver, "bad", busy), Stored if redirects else Refused)
    assert not any(isinstance(step, Attempt) and step.backlog is None for step in driver.steps)
    driver.advance(ASIDE + 1)
    assert keyed(driver, "bad", driver.ok) == Stored(None, is_ambiguous=False)


@pytest.mark.spec("H-9")
def test_a_send_waiting_for_a_throttled_partition_is_parked_once_its_key_is_set_aside(
    pair_of: Callable[..., Driver],
) -> None:
    driver = pair_of(redirects=True)
    keyed(driver, "other", lambda: driver.fail(Failure.BUSY, retry_after=60.0))
    began = driver.now

    def busy() -> Result:
        for _ in range(10):  # others are accepted meanwhile
            keyed(driver, "good", driver.ok)
        return driver.fail(Failure.BUSY, after=2.0, retry_after=0.0)

    outcome = keyed(driver, "bad", busy)
    assert isinstance(outcome, Stored)
    assert outcome.backlog is not None
    assert driver.now - began <= 12.0


@pytest.mark.spec("H-9")
@pytest.mark.parametrize("failure", [Failure.BUSY, Failure.UNAVAILABLE])
def test_an_entity_that_fails_for_all_sets_no_key_aside(
    pair_of: Callable[..., Driver], failure: Failure
) -> None:
    driver = pair_of(redirects=True)
    keyed(driver, "other", driver.fail)
    for _ in range(200):
        keyed(driver, "good", driver.ok)
    for _ in range(30):
        keyed(driver, "bad", lambda: driver.fail(failure, after=0.1, retry_after=60.0))
    assert not [event for event in driver.pair.events() if isinstance(event, KeySetAside)]


@pytest.mark.spec("H-9")
def test_busy_messages_without_a_key_count_among_the_others() -> None:
    keys, now = FailingKeys(), 0.0
    for _ in range(40):
        keys.failed("bad", BUSY, now, is_first=True)
        for _ in range(9):
            keys.failed(None, BUSY, now, is_first=True)
        keys.succeeded(None, now)
    assert not keys.is_aside("bad", now)
    assert len(keys) == 1


@pytest.mark.spec("H-9")
def test_a_pair_counts_busy_messages_without_a_key(pair_of: Callable[..., Driver]) -> None:
    driver = pair_of(redirects=True)

    def busy() -> Result:
        return driver.fail(Failure.BUSY, retry_after=60.0)

    for number in range(300):
        if number % 10 == 0:
            keyed(driver, "bad", busy)
        for _ in range(9):
            driver.primary(busy)
        driver.primary(driver.ok)
    assert not [event for event in driver.pair.events() if isinstance(event, KeySetAside)]


def returning(pair_of: Callable[..., Driver]) -> Driver:
    """A pair whose entity is coming home by trials."""
    driver = pair_of(ping=10.0, policy=HealthPolicy(returns_always=True))
    driver.fail_over()
    for _ in range(2):
        for path in driver.advance(12.0):
            driver.pair.ping_finished(path, None, driver.now)
    assert driver.pair.conditions(driver.now)["orders"].is_returning
    driver.pair.events()
    return driver


@pytest.mark.spec("B-18")
@pytest.mark.parametrize("word", ["fail_over", "hold"])
def test_a_manual_failover_of_a_returning_entity_ends_the_return(
    pair_of: Callable[..., Driver], word: str
) -> None:
    driver = returning(pair_of)
    getattr(driver.pair, word)("orders", driver.now)
    assert not driver.pair.conditions(driver.now)["orders"].is_returning
    (event,) = [each for each in driver.pair.events() if isinstance(each, ReturnAborted)]
    assert event.cause == f"{word} was called"
    assert bool(driver.advance(12.0)) is (word == "fail_over")


@pytest.mark.spec("B-18")
def test_a_late_failed_opening_ends_a_return_and_is_reported(pair_of: Callable[..., Driver]) -> None:
    driver = returning(pair_of)
    driver.pair.opening_failed("orders", driver.fail().classification, driver.now)
    assert not driver.pair.conditions(driver.now)["orders"].is_returning
    assert [type(event) for event in driver.pair.events()] == [ReturnAborted]


@pytest.mark.spec("B-18")
@pytest.mark.parametrize(("failures", "after"), [(4, EntityState.HEALTHY), (5, EntityState.SUSPECT)])
def test_a_success_ends_the_suspicion_unless_five_attempts_failed(failures: int, after: EntityState) -> None:
    health = entity()
    for number in range(failures):
        health.attempt_failed(10.0 + number / 10)
    health.send_failed(11.0)
    health.send_succeeded(12.0)
    assert health.state is after


@pytest.mark.spec("H-7")
def test_an_unavailable_trial_ends_the_return_once(pair_of: Callable[..., Driver]) -> None:
    driver = pair_of(ping=10.0, policy=HealthPolicy(returns_always=True))
    driver.fail_over()
    health, _ = driver.pair.fast_path("orders", 60.0)
    ended: list[float] = []
    fail = health.attempt_failed
    health.attempt_failed = lambda now: (ended.append(now), fail(now))[1]  # type: ignore[method-assign]
    for _ in range(2):
        driver.advance(11.0)
        driver.pair.ping_finished("orders", None, driver.now)
    driver.advance(29.9)
    assert isinstance(driver.primary(driver.fail), Stored)
    assert len(ended) == 1


@pytest.mark.spec("H-4")
def test_a_single_sender_that_waits_forty_seconds_for_each_answer_fails_over() -> None:
    health, now = entity(), 0.0
    while health.state is not EntityState.FAILED_OVER and now < 600.0:
        now += 40.0
        health.send_succeeded(now, took=40.0)
        while (timer := health.next_timer()) is not None and timer <= now:
            health.handle_timer(timer)
    assert health.state is EntityState.FAILED_OVER
    assert now <= 200.0


@pytest.mark.spec("H-4")
@pytest.mark.parametrize(("size", "is_slow"), [(100, True), (64 * 1024 * 4, True), (64 * 1024 * 6, False)])
def test_a_large_message_may_take_a_second_more_for_every_64_kib(
    driver: Driver, size: int, is_slow: bool
) -> None:
    flow = driver.pair.send_flow("orders", 1, Choice(), now=0.0, deadline=60.0, size=lambda: size)
    next(flow)
    with pytest.raises(StopIteration):
        flow.send(Result(15.0))
    told = [event for event in driver.pair.events() if isinstance(event, PrimarySlow)]
    assert bool(told) is is_slow
    assert all(event.seconds == 15.0 for event in told)


@pytest.mark.spec("H-1")
def test_attempts_older_than_the_interval_are_forgotten() -> None:
    attempts = RecentAttempts(60.0)
    attempts.failed(0.0)
    assert not attempts.is_clean(30.0)
    assert attempts.is_clean(80.0)


@pytest.mark.spec("P-2", "H-1")
def test_an_entity_is_calm_again_once_its_failures_are_forgotten() -> None:
    health = entity()
    health.attempt_failed(0.0)
    assert not health.is_calm
    health.send_succeeded(1.0)
    assert not health.is_calm
    health.send_succeeded(80.0)
    assert health.is_calm


@pytest.mark.spec("H-40")
def test_a_busy_answer_with_a_hint_pauses_for_the_hint(pair_of: Callable[..., Driver]) -> None:
    driver = pair_of()
    answers = iter([driver.fail(Failure.BUSY, retry_after=2.0), Result(2.0), Result(2.0)])
    driver.send(lambda _: next(answers))
    assert driver.steps[1].until == 2.0


# -- what is visible of it (H-55)


@pytest.mark.spec("H-55")
def test_the_failure_share_is_reported_once_enough_attempts_failed(
    pair_of: Callable[..., Driver],
) -> None:
    driver = pair_of(interval=60.0)
    for _ in range(4):
        driver.send(lambda _: driver.fail(after=1.0))
    assert driver.pair.conditions(driver.now)["orders"].failed_share == 0.0
    for answer in (driver.fail, driver.ok, driver.ok, driver.ok, driver.ok, driver.ok):
        driver.send(lambda _, answer=answer: answer(after=1.0))  # type: ignore[misc]
    assert driver.pair.conditions(driver.now)["orders"].failed_share == 0.5
    assert driver.pair.conditions(driver.now + 600.0)["orders"].failed_share == 0.0


@pytest.mark.spec("H-55")
def test_a_return_keys_set_aside_and_a_silent_secondary_are_reported(pair_of: Callable[..., Driver]) -> None:
    pair = pair_of(interval=60.0, policy=HealthPolicy(returns_always=True)).pair
    pair.fail_over("orders", 0.0)
    assert not pair.conditions(0.0)["orders"].is_returning
    for second in (1.0, 2.0):
        pair.ping_finished("orders", None, second)
    told = pair.conditions(3.0)["orders"]
    assert (told.state, told.is_returning, told.keys_aside) == (EntityState.FAILED_OVER, True, 0)

    keys = FailingKeys()
    for _ in range(3):
        keys.succeeded("good", 1.0)
        keys.failed("bad", RuntimeError("no"), 1.0, is_first=True)
    keys.failed("unlucky", RuntimeError("no"), 1.0, is_first=True)
    assert (keys.count_aside(1.0 + ASIDE - 0.1), keys.count_aside(1.0 + ASIDE)) == (1, 0)

    assert not pair.is_secondary_silent(5.0)
    for backlog in (0, 1):
        pair._backlogs.secondary.failed(backlog, RuntimeError("gone"), 5.0)
    assert pair.is_secondary_silent(5.0)
    assert pair.is_secondary_silent(5.0 + EVIDENCE)
    assert not pair.is_secondary_silent(5.1 + EVIDENCE)  # it ends without a send too


@pytest.mark.spec("H-4", "P-4")
def test_an_entity_suspected_for_slowness_does_not_fail_over_for_lack_of_sends() -> None:
    health = entity(interval=5.0)
    health.send_succeeded(100.0, took=30.0)
    health.send_succeeded(100.1, took=30.0)
    assert health.state is EntityState.SUSPECT
    while (timer := health.next_timer()) is not None and timer < 130.0:
        health.handle_timer(timer)
        assert health.state is not EntityState.FAILED_OVER
    assert health.state is EntityState.HEALTHY
