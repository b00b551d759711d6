"""Tokens and `$cbs`: what is granted, what is refused, and how."""

from __future__ import annotations

import time
from dataclasses import replace
from math import ceil

from sbpair.pair.amqp.errors import DETACH_FORCED, NOT_ALLOWED, NOT_FOUND, UNAUTHORIZED_ACCESS
from sbpair.pair.auth.credential import SharedKey, Token
from sbpair.pair.client.connection import NamespaceConnection, connect
from sbpair.pair.client.errors import ClientError
from sbpair.pair.client.request import RequestNode

from ..entry import Queue, Subject, UndecidedError, expect
from ..inbox import PATIENCE
from ..scratch import Scratch, expect_end, expect_refusal, expect_refused, expect_within, put_token
from .names import status_of

MANY = 110  # tokens: more than a link has credit for at first
WRONG = ("RootManageSharedAccessKey", "bm90IHRoZSBrZXk=")
FOREIGN = SharedKey(lambda: WRONG)
entry = Subject("tokens", source="service-bus-amqp-protocol-guide")


def _key(ctx: Scratch) -> SharedKey:
    """The key of the target. Raises UndecidedError where it has none."""
    tokens = ctx.target().namespace.tokens
    if not isinstance(tokens, SharedKey):
        raise UndecidedError(
            "it needs a key that signs tokens, and the namespace is reached with another credential"
        )
    return tokens


async def _expect_refused(ctx: Scratch, token: Token) -> str:
    """Show a token for the queue. Raises DifferenceError unless it is refused with 401."""
    status = await put_token(await ctx.another_connection(), ctx.audience, token)
    expect(status == 401, f"the status is {status}")
    return "401"


async def _expect_no_manage(ctx: Scratch, name: str, key: str) -> None:
    """Raise DifferenceError unless the administration API refuses a key with 401."""
    from azure.servicebus.management import ServiceBusAdministrationClient

    namespace, path = ctx.target().namespace, ctx.path()
    text = f"Endpoint=sb://{namespace.netloc}/;SharedAccessKeyName={name};SharedAccessKey={key}"
    make, ca_file = ServiceBusAdministrationClient.from_connection_string, namespace.route.ca_file or True
    with make(text, connection_verify=ca_file) as client:
        ctx.does_more_than_frames = True
        status = await ctx.in_thread(lambda: status_of(lambda: client.get_queue(path)))
    expect(status == 401, f"the administration API answers {status}")


def _within(seconds: float) -> int:
    """Return the time ``seconds`` from now, rounded up to whole seconds since the epoch."""
    return ceil(time.time() + seconds)


@entry(1, "Many tokens for an entity are accepted on `$cbs` over one link, with 202 or 200.", "P-40 F-41")
async def accepted_token(ctx: Scratch) -> str:
    connection = await ctx.another_connection()
    token = await ctx.target().namespace.tokens.token(ctx.audience)
    shown = put_token(connection, ctx.audience, token, times=MANY)
    status = await expect_within(shown, f"not all of {MANY} were answered", 3 * PATIENCE)
    expect(status in (200, 202), f"the status is {status}")
    return f"{status}"


@entry(2, "A token with a wrong signature is refused with 401.", "F-41 P-50", access=True)
async def wrong(ctx: Scratch) -> str:
    return await _expect_refused(ctx, FOREIGN.token_until(ctx.audience, _within(600)))


@entry(3, "An expired token that the right key signed is refused with 401.", "F-41 H-31", access=True)
async def expired_token(ctx: Scratch) -> str:
    return await _expect_refused(ctx, _key(ctx).token_until(ctx.audience, _within(-600)))


@entry(
    4,
    "Without a token, a link to an entity is refused with `unauthorized-access`.",
    "P-50 R-119",
    access=True,
)
async def none(ctx: Scratch) -> str:
    return await expect_refused(
        ctx.bare_receiver(await ctx.another_connection()), UNAUTHORIZED_ACCESS, otherwise="it was attached"
    )


@entry(5, "A connection has one link on `$cbs` in each direction.", "X-10", source="the SDKs' own tests (Go)")
async def one_link(ctx: Scratch) -> str:
    connection = await ctx.another_connection()
    first = RequestNode(connection, "$cbs")
    await first.wait_open()
    second = RequestNode(connection, "$cbs")
    try:
        await second.wait_open()
    except ClientError as error:
        return expect_refusal(error, NOT_ALLOWED)
    finally:
        await second.close()
        await first.close()
    expect(False, "a second pair was attached")
    return ""


