"""How is a client to be seen from outside? What its options say of that. Pure: the standard library only."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

SHORTEST_SECRET = 16  # characters


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservationOptions:
    """What a client writes and serves about itself; each is off unless asked for.

    Raises ValueError or TypeError when made. It begins with the first sender, in a forked child anew, and
    ends with the client.
    """

    journal: str | Path | None = None
    """A directory for the journal: every event is a line there, the closing record is the last."""

    journal_sends: bool = False
    """Write a line for every send that a broker accepted, healthy ones too."""

    status: tuple[str, int] | None = None
    """Host and port for /health, /ready, /metrics and /state; port 0 takes a free one."""

    webhook: str | None = field(default=None, repr=False)
    """An http or https URL that is told of failover, failback and dead letters."""

    webhook_secret: str | None = field(default=None, repr=False)
    """What the notices are signed with: 16 characters or more."""

    def __post_init__(self) -> None:
        if self.journal is not None and not (isinstance(self.journal, (str, Path)) and str(self.journal)):
            raise TypeError(f"journal must be the path of a directory, not {self.journal!r}")
        if not isinstance(self.journal_sends, bool):
            raise TypeError(f"journal_sends must be True or False, not {self.journal_sends!r}")
        if self.journal_sends and self.journal is None:
            raise ValueError("journal_sends needs a journal")
        if self.status is not None:
            _check_address(self.status)
        if (self.webhook is None) != (self.webhook_secret is None):
            raise ValueError("webhook and webhook_secret go together; one of them is missing")
        if self.webhook is not None and not self.webhook.startswith(("http://", "https://")):
            raise ValueError("webhook must be an http or https URL")  # not told: it may hold a token
        if self.webhook_secret is not None and len(self.webhook_secret) < SHORTEST_SECRET:
            raise ValueError(f"webhook_secret must have at least {SHORTEST_SECRET} characters")


def _check_address(address: object) -> None:
    match address:
        case (str() as host, int() as port) if host and not isinstance(port, bool) and 0 <= port <= 65535:
            return
    raise ValueError(
        f'status must be a host and a port from 0 to 65535, as ("127.0.0.1", 0), not {address!r}'
    )
