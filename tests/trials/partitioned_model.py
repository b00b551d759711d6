"""A queue, a partitioned queue, and a small model of both, given the same operations in random order.

    python -m tests.trials.partitioned_model [STEPS]        10000 by default; the suite runs fewer

Only the documented differences are allowed: a partitioned queue delivers the first message of *some* partition (Q-8),
its numbers carry the partition (Q-10), and a peek returns messages of one partition (Q-9).
"""

from __future__ import annotations

import itertools
import sys

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from sbpair.broker.entities import Namespace, QueueDescription, StoredMessage
from sbpair.broker.entities.stored_message import LockToken
from sbpair.broker.errors import LockLostError, NoSuchMessageError

NOON, MINUTE = 1_800_000_000_000, 60_000
KEYS = st.sampled_from(["a", "b", "c", "d", None])


class Side:
    """One entity and the model of it: where each message stands, by its number.

    What is held, set aside or scheduled is in the order in which it came to be so: the n-th of one side and
    of the other have the same history, though not the same number.
    """

    def __init__(self, namespace: Namespace, *, is_partitioned: bool) -> None:
        asked = QueueDescription(enable_partitioning=is_partitioned, max_delivery_count=10**6)
        self.queue = namespace.create_queue(f"partitioned-{is_partitioned}", asked, NOON)
        self.is_partitioned = is_partitioned
        self.waiting, self.scheduled, self.failed = set(), {}, {}
        self.held, self.deferred, self.dead, self.keys = {}, {}, 0, {}

    def sent(self, number, key):
        self.waiting.add(number)
        self.failed[number], self.keys[number] = 0, key

    def first(self, number):
        """Whether ``number`` may be handed over now."""
        rivals = [each for each in self.waiting if not self.is_partitioned or each >> 48 == number >> 48]
        return number == min(rivals)

    def back(self, number, *, has_failed):
        self.failed[number] += has_failed
        if number not in self.deferred:
            self.waiting.add(number)

    def pass_time(self, now):
        for number, (_token, until) in sorted(self.held.items(), key=lambda each: each[1][1]):
            if until <= now:
                del self.held[number]
                self.back(number, has_failed=True)
        for number, (at, key) in sorted(self.scheduled.items(), key=lambda each: each[1][0]):
            if at <= now:
                del self.scheduled[number]
                found = [m for m in everything(self.queue, now) if m.enqueued_sequence_number == number]
                self.sent(found[0].sequence_number, key)


def everything(queue, now):
    """All that peeking on and on shows."""
    start, shown = 1, []
    while page := queue.peek(start, 3, now):
        shown += page
        start = page[-1].sequence_number + 1
    return shown


def next_timer(queue):
    """When the next timer of a partition is due, None without any."""
    timers = (partition.next_timer() for partition in queue.partitions)
    return min((at for at in timers if at is not None), default=None)


