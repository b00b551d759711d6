"""The syphon forwards parked messages, against the real broker over loopback."""

from __future__ import annotations

import asyncio
import datetime as dt
import re
from dataclasses import replace
from uuid import UUID

import pytest

from sbpair.broker import Broker
from sbpair.pair.amqp.message import DataBody, Message, Properties
from sbpair.pair.envelope.inspect import message_id_of
from sbpair.pair.syphon.events import (
    BacklogDetached,
    BacklogMissing,
    BacklogsDrained,
    DestinationHeld,
    DestinationResumed,
    MessageSetAside,
    MessagesForwarded,
    SideRefused,
)
from sbpair.syphon import Syphon, SyphonOptions, SyphonState
from tests.pair.syphon.pair import BACKLOGS, Pair, message_id, parked, put, running, take
from tests.trials.three_syphons import trial
from tests.waiting import PATIENCE, until


@pytest.mark.spec("P-42", "P-15")
async def test_every_parked_message_arrives_in_its_queue_and_the_backlogs_are_empty(pair: Pair) -> None:
    paths = ["orders", "invoices"]
    for index in range(BACKLOGS):
        await pair.park([parked(n, paths[n % 2]) for n in range(index * 100, index * 100 + 100)], index)

    counters = await pair.syphon().drain()

    assert (counters.received, counters.forwarded, counters.completed) == (200, 200, 200)
    assert (counters.pending, counters.lock_lost, counters.dead_lettered) == (0, 0, 0)
    orders, invoices = await take(pair.primary, "orders", 100), await take(pair.primary, "invoices", 100)
    assert {message_id(m) for m in orders} == {f"m{n}" for n in range(0, 200, 2)}
    assert {message_id(m) for m in invoices} == {f"m{n}" for n in range(1, 200, 2)}
    assert pair.waiting() == 0
    assert pair.said(BacklogsDrained)


async def test_a_syphon_of_one_backlog_ignores_the_others(pair: Pair) -> None:
    for index in range(BACKLOGS):
        await pair.park([parked(index)], index)

    counters = await pair.syphon(only_backlogs=(1,)).drain()

    assert counters.completed == 1
    assert message_id(*await take(pair.primary, "orders", 1)) == "m1"
    assert pair.waiting() == 1
    assert not pair.said(BacklogsDrained)
    with pytest.raises(ValueError, match=f"only_backlogs must be a whole number from 0 to {BACKLOGS - 1}"):
        pair.syphon(only_backlogs=(BACKLOGS,))


async def test_the_messages_of_one_backlog_keep_their_order(pair: Pair) -> None:
    await pair.park([parked(n) for n in range(300)])

    await pair.syphon().drain()

    assert [message_id(m) for m in await take(pair.primary, "orders", 300)] == [f"m{n}" for n in range(300)]


@pytest.mark.spec("P-21")
async def test_a_restored_message_looks_as_if_it_had_never_been_parked(pair: Pair) -> None:
    bare = Message(application_properties={"n": 2**40}, body=DataBody((b"hello",)))
    await put(pair.primary, "orders", [bare.encode()])
    await pair.park(
        [Message(application_properties={"n": 2**40, "x-ms-path": "orders"}, body=bare.body).encode()]
    )

    await pair.syphon().drain()

    direct, detour = map(Message.decode, await take(pair.primary, "orders", 2))
    assert direct.application_properties == detour.application_properties == bare.application_properties
    assert direct.message_annotations.keys() == detour.message_annotations.keys()
    assert direct.header == detour.header
    assert direct.body == detour.body


@pytest.mark.spec("F-73", "F-74", "F-75", "G-21")
async def test_poison_is_dead_lettered_with_its_reason_and_the_rest_continues(pair: Pair) -> None:
    messages = [parked(n) for n in range(100)]
    messages[7] = parked(7, None)
    messages[8] = parked(8, "$management")
    messages[50] = parked(50, x_ms_timetolive="soon")

    await pair.park(messages)
    counters = await pair.syphon().drain()

    assert (counters.forwarded, counters.dead_lettered) == (97, 3)
    aside = [Message.decode(m) for m in await take(pair.secondary, f"{pair.backlog(0)}/$DeadLetterQueue", 3)]
    reasons = {
        str(m.application_properties["number"]): m.application_properties["DeadLetterReason"] for m in aside
    }
    assert reasons == {"7": "MissingPath", "8": "InvalidPath", "50": "InvalidAlias"}
    descriptions = [str(m.application_properties["DeadLetterErrorDescription"]) for m in aside]
    assert any("x-ms-timetolive" in text for text in descriptions)
    assert sorted(event.message_id for event in pair.said(MessageSetAside)) == ["m50", "m7", "m8"]


