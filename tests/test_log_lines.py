"""The log lines of all events: a sentence and a level each, by one policy (R-126)."""

from __future__ import annotations

import dataclasses
import io
import logging
import re
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from sbpair.observation import use_json_logs, use_text_logs
from sbpair.pair.ground.emitter import Emitter, LogLine
from sbpair.pair.pairing import events as pairing
from sbpair.pair.pairing.shared.dispatcher import EventDispatcher
from sbpair.pair.pairing.shared.log_lines import LINES as OF_CLIENTS
from sbpair.pair.processor import events as processor
from sbpair.pair.processor.events import LINES as OF_PROCESSORS
from sbpair.pair.syphon import events as syphon
from sbpair.pair.syphon.events import LINES as OF_SYPHONS

pytestmark = pytest.mark.spec("R-126")

EVERY = [
    (lines, base) for lines, base in (
        (OF_CLIENTS, pairing.PairingEvent),
        (OF_SYPHONS, syphon.SyphonEvent),
        (OF_PROCESSORS, processor.ProcessorEvent),
    )
]  # fmt: skip


def subclasses(kind: type) -> set[type]:
    named = vars(sys.modules[kind.__module__]).values()
    kinds = {each for each in named if isinstance(each, type) and issubclass(each, kind) and each is not kind}
    return {each for each in kinds if not each.__name__.startswith("_")}


def made(kind: type) -> Any:
    """An event of this kind, with plausible fields."""
    values = {"str": "x", "int": 3, "float": 2.5, "bool": False, "tuple[str, ...]": ("m1",), "str | None": None,
              "int | None": None, "tuple[int, ...]": (1,)}  # fmt: skip
    return kind(*(values[str(field.type)] for field in dataclasses.fields(kind)))


@pytest.mark.parametrize(("lines", "base"), EVERY)
def test_every_event_has_a_log_line_that_is_a_sentence(lines: dict[type, LogLine], base: type) -> None:
    assert set(lines) == subclasses(base)
    for kind, line in lines.items():
        text = line.text(made(kind))
        assert text.startswith(f"{kind.__name__}: ")
        assert not re.search(r"\w+=|[{}()]\w|None", text.replace("(it holds", "")), text
        assert len(text.split()) >= 3, text


@pytest.mark.parametrize(("lines", "base"), EVERY)
def test_per_message_events_are_debug_and_events_that_need_a_person_are_errors(
    lines: dict[type, LogLine], base: type
) -> None:
    level = {kind.__name__: logging.getLevelName(line.level) for kind, line in lines.items()}
    for name in ("MessageParked", "MessageSpooled", "MessagesForwarded", "MessagesReceived", "SendRaised"):
        assert level.get(name, "DEBUG") == "DEBUG", name
    for name in ("SideFaulted", "SideRefused", "MessageSetAside", "SessionHeld", "SpooledMessageRefused"):
        assert level.get(name, "ERROR") == "ERROR", name
    for name in (
        "EntityFailedOver",
        "EntityRecovered",
        "DestinationHeld",
        "DestinationResumed",
        "ReceivingLost",
    ):
        assert level.get(name, "WARNING") == "WARNING", name


TIMES = (
    "the token expired, Expiration time: 11/30/2026 {h}:15:0{n} AM",
    "no answer by 2026-11-30T{h}:15:0{n}.123456Z",
    "lost after {n}.5 s",
    "refused. TrackingId:{n}_G1, SystemTracker:x, Timestamp:2026-11-30T10:00:0{n}",
    "request 8c5b1cc{n}-1a2b-4c3d-9e8f-0123456789ab was refused",
)
# each is a change of state, and its next one is news
CHANGES = {
    pairing.EntityFailedOver, pairing.EntityReturning, pairing.BacklogFilling, pairing.PairingDisabled,
    pairing.SideClosed, pairing.PairFaulted,
    syphon.SideAccepted, syphon.ClockDiffers, syphon.MessageSetAside, syphon.SessionHeld, syphon.DestinationResumed,
    syphon.LandingBegan, syphon.LandingEnded, syphon.MessagesUntransferred, syphon.BacklogStranded,
    syphon.BacklogOverdue, syphon.BacklogCaughtUp, processor.HandlerFailed,
}  # fmt: skip


