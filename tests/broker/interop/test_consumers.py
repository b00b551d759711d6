"""Consumers in three languages on one queue: the SDKs of JavaScript and Java beside a processor, each message once."""

from __future__ import annotations

import contextlib
import itertools
import subprocess
import threading
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from sbpair.aio import PairedNamespaceOptions, PairedServiceBusClient
from sbpair.broker import Broker, NamespaceControl
from sbpair.pair.amqp.message import DataBody, Message, Properties
from sbpair.processor import ProcessorOptions, ReceivedMessage
from tests import peers
from tests.pair.syphon.pair import put
from tests.waiting import until

pytestmark = [pytest.mark.interop, pytest.mark.client("sbpair"), pytest.mark.timeout(150)]
HERE = Path(__file__).parent
WAVE = 40  # messages
WITHIN = 100  # seconds, of a JVM that starts on a busy machine


class Foreign:
    """A consumer in a process of its own, which prints the id of each message it completed."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def completed(self) -> list[str]:
        return [line for line in self.lines if line != "ready"]

    @property
    def is_ready(self) -> bool:
        assert self.process.poll() is None, self.process.communicate()[1][-2000:]
        return "ready" in self.lines

    def end(self) -> None:
        """Kill the process, and close the pipes."""
        self.process.kill()
        self._reader.join()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert pipe is not None
            pipe.close()
        self.process.wait()

    def _read(self) -> None:
        assert self.process.stdout is not None
        self.lines.extend(line.strip() for line in self.process.stdout)


@contextlib.contextmanager
def consumers(*processes: subprocess.Popen[str]) -> Iterator[list[Foreign]]:
    started = [Foreign(process) for process in processes]
    try:
        yield started
    finally:
        for each in started:
            each.end()


@pytest.fixture
def pair() -> Iterator[tuple[NamespaceControl, NamespaceControl]]:
    with Broker({"contoso": 0, "contoso-dr": 0}) as broker:
        yield broker.namespace("contoso"), broker.namespace("contoso-dr")


@pytest.fixture
async def client(pair: tuple[NamespaceControl, NamespaceControl]) -> AsyncIterator[PairedServiceBusClient]:
    primary, secondary = pair
    async with PairedServiceBusClient.from_connection_strings(
        primary.connection_string,
        secondary.connection_string,
        options=PairedNamespaceOptions(primary_namespace_name="contoso"),
    ) as client:
        yield client


@pytest.mark.spec("C-10", "C-13", "C-16")
@pytest.mark.parametrize("kind", ["plain", "sessions"])
async def test_consumers_in_three_languages_share_a_queue_without_duplicates(
    pair: tuple[NamespaceControl, NamespaceControl], client: PairedServiceBusClient, kind: str
) -> None:
    primary, _ = pair
    in_sessions = kind == "sessions"
    primary.create_queue("orders", lock_duration=300_000, requires_session=in_sessions)
    arguments = (primary.connection_string, "orders", kind)
    options = ProcessorOptions(
        max_concurrent_calls=4,
        max_concurrent_sessions=1 if in_sessions else None,
        session_idle_timeout=timedelta(seconds=0.1),
    )
    with consumers(
        peers.run_node(HERE / "javascript_consumer.js", *arguments, package=peers.service_bus_directory()),
        peers.start_java(HERE / "JavaConsumer.java", *arguments),
    ) as others:
        ours: list[str] = []

        async def handle(message: ReceivedMessage) -> None:
            ours.append(str(message.message_id))

        await until(lambda: all(other.is_ready for other in others), WITHIN)
        async with client.get_queue_processor("orders", handle, options=options) as processor:
            sent: list[str] = []
            numbers = itertools.count()
            while not ours or not all(other.completed for other in others):
                wave = [f"m{next(numbers)}" for _ in range(WAVE)]
                sent.extend(wave)
                await put(primary, "orders", [encoded(name) for name in wave])
                await until(
                    lambda: len(ours) + sum(len(other.completed) for other in others) >= len(sent), WITHIN
                )
            assert sorted(ours + [name for other in others for name in other.completed]) == sorted(sent)
            await until(lambda: processor.counters.completed == len(ours), WITHIN)
    assert primary.message_ids("orders") == []


def encoded(message_id: str) -> bytes:
    """A message of one of eight sessions, which a queue without sessions ignores."""
    session = f"s{int(message_id[1:]) % 8}"
    return Message(
        properties=Properties(message_id=message_id, group_id=session), body=DataBody((b"x",))
    ).encode()