class Both(RuleBasedStateMachine):
    """The same is done to both sides; the invariants say what may differ."""

    def __init__(self):
        super().__init__()
        tokens = itertools.count(1)
        self.namespace = Namespace("contoso", new_token=lambda: LockToken(next(tokens).to_bytes(16, "big")))
        self.sides = [Side(self.namespace, is_partitioned=each) for each in (False, True)]
        self.now = NOON
        self.ids = itertools.count()

    @rule(key=KEYS, count=st.integers(1, 3))
    def send(self, key, count):
        for side in self.sides:
            batch = [StoredMessage(bare=b"body", partition_key=key) for _ in range(count)]
            for number in side.queue.enqueue_all(batch, self.now):
                side.sent(number, key)

    @rule(key=KEYS, span=st.sampled_from([1_000, MINUTE]))
    def schedule(self, key, span):
        for side in self.sides:
            at = self.now + span
            number = side.queue.enqueue(
                StoredMessage(bare=b"body", partition_key=key, scheduled_for=at), self.now
            )
            side.scheduled[number] = (at, key)

    @rule(data=st.data())
    def cancel(self, data):
        index = data.draw(st.integers(0, 5))
        for side in self.sides:
            numbers = list(side.scheduled)[index : index + 2]
            if numbers:
                side.queue.cancel_scheduled(numbers, self.now)
                for number in numbers:
                    del side.scheduled[number]

    @rule()
    def receive(self):
        for side in self.sides:
            message = side.queue.receive(self.now)
            assert (message is None) == (not side.waiting)
            if message is not None:
                number = message.sequence_number
                assert side.first(number)
                assert message.delivery_count == side.failed[number]
                assert message.partition_key == side.keys[number]
                side.waiting.discard(number)
                side.held[number] = (message.lock_token, message.locked_until)

    @rule(index=st.integers(0, 5), how=st.sampled_from(["complete", "abandon", "release", "defer", "bury"]))
    def settle(self, index, how):
        for side in self.sides:
            for number in list(side.held)[index : index + 1]:
                token, _ = side.held.pop(number)
                if how == "bury":
                    side.queue.dead_letter(token, self.now, {})
                    side.dead += 1
                    side.deferred.pop(number, None)
                else:
                    getattr(side.queue, how)(token, self.now)
                if how == "complete":
                    side.deferred.pop(number, None)
                elif how == "defer":
                    side.deferred[number] = None
                elif how in ("abandon", "release"):
                    side.back(number, has_failed=how == "abandon")
                refused(LockLostError, lambda side=side, token=token: side.queue.complete(token, self.now))

    @rule(index=st.integers(0, 5))
    def renew(self, index):
        for side in self.sides:
            for number in list(side.held)[index : index + 1]:
                token, _ = side.held[number]
                side.held[number] = (token, side.queue.renew(token, self.now))

    @rule(index=st.integers(0, 3), count=st.integers(1, 3))
    def receive_deferred(self, index, count):
        for side in self.sides:
            numbers = [each for each in side.deferred if each not in side.held][index : index + count]
            if not numbers:
                continue
            lost = [*numbers, 7 << 48 | 9999]
            refused(
                NoSuchMessageError, lambda side=side, lost=lost: side.queue.receive_deferred(lost, self.now)
            )
            for message in side.queue.receive_deferred(numbers, self.now):
                side.held[message.sequence_number] = (message.lock_token, message.locked_until)

    @rule(span=st.sampled_from([1, 1_000, MINUTE // 2, MINUTE]))
    def pass_time(self, span):
        self.now += span
        self.namespace.handle_timer(self.now)
        for side in self.sides:
            side.pass_time(self.now)

    @invariant()
    def what_is_shown_is_what_is_there(self):
        for side in self.sides:
            there = {*side.waiting, *side.held, *side.deferred, *side.scheduled}
            shown = [message.sequence_number for message in everything(side.queue, self.now)]
            assert shown == sorted(there)

    @invariant()
    def both_count_the_same_and_as_the_model(self):
        counts = [side.queue.counts(self.now) for side in self.sides]
        assert counts[0] == counts[1]
        for side, count in zip(self.sides, counts, strict=True):
            active = len(side.waiting) + len(side.held.keys() - side.deferred.keys())
            assert (count.active, count.scheduled) == (active, len(side.scheduled))
            assert (count.deferred, count.dead_letter) == (len(side.deferred), side.dead)

    @invariant()
    def both_wait_for_the_same_instant(self):
        one, other = (next_timer(side.queue) for side in self.sides)
        assert one == other


def refused(error, call):
    try:
        call()
    except error:
        return
    raise AssertionError(f"{error.__name__} was not raised")


if __name__ == "__main__":
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    length = min(steps, 100)
    run_state_machine_as_test(
        Both, settings=settings(max_examples=steps // length, stateful_step_count=length, deadline=None)
    )
    print(f"{steps // length * length} steps at most: no difference but the documented ones")