@pytest.mark.parametrize(("lines", "base"), EVERY)
@pytest.mark.parametrize("said", TIMES)
def test_a_repeated_failure_is_logged_once_although_times_and_ids_differ(
    lines: dict[type, LogLine], base: type, said: str, text: io.StringIO
) -> None:
    for kind in (
        each for each, line in lines.items() if line.level >= logging.WARNING and each not in CHANGES
    ):
        of_client = base is pairing.PairingEvent
        emitter: Any = EventDispatcher() if of_client else Emitter(logging.getLogger("sbpair"), lines)
        before = len(text.getvalue())
        for retry in range(20):
            values = {
                field.name: float(retry)
                if field.name in ("at", "retry_in", "until", "seconds")
                else said.format(h=10 + retry % 2, n=retry % 10)
                if field.name in ("reason", "cause")
                else getattr(made(kind), field.name)
                for field in dataclasses.fields(kind)
            }
            event = kind(**values)
            emitter.emit([event] if of_client else event)
        told = [line for line in text.getvalue()[before:].splitlines() if " DEBUG " not in line]
        assert len(told) == 1, told


def test_after_a_failover_every_failure_is_logged_anew(text: io.StringIO) -> None:
    suspected = [pairing.EntitySuspected(float(at), "orders", "gone") for at in range(3)]
    EventDispatcher().emit([*suspected[:2], pairing.EntityFailedOver(1.0, "orders", "gone"), suspected[2]])
    assert [line.split()[1] for line in text.getvalue().splitlines()] == [
        "WARNING",
        "DEBUG",
        "WARNING",
        "WARNING",
    ]


def test_the_end_of_a_suspicion_is_not_logged_as_a_failback() -> None:
    line = OF_CLIENTS[pairing.EntityRecovered]
    assert "all senders" not in line.text(pairing.EntityRecovered(0.0, "orders", "a send succeeded"))


def test_an_immediate_next_attempt_is_not_logged_as_in_zero_seconds() -> None:
    line = OF_SYPHONS[syphon.SyphonDisconnected]
    assert line.text(syphon.SyphonDisconnected(0.0, "primary", "gone", 0.0)).endswith("gone; again at once")
    assert line.text(syphon.SyphonDisconnected(0.0, "primary", "gone", 1.25)).endswith("gone; again in 1.2 s")


@pytest.fixture
def text() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    undo = use_text_logs("sbpair", stream=stream, level=logging.DEBUG)
    yield stream
    undo()


def test_a_text_log_line_has_a_utc_time_a_level_and_no_control_characters(text: io.StringIO) -> None:
    emitter: Emitter[syphon.SyphonEvent] = Emitter(logging.getLogger("sbpair.syphon"), OF_SYPHONS)
    emitter.emit(syphon.SyphonDisconnected(0.0, "primary", "it\x1b[31m ended\nSharedAccessKey=CANARY;x", 0.0))
    (line,) = text.getvalue().splitlines()
    stamp = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z"
    assert re.fullmatch(
        rf"{stamp} WARNING sbpair.syphon: SyphonDisconnected: primary: it.*again at once", line
    ), line
    assert "\x1b" not in line
    assert "CANARY" not in line


def test_an_exception_is_named_in_its_text_log_line(text: io.StringIO) -> None:
    try:
        raise ValueError("broken")
    except ValueError:
        logging.getLogger("sbpair").exception("it failed")
    (line,) = text.getvalue().splitlines()
    assert line.endswith("ERROR sbpair: it failed: ValueError: broken")


def test_client_events_have_wall_clock_times() -> None:
    stream = io.StringIO()
    undo = use_json_logs(stream=stream)
    EventDispatcher().emit([pairing.BacklogWithdrawn(1000.0, "orders", 3, 1005.0, "gone")])
    undo()
    line = stream.getvalue()
    assert '"fields":{"path":"orders","backlog":3,"until":"20' in line
    assert "backlog queue 3 failed and is not used for 5 s: gone" in line
    assert "1000.0" not in line
