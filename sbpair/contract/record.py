"""The recorder of a run: the frames of every entry, without keys, tokens and host names.

A recording is a file of JSON lines: first the run, then one line for each entry that has ended, with its entities, its
connections and what passed on them:

    {"entry": "locks-3", "verdict": "differs", "seen": "...", "at": 1764201600.123, "is_whole": true,
     "entities": [...], "connections": ["primary"], "frames": [[0.012, 0, "in", "eJx..."], ...],
     "exchanges": [["primary", {"method": "PUT", "target": "/sbpair-verify-...", "status": 201, ...}], ...]}

A frame has its time in seconds from ``at``, the number of its connection, its direction (in: from the client) and its
bytes, compressed, in base64: those of sbpair's own connections, and of the SDK's over TLS. Exchanges are those with
the administration API, in their order. An entry is not whole when its check also used that API, or the SDK without
TLS, or when more passed than is kept: its frames alone cannot repeat it then.
"""

from __future__ import annotations

import base64
import json
import os
import re
import threading
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from sbpair import __version__
from sbpair.broker.testing.frames import IN, OUT, Conversation, Passing
from sbpair.pair.amqp.composite import decode_composite, encode_composite
from sbpair.pair.amqp.encoding import FRAME_HEAD, frame
from sbpair.pair.amqp.errors import AmqpError
from sbpair.pair.amqp.message import Message, ValueBody
from sbpair.pair.amqp.performatives import Transfer
from sbpair.pair.auth.redaction import BLANK, blank_keys
from sbpair.pair.client.connection import Tap
from sbpair.pair.ground.side import Side

from .entry import Entity, Finding
from .exchange import Exchange
from .plan import Plan, Step

if TYPE_CHECKING:
    from azure.core.rest import HttpRequest, HttpResponse

    from sbpair.pair.pairing.shared.administration import Exchanged

FORMAT = 2
CLAIMS = "$cbs"
MAX_ENTRY, MAX_FILE = 1 << 20, 64 << 20  # characters of frames; further frames of an entry are left out
LETTERS = {Side.PRIMARY: "p", Side.SECONDARY: "s"}
SIGNED = re.compile(r"SharedAccessSignature \S+")
Conceal = Callable[[str], str]


def placeholder(side: Side, name: str) -> str:
    """Return a placeholder for a namespace name, of the same length so that frame sizes stay the same."""
    return LETTERS[side] * len(name)


class Recorder:
    """Writes a recording to ``file``, readable by its owner only. Raises OSError when the file cannot be created.

    ``names``: those of the hosts, with their side. ``conceal`` blanks secrets in text: a frame in which it finds
    one is left out. ``tiers``: of the namespaces by side, as far as they are known.
    """

    def __init__(
        self,
        file: Path,
        plan: Plan,
        names: Mapping[str, Side],
        conceal: Conceal = blank_keys,
        tiers: Mapping[str, str] | None = None,
    ) -> None:
        self._file: TextIO = open(  # noqa: SIM115  for the whole run
            file, "w", encoding="utf-8", opener=lambda path, flags: os.open(path, flags, 0o600)
        )
        self._names = {name: placeholder(side, name) for name, side in names.items()}
        self._conceal = conceal
        self._left = MAX_FILE
        self.failure = ""
        """Why the recording is not complete."""

        at = datetime.now(UTC).isoformat(timespec="seconds")
        hosts = sorted(set(self._names.values()), key=len, reverse=True)
        self._write(
            {
                "format": FORMAT,
                "sbpair": __version__,
                "at": at,
                "run": plan.run,
                "hosts": hosts,
                "tiers": dict(tiers or {}),
            }
        )

    def begin(self, step: Step) -> EntryRecord:
        """Record an entry until :meth:`end`."""
        return EntryRecord(step, self._without_names, self._conceal)

    def end(self, record: EntryRecord, finding: Finding) -> None:
        """Write the recording of an entry. Never raises."""
        seen = self._without_names(self._conceal(finding.seen))
        self._write({**record.line(), "verdict": finding.verdict.value, "seen": seen})

    def close(self) -> None:
        self._file.close()

    def _write(self, line: Mapping[str, object]) -> None:
        text = json.dumps(line)
        if len(text) > self._left:
            self.failure = self.failure or f"it would be larger than {MAX_FILE >> 20} MB"
            return
        self._left -= len(text)
        try:
            self._file.write(text + "\n")
            self._file.flush()
        except OSError as error:
            self.failure = self.failure or str(error.strerror)

    def _without_names(self, text: str) -> str:
        for name in sorted(self._names, key=len, reverse=True):
            text = text.replace(name, self._names[name])
        return text


