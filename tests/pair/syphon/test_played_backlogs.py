"""Peeking, redriving and purging with a played peer."""

from __future__ import annotations

import asyncio
import logging
from contextlib import aclosing

import pytest

from sbpair.pair.amqp.events import MessageReceived
from sbpair.pair.amqp.message import DataBody, Message, Properties, ValueBody
from sbpair.pair.amqp.types import Symbol, Timestamp
from sbpair.pair.client.errors import LinkRefusedError
from sbpair.pair.envelope.aliases import PATH
from sbpair.pair.syphon.watch.claims import MAX_TRIED, ParkedWalk, parked_paths
from sbpair.pair.syphon.watch.deadletters import _Rounds
from sbpair.pair.syphon.watch.peeking import (
    STRANDED_EVERY,
    StrandedBacklogs,
)
from tests.pair.client.played import Played, status, turns
from tests.pair.syphon.scripted import driven, now

pytestmark = pytest.mark.spec("R-66")


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


@pytest.mark.spec("R-119")
async def test_a_search_sees_every_parked_message_once_and_then_old_or_new_ones(played: Played) -> None:
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
async def test_paths_beyond_the_memory_of_a_search_are_found_again(played: Played) -> None:
    walk = ParkedWalk()
    holding(played, [message(number, **{PATH: f"invented-{number}"}) for number in range(1, MAX_TRIED + 2)])
    for _ in range(2):
        async with aclosing(parked_paths(played.connection, ["b"], walk)) as paths:
            assert {path async for path in paths} >= {"invented-1", f"invented-{MAX_TRIED + 1}"}
    assert len(walk.tried) == MAX_TRIED


@pytest.mark.spec("R-119")
async def test_a_path_forgotten_during_a_backlog_is_found_again(played: Played) -> None:
    walk = ParkedWalk()
    last = MAX_TRIED + 200
    holding(played, [message(number, **{PATH: f"invented-{number}"}) for number in range(1, last)])
    for _ in range(2):
        async with aclosing(parked_paths(played.connection, ["b"], walk)) as paths:
            assert {path async for path in paths} >= {f"invented-{number}" for number in range(1, last)}


@pytest.mark.spec("R-191")
async def test_a_drained_backlog_beyond_the_count_is_soon_known_to_be_empty_or_gone(
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
async def test_an_unpeekable_backlog_beyond_the_count_is_not_taken_for_missing(
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


async def test_messages_redelivered_after_their_lock_expired_are_kept_and_not_processed_twice() -> None:
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
async def test_kept_locks_are_renewed_at_a_third_of_their_time_and_a_lost_one_is_forgotten(
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
