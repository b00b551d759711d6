"""Named scenarios: a few fault rules each, and the behaviour a client should see."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from ..errors import InvalidArgumentError
from .effects import (
    Delay,
    Down,
    LateVisibility,
    PartitionDown,
    SilenceLink,
    Throttle,
    Withhold,
)
from .rule import FaultRule


@dataclass(frozen=True, slots=True)
class Scenario:
    """The fault of a scenario (``what``), what a client ``sees``, and how a ``paired`` client handles it."""

    name: str
    what: str
    sees: str
    paired: str
    rules: Callable[[str | None], tuple[FaultRule, ...]]

    def of(self, entity: str | None, seed: int = 0) -> tuple[FaultRule, ...]:
        """Return the rules for one entity, or for all if None.

        Raises InvalidArgumentError if the scenario needs one.
        """
        return tuple(replace(rule, seed=seed + index) for index, rule in enumerate(self.rules(entity)))


SCENARIOS: dict[str, Scenario] = {
    scenario.name: scenario
    for scenario in (
        Scenario(
            "primary-down",
            "The port is closed and connections are aborted.",
            "ServiceBusConnectionError at once, from every operation.",
            "Fails over after `failover_interval` and parks; recovers with the first successful ping.",
            lambda entity: (FaultRule(Down("refuse")),),
        ),
        Scenario(
            "ack-lost",
            "The next send is stored but never acknowledged.",
            "OperationTimeoutError after its timeout, although the message is stored. Sending it again with "
            "the same message id creates a duplicate; not sending it again loses nothing.",
            "The send is ambiguous: the message is parked too, and delivered at most twice, with one message id.",
            lambda entity: (FaultRule(Withhold(), entity, times=1),),
        ),
        Scenario(
            "partition-down",
            "Partition 0 of a partitioned entity is down; its messages wait.",
            "`com.microsoft:partition-not-available` for keys of that partition; other sends succeed.",
            "Parks the refused messages; sends without a key are not affected.",
            lambda entity: (FaultRule(PartitionDown(0), entity),),
        ),
        Scenario(
            "brown-out",
            "Answers come 0.1 s late, one send in ten is throttled, and one in fifty is never answered.",
            "Slow sends, now and then ServiceBusServerBusyError, and a rare OperationTimeoutError.",
            "Waits and retries when throttled; a missing answer counts as unavailable.",
            lambda entity: (
                FaultRule(Delay(0.1), entity),
                FaultRule(Throttle(), entity, probability=0.1),
                FaultRule(Withhold(), entity, probability=0.02),
            ),
        ),
        Scenario(
            "throttle-storm",
            "Two sends in three are refused with server busy, error code 50009.",
            "ServiceBusServerBusyError, which requests a wait of two seconds; the SDK waits four and retries.",
            "Waits and retries within the caller's time; fails over only with `failover_on_busy_after`.",
            lambda entity: (FaultRule(Throttle(), entity, probability=2 / 3),),
        ),
        Scenario(
            "delayed-visibility",
            "Accepted messages become visible a minute of entity time later.",
            "Sends succeed; receivers find nothing for a minute. Nothing is lost, and nothing should be sent again.",
            "Not affected: accepted messages are not sent again.",
            lambda entity: (FaultRule(LateVisibility(60.0), entity),),
        ),
        Scenario(
            "flapping",
            "For one second in three, existing and new connections are reset.",
            "ServiceBusConnectionError in bursts, and sends that succeed between them.",
            "Fails over at most once per outage, recovers in between, and parks meanwhile.",
            lambda entity: (FaultRule(Down("reset"), lasting=1.0, every=3.0),),
        ),
        Scenario(
            "silent-receiver",
            "The next receiver that would get a message gets none on its link, which stays attached.",
            "Receives return nothing although messages wait. A new receiver gets all of them.",
            "Senders are not affected. A processor peeks when idle, reopens its link, and reports it.",
            lambda entity: (FaultRule(SilenceLink(), entity, times=1),),
        ),
    )
}


def scenario_named(name: str) -> Scenario:
    """Return the scenario of that name. Raises InvalidArgumentError, which lists the known names."""
    found = SCENARIOS.get(name)
    if found is None:
        raise InvalidArgumentError(f"There is no scenario '{name}'; there are: {', '.join(SCENARIOS)}.")
    return found