class EntryRecord:
    """The recorded traffic of one entry. Thread-safe: the SDK is called in threads."""

    def __init__(self, step: Step, rename: Conceal, conceal: Conceal) -> None:
        self._step = step
        self._rename, self._conceal = rename, conceal
        self._at, self._began = time.time(), time.monotonic()
        self.is_whole = True
        """Whether the frames alone show everything that the check of the entry did."""

        self._lock = threading.Lock()
        self._sides: list[Side] = []
        self._frames: list[tuple[float, int, str, str]] = []
        self._exchanges: list[tuple[str, dict[str, object]]] = []
        self._left = MAX_ENTRY
        self._left_out = 0

    def tap(self, side: Side) -> Tap:
        """Return the callback that records the traffic of a new connection to this side."""
        with self._lock:
            number = len(self._sides)
            self._sides.append(side)
        conversation, claims = Conversation(), _Claims()

        def passes(is_sent: bool, data: bytes) -> None:
            for each in conversation.feed(IN if is_sent else OUT, data):
                for raw in claims.without_token(each):
                    self._keep(number, each.direction, raw)

        return passes

    def exchanged(self, side: Side) -> Exchanged:
        """Return the callback that records requests to the administration API of this side."""

        def passes(request: HttpRequest, response: HttpResponse) -> None:
            found = Exchange.of(request, response).without(lambda text: self._rename(self._conceal(text)))
            line = found.line()
            size = len(json.dumps(line))
            with self._lock:
                if size > self._left:
                    return
                self._left -= size
                self._exchanges.append((str(side), line))

        return passes

    def line(self) -> dict[str, object]:
        """Return the line of the entry, without its verdict."""
        return {
            "entry": self._step.entry.id,
            "at": round(self._at, 3),
            "is_whole": self.is_whole and not self._left_out,
            "entities": [_settings(each, self._step) for each in self._step.entry.entities],
            "connections": [str(side) for side in self._sides],
            "frames": self._frames,
            "exchanges": self._exchanges,
        }

    def _keep(self, number: int, direction: str, raw: bytes) -> None:
        text = raw.decode("latin-1")
        packed = base64.b64encode(zlib.compress(self._rename(text).encode("latin-1"))).decode()
        is_secret = self._conceal(text) != text
        with self._lock:
            if is_secret or len(packed) > self._left:
                self._left_out += 1
                return
            self._left -= len(packed)
            self._frames.append((round(time.monotonic() - self._began, 4), number, direction, packed))


class _Claims:
    """The requests to `$cbs` of one connection, whose tokens are blanked before anything is kept."""

    def __init__(self) -> None:
        self._payload = b""
        self._first: Transfer | None = None

    def without_token(self, passing: Passing) -> Sequence[bytes]:
        """Return the frames to keep in place of this one: none if it only continues a request."""
        if (passing.address, passing.direction, passing.performative) != (CLAIMS, IN, "transfer"):
            return (passing.raw,)
        raw = passing.raw
        _, offset, _, channel = FRAME_HEAD.unpack_from(raw)
        transfer, at = decode_composite(raw, 4 * offset, len(raw))
        assert isinstance(transfer, Transfer)  # noqa: S101 - the conversation says so
        self._first = self._first or transfer
        self._payload += raw[at:]
        if transfer.more:
            return ()
        head = encode_composite(replace(self._first, more=False))
        payload = _without_signature(self._payload)
        self._first, self._payload = None, b""
        return (frame(channel, head, len(payload)) + payload,)


def _without_signature(payload: bytes) -> bytes:
    """Return a request to `$cbs` without the signature of its token; empty if it cannot be read."""
    try:
        request = Message.decode(payload)
    except (AmqpError, IndexError, ValueError, TypeError):
        return b""
    token = request.body.value if isinstance(request.body, ValueBody) else None
    is_signed = isinstance(token, str) and SIGNED.fullmatch(token) is not None
    return replace(request, body=ValueBody(blank_keys(str(token)) if is_signed else BLANK)).encode()


def _settings(entity: Entity, step: Step) -> dict[str, object]:
    given = {name: value for name, value in asdict(entity).items() if value is not None}
    return {"kind": type(entity).__name__, "name": step.names[entity.label], **given}
