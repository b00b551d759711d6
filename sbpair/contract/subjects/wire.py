"""The protocol: credit, drain, frames, sessions, WebSocket, and the end of idle links and connections."""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import replace

from sbpair.pair.amqp.errors import CONNECTION_FORCED, DETACH_FORCED
from sbpair.pair.amqp.performatives import Condition
from sbpair.pair.client.connection import connect
from sbpair.pair.client.errors import ClientError

from ..entry import DifferenceError, Price, Subject, UndecidedError, expect
from ..inbox import PATIENCE, SILENCE, Inbox
from ..scratch import Scratch, expect_accepted, expect_end, expect_within, put_token
from ..target import Target

TROUBLE = "service-bus-amqp-troubleshoot"
entry = Subject("wire", source="service-bus-amqp-protocol-guide")


async def _drain(inbox: Inbox) -> None:
    """Drain a receiver. Raises DifferenceError unless its credit ends."""
    inbox.receiver.flow(10, drain=True)
    await expect_within(inbox.receiver.drained(), "the credit was not ended")
    expect(not inbox.receiver.credit, f"the credit is {inbox.receiver.credit}")


@entry(
    1,
    "Deliveries never exceed the credit; a drain delivers waiting messages and ends the credit.",
    "C-12 P-41",
    Price(3, 3),
    seconds=1.5,
)
async def credit(ctx: Scratch) -> str:
    await ctx.send(*(ctx.message() for _ in range(3)))
    inbox = await ctx.inbox()
    inbox.receiver.flow(1)
    arrival = await inbox.take()
    await asyncio.sleep(SILENCE)
    expect(inbox.arrived.empty(), "a second one came")
    await _drain(inbox)
    expect(inbox.arrived.qsize() == 2, f"with a drain {inbox.arrived.qsize()} of 2 came")
    for each in (arrival, await inbox.take(), await inbox.take()):
        await inbox.complete(each)
    return "one for a credit of one, and two for a drain"


@entry(
    2,
    "A drain of an empty queue ends the credit at once, and nothing is delivered on revoked credit.",
    "C-17 G-27",
    Price(1),
)
async def drain(ctx: Scratch) -> str:
    inbox = await ctx.inbox()
    await _drain(inbox)
    inbox.receiver.flow(1)
    inbox.receiver.flow(0)
    await ctx.send(ctx.message())
    await asyncio.sleep(SILENCE)
    expect(inbox.arrived.empty(), "a message came without credit")
    return "the credit is 0, once drained and once taken back"


@entry(3, "A sender gets credit with its link.", "P-42")
async def first_credit(ctx: Scratch) -> str:
    sender = await ctx.sender()
    for _ in range(50):
        if sender.link.credit:
            break
        await asyncio.sleep(0.1)
    expect(sender.link.credit > 0, "there is none after 5 s")
    return f"{sender.link.credit}"


@entry(4, "A receiver with credit gets a message that is sent later.", "P-41 G-23", Price(1, 1), seconds=1.5)
async def waits(ctx: Scratch) -> str:
    inbox = await ctx.inbox()
    inbox.receiver.flow(1)
    await asyncio.sleep(SILENCE)
    await ctx.send(ctx.message())
    await inbox.receive()
    return "it came"


@entry(5, "A connection carries many sessions, each with a link.", "O-6 R-91")
async def channels(ctx: Scratch) -> str:
    inboxes = [await ctx.inbox() for _ in range(20)]
    expect(all(each.receiver.is_open for each in inboxes), "one was ended")
    return "20 receivers, each in a session of its own"


@entry(
    6,
    "Several senders and receivers share a connection, and a link that ends takes nothing with it.",
    "G-11 H-11",
    Price(1, 1),
)
async def shared_connection(ctx: Scratch) -> str:
    connection = await ctx.connection()
    first, second = await connection.open_sender(ctx.path()), await connection.open_sender(ctx.path())
    await first.close()
    expect_accepted(await second.send(ctx.message().encode()))
    await ctx.receive()
    return "the other link went on"


@entry(7, "AMQP is spoken over WebSocket too.", "C-18", entities=())
async def websocket(ctx: Scratch) -> str:
    namespace = ctx.target().namespace
    route = replace(namespace.route, over_websocket=True)
    try:
        connection = await connect(namespace.along(route), timeout=20.0)
    except ImportError as missing:
        raise UndecidedError(f"it needs the extra websocket: {missing}") from missing
    except ClientError as error:
        is_closed = isinstance(error.__cause__, OSError)  # a firewall's doing, perhaps
        raise (UndecidedError if is_closed else DifferenceError)(f"it cannot be reached: {error}") from error
    await connection.close()
    return "a connection was opened"


@entry(
    8,
    "A connection stays when its last link ends; the peer answers a close, and ends it without an error.",
    "C-17 F-30",
    source="the AMQP standard, 2.4.3",
)
async def close(ctx: Scratch) -> str:
    connection = await ctx.another_connection()
    await put_token(connection, ctx.audience, await ctx.target().namespace.tokens.token(ctx.audience))
    await asyncio.sleep(SILENCE)
    expect(not connection.closed.done(), "without a link it was closed at once")
    await expect_within(connection.close(PATIENCE), "it was not answered", PATIENCE / 2)
    condition = connection.closed.result()
    expect(condition is None, f"it ended with {condition}")
    return "closed"