async def _as(ctx: Scratch, right: str) -> NamespaceConnection:
    """A connection with a key that has one right on the queue, and may not call the administration API."""
    from azure.servicebus.management import (
        AccessRights,
        AuthorizationRule,
        ServiceBusAdministrationClient,
    )

    path = ctx.path()

    def create_rule(client: ServiceBusAdministrationClient) -> str:
        found = client.get_queue(path)
        rule = AuthorizationRule(
            type="SharedAccessAuthorizationRule",
            claim_type="SharedAccessKey",
            claim_value="None",
            key_name=f"verify{right}",
            rights=[AccessRights(right)],
            primary_key="dmVyaWZ5IHZlcmlmeSB2ZXJpZnkgdmVyaWZ5IHZlcmk=",
            secondary_key="a2V5IHR3byBrZXkgdHdvIGtleSB0d28ga2V5IHR3byE=",
        )
        found.authorization_rules = [rule]
        client.update_queue(found)
        rules = client.get_queue(path).authorization_rules or []
        kept = next(each for each in rules if each.key_name == f"verify{right}")
        seen = [(each.claim_type, each.claim_value, each.rights, each.secondary_key) for each in (kept, rule)]
        expect(seen[0] == seen[1], f"of the rule are kept {seen[0][:3]}, or another secondary key")
        return str(kept.primary_key)

    key = await ctx.admin(create_rule)
    for pair in (WRONG, (f"verify{right}", key)):
        await _expect_no_manage(ctx, *pair)
    namespace = replace(ctx.target().namespace, tokens=SharedKey(lambda: (f"verify{right}", key)))
    return await connect(namespace)


@entry(
    6,
    "A key with Listen alone receives, and is refused as a sender with `unauthorized-access`.",
    "P-50 X-13",
    source="service-bus-sas",
    entities=(Queue(),),
    manages=True,
    access=True,
)
async def listen(ctx: Scratch) -> str:
    connection = await _as(ctx, "Listen")
    try:
        await (await connection.open_receiver(ctx.path(), lambda event: None)).close()
        sender = connection.open_sender(ctx.path())
        return await expect_refused(sender, UNAUTHORIZED_ACCESS, otherwise="a sender was attached")
    finally:
        await connection.close()


@entry(
    7,
    "A key with Send alone sends, and is refused as a receiver with `unauthorized-access`.",
    "O-4 P-50",
    source="service-bus-sas",
    entities=(Queue(),),
    manages=True,
    access=True,
)
async def send(ctx: Scratch) -> str:
    connection = await _as(ctx, "Send")
    try:
        await (await connection.open_sender(ctx.path())).close()
        receiver = connection.open_receiver(ctx.path(), lambda event: None)
        return await expect_refused(receiver, UNAUTHORIZED_ACCESS, otherwise="a receiver was attached")
    finally:
        await connection.close()


@entry(
    8,
    "A token for a missing entity is refused as missing.",
    "F-42 X-17",
    source="the SDK's own live tests",
    entities=(),
)
async def missing(ctx: Scratch) -> str:
    connection = await ctx.another_connection()
    return await expect_refused(
        connection.authorize(ctx.new_id()), NOT_FOUND, otherwise="the token was accepted"
    )


@entry(9, "A token of the right key for another namespace is refused with 401.", "F-41 P-50", access=True)
async def elsewhere(ctx: Scratch) -> str:
    namespace = replace(ctx.target().namespace, netloc="sbpair-verify.invalid")
    return await _expect_refused(ctx, _key(ctx).token_until(namespace.audience(ctx.path()), _within(600)))


LIVES = 4.0  # seconds that a token has
ENDS_WITHIN = 40.0  # seconds after it was shown


@entry(
    10,
    "When the token of a link expires, the link is detached with `detach-forced` and the code RenewToken.",
    "F-41 H-31",
    source="issues of the SDKs (six, of four clients, 2020 to 2022)",
    seconds=6.0,
    access=True,
)
async def ends_on_a_link(ctx: Scratch) -> str:
    connection = await ctx.another_connection()
    token = _key(ctx).token_until(ctx.audience, _within(LIVES))
    status = await put_token(connection, ctx.audience, token)
    expect(status in (200, 202), f"a token of {LIVES:g} s is answered with {status}")
    receiver = await ctx.bare_receiver(connection)
    symbol = await expect_end(
        receiver.detached, DETACH_FORCED, "detached", within=ENDS_WITHIN, what="the link"
    )
    condition = receiver.detached.result()
    text = str(condition.description) if condition is not None else ""
    expect("Code: RenewToken." in text, f"the description is {text!r:.150}")
    return f"{symbol}, RenewToken"
