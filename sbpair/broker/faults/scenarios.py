"""Named scenarios: a few fault rules each, and the behaviour a client should see."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from ..errors import InvalidArgument
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
    """``what`` goes wrong, what a client ``sees``, and how a ``paired`` client handles it."""

    name: str
    what: str
    sees: str
    paired: str
    rules: Callable[[str | None], tuple[FaultRule, ...]]

    def of(self, entity: str | None, seed: int = 0) -> tuple[FaultRule, ...]:
        """Return the rules for one entity, or for all. Raises InvalidArgument when the scenario needs an entity."""
        return tuple(replace(rule, seed=seed + index) for index, rule in enumerate(self.rules(entity)))


SCENARIOS: dict[str, Scenario] = {
    scenario.name: scenario
    for scenario in (
        Scenario(
            "primary-down",
            "The port is closed and connections are aborted.",
            "ServiceBusConnectionError at once, from every operation.",
            "Fails over after `failover_interval` and parks; comes home with the first ping that succeeds.",
            lambda entity: (FaultRule(Down("refuse")),),
        ),
        Scenario(
            "ack-lost",
            "The next send is stored, and its acknowledgement never comes.",
            "OperationTimeoutError after its timeout; the message is there all the same. Who sends again "
            "with the same message id delivers a duplicate; who does not must not call it lost.",
            "The send is ambiguous: parked as well, and delivered twice with one message id, at most.",
            lambda entity: (FaultRule(Withhold(), entity, times=1),),
        ),
        Scenario(
            "partition-down",
            "Partition 0 of a partitioned entity is down; what is in it waits.",
            "`com.microsoft:partition-not-available` for keys of that partition; others go on.",
            "Parks what is refused; sends without a key never notice.",
            lambda entity: (FaultRule(PartitionDown(0), entity),),
        ),
        Scenario(
            "brown-out",
            "Answers come 0.1 s late, one send in ten is throttled, and one in fifty is never answered.",
            "Slow sends, now and then ServiceBusServerBusyError, and a rare OperationTimeoutError.",
            "Waits and sends again when throttled; an answer that never comes counts as unavailable.",
            lambda entity: (
                FaultRule(Delay(0.1), entity),
                FaultRule(Throttle(), entity, probability=0.1),
                FaultRule(Withhold(), entity, probability=0.02),
            ),
        ),
        Scenario(
            "throttle-storm",
            "Two sends in three are refused with server busy, error code 50009.",
            "ServiceBusServerBusyError, which asks to wait two seconds; the SDK waits four and tries again.",
            "Waits and sends again within the caller's time; never fails over for it, unless told to.",
            lambda entity: (FaultRule(Throttle(), entity, probability=2 / 3),),
        ),
        Scenario(
            "delayed-visibility",
            "What is accepted becomes visible a minute of entity time later.",
            "Sends succeed; receivers find nothing for a minute. Not a loss, and no reason to send again.",
            "Notices nothing: what was accepted is not sent again.",
            lambda entity: (FaultRule(LateVisibility(60.0), entity),),
        ),
        Scenario(
            "flapping",
            "One second in three all connections are reset, and new ones too.",
            "ServiceBusConnectionError in bursts, and sends that succeed between them.",
            "Fails over at most once an outage, comes home between them, and parks meanwhile.",
            lambda entity: (FaultRule(Down("reset"), lasting=1.0, every=3.0),),
        ),
        Scenario(
            "silent-receiver",
            "The next receiver with a message to come gets nothing more on its link, which stays attached.",
            "Receives that return nothing although messages wait. A new receiver gets them all.",
            "Senders notice nothing. A processor peeks when it is idle, opens its link again, and reports it.",
            lambda entity: (FaultRule(SilenceLink(), entity, times=1),),
        ),
    )
}


def scenario_named(name: str) -> Scenario:
    """Return the scenario of that name. Raises InvalidArgument, which lists the known names."""
    found = SCENARIOS.get(name)
    if found is None:
        raise InvalidArgument(f"There is no scenario '{name}'; there are: {', '.join(SCENARIOS)}.")
    return found
