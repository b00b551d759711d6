"""Performance targets, each with the figure that decides whether it is met.

An aim names a figure and a bound; its evidence is other figures, which explain why it is not met. This module contains
no measured figures: they come from a run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Figure = Mapping[str, object]
AT_LEAST, AT_MOST = "≥", "≤"


@dataclass(frozen=True, slots=True)
class Of:
    """A figure by its name and what tells it from others of that name."""

    name: str
    labels: tuple[tuple[str, object], ...] = ()

    def find(self, figures: Sequence[Figure]) -> Figure | None:
        """The figure, if the run has it."""
        for figure in figures:
            if figure["name"] == self.name and all(figure.get(key) == value for key, value in self.labels):
                return figure
        return None


def of(name: str, **labels: object) -> Of:
    return Of(name, tuple(labels.items()))


@dataclass(frozen=True, slots=True)
class Aim:
    """One bound.

    ``reason`` is a text with ``{0}`` … for the medians of ``evidence``, and ``{rate0}`` … for how many a
    second so many microseconds of one core allow.
    """

    what: str
    figure: Of
    sign: str
    bound: float
    beyond: float | None = None
    reason: str = ""
    evidence: tuple[Of, ...] = ()

    def holds(self, value: float) -> bool:
        """Whether a median is within the bound."""
        return value >= self.bound if self.sign == AT_LEAST else value <= self.bound

    def because(self, figures: Sequence[Figure]) -> str:
        """Why it does not hold, with what was measured; "" when the run cannot tell."""
        found = [reference.find(figures) for reference in self.evidence]
        if not self.reason or None in found:
            return ""
        medians = [float(str(figure["median"])) for figure in found if figure is not None]
        rates = {f"rate{n}": f"{1e6 / median:,.0f}" for n, median in enumerate(medians) if median}
        return self.reason.format(*(f"{median:g}" for median in medians), **rates)


def _cpu(what: str) -> tuple[Of, ...]:
    return of(f"broker.{what}_cpu", peer="sbpair"), of(f"broker.{what}", peer="rabbitmq")


_ONE_CORE = (
    "the broker is one Python thread: it spends {0} µs per message, so one core processes at most {rate0} per "
    "second; RabbitMQ used all cores for {1} per second"
)
_HOME, _OVER = {"peer": "sbpair"}, {"over": "rabbitmq"}
_FAR = of("syphon.relay", relay="syphon", network="20 ms")
_NEAR = of("syphon.relay", relay="syphon", network="loopback")
_RELAY_COST = (
    "the syphon's process spends {0} µs per message and the broker's {1} µs, each on one core: at most {rate0} "
    "and {rate1} per second with a core each"
)
_RELAY_CPU = (
    of("syphon.relay_cpu", relay="syphon", network="loopback"),
    of("syphon.broker_cpu", relay="syphon", network="loopback"),
)

_QUEUE, _CARTS = {"entity": "queue"}, {"entity": "session queue"}
_HANDLING_COST = (
    "the processor's process spends {0} µs per message and the broker's {1} µs, each on one core: at most {rate0} "
    "and {rate1} per second"
)
_HANDLING_CPU = tuple(
    of(f"processor.{process}_cpu", consumer="processor", network="loopback", **_QUEUE)
    for process in ("consumer", "broker")
)

AIMS: tuple[Aim, ...] = (
    Aim(
        "enqueue, over RabbitMQ transient",
        of("broker.enqueue.ratio", **_OVER),
        AT_LEAST,
        4,
        6,
        _ONE_CORE,
        _cpu("enqueue"),
    ),
    Aim(
        "receive and settle each, over RabbitMQ transient",
        of("broker.receive_each.ratio", **_OVER),
        AT_LEAST,
        2,
        3,
        _ONE_CORE,
        _cpu("receive_each"),
    ),
    Aim(
        "receive and settle in ranges, over RabbitMQ transient",
        of("broker.receive_ranged.ratio", **_OVER),
        AT_LEAST,
        2,
        3,
        _ONE_CORE,
        _cpu("receive_ranged"),
    ),
    Aim(
        "durable enqueue, over RabbitMQ durable",
        of("broker.durable_enqueue.ratio", **_OVER),
        AT_LEAST,
        4,
        6,
        "{0} per second: a message costs {1} µs as in memory, {2} µs more in the event loop for its row, and {3} µs "
        "in the syncing thread; the disk alone accepts {4} such messages per second, with a sync per 256",
        (
            of("broker.durable_enqueue", **_HOME),
            of("broker.enqueue_cpu", **_HOME),
            of("store.enqueue_turn_cpu", group=256),
            of("store.enqueue_sync_cpu", group=256),
            of("store.floor", group=256),
        ),
    ),
    Aim(
        "time to acknowledge, median, of RabbitMQ's",
        of("broker.ack_p50.ratio", **_OVER),
        AT_MOST,
        0.7,
        None,
        "{0} µs against {1} µs; a server that only echoes takes {2} µs: two process wake-ups",
        (of("broker.ack_p50", **_HOME), of("broker.ack_p50", peer="rabbitmq"), of("broker.echo_p50")),
    ),
    Aim(
        "time to acknowledge, 99th percentile, of RabbitMQ's",
        of("broker.ack_p99.ratio", **_OVER),
        AT_MOST,
        0.5,
        None,
        "{0} µs against {1} µs; a server that only echoes takes {2} µs",
        (of("broker.ack_p99", **_HOME), of("broker.ack_p99", peer="rabbitmq"), of("broker.echo_p99")),
    ),
    Aim("start of the command to the first accepted message, ms", of("command"), AT_MOST, 350),
    Aim("memory when idle, MB", of("memory.idle", **_HOME), AT_MOST, 60),
    Aim("memory of a waiting message of 1 KiB, KiB", of("memory.message", **_HOME), AT_MOST, 1.6),
    *(
        Aim(
            f"cost of a message, from 1 000 to the most waiting: {kind}",
            of("waiting.growth", kind=kind),
            AT_MOST,
            1.2,
            None,
            "the processor's caches hold a thousand messages, but not a million",
        )
        for kind in ("plain", "partitioned", "session", "scheduled", "with a time to live", "deferred")
    ),
    Aim(
        "CPU of the paired sender while healthy, over the bare SDK",
        of("send.healthy_path_cpu"),
        AT_MOST,
        1.05,
        1.02,
    ),
    Aim(
        "failing over: end of the interval to the first message parked, ms",
        of("failover.first_parked"),
        AT_MOST,
        20,
    ),
    Aim(
        "failing back: the ping's accept to the first message home, ms", of("failover.first_home"), AT_MOST, 5
    ),
    Aim("syphon on loopback, messages a second", _NEAR, AT_LEAST, 30_000, 40_000, _RELAY_COST, _RELAY_CPU),
    Aim(
        "syphon at 20 ms of round trip, messages a second",
        _FAR,
        AT_LEAST,
        10_000,
        None,
        _RELAY_COST,
        _RELAY_CPU,
    ),
    Aim(
        "syphon on loopback, over the SDK's plain loop",
        of("syphon.over_naive", network="loopback"),
        AT_LEAST,
        20,
        40,
        _RELAY_COST,
        _RELAY_CPU,
    ),
    Aim(
        "syphon on loopback, over the best relay with the SDK",
        of("syphon.over_best_sdk", network="loopback"),
        AT_LEAST,
        10,
        None,
        _RELAY_COST,
        _RELAY_CPU,
    ),
    Aim(
        "syphon at 20 ms, over the SDK's plain loop",
        of("syphon.over_naive", network="20 ms"),
        AT_LEAST,
        500,
        None,
        _RELAY_COST,
        _RELAY_CPU,
    ),
    *(
        Aim(
            f"processor {where}, over the SDK's receive and complete{of_sessions}",
            of("processor.over_sdk", network=network, **entity),
            AT_LEAST,
            bound,
            None,
            _HANDLING_COST,
            _HANDLING_CPU,
        )
        for entity, of_sessions in ((_QUEUE, ""), (_CARTS, ", in sessions"))
        for network, where, bound in (("loopback", "on loopback", 15), ("20 ms", "at 20 ms", 300))
    ),
    *(
        Aim(
            f"CPU of a message in the processor, of the SDK's{of_sessions}",
            of("processor.cpu_of_sdk", **entity),
            AT_MOST,
            0.1,
        )
        for entity, of_sessions in ((_QUEUE, ""), (_CARTS, ", in sessions"))
    ),
)
