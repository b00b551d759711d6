"""Backlog queues: their settings, and the names that they need."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from azure.core.exceptions import HttpResponseError, ResourceExistsError, ResourceNotFoundError

from sbpair.pair.ground.side import Side
from sbpair.pair.pairing.shared.backlog import FOREVER

from ..entry import Price, Queue, Tier, entry, expect
from ..scratch import Scratch

if TYPE_CHECKING:
    from azure.servicebus.management import QueueProperties

BACKLOG = Queue(label="contoso/x-servicebus-transfer/0", side=Side.SECONDARY)
PAIRED = "paired namespaces, service-bus-paired-namespaces"
ADMIN = "the administration API, service-bus-resource-manager"


@entry(
    "names-1",
    "A queue may have slashes in its name, as backlog queues do, and takes and delivers messages.",
    falls=("P-10",),
    source=PAIRED,
    price=Price(sends=1, receives=1),
    entities=(BACKLOG,),
    about_creation=True,
)
async def slashes(at: Scratch) -> str:
    await at.send(at.message(b"parked"), to=BACKLOG.label)
    inbox = await at.inbox(BACKLOG.label)
    arrival = await inbox.take()
    await inbox.complete(arrival)
    expect(arrival.body == b"parked", f"it delivered {arrival.body!r}")
    return "a message went in and came out"


async def _queue(at: Scratch) -> QueueProperties:
    path = at.path()
    return await at.admin(lambda client: client.get_queue(path))


@entry(
    "names-2",
    "A queue can be created with the largest size of 5120 MB, and says so.",
    falls=("P-11",),
    source=PAIRED,
    entities=(Queue(max_megabytes=5120),),
    about_creation=True,
    manages=True,
)
async def largest(at: Scratch) -> str:
    size = (await _queue(at)).max_size_in_megabytes or 0
    expect(size in (5120, 5120 * 16), f"max_size_in_megabytes is {size}")
    return f"max_size_in_megabytes is {size}"


@entry(
    "names-3",
    "A queue can be created with a maximum delivery count of 2147483647.",
    falls=("P-11", "P-44"),
    source=PAIRED,
    entities=(Queue(max_deliveries=2**31 - 1),),
    about_creation=True,
    manages=True,
)
async def deliveries(at: Scratch) -> str:
    found = (await _queue(at)).max_delivery_count
    expect(found == 2**31 - 1, f"max_delivery_count is {found}")
    return f"max_delivery_count is {found}"


@entry(
    "names-4",
    "Without one of its own, a queue has the default time to live of no limit (on Basic 14 days).",
    falls=("P-11", "T-8"),
    source="message-expiration",
    manages=True,
)
async def no_limit(at: Scratch) -> str:
    span = (await _queue(at)).default_message_time_to_live
    is_long = isinstance(span, timedelta) and (
        span > timedelta(days=10_000_000) or span == timedelta(days=14)
    )
    expect(is_long, f"default_message_time_to_live is {span}")
    return f"default_message_time_to_live is {span}"


@entry(
    "names-5",
    "A queue can be told to live for ever while idle, in the service's own notation.",
    falls=("P-11", "T-20"),
    source=PAIRED,
    manages=True,
    tier=Tier.STANDARD,
)
async def never_idle(at: Scratch) -> str:
    path = at.path()

    def change(client: object) -> object:
        found = client.get_queue(path)  # type: ignore[attr-defined]
        found.auto_delete_on_idle = FOREVER
        client.update_queue(found)  # type: ignore[attr-defined]
        return client.get_queue(path).auto_delete_on_idle  # type: ignore[attr-defined]

    span = await at.admin(change)
    expect(
        isinstance(span, timedelta) and span > timedelta(days=10_000_000), f"auto_delete_on_idle is {span}"
    )
    return f"auto_delete_on_idle is {span}"


@entry(
    "names-6",
    "A lock of one minute is the default of a queue.",
    falls=("P-11", "O-6"),
    source="message-transfers-locks-settlement",
    manages=True,
)
async def minute(at: Scratch) -> str:
    span = (await _queue(at)).lock_duration
    expect(span == timedelta(minutes=1), f"lock_duration is {span}")
    return f"lock_duration is {span}"


@entry(
    "names-7",
    "Dead-lettering on expiration is set when asked for, and batched operations are on.",
    falls=("P-11", "T-10"),
    source=PAIRED,
    entities=(Queue(dead_letters_expired=True),),
    manages=True,
)
async def expiration(at: Scratch) -> str:
    found = await _queue(at)
    dead, batched = found.dead_lettering_on_message_expiration, found.enable_batched_operations
    expect(dead is True and batched is True, f"dead-lettering is {dead}, batched operations are {batched}")
    return "both are set"


@entry(
    "names-8",
    "To create a queue that exists is a conflict, 409, not a success.",
    falls=("P-12",),
    source=ADMIN,
    manages=True,
)
async def twice(at: Scratch) -> str:
    path = at.path()

    def create(client: object) -> str:
        try:
            client.create_queue(path)  # type: ignore[attr-defined]
        except ResourceExistsError as error:
            return str(error.status_code)
        except HttpResponseError as error:
            return f"{error.status_code}: {error.message}"
        return "a success"

    seen = await at.admin(create)
    expect(seen == "409", f"the second creation gave {seen}")
    return "409"


@entry(
    "names-9",
    "The administration API says of a missing queue that it is missing.",
    falls=("P-12", "X-13"),
    source="the SDK's administration client",
    entities=(),
    manages=True,
)
async def missing(at: Scratch) -> str:
    name = at.new_id()

    def ask(client: object) -> str:
        try:
            client.get_queue(name)  # type: ignore[attr-defined]
        except ResourceNotFoundError:
            return "missing"
        except HttpResponseError as error:
            return f"{error.status_code}: {error.message}"
        return "there"

    seen = await at.admin(ask)
    expect(seen == "missing", f"it was said to be {seen}")
    return "missing"


@entry(
    "names-10",
    "Paths are compared without regard to the case of ASCII letters.",
    falls=("R-119",),
    source="service-bus-quotas",
    price=Price(sends=1, receives=1),
)
async def any_case(at: Scratch) -> str:
    connection = await at.connection()
    sender = await connection.open_sender(at.path().upper())
    await sender.send(at.message(b"upper").encode())
    inbox = await at.inbox()
    arrival = await inbox.take()
    await inbox.complete(arrival)
    return "a message sent to the name in capitals arrived"


@entry(
    "names-11",
    "A queue counts its active messages, and those that are dead-lettered.",
    falls=("H-52", "P-14"),
    source=ADMIN,
    price=Price(sends=2, receives=1),
    manages=True,
)
async def counts(at: Scratch) -> str:
    await at.send(at.message(), at.message())
    inbox = await at.inbox()
    await inbox.dead_letter(await inbox.take(), "verify")
    path = at.path()
    found = await at.admin(lambda client: client.get_queue_runtime_properties(path))
    seen = f"{found.active_message_count} active, {found.dead_letter_message_count} dead-lettered"
    expect((found.active_message_count, found.dead_letter_message_count) == (1, 1), seen)
    return seen
