"""A sender or a syphon is killed (-9) between two frames: where its messages are stored, and which arrive twice.

A rule of a tap sees the frame that ends the step in question, and kills instead of forwarding it.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from datetime import timedelta

import pytest

from sbpair.broker import Broker, ShiftedClock
from sbpair.broker.faults import RejectWith
from tests.pair.outage.tap import Passing, Tap
from tests.pair.outage.victims import PROCESSES, Victim, bring_home, send_one, victim
from tests.pair.syphon.pair import message_id, pair_of, parked, take
from tests.waiting import until

SKINS = pytest.mark.parametrize("is_asyncio", [False, True], ids=["blocking", "asyncio"])
BACKLOGS = "contoso/x-servicebus-transfer/"


Matches = Callable[[Passing], bool]


class Scene:
    """Two namespaces with a tap before each, and what is found in them afterwards."""

    def __init__(self, broker: Broker, primary: Tap, secondary: Tap) -> None:
        self.broker, self.primary, self.secondary = broker, primary, secondary
        self.pair = pair_of(broker)

    @property
    def strings(self) -> tuple[str, str]:
        return self.primary.connection_string, self.secondary.connection_string

    def die_sending(self, tap: Tap, matches: Matches, *, is_asyncio: bool, knows: bool = False) -> None:
        """One send, by a process that is killed instead of a frame; ``knows``: once it was handed that."""
        hears, says = PROCESSES.Pipe(duplex=False)
        with hears, says, victim(send_one, *self.strings, says, is_asyncio=is_asyncio) as sender:
            kill_at(tap, sender, matches, knows=knows)
            sender.start()
            assert sender.ended() == -signal.SIGKILL
            assert not hears.poll(), "it was acknowledged before it died: the trial proves nothing"
        tap.let_pass()

    async def drained(self) -> list[str]:
        """What has arrived once a syphon that nobody kills is through."""
        counters = await self.pair.syphon().drain()
        assert counters.dead_lettered == 0
        assert self.pair.waiting() == 0
        return [message_id(m) for m in await take(self.pair.primary, "orders", self.arrived)]

    @property
    def arrived(self) -> int:
        return self.pair.primary.counts("orders").active


def kill_at(tap: Tap, doomed: Victim, matches: Matches, *, knows: bool) -> None:
    """Kill instead of passing on such a frame; ``knows``: it reaches a process that does no step more."""

    def rule(passing: Passing) -> bool:
        if not matches(passing):
            return True
        doomed.suspend() if knows else doomed.kill()
        return knows

    def after(passing: Passing) -> None:
        if knows and matches(passing):
            doomed.kill()

    tap.rule, tap.after = rule, after


@pytest.fixture
def scene() -> Iterator[Scene]:
    with Broker({"contoso": 0, "contoso-dr": 0}, clock=ShiftedClock()) as broker:
        primary, secondary = Tap(broker.namespace("contoso")), Tap(broker.namespace("contoso-dr"))
        with primary, secondary:
            yield Scene(broker, primary, secondary)


def is_answered(passing: Passing) -> bool:
    return passing.is_answer("orders")


def is_parked(passing: Passing) -> bool:
    """A backlog queue's answer."""
    return passing.is_answer(passing.path) and passing.path.startswith(BACKLOGS)


@pytest.mark.spec("F-1")
@SKINS
async def test_a_sender_that_dies_before_a_byte_was_sent_stores_nothing(
    scene: Scene, is_asyncio: bool
) -> None:
    scene.die_sending(
        scene.primary, lambda frame: frame.is_clients and frame.is_attach("orders"), is_asyncio=is_asyncio
    )
    assert (scene.arrived, scene.pair.waiting()) == (0, 0)


@pytest.mark.spec("F-2", "G-7")
@SKINS
async def test_a_message_whose_sender_dies_before_the_answer_is_delivered_once(
    scene: Scene, is_asyncio: bool
) -> None:
    scene.die_sending(scene.primary, is_answered, is_asyncio=is_asyncio)
    assert (scene.arrived, scene.pair.waiting()) == (1, 0)


@pytest.mark.spec("F-3", "G-7")
@SKINS
async def test_a_message_whose_sender_dies_with_the_answer_unread_is_delivered_once(
    scene: Scene, is_asyncio: bool
) -> None:
    scene.die_sending(scene.primary, is_answered, is_asyncio=is_asyncio, knows=True)
    assert (scene.arrived, scene.pair.waiting()) == (1, 0)


