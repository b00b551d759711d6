"""Two syphons as Kubernetes would run and watch them, through an outage of the primary, without a cluster.

    python -m tests.trials.cluster [--outage 600] [--scale 1]

Each syphon has the arguments of `samples/deploy/kubernetes/base/deployment.yaml` and an address of its own on the
loopback network, as a pod has. A kubelet is played with the manifest's probes, periods and thresholds, from yet another
address. A real Prometheus scrapes syphons and sender at the interval of the PodMonitor, and evaluates
`prometheus-alerts.yml`. With ``--scale 20``, all periods, and the outage, are 20 times shorter.

The outage lasts until the expected alerts fire, and for ``--outage`` seconds at least. Prints one line of JSON; exit
code 1 when a probe would have restarted a syphon, an expected alert did not fire or end, another one fired, or a
message was lost.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml
from azure.servicebus import ServiceBusMessage
from azure.servicebus.exceptions import ServiceBusError

from sbpair import ObservationOptions, PairedNamespaceOptions, PairedServiceBusClient
from sbpair.broker import Broker
from tests.deploy.reading import RULES, manifest, syphon_container
from tests.pair.runtimes import runtime_of
from tests.peers import prometheus_program

EXPECTED = frozenset({"SbpairFailedOver", "SbpairSendsRaise", "SbpairSyphonWaits"})
"""Sends raise for as long as the failover interval runs, a minute by default."""
PODS = ("127.0.0.2", "127.0.0.3")
SENDER, KUBELET = "127.0.0.4", "127.0.0.5"
PATIENCE = 120.0  # seconds, beyond the spans of the rules
SEND_EVERY = 0.2  # seconds
PAGE = re.compile(r"status on http://[\d.]+:(\d+)/state")


@dataclass
class Pod:
    """One syphon, and what the kubelet has seen of it."""

    address: str
    process: subprocess.Popen[str]
    port: int = 0
    restarts: int = 0
    times_unready: int = 0
    probes: int = 0


@dataclass
class Report:
    """What came of the trial. The times of alerts are in seconds since the outage began."""

    outage: float
    restarts: list[int]
    times_unready: list[int]
    probes: int
    sent: int
    raised: int
    arrived: int
    fired: dict[str, float]
    ended: dict[str, float]
    problems: list[str] = field(default_factory=list)


def scaled(seconds: float, scale: float) -> float:
    return seconds / scale


def scaled_rules(text: str, scale: float) -> str:
    """The rules with every span in minutes or hours ``scale`` times shorter."""

    def shorter(found: re.Match[str]) -> str:
        seconds = int(found[2]) * {"m": 60, "h": 3600}[found[3]] / scale
        return f"{found[1]}{round(seconds * 1000)}ms"

    return re.sub(r"(for: |\[|offset )(\d+)([mh])\b", shorter, text)


@contextmanager
def pod(address: str, secrets: Path) -> Iterator[Pod]:
    """A syphon that runs as the manifest says, with keys from ``secrets``, until the block ends."""
    words = [
        word.replace("/run/secrets/sbpair", str(secrets)).replace("$(POD_IP)", address)
        for word in syphon_container()["args"]
    ]
    words[words.index("--status-port") + 1] = "0"
    command = [sys.executable, "-m", "sbpair", *words, "--primary-namespace-name", "contoso"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True)
    running, has_port = Pod(address, process), threading.Event()
    reader = threading.Thread(target=_read_port, args=(running, has_port))
    reader.start()
    try:
        if not has_port.wait(PATIENCE) or not running.port:
            raise RuntimeError(f"the syphon of {address} did not start")
        yield running
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        reader.join()
        assert process.stderr is not None
        process.stderr.close()


def _read_port(running: Pod, has_port: threading.Event) -> None:
    assert running.process.stderr is not None
    for line in running.process.stderr:
        if found := PAGE.search(line):
            running.port = int(found[1])
            has_port.set()
    has_port.set()  # it ended


class Kubelet:
    """Plays the probes of the manifest against each pod, on a thread for each probe."""

    def __init__(self, pods: list[Pod], scale: float) -> None:
        self._stop = threading.Event()
        container = syphon_container()
        self._threads = [
            threading.Thread(target=self._probe, args=(each, container[kind], kind, scale))
            for each in pods
            for kind in ("livenessProbe", "readinessProbe")
        ]

    def __enter__(self) -> Kubelet:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _probe(self, pod: Pod, probe: dict[str, Any], kind: str, scale: float) -> None:
        self._stop.wait(scaled(probe.get("initialDelaySeconds", 0), scale))
        failures, is_out = 0, False
        while not self._stop.wait(scaled(probe["periodSeconds"], scale)):
            pod.probes += 1
            is_good = _answers(pod, probe["httpGet"]["path"], probe["timeoutSeconds"])
            failures = 0 if is_good else failures + 1
            if failures < probe["failureThreshold"]:
                is_out = False
            elif not is_out:
                is_out = True
                if kind == "livenessProbe":
                    pod.restarts += 1
                else:
                    pod.times_unready += 1


def _answers(pod: Pod, path: str, timeout: float) -> bool:
    connection = http.client.HTTPConnection(
        pod.address, pod.port, timeout=timeout, source_address=(KUBELET, 0)
    )
    try:
        connection.request("GET", path)
        return 200 <= connection.getresponse().status < 400
    except OSError:
        return False
    finally:
        connection.close()


class Prometheus:
    """A Prometheus that scrapes ``targets`` and evaluates the alert rules; a context manager."""

    def __init__(self, folder: Path, targets: list[str], scale: float) -> None:
        (endpoint,) = manifest("base/pod-monitor.yaml")["spec"]["podMetricsEndpoints"]
        interval = round(1000 * scaled(float(endpoint["interval"].removesuffix("s")), scale))
        rules, config = folder / "rules.yml", folder / "prometheus.yml"
        rules.write_text(scaled_rules(RULES.read_text("utf-8"), scale))
        config.write_text(
            yaml.safe_dump(
                {
                    "global": {
                        "scrape_interval": f"{interval}ms",
                        "scrape_timeout": f"{min(interval, 10_000)}ms",
                        "evaluation_interval": f"{interval}ms",
                    },
                    "rule_files": [str(rules)],
                    "scrape_configs": [{"job_name": "sbpair", "static_configs": [{"targets": targets}]}],
                }
            )
        )
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port = free.getsockname()[1]
        self._command = [
            prometheus_program("prometheus"),
            f"--config.file={config}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{self._port}",
            "--log.level=error",
        ]

    def __enter__(self) -> Prometheus:
        self._process = subprocess.Popen(self._command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def firing(self) -> set[str]:
        """The alerts that fire now."""
        url = f"http://127.0.0.1:{self._port}/api/v1/alerts"
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                alerts = json.load(answer)["data"]["alerts"]
        except OSError:  # it starts
            return set()
        return {alert["labels"]["alertname"] for alert in alerts if alert["state"] == "firing"}

    def scraped(self) -> int:
        """The number of targets whose last scrape succeeded."""
        url = f"http://127.0.0.1:{self._port}/api/v1/targets"
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                return sum(each["health"] == "up" for each in json.load(answer)["data"]["activeTargets"])
        except OSError:
            return 0


class Sending(threading.Thread):
    """Sends messages until stopped."""

    def __init__(self, client: PairedServiceBusClient) -> None:
        super().__init__()
        self.sent = 0
        self.raised = 0
        self._client = client
        self._stop_it = threading.Event()

    def run(self) -> None:
        with self._client.get_queue_sender("orders") as sender:
            while not self._stop_it.wait(SEND_EVERY):
                try:
                    sender.send_messages(ServiceBusMessage(f"order {self.sent}", message_id=str(self.sent)))
                    self.sent += 1
                except ServiceBusError:  # the next send has the same id
                    self.raised += 1

    def __enter__(self) -> Sending:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop_it.set()
        self.join()


class Watch:
    """When alerts fired and ended, in seconds since ``began``."""

    def __init__(self, prometheus: Prometheus) -> None:
        self._prometheus = prometheus
        self.began = time.monotonic()
        self.fired: dict[str, float] = {}
        self.ended: dict[str, float] = {}

    def look(self) -> None:
        now, firing = round(time.monotonic() - self.began, 1), self._prometheus.firing()
        for name in firing:
            self.fired.setdefault(name, now)
            self.ended.pop(name, None)
        for name in self.fired.keys() - firing:
            self.ended.setdefault(name, now)

    def until(self, holds: Callable[[], bool], seconds: float) -> bool:
        """Look until ``holds`` does, for ``seconds`` at most; whether it did."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.look()
            if holds():
                return True
            time.sleep(0.2)
        return False