@pytest.mark.spec("F-77", "F-42")
async def test_a_message_for_a_missing_queue_is_dead_lettered_with_path_and_error(pair: Pair) -> None:
    await pair.park([parked(1, "nowhere"), parked(2), parked(3, "nowhere")])

    counters = await pair.syphon().drain()

    assert (counters.forwarded, counters.dead_lettered) == (1, 2)
    aside = Message.decode((await take(pair.secondary, f"{pair.backlog(0)}/$DeadLetterQueue", 2))[0])
    assert aside.application_properties["DeadLetterReason"] == "DestinationNotFound"
    description = str(aside.application_properties["DeadLetterErrorDescription"])
    assert "nowhere" in description
    assert "amqp:not-found" in description
    assert aside.application_properties["x-ms-path"] == "nowhere"  # so that it can be resubmitted


@pytest.mark.spec("F-61", "S-16")
async def test_a_message_outside_the_allow_list_is_dead_lettered(pair: Pair) -> None:
    await pair.park([parked(1, "orders"), parked(2, "invoices")])

    counters = await pair.syphon(allowed_destinations=("Orders",)).drain()

    assert (counters.forwarded, counters.dead_lettered) == (1, 1)
    assert pair.primary.counts("invoices").active == 0


@pytest.mark.spec("G-20", "F-44", "G-21")
async def test_a_busy_destination_settles_nothing_and_does_not_block_others(pair: Pair) -> None:
    from sbpair.broker.faults import RejectWith

    await pair.park([parked(n, ["orders", "invoices"][n % 2]) for n in range(40)])
    syphon = pair.syphon(retry_backoff_max=dt.timedelta(milliseconds=100))
    with pair.primary.fault("orders", RejectWith("com.microsoft:server-busy", "wait")):
        draining = asyncio.create_task(syphon.drain())
        await until(lambda: pair.primary.counts("invoices").active == 20 and bool(pair.said(DestinationHeld)))
        await until(lambda: syphon.counters.completed == 20)
        assert syphon.counters.dead_lettered == 0
        assert pair.waiting() == 20
        assert not draining.done()

    async with asyncio.timeout(PATIENCE):
        counters = await draining
    assert counters.forwarded == 40
    assert pair.said(DestinationResumed)
    assert len({message_id(m) for m in await take(pair.primary, "orders", 20)}) == 20


@pytest.mark.spec("G-20")
async def test_nothing_leaves_the_backlog_while_the_primary_does_not_answer(pair: Pair) -> None:
    from sbpair.broker.faults import Withhold

    await pair.park([parked(n) for n in range(10)])
    syphon = pair.syphon(stop_timeout=dt.timedelta(0))
    shutdown = asyncio.Event()
    with pair.primary.fault("orders", Withhold()):
        running = asyncio.create_task(syphon.run(shutdown))
        await until(lambda: syphon.counters.received == 10)
        await until(lambda: pair.primary.counts("orders").active == 10)
        assert (syphon.counters.forwarded, syphon.counters.completed) == (0, 0)
        assert pair.waiting() == 10
        shutdown.set()
        async with asyncio.timeout(PATIENCE):
            await running

    assert syphon.counters.released == 10
    await pair.syphon().drain()
    found = [message_id(m) for m in await take(pair.primary, "orders", 20)]
    assert sorted(found) == sorted(
        [f"m{n}" for n in range(10)] * 2
    )  # stored twice, once for each ambiguous send


