"""The lines of the how-to for a cluster, each run as it stands: streams and tables, their rows counted.

The Python of the cluster has what sbpair depends on, and not sbpair: that comes from the line.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pyspark
import pytest

from sbpair.broker import Broker
from sbpair.data.spark.requirements import use_java
from sbpair.data.spark.session import DEFAULTS, SHORT_JOB
from tests.data.spark.conftest import INTERPRETED
from tests.data.spark.ledger import bodies_in, send, string

ROOT = Path(__file__).resolve().parents[3]
HOW_TO = ROOT / "docs" / "how-to" / "spark.md"
CHECKOUT = ("sbpair", "samples", "pyproject.toml", "hatch_build.py", "README.md", "LICENSE")
SPARK = Path(pyspark.__file__).parent
SMALL = {
    "spark.driver.memory": "1g",
    "spark.executor.memory": "1g",
    "spark.executor.extraJavaOptions": SHORT_JOB["spark.driver.extraJavaOptions"],
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",  # both executors are there before the first task
}
ORDERS = [f"order {number}" for number in range(25)]
LARGEST = 120_000_000  # bytes of an archive without PySpark, which alone has 450 MB
PATIENCE = 240  # seconds for a line: it installs packages, or starts a JVM or three


def lines(containing: str) -> list[str]:
    """The commands of the console block of the how-to that contains a word."""
    blocks = re.findall(r"^```console\n(.*?)^```$", HOW_TO.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    (block,) = [each for each in blocks if containing in each]
    return [line.removeprefix("$ ") for line in block.splitlines()]


@dataclass(frozen=True)
class Cluster:
    """A checkout, and the environment of somebody who runs commands in it."""

    checkout: Path
    environment: Mapping[str, str]

    def pack(self, line: str) -> None:
        """Run a line that packs the package, and remove the package, which Python finds in the directory it runs in."""
        self.run(line)
        shutil.rmtree(self.checkout / "sbpair")

    def run(self, line: str) -> str:
        """What a line prints; fails unless it ends well."""
        done = subprocess.run(
            ["bash", "-euc", line],
            capture_output=True, text=True, timeout=PATIENCE, check=False, cwd=self.checkout, env=self.environment,
        )  # fmt: skip
        assert done.returncode == 0, f"{line}\n{done.stdout[-1000:]}\n{done.stderr[-4000:]}"
        return done.stdout


@pytest.fixture
def broker() -> Iterator[Broker]:
    """Two namespaces, and orders that wait."""
    with Broker({"contoso": 0, "contoso-dr": 0}) as running:
        for queue in ("orders", "invoices"):
            running.namespace("contoso").create_queue(queue)
        send(running, "orders", ORDERS)
        yield running


@pytest.fixture
def cluster(broker: Broker, tmp_path: Path) -> Cluster:
    """Two executors of one core each."""
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    for name in CHECKOUT:
        source = ROOT / name
        ignored = shutil.ignore_patterns("__pycache__")
        if source.is_dir():
            shutil.copytree(source, checkout / name, ignore=ignored)
        else:
            shutil.copy(source, checkout)
    settings = DEFAULTS | SHORT_JOB | INTERPRETED | SMALL | {"spark.master": "local-cluster[2,1,1024]"}
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "spark-defaults.conf").write_text(
        "".join(f"{key} {value}\n" for key, value in settings.items())
    )
    environment = {
        "PATH": os.pathsep.join([str(commands(tmp_path)), str(SPARK / "bin"), os.environ["PATH"]]),
        "HOME": os.environ["HOME"],
        "JAVA_HOME": str(use_java()),
        "SPARK_HOME": str(SPARK),
        "SPARK_CONF_DIR": str(tmp_path / "conf"),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_WORKER_DIR": str(tmp_path / "work"),
        "PYSPARK_PYTHON": str(python_of_the_cluster(tmp_path)),
        "SBPAIR_PRIMARY": string(broker, "contoso"),
        "SBPAIR_SECONDARY": string(broker, "contoso-dr"),
        **{key: value for key, value in os.environ.items() if key.startswith("PIP_")},
    }
    return Cluster(checkout, environment)


def commands(directory: Path) -> Path:
    """``python`` and ``pip``, as the reader has them."""
    for name, call in (("python", ""), ("pip", "-m pip"), ("sbpair", "-m sbpair")):
        command = directory / "bin" / name
        command.parent.mkdir(exist_ok=True)
        command.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {call} "$@"\n')
        command.chmod(0o755)
    return directory / "bin"


def python_of_the_cluster(directory: Path) -> Path:
    """A Python with the packages of this one, without sbpair: its ``.pth`` files do not count at second hand."""
    home = directory / "machine"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True)
    (site,) = home.glob("lib/python3*/site-packages")
    there = Path(sysconfig.get_path("purelib"))
    lean = directory / "packages"
    lean.mkdir()
    for package in there.iterdir():
        if "sbpair" not in package.name:
            (lean / package.name).symlink_to(package)
    (site / "machine.pth").write_text(f"{lean}\n")
    python = home / "bin" / "python"
    found = "import importlib.util as u, sys; sys.exit(u.find_spec('sbpair') is not None)"
    subprocess.run([str(python), "-c", found], check=True, cwd=directory, env={})
    return python


def assert_each_order_became_one_invoice(broker: Broker, printed: str) -> None:
    assert f"invoices that wait: {len(ORDERS)}" in printed, "the table"
    expected = [f"invoice for body of {each}" for each in ORDERS]
    assert sorted(bodies_in(broker, "invoices")) == sorted(expected), "the stream"
    assert broker.namespace("contoso").counts("orders").active == 0


@pytest.mark.long
@pytest.mark.spec("R-143")
def test_the_documented_zip_commands_run_a_stream_and_a_table(broker: Broker, cluster: Cluster) -> None:
    pack, submit = lines("--py-files")
    cluster.pack(pack)
    assert_each_order_became_one_invoice(broker, cluster.run(submit))


@pytest.mark.long
@pytest.mark.spec("R-143")
def test_the_documented_archive_commands_run_a_stream_and_a_table_without_pyspark(
    broker: Broker, cluster: Cluster
) -> None:
    pack, submit = lines("--archives")
    cluster.pack(pack)
    assert (cluster.checkout / "env.tar.gz").stat().st_size < LARGEST
    assert not list(cluster.checkout.glob("env/lib/python3*/site-packages/pyspark"))
    assert_each_order_became_one_invoice(broker, cluster.run(submit))


@pytest.mark.long
@pytest.mark.spec("R-143")
def test_the_documented_spark_connect_command_runs_a_stream_and_a_table(
    broker: Broker, cluster: Cluster
) -> None:
    pack, _ = lines("--py-files")
    (submit,) = lines("SPARK_REMOTE")
    cluster.pack(pack)
    with connect_server(cluster) as address:
        printed = cluster.run(submit.replace("spark.example:15002", address))
    assert_each_order_became_one_invoice(broker, printed)


@pytest.mark.long
@pytest.mark.spec("R-143")
def test_the_first_job_of_the_docs_runs_on_a_laptop(cluster: Cluster) -> None:
    """With free ports, and without the installation."""
    (block,) = re.findall(
        r"^```bash\n(pip install.*?)^```$", HOW_TO.read_text("utf-8"), re.MULTILINE | re.DOTALL
    )
    install, broker, *others = block.splitlines()
    assert install == "pip install 'sbpair[cli,spark]'"
    free = broker.replace(
        "sbpair broker", "exec sbpair broker --namespace contoso:0 --namespace contoso-dr:0"
    )
    (cluster.checkout.parent / "conf" / "spark-defaults.conf").write_text("spark.driver.memory 1g\n")
    laptop = replace(
        cluster,
        environment={**cluster.environment, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable},
    )
    printed = laptop.run("\n".join(["trap 'kill %1; wait' EXIT", free, *others]))
    assert "invoices that wait: 25" in printed


@contextmanager
def connect_server(cluster: Cluster) -> Iterator[str]:
    """The ``host:port`` of a server on the cluster, which knows nothing of sbpair."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    log = cluster.checkout.parent / "server.log"
    command = [
        str(SPARK / "bin" / "spark-submit"),
        "--class",
        "org.apache.spark.sql.connect.service.SparkConnectServer",
    ]
    command += ["--conf", "spark.connect.grpc.binding.address=127.0.0.1"]
    command += ["--conf", f"spark.connect.grpc.binding.port={port}", "spark-internal"]
    with log.open("w") as told:
        server = subprocess.Popen(
            command, stdout=told, stderr=told, cwd=cluster.checkout.parent, env=cluster.environment
        )
        try:
            deadline = time.monotonic() + PATIENCE
            while not is_open(port):
                assert server.poll() is None, log.read_text()[-3000:]
                assert time.monotonic() < deadline, log.read_text()[-3000:]
                time.sleep(0.1)
            yield f"127.0.0.1:{port}"
        finally:
            server.terminate()
            server.wait(60)


def is_open(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
