"""The broker's dashboard: entities, messages, connections, refusals and the history of the pair.

    with Broker({"contoso": 0}) as broker, Page(broker) as page:
        print(page.url)

It has a port of its own and always requires its token, because it shows message bodies and changes entities.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .broker import Broker
from .http_endpoint import LOOPBACK, HttpEndpoint

if TYPE_CHECKING:
    from aiohttp import web

    from ..frontends.dashboard.timeline import Records


class Page(HttpEndpoint):
    """Serves the dashboard of ``broker`` inside its ``with``; ``url``, which contains the token, opens it.

    ``host``, ``port``: where to listen, 0 for any free port. ``records``: called while the page is open;
    returns the journal records since the last call, which become the history of the pair. Entering raises
    EndpointUnavailableError, which names host and port.
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
        """The URL to open; its token is exchanged for a session at once."""
        return f"{self.address}/?token={self.token}"

    def application(self) -> web.Application:
        """Return the application to serve."""
        # Imported late: aiohttp is loaded when the page is first opened.
        from .dashboard_application import PageApplication

        return PageApplication(self._broker, self, self._records).application()