@pytest.mark.spec("F-33")
@pytest.mark.parametrize("how", ["refuse", "reset"])
async def test_no_backlog_is_touched_while_the_primary_is_down_and_all_arrives_afterwards(
    pair: Pair, how: str
) -> None:
    await pair.park([parked(n) for n in range(20)])
    received = pair.secondary.operations.receives
    pair.primary.take_down(how)
    syphon = pair.syphon(retry_backoff_max=dt.timedelta(milliseconds=200))
    shutdown = asyncio.Event()
    running = asyncio.create_task(syphon.run(shutdown))
    await until(lambda: syphon.status.state is SyphonState.CONNECTING and syphon.status.reason is not None)
    assert pair.secondary.operations.receives == received

    pair.primary.bring_up()
    await until(lambda: syphon.counters.completed == 20)
    assert syphon.status.state is SyphonState.RUNNING
    shutdown.set()
    async with asyncio.timeout(PATIENCE):
        await running
    assert syphon.status.state is SyphonState.IDLE


async def test_a_primary_lost_during_a_drain_loses_nothing(pair: Pair) -> None:
    await pair.park([parked(n) for n in range(500)])
    syphon = pair.syphon(retry_backoff_max=dt.timedelta(milliseconds=200))
    draining = asyncio.create_task(syphon.drain())
    await until(lambda: syphon.counters.forwarded >= 100)
    pair.primary.take_down("reset")
    await until(lambda: syphon.status.state is SyphonState.CONNECTING)
    pair.primary.bring_up()
    async with asyncio.timeout(PATIENCE):
        counters = await draining

    arrived = pair.primary.counts("orders").active
    found = {message_id(m) for m in await take(pair.primary, "orders", arrived)}
    assert found == {f"m{n}" for n in range(500)}
    assert counters.received == 500  # the locks are kept meanwhile
    assert arrived <= 1000  # what had no answer yet was sent again


@pytest.mark.spec("F-46")
async def test_a_missing_backlog_is_logged_once_and_is_no_error(pair: Pair) -> None:
    pair.secondary.delete_queue(pair.backlog(1))
    await pair.park([parked(n) for n in range(5)])

    counters = await pair.syphon().drain()

    assert counters.completed == 5
    assert [event.backlog for event in pair.said(BacklogMissing)] == [pair.backlog(1)]


@pytest.mark.spec("F-46")
async def test_a_backlog_created_later_is_found(pair: Pair) -> None:
    pair.secondary.delete_queue(pair.backlog(0))
    syphon = pair.syphon(missing_backlog_interval=dt.timedelta(seconds=1))
    shutdown = asyncio.Event()
    running = asyncio.create_task(syphon.run(shutdown))
    await until(lambda: bool(pair.said(BacklogMissing)))
    pair.secondary.create_queue(pair.backlog(0))
    await pair.park([parked(1)])
    await until(lambda: syphon.counters.completed == 1)
    shutdown.set()
    await running


@pytest.mark.slow
@pytest.mark.spec("P-44", "F-65", "G-1", "G-2", "G-4")
async def test_three_concurrent_syphons_lose_nothing_and_make_no_duplicates() -> None:
    report = await trial(syphons=3, backlogs=10, messages=4000)
    assert report.is_right, report
    assert all(report.forwarded), "they did not share the work: it proves nothing"


@pytest.mark.spec("G-20", "G-21", "F-44")
async def test_a_destination_with_room_for_six_gets_six_and_the_rest_waits(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "sbpair.broker.entities.descriptions.MEGABYTE", 1
    )  # a queue then holds 1024 bytes, and the message that exceeds them
    pair.primary.create_queue("small")
    pair.secondary.delete_queue(pair.backlog(0))
    pair.secondary.create_queue(pair.backlog(0), max_size_in_megabytes=5120)
    await pair.park([parked(n, "small", bytes(90)) for n in range(14)])
    syphon = pair.syphon(retry_backoff_max=dt.timedelta(milliseconds=100))
    draining = asyncio.create_task(syphon.drain())
    arrived: list[str] = []
    for room in (6, 12, 14):
        held = len(pair.said(DestinationHeld))
        if room < 14:
            await until(lambda held=held: len(pair.said(DestinationHeld)) >= held + 3)  # it has tried again
        await until(lambda room=room: syphon.counters.completed == room)
        assert syphon.counters.forwarded == room
        assert (pair.primary.counts("small").active, pair.waiting(), pair.set_aside()) == (
            room - len(arrived),
            14 - room,
            0,
        )
        arrived += [message_id(m) for m in await take(pair.primary, "small", room - len(arrived))]
    async with asyncio.timeout(PATIENCE):
        counters = await draining
    assert counters.dead_lettered == 0
    assert sorted(arrived) == sorted(f"m{n}" for n in range(14))


