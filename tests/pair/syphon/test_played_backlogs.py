"""Peeking, redriving and purging with a played peer."""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing
from datetime import timedelta

import pytest

from sbpair.pair.amqp.events import MessageReceived
from sbpair.pair.amqp.link import SenderLink
from sbpair.pair.amqp.message import DataBody, Message, Properties, ValueBody
from sbpair.pair.amqp.performatives import ACCEPTED, Condition, DeliveryState, Rejected, Released
from sbpair.pair.amqp.types import Symbol, Timestamp
from sbpair.pair.client.errors import ConnectionLostError, LinkRefusedError
from sbpair.pair.envelope.aliases import PATH
from sbpair.pair.syphon.events import BacklogCaughtUp, BacklogOverdue, BacklogStranded, SyphonEvent
from sbpair.pair.syphon.watch.claims import MAX_TRIED, ParkedWalk, parked_paths
from sbpair.pair.syphon.watch.deadletters import RedriveCounts, _Rounds, purge, redrive
from sbpair.pair.syphon.watch.peeking import (
    EMPTY,
    MAX_COUNTED,
    MAX_STRANDED,
    PAGE,
    STRANDED_EVERY,
    BacklogDepth,
    BacklogDepths,
    OverdueBacklogs,
    StrandedBacklogs,
    depth_of,
    has_more,
    oldest,
    peek_parked,
)
from tests.pair.client.played import Played, status, turns
from tests.pair.syphon.scripted import driven, now

pytestmark = pytest.mark.spec("R-66")

NODE = "b/$management"
DEAD = "b/$DeadLetterQueue"


def message(number: object, *, at: int = 1_000, state: object = None, **carried: object) -> bytes:
    annotations = {Symbol("x-opt-sequence-number"): number, Symbol("x-opt-enqueued-time"): Timestamp(at)}
    if state is not None:
        annotations[Symbol("x-opt-message-state")] = state
    properties = Properties(message_id=f"{number}")
    return Message(
        message_annotations=annotations,  # type: ignore[arg-type]
        properties=properties,
        application_properties=carried,  # type: ignore[arg-type]
        body=DataBody((b"x",)),
    ).encode()


def holding(played: Played, payloads: list[bytes], path: str = "b") -> list[tuple[int, int]]:
    """Let the peer store these messages; return the list to which its requests are added."""
    asked: list[tuple[int, int]] = []
    numbers = [Message.decode(each).message_annotations[Symbol("x-opt-sequence-number")] for each in payloads]

    def answer(request: Message) -> Message:
        assert isinstance(request.body, ValueBody)
        start, most = request.body.value["from-sequence-number"], request.body.value["message-count"]  # type: ignore[index]
        asked.append((start, most))
        page = [
            payload
            for number, payload in zip(numbers, payloads, strict=True)
            if not isinstance(number, int) or number >= start
        ]
        if not page:
            return status(204)
        return status(200, body={"messages": [{"message": payload} for payload in page[:most]]})

    played.peer.nodes[f"{path}/$management"] = answer
    return asked


# --- peeking


async def test_messages_are_peeked_page_by_page(played: Played) -> None:
    asked = holding(played, [message(number) for number in range(1, PAGE + 51)])
    seen = [each.sequence_number async for each in peek_parked(played.connection, "b")]
    assert seen == list(range(1, PAGE + 51))
    assert asked == [(1, PAGE), (PAGE + 1, PAGE), (PAGE + 51, PAGE)]
    assert len(played.peer.detached) == 2  # the node is closed


@pytest.mark.parametrize(("most", "asks"), [(0, []), (1, [(5, 1)]), (PAGE + 1, [(5, PAGE), (PAGE + 5, 1)])])
async def test_no_more_messages_are_peeked_than_asked_for(played: Played, most: int, asks: list) -> None:
    asked = holding(played, [message(number) for number in range(1, 2 * PAGE + 51)])
    seen = [each.sequence_number async for each in peek_parked(played.connection, "b", start=5, most=most)]
    assert seen == list(range(5, 5 + most))
    assert asked == asks


async def test_messages_without_a_number_end_a_peek(played: Played) -> None:
    asked = holding(played, [message("odd"), message("odder")])
    assert [each.message_id async for each in peek_parked(played.connection, "b")] == ["odd", "odder"]
    assert len(asked) == 1


