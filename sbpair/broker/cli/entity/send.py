"""`sbpair send`: send messages from standard input or from flags to a queue or topic."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import click

from sbpair.broker.cli.entity.target import EntityTarget, with_entity
from sbpair.pair.cli.errors import CommandError, ExitCode, one_line
from sbpair.pair.cli.signals import stop_on_signal

if TYPE_CHECKING:
    from sbpair.pair.amqp.performatives import DeliveryState, TransactionalState
    from sbpair.pair.client.link import Sender


MAX_IN_FLIGHT = 1000  # messages without an answer
Fields = dict[str, object]
CHUNK = 65_536  # bytes
MAX_LINE = 128 * 1024 * 1024  # bytes: more than the largest message as JSON
WAITING = 64  # chunks read ahead


class PropertyType(click.ParamType[tuple[str, object]]):
    """`NAME=VALUE`: a value that looks like a number, true or false is read as such, any other as text."""

    name = "name=value"

    def convert(
        self, value: str, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, object]:
        from sbpair.pair.cli.form import property_of

        try:
            return property_of(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


@click.command("send")
@with_entity
@click.option("--body", help="Send this text instead of the lines of standard input.")
@click.option("--json", "as_json", is_flag=True, help="Each line of standard input is a message as JSON.")
@click.option(
    "--count",
    type=click.IntRange(1, 10_000_000),
    default=1,
    show_default=True,
    help="Send each message this many times.",
)
@click.option(
    "--property",
    "properties",
    type=PropertyType(),
    multiple=True,
    help="An application property; repeat for more.",
)
@click.option("--message-id", help="The message id.  [default: a new one for each]")
@click.option("--session", "session_id", help="The session id.")
@click.option("--subject", help="The subject, also called label.")
@click.option("--correlation-id", help="The correlation id.")
@click.option("--content-type", help="The media type of the body.")
@click.option("--partition-key", help="The partition key.")
@click.option("--ttl", "time_to_live", metavar="SPAN", help="The time to live: 90s, 2m, 1h, 14d.")
@click.option(
    "--schedule",
    "scheduled_enqueue_time_utc",
    metavar="WHEN",
    help="Deliver it later: a duration such as 10m, or a time such as 2026-11-23T07:00:00Z.",
)
def command(
    target: EntityTarget,
    body: str | None,
    as_json: bool,
    count: int,
    properties: tuple[tuple[str, object], ...],
    **fields: str | None,
) -> int:
    """Send messages to a queue or topic, from standard input.

    Each line of standard input is the body of a message, or with --json a whole message in
    the form that `sbpair receive --json` prints. The flags apply to every message; values in
    a JSON line take precedence. Needs the Send right. Prints how many messages the broker
    has accepted; exit code 1 if it refused one, with the number of its line.

    NAMESPACE is env:NAME, file:PATH, a name, or `primary` and `secondary` for the
    namespaces of SBPAIR_PRIMARY and SBPAIR_SECONDARY.

    \b
    Examples:
      sbpair send env:SBPAIR_PRIMARY/orders --body hello
      sbpair send primary/orders --session cart-7 --property amount=5 --ttl 10m
      sbpair send contoso/orders --json
    """
    if body is not None and as_json:
        raise click.UsageError("--body and --json exclude each other", click.get_current_context())
    defaults: Fields = {name: value for name, value in fields.items() if value is not None}
    if properties:
        defaults["application_properties"] = dict(properties)
    _check(defaults)
    progress = SendProgress()
    try:
        asyncio.run(_send(target, _Input(body, as_json, count, defaults), progress))
    finally:
        click.echo(f"sent {progress.accepted}")
    problem = progress.refusal or progress.malformed
    if problem is not None:
        raise CommandError(problem, ExitCode.FAILED)
    return ExitCode.FAILED if progress.is_stopped else ExitCode.OK


def _check(defaults: Fields) -> None:
    """Refuse a value of a flag before anything is sent."""
    from sbpair.pair.cli.form import to_send

    try:
        to_send(defaults, datetime.now(UTC), "id")
    except ValueError as error:
        raise click.UsageError(one_line(error), click.get_current_context()) from error


@dataclass(slots=True)
class SendProgress:
    """The outcomes of the messages so far."""

    accepted: int = 0
    in_flight: int = 0
    refusal: str | None = None
    """The first refusal, as text; the messages after it are not sent."""
    malformed: str | None = None
    """The error of the first line that is not a message; the lines before it are sent."""
    is_stopped: bool = False
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def ended(self, what: str, outcome: DeliveryState | None) -> None:
        """Record the outcome of one message; None when the link was lost before the answer."""
        from sbpair.pair.amqp.performatives import Accepted
        from sbpair.pair.client.errors import outcome_text

        self.in_flight -= 1
        if isinstance(outcome, Accepted):
            self.accepted += 1
        elif outcome is not None and self.refusal is None:
            self.refusal = f"{what} was refused: {outcome_text(outcome)}"
        self.changed.set()


@dataclass(slots=True)
class _InFlight:
    """One message sent whose outcome is not known yet."""

    payload: bytes
    what: str
    progress: SendProgress
    message_format: int = 0
    state: TransactionalState | None = None

    def may_go(self, now: float) -> bool:
        """Return False after a refusal, so that the rest of the input is not sent."""
        if self.progress.refusal is not None:
            self.progress.in_flight -= 1
            self.progress.changed.set()
            return False
        return True

    def answered(self, outcome: DeliveryState | None) -> None:
        self.progress.ended(self.what, outcome)


@dataclass(frozen=True, slots=True)
class _Input:
    """The source of the messages: the text of --body, or standard input."""

    body: str | None
    as_json: bool
    count: int
    defaults: Fields

    async def messages(self) -> AsyncIterator[tuple[str, Fields]]:
        """Yield a name for each message, for errors, and its fields. Raises ValueError naming the line."""
        if self.body is not None:
            yield "the message", {**self.defaults, "body": self.body}
            return
        number = 0
        try:
            async for line in lines_of(sys.stdin.fileno()):
                number += 1
                if line or not self.as_json:
                    yield f"line {number}", self._fields(line)
        except ValueError as error:
            raise ValueError(f"line {max(number, 1)}: {error}") from error

    def _fields(self, line: bytes) -> Fields:
        text = line.decode()
        if not self.as_json:
            return {**self.defaults, "body": text}
        found = json.loads(text)
        if not isinstance(found, dict):
            raise ValueError(f"expected a JSON object, not {text!r:.60}")
        own = self.defaults.get("application_properties")
        if isinstance(own, dict) and isinstance(found.get("application_properties"), dict):
            found["application_properties"] = {**own, **found["application_properties"]}
        return {**self.defaults, **found}


async def _send(target: EntityTarget, source: _Input, progress: SendProgress) -> None:
    stop = stop_on_signal()
    async with target.connection() as connection:
        sender = await connection.open_sender(target.path)
        try:
            feeding = asyncio.ensure_future(_feed(sender, source, progress, stop))
            stopping = asyncio.ensure_future(stop.wait())
            try:
                either: set[asyncio.Future[Any]] = {feeding, stopping, sender.detached}
                await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
                if feeding.done():
                    await feeding
                while progress.in_flight and not sender.detached.done():
                    await _change(progress, sender)
            finally:
                for each in (feeding, stopping):
                    each.cancel()
                await asyncio.gather(feeding, stopping, return_exceptions=True)
            progress.is_stopped = stop.is_set()
            if sender.detached.done():
                _raise_for_loss(target, sender, progress)
        finally:
            await sender.close()


async def _feed(sender: Sender, source: _Input, progress: SendProgress, stop: asyncio.Event) -> None:
    """Queue all messages, up to MAX_IN_FLIGHT at once; the first refusal ends it."""
    from sbpair.pair.cli.form import to_send

    try:
        async for what, fields in source.messages():
            for _ in range(source.count):
                try:
                    payload = to_send(fields, datetime.now(UTC), str(uuid4()))
                except ValueError as error:
                    raise ValueError(f"{what}: {error}") from error
                while progress.in_flight >= MAX_IN_FLIGHT and not sender.detached.done():
                    await _change(progress, sender)
                if progress.refusal is not None or stop.is_set() or sender.detached.done():
                    return
                progress.in_flight += 1
                sender.transfer(_InFlight(payload, what, progress))
    except ValueError as error:
        progress.malformed = one_line(error)


async def _change(progress: SendProgress, sender: Sender) -> None:
    """Wait for the next outcome, or the end of the link."""
    progress.changed.clear()
    changed = asyncio.ensure_future(progress.changed.wait())
    try:
        either: set[asyncio.Future[Any]] = {changed, sender.detached}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    finally:
        changed.cancel()


def _raise_for_loss(target: EntityTarget, sender: Sender, progress: SendProgress) -> None:
    from sbpair.pair.client.errors import ConnectionLostError, LinkRefusedError

    condition = sender.detached.result()
    kind = ConnectionLostError if condition is None else LinkRefusedError
    unknown = (
        f"; {progress.in_flight} messages have no answer and may be stored" if progress.in_flight else ""
    )
    raise kind(f"the link to {target.path} ended{unknown}", condition)


async def lines_of(descriptor: int) -> AsyncIterator[bytes]:
    """Iterate over the lines of a file descriptor as they arrive, without their ends; the last one needs no end.

    A thread reads, because an event loop cannot wait for a file. It may still wait in its read when the program ends.
    Raises ValueError for a line of more than MAX_LINE bytes, OSError when reading fails.
    """
    chunks: asyncio.Queue[bytes | OSError] = asyncio.Queue(WAITING)
    loop = asyncio.get_running_loop()
    reader = threading.Thread(target=_read, args=(descriptor, chunks, loop), name="sbpair-stdin", daemon=True)
    reader.start()
    rest: list[bytes] = []
    size = 0
    while chunk := await chunks.get():
        if isinstance(chunk, OSError):
            raise chunk
        first, *others = chunk.split(b"\n")
        rest.append(first)
        size += len(first)
        if size > MAX_LINE:
            raise ValueError(f"it is longer than {MAX_LINE} bytes")
        for other in others:
            yield b"".join(rest).removesuffix(b"\r")
            rest, size = [other], len(other)
    if size:
        yield b"".join(rest)


def _read(descriptor: int, chunks: asyncio.Queue[bytes | OSError], loop: asyncio.AbstractEventLoop) -> None:
    while True:
        found: bytes | OSError
        try:
            found = os.read(descriptor, CHUNK)
        except OSError as error:
            found = error
        putting = chunks.put(found)
        try:
            asyncio.run_coroutine_threadsafe(putting, loop).result()
        except BaseException:  # the loop has ended, and no reader waits for the lines
            putting.close()
            return
        if not found or isinstance(found, OSError):
            return
