"""The broker's web page: what is in it, who is connected, what was refused, how the pairing fared.

with Broker({"contoso": 0}) as broker, Page(broker) as page:
    print(page.url)

Read-only, on a port of its own, and guarded by a token of its own wherever it listens: bodies are shown.
"""

from __future__ import annotations

import secrets
from types import TracebackType
from typing import TYPE_CHECKING

from .broker import Broker
from .door import LOOPBACK, Door

if TYPE_CHECKING:
    from aiohttp import web

    from ..faces.page_story import Records


class Page:
    """Serves the page of ``broker`` inside its ``with``; ``url`` opens it, token and all.

    ``host``, ``port``: where, 0 for any free port. ``records``: asked, while somebody looks, for the journal
    records that came since it was last asked; they become the story of the pairing. Entering raises
    DoorUnavailable, which names host and port.
    """

    def __init__(
        self, broker: Broker, *, host: str = LOOPBACK, port: int = 0, records: Records | None = None
    ) -> None:
        self.token = secrets.token_urlsafe(24)
        self._broker = broker
        self._records = records
        self._door = Door("page", self._application, host, port)

    def __repr__(self) -> str:
        return f"Page({self._door.url})"

    @property
    def address(self) -> str:
        """Where it is, without the token."""
        return self._door.url

    @property
    def url(self) -> str:
        """What to open: the token in it becomes a cookie at once."""
        return f"{self._door.url}/?token={self.token}"

    def __enter__(self) -> Page:
        self._door.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._door.__exit__(kind, error, trace)

    def _application(self) -> web.Application:
        from .page_application import PageApplication  # late: a page that nobody opens does not load aiohttp

        return PageApplication(self._broker, self.token, self._door.port, self._records).application()
