"""The protocol: credit, drain, frames, sessions, WebSocket, and what is ended for being idle."""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import replace

from sbpair.pair.amqp.errors import CONNECTION_FORCED, DETACH_FORCED
from sbpair.pair.amqp.performatives import Accepted, Condition
from sbpair.pair.client.dial import connect
from sbpair.pair.client.errors import ClientError

from ..entry import DifferenceError, Price, UndecidedError, entry, expect
from ..inbox import PATIENCE
from ..scratch import Scratch, answer_text, expect_end, expect_within, put_token
from ..target import Target

GUIDE = "service-bus-amqp-protocol-guide"
TROUBLE = "service-bus-amqp-troubleshoot"


@entry(
    "wire-1",
    "No more messages are delivered than there is credit.",
    falls=("C-12", "P-41"),
    source=GUIDE,
    price=Price(sends=2, receives=2),
    seconds=1.5,
)
async def credit(at: Scratch) -> str:
    await at.send(at.message(), at.message())
    inbox = await at.inbox()
    inbox.receiver.flow(1)
    arrival = await inbox.take()
    await asyncio.sleep(0.7)
    expect(inbox.arrived.empty(), "a second one came")
    await inbox.complete(arrival)
    await inbox.complete(await inbox.take())
    return "one for a credit of one"


@entry(
    "wire-2",
    "A drain of an empty queue ends the credit at once.",
    falls=("C-17", "G-27"),
    source=GUIDE,
)
async def drain(at: Scratch) -> str:
    inbox = await at.inbox()
    inbox.receiver.flow(10, drain=True)
    try:
        async with asyncio.timeout(10.0):
            await inbox.receiver.drained()
    except TimeoutError:
        expect(False, "the credit was not ended in 10 s")
    expect(not inbox.receiver.credit, f"the credit is {inbox.receiver.credit}")
    return "the credit is 0"


@entry(
    "wire-3",
    "A sender gets credit with its link.",
    falls=("P-42",),
    source=GUIDE,
)
async def first_credit(at: Scratch) -> str:
    sender = await at.sender()
    for _ in range(50):
        if sender.link.credit:
            break
        await asyncio.sleep(0.1)
    expect(sender.link.credit > 0, "there is none after 5 s")
    return f"{sender.link.credit}"


@entry(
    "wire-4",
    "A receiver whose credit waits gets a message that is sent later.",
    falls=("P-41", "G-23"),
    source=GUIDE,
    price=Price(sends=1, receives=1),
    seconds=1.5,
)
async def waits(at: Scratch) -> str:
    inbox = await at.inbox()
    inbox.receiver.flow(1)
    await asyncio.sleep(0.7)
    await at.send(at.message())
    await inbox.complete(await inbox.take())
    return "it came"


@entry(
    "wire-5",
    "A connection carries many sessions, each with a link.",
    falls=("O-6", "R-91"),
    source=GUIDE,
)
async def channels(at: Scratch) -> str:
    inboxes = [await at.inbox() for _ in range(20)]
    expect(all(each.receiver.is_open for each in inboxes), "one was ended")
    return "20 receivers, each in a session of its own"


@entry(
    "wire-6",
    "Several senders and receivers share a connection, and a link that ends takes nothing with it.",
    falls=("G-11", "H-11"),
    source=GUIDE,
    price=Price(sends=1, receives=1),
)
async def shared_connection(at: Scratch) -> str:
    connection = await at.connection()
    first, second = await connection.open_sender(at.path()), await connection.open_sender(at.path())
    await first.close()
    answer = await second.send(at.message().encode())
    expect(isinstance(answer, Accepted), f"the answer is {answer_text(answer)}")
    inbox = await at.inbox()
    await inbox.complete(await inbox.take())
    return "the other link went on"


@entry(
    "wire-7",
    "AMQP is spoken over WebSocket too.",
    falls=("C-18",),
    source=GUIDE,
    entities=(),
)
async def websocket(at: Scratch) -> str:
    namespace = at.target().namespace
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
    "wire-8",
    "The peer answers a close, and ends the connection without an error.",
    falls=("C-17", "F-30"),
    source="the AMQP standard, 2.4.3",
)
async def close(at: Scratch) -> str:
    connection = await at.another_connection()
    sender = await connection.open_sender(at.path())
    await sender.close()
    await expect_within(connection.close(PATIENCE), "it was not answered", PATIENCE / 2)
    condition = connection.closed.result()
    expect(condition is None, f"it ended with {condition}")
    return "closed"


