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
    return {each for each in named if isinstance(each, type) and issubclass(each, kind) and each is not kind}


def made(kind: type) -> Any:
    """An event of this kind, with plausible fields."""
    values = {"str": "x", "int": 3, "float": 2.5, "bool": False, "tuple[str, ...]": ("m1",), "str | None": None,
              "int | None": None, "tuple[int, ...]": (1,)}  # fmt: skip
    return kind(*(values[str(field.type)] for field in dataclasses.fields(kind)))


@pytest.mark.parametrize(("lines", "base"), EVERY)
def test_every_event_has_its_line_and_says_it_in_a_sentence(lines: dict[type, LogLine], base: type) -> None:
    assert set(lines) == subclasses(base)
    for kind, line in lines.items():
        text = line.text(made(kind))
        assert text.startswith(f"{kind.__name__}: ")
        assert not re.search(r"\w+=|[{}()]\w|None", text.replace("(it holds", "")), text
        assert len(text.split()) >= 3, text


@pytest.mark.parametrize(("lines", "base"), EVERY)
def test_what_a_message_does_is_debug_and_what_needs_a_person_is_an_error(
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


def test_an_attempt_that_follows_at_once_is_not_said_to_follow_in_no_time() -> None:
    line = OF_SYPHONS[syphon.SyphonDisconnected]
    assert line.text(syphon.SyphonDisconnected(0.0, "gone", 0.0)).endswith("gone; again at once")
    assert line.text(syphon.SyphonDisconnected(0.0, "gone", 1.25)).endswith("gone; again in 1.2 s")


@pytest.fixture
def text() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    undo = use_text_logs("sbpair", stream=stream, level=logging.DEBUG)
    yield stream
    undo()


def test_a_line_of_text_has_its_time_in_utc_its_level_and_no_control_characters(text: io.StringIO) -> None:
    emitter: Emitter[syphon.SyphonEvent] = Emitter(logging.getLogger("sbpair.syphon"), OF_SYPHONS)
    emitter.emit(syphon.SyphonDisconnected(0.0, "it\x1b[31m ended\nSharedAccessKey=CANARY;x", 0.0))
    (line,) = text.getvalue().splitlines()
    stamp = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z"
    assert re.fullmatch(rf"{stamp} WARNING sbpair.syphon: SyphonDisconnected: it.*again at once", line), line
    assert "\x1b" not in line
    assert "CANARY" not in line


def test_an_exception_is_named_in_its_line_of_text(text: io.StringIO) -> None:
    try:
        raise ValueError("broken")
    except ValueError:
        logging.getLogger("sbpair").exception("it failed")
    (line,) = text.getvalue().splitlines()
    assert line.endswith("ERROR sbpair: it failed: ValueError: broken")


def test_the_events_of_a_client_have_times_that_others_can_read() -> None:
    stream = io.StringIO()
    undo = use_json_logs(stream=stream)
    EventDispatcher().emit([pairing.BacklogWithdrawn(1000.0, "orders", 3, 1005.0, "gone")])
    undo()
    line = stream.getvalue()
    assert '"fields":{"path":"orders","backlog":3,"until":"20' in line
    assert "backlog queue 3 failed and is not used for 5 s: gone" in line
    assert "1000.0" not in line