async def test_a_search_for_parked_paths_that_is_left_early_leaves_no_link(played: Played) -> None:
    holding(played, [message(number, **{PATH: f"orders-{number}"}) for number in range(1, 4)])
    async with aclosing(parked_paths(played.connection, ["b"], ParkedWalk())) as paths:
        assert await anext(paths) == "orders-1"
    assert len(played.peer.detached) == 2


@pytest.mark.spec("R-119")
async def test_a_search_sees_every_parked_message_once_and_then_what_is_old_or_new(played: Played) -> None:
    def parked(*numbers: int) -> list[bytes]:
        return [message(number, **{PATH: f"orders-{number // 100}"}) for number in numbers]

    async def found() -> list[str]:
        async with aclosing(parked_paths(played.connection, ["b"], walk)) as paths:
            return [path async for path in paths]

    walk = ParkedWalk()
    asked = holding(played, parked(*range(1, 1001)))
    assert await found() == [f"orders-{number}" for number in range(11)]
    del asked[:]
    asked = holding(played, parked(*range(1, 1001), 1200))
    assert await found() == [f"orders-{number}" for number in (*range(11), 12)]
    assert len(asked) == 3  # the oldest, what is new, and that nothing follows
    holding(played, parked(2000))  # another backlog of this name
    assert (await found())[-1] == "orders-20"


@pytest.mark.spec("R-119")
async def test_more_paths_than_a_search_remembers_are_found_again(played: Played) -> None:
    walk = ParkedWalk()
    holding(played, [message(number, **{PATH: f"invented-{number}"}) for number in range(1, MAX_TRIED + 2)])
    for _ in range(2):
        async with aclosing(parked_paths(played.connection, ["b"], walk)) as paths:
            assert {path async for path in paths} >= {"invented-1", f"invented-{MAX_TRIED + 1}"}
    assert len(walk.tried) == MAX_TRIED


@pytest.mark.spec("R-119")
async def test_a_path_that_was_forgotten_in_the_middle_of_a_backlog_is_found_again(played: Played) -> None:
    walk = ParkedWalk()
    last = MAX_TRIED + 200
    holding(played, [message(number, **{PATH: f"invented-{number}"}) for number in range(1, last)])
    for _ in range(2):
        async with aclosing(parked_paths(played.connection, ["b"], walk)) as paths:
            assert {path async for path in paths} >= {f"invented-{number}" for number in range(1, last)}


async def test_the_oldest_message_and_the_depth_of_a_backlog_are_measured(played: Played) -> None:
    holding(played, [message(1, at=5_000), message(2, at=4_000)])
    assert await oldest(played.connection, "b") == 5_000
    depth = await depth_of(played.connection, "b")
    assert depth == BacklogDepth(2, 5_000)
    assert (depth.age(15.0), depth.age(1.0)) == (10.0, 0.0)
    holding(played, [])
    assert await oldest(played.connection, "b") is None
    assert await depth_of(played.connection, "b") == EMPTY
    assert EMPTY.age(99.0) == 0.0


async def test_no_more_than_a_thousand_messages_are_counted(played: Played) -> None:
    asked = holding(played, [message(number) for number in range(1, MAX_COUNTED + 51)])
    assert (await depth_of(played.connection, "b")).depth == MAX_COUNTED
    assert len(asked) == MAX_COUNTED // PAGE


async def test_a_backlog_that_does_not_exist_has_no_depth_and_one_that_cannot_be_read_is_an_error(
    played: Played,
) -> None:
    played.peer.nodes[NODE] = lambda request: status(404, "gone")
    assert await depth_of(played.connection, "b") is None
    played.peer.nodes[NODE] = lambda request: status(401, "no")
    with pytest.raises(LinkRefusedError, match="unauthorized"):
        await depth_of(played.connection, "b")


@pytest.mark.parametrize(
    ("messages", "is_there"),
    [
        ([], False),
        ([message(1)], True),
        ([message(1, state=0)], True),
        ([message(1, state=1), message(2, state=2)], False),
        ([message(number, state=1) for number in range(1, PAGE + 1)] + [message(PAGE + 1, state=0)], True),
    ],
    ids=["empty", "active", "active by state", "deferred and scheduled", "on the second page"],
)
async def test_only_active_messages_keep_a_drain_going(
    played: Played, messages: list[bytes], is_there: bool
) -> None:
    holding(played, messages)
    assert await has_more(played.connection, "b") is is_there
    assert len(played.peer.detached) == 2