@pytest.mark.spec("G-27")
async def test_a_stop_finishes_messages_in_flight_and_releases_the_rest_at_once(pair: Pair) -> None:
    await pair.park([parked(n) for n in range(3000)])
    syphon = pair.syphon()
    shutdown = asyncio.Event()
    running = asyncio.create_task(syphon.run(shutdown))
    await until(lambda: syphon.counters.forwarded >= 200)
    shutdown.set()
    async with asyncio.timeout(PATIENCE):
        await running

    counters = syphon.counters
    assert counters.pending == 0
    assert counters.forwarded == counters.completed
    left = pair.waiting()
    assert left == 3000 - counters.completed
    assert len(await take(pair.secondary, pair.backlog(0), left)) == left  # without waiting for locks to end
    assert pair.primary.counts("orders").active == counters.completed


@pytest.mark.spec("P-43", "G-24")
async def test_a_parked_message_costs_a_receive_and_a_send(pair: Pair) -> None:
    await pair.park([parked(n) for n in range(50)])
    sends = pair.primary.operations.sends

    await pair.syphon().drain()

    assert pair.primary.operations.sends - sends == 50
    assert pair.primary.counts("orders").active == 50


@pytest.mark.spec("G-20")
async def test_forwarded_ids_are_reported_before_the_backlog_loses_the_message(pair: Pair) -> None:
    await pair.park([parked(n, ("orders", "invoices")[n % 2]) for n in range(300)])
    syphon = pair.syphon(report_forwards=True)
    ahead: list[int] = []  # for each event, the messages reported but not yet removed

    def look(event: object) -> None:
        if isinstance(event, MessagesForwarded):
            told = sum(len(each.message_ids) for each in pair.said(MessagesForwarded))
            ahead.append(told - syphon.counters.completed)

    syphon.on_event(look)
    await syphon.drain()

    told = pair.said(MessagesForwarded)
    assert {event.backlog for event in told} == {pair.backlog(0)}
    for path, first in (("orders", 0), ("invoices", 1)):
        ids = [each for event in told if event.path == path for each in event.message_ids]
        assert ids == [f"m{n}" for n in range(first, 300, 2)]
    assert min(ahead) > 0


async def test_by_default_the_syphon_reports_no_ids(pair: Pair) -> None:
    await pair.park([parked(0)])
    await pair.syphon().drain()

    assert not pair.said(MessagesForwarded)


@pytest.mark.parametrize(
    ("given", "text"), [("a", "a"), (b"\x01\xff", "01ff"), (None, ""), (UUID(int=5), str(UUID(int=5)))]
)
def test_a_message_id_of_any_type_has_a_text_form(given: object, text: str) -> None:
    assert (
        message_id_of(Message(properties=Properties(message_id=given), body=DataBody((b"",))).encode())
        == text
    )


def test_a_message_without_properties_has_no_id() -> None:
    assert message_id_of(Message(body=DataBody((b"",))).encode()) == ""


def test_an_unreadable_message_has_no_id() -> None:
    assert message_id_of(b"\x00\x53\x73\xc0\xff") == ""


@pytest.mark.spec("P-10")
def test_two_namespaces_with_one_name_need_a_backlog_name(broker: Broker) -> None:
    both = [
        broker.namespace("contoso").connection_string.replace("localhost", host)
        for host in ("contoso.example", "contoso.other.example")
    ]
    with pytest.raises(ValueError, match="both called 'contoso'; set primary_namespace_name"):
        Syphon.from_connection_strings(*both)
    named = Syphon.from_connection_strings(*both, options=SyphonOptions(primary_namespace_name="fabrikam"))
    assert named.backlogs[0] == "fabrikam/x-servicebus-transfer/0"


