"""Landing on the secondary while the primary is out of reach, in driven time."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import replace
from datetime import timedelta

import pytest

from sbpair.broker.faults import Full, NoCredit, Operation, RejectWith, Withhold
from sbpair.pair.auth.connection_string import parse
from sbpair.pair.client.connection import connect
from sbpair.pair.syphon.events import (
    LandingBegan,
    LandingEnded,
    LandingRefused,
    MessageSetAside,
    MessagesForwarded,
    MessagesUntransferred,
)
from sbpair.pair.syphon.watch.deadletters import RedriveCounts, redrive
from sbpair.syphon import SyphonState
from tests.pair.syphon.driven import BACKLOGS, CLOCK, ROOMY, STRING, Driven, play
from tests.pair.syphon.pair import message_id, parked, take_over

HERE, THERE = "contoso", "contoso-dr"
AFTER = 300.0  # seconds: the default of land_after
SLACK = 10.0  # seconds by which landing may begin late


def landing_syphon(world: Driven, **options: object):
    return world.syphon(land="either", report_forwards=True, **options)


def placed(world: Driven, path: str = "orders") -> tuple[int, int]:
    """Count the messages of a path on the primary and on the secondary."""
    return world.active(HERE, path), world.active(THERE, path)


@pytest.mark.slow
@pytest.mark.spec("C-1", "C-4")
def test_messages_land_after_the_primary_was_unreachable_long_enough_and_the_rest_goes_home() -> None:
    async def story(world: Driven) -> None:
        world.make("orders", THERE)
        syphon = landing_syphon(world)
        async with world.running(syphon):
            await world.until(lambda: syphon.status.state is SyphonState.RUNNING)
            world.cut(HERE)
            await world.park(parked(number) for number in range(500))
            took = await world.until(lambda: placed(world) == (0, 500), within=AFTER + SLACK)
            assert took >= AFTER - SLACK
            assert syphon.status.state is SyphonState.LANDING
            await world.park(parked(number) for number in range(500, 600))
            assert await world.until(lambda: placed(world) == (0, 600)) < SLACK
            world.restored(HERE)
            await world.until(lambda: syphon.status.state is SyphonState.RUNNING)
            await world.park(parked(number) for number in range(600, 700))
            await world.until(lambda: placed(world) == (100, 600))
        (began,) = world.said(LandingBegan)
        assert began.path == "orders"
        assert AFTER <= began.out_of_reach < AFTER + SLACK
        assert [event.path for event in world.said(LandingEnded)] == ["orders"]
        sides = {(event.side, each) for event in world.said(MessagesForwarded) for each in event.message_ids}
        assert sides == {("secondary" if number < 600 else "primary", f"m{number}") for number in range(700)}
        counters = syphon.counters
        assert (counters.forwarded, counters.landed, counters.completed) == (700, 600, 700)
        assert (counters.pending, counters.lock_lost) == (0, 0)

    play(story)


@pytest.mark.spec("C-1")
def test_landing_is_off_by_default() -> None:
    async def story(world: Driven) -> None:
        world.make("orders", THERE)
        syphon = world.syphon()
        async with world.running(syphon):
            await world.until(lambda: syphon.status.state is SyphonState.RUNNING)
            world.cut(HERE)
            await world.park(parked(number) for number in range(50))
            await asyncio.sleep(3600.0)
            assert placed(world) == (0, 0)

    play(story)


@pytest.mark.spec("C-1")
def test_messages_without_a_twin_wait_for_the_primary() -> None:
    async def story(world: Driven) -> None:
        world.make("orders", THERE)
        world.make("bills")
        syphon = landing_syphon(world, land_after=timedelta(0))
        world.cut(HERE)
        async with world.running(syphon):
            await world.park(parked(number, "bills") for number in range(50))
            await world.park(parked(number) for number in range(50, 100))
            await world.until(lambda: placed(world) == (0, 50))
            await asyncio.sleep(600.0)
            assert {event.path for event in world.said(LandingRefused)} == {"bills"}
            assert not world.said(MessageSetAside)
            world.restored(HERE)
            await world.until(lambda: world.active(HERE, "bills") == 50)
            assert syphon.counters.received <= 200, "they wait, and do not come again and again"

    play(story)


@pytest.mark.spec("C-1")
def test_a_twin_created_during_the_outage_is_found() -> None:
    async def story(world: Driven) -> None:
        syphon = landing_syphon(world, land_after=timedelta(0))
        world.cut(HERE)
        async with world.running(syphon):
            await world.park(parked(number) for number in range(20))
            await world.until(lambda: bool(world.said(LandingRefused)))
            world.make("orders", THERE)
            assert await world.until(lambda: world.active(THERE, "orders") == 20) < 60.0

    play(story)


ENTITY_FAULTS = {
    "broken": (RejectWith("amqp:internal-error"), Operation.SEND),
    "silent": (Withhold(), Operation.SEND),
    "creditless": (NoCredit(), Operation.ATTACH),
    "unattachable": (RejectWith("amqp:internal-error"), Operation.ATTACH),
}


@pytest.mark.slow
@pytest.mark.spec("C-1", "C-4")
@pytest.mark.parametrize("how", ENTITY_FAULTS)
def test_a_single_unreachable_entity_lands_alone(how: str) -> None:
    async def story(world: Driven) -> None:
        world.make("others")
        world.make("orders", THERE)
        world.make("others", THERE)
        effect, operation = ENTITY_FAULTS[how]
        syphon = landing_syphon(world)
        async with world.running(syphon):
            with world.fault(HERE, "orders", effect, operation):
                await world.park(parked(number) for number in range(300))
                await world.park(parked(number, "others") for number in range(300, 400))
                await world.until(lambda: placed(world, "others") == (100, 0), within=30.0)
                stored = world.active(HERE, "orders")  # messages without an answer there
                await world.until(lambda: world.active(THERE, "orders") == 300, within=AFTER + 2 * SLACK)
            sent = 300
            while not world.said(LandingEnded):  # a message now and then is tried on the primary
                assert sent < 500
                await world.park([parked(1000 + sent)])
                await asyncio.sleep(1.0)
                sent += 1
            await world.park(parked(2000 + number) for number in range(50))
            await world.until(lambda: world.active(HERE, "orders") >= stored + 50)
            await world.until(lambda: syphon.counters.pending == 0)
            assert [event.path for event in world.said(LandingBegan)] == ["orders"]
            assert placed(world, "others") == (100, 0)
            if how == "silent":
                assert sum(placed(world)) >= sent + 50 + stored, "copies of what got no answer"
            else:
                assert sum(placed(world)) == sent + 50, "each once"

    play(story)


@pytest.mark.spec("C-1")
@pytest.mark.parametrize("effect", [Full(), RejectWith("com.microsoft:server-busy")], ids=["full", "busy"])
def test_an_answering_entity_is_reachable(effect: object) -> None:
    """The primary serves its consumers, so its messages wait."""

    async def story(world: Driven) -> None:
        world.make("orders", THERE)
        syphon = landing_syphon(world, land_after=timedelta(seconds=10))
        async with world.running(syphon):
            with world.fault(HERE, "orders", effect, Operation.SEND):  # type: ignore[arg-type]
                await world.park(parked(number) for number in range(50))
                await asyncio.sleep(600.0)
                assert placed(world) == (0, 0)
            await world.until(lambda: placed(world) == (50, 0))

    play(story)


@pytest.mark.slow
@pytest.mark.spec("C-2", "R-22")
def test_a_full_twin_leaves_room_for_others_and_its_messages_go_home() -> None:
    async def story(world: Driven) -> None:
        for path in ("orders", "others"):
            world.make(path, THERE)
        world.make("others")
        syphon = landing_syphon(world, land_after=timedelta(0))
        world.cut(HERE)
        async with world.running(syphon):
            with world.fault(THERE, "orders", Full(), Operation.SEND):
                await world.park(parked(number) for number in range(3000))
                await world.park(parked(number, "others") for number in range(3000, 3050))
                assert await world.until(lambda: placed(world, "others") == (0, 50)) < 30.0
                await asyncio.sleep(300.0)
                assert placed(world) == (0, 0)
                world.restored(HERE)
                await world.until(lambda: placed(world) == (3000, 0), within=300.0)
        transfers = [world.queue(THERE, backlog).transfer_dead_letter_queue for backlog in BACKLOGS]
        assert all(queue is not None and queue.counts(0).total == 0 for queue in transfers)

    play(story)


@pytest.mark.spec("C-2")
def test_a_message_the_twin_refuses_waits_for_the_primary() -> None:
    """A message too large for the twin is not dead-lettered, because the primary accepts it."""

    async def story(world: Driven) -> None:
        world.make("orders", THERE, replace(ROOMY, max_message_size_in_kilobytes=1))
        syphon = landing_syphon(world, land_after=timedelta(0))
        world.cut(HERE)
        async with world.running(syphon):
            await world.park([parked(0, body=b"x" * 5000), parked(1), parked(2, body=b"x" * 5000)])
            await world.until(lambda: placed(world) == (0, 1))
            await asyncio.sleep(300.0)
            world.restored(HERE)
            await world.until(lambda: placed(world) == (2, 1))
            assert not world.said(MessageSetAside)

    play(story)


@pytest.mark.spec("C-2")
def test_poison_is_dead_lettered_as_on_the_way_home() -> None:
    async def story(world: Driven) -> None:
        world.make("orders", THERE)
        syphon = landing_syphon(world, land_after=timedelta(0))
        world.cut(HERE)
        async with world.running(syphon):
            await world.park([parked(0, None), parked(1, "$management"), parked(2)])
            await world.until(lambda: placed(world) == (0, 1))
            await world.until(lambda: len(world.said(MessageSetAside)) == 2)

    play(story)


@pytest.mark.slow
@pytest.mark.spec("C-2", "C-4")
@pytest.mark.parametrize("cuts", [1, 5])
def test_losing_the_secondary_at_any_time_makes_no_duplicates(cuts: int) -> None:
    async def story(world: Driven) -> None:
        world.make("orders", THERE)
        syphon = landing_syphon(world, land_after=timedelta(0))
        world.cut(HERE)
        async with world.running(syphon):
            await world.park(parked(number) for number in range(2000))
            for part in range(cuts):
                await world.until(lambda part=part: world.active(THERE, "orders") > 300 * part)
                world.cut(THERE)
                world.restored(THERE)
            await world.until(lambda: world.active(THERE, "orders") >= 2000, within=400.0)
            await world.until(lambda: syphon.counters.pending == 0)
        assert world.active(THERE, "orders") == 2000
        assert all(world.active(THERE, backlog) == 0 for backlog in BACKLOGS)

    play(story)


@pytest.mark.spec("C-1")
def test_a_drain_lands_as_configured() -> None:
    async def story(world: Driven) -> None:
        world.make("orders", THERE)
        world.cut(HERE)
        await world.park(parked(number) for number in range(100))
        counters = await landing_syphon(world, land_after=timedelta(seconds=1)).drain()
        assert (counters.landed, counters.completed) == (100, 100)
        assert placed(world) == (0, 100)

    play(story)


@pytest.mark.spec("C-1")
@pytest.mark.parametrize(
    "wrong", [{"land": "secondary"}, {"land_after": timedelta(days=2)}, {"land_after": 300}]
)
def test_options_out_of_range_are_refused(wrong: dict[str, object]) -> None:
    async def story(world: Driven) -> None:
        with pytest.raises((ValueError, TypeError), match=next(iter(wrong))):
            world.syphon(**wrong)

    play(story)


@pytest.mark.slow
@pytest.mark.spec("C-1", "C-4")
def test_an_outage_of_an_hour_loses_nothing_and_pauses_consumers_at_most_for_the_span() -> None:
    """A message arrives every ten seconds; each of two syphons dies now and then and restarts."""
    every, count = 10.0, 360

    async def story(world: Driven) -> None:
        world.make("orders", THERE)
        began = world.loop.time()
        seen: list[float] = []

        async def consume() -> None:
            while True:
                await asyncio.sleep(1.0)
                seen.extend([world.loop.time()] * (world.active(THERE, "orders") - len(seen)))

        async def run(life: float) -> None:
            while True:
                syphon = landing_syphon(world)
                task = asyncio.ensure_future(syphon.run(asyncio.Event()))
                try:
                    await asyncio.sleep(life)
                finally:
                    task.cancel()
                    syphon.abort()
                    await asyncio.gather(task, return_exceptions=True)

        running = [asyncio.ensure_future(each) for each in (consume(), run(1500.0), run(937.0))]
        await asyncio.sleep(1.0)
        world.cut(HERE)
        for number in range(count):
            await world.park([parked(number)], BACKLOGS[number % 2])
            await asyncio.sleep(every)
        await world.until(
            lambda: all(world.active(THERE, backlog) == 0 for backlog in BACKLOGS), within=400.0
        )
        for each in running:
            each.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        assert placed(world) == (0, count), "each once"
        pauses = [after - before for before, after in itertools.pairwise([began, *seen])]
        assert max(pauses) <= AFTER + SLACK + every

    play(story)


@pytest.mark.spec("C-1", "C-2")
def test_a_message_only_the_primary_accepts_probes_the_primary() -> None:
    async def story(world: Driven) -> None:
        world.make("orders", THERE, replace(ROOMY, max_message_size_in_kilobytes=1))
        syphon = landing_syphon(world, land_after=timedelta(seconds=10))
        async with world.running(syphon):
            with world.fault(HERE, "orders", RejectWith("amqp:internal-error"), Operation.SEND):
                await world.park([parked(0), parked(1, body=b"x" * 5000)])
                await world.until(lambda: placed(world) == (0, 1))
                await world.park([parked(number, body=b"x" * 5000) for number in range(2, 5)])
                await asyncio.sleep(100.0)
                assert placed(world) == (0, 1)
            assert await world.until(lambda: placed(world) == (4, 1)) < 60.0

    play(story)


async def fill_a_twin_during_its_commit(world: Driven) -> int:
    """Land more than the twin holds, in transactions of which the first message fits; return how many were refused."""
    world.make("orders", THERE, replace(ROOMY, max_size_in_megabytes=1))
    syphon = landing_syphon(world, land_after=timedelta(0))
    world.cut(HERE)
    async with world.running(syphon):
        await world.park(parked(number, body=b"x" * 20_000) for number in range(100))
        await world.until(lambda: syphon.counters.completed == 100)
        await world.until(lambda: any(syphon.untransferred.values()))
    assert syphon.untransferred == {BACKLOGS[0]: untransferred(world), BACKLOGS[1]: 0}
    landed = world.active(THERE, "orders")
    assert 0 < landed < 100
    return 100 - landed


def untransferred(world: Driven, backlog: str = BACKLOGS[0]) -> int:
    return world.queue(THERE, backlog).counts(CLOCK.now()).transfer_dead_letter


@pytest.mark.spec("C-2", "C-4")
@pytest.mark.parametrize("where", ["the twin", "the primary"])
def test_a_message_refused_by_the_twin_after_the_commit_is_redriven(where: str) -> None:
    async def story(world: Driven) -> None:
        refused = await fill_a_twin_during_its_commit(world)
        assert untransferred(world) == refused
        (told,) = world.said(MessagesUntransferred)
        assert (told.backlog, told.count) == (BACKLOGS[0], refused)
        connection = await connect(parse(STRING.format(THERE)))
        landed = await take_over(connection, "orders", 100 - refused)  # the twin has space again
        counts = RedriveCounts()
        await redrive(connection, BACKLOGS[0], counts, untransferred=True, stop=asyncio.Event())
        await connection.close()
        assert (counts.redriven, counts.left, counts.refused) == (refused, 0, 0)
        assert (untransferred(world), world.active(THERE, BACKLOGS[0])) == (0, refused)
        if where == "the primary":
            world.restored(HERE)
        await landing_syphon(world, land_after=timedelta(0)).drain()
        at = THERE if where == "the twin" else HERE
        connection = await connect(parse(STRING.format(at)))
        landed += await take_over(connection, "orders", refused)
        await connection.close()
        assert sorted(map(message_id, landed)) == sorted(f"m{number}" for number in range(100)), "each once"
        assert placed(world) == (0, 0)

    play(story)


@pytest.mark.spec("C-3")
def test_refused_landings_are_reported_once_and_not_peeked_while_nothing_lands() -> None:
    async def story(world: Driven) -> None:
        world.make("orders", THERE)
        syphon = landing_syphon(world)
        peeks: list[str] = []
        async with world.running(syphon):
            await world.until(lambda: syphon.status.state is SyphonState.RUNNING)
            await world.until(lambda: len(syphon.untransferred) == len(BACKLOGS), within=100.0)
            check = syphon._monitors.untransferred.check

            async def counted(connection: object) -> None:
                peeks.append("check")
                await check(connection)  # type: ignore[arg-type]

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(
                    type(syphon._monitors.untransferred),
                    "check",
                    lambda self, connection: counted(connection),
                )
                await asyncio.sleep(3600.0)
        assert peeks == []
        assert not world.said(MessagesUntransferred)

    play(story)


@pytest.mark.spec("C-1", "C-2")
def test_a_twin_without_credit_gets_its_messages_later() -> None:
    """A trial that waits for credit is not forgotten when its link counts as stalled."""

    async def story(world: Driven) -> None:
        world.make("orders", THERE)
        syphon = landing_syphon(world, land_after=timedelta(0))
        world.cut(HERE)
        async with world.running(syphon):
            with world.fault(THERE, "orders", NoCredit(), Operation.ATTACH):
                await world.park(parked(number) for number in range(500))
                await asyncio.sleep(30.0)
                assert placed(world) == (0, 0)
            await world.until(lambda: placed(world) == (0, 500), within=600.0)
            await world.until(lambda: syphon.counters.pending == 0)
        assert [task for task in asyncio.all_tasks() if "LandingLink" in repr(task)] == []

    play(story)
