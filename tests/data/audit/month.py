"""Journals of many days: messages that wait overnight, are lost, or are told of late; writers that come and go."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path

from sbpair.pair.pairing.events import EntityFailedOver, EntityRecovered, EntitySuspected
from tests.data.audit.story import Receiver, Sender, Story

DAY = 86_400.0


def month(directory: Path, *, days: int, messages: int, seed: int = 1) -> Iterator[int]:
    """Write the journals below ``directory`` day by day: yields the number of each day when it is written.

    One sender and one receiver per day, which are closed in the evening; a syphon and a sender for all days, some of
    whose sessions go on as long. Every seventh receiver's journal arrives three days late.
    """
    luck = random.Random(seed)
    story, late = Story(directory / "here"), directory.parent / "late"
    syphon, steady = story.syphon(), story.sender()
    parked: list[str] = []
    arriving: dict[int, Path] = {}
    for day in range(days):
        story.now = day * DAY
        sender = story.sender()
        away = Story(late / str(day), now=story.now) if day % 7 == 5 else None
        receiver = (away or story).receiver()
        numbers = iter(range(day * messages * 4 + 1, (day + 1) * messages * 4))
        if day % 5 == 2:
            _fails_over(story, sender.journal, seconds=60.0 + day)
        home, parked = parked, []
        for key in home:  # overnight
            story.now += 1.0
            syphon.forwarded(key)
            receiver.received(key, numbers=(next(numbers),))
        for number in range(messages):
            key, fate = f"d{day}-{number}", luck.random()
            story.now += 1.0
            if fate < 0.4:
                sender.sent(key)
                receiver.received(key, numbers=(next(numbers),))
            elif fate < 0.6:
                _in_session(steady if number % 2 else sender, receiver, key, next(numbers), luck)
            elif fate < 0.7:
                sender.raised(key)
            elif fate < 0.8:
                sender.parked(key)
                story.now += luck.random() * 30
                syphon.forwarded(key)
                receiver.received(key, numbers=(next(numbers),))
            elif fate < 0.9:
                sender.parked(key)
                parked.append(key)
            elif fate < 0.93:
                sender.parked(key)
                syphon.set_aside(key)
            elif fate < 0.95:
                sender.parked(key)  # never again: waiting, until the backlog is found empty
            elif fate < 0.96:
                receiver.received(key, numbers=(next(numbers),))  # nobody sent it
            elif fate < 0.98:
                sender.sent(key)
                for _ in range(2):
                    receiver.received(key, numbers=(next(numbers),))
            else:
                sender.sent(key)
        story.now += 3600.0
        if day % 3 == 1:
            syphon.drained()
            receiver.emptied()
        sender.journal.close()
        receiver.journal.close()
        if away is not None:
            arriving[day + 3] = late / str(day)
        if day in arriving:
            shutil.copytree(arriving[day], directory / f"late-{day}")
        yield day
    story.now += 60.0
    syphon.drained()
    story.end()


def _in_session(sender: Sender, receiver: Receiver, key: str, number: int, luck: random.Random) -> None:
    """One of a few sessions; in one of them a message in ten arrives before the one that was sent before it."""
    session = f"s{luck.randrange(8)}"
    is_late = session == "s0" and luck.random() < 0.1
    sender.sent(key)
    if session == "s1":  # of which nobody tells what arrived
        return
    receiver.received(key, numbers=(number - 5 if is_late else number,), session=session)


def _fails_over(story: Story, journal: object, seconds: float) -> None:
    write = journal.write  # type: ignore[attr-defined]
    at = 1000.0 + story.now  # by the sender's monotonic clock
    write(EntitySuspected(at, "orders", "no answer"))
    story.now += 30.0
    write(EntityFailedOver(at + 30.0, "orders", "no answer"))
    story.now += seconds
    write(EntityRecovered(at + 30.0 + seconds, "orders", "a ping was accepted"))