@pytest.mark.parametrize(
    ("payload", "told"),
    [
        (b"\xff", "a message of b cannot be read: DecodeError"),
        (Message().encode(), "a message of b cannot be read: KeyError"),
        (message("odd"), "a message of b has no sequence number, or no state"),
        (message(1, state="odd"), "a message of b has no sequence number, or no state"),
    ],
    ids=["noise", "no number", "odd number", "odd state"],
)
async def test_a_message_whose_state_is_unknown_is_an_error(
    played: Played, payload: bytes, told: str
) -> None:
    played.peer.nodes[NODE] = lambda request: status(200, body={"messages": [{"message": payload}]})
    with pytest.raises(LinkRefusedError, match=told):
        await has_more(played.connection, "b")


def test_depths_are_shown_for_busy_backlogs_and_zero_for_the_others() -> None:
    depths = BacklogDepths(["a", "b", "c"], 10.0)
    assert depths.current(["a"]) == {"b": EMPTY, "c": EMPTY}
    depths._measured = {"a": BacklogDepth(3, 1), "b": BacklogDepth(4, 1)}
    assert depths.current(["a"]) == {"a": BacklogDepth(3, 1), "b": EMPTY, "c": EMPTY}


async def test_backlogs_beyond_the_count_are_checked_until_one_does_not_exist(played: Played) -> None:
    events: list[BacklogStranded] = []
    stranded = StrandedBacklogs("contoso", 2, events.append)  # type: ignore[arg-type]
    names = [f"contoso/x-servicebus-transfer/{index}" for index in range(2, 6)]
    for name, count in zip(names, (0, 1, 0), strict=False):
        holding(played, [message(1)] * count, name)
    played.peer.nodes[f"{names[3]}/$management"] = lambda request: status(404, "gone")
    assert await stranded.check(played.connection) == [names[1]]
    assert [(each.backlog, each.holds_messages) for each in events] == [
        (names[0], False),
        (names[1], True),
        (names[2], False),
    ]
    holding(played, [], names[1])
    holding(played, [message(1)], names[2])
    assert await stranded.check(played.connection) == [names[2]]
    assert [(each.backlog, each.holds_messages) for each in events[3:]] == [(names[2], True)]
    assert MAX_STRANDED > 4


@pytest.mark.spec("R-191")
async def test_a_backlog_beyond_the_count_that_holds_messages_is_soon_known_to_be_empty_or_gone(
    played: Played,
) -> None:
    stranded = StrandedBacklogs("contoso", 2, [].append)  # type: ignore[arg-type]
    first, second, third = (f"contoso/x-servicebus-transfer/{index}" for index in range(2, 5))
    assert stranded.pause == STRANDED_EVERY
    holding(played, [], first)
    holding(played, [message(1)], second)
    played.peer.nodes[f"{third}/$management"] = lambda request: status(404, "gone")
    await stranded.check(played.connection)
    assert stranded.pause == 60.0
    played.peer.nodes[f"{second}/$management"] = lambda request: status(404, "gone")
    await stranded.check(played.connection)
    assert (stranded.found, stranded.pause) == ({first: False}, STRANDED_EVERY)


@pytest.mark.spec("R-25")
async def test_a_backlog_beyond_the_count_that_cannot_be_peeked_is_not_taken_for_missing(
    played: Played, caplog: pytest.LogCaptureFixture
) -> None:
    stranded = StrandedBacklogs("contoso", 2, [].append)  # type: ignore[arg-type]
    node = "contoso/x-servicebus-transfer/2/$management"
    played.peer.nodes[node] = lambda request: status(500, "try again")
    with pytest.raises(LinkRefusedError, match="try again"):
        await stranded.check(played.connection)
    checking = asyncio.ensure_future(
        stranded.run(lambda: played.connection)
    )  # a running syphon checks again later
    await turns()
    assert not checking.done()
    checking.cancel()
    await asyncio.gather(checking, return_exceptions=True)
    assert not [each for each in caplog.records if each.levelno >= logging.WARNING]
    played.peer.nodes[node] = lambda request: status(401, "no Listen")
    assert await stranded.check(played.connection) == []
    (warning,) = (each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING)
    assert "contoso/x-servicebus-transfer/2" in warning
    assert "more than 2 backlogs" in warning


# --- dead letters


def deliver(played: Played, payloads: list[bytes]) -> list[int]:
    link = played.peer.links[f"from {DEAD}"]
    assert isinstance(link, SenderLink)
    numbers = [
        link.transfer(payload, tag=bytes([index]) * 16)
        for index, payload in enumerate(payloads)
        if link.credit > 0
    ]
    link.drained()
    played.peer.speak()
    return numbers


