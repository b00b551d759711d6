"""Backlog queues: their settings, and the names that they need."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

from azure.core.exceptions import HttpResponseError, ResourceNotFoundError

from sbpair.pair.amqp.errors import ENTITY_DISABLED
from sbpair.pair.ground.entity_settings import SESSIONS
from sbpair.pair.ground.side import Side
from sbpair.pair.pairing.shared.backlog import FOREVER

from ..administration import settings_of
from ..entry import Price, Queue, Subject, Subscription, Tier, Topic, expect
from ..scratch import Scratch, expect_refused

if TYPE_CHECKING:
    from azure.servicebus.management import ServiceBusAdministrationClient

BACKLOG = Queue(label="contoso/x-servicebus-transfer/0", side=Side.SECONDARY)
LIMITLESS = timedelta(days=10_000_000)  # the SDK parses the longest span as more than this
ADMIN = "the administration API, service-bus-resource-manager"
entry = Subject("names", source="paired namespaces, service-bus-paired-namespaces", manages=True)


@entry(
    1,
    "A queue with slashes in its name, like a backlog queue, accepts and delivers messages.",
    "P-10",
    Price(1, 1),
    entities=(BACKLOG,),
    about_creation=True,
    manages=False,
)
async def slashes(ctx: Scratch) -> str:
    await ctx.send(ctx.message(b"parked"), to=BACKLOG.label)
    await ctx.expect(b"parked", of=BACKLOG.label)
    return "a message went in and came out"


def status_of(call: Callable[[], object]) -> int:
    """Return the status with which a call is refused, 0 if it is not."""
    try:
        call()
    except ResourceNotFoundError:  # the SDK makes some of these itself, without a status
        return 404
    except HttpResponseError as error:
        return error.status_code or -1
    return 0


@entry(
    2,
    "A queue can be created with the largest size, 5120 MB, and a maximum delivery count of 2147483647.",
    "P-11 P-44",
    entities=(Queue(max_megabytes=5120, max_deliveries=2**31 - 1),),
    about_creation=True,
)
async def largest(ctx: Scratch) -> str:
    found = await ctx.description()
    size, deliveries = found.max_size_in_megabytes or 0, found.max_delivery_count
    expect(size in (5120, 5120 * 16), f"max_size_in_megabytes is {size}")
    expect(deliveries == 2**31 - 1, f"max_delivery_count is {deliveries}")
    return f"max_size_in_megabytes is {size}"


@entry(
    4,
    "By default a queue has a lock duration of one minute and an unlimited time to live (on Basic 14 days).",
    "P-11 T-8 O-6",
    source="message-expiration",
)
async def defaults(ctx: Scratch) -> str:
    found = await ctx.description()
    span, lock = found.default_message_time_to_live, found.lock_duration
    is_long = isinstance(span, timedelta) and (span > LIMITLESS or span == timedelta(days=14))
    expect(is_long, f"default_message_time_to_live is {span}")
    expect(lock == timedelta(minutes=1), f"lock_duration is {lock}")
    most, window = found.max_delivery_count, found.duplicate_detection_history_time_window
    expect(
        (most, window) == (10, timedelta(minutes=10)), f"max_delivery_count is {most}, the window {window}"
    )
    return f"default_message_time_to_live is {span}"


@entry(
    5,
    "A queue can be exempted from deletion on idle in the notation of the service.",
    "P-11 T-20",
    tier=Tier.STANDARD,
)
async def never_idle(ctx: Scratch) -> str:
    span = (await ctx.change("auto_delete_on_idle", FOREVER)).auto_delete_on_idle
    expect(isinstance(span, timedelta) and span > LIMITLESS, f"auto_delete_on_idle is {span}")
    return f"auto_delete_on_idle is {span}"


@entry(
    7,
    "Dead-lettering on expiration can be set, and batched operations are enabled.",
    "P-11 T-10",
    entities=(Queue(dead_letters_expired=True),),
)
async def expiration(ctx: Scratch) -> str:
    found = await ctx.description()
    dead, batched = found.dead_lettering_on_message_expiration, found.enable_batched_operations
    expect(dead is True and batched is True, f"dead-lettering is {dead}, batched operations are {batched}")
    return "both are set"


@entry(
    8,
    "To create a queue that exists is a conflict, 409, and a missing one is missing, 404.",
    "P-12 X-13",
    source=ADMIN,
)
async def twice(ctx: Scratch) -> str:
    path, none = ctx.path(), ctx.new_id()
    seen = await ctx.admin(lambda client: status_of(lambda: client.create_queue(path)))
    expect(seen == 409, f"the second creation gave {seen or 'a success'}")
    seen = await ctx.admin(lambda client: status_of(lambda: client.get_queue(none)))
    expect(seen == 404, f"a missing one gave {seen or 'a success'}")
    return "409 and 404"


@entry(
    10,
    "Paths are compared ignoring the case of ASCII letters.",
    "R-119",
    Price(1, 1),
    source="service-bus-quotas",
    manages=False,
)
async def any_case(ctx: Scratch) -> str:
    connection = await ctx.connection()
    sender = await connection.open_sender(ctx.path().upper())
    await sender.send(ctx.message(b"upper").encode())
    await ctx.receive()
    return "a message sent to the name in capitals arrived"


@entry(
    11,
    "A queue counts its active, dead-lettered and scheduled messages.",
    "H-52 P-14",
    Price(3, 1),
    source=ADMIN,
)
async def counts(ctx: Scratch) -> str:
    inbox, arrival = await ctx.take(ctx.message(), ctx.message(), ctx.scheduled_message(time.time() + 300.0))
    await inbox.dead_letter(arrival, "verify")
    path = ctx.path()
    found = await ctx.admin(lambda client: client.get_queue_runtime_properties(path))
    counts = (found.active_message_count, found.dead_letter_message_count, found.scheduled_message_count)
    seen = "{} active, {} dead-lettered, {} scheduled".format(*counts)
    expect(
        (*counts, found.total_message_count) == (1, 1, 1, 3), f"{seen}, {found.total_message_count} in all"
    )
    size, born = found.size_in_bytes or 0, found.created_at_utc or EPOCH
    expect(
        size > 0 and abs(datetime.now(UTC) - born) < HOUR, f"its size is {size}, and it is there since {born}"
    )
    return seen


SPAN = timedelta(seconds=45)
EPOCH = datetime.fromtimestamp(0, UTC)
HOUR = timedelta(hours=1)
QUEUE = Queue(
    lock=SPAN.total_seconds(),
    time_to_live=HOUR.total_seconds(),
    sessions=True,
    duplicates_within=300.0,
    max_deliveries=7,
    dead_letters_expired=True,
    max_megabytes=2048,
    partitioned=False,
)
TOPIC = Topic(label="news/of/the/day", time_to_live=HOUR.total_seconds(), duplicates_within=300.0)
SUBSCRIPTION = Subscription(
    topic=TOPIC.label,
    lock=SPAN.total_seconds(),
    time_to_live=HOUR.total_seconds(),
    sessions=True,
    max_deliveries=7,
    dead_letters_expired=True,
)
CHANGES: Mapping[str, object] = {
    "lock_duration": 2 * SPAN,
    "default_message_time_to_live": 2 * HOUR,
    "duplicate_detection_history_time_window": timedelta(minutes=3),
    "max_delivery_count": 3,
    "dead_lettering_on_message_expiration": False,
    "dead_lettering_on_filter_evaluation_exceptions": False,
    "enable_batched_operations": False,
    "auto_delete_on_idle": 3 * HOUR,
    "user_metadata": "of <verify> & co",
    "status": "ReceiveDisabled",
}
"""Settings that can be updated; a kind of entity has some of them."""

BEYOND: Sequence[tuple[str, object]] = (
    ("lock_duration", timedelta(seconds=4)),
    ("lock_duration", timedelta(minutes=6)),
    ("default_message_time_to_live", timedelta(0)),
    ("duplicate_detection_history_time_window", timedelta(seconds=10)),
    ("duplicate_detection_history_time_window", timedelta(days=8)),
    ("max_delivery_count", 0),
    ("auto_delete_on_idle", timedelta(minutes=4)),
    ("max_size_in_megabytes", 1000),
    ("user_metadata", "x" * 1025),
    (SESSIONS.name, True),
    ("requires_duplicate_detection", True),
)
"""Settings that a queue does not take, or keeps as it was created."""


def _expect_read_back(found: object, wanted: Mapping[str, object]) -> None:
    differs = [
        f"{name} is {getattr(found, name)!r}" for name in wanted if getattr(found, name) != wanted[name]
    ]
    expect(not differs, "; ".join(differs))


def _updated(found: object) -> dict[str, object]:
    """Change a description and return the changes. A topic, from which nothing is received, gets SendDisabled."""
    changes = {name: value for name, value in CHANGES.items() if hasattr(found, name)}
    if not hasattr(found, "max_delivery_count"):
        changes["status"] = "SendDisabled"
    for name, value in changes.items():
        setattr(found, name, value)
    return changes


@entry(
    12,
    "The settings of a queue read back as created and as updated.",
    "P-11 P-14 R-84",
    source=ADMIN,
    entities=(QUEUE,),
    tier=Tier.STANDARD,
)
async def queue_settings(ctx: Scratch) -> str:
    path, found = ctx.path(), await ctx.description()
    asked = settings_of(QUEUE, {})
    _expect_read_back(found, asked)
    changes = _updated(found)
    await ctx.admin(lambda client: client.update_queue(found))
    _expect_read_back(await ctx.description(), {**asked, **changes})
    (listed,) = [
        each for each in await ctx.admin(lambda client: list(client.list_queues())) if each.name == path
    ]
    _expect_read_back(listed, {**asked, **changes})
    return f"{len(asked)} settings, and then {len(changes)} others"


@entry(
    13,
    "The settings of a topic and a subscription read back as created and as updated.",
    "P-14 T-9",
    source=ADMIN,
    entities=(
        TOPIC,
        SUBSCRIPTION,
        Subscription(topic=TOPIC.label, label="s2"),
    ),
    tier=Tier.STANDARD,
    about_creation=True,
)
async def topic_settings(ctx: Scratch) -> str:
    path = ctx.path(TOPIC.label)
    asked_of_topic, asked_of_subscription = settings_of(TOPIC, {}), settings_of(SUBSCRIPTION, {})

    def check(client: ServiceBusAdministrationClient) -> None:
        subscription, topic = client.get_subscription(path, "s"), client.get_topic(path)
        _expect_read_back(topic, asked_of_topic)
        _expect_read_back(subscription, asked_of_subscription)
        of_topic, of_subscription = _updated(topic), _updated(subscription)
        client.update_topic(topic)
        client.update_subscription(path, subscription)
        _expect_read_back(client.get_topic(path), {**asked_of_topic, **of_topic})
        _expect_read_back(client.get_subscription(path, "s"), {**asked_of_subscription, **of_subscription})
        listed = {each.name: each for each in client.list_subscriptions(path, max_page_size=1)}
        expect(set(listed) == {"s", "s2"}, f"listed are {sorted(listed)}")
        _expect_read_back(listed["s"], {**asked_of_subscription, **of_subscription})
        expect(path in [each.name for each in client.list_topics()], "the topic is not listed")
        count = client.get_topic_runtime_properties(path).subscription_count
        expect(count == 2, f"the topic counts {count} subscriptions")
        client.delete_subscription(path, "s2")
        left = [each.name for each in client.list_subscriptions(path)]
        expect(left == ["s"], f"after one was deleted there are {left}")

    await ctx.admin(check)
    await ctx.expect_no_sends(TOPIC.label)
    await expect_refused(ctx.inbox(f"{TOPIC.label}/Subscriptions/s"), ENTITY_DISABLED)
    return "as created, and as updated; two subscriptions were listed and counted, and one was deleted"


@entry(
    9,
    "The administration API refuses to update missing and to create existing entities of every kind.",
    "P-12 X-13",
    source=ADMIN,
    entities=(Queue(), Topic(), Subscription()),
    tier=Tier.STANDARD,
)
async def missing_and_twice(ctx: Scratch) -> str:
    topic, none = ctx.path("t"), ctx.new_id()

    def check(client: ServiceBusAdministrationClient) -> str:
        queue = client.get_queue(ctx.path())
        queue.name = none
        missing = (
            lambda: client.get_topic(none),
            lambda: client.get_subscription(topic, "none"),
            lambda: client.get_rule(topic, "s", "none"),
            lambda: client.delete_queue(none),
            lambda: client.delete_topic(none),
            lambda: client.delete_subscription(topic, "none"),
            lambda: client.update_queue(queue),
            lambda: client.create_subscription(none, "s"),
        )
        twice = (
            lambda: client.create_topic(topic),
            lambda: client.create_subscription(topic, "s"),
            lambda: client.create_rule(topic, "s", "$Default"),
        )
        return f"{[status_of(each) for each in missing]}, {[status_of(each) for each in twice]}"

    seen = await ctx.admin(check)
    expect(seen == f"{[404] * 8}, {[409] * 3}", f"they gave {seen}")
    return "404 and 409"


@entry(
    6,
    "The administration API returns the name, kind, tier and creation time of a namespace.",
    "P-14 K-1",
    source=ADMIN,
    entities=(),
)
async def namespace(ctx: Scratch) -> str:
    found = await ctx.admin(lambda client: client.get_namespace_properties())
    seen = f"{found.messaging_sku}, {found.namespace_type}"
    expect(
        found.messaging_sku in ("Basic", "Standard", "Premium") and found.namespace_type == "Messaging", seen
    )
    expect(bool(found.name) and found.created_at_utc is not None, f"name and time are {found.name!r:.60}")
    return seen


@entry(
    3,
    "The administration API refuses settings out of range, names that are too long, and invalid filters.",
    "P-12 P-14",
    source=ADMIN,
    entities=(Queue(), Topic(), Subscription()),
    tier=Tier.STANDARD,
)
async def beyond(ctx: Scratch) -> str:
    from azure.servicebus.management import SqlRuleFilter

    topic, long = ctx.path("t"), ctx.new_id() + "x" * 260

    def check(client: ServiceBusAdministrationClient) -> list[int]:
        found = client.get_queue(ctx.path())
        bad: list[Callable[[], object]] = [
            partial(client.update_queue, found, **{name: value}) for name, value in BEYOND
        ]
        bad += (
            lambda: client.create_queue(long),
            lambda: client.create_topic(long),
            lambda: client.create_subscription(topic, long[:51]),
            lambda: client.create_rule(topic, "s", long[:51]),
            lambda: client.create_rule(topic, "s", "r", filter=SqlRuleFilter("n >")),
        )
        return list(map(status_of, bad))

    seen = await ctx.admin(check)
    expect(set(seen) == {400}, f"they gave {seen}")
    return f"{len(seen)} were refused with 400"
