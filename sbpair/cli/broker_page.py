"""`sbpair broker --page HOST:PORT --story DIR`: where the web page is served, and which journals it reads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from sbpair.broker import Broker

    from ..broker.frontends.dashboard.timeline import Records

OFF = "off"
ANYWHERE_FREE = "127.0.0.1:0"


class PageAddress(click.ParamType[tuple[str, int] | None]):
    """`127.0.0.1:8080`, `[::1]:0`; or `off`, which is None."""

    name = "host:port|off"

    def convert(
        self,
        value: str | tuple[str, int] | None,
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> tuple[str, int] | None:
        if not isinstance(value, str):
            return value
        if value == OFF:
            return None
        host, _, port = value.rpartition(":")
        if not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
            self.fail(f"{value!r} is not HOST:PORT, e.g. 127.0.0.1:8080, nor off", param, ctx)
        return host.removeprefix("[").removesuffix("]"), int(port)


@contextmanager
def serving(broker: Broker, address: tuple[str, int] | None, story: Path | None) -> Iterator[dict[str, str]]:
    """Serve the page; what opens it, or nothing where it is off. Raises DoorUnavailable."""
    if address is None:
        yield {}
        return
    from ..broker.server.dashboard import Page

    records = None if story is None else _journals(story)
    with Page(broker, host=address[0], port=address[1], records=records) as page:
        yield {"page_url": page.url}


def _journals(story: Path) -> Records:
    from sbpair.observation.journal_reading import JournalTail  # late: keeps the start fast

    return JournalTail(story).new_records
