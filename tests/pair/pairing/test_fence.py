"""The fence, and a model of an ordered session: sender, fence, backlog, syphons and their late sends."""

from __future__ import annotations

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sbpair.pair.envelope.ordering import SessionPlace
from sbpair.pair.pairing.decide import fence as fence_module
from sbpair.pair.pairing.decide.fence import PEEK_EVERY, Fence, PeekRequest

A, B = SessionPlace(0, "a"), SessionPlace(0, "b")
ELSEWHERE = SessionPlace(1, "c")


def peek_of(fence: Fence, place: SessionPlace, now: float) -> PeekRequest:
    peek = fence.next_peek(place, now)
    assert peek is not None
    return peek


def known(count: int = 1) -> Fence:
    """Return a fence whose queues were all seen empty."""
    fence = Fence(count)
    for queue in range(count):
        fence.note_empty_peek(peek_of(fence, SessionPlace(queue, "x"), -100.0))
    assert fence.is_open
    return fence


def park(fence: Fence, place: SessionPlace) -> None:
    fence.park_began(place)
    fence.park_ended(place)


@pytest.mark.spec("O-4")
def test_a_fence_without_knowledge_blocks_every_session() -> None:
    fence = Fence(2)
    assert not fence.lets_pass(A)
    assert not fence.is_open


@pytest.mark.spec("O-4")
def test_an_empty_queue_opens_all_of_its_sessions_and_no_others() -> None:
    fence = Fence(2)
    assert fence.note_empty_peek(peek_of(fence, A, 0.0)) == 0
    assert fence.lets_pass(A)
    assert fence.lets_pass(B)
    assert not fence.lets_pass(ELSEWHERE)


@pytest.mark.spec("O-4")
def test_a_parked_message_fences_only_its_session() -> None:
    fence = known()
    park(fence, A)
    assert not fence.lets_pass(A)
    assert fence.lets_pass(B)
    assert not fence.is_open


@pytest.mark.spec("O-4")
def test_a_peek_proves_nothing_about_messages_parked_during_it() -> None:
    fence = known()
    park(fence, A)
    peek = peek_of(fence, A, 1.0)
    park(fence, A)
    assert fence.note_empty_peek(peek) == 0
    assert not fence.lets_pass(A)


@pytest.mark.spec("O-4")
def test_an_attempt_under_way_is_not_proved_to_have_left() -> None:
    fence = known()
    park(fence, B)
    fence.park_began(A)
    peek = peek_of(fence, B, 1.0)
    assert fence.note_empty_peek(peek) == 1
    assert fence.lets_pass(B)
    assert not fence.lets_pass(A)
    fence.park_ended(A)
    assert not fence.lets_pass(A)


@pytest.mark.spec("O-4")
def test_a_queue_and_each_of_its_sessions_are_asked_once_a_second() -> None:
    fence = known()
    park(fence, A)
    asked = [fence.next_peek(A, 1.0) for _ in range(3)]
    assert [None if each is None else each.parked_id for each in asked] == [None, "a", None]
    assert asked[0] is not None
    assert fence.next_peek(A, 1.0 + PEEK_EVERY / 2) is None
    again = fence.next_peek(A, 1.0 + PEEK_EVERY)
    assert again is not None
    assert again.parked_id is None


@pytest.mark.spec("O-4")
def test_a_session_seen_empty_passes_although_its_queue_is_unknown() -> None:
    fence = Fence(1)
    peek_of(fence, A, 0.0)  # of the queue: not empty
    assert fence.note_empty_peek(peek_of(fence, A, 0.0)) == 1
    assert fence.lets_pass(A)
    assert not fence.lets_pass(B)
    assert not fence.is_open


def test_a_fence_with_too_many_sessions_forgets_and_fences_them_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fence_module, "MAX_SESSIONS", 3)
    fence = known()
    fence.park_began(A)
    for number in range(9):
        park(fence, SessionPlace(0, str(number)))
    assert fence.fenced <= 4
    assert not any(fence.lets_pass(SessionPlace(0, str(number))) for number in range(20))
    fence.park_ended(A)
    fence.note_empty_peek(peek_of(fence, A, 9.0))
    assert fence.is_open


@pytest.mark.spec("R-102", "O-4")
@pytest.mark.parametrize(("is_of_queue", "is_remembered"), [(True, True), (False, True), (True, False)])
def test_a_peek_during_which_sessions_are_forgotten_proves_nothing(
    monkeypatch: pytest.MonkeyPatch, is_of_queue: bool, is_remembered: bool
) -> None:
    monkeypatch.setattr("sbpair.pair.pairing.decide.fence.MAX_SESSIONS", 2)
    fence = Fence(1)
    place, others = SessionPlace(0, "orders/a"), [SessionPlace(0, f"orders/{number}") for number in range(3)]
    peek = fence.next_peek(place, 0.0)
    if not is_of_queue:
        peek = fence.next_peek(place, 0.5)
    assert peek is not None
    assert (peek.parked_id is None) is is_of_queue
    fence.park_began(place)
    fence.park_ended(place)  # parked after the peek was answered
    for each in others:
        fence.park_began(each)
        fence.park_ended(each)
    if is_remembered:
        fence.next_peek(place, 0.7)  # the session is known again, and nothing of it
    fence.note_empty_peek(peek)
    assert not fence.lets_pass(place)
    assert not fence.is_open