async def a_redrive(
    played: Played, payloads: list[bytes], outcome: DeliveryState = ACCEPTED, **settings: str
) -> RedriveCounts:
    """Redrive these dead letters, with this outcome for each copy sent."""
    holding(played, payloads, DEAD)
    counts, stop = RedriveCounts(), asyncio.Event()
    running = asyncio.ensure_future(redrive(played.connection, "b", counts, stop=stop, **settings))  # type: ignore[arg-type]
    delivered = False
    while not running.done():
        await asyncio.sleep(0)
        link = played.peer.links.get(f"from {DEAD}")
        if isinstance(link, SenderLink) and link.credit and not delivered:
            delivered = True
            deliver(played, payloads)
        for event in played.peer.received:
            event.link.dispose(event.delivery_id, event.delivery_id, outcome)
        if played.peer.received:
            played.peer.copies = getattr(played.peer, "copies", []) + [
                each.payload for each in played.peer.received
            ]  # type: ignore[attr-defined]
            played.peer.received.clear()
            played.peer.speak()
    await running
    await turns()
    return counts


def given_back(played: Played) -> int:
    """Count the dead letters that were released and therefore stay."""
    return sum(
        each.last - each.first + 1 for each in played.peer.dispositions if isinstance(each.state, Released)
    )


async def test_dead_letters_are_sent_again_and_removed(played: Played) -> None:
    payloads = [message(number, DeadLetterReason="Expired", mine=number) for number in (3, 4)]
    assert await a_redrive(played, payloads) == RedriveCounts(redriven=2)
    copies = [Message.decode(each) for each in played.peer.copies]  # type: ignore[attr-defined]
    assert [each.application_properties for each in copies] == [{"mine": 3}, {"mine": 4}]
    assert given_back(played) == 0


async def test_only_dead_letters_of_a_reason_are_sent_again_where_one_is_given(played: Played) -> None:
    payloads = [message(3, DeadLetterReason="Expired"), message(4, DeadLetterReason="Other"), message(5)]
    assert await a_redrive(played, payloads, reason="EXPIRED") == RedriveCounts(redriven=1, left=2)
    assert given_back(played) == 2


async def test_a_copy_that_the_backlog_refuses_stays_a_dead_letter(played: Played) -> None:
    refused = Rejected(Condition("amqp:link:message-size-exceeded", "too large"))
    counts = await a_redrive(played, [message(3)], refused)
    assert counts == RedriveCounts(refused=1, refusal="amqp:link:message-size-exceeded: too large")
    assert given_back(played) == 1


async def test_a_copy_that_is_not_taken_for_another_reason_stays_a_dead_letter(played: Played) -> None:
    assert await a_redrive(played, [message(3)], Released()) == RedriveCounts(refused=1, refusal="released")


async def test_without_dead_letters_no_link_is_opened(played: Played) -> None:
    assert await a_redrive(played, []) == RedriveCounts()
    assert f"from {DEAD}" not in played.peer.links
    assert "to b" not in played.peer.links


async def test_a_redrive_whose_link_is_lost_says_so_and_counts_nothing_as_locked_by_others(
    played: Played,
) -> None:
    holding(played, [message(3)], DEAD)
    counts = RedriveCounts()
    running = asyncio.ensure_future(redrive(played.connection, "b", counts, stop=asyncio.Event()))
    while not running.done():
        await asyncio.sleep(0)
        link = played.peer.links.get(f"from {DEAD}")
        if isinstance(link, SenderLink) and link.credit:
            break
    played.peer.links[f"from {DEAD}"].detach(Condition("a:b", "moved"))
    played.peer.speak()
    with pytest.raises(
        ConnectionLostError, match=r"^the link to b/\$DeadLetterQueue was detached: a:b: moved$"
    ):
        await running
    assert counts == RedriveCounts()


async def test_dead_letters_are_deleted_as_they_come(played: Played) -> None:
    deleted: list[bool] = []
    running = asyncio.ensure_future(
        purge(played.connection, "b", lambda: deleted.append(True), stop=asyncio.Event())
    )
    await turns()
    link = played.peer.links[f"from {DEAD}"]
    assert isinstance(link, SenderLink)
    assert link.remote_attach is not None
    assert (link.remote_attach.snd_settle_mode, link.remote_attach.rcv_settle_mode) == (1, 0)
    assert link.credit == 500
    for number in range(3):
        link.transfer(message(number), tag=b"t", settled=True)
    link.drained()
    played.peer.speak()
    await turns()
    assert len(deleted) == 3
    assert not running.done()
    assert link.credit == 500  # another round
    link.drained()
    played.peer.speak()
    await running
    assert len(deleted) == 3


