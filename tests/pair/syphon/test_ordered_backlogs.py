"""The syphon forwards ordered sessions one message at a time, against the real broker."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from dataclasses import replace

import pytest

from sbpair.broker.faults import Delay, RejectWith
from sbpair.pair.amqp.message import Message
from sbpair.pair.envelope.names import ordered_backlog_name
from sbpair.pair.envelope.ordering import place_of
from sbpair.pair.syphon.events import MessageSetAside, SessionHeld
from sbpair.pair.syphon.order.order_check import OrderCheck
from sbpair.pair.syphon.order.ordered_backlogs import Places, session_credit
from sbpair.pair.syphon.order.session_relay import MAX_IN_BATCH
from sbpair.syphon import Syphon, SyphonOptions
from tests.pair.syphon.pair import BACKLOGS, Pair, parked, put, running, start_syphon
from tests.waiting import PATIENCE, until

CLIENT = "0123456789abcdef/1795000000000/"


@pytest.fixture
def ordered(pair: Pair) -> Pair:
    """The pair, with ordered backlogs and a session queue on the primary."""
    pair.primary.create_queue("sessions", requires_session=True)
    for index in range(BACKLOGS):
        name = ordered_backlog_name("contoso", index)
        pair.secondary.create_queue(name, requires_session=True, max_delivery_count=2**31 - 1)
    return pair


def in_session(
    number: int, session: str = "s", path: object = "sessions", ordinal: int | None = None
) -> bytes:
    """Encode parked message ``number`` of an ordered session."""
    text = f"{CLIENT}{number if ordinal is None else ordinal}"
    message = Message.decode(parked(number, path, x_sbpair_order=text, x_ms_sessionid=session))
    assert message.properties is not None
    place = place_of("sessions", session, BACKLOGS)
    message = replace(message, properties=replace(message.properties, group_id=place.parked_id))
    return message.encode()


async def park(pair: Pair, payloads: list[bytes], session: str = "s") -> None:
    place = place_of("sessions", session, BACKLOGS)
    await put(pair.secondary, ordered_backlog_name("contoso", place.queue), payloads)


def syphon(pair: Pair, **options: object) -> Syphon:
    return pair.syphon(ordering="session", **options)


def arrived(pair: Pair, path: str = "sessions") -> list[str]:
    return pair.primary.message_ids(path)


def left(pair: Pair) -> int:
    names = [ordered_backlog_name("contoso", index) for index in range(BACKLOGS)]
    return sum(pair.secondary.counts(name).active for name in names)


def ids(count: int) -> list[str]:
    return [f"m{number}" for number in range(count)]


@pytest.mark.spec("O-6")
async def test_sessions_come_home_each_in_its_order_and_the_backlogs_are_empty(ordered: Pair) -> None:
    sessions = {f"s{index}": range(index * 150, index * 150 + 150) for index in range(5)}
    for session, numbers in sessions.items():
        await park(ordered, [in_session(number, session) for number in numbers], session)
    counters = await syphon(ordered).drain()
    assert (counters.received, counters.forwarded, counters.completed) == (750, 750, 750)
    assert (counters.pending, counters.lock_lost, counters.dead_lettered) == (0, 0, 0)
    by_session = defaultdict(list)
    for name in arrived(ordered):
        by_session[int(name[1:]) // 150].append(int(name[1:]))
    assert len(by_session) == 5
    assert all(found == sorted(found) for found in by_session.values())
    assert left(ordered) == 0


@pytest.mark.spec("O-6")
async def test_two_syphons_share_the_sessions_and_keep_their_order(ordered: Pair) -> None:
    for first, session in enumerate("abcdef"):
        numbers = range(100 * first, 100 * first + 60)
        await park(ordered, [in_session(number, session) for number in numbers], session)
    both = await asyncio.gather(syphon(ordered).drain(), syphon(ordered).drain())
    assert sum(counters.completed for counters in both) == 360
    assert left(ordered) == 0
    by_session = defaultdict(list)
    for name in arrived(ordered):
        by_session[int(name[1:]) // 100].append(int(name[1:]))
    assert [len(found) for found in by_session.values()] == [60] * 6
    assert all(found == sorted(found) for found in by_session.values())


@pytest.mark.spec("O-6")
async def test_a_session_stops_at_an_unaccepted_message_and_continues_behind_it(ordered: Pair) -> None:
    await park(ordered, [in_session(number) for number in range(20)])
    busy = RejectWith("com.microsoft:server-busy")
    with ordered.primary.fault("sessions", busy, operation="send", nth=6, times=3):
        counters = await syphon(ordered).drain()
    assert arrived(ordered) == ids(20)
    assert counters.completed == 20


@pytest.mark.spec("O-6")
async def test_poison_is_dead_lettered_and_the_next_message_of_its_session_continues(ordered: Pair) -> None:
    await park(ordered, [in_session(0), in_session(1, path="$management"), in_session(2)])
    counters = await syphon(ordered).drain()
    assert arrived(ordered) == ["m0", "m2"]
    assert counters.dead_lettered == 1
    assert [event.reason for event in ordered.said(MessageSetAside)] == ["InvalidPath"]


@pytest.mark.spec("B-23")
async def test_a_message_the_entity_refuses_is_dead_lettered_alone_and_its_batch_comes_home(
    ordered: Pair,
) -> None:
    ordered.primary.create_queue("parts", requires_session=True, enable_partitioning=True)
    payloads = [in_session(number, path="parts") for number in range(80)]
    refused = Message.decode(payloads[41])
    carried = refused.application_properties | {"x-sbpair-partitionkey": "of-another"}
    payloads[41] = replace(refused, application_properties=carried).encode()
    await park(ordered, payloads)
    counters = await syphon(ordered).drain()
    assert arrived(ordered, "parts") == [each for each in ids(80) if each != "m41"]
    assert (counters.completed, counters.dead_lettered) == (79, 1)
    (event,) = ordered.said(MessageSetAside)
    assert (event.message_id, event.path) == ("m41", "parts")


@pytest.mark.spec("B-23")
async def test_messages_of_a_session_come_home_in_few_transfers(ordered: Pair) -> None:
    await park(ordered, [in_session(number) for number in range(300)])
    with ordered.primary.fault("sessions", Delay(0.0), operation="send") as fault:
        await syphon(ordered).drain()
    assert arrived(ordered) == ids(300)
    assert fault.hits < 20


@pytest.mark.spec("O-6")
async def test_poison_can_block_its_session_for_manual_repair_while_others_continue(ordered: Pair) -> None:
    await park(ordered, [in_session(0), in_session(1, path="$management"), in_session(2)])
    await park(ordered, [in_session(number, "other") for number in range(10, 13)], "other")
    async with running(syphon(ordered, on_poison="hold")):
        await until(lambda: len(arrived(ordered)) == 4 and bool(ordered.said(SessionHeld)))
    assert sorted(arrived(ordered)) == ["m0", "m10", "m11", "m12"]
    assert left(ordered) == 2
    (held,) = ordered.said(SessionHeld)
    assert (held.reason, held.message_id) == ("InvalidPath", "m1")


@pytest.mark.spec("O-7")
async def test_a_message_behind_a_later_one_of_its_client_is_refused_with_an_event(ordered: Pair) -> None:
    own = syphon(ordered)
    await park(ordered, [in_session(0, ordinal=1), in_session(1, ordinal=3)])
    await own.drain()
    await park(ordered, [in_session(2, ordinal=2), in_session(3, ordinal=4)])
    await own.drain()
    assert arrived(ordered) == ["m0", "m1", "m3"]
    (event,) = ordered.said(MessageSetAside)
    assert (event.reason, event.message_id) == ("OutOfOrder", "m2")


@pytest.mark.spec("O-7")
def test_the_order_check_compares_only_messages_of_one_client_and_session() -> None:
    from sbpair.pair.envelope.ordering import OrderStamp, parse_stamp

    check, five = OrderCheck(), OrderStamp("a", 1, 5)
    check.completed("s", five)
    assert check.larger("s", OrderStamp("a", 1, 4)) == 5
    assert check.larger("s", five) is None
    for other in (OrderStamp("b", 1, 4), OrderStamp("a", 2, 4)):
        assert check.larger("s", other) is None
    assert check.larger("t", OrderStamp("a", 1, 4)) is None
    assert parse_stamp(str(five)) == five
    assert parse_stamp("5") is parse_stamp(5) is None


@pytest.mark.slow
@pytest.mark.spec("O-6", "B-23")
async def test_three_syphons_bring_each_session_home_in_order_through_three_kills(ordered: Pair) -> None:
    sessions, each, kills = 12, 500, 3
    for session in range(sessions):
        numbers = range(1000 * session, 1000 * session + each)
        await park(ordered, [in_session(number, f"s{session}") for number in numbers], f"s{session}")
    processes = [await start_syphon(ordered, "--ordering", "session") for _ in range(3)]
    for kill in range(kills):
        due = (kill + 1) * sessions * each // (kills + 2)
        await until(lambda due=due: ordered.primary.counts("sessions").active > due)
        processes[kill].kill()
        await processes[kill].communicate()
        processes[kill] = await start_syphon(ordered, "--ordering", "session")
    await until(lambda: left(ordered) == 0, within=2 * PATIENCE)  # the locks of the killed ones end first
    for process in processes:
        process.terminate()
        await process.communicate()
    home = [int(name[1:]) for name in arrived(ordered)]
    firsts = list(dict.fromkeys(home))
    for session in range(sessions):
        its_own = [number for number in firsts if number // 1000 == session]
        assert its_own == list(range(1000 * session, 1000 * session + each))
    assert len(home) - len(firsts) <= kills * sessions * MAX_IN_BATCH


async def test_a_missing_ordered_backlog_does_not_keep_the_others_from_draining(pair: Pair) -> None:
    counters = await syphon(pair).drain()
    assert counters.received == 0


def test_relays_request_as_many_messages_as_fit_their_share_of_memory() -> None:
    credit = session_credit(256 * 2**20, 64)
    assert [credit(size) for size in (0, 1024, 2**20, 2**30)] == [8, 100, 2, 1]


async def test_a_relay_waiting_for_its_destination_gives_its_slot_to_another() -> None:
    places, one, two = Places(1), object(), object()
    await places.take(one)
    waiting = asyncio.ensure_future(places.take(two))
    await asyncio.sleep(0)
    places.busy(one, False)
    await waiting
    places.busy(one, True)
    places.leave(one)
    places.leave(two)
    await places.take(one)


def test_a_syphon_without_ordering_reads_no_ordered_backlog(pair: Pair) -> None:
    assert len(pair.syphon().backlogs) == BACKLOGS
    assert [name for name in syphon(pair).backlogs if "ordered" in name] == [
        ordered_backlog_name("contoso", index) for index in range(BACKLOGS)
    ]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"ordering": "fifo"}, "ordering must be 'none' or 'session', not 'fifo'"),
        ({"on_poison": "drop"}, "on_poison must be 'dead-letter' or 'hold'"),
        ({"max_concurrent_sessions": 0}, "max_concurrent_sessions must be a whole number from 1 to 5000"),
    ],
)
def test_invalid_options_are_refused(options: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        SyphonOptions(**options)  # type: ignore[arg-type]
