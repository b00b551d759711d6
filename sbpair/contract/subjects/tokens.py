"""Tokens and `$cbs`: what is granted, what is refused, and how."""

from __future__ import annotations

import time
from dataclasses import replace
from math import ceil

from sbpair.amqp.errors import DETACH_FORCED, NOT_ALLOWED, NOT_FOUND, UNAUTHORIZED_ACCESS
from sbpair.auth.credential import SharedKey, Token
from sbpair.client.connection import NamespaceConnection
from sbpair.client.dial import connect
from sbpair.client.errors import ClientError, LinkRefusedError, TokenRefusedError
from sbpair.client.request import RequestNode

from ..entry import Queue, UndecidedError, entry, expect
from ..scratch import Scratch, expect_end, expect_refusal, put_token

ARTICLE = "service-bus-amqp-protocol-guide"


FOREIGN = SharedKey(lambda: ("RootManageSharedAccessKey", "bm90IHRoZSBrZXk="))


def _key(at: Scratch) -> SharedKey:
    """The key of the target. Raises UndecidedError where it has none."""
    tokens = at.target().namespace.tokens
    if not isinstance(tokens, SharedKey):
        raise UndecidedError(
            "it needs a key that signs tokens, and the namespace is reached with another credential"
        )
    return tokens


async def _expect_refused(at: Scratch, token: Token) -> str:
    """Show a token for the queue. Raises DifferenceError unless it is refused with 401."""
    status = await put_token(await at.another_connection(), at.audience, token)
    expect(status == 401, f"the status is {status}")
    return "401"


def _within(seconds: float) -> int:
    """In so many seconds, or before them, in whole seconds since the epoch."""
    return ceil(time.time() + seconds)


@entry(
    "tokens-1",
    "A token for an entity is accepted on `$cbs`, with 202 or 200.",
    falls=("P-40", "F-41"),
    source=ARTICLE,
)
async def accepted_token(at: Scratch) -> str:
    connection = await at.another_connection()
    token = await at.target().namespace.tokens.token(at.audience)
    status = await put_token(connection, at.audience, token)
    expect(status in (200, 202), f"the status is {status}")
    return f"{status}"


@entry(
    "tokens-2",
    "A token with a wrong signature is refused with 401.",
    falls=("F-41", "P-50"),
    source=ARTICLE,
    access=True,
)
async def wrong(at: Scratch) -> str:
    return await _expect_refused(at, FOREIGN.token_until(at.audience, _within(600)))


@entry(
    "tokens-3",
    "A token that the right key signed, and that has expired, is refused with 401.",
    falls=("F-41", "H-31"),
    source=ARTICLE,
    access=True,
)
async def expired_token(at: Scratch) -> str:
    return await _expect_refused(at, _key(at).token_until(at.audience, _within(-600)))


@entry(
    "tokens-4",
    "Without a token for an entity, a link to it is refused with `unauthorized-access`.",
    falls=("P-50", "R-119"),
    source=ARTICLE,
    access=True,
)
async def none(at: Scratch) -> str:
    try:
        await at.bare_receiver(await at.another_connection())
    except LinkRefusedError as error:
        return expect_refusal(error, UNAUTHORIZED_ACCESS)
    expect(False, "it was attached")
    return ""


@entry(
    "tokens-5",
    "A connection has one link on `$cbs` in each direction.",
    falls=("X-10",),
    source="the SDKs' own tests (Go)",
)
async def one_link(at: Scratch) -> str:
    connection = await at.another_connection()
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


async def _as(at: Scratch, right: str) -> NamespaceConnection:
    """A connection with a key that has one right on the queue."""
    from azure.servicebus.management import (
        AccessRights,
        AuthorizationRule,
        ServiceBusAdministrationClient,
    )

    path = at.path()

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
        return next(str(each.primary_key) for each in rules if each.key_name == f"verify{right}")

    key = await at.admin(create_rule)
    namespace = replace(at.target().namespace, tokens=SharedKey(lambda: (f"verify{right}", key)))
    return await connect(namespace)


@entry(
    "tokens-6",
    "A key with Listen alone receives, and is refused as a sender with `unauthorized-access`.",
    falls=("P-50", "X-13"),
    source="service-bus-sas",
    entities=(Queue(),),
    manages=True,
    access=True,
)
async def listen(at: Scratch) -> str:
    connection = await _as(at, "Listen")
    try:
        await (await connection.open_receiver(at.path(), lambda event: None)).close()
        await connection.open_sender(at.path())
    except (LinkRefusedError, TokenRefusedError) as error:
        return expect_refusal(error, UNAUTHORIZED_ACCESS)
    finally:
        await connection.close()
    expect(False, "a sender was attached")
    return ""


@entry(
    "tokens-7",
    "A key with Send alone sends, and is refused as a receiver with `unauthorized-access`.",
    falls=("O-4", "P-50"),
    source="service-bus-sas",
    entities=(Queue(),),
    manages=True,
    access=True,
)
async def send(at: Scratch) -> str:
    connection = await _as(at, "Send")
    try:
        await (await connection.open_sender(at.path())).close()
        await connection.open_receiver(at.path(), lambda event: None)
    except (LinkRefusedError, TokenRefusedError) as error:
        return expect_refusal(error, UNAUTHORIZED_ACCESS)
    finally:
        await connection.close()
    expect(False, "a receiver was attached")
    return ""


@entry(
    "tokens-8",
    "A token for a missing entity is refused as missing.",
    falls=("F-42", "X-17"),
    source="the SDK's own live tests",
    entities=(),
)
async def missing(at: Scratch) -> str:
    connection = await at.another_connection()
    try:
        await connection.authorize(at.new_id())
    except (LinkRefusedError, TokenRefusedError) as error:
        return expect_refusal(error, NOT_FOUND)
    expect(False, "the token was accepted")
    return ""


@entry(
    "tokens-9",
    "A token that the right key signed for another namespace is refused with 401.",
    falls=("F-41", "P-50"),
    source=ARTICLE,
    access=True,
)
async def elsewhere(at: Scratch) -> str:
    namespace = replace(at.target().namespace, netloc="sbpair-verify.invalid")
    return await _expect_refused(at, _key(at).token_until(namespace.audience(at.path()), _within(600)))


LIVES = 4.0  # seconds that a token has
ENDS_WITHIN = 40.0  # seconds after it was shown


@entry(
    "tokens-10",
    "When the token of a link ends, the link is detached with `detach-forced` and the code RenewToken.",
    falls=("F-41", "H-31"),
    source="issues of the SDKs (six, of four clients, 2020 to 2022)",
    seconds=6.0,
    access=True,
)
async def ends_on_a_link(at: Scratch) -> str:
    connection = await at.another_connection()
    token = _key(at).token_until(at.audience, _within(LIVES))
    status = await put_token(connection, at.audience, token)
    expect(status in (200, 202), f"a token of {LIVES:g} s is answered with {status}")
    receiver = await at.bare_receiver(connection)
    symbol = await expect_end(
        receiver.detached, DETACH_FORCED, "detached", within=ENDS_WITHIN, what="the link"
    )
    condition = receiver.detached.result()
    text = str(condition.description) if condition is not None else ""
    expect("Code: RenewToken." in text, f"the description is {text!r:.150}")
    return f"{symbol}, RenewToken"