async def test_a_purge_whose_link_is_lost_says_so(played: Played) -> None:
    running = asyncio.ensure_future(purge(played.connection, "b", lambda: None, stop=asyncio.Event()))
    await turns()
    played.peer.links[f"from {DEAD}"].detach(Condition("a:b", "moved"))
    played.peer.speak()
    with pytest.raises(
        ConnectionLostError, match=r"^the link to b/\$DeadLetterQueue was detached: a:b: moved$"
    ):
        await running


async def test_a_purge_that_is_stopped_begins_no_round(played: Played) -> None:
    stop = asyncio.Event()
    stop.set()
    await purge(played.connection, "b", lambda: None, stop=stop)
    assert played.peer.links[f"from {DEAD}"].credit == 0


class PlayedRounds:
    """A receiver with played rounds, each of which answers one drain."""

    def __init__(self, *rounds: list[bytes]) -> None:
        self.rounds = list(rounds)
        self.flows: list[int] = []
        self.arrived: list[MessageReceived] = []
        self._tags = 0

    async def drain(self, credit: int) -> None:
        self.flows.append(credit)
        for payload in self.rounds.pop(0) if self.rounds else []:
            self._tags += 1
            event = MessageReceived(None, self._tags, b"tag-%d" % self._tags, payload, False, 0, None)  # type: ignore[arg-type]
            self.arrived.append(event)


def rounds_of(receiver: PlayedRounds) -> _Rounds:
    rounds = _Rounds(None, "b")  # type: ignore[arg-type]
    rounds.receiver = receiver  # type: ignore[assignment]
    receiver.arrived = rounds._arrived
    return rounds


async def test_messages_are_taken_in_rounds_until_one_brings_nothing() -> None:
    receiver = PlayedRounds([message(1), message(2)], [message(3)])
    rounds = rounds_of(receiver)
    assert [number for number, _ in await rounds.take()] == [1, 2]
    assert [number for number, _ in await rounds.take()] == [3]
    assert await rounds.take() == []
    assert len(receiver.flows) == 3  # an empty round is the last


async def test_messages_that_come_again_since_their_lock_ended_are_kept_and_not_taken_twice() -> None:
    receiver = PlayedRounds([message(1)], [message(1)], [message(1), message(2)])
    rounds = rounds_of(receiver)
    ((number, _),) = await rounds.take()
    assert number == 1
    taken = await rounds.take()
    assert [number for number, _ in taken] == [1, 2]
    assert {tag: kept.delivery_id for tag, kept in rounds._kept.items()} == {
        b"tag-2": 2
    }  # from the round without new messages
    assert len(receiver.flows) == 3


@driven
async def test_kept_locks_are_renewed_when_a_third_is_left_and_a_lost_one_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[tuple[float, list[bytes]]] = []

    async def renewed(connection: object, path: str, tags: list[bytes]) -> list[float | None]:
        asked.append((now(), tags))
        return [None if tag == b"tag-2" else 1.0 for tag in tags]

    monkeypatch.setattr("sbpair.pair.client.locks.renew_locks", renewed)
    receiver = PlayedRounds([message(1), message(2)])
    rounds = rounds_of(receiver)
    keeping = asyncio.ensure_future(rounds.keep_locks())
    await asyncio.sleep(100.0)
    rounds.keep(event for _, event in await rounds.take())
    assert asked == []  # nothing was kept before
    await asyncio.sleep(90.5)
    keeping.cancel()
    assert [tags for _, tags in asked] == [[b"tag-1", b"tag-2"], [b"tag-1"]]
    assert [at for at, _ in asked] == pytest.approx([141.0, 182.0], abs=1.0)


def test_an_empty_backlog_is_never_overdue_however_short_the_threshold() -> None:
    events: list[SyphonEvent] = []
    ages = OverdueBacklogs(timedelta(milliseconds=500), events.append)
    ages.measured("b", 10_000, 10.6)
    assert [type(event) for event in events] == [BacklogOverdue]
    ages.measured("b", None, 11.0)
    ages.measured("c", None, 11.0)
    assert [type(event) for event in events] == [BacklogOverdue, BacklogCaughtUp]
