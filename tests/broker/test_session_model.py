"""A queue with sessions compared with a model over random sequences of operations."""

from __future__ import annotations

import itertools

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sbpair.broker.entities import Namespace, QueueDescription, StoredMessage
from sbpair.broker.entities.stored_message import LockToken, MessageState
from sbpair.broker.errors import SessionLockedError, SessionLostError

NOON = 1_800_000_000_000
MINUTE = 60_000
NAMES = st.sampled_from(["a", "b", "c"])


class Sessions(RuleBasedStateMachine):
    """The model: bodies by session in order of arrival, the holders of sessions and their messages."""

    def __init__(self):
        super().__init__()
        tokens = itertools.count(1)
        self.namespace = Namespace("contoso", new_token=lambda: LockToken(next(tokens).to_bytes(16, "big")))
        asked = QueueDescription(requires_session=True, max_delivery_count=10**6)
        self.queue = self.namespace.create_queue("orders", asked, NOON)
        self.now = NOON
        self.bodies = itertools.count()
        self.waiting = {name: [] for name in "abc"}  # message numbers, sorted
        self.held = {}  # session: (lock, {number: token})
        self.deferred = {name: set() for name in "abc"}

    @rule(name=NAMES)
    def send(self, name):
        number = self.queue.enqueue(StoredMessage(bare=b"%d" % next(self.bodies), session_id=name), self.now)
        self.waiting[name].append(number)

    @rule()
    def ping(self):
        self.queue.enqueue(StoredMessage(bare=b"", session_id="a", is_ping=True), self.now)

    @rule(name=NAMES)
    def accept(self, name):
        try:
            lock = self.queue.sessions.accept(name, self.now)
        except SessionLockedError:
            assert name in self.held
        else:
            assert name not in self.held
            self.held[name] = (lock, {})

    @rule()
    def accept_next(self):
        lock = self.queue.sessions.accept(None, self.now)
        free = {name for name, numbers in self.waiting.items() if numbers and name not in self.held}
        assert (lock.session_id if lock else None) in (free or {None})
        if lock:
            self.held[lock.session_id] = (lock, {})

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def receive(self, data):
        name = data.draw(st.sampled_from(sorted(self.held)))
        lock, hands = self.held[name]
        message = self.queue.receive(self.now, lock)
        expected = self.waiting[name].pop(0) if self.waiting[name] else None
        assert (message.sequence_number if message else None) == expected
        if message:
            hands[message.sequence_number] = message.lock_token

    @precondition(lambda self: any(hands for _, hands in self.held.values()))
    @rule(data=st.data(), how=st.sampled_from(["complete", "abandon", "release", "defer"]))
    def settle(self, data, how):
        name = data.draw(st.sampled_from(sorted(name for name, (_, hands) in self.held.items() if hands)))
        hands = self.held[name][1]
        number = data.draw(st.sampled_from(sorted(hands)))
        getattr(self.queue, how)(hands.pop(number), self.now)
        was_deferred = number in self.deferred[name]
        if how == "complete":
            self.deferred[name].discard(number)
        elif how == "defer":
            self.deferred[name].add(number)
        elif not was_deferred:
            self.waiting[name] = sorted([*self.waiting[name], number])

    @precondition(
        lambda self: any(self.deferred[name] - set(hands) for name, (_, hands) in self.held.items())
    )
    @rule(data=st.data())
    def receive_deferred(self, data):
        candidates = [
            (name, number)
            for name, (_, hands) in sorted(self.held.items())
            for number in sorted(self.deferred[name] - set(hands))
        ]
        name, number = data.draw(st.sampled_from(candidates))
        lock, hands = self.held[name]
        (message,) = self.queue.receive_deferred([number], self.now, lock)
        hands[number] = message.lock_token

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def give_back(self, data):
        name = data.draw(st.sampled_from(sorted(self.held)))
        self.queue.sessions.release(self.held[name][0], self.now)
        self._back(name)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def renew(self, data):
        name = data.draw(st.sampled_from(sorted(self.held)))
        assert self.queue.sessions.renew(self.held[name][0], self.now) == self.now + MINUTE

    @rule(span=st.sampled_from([1000, MINUTE // 2, MINUTE]))
    def pass_time(self, span):
        self.now += span
        self.namespace.handle_timer(self.now)
        for name, (lock, _) in list(self.held.items()):
            assert lock.is_lost == (lock.locked_until <= self.now)
            if lock.is_lost:
                self._back(name)
                try:
                    self.queue.receive(self.now, lock)
                except SessionLostError:
                    continue
                raise AssertionError("a lost lock still receives")

    def _back(self, name):
        hands = self.held.pop(name)[1]
        back = [number for number in hands if number not in self.deferred[name]]
        self.waiting[name] = sorted([*self.waiting[name], *back])

    @invariant()
    def what_is_shown_is_what_is_there(self):
        for name in "abc":
            hands = set(self.held[name][1]) if name in self.held else set()
            expected = {*self.waiting[name], *hands, *self.deferred[name]}
            shown = self.queue.peek(1, 10**6, self.now, name)
            assert [message.sequence_number for message in shown] == sorted(expected)
            aside = {message.sequence_number for message in shown if message.is_deferred}
            assert aside == self.deferred[name]
            assert all(message.state is not MessageState.GONE for message in shown)
        assert self.queue.counts(self.now).deferred == sum(map(len, self.deferred.values()))

    @invariant()
    def a_session_is_listed_while_something_is_active_in_it(self):
        busy = {name for name, numbers in self.waiting.items() if numbers}
        busy |= {name for name, (_, hands) in self.held.items() if hands}
        assert set(self.queue.sessions.ids(0, 100)) == busy

    def teardown(self):
        """Check that nothing remains once everything is received."""
        for name in list(self.held):
            self.queue.sessions.release(self.held[name][0], self.now)
        for name in "abc":
            lock = self.queue.sessions.accept(name, self.now)
            while self.queue.receive_and_delete(self.now, lock):
                pass
            for number in self.deferred[name]:
                self.queue.receive_deferred([number], self.now, lock, delete=True)
            self.queue.sessions.release(lock, self.now)
        assert len(self.queue.sessions) == self.queue.size_in_bytes == self.queue.counts(self.now).total == 0
        assert self.namespace.next_timer() is None


TestSessions = Sessions.TestCase
TestSessions.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
