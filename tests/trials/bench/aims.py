"""Performance targets, each with the figure that decides whether it is met.

An aim names a figure and a bound; its evidence is other figures, which explain why it is not met. This module contains
no measured figures: they come from a run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.trials.bench.peers import BEST_OF

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


def _at_most(what: str) -> tuple[Of, ...]:
    return of(f"broker.{what}_cpu", **_HOME), *(of(f"broker.{what}", peer=peer) for peer in BEST_OF)


_HOME = {"peer": "sbpair"}
_OVER = {"brokers": len(BEST_OF)}
_ONE_CORE = (
    "the broker is one Python thread: it spends {0} µs per message, so one core processes at most {rate0} per "
    "second; RabbitMQ 4, Artemis and Broker-J used all cores for {1}, {2} and {3} per second"
)
_LATENCY = "{0} µs against {1}, {2} and {3} µs; a server that only echoes takes {4} µs: two process wake-ups"
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
_BEST = "the best of RabbitMQ 4, Artemis and Broker-J"

_ENGINE = (
    Aim(
        "engine, both ends in one process, messages a second",
        of("amqp.send_accept.both_ends"),
        AT_LEAST,
        450_000,
        "the client's end alone reaches {0} per second; one process does the work of both",
        (of("amqp.send_accept.client_alone"),),
    ),
)
_BROKER_RATES = tuple(
    Aim(
        f"{what}, over {_BEST}",
        of(f"broker.{name}.over_best", **_OVER),
        AT_LEAST,
        bound,
        _ONE_CORE,
        _at_most(name),
    )
    for what, name, bound in (
        ("enqueue", "enqueue", 5),
        ("receive and settle each", "receive_each", 3),
        ("receive and settle in ranges", "receive_ranged", 4),
    )
)
_BROKER_ON_DISK = (
    Aim(
        f"durable enqueue, over {_BEST}",
        of("broker.durable_enqueue.over_best", **_OVER),
        AT_LEAST,
        4,
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
)
_BROKER_LATENCY = tuple(
    Aim(
        f"time to acknowledge, {what}, of {_BEST}",
        of(f"broker.{name}.over_best", **_OVER),
        AT_MOST,
        bound,
        _LATENCY,
        (
            of(f"broker.{name}", **_HOME),
            *(of(f"broker.{name}", peer=peer) for peer in BEST_OF),
            of(name.replace("ack", "broker.echo")),
        ),
    )
    for what, name, bound in (("median", "ack_p50", 0.5), ("99th percentile", "ack_p99", 0.3))
)
_BROKER = (
    Aim("start of the command to the first accepted message, ms", of("command"), AT_MOST, 350),
    Aim("start with a million messages on disk, s", of("restart", messages=1_000_000), AT_MOST, 10),
    Aim("memory when idle, MB", of("memory.idle", **_HOME), AT_MOST, 60),
    Aim("memory of a waiting message of 1 KiB, KiB", of("memory.message", **_HOME), AT_MOST, 1.6),
    *(
        Aim(
            f"cost of a message, from 1 000 to a million waiting: {kind}",
            of("waiting.growth", kind=kind, up_to=1_000_000),
            AT_MOST,
            1.2,
            "the processor's caches hold a thousand messages, but not a million",
        )
        for kind in ("plain", "partitioned", "session", "scheduled", "with a time to live", "deferred")
    ),
    *(
        Aim(
            f"another client's slowest send while a million messages are {kind}, ms",
            of("bulk.slowest", kind=kind, messages=1_000_000),
            AT_MOST,
            50,
            "with nothing else to do it takes {0} ms; the broker's longest garbage collection took {1} ms",
            (
                of("bulk.slowest", kind="nothing", messages=1_000_000),
                of("bulk.collection", kind=kind, messages=1_000_000),
            ),
        )
        for kind in ("due at once", "forwarded")
    ),
)
_SENDER = (
    Aim(
        "CPU of the paired sender while healthy, over the bare SDK",
        of("send.healthy_path_cpu"),
        AT_MOST,
        1.02,
        "{1} µs instead of {0} µs; the copy of the message, which a failover may park, takes {2} µs alone",
        (of("send.healthy_path_cpu.bare"), of("send.healthy_path_cpu.paired"), of("send.copy_cpu")),
    ),
    *(
        aim
        for network in ("50 ms", "100 ms")
        for aim in (
            Aim(
                f"asyncio sends at {network}, 1 to 1,000 tasks: the least rate, of the SDK's",
                of("crowd.least_rate_over_sdk", network=network, up_to=1000),
                AT_LEAST,
                1,
            ),
            Aim(
                f"asyncio sends at {network}, 1 to 1,000 tasks: the greatest 99th percentile, of the SDK's",
                of("crowd.greatest_p99_over_sdk", network=network, up_to=1000),
                AT_MOST,
                1,
            ),
        )
    ),
    *(
        Aim(
            f"first send of a new client at 100 ms, {interface}, of the SDK's",
            of("first_send.over_sdk", interface=interface, network="100 ms"),
            AT_MOST,
            1,
        )
        for interface in ("blocking", "asyncio")
    ),
    Aim("200 tasks at a failover: all parked, s", of("crowd.parked", tasks=200), AT_MOST, 0.5),
    Aim(
        "failing over: end of the interval to the first message parked, ms",
        of("failover.first_parked"),
        AT_MOST,
        20,
    ),
    Aim(
        "failing back: the ping's accept to the first message home, ms", of("failover.first_home"), AT_MOST, 5
    ),
)
_SYPHON = (
    *(
        Aim(what, of(name, **labels), AT_LEAST, bound, _RELAY_COST, _RELAY_CPU)
        for what, name, labels, bound in (
            (
                "syphon on loopback, messages a second",
                "syphon.relay",
                {"relay": "syphon", "network": "loopback"},
                60_000,
            ),
            (
                "syphon at 20 ms of round trip, messages a second",
                "syphon.relay",
                {"relay": "syphon", "network": "20 ms"},
                20_000,
            ),
            (
                "syphon on loopback, over the SDK's plain loop",
                "syphon.over_naive",
                {"network": "loopback"},
                40,
            ),
            (
                "syphon on loopback, over the best relay with the SDK",
                "syphon.over_best_sdk",
                {"network": "loopback"},
                10,
            ),
            ("syphon at 20 ms, over the SDK's plain loop", "syphon.over_naive", {"network": "20 ms"}, 500),
        )
    ),
    *(
        Aim(
            f"syphon past {stuck} {how} destination{'s' if stuck > 1 else ''}, of its rate without",
            of("stuck.past", how=how, stuck=stuck),
            AT_LEAST,
            0.8,
        )
        for how in ("creditless", "full")
        for stuck in (1, 3, 10)
    ),
    Aim(
        "syphon of 1,000 ordered sessions, messages a second",
        of("order.drain", sessions=1000),
        AT_LEAST,
        10_000,
    ),
)
_PROCESSOR = (
    *(
        Aim(
            f"processor {where}, over the SDK's receive and complete{of_sessions}",
            of("processor.over_sdk", network=network, **entity),
            AT_LEAST,
            bound,
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
AIMS: tuple[Aim, ...] = (
    *_ENGINE,
    *_BROKER_RATES,
    *_BROKER_ON_DISK,
    *_BROKER_LATENCY,
    *_BROKER,
    *_SENDER,
    *_SYPHON,
    *_PROCESSOR,
)