def test_the_fence_of_a_forked_child_is_empty() -> None:
    fence = known()
    fence.park_began(A)
    fence.forget()
    fence.park_ended(A)
    assert not fence.lets_pass(A)
    assert not fence.lets_pass(B)


class Queue:
    """A session of an ordered backlog: its messages and the syphon that holds it."""

    def __init__(self) -> None:
        self.messages: list[int] = []
        self.holder: int | None = None


class OrderedSession(RuleBasedStateMachine):
    """One client and one session, two syphons, and a primary that goes down and up.

    Frames may be lost before or after they are stored, syphons may lose the session unnoticed and forward their
    messages later, a new client without state may replace the old one, and peeks may be answered late.
    """

    def __init__(self) -> None:
        super().__init__()
        self.fence = Fence(1)
        self.now = 0.0
        self.is_up = True
        self.next_number = 1
        self.primary: list[int] = []
        self.backlog: list[int] = []
        self.holder: int | None = None
        self.hands: dict[int, int] = {}  # by syphon, the message it is about to forward
        self.late: list[int] = []  # forwarded by a syphon that is gone, not stored yet
        self.peek: PeekRequest | None = None
        self.peek_answer: bool | None = None

    # -- the sender: one message at a time, the next only after the last is stored

    @rule(is_lost=st.booleans())
    def send(self, is_lost: bool) -> None:
        number = self.next_number
        if self.is_up and self.fence.lets_pass(A):
            self.primary.append(number)
            if is_lost:  # stored, but the answer is lost: sent again, to the backlog
                self._park(number)
        else:
            self._park(number)
        self.next_number += 1

    def _park(self, number: int, copies: int = 1) -> None:
        self.fence.park_began(A)
        self.backlog += [number] * copies
        self.fence.park_ended(A)

    @rule()
    def send_with_a_copy(self) -> None:
        """Parked twice: the first answer was lost."""
        if not (self.is_up and self.fence.lets_pass(A)):
            self._park(self.next_number, copies=2)
            self.next_number += 1

    @precondition(lambda self: self.peek is None)
    @rule(after=st.sampled_from((0.0, 0.5, 1.0)))
    def ask(self, after: float) -> None:
        self.now += after
        self.peek = self.fence.next_peek(A, self.now)
        self.peek_answer = None

    @precondition(lambda self: self.peek is not None and self.peek_answer is None)
    @rule()
    def the_queue_answers(self) -> None:
        self.peek_answer = not self.backlog

    @precondition(lambda self: self.peek_answer is not None)
    @rule()
    def the_answer_comes(self) -> None:
        assert self.peek is not None
        if self.peek_answer:
            self.fence.note_empty_peek(self.peek)
        self.peek = self.peek_answer = None

    @rule()
    def the_client_is_replaced(self) -> None:
        self.fence = Fence(1)
        self.peek = self.peek_answer = None

    # -- the environment

    @rule(is_up=st.booleans())
    def the_primary(self, is_up: bool) -> None:
        self.is_up = is_up

    # -- the syphons

    @rule(syphon=st.integers(0, 1))
    def accept(self, syphon: int) -> None:
        """Accept the session: the lock of the former holder has ended, whether or not it knows."""
        if self.backlog:
            self.holder = syphon
            self.hands[syphon] = self.backlog[0]

    @rule(syphon=st.integers(0, 1), is_told=st.booleans(), completes=st.booleans())
    def forward(self, syphon: int, is_told: bool, completes: bool) -> None:
        if syphon not in self.hands or not self.is_up:
            return
        number = self.hands.pop(syphon)
        self.primary.append(number)
        if is_told and completes and self.holder == syphon and self.backlog[:1] == [number]:
            self.backlog.pop(0)
            if self.backlog:
                self.hands[syphon] = self.backlog[0]

    @rule(syphon=st.integers(0, 1))
    def forward_late(self, syphon: int) -> None:
        """Store a message that a former syphon sent before its connection was lost."""
        if syphon in self.hands:
            self.late.append(self.hands.pop(syphon))

    @precondition(lambda self: self.late)
    @rule()
    def the_late_one_is_stored(self) -> None:
        self.primary.append(self.late.pop())

    @invariant()
    def the_first_of_each_number_stands_in_order(self) -> None:
        firsts = list(dict.fromkeys(self.primary))
        assert firsts == sorted(firsts), self.primary
        assert firsts == list(range(1, len(firsts) + 1)), self.primary


class WithoutFence(OrderedSession):
    """The same with a fence that is always open: the model must find inversions."""

    def __init__(self) -> None:
        super().__init__()
        self.fence.lets_pass = lambda place: True  # type: ignore[method-assign]


@pytest.mark.slow
@pytest.mark.spec("O-1", "O-4", "O-6")
def test_no_interleaving_of_the_model_reorders_a_session() -> None:
    from hypothesis.stateful import run_state_machine_as_test

    run_state_machine_as_test(
        OrderedSession, settings=settings(max_examples=150, stateful_step_count=30, deadline=None)
    )


@pytest.mark.slow
def test_the_model_finds_inversions_without_the_fence() -> None:
    from hypothesis.stateful import run_state_machine_as_test

    with pytest.raises(AssertionError):
        run_state_machine_as_test(
            WithoutFence,
            settings=settings(
                max_examples=150,
                stateful_step_count=30,
                deadline=None,
                phases=(Phase.generate,),  # one inversion is enough: no time goes into a smaller one
            ),
        )