@pytest.mark.spec("R-60")
def test_backlogs_of_a_broker_on_this_machine_are_named_after_its_port(broker: Broker) -> None:
    primary, secondary = (broker.namespace(name) for name in ("contoso", "contoso-dr"))
    syphon = Syphon.from_connection_strings(primary.connection_string, secondary.connection_string)
    assert syphon.backlogs[0] == f"localhost-{primary.port}/x-servicebus-transfer/0"


@pytest.mark.parametrize("name", ["", "a/b", " contoso", 7])
def test_an_invalid_backlog_name_is_refused(name: object) -> None:
    with pytest.raises((TypeError, ValueError), match="primary_namespace_name"):
        SyphonOptions(primary_namespace_name=name)


@pytest.mark.spec("F-74")
@pytest.mark.parametrize(
    ("paths", "why"),
    [
        ("orders", "must be a tuple of paths, not 'orders'"),
        ((), "omit it to allow all"),
        (("orders", ""), "cannot contain '': it is empty"),
        (("orders,invoices",), "list each path separately"),
        (("orders ",), "a character no entity path may hold"),
        (("orders/$DeadLetterQueue",), "reserved"),
    ],
)
def test_an_allow_list_that_excludes_every_message_is_refused(paths: object, why: str) -> None:
    with pytest.raises(ValueError, match=re.escape(why)):
        SyphonOptions(allowed_destinations=paths)  # type: ignore[arg-type]
    SyphonOptions(allowed_destinations=("/Orders/", "eu/orders"))


async def test_the_same_namespace_twice_is_an_error(pair: Pair) -> None:

    with pytest.raises(ValueError, match="the same namespace"):
        Syphon.from_connection_strings(pair.primary.connection_string, pair.primary.connection_string)


@pytest.mark.spec("F-70")
async def test_a_message_without_a_session_for_a_session_queue_is_dead_lettered_with_the_reason(
    pair: Pair,
) -> None:
    pair.primary.create_queue("sessions", requires_session=True)
    await pair.park([parked(1, "sessions"), parked(2, "sessions", x_ms_sessionid="s"), parked(3)])

    async with asyncio.timeout(PATIENCE):
        counters = await pair.syphon().drain()

    assert (counters.completed, counters.dead_lettered) == (2, 1)
    [event] = pair.said(MessageSetAside)
    assert (event.path, event.reason) == ("sessions", "DestinationRefused")
    assert "The SessionId was not set on a message" in event.description


@pytest.mark.spec("F-43")
async def test_an_unreadable_backlog_stalls_alone_without_a_busy_loop(pair: Pair) -> None:
    await pair.park([parked(1)], 0)
    await pair.park([parked(2)], 1)
    stalled = pair.secondary.description(pair.backlog(0))
    pair.secondary.update_queue(pair.backlog(0), replace(stalled, status="ReceiveDisabled"))
    syphon = pair.syphon()
    shutdown = asyncio.Event()
    running = asyncio.create_task(syphon.run(shutdown))

    await until(lambda: syphon.counters.completed == 1 and len(pair.said(BacklogDetached)) >= 2)
    assert pair.said(BacklogDetached)[0].backlog == pair.backlog(0)
    assert "disabled" in pair.said(BacklogDetached)[0].reason
    first, second = pair.said(BacklogDetached)[:2]
    assert second.at - first.at >= 0.2  # at least half of the first pause

    pair.secondary.update_queue(pair.backlog(0), stalled)
    await until(lambda: syphon.counters.completed == 2)
    shutdown.set()
    async with asyncio.timeout(PATIENCE):
        await running


@pytest.mark.slow
@pytest.mark.spec("S-26")
async def test_missing_paths_leave_room_for_existing_ones(pair: Pair) -> None:
    """More of them than a connection has claims: the peer keeps a claim of each, and refuses those beyond."""
    for first in range(0, 2100, 300):
        await pair.park([parked(number, f"missing-{number}") for number in range(first, first + 300)])
    await pair.park([parked(number) for number in range(3000, 3050)])
    syphon = pair.syphon()
    async with running(syphon), asyncio.timeout(PATIENCE):
        await until(lambda: pair.primary.counts("orders").active == 50)

    assert pair.said(SideRefused) == []
