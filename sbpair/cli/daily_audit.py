"""`sbpair audit --state`: the daily audit, its heartbeats and its webhook."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING
from uuid import uuid4

import click

from sbpair.cli.errors import ConfigurationError, configuration, one_line
from sbpair.cli.output import notice
from sbpair.cli.parameters import DurationType

if TYPE_CHECKING:
    from sbpair.audit import Engine, Expected, Summary
    from sbpair.audit.daily import DailyResult
    from sbpair.observation.webhook_delivery import WebhookReceiver

MAX_NAMED = 20  # sentences in a notice


@dataclass(frozen=True, slots=True)
class DailyFlags:
    """The flags of a daily audit, as they were given."""

    state: str
    since: datetime | None
    heartbeats: tuple[str, ...]
    webhook: str | None
    webhook_secret: str | None
    forgotten: tuple[str, ...] = ()
    reason: str = ""

    def heartbeats_by_role(self) -> dict[str, float]:
        """The seconds by role. Raises ConfigurationError for one that is not ROLE=SPAN."""
        from sbpair.observation import WriterRole

        roles = [role.value for role in WriterRole]
        found = {}
        for each in self.heartbeats:
            role, equals, span = each.partition("=")
            if not equals or role not in roles:
                raise ConfigurationError(f"--heartbeat {each}: not ROLE=SPAN; roles are {', '.join(roles)}")
            try:
                found[role] = DurationType().convert(span, None, None).total_seconds()
            except click.BadParameter as error:
                raise ConfigurationError(f"--heartbeat {each}: {error.message}") from error
        return found

    def receiver(self) -> WebhookReceiver | None:
        """Who is told of an audit that is not green. Raises ConfigurationError, without any secret in it."""
        from sbpair.cli.syphon.monitoring import monitoring_from
        from sbpair.observation import PairLabels, Patience, Webhook, WriterRole
        from sbpair.observation.webhook_delivery import WebhookReceiver

        given = monitoring_from(None, None, "", self.webhook, self.webhook_secret)
        if given.webhook is None or given.webhook_secret is None:
            return None
        with configuration():  # held to the same rules as that of a syphon
            Webhook(
                given.webhook, given.webhook_secret, role=WriterRole.SYPHON, pair=PairLabels("", "")
            ).close()
        return WebhookReceiver(given.webhook, given.webhook_secret, Patience())


def run_daily(
    journal: str,
    flags: DailyFlags,
    engine: Engine | None,
    skew: float,
    aliases: dict[str, str],
    expected: Expected,
    accept: dict[str, int],
) -> DailyResult:
    """Run the daily audit, and tell the webhook when it is not green. Raises ConfigurationError."""
    from sbpair.audit.daily import ForeignStateError, StateInUseError, Terms, UnknownFileError, audit_daily

    heartbeats, receiver = flags.heartbeats_by_role(), flags.receiver()
    since: date | None = None if flags.since is None else flags.since.date()
    terms = Terms(skew, aliases, expected, since, heartbeats, accept, flags.forgotten, flags.reason)
    try:
        found = audit_daily(journal, flags.state, terms=terms, engine=engine)
    except (StateInUseError, ForeignStateError, UnknownFileError) as error:
        raise ConfigurationError(str(error)) from error
    except OSError as error:
        raise ConfigurationError(f"{flags.state}: {error.strerror or one_line(error)}") from error
    if receiver is not None and not found.summary.is_conserved:
        _tell(receiver, found.summary)
    return found


def _tell(receiver: WebhookReceiver, summary: Summary) -> None:
    """Post one signed notice; that nobody takes it is said, and changes nothing."""
    import httpx

    from sbpair.audit.report import headline
    from sbpair.observation.webhook_delivery import NotDeliveredError, Notice, WebhookKind

    name, now = str(uuid4()), datetime.now(UTC)
    content = {
        "kind": WebhookKind.AUDIT.value,
        "id": name,
        "at": now.isoformat(timespec="milliseconds"),
        "event": "audit_failed",
        "headline": headline(summary),
        "missed": summary.missed[:MAX_NAMED],
    }
    body = json.dumps(content, separators=(",", ":")).encode("ascii")

    async def deliver() -> None:
        timeout = receiver.patience.request_timeout
        async with httpx.AsyncClient(timeout=timeout, follow_redirects=False) as client:
            await receiver.deliver(
                client,
                Notice(WebhookKind.AUDIT, name, body),
                lambda: datetime.now(UTC).timestamp(),
                lambda: None,
            )

    try:
        asyncio.run(deliver())
    except NotDeliveredError as error:
        notice(f"the webhook was not told: {one_line(error)}", "audit")
