"""Time until a broker that was just started has accepted its first message.

    python -m tests.trials.bench.bench_start [--rounds N] [--quick]

``command``: from the start of ``sbpair broker`` as a process to the first accepted send, by a raw
AMQP client that is loaded already (the Python SDK takes 0.4 s of its own to connect and send); ``ready`` is
the part until the command has printed that it answers, ``command cpu`` the processor time of its process, shutdown
included. ``process``: the same with a Broker in this process, and ``ready in process`` until its ports answer.
Prints one JSON line per figure.
"""

from __future__ import annotations

import json
import platform
import resource
import subprocess
import sys
import time

from sbpair.broker import Broker
from tests.trials.bench.raw_client import Endpoint, RawClient, payload
from tests.trials.bench.report import figure, settings

COMMAND = (
    sys.executable, "-m", "sbpair", "broker",
    "--namespace", "contoso:0", "--queue", "contoso/orders", "--json",
)  # fmt: skip


def accepted_in(namespace: dict[str, object], begun: float) -> float:
    """Milliseconds from ``begun`` to the first accepted message."""
    fields = dict(part.partition("=")[::2] for part in str(namespace["connection_string"]).split(";"))
    endpoint = Endpoint(
        int(str(namespace["port"])), fields["SharedAccessKeyName"], fields["SharedAccessKey"], "localhost"
    )
    with RawClient(endpoint) as client, client.sender("orders") as sender:
        client.send(sender, payload(), 1)
        return (time.perf_counter() - begun) * 1000


def from_the_command() -> tuple[float, float, float]:
    """Milliseconds until it is ready, until it has taken a message, and of CPU in all."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begun = time.perf_counter()
    with subprocess.Popen(COMMAND, stdout=subprocess.PIPE, text=True) as process:
        if process.stdout is None:
            raise RuntimeError("the broker has no output")
        printed = json.loads(process.stdout.readline())
        ready = (time.perf_counter() - begun) * 1000
        taken = accepted_in(printed["namespaces"][0], begun)
        process.terminate()
        process.wait(20)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return ready, taken, cpu * 1000


def in_process() -> tuple[float, float]:
    """Milliseconds until the ports answer, and until a message is taken."""
    begun = time.perf_counter()
    with Broker({"contoso": 0}) as broker:
        ready = (time.perf_counter() - begun) * 1000
        contoso = broker.namespace("contoso")
        contoso.create_queue("orders")
        taken = accepted_in({"port": contoso.port, "connection_string": contoso.connection_string}, begun)
    return ready, taken


def main() -> None:
    times = settings(__doc__, 5).rounds
    print(f"python {platform.python_version()}, {times} rounds, aims: command 350 ms, process 50 ms")
    in_process()  # what is loaded with the first connection
    ready, taken, cpu = zip(*(from_the_command() for _ in range(times)), strict=True)
    figure("ready", "ms", ready)
    figure("command", "ms", taken)
    figure("command cpu", "ms", cpu)
    ready_here, taken_here = zip(*(in_process() for _ in range(times)), strict=True)
    figure("ready in process", "ms", ready_here)
    figure("process", "ms", taken_here)


if __name__ == "__main__":
    main()