def options(scale: float) -> PairedNamespaceOptions:
    return PairedNamespaceOptions(
        primary_namespace_name="contoso",
        failover_interval=timedelta(seconds=scaled(60, scale)),
        ping_primary_interval=timedelta(seconds=max(1.0, scaled(60, scale))),
        observation=ObservationOptions(status=(SENDER, 0)),
    )


def trial(outage: float, scale: float) -> Report:
    """Play it; ``outage`` is in seconds of real time."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory()))
        broker = stack.enter_context(Broker({"contoso": 0, "contoso-dr": 0}))
        primary, secondary = broker.namespace("contoso"), broker.namespace("contoso-dr")
        primary.create_queue("orders")
        for index in range(10):
            secondary.create_queue(f"contoso/x-servicebus-transfer/{index}", lock_duration=60_000)
        for side, namespace in (("primary", primary), ("secondary", secondary)):
            with os.fdopen(os.open(folder / side, os.O_CREAT | os.O_WRONLY, 0o600), "w") as file:
                file.write(namespace.connection_string)
        client = stack.enter_context(
            PairedServiceBusClient.from_connection_strings(
                primary.connection_string, secondary.connection_string, options=options(scale)
            )
        )
        sending = stack.enter_context(Sending(client))
        pods = [stack.enter_context(pod(address, folder)) for address in PODS]
        targets = [f"{each.address}:{each.port}" for each in pods] + [
            f"{SENDER}:{runtime_of(client)._observer.port}"
        ]
        prometheus = stack.enter_context(Prometheus(folder, targets, scale))
        stack.enter_context(Kubelet(pods, scale))
        watch, problems = Watch(prometheus), []
        longest = PATIENCE + scaled(900, scale)
        if not watch.until(lambda: prometheus.scraped() == len(targets) and sending.sent > 0, longest):
            problems.append("not all targets were scraped")

        watch.began = time.monotonic()
        primary.take_down("refuse")
        watch.until(lambda: False, outage)
        watch.until(lambda: watch.fired.keys() >= EXPECTED, longest)
        lasted = time.monotonic() - watch.began
        primary.bring_up()
        if not watch.until(lambda: watch.fired.keys() == watch.ended.keys(), longest):
            problems.append(f"still firing: {sorted(watch.fired.keys() - watch.ended.keys())}")
        sending.__exit__()
        watch.until(lambda: arrived(broker) >= sending.sent, longest)
        if watch.fired.keys() != EXPECTED:
            problems.append(f"fired {sorted(watch.fired)}, not {sorted(EXPECTED)}")
        if any(each.restarts for each in pods):
            problems.append("a syphon would have been restarted")
        if any(each.times_unready for each in pods):
            problems.append("a syphon was not ready")
        if arrived(broker) != sending.sent:
            problems.append(f"of {sending.sent} messages {arrived(broker)} arrived")
        return Report(
            round(lasted, 1),
            [each.restarts for each in pods],
            [each.times_unready for each in pods],
            sum(each.probes for each in pods),
            sending.sent,
            sending.raised,
            arrived(broker),
            watch.fired,
            watch.ended,
            problems,
        )


def arrived(broker: Broker) -> int:
    """The number of different messages in the queue of the primary."""
    return len(set(broker.namespace("contoso").message_ids("orders")))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--outage", type=float, default=600.0, help="seconds, before scaling")
    parser.add_argument("--scale", type=float, default=1.0)
    given = parser.parse_args()
    report = trial(scaled(given.outage, given.scale), given.scale)
    print(json.dumps(asdict(report)))
    return 1 if report.problems else 0


if __name__ == "__main__":
    sys.exit(main())
