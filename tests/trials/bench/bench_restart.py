"""Start-up time and memory of a broker on disk with a million messages.

    python -m tests.trials.bench.bench_restart [--rounds N] [--messages N] [--quick]

A broker accepts the messages, a kibibyte each, over AMQP and stops. Then ``sbpair broker --data`` is started on the
directory, round by round: ``restart`` is the time from the start of its process to its first accepted message,
``restart ready`` the part until it has printed that it answers, ``restart cpu`` and ``restart memory`` the processor
time and the memory of the process at that point. ``read alone`` is the peer of the same round: the seconds needed to
read the files of the directory.
Prints its settings with the machine's load, then one JSON line per figure.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from sbpair.broker import Broker
from tests.trials.bench.bench_start import accepted_in
from tests.trials.bench.process import cpu_seconds, resident_bytes
from tests.trials.bench.raw_client import Endpoint, RawClient, payload
from tests.trials.bench.report import figure

MESSAGES = 1_000_000
QUICK = 20_000
CHUNK = 1 << 20


def fill(data: Path, count: int) -> None:
    """Fill a broker on this directory with messages, and stop it."""
    with Broker({"contoso": 0}, data=data) as broker:
        contoso = broker.namespace("contoso")
        contoso.create_queue("orders", max_size_in_megabytes=5120)
        fields = dict(part.partition("=")[::2] for part in contoso.connection_string.split(";"))
        endpoint = Endpoint(
            contoso.port, fields["SharedAccessKeyName"], fields["SharedAccessKey"], "localhost"
        )
        with RawClient(endpoint) as client, client.sender("orders") as sender:
            client.send(sender, payload(), count)


def restart(data: Path) -> tuple[float, float, float, float]:
    """Seconds until it is ready and until it has taken a message, seconds of processor time, and MB that it holds."""
    command = [sys.executable, "-m", "sbpair", "broker"]
    command += ["--namespace", "contoso:0", "--data", str(data), "--json"]
    begun = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            if process.stdout is None:
                raise RuntimeError("the broker has no output")
            printed = json.loads(process.stdout.readline())
            ready = time.perf_counter() - begun
            taken = accepted_in(printed["namespaces"][0], begun) / 1000
            return ready, taken, cpu_seconds(process.pid), resident_bytes(process.pid) / 1e6
        finally:
            process.terminate()
            process.wait(60)


def read_alone(data: Path) -> float:
    """Seconds that reading all files takes."""
    begun = time.perf_counter()
    for path in data.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                while file.read(CHUNK):
                    pass
    return time.perf_counter() - begun


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3, help="restarts, default %(default)s")
    parser.add_argument("--messages", type=int, default=MESSAGES, help="default %(default)s")
    parser.add_argument("--quick", action="store_true", help="one small round: to see that it runs")
    asked = parser.parse_args()
    rounds, count = (1, QUICK) if asked.quick else (asked.rounds, asked.messages)
    load = os.getloadavg()[0]
    print(f"# python {platform.python_version()}, {rounds} rounds of {count} messages, load {load:.1f}")
    with tempfile.TemporaryDirectory(prefix="sbpair-bench-restart-") as directory:
        data = Path(directory) / "data"
        fill(data, count)
        alone, figures = [], []
        for _ in range(rounds):
            alone.append(read_alone(data))
            figures.append(restart(data))
        with Broker({"contoso": 0}, data=data) as broker:
            found = broker.namespace("contoso").counts("orders").active
        if found != count + rounds:
            raise RuntimeError(f"{found} messages are there after {rounds} restarts, not {count + rounds}")
    ready, taken, cpu, memory = zip(*figures, strict=True)
    figure("restart", "s", taken, messages=count)
    figure("restart ready", "s", ready, messages=count)
    figure("restart cpu", "s", cpu, messages=count)
    figure("restart memory", "MB", memory, digits=0, messages=count)
    figure("read alone", "s", alone, messages=count)


if __name__ == "__main__":
    main()
