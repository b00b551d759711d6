"""`sbpair receive`: receive messages, print and complete them."""

from __future__ import annotations

import asyncio
import json
import sys
from datetime import timedelta

import click

from sbpair.broker.cli.entity.target import EntityTarget, dead_letter_option, with_entity
from sbpair.pair.cli.errors import ExitCode
from sbpair.pair.cli.output import plain
from sbpair.pair.cli.parameters import DurationType
from sbpair.pair.cli.signals import stop_on_signal

from .consuming import Consumed, Handle, SessionChoice, consume

follow_help = "Continue until a signal, or until --count messages."
session_option = click.option("--session", "session_id", help="Only the messages of this session.")


def print_body(payload: bytes) -> None:
    """Print the body: to a terminal without control characters, else byte for byte; and a line feed."""
    from sbpair.pair.amqp.errors import DecodeError
    from sbpair.pair.cli.form import body_bytes

    try:
        body = body_bytes(payload)
    except (DecodeError, IndexError):
        body = payload
    if sys.stdout.isatty():
        click.echo("\n".join(map(plain, body.decode(errors="replace").split("\n"))))
    else:
        sys.stdout.buffer.write(body + b"\n")
        sys.stdout.flush()


def print_json(payload: bytes) -> None:
    """Print the message as one line of JSON."""
    from sbpair.pair.cli.form import as_object

    click.echo(json.dumps(as_object(payload)))


@click.command("receive")
@with_entity
@click.option(
    "--count",
    type=click.IntRange(1),
    help="The maximum number of messages.  [default: 1; no limit with --follow]",
)
@click.option("--follow", is_flag=True, help=follow_help)
@click.option(
    "--wait",
    type=DurationType(),
    default="5s",
    show_default=True,
    help="Without --follow, end when no message has arrived for this long; 0 takes only those already there.",
)
@dead_letter_option
@session_option
@click.option("--next-session", is_flag=True, help="The next session that has messages and no receiver.")
@click.option("--json", "as_json", is_flag=True, help="Print each message as one line of JSON.")
def command(
    target: EntityTarget,
    count: int | None,
    follow: bool,
    wait: timedelta,
    dead_letter: bool,
    session_id: str | None,
    next_session: bool,
    as_json: bool,
) -> int:
    """Receive messages, print them, and remove them from the entity.

    Prints the body of each message, or with --json everything, and completes the message
    once it is printed: a message that a closed pipe did not take stays in the entity. What a
    pipe did take is lost if the command that reads it fails: to move messages, write them to a
    file and send that. ENTITY is a queue or TOPIC/Subscriptions/NAME. With --follow,
    --next-session goes from session to session. Needs the Listen
    right. Exit code 1 if there was no message.

    \b
    Examples:
      sbpair receive primary/orders
      sbpair receive primary/events/Subscriptions/billing --follow --json
      sbpair receive contoso/orders --dead-letter --count 100 --json
    """
    if session_id is not None and next_session:
        raise click.UsageError("--session and --next-session exclude each other", click.get_current_context())
    counts = Consumed()
    sessions = SessionChoice(session_id) if session_id is not None or next_session else None
    chosen = target.dead_letters() if dead_letter else target
    most = count if count is not None or follow else 1
    waits = None if follow else wait.total_seconds()
    show = print_json if as_json else print_body
    asyncio.run(_receive(chosen, show, counts, most, waits, sessions))
    if counts.lost:
        click.echo(f"sbpair: {counts.lost} messages lost their lock and will be delivered again", err=True)
    return ExitCode.OK if counts.completed or follow else ExitCode.FAILED


async def _receive(
    target: EntityTarget,
    show: Handle,
    counts: Consumed,
    most: int | None,
    wait: float | None,
    sessions: SessionChoice | None,
) -> None:
    from sbpair.pair.client.errors import SessionUnavailableError

    stop = stop_on_signal()
    goes_on = wait is None and sessions is not None and sessions.session_id is None
    async with target.connection() as connection:
        while not stop.is_set():
            left = None if most is None else most - counts.completed - counts.lost
            if left == 0:
                return
            try:
                await consume(
                    connection, target.path, show, counts,
                    most=left, wait=0 if goes_on else wait, sessions=sessions, stop=stop,
                )  # fmt: skip
            except SessionUnavailableError:
                if not goes_on:
                    raise
            if not goes_on:
                return