@pytest.mark.spec("F-4")
@SKINS
async def test_a_sender_that_dies_between_its_failure_and_the_backlog_has_parked_nothing(
    scene: Scene, is_asyncio: bool
) -> None:
    """At both ends of that way: with the refusal in its socket, and when the link to a backlog opens."""
    with scene.pair.primary.fault("orders", RejectWith("amqp:internal-error")):
        scene.die_sending(scene.primary, is_answered, is_asyncio=is_asyncio, knows=True)
        scene.die_sending(
            scene.secondary, lambda frame: frame.path.startswith(BACKLOGS), is_asyncio=is_asyncio
        )
    assert (scene.arrived, scene.pair.waiting()) == (0, 0)


@pytest.mark.spec("F-5", "G-7")
@SKINS
async def test_a_message_whose_sender_dies_before_the_backlog_answers_comes_home_once(
    scene: Scene, is_asyncio: bool
) -> None:
    with scene.pair.primary.fault("orders", RejectWith("amqp:internal-error")):
        scene.die_sending(scene.secondary, is_parked, is_asyncio=is_asyncio)
    assert (scene.arrived, scene.pair.waiting()) == (0, 1)
    assert await scene.drained() == ["m-1"]


@pytest.mark.spec("F-6", "G-4", "G-5")
@SKINS
async def test_a_sender_that_dies_at_its_second_backlog_leaves_at_most_two_copies(
    scene: Scene, is_asyncio: bool
) -> None:
    """The first backlog queue stores and its answer is lost; it dies of the answer of the second."""
    answered: list[str] = []

    def is_second(passing: Passing) -> bool:
        if is_parked(passing):
            answered.append(passing.path)
            if len(answered) == 1:
                raise ConnectionResetError
        return len(answered) == 2

    with scene.pair.primary.fault("orders", RejectWith("amqp:internal-error")):
        scene.die_sending(scene.secondary, is_second, is_asyncio=is_asyncio)
    assert len(set(answered)) == 2
    assert (scene.arrived, scene.pair.waiting()) == (0, 2)
    assert await scene.drained() == ["m-1", "m-1"]


def is_locked(passing: Passing) -> bool:
    """A parked message on its way to the syphon."""
    return not passing.is_clients and passing.is_transfer(passing.path) and passing.path.startswith(BACKLOGS)


async def dies_draining(scene: Scene, tap: Tap, matches: Matches, *, knows: bool = False) -> list[str]:
    """One parked message, a syphon that is killed over it, and what arrives after the next one's drain."""
    await scene.pair.park([parked(1)])
    with victim(bring_home, *scene.strings) as syphon:
        kill_at(tap, syphon, matches, knows=knows)
        syphon.start()
        assert syphon.ended() == -signal.SIGKILL
    tap.let_pass()
    await until(lambda: scene.pair.secondary.connection_count == 0)  # nothing is given to the dead one again
    scene.broker.advance(timedelta(minutes=2))
    return await scene.drained()


@pytest.mark.spec("F-7")
async def test_a_syphon_that_dies_with_a_message_just_locked_repeats_nothing(scene: Scene) -> None:
    assert await dies_draining(scene, scene.secondary, is_locked, knows=True) == ["m1"]


@pytest.mark.spec("F-8")
async def test_a_syphon_that_dies_before_a_restored_message_is_sent_repeats_nothing(scene: Scene) -> None:
    found = await dies_draining(
        scene, scene.primary, lambda frame: frame.is_clients and frame.is_transfer("orders")
    )
    assert found == ["m1"]


@pytest.mark.spec("F-9", "G-4", "G-5")
async def test_a_syphon_that_dies_before_the_primary_answers_repeats_once(scene: Scene) -> None:
    assert await dies_draining(scene, scene.primary, is_answered) == ["m1", "m1"]


@pytest.mark.spec("F-10", "G-4", "G-20")
async def test_a_syphon_that_dies_before_it_completes_repeats_once(scene: Scene) -> None:
    completes = lambda frame: frame.is_completion(BACKLOGS + "0")  # noqa: E731
    assert await dies_draining(scene, scene.secondary, completes) == ["m1", "m1"]


@pytest.mark.spec("F-11", "G-4")
async def test_a_syphon_that_dies_after_its_completion_was_stored_repeats_nothing(scene: Scene) -> None:
    completed = lambda frame: frame.is_completed(BACKLOGS + "0")  # noqa: E731
    assert await dies_draining(scene, scene.secondary, completed) == ["m1"]