NEW, BARE, UNUSED = 60.0, 300.0, 600.0  # seconds after which the service ends what is idle
SHARE = 0.9  # of that time, which must pass


async def _expect_idle_end(
    end: asyncio.Future[Condition | None], symbol: str, how: str, span: float, least: float = SHARE
) -> str:
    """What was seen of an end after ``span`` seconds.

    Raises DifferenceError if it came too early, too late or otherwise.
    """
    loop = asyncio.get_running_loop()
    began = loop.time()
    found = await expect_end(end, symbol, how, within=1.1 * span + 2.0)
    took = loop.time() - began
    expect(took >= least * span, f"{how} after {took:.0f} s already")
    return f"{how} with {found} after {took:.0f} s"


@entry(
    "wire-9",
    "A new connection without a link is closed after 60 s at most.",
    falls=("F-33",),
    source=TROUBLE,
    entities=(),
    seconds=80.0,
    slow=True,
)
async def idle_at_first(at: Scratch) -> str:
    connection = await at.another_connection()
    return await _expect_idle_end(connection.closed, CONNECTION_FORCED, "closed", NEW, least=0.0)


@entry(
    "wire-10",
    "A connection whose last link ended is closed after 5 minutes.",
    falls=("F-33",),
    source=TROUBLE,
    seconds=330.0,
    slow=True,
)
async def idle(at: Scratch) -> str:
    connection = await at.another_connection()
    token = await at.target().namespace.tokens.token(at.audience)
    status = await put_token(connection, at.audience, token)
    expect(status in (200, 202), f"a token is answered with {status}")
    await (await at.bare_receiver(connection)).close()
    return await _expect_idle_end(connection.closed, CONNECTION_FORCED, "closed", BARE)


@entry(
    "wire-11",
    "A link without use is detached with `detach-forced` after 10 minutes.",
    falls=("P-41", "F-33"),
    source=TROUBLE,
    seconds=660.0,
    slow=True,
)
async def idle_link(at: Scratch) -> str:
    sender = await at.sender()
    return await _expect_idle_end(sender.detached, DETACH_FORCED, "detached", UNUSED)


@entry(
    "wire-12",
    "Transfers keep within our incoming-window, counted from the next-outgoing-id of the peer's begin.",
    falls=("C-12", "R-91"),
    source="the AMQP standard, 2.5.6",
    price=Price(sends=6, receives=6),
)
async def window(at: Scratch) -> str:
    await at.send(*(at.message() for _ in range(6)))
    connection = await at.another_connection(window=2)
    inbox = await at.inbox(on=connection)
    session = inbox.receiver.link.session
    session.restores_window = False
    inbox.receiver.flow(6)
    for _ in range(3):
        arrivals = [await inbox.take(), await inbox.take()]
        await inbox.nothing(0.3)
        session.flow(None)
        connection.flush_soon()
        for each in arrivals:
            await inbox.complete(each)
    return "six came through a window of two, two at a time"


@entry(
    "wire-13",
    "A message that is longer than our max-frame-size comes in several frames.",
    falls=("P-22", "G-22"),
    source="the AMQP standard, 2.3",
    price=Price(sends=1, receives=1),
)
async def frames(at: Scratch) -> str:
    body = bytes(range(256)) * 80
    await at.send(at.message(body))
    inbox = await at.inbox(on=await at.another_connection(frame=4096))
    arrival = await inbox.take()
    await inbox.complete(arrival)
    expect(arrival.body == body, "it came otherwise")
    return f"{len(body)} bytes came whole through frames of 4096"


OTHER_NAME = "sbpair-verify.invalid"


@entry(
    "wire-14",
    "A namespace shows a certificate of a trusted authority for its own name, and for no other.",
    falls=("F-31",),
    source=TROUBLE,
    entities=(),
)
async def certificate(at: Scratch) -> str:
    target = at.target()
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
