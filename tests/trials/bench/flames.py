"""Flame graphs of five operations, for docs/evidence/performance.

    python -m tests.trials.bench.flames [WAY ...] [--seconds N] [--out DIR]

    enqueue    the broker accepts messages
    settle     the broker delivers messages, each settled separately
    durable    the broker on disk accepts durable messages
    syphon     the syphon forwards parked messages
    sender     the paired sender sends on the healthy path, one message after the other

Another process does the work at the other end, as in the benchmarks. py-spy (``pip install py-spy``) samples the
process; a width is a share of CPU time. Functions are shown without their lines, so that a file stays below 150 kB.
Exit code 1 if one is larger.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from multiprocessing.connection import Connection
from pathlib import Path

from azure.servicebus import ServiceBusMessage

from sbpair import PairedServiceBusClient
from tests.trials.bench import bench_send, bench_syphon
from tests.trials.bench.peers import DURABLE_QUEUE, QUEUE, OurBroker
from tests.trials.bench.raw_client import RawClient, payload
from tests.trials.bench.site import Site, sites_of

OUT = Path(__file__).parents[3] / "docs" / "evidence" / "performance"
SAMPLES_PER_SECOND = 250
MOST_BYTES = 150_000
STEP = 10_000  # messages
WAITING = 400_000  # messages that are settled, or parked: enough for some seconds
PROCESSES = multiprocessing.get_context("spawn")


@contextmanager
def repeated(work: Callable[[], object]) -> Iterator[None]:
    """Work again and again in a thread, until the block ends."""
    is_over = threading.Event()

    def run() -> None:
        while not is_over.is_set():
            work()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


@contextmanager
def enqueue() -> Iterator[int]:
    """The process id of a broker that accepts messages."""
    with (
        OurBroker() as broker,
        RawClient(broker.endpoint) as client,
        client.sender(QUEUE) as sender,
        repeated(lambda: client.send(sender, payload(), STEP)),
    ):
        yield broker.pid


@contextmanager
def durable() -> Iterator[int]:
    """The same on disk."""
    body = payload(durable=True)
    with (
        OurBroker(on_disk=True) as broker,
        RawClient(broker.endpoint) as client,
        client.sender(DURABLE_QUEUE) as sender,
        repeated(lambda: client.send(sender, body, STEP)),
    ):
        yield broker.pid


@contextmanager
def settle() -> Iterator[int]:
    """The process id of a broker that delivers messages."""
    with OurBroker() as broker, RawClient(broker.endpoint) as client:
        with client.sender(QUEUE) as sender:
            client.send(sender, payload(), WAITING)
        left = WAITING

        def receive() -> None:
            nonlocal left
            if left:
                client.receive(receiver, STEP, each=True)
                left -= STEP

        with client.receiver(QUEUE) as receiver, repeated(receive):
            yield broker.pid


@contextmanager
def working(work: Callable[..., None], *arguments: object) -> Iterator[int]:
    """The process id of a process that works until the block ends; it sends a message when it begins."""
    ours, theirs = PROCESSES.Pipe()
    process = PROCESSES.Process(target=work, args=(theirs, *arguments))
    process.start()
    theirs.close()
    try:
        ours.recv()
        assert process.pid is not None
        yield process.pid
    finally:
        process.terminate()
        process.join()
        ours.close()


def drain(pipe: Connection, site: Site, backlogs: dict[str, int]) -> None:
    pipe.send("begins")
    bench_syphon.by_syphon(site, backlogs)
    pipe.poll(None)


@contextmanager
def syphon() -> Iterator[int]:
    """The process id of a syphon that drains."""
    backlogs = dict.fromkeys(bench_syphon.BACKLOGS, WAITING // len(bench_syphon.BACKLOGS))
    with sites_of(bench_syphon.broker_process, {"loopback": 0.0}) as (broker, sites):
        broker.ask("fresh")
        asyncio.run(bench_syphon.fill(broker.site.secondary, backlogs))
        with working(drain, sites["loopback"], backlogs) as pid:
            yield pid


def send(pipe: Connection, primary: str, secondary: str) -> None:
    client = PairedServiceBusClient.from_connection_strings(primary, secondary, options=bench_send.OPTIONS)
    with client, client.get_queue_sender("orders") as sender:
        sender.send_messages(ServiceBusMessage(b"warm"))
        pipe.send("begins")
        while True:
            sender.send_messages(bench_send.message())


@contextmanager
def sender() -> Iterator[int]:
    """The process id of a sender."""
    ours, theirs = PROCESSES.Pipe()
    server = PROCESSES.Process(target=bench_send.serve, args=(theirs,), daemon=True)
    server.start()
    theirs.close()
    try:
        with working(send, *ours.recv()) as pid:
            yield pid
    finally:
        ours.send("stop")
        server.join()
        ours.close()


WAYS: dict[str, Callable[[], AbstractContextManager[int]]] = {
    "enqueue": enqueue,
    "settle": settle,
    "durable": durable,
    "syphon": syphon,
    "sender": sender,
}


def picture(way: str, seconds: int, out: Path) -> Path:
    """Sample the process of a way and write its flame graph."""
    path = out / f"flame-{way}.svg"
    with WAYS[way]() as pid:
        command = ["py-spy", "record", "--pid", str(pid), "--duration", str(seconds), "--output", path.name]
        command += ["--format", "flamegraph", "--function", "--rate", str(SAMPLES_PER_SECOND)]
        subprocess.run(command, check=True, cwd=out)  # the file shows the name it was given
    return path


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("ways", nargs="*", metavar="WAY", help=f"of {', '.join(WAYS)}; default all")
    parser.add_argument(
        "--seconds", type=int, default=4, metavar="N", help="of sampling, default %(default)s"
    )
    parser.add_argument("--out", type=Path, default=OUT, metavar="DIR", help="default %(default)s")
    asked = parser.parse_args()
    if unknown := set(asked.ways) - set(WAYS):
        parser.error(f"no such way: {', '.join(sorted(unknown))}; there are {', '.join(WAYS)}")
    if shutil.which("py-spy") is None:
        parser.error("py-spy is not installed: pip install py-spy")
    too_large = []
    for way in asked.ways or WAYS:
        path = picture(way, asked.seconds, asked.out)
        size = path.stat().st_size
        print(f"{path}: {size // 1000} kB", flush=True)
        if size > MOST_BYTES:
            too_large.append(path.name)
    if too_large:
        print(
            f"above {MOST_BYTES // 1000} kB: {', '.join(too_large)}; sample for fewer --seconds",
            file=sys.stderr,
        )
    return 1 if too_large else 0


if __name__ == "__main__":
    sys.exit(main())