NEW, BARE, UNUSED = 60.0, 300.0, 600.0  # seconds after which the service ends idle links and connections
SHARE = 0.9  # of that time, which must pass


async def _expect_idle_end(
    end: asyncio.Future[Condition | None], symbol: str, how: str, span: float, least: float = SHARE
) -> str:
    """Check that a link or connection ended after ``span`` seconds, and describe how.

    Raises DifferenceError if it came too early, too late or otherwise.
    """
    loop = asyncio.get_running_loop()
    began = loop.time()
    found = await expect_end(end, symbol, how, within=1.1 * span + 2.0)
    took = loop.time() - began
    expect(took >= least * span, f"{how} after {took:.0f} s already")
    return f"{how} with {found} after {took:.0f} s"


@entry(
    9,
    "A new connection without a link is closed after 60 s at most.",
    "F-33",
    source=TROUBLE,
    entities=(),
    seconds=80.0,
    slow=True,
)
async def idle_at_first(ctx: Scratch) -> str:
    connection = await ctx.another_connection()
    return await _expect_idle_end(connection.closed, CONNECTION_FORCED, "closed", NEW, least=0.0)


@entry(
    10,
    "A connection whose last link ended is closed after 5 minutes.",
    "F-33",
    source=TROUBLE,
    seconds=330.0,
    slow=True,
)
async def idle(ctx: Scratch) -> str:
    connection = await ctx.another_connection()
    token = await ctx.target().namespace.tokens.token(ctx.audience)
    status = await put_token(connection, ctx.audience, token)
    expect(status in (200, 202), f"a token is answered with {status}")
    await (await ctx.bare_receiver(connection)).close()
    return await _expect_idle_end(connection.closed, CONNECTION_FORCED, "closed", BARE)


@entry(
    11,
    "An idle link is detached with `detach-forced` after 10 minutes.",
    "P-41 F-33",
    source=TROUBLE,
    seconds=660.0,
    slow=True,
)
async def idle_link(ctx: Scratch) -> str:
    sender = await ctx.sender()
    return await _expect_idle_end(sender.detached, DETACH_FORCED, "detached", UNUSED)


@entry(
    12,
    "Transfers keep within our incoming-window, counted from the next-outgoing-id of the peer's begin.",
    "C-12 R-91",
    Price(4, 4),
    source="the AMQP standard, 2.5.6",
)
async def window(ctx: Scratch) -> str:
    await ctx.send(*(ctx.message() for _ in range(4)))
    connection = await ctx.another_connection(window=2)
    inbox = await ctx.inbox(on=connection)
    session = inbox.receiver.link.session
    session.restores_window = False
    inbox.receiver.flow(4)
    for _ in range(2):
        arrivals = [await inbox.take(), await inbox.take()]
        await inbox.nothing(0.3)
        session.flow(None)
        connection.flush_soon()
        for each in arrivals:
            await inbox.complete(each)
    return "four came through a window of two, two at a time"


@entry(
    13,
    "A message longer than our max-frame-size arrives in several frames.",
    "P-22 G-22",
    Price(1, 1),
    source="the AMQP standard, 2.3",
)
async def frames(ctx: Scratch) -> str:
    body = bytes(range(256)) * 80
    await ctx.send(ctx.message(body))
    arrival = await (await ctx.inbox(on=await ctx.another_connection(frame=4096))).receive()
    expect(arrival.body == body, "it came otherwise")
    return f"{len(body)} bytes came whole through frames of 4096"


OTHER_NAME = "sbpair-verify.invalid"


@entry(
    14,
    "A namespace presents a certificate of a trusted authority for its own name and no other.",
    "F-31",
    source=TROUBLE,
    entities=(),
)
async def certificate(ctx: Scratch) -> str:
    target = ctx.target()
    if not target.namespace.uses_tls:
        raise UndecidedError("the namespace is reached without TLS")
    try:
        await _shake_hands(target, target.namespace.host)
    except ssl.SSLCertVerificationError as error:
        raise DifferenceError(f"it is refused: {error.verify_message}") from error
    try:
        await _shake_hands(target, OTHER_NAME)
    except ssl.SSLCertVerificationError as error:
        return f"under another name it is refused: {error.verify_message}"
    raise DifferenceError(f"it is for {OTHER_NAME} too")


async def _shake_hands(target: Target, name: str) -> None:
    """Open a TLS connection to a namespace under this name. Raises SSLCertVerificationError, OSError."""
    context = ssl.create_default_context(cafile=target.namespace.route.ca_file)
    _, writer = await asyncio.open_connection(
        target.namespace.host, target.namespace.port, ssl=context, server_hostname=name
    )
    writer.transport.abort()  # nothing was sent, and a peer may leave a closing handshake unanswered
