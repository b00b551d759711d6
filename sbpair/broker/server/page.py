"""The broker's web page: what is in it, who is connected, what was refused, how the pairing fared.

with Broker({"contoso": 0}) as broker, Page(broker) as page:
    print(page.url)

Read-only, on a port of its own, and guarded by a token of its own wherever it listens: bodies are shown.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .broker import Broker
from .door import LOOPBACK, Door

if TYPE_CHECKING:
    from aiohttp import web

    from ..faces.page.story import Records


class Page(Door):
    """Serves the page of ``broker`` inside its ``with``; ``url`` opens it, token and all.

    ``host``, ``port``: where, 0 for any free port. ``records``: asked, while somebody looks, for the journal
    records that came since it was last asked; they become the story of the pairing. Entering raises
    DoorUnavailable, which names host and port.
    """

    def __init__(
        self, broker: Broker, *, host: str = LOOPBACK, port: int = 0, records: Records | None = None
    ) -> None:
        super().__init__("page", host, port)
        self._broker = broker
        self._records = records

    def __repr__(self) -> str:
        return f"Page({self.address})"

    @property
    def url(self) -> str:
        """What to open: the token in it becomes a cookie at once."""
        return f"{self.address}/?token={self.token}"

    def application(self) -> web.Application:
        """What is served."""
        from .page_application import PageApplication  # late: a page that nobody opens does not load aiohttp

        return PageApplication(self._broker, self, self._records).application()
