"""`sbpair broker --faults PLAN --allow-faults`: what is set at start, and the door for setting more."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from sbpair.broker import Broker
    from sbpair.broker.faults.plan import PlannedFault

LARGEST_PLAN = 1_048_576


def read(path: Path | None) -> list[PlannedFault]:
    """The faults of a plan file; none without one. Raises UsageError, which says what is wrong with it."""
    if path is None:
        return []
    from sbpair.broker import BrokerError
    from sbpair.broker.faults.plan import read_plan
    from sbpair.syphon.reference import read_text

    try:
        return read_plan(read_text(path, "--faults", LARGEST_PLAN))
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    except BrokerError as error:
        raise click.UsageError(f"--faults {path}: {error}") from None


@contextmanager
def serving(
    broker: Broker, plan: list[PlannedFault], *, faults: bool, time: bool
) -> Iterator[dict[str, str]]:
    """Set the plan; serve more of them, or time, over HTTP where allowed. What a client needs to ask."""
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
        told = {"faults_url": control.url} if faults else {}
        if time:
            told["time_url"] = control.time_url
        yield {**told, "faults_token" if faults else "time_token": control.token}
