"""A landing link over played senders on a driven clock: trials, transactions and plain sends."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from sbpair.pair.amqp.performatives import (
    ACCEPTED,
    Condition,
    DeliveryState,
    Rejected,
    Released,
    TransactionalState,
)
from sbpair.pair.client.errors import ClientError, ConnectionLostError, LinkRefusedError, RolledBackError
from sbpair.pair.envelope.restore import EXPIRED, Forward, Poison
from sbpair.pair.syphon.forward.in_flight import InFlightMessage
from sbpair.pair.syphon.land.landing_link import STALE_AFTER, TRIED_FOR, LandingLink
from tests.pair.syphon.played_landing import (
    FULL,
    NOT_ALLOWED,
    TOO_LARGE,
    PlayedController,
    PlayedSender,
    named,
)
from tests.pair.syphon.scripted import Scene, driven, now, turns

pytestmark = pytest.mark.spec("R-66", "C-2")


class Landed:
    """A landing link between played senders."""

    def __init__(self, *, transactions: bool = True, max_message_size: int | None = None) -> None:
        self.log: list[Any] = []
        self.scene = Scene()
        self.controller = PlayedController(self.log)
        self.plain = PlayedSender(self.log, "plain", max_message_size=max_message_size)
        self.via = PlayedSender(self.log, "via") if transactions else None
        self.link = LandingLink(self.plain, self.via, self.controller)  # type: ignore[arg-type]
        self.answers: list[tuple[int, DeliveryState | None]] = []
        self.moves: list[int] = []
        self.link.on_progress = lambda: self.moves.append(self.link.progress)

    def send(self, *numbers: int, payload: str = "p") -> list[InFlightMessage]:
        messages = [self.scene.message(number) for number in numbers]
        for message in messages:
            message.payload = named(f"{payload}{message.delivery_id}")
            message.destination = self  # type: ignore[assignment]
            self.link.transfer(message)
        return messages

    def answered(self, message: InFlightMessage, state: DeliveryState | None) -> None:
        self.answers.append((message.delivery_id, state))

    def skipped(self, message: InFlightMessage) -> None:
        self.answers.append((message.delivery_id, Released()))

    def told(self) -> list[str]:
        return [entry[0] for entry in self.scene.told]


@driven
async def test_a_trial_is_rolled_back_and_the_batch_is_sent_via_the_backlog_and_committed() -> None:
    landed = Landed()
    messages = landed.send(1, 2)
    assert (landed.link.in_flight, landed.link.is_open) == (2, True)
    await turns(20)
    assert landed.log == [
        ("plain", "p1", b"t1"),
        ("roll back", b"t1"),
        ("via", "p1", b"t2"),
        ("via", "p2", b"t2"),
        ("commit", b"t2"),
    ]
    assert landed.scene.told == [("reported", 1), ("reported", 2), ("completed in", [1, 2], b"t2")]
    assert landed.answers == [(1, ACCEPTED), (2, ACCEPTED)]
    assert [each.is_settled for each in messages] == [True, True]
    assert landed.link.in_flight == 0
    assert landed.moves == [1]


@driven
async def test_answers_on_either_link_are_progress() -> None:
    landed = Landed()
    assert landed.via is not None
    for sender in (landed.plain, landed.via):
        assert sender.on_progress is not None
        sender.on_progress()
    assert landed.moves == [1, 2]


@driven
async def test_a_refusing_entity_is_not_retried_within_a_second() -> None:
    landed = Landed()
    landed.send(1)
    await turns(20)
    await asyncio.sleep(TRIED_FOR - 0.01)
    landed.send(2)
    await turns(20)
    assert [entry[0] for entry in landed.log].count("plain") == 1
    await asyncio.sleep(0.02)
    landed.send(3)
    await turns(20)
    assert [entry[0] for entry in landed.log].count("plain") == 2
    assert len(landed.answers) == 3


@driven
async def test_a_transaction_has_a_hundred_messages_and_four_run_at_a_time() -> None:
    landed = Landed()
    assert landed.link.credit == 400
    landed.send(*range(1, 451))
    assert landed.link.credit == -50
    await turns(1)
    assert (len(landed.link.unanswered_messages()), landed.link.in_flight, landed.link.credit) == (
        400,
        450,
        -50,
    )
    assert [each.delivery_id for each in landed.link.take_waiting()] == list(range(401, 451))
    await turns(60)
    assert sorted(number for number, _ in landed.answers) == list(range(1, 401))
    assert landed.link.credit == 400
    assert [len(entry[1]) for entry in landed.scene.told if entry[0] == "completed in"] == [100] * 4


@driven
async def test_waiting_messages_follow_the_earlier_transactions() -> None:
    landed = Landed()
    landed.send(*range(1, 421))
    await turns(80)
    assert sorted(number for number, _ in landed.answers) == list(range(1, 421))


@pytest.mark.parametrize("state", [FULL, None])
@driven
async def test_a_busy_trial_holds_all_messages(state: DeliveryState | None) -> None:
    landed = Landed()
    landed.plain.outcomes = [state]
    landed.send(1, 2)
    await turns(20)
    assert landed.log == [("plain", "p1", b"t1"), ("roll back", b"t1")]
    assert landed.answers == [(1, state or Rejected()), (2, state or Rejected())]
    landed.send(3)  # tried again at once: the last trial failed
    await turns(20)
    assert landed.log[2][:2] == ("plain", "p3")
    assert landed.answers[2:] == [(3, ACCEPTED)]


@driven
async def test_a_trial_that_finally_refuses_its_message_continues_with_the_others() -> None:
    landed = Landed()
    landed.plain.outcomes = [TOO_LARGE]
    landed.send(1, 2, 3)
    await turns(40)
    assert landed.answers == [(1, TOO_LARGE), (2, ACCEPTED), (3, ACCEPTED)]
    assert [entry[1] for entry in landed.log if entry[0] == "via"] == ["p2", "p3"]


@driven
async def test_a_disallowed_trial_sends_the_batch_plainly() -> None:
    landed = Landed()
    landed.plain.outcomes = [NOT_ALLOWED]
    first, _ = landed.send(1, 2)
    await turns(20)
    assert [each.delivery_id for each in landed.plain.plain] == [1, 2]
    assert landed.answers == []
    landed.plain.answer()
    assert (landed.answers, first.is_settled) == ([(1, ACCEPTED)], False)


@driven
async def test_a_message_larger_than_the_entity_takes_is_sent_plainly() -> None:
    landed = Landed(max_message_size=len(named("p1")) + 120)
    landed.send(1)
    landed.send(2, payload="larger" * 40)
    landed.send(3)
    await turns(20)
    assert [each.delivery_id for each in landed.plain.plain] == [2]
    assert landed.answers == [(1, ACCEPTED), (3, ACCEPTED)]
    landed.send(4, payload="larger" * 40)
    await turns(20)
    assert [each.delivery_id for each in landed.plain.plain] == [2, 4]
    assert [entry[0] for entry in landed.log].count("commit") == 1


@pytest.mark.parametrize(
    ("error", "plain", "answers"),
    [
        (ConnectionLostError("gone"), [3], [(2, None)]),
        (LinkRefusedError("none", NOT_ALLOWED.error), [3, 2], []),
    ],
)
@driven
async def test_a_larger_message_is_sent_once_if_the_others_get_no_transaction(
    error: ClientError, plain: list[int], answers: list[tuple[int, DeliveryState | None]]
) -> None:
    landed = Landed(max_message_size=len(named("p1")) + 120)
    landed.send(1)
    await turns(20)
    assert landed.answers == [(1, ACCEPTED)]
    landed.controller.fails["declare"] = error
    small, large = landed.send(2), landed.send(3, payload="larger" * 40)
    await turns(20)
    assert [each.delivery_id for each in landed.plain.plain] == plain
    assert landed.answers[1:] == answers
    assert landed.link.in_flight == len(plain)
    assert [each.is_settled for each in (*small, *large)] == [False, False]


@pytest.mark.parametrize("fails", ["first", "second"])
@driven
async def test_a_larger_message_that_is_sent_again_belongs_to_its_second_batch(fails: str) -> None:
    landed = Landed(max_message_size=len(named("p1")) + 120)
    landed.send(1)
    await turns(20)
    declared: list[asyncio.Future[bytes]] = []

    async def declare() -> bytes:
        declared.append(asyncio.get_running_loop().create_future())
        return await declared[-1]

    landed.controller.declare = declare  # type: ignore[method-assign]
    landed.send(2)
    (large,) = landed.send(3, payload="larger" * 40)
    await turns(20)
    landed.answered(landed.plain.plain.pop(), FULL)
    await asyncio.sleep(TRIED_FOR)
    landed.link.transfer(large)
    await turns(20)
    first, second = declared
    if fails == "first":
        first.set_exception(ConnectionLostError("gone"))
    else:
        first.set_result(b"t8")
        await turns(20)
        second.set_exception(ConnectionLostError("gone"))
    await turns(20)
    ends = [(2, None)] if fails == "first" else [(2, ACCEPTED), (3, None)]
    assert landed.answers == [(1, ACCEPTED), (3, FULL), *ends]
    assert landed.link.in_flight == (1 if fails == "first" else 0)
    second.cancel()
    await turns(20)


@driven
async def test_a_message_the_backlog_refuses_is_answered_and_the_rest_is_sent_again() -> None:
    landed = Landed()
    assert landed.via is not None
    landed.via.outcomes = [
        TransactionalState(b"t2", ACCEPTED),
        TOO_LARGE,
        TransactionalState(b"t2", ACCEPTED),
    ]
    landed.send(1, 2, 3)
    await turns(60)
    assert landed.answers == [(2, TOO_LARGE), (1, ACCEPTED), (3, ACCEPTED)]
    assert [entry for entry in landed.log if entry[0] == "roll back"] == [
        ("roll back", b"t1"), ("roll back", b"t2"),
    ]  # fmt: skip


@driven
async def test_a_full_backlog_holds_the_whole_batch() -> None:
    landed = Landed()
    assert landed.via is not None
    landed.via.outcomes = [FULL]
    landed.send(1, 2)
    await turns(20)
    assert landed.answers == [(1, FULL), (2, FULL)]
    assert ("roll back", b"t2") in landed.log


@driven
async def test_after_a_partitioned_backlog_was_found_messages_are_sent_without_transactions() -> None:
    landed = Landed()
    assert landed.via is not None
    landed.via.outcomes = [NOT_ALLOWED]
    landed.send(1)
    await turns(20)
    landed.send(2)
    assert [each.delivery_id for each in landed.plain.plain] == [1, 2]
    assert landed.link.credit == 7
    assert landed.link.in_flight == 2


@driven
async def test_without_transactions_messages_are_sent_plainly() -> None:
    landed = Landed()
    landed.controller.fails["declare"] = LinkRefusedError("none", NOT_ALLOWED.error)
    landed.send(1)
    await turns(20)
    landed.send(2)
    assert [each.delivery_id for each in landed.plain.plain] == [1, 2]
    without = Landed(transactions=False)
    without.send(3)
    assert [each.delivery_id for each in without.link.unanswered_messages()] == [3]
    assert (without.link.credit, without.link.is_open) == (7, True)


@pytest.mark.parametrize("refused", ["declaring", "sending"])
@driven
async def test_the_unused_via_link_of_a_backlog_without_transactions_ends_with_the_other(
    refused: str,
) -> None:
    landed, other = Landed(), Landed()
    for each in (landed, other):
        assert each.via is not None
        if refused == "declaring":
            each.controller.fails["declare"] = LinkRefusedError("none", NOT_ALLOWED.error)
        else:
            each.via.outcomes = [NOT_ALLOWED]
        each.send(1)
        await turns(20)
        assert [message.delivery_id for message in each.plain.plain] == [1]
    assert landed.via is not None
    landed.via.detached.set_result(Condition("amqp:link:detach-forced", "idle"))
    await turns(3)
    assert (landed.plain.let_go_at, landed.link.is_open) == (None, True)
    assert other.via is not None
    other.plain.detached.set_result(None)
    await turns(3)
    assert other.via.let_go_at == 0.0


@pytest.mark.parametrize(
    ("error", "state"),
    [
        (ConnectionLostError("gone"), None),
        (RolledBackError("no", Condition("amqp:internal-error")), Rejected(Condition("amqp:internal-error"))),
    ],
)
@driven
async def test_an_undeclarable_transaction_holds_its_messages(
    error: ClientError, state: DeliveryState | None
) -> None:
    landed = Landed()
    landed.controller.fails["declare"] = error
    landed.send(1, 2)
    await turns(20)
    assert landed.answers == [(1, state), (2, state)]
    assert landed.link.in_flight == 0


@driven
async def test_a_failed_send_rolls_the_transaction_back() -> None:
    landed = Landed()
    assert landed.via is not None
    landed.via.outcomes = [ConnectionLostError("gone")]
    landed.send(1)
    await turns(20)
    assert landed.log[-1] == ("roll back", b"t2")
    assert landed.answers == [(1, None)]


@driven
async def test_a_failed_commit_abandons_the_locks() -> None:
    landed = Landed()
    landed.controller.fails["commit"] = ConnectionLostError("gone")
    landed.send(1, 2)
    await turns(20)
    assert landed.scene.told[-1] == ("given up", [1, 2])
    assert (landed.answers, landed.link.in_flight) == ([(1, Released()), (2, Released())], 0)


@driven
async def test_a_lost_lock_rolls_the_transaction_back_and_abandons_the_locks() -> None:
    landed = Landed()

    async def lost(messages: Sequence[InFlightMessage], txn_id: bytes) -> bool:
        return False

    landed.scene.complete_in = lost  # type: ignore[method-assign]
    landed.send(1)
    await turns(20)
    assert landed.log[-1] == ("roll back", b"t2")
    assert landed.scene.told[-1] == ("given up", [1])
    assert landed.answers == [(1, Released())]


@driven
async def test_the_end_of_one_link_ends_the_other_and_waiting_messages_have_no_outcome() -> None:
    landed = Landed()
    assert landed.via is not None
    landed.send(1, 2)
    landed.plain.detached.set_result(Condition("amqp:link:detach-forced"))
    await turns(3)
    assert landed.via.let_go_at == 0.0
    assert landed.answers == [(1, None), (2, None)]
    assert not landed.link.is_open
    other = Landed()
    assert other.via is not None
    other.via.detached.set_result(None)
    assert not other.link.is_open
    await turns(3)
    assert other.plain.let_go_at == 0.0
    third = Landed()
    third.link.let_go()
    assert third.plain.let_go_at == 0.0


@driven
async def test_messages_requeued_after_the_link_ended_have_no_outcome() -> None:
    landed = Landed()
    landed.plain.outcomes = [TOO_LARGE]

    async def roll_back(txn_id: bytes) -> None:
        landed.plain.detached.set_result(Condition("amqp:link:detach-forced"))
        await turns(3)

    landed.controller.roll_back = roll_back  # type: ignore[method-assign]
    landed.send(1, 2, 3)
    await turns(20)
    assert landed.answers == [(1, TOO_LARGE), (2, None), (3, None)]
    assert landed.link.in_flight == 0


@driven
async def test_a_message_with_a_doubtful_lock_is_skipped() -> None:
    landed = Landed()
    (message,) = landed.send(1)
    message.lock_ends = 0.0
    landed.send(2)
    await turns(20)
    assert landed.scene.told_of("doubtful") == [1]
    assert (2, ACCEPTED) in landed.answers
    assert [entry[1] for entry in landed.log if entry[0] == "via"] == ["p2"]


@driven
async def test_progress_of_the_plain_link_is_reported() -> None:
    landed = Landed()
    assert landed.plain.on_progress is not None
    landed.plain.on_progress()
    assert landed.moves == [1]
    landed.link.on_progress = None
    landed.plain.on_progress()
    assert landed.link.progress == 2


def with_deadline(message: InFlightMessage) -> None:
    """Restore it with a payload that tells when it was restored."""
    message.restored_at = now()
    message.restore_again = lambda: Forward("orders", named(f"at {now():g} s"), None, has_deadline=True)


@pytest.mark.spec("G-15")
@driven
async def test_after_a_long_trial_a_message_is_sent_with_its_remaining_time() -> None:
    landed = Landed()
    landed.plain.takes = [42.0]
    (message,) = landed.send(1)
    with_deadline(message)
    await asyncio.sleep(43.0)
    assert landed.log[2:] == [("via", "at 42 s", b"t2"), ("commit", b"t2")]
    assert landed.answers == [(1, ACCEPTED)]


@pytest.mark.spec("G-15")
@driven
async def test_a_message_that_expires_during_a_trial_is_dead_lettered_and_not_sent() -> None:
    landed = Landed()
    landed.plain.takes = [42.0]
    late, other = landed.send(1, 2)
    late.restored_at, late.restore_again = now(), lambda: Poison(EXPIRED, "its time is over")
    await asyncio.sleep(43.0)
    assert landed.scene.told_of("poisoned") == [1]
    assert [entry[1] for entry in landed.log if entry[0] == "via"] == ["p2"]
    assert (landed.link.in_flight, other.is_settled) == (0, True)


@pytest.mark.spec("G-15")
@driven
async def test_a_slow_transaction_is_rolled_back_and_messages_with_a_deadline_go_without_one() -> None:
    landed = Landed()
    assert landed.via is not None
    landed.via.takes = [STALE_AFTER, 0.0, 0.0]
    timed, other = landed.send(1, 2)
    with_deadline(timed)
    await asyncio.sleep(STALE_AFTER + 1.0)
    assert landed.log[2:5] == [("via", "p1", b"t2"), ("via", "p2", b"t2"), ("roll back", b"t2")]
    assert [entry for entry in landed.log if entry[0] == "commit"] == [("commit", b"t4")]
    assert (landed.answers, landed.plain.plain) == ([(2, ACCEPTED)], [timed])
    assert (timed.is_settled, other.is_settled) == (False, True)
    landed.plain.answer()
    assert (landed.answers[1:], landed.link.in_flight) == ([(1, ACCEPTED)], 0)


@pytest.mark.spec("G-15")
@driven
async def test_a_slow_transaction_without_deadlines_is_committed() -> None:
    landed = Landed()
    assert landed.via is not None
    landed.via.takes = [STALE_AFTER]
    landed.send(1)
    await asyncio.sleep(STALE_AFTER + 1.0)
    assert (landed.answers, landed.log[-1]) == ([(1, ACCEPTED)], ("commit", b"t2"))


@pytest.mark.spec("G-15")
@driven
async def test_a_slow_completion_in_a_transaction_releases_messages_with_a_deadline(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    landed = Landed()

    async def slow(messages: Sequence[InFlightMessage], txn_id: bytes) -> bool:
        await asyncio.sleep(STALE_AFTER)
        return True

    monkeypatch.setattr(landed.scene, "complete_in", slow)
    (message,) = landed.send(1)
    with_deadline(message)
    await asyncio.sleep(STALE_AFTER + 1.0)
    assert landed.log[-1] == ("roll back", b"t2")
    assert landed.scene.told[-1] == ("given up", [1])
    assert landed.link.in_flight == 0
