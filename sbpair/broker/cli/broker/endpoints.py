"""The HTTP endpoints of `sbpair broker`: fault and time control (--allow-faults, --driven-time), and the page."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from sbpair.broker import Broker
    from sbpair.broker.faults.plan import PlannedFault

MAX_PLAN_BYTES = 1_048_576  # bytes


def read_faults(path: Path | None) -> list[PlannedFault]:
    """Return the faults of a plan file; none without a path. Raises UsageError when the plan is invalid."""
    if path is None:
        return []
    from sbpair.broker import BrokerError
    from sbpair.broker.faults.plan import read_plan
    from sbpair.pair.auth.connection_string import read_text

    try:
        return read_plan(read_text(path, "--faults", MAX_PLAN_BYTES))
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    except BrokerError as error:
        raise click.UsageError(f"--faults {path}: {error}") from None


@contextmanager
def serving_control(
    broker: Broker, plan: list[PlannedFault], *, faults: bool, time: bool
) -> Iterator[dict[str, str]]:
    """Apply the plan, and serve fault and time control over HTTP as far as allowed.

    Yields the URL and the token of each that a client needs; nothing when neither is allowed. Raises UsageError for a
    fault that the broker does not have.
    """
    from sbpair.broker import BrokerError

    with ExitStack() as until_the_end:
        for planned in plan:
            try:
                broker.namespace(planned.namespace).set_fault(planned.rule)
            except BrokerError as error:
                raise click.UsageError(f"--faults: {error}") from None
        if not faults and not time:
            yield {}
            return
        from sbpair.broker.server.fault_control import FaultControl

        control = until_the_end.enter_context(FaultControl(broker, faults=faults, time=time))
        endpoints = {"faults_url": control.url, "faults_token": control.token} if faults else {}
        if time:
            endpoints |= {"time_url": control.time_url, "time_token": control.token}
        yield endpoints


@contextmanager
def serving_page(
    broker: Broker, address: tuple[str, int] | None, story: Path | None
) -> Iterator[dict[str, str]]:
    """Serve the web page, with the journals in ``story`` if given; nothing without an address.

    Yields its URL. Raises EndpointUnavailableError when the address is taken.
    """
    if address is None:
        yield {}
        return
    from sbpair.broker.server.dashboard import Page

    records = None
    if story is not None:
        from sbpair.pair.observation.journal_reading import JournalTail

        records = JournalTail(story).new_records
    with Page(broker, host=address[0], port=address[1], records=records) as page:
        yield {"page_url": page.url}
