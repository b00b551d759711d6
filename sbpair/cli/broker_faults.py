"""`sbpair broker --faults PLAN --allow-faults`: what is set at start, and the door for setting more."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from sbpair.broker import Broker
    from sbpair.broker.faults import PlannedFault

LARGEST_PLAN = 1_048_576


def read(path: Path | None) -> list[PlannedFault]:
    """The faults of a plan file; none without one. Raises UsageError, which says what is wrong with it."""
    if path is None:
        return []
    from sbpair.broker import BrokerError
    from sbpair.broker.faults import read_plan

    try:
        if path.stat().st_size > LARGEST_PLAN:
            raise click.UsageError(f"--faults {path}: larger than {LARGEST_PLAN} bytes")
        return read_plan(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, BrokerError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise click.UsageError(f"--faults {path}: {reason}") from None


@contextmanager
def serving(broker: Broker, plan: list[PlannedFault], is_allowed: bool) -> Iterator[dict[str, str]]:
    """Set the plan; serve more over HTTP where allowed. What a client needs to ask for them, or nothing."""
    from sbpair.broker import BrokerError

    with ExitStack() as until_the_end:
        for planned in plan:
            try:
                broker.namespace(planned.namespace).set_fault(planned.rule)
            except BrokerError as error:
                raise click.UsageError(f"--faults: {error}") from None
        if not is_allowed:
            yield {}
            return
        from sbpair.broker.server.fault_control import FaultControl

        control = until_the_end.enter_context(FaultControl(broker))
        yield {"faults_url": control.url, "faults_token": control.token}
