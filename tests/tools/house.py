"""Measure how the code reads: the parts, and the files a reader opens to follow one message.

    python -m tests.tools.house            parts, slivers, private attributes in tests, ways
    python -m tests.tools.house --files    and the files of each way

Five operations are traced with a profiler: a healthy send and a redirected one (over open links), the drain of
a syphon that brings parked messages home (from its first connection on), a message that the broker accepts and
commits to its disk, and the command `sbpair backlog list`. A file counts when one of its functions runs;
importing it does not, nor do the bodies of its classes and the decorators that run then.
The exit code is 1 when a way has become longer than `MOST` allows: a change that makes one longer says why.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import contextlib
import inspect
import io
import os
import subprocess
import sys
import tempfile
import threading
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from types import FrameType

from azure.servicebus import ServiceBusClient, ServiceBusMessage

from tests.test_floors import import_graph, module_of
from tests.tools.parts import PARTS, PROJECT, part_of
from tests.tools.source import parse

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "sbpair"
OURS, THE_BROKERS = ("MainThread",), ("sbpair-broker", "sync of")  # names of threads, as they begin
TRIES = 5
SHORT = 60  # lines
MOST = {
    "healthy send": 11,
    "redirected send": 18,
    "parked message home": 42,
    "backlog list": 18,
    "accepted and committed": 28,
}
"""The files of each way, at most."""
BACKLOG = "contoso/x-servicebus-transfer/0"
DOCUMENTED = {"_asdict", "_exit", "_fields", "_getframe", "_make", "_replace"}
"""Names of the standard library that begin with an underscore and are public."""


class Trail:
    """The files in which functions run while it is open, in the threads of these names."""

    def __init__(self) -> None:
        self.files: set[str] = set()
        self._threads: tuple[str, ...] = ()

    def start(self) -> None:
        """Profile every thread that begins from now on, and this one."""
        threading.setprofile(self._called)
        sys.setprofile(self._called)

    @contextmanager
    def open(self, threads: tuple[str, ...] = OURS) -> Iterator[None]:
        self.files, self._threads = set(), threads
        try:
            yield
        finally:
            self._threads = ()

    def _called(self, frame: FrameType, event: str, _: object) -> None:
        if not self._threads or event != "call" or not frame.f_code.co_flags & inspect.CO_OPTIMIZED:
            return  # the body of a module or class, unlike that of a function, is not optimized
        name = frame.f_code.co_filename
        if name.startswith(str(PACKAGE)) and threading.current_thread().name.startswith(self._threads):
            self.files.add(str(Path(name).relative_to(PACKAGE)))


def ways() -> dict[str, list[str]]:
    """The files of each way."""
    from sbpair import PairedNamespaceOptions, PairedServiceBusClient
    from sbpair.broker import Broker
    from sbpair.syphon import Syphon, SyphonOptions

    trail, found = Trail(), dict[str, list[str]]()
    trail.start()
    with Broker({"contoso": 0, "contoso-dr": 0}) as broker, tempfile.TemporaryDirectory() as data:
        primary, secondary = broker.namespace("contoso"), broker.namespace("contoso-dr")
        primary.create_queue("orders")
        secondary.create_queue(BACKLOG)
        strings = primary.connection_string, secondary.connection_string
        options = PairedNamespaceOptions(
            primary_namespace_name="contoso",
            backlog_queue_count=1,
            assume_backlogs_exist=True,
            ping_primary_interval=timedelta(minutes=5),
        )
        with PairedServiceBusClient.from_connection_strings(*strings, options=options) as client:
            with client.get_queue_sender("orders") as sender:
                for way in ("healthy send", "redirected send"):
                    for _ in range(3):
                        sender.send_messages(ServiceBusMessage("warm"))
                    with trail.open():
                        sender.send_messages(ServiceBusMessage("x"))
                    found[way] = sorted(trail.files)
                    client.hold("orders")  # not fail_over: its first ping may bring the entity back
            syphon = Syphon.from_connection_strings(
                *strings, options=SyphonOptions(primary_namespace_name="contoso", backlog_queue_count=1)
            )
            with trail.open():
                counters = asyncio.run(syphon.drain())
            assert counters.completed == 4, counters
            found["parked message home"] = sorted(trail.files)
            found["backlog list"] = _listed((*strings, str(broker.ca_file)), trail)
        with Broker({"fabrikam": 0}, data=data) as durable:
            fabrikam = durable.namespace("fabrikam")
            fabrikam.create_queue("orders")
            plain = ServiceBusClient.from_connection_string(fabrikam.connection_string)
            with plain, plain.get_queue_sender("orders") as bare:
                bare.send_messages(ServiceBusMessage("warm"))
                with trail.open(THE_BROKERS):
                    bare.send_messages(ServiceBusMessage("x"))
            found["accepted and committed"] = sorted(trail.files)
    sys.setprofile(None)
    threading.setprofile(None)  # type: ignore[arg-type]
    return found


def _listed(environment: tuple[str, str, str], trail: Trail) -> list[str]:
    from sbpair.pair.cli import main

    import_module("sbpair.pair.cli.group")
    import_module("sbpair.pair.cli.backlog")
    names = ("SBPAIR_PRIMARY", "SBPAIR_SECONDARY", "SBPAIR_CA_FILE")
    os.environ.update(zip(names, environment, strict=True))
    words = ["backlog", "list", "--backlogs", "1", "--primary-namespace-name", "contoso"]
    for _ in range(TRIES):  # on a busy machine the profiler is too slow for the command's time limit
        with trail.open(), contextlib.redirect_stdout(io.StringIO()):
            try:
                main(words)
            except SystemExit as ended:
                if not ended.code:
                    break
    else:
        raise SystemExit(f"sbpair {' '.join(words)} failed {TRIES} times")
    return sorted(trail.files)


def lines_of(path: Path) -> int:
    return path.read_text("utf-8").count("\n")


def parts() -> str:
    """Files and lines of each part, of the product and of its tests."""
    count, lines = Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    for top in ("sbpair", "tests"):
        for file in (ROOT / top).rglob("*.py"):
            for part in (part_of(file.relative_to(ROOT).as_posix()), "all"):
                count[part, top] += 1
                lines[part, top] += lines_of(file)
    rows = [
        f"{part:9}" + "".join(f"{count[part, top]:8}{lines[part, top]:9}" for top in ("sbpair", "tests"))
        for part in (*PARTS, PROJECT, "all")
    ]
    return "\n".join(("part        files    lines   tests    lines", *rows))


def slivers() -> str:
    """The short modules, and those of them that a single other module imports."""
    importers = defaultdict[str, set[str]](set)
    for importer, imported in import_graph(run_time_only=False).items():
        for name in imported:
            importers[name].add(importer)
    modules = [path for path in PACKAGE.rglob("*.py") if not path.name.startswith("__")]
    short = [path for path in modules if lines_of(path) < SHORT]
    alone = sorted(module_of(path) for path in short if len(importers[module_of(path)]) == 1)
    names = "".join(f"\n  {name}" for name in alone)
    return f"modules under {SHORT} lines: {len(short)}; of these with one importer: {len(alone)}{names}"


def private() -> int:
    """How often the tests touch a private attribute of anything but themselves."""
    return sum(
        isinstance(node, ast.Attribute)
        and node.attr.startswith("_")
        and not node.attr.startswith("__")
        and node.attr not in DOCUMENTED
        and not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"))
        for file in (ROOT / "tests").rglob("*.py")
        for node in ast.walk(parse(file.read_text("utf-8")))
    )


def import_seconds() -> float:
    """The best of seven imports of the package, each in a process of its own, less that of an empty one."""
    return round(min(_started("import sbpair") for _ in range(7)) - min(_started("") for _ in range(7)), 3)


def _started(program: str) -> float:
    code = f"import time; began = time.perf_counter()\n{program}\nprint(time.perf_counter() - began)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    return float(done.stdout)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.tools.house", description=__doc__)
    parser.add_argument("--files", action="store_true", help="name the files of each way")
    asked = parser.parse_args()
    sys.stdout.write(f"{parts()}\n\n{slivers()}\n\n")
    sys.stdout.write(f"private attributes touched by tests: {private()}\n")
    sys.stdout.write(f"import sbpair: {import_seconds()} s\n\n")
    found = ways()
    for way, files in found.items():
        names = "".join(f"\n  {name}" for name in files) if asked.files else ""
        sys.stdout.write(f"{way:22}{len(files):4} files, {MOST[way]} allowed{names}\n")
    longer = [way for way, files in found.items() if len(files) > MOST[way]]
    if longer:
        sys.stdout.write(f"longer than before: {', '.join(longer)}. Shorten it, or raise MOST and say why\n")
    return 1 if longer else 0


if __name__ == "__main__":
    sys.exit(main())
