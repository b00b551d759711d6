"""Missing requirements are named on one line, and nothing unused is required."""

from __future__ import annotations

import os
import re
import runpy
import subprocess
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

import sbpair
from sbpair.data.spark import versions
from sbpair.data.spark.requirements import (
    DRIVER_PACKAGES,
    SparkMissingError,
    require,
    require_driver_packages,
)
from sbpair.data.spark.session import reason_of, sources
from sbpair.data.spark.versions import VersionTooOldError
from sbpair.pair.ground.extras import install_line
from tests.data.spark.packed import packed


def spark_of(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", SimpleNamespace(__version__=version))  # type: ignore[misc]


@pytest.mark.parametrize("version", ["4.0.0", "4.1.4", "4.2.0", "4.3.0", "4.99.1"])
def test_spark_version_4_is_supported(monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    spark_of(monkeypatch, version)
    require()


@pytest.mark.parametrize("version", ["3.5.8", "5.0.0"])
def test_any_other_version_is_named_with_what_to_install(
    monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    spark_of(monkeypatch, version)
    with pytest.raises(SparkMissingError, match=rf"pyspark {version} is installed") as raised:
        require()
    assert str(raised.value).endswith(install_line("spark"))


@pytest.mark.parametrize("package", DRIVER_PACKAGES)
def test_a_missing_requirement_of_the_driver_is_named(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    require()
    with pytest.raises(SparkMissingError, match=f"{package} is not installed"):
        require_driver_packages()


def test_a_missing_spark_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(SparkMissingError, match="pyspark is not installed"):
        require()


EXECUTOR = """
import sys
from importlib import metadata
for name in ("matplotlib", "pandas"):
    sys.modules[name] = None  # a driver's
try:
    metadata.version("pyspark")
except metadata.PackageNotFoundError:
    pass
else:
    raise SystemExit("there are records of pyspark")
import sbpair.data.spark.journal_source, sbpair.data.spark.message_source, sbpair.data.spark.message_sink
import sbpair.data.spark.syphon_source, sbpair.data.spark.entities, sbpair.data.audit.read.journal_lines
print(sbpair.__file__)
"""


@pytest.mark.spec("R-73")
def test_an_executor_works_from_a_zip_without_installation_metadata(tmp_path: Path) -> None:
    """As ``--py-files sbpair.zip`` has it, beside a Spark that was unpacked and not installed."""
    bare = tmp_path / "site"
    bare.mkdir()
    for entry in (entry for site in sys.path if site.endswith("-packages") for entry in Path(site).iterdir()):
        is_record = entry.name.endswith((".dist-info", ".egg-info", ".pth"))
        if not is_record and not (bare / entry.name).exists():
            (bare / entry.name).symlink_to(entry)
    zipped = packed(tmp_path)
    done = subprocess.run(
        [sys.executable, "-S", "-c", EXECUTOR],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": os.pathsep.join((str(zipped), str(bare)))},
    )

    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().startswith(str(zipped))
    assert not str(sbpair.__file__).startswith(str(zipped))


def test_the_wheel_installs_each_format_where_spark_looks_for_it() -> None:
    """Spark registers the DefaultSource of every module at the top level whose name begins with pyspark_."""
    root = Path(sbpair.__file__).parent.parent
    build = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    found = {}
    for source, target in build["force-include"].items():
        assert re.fullmatch(r"pyspark_\w+\.py", target)
        found[target] = runpy.run_path(str(root / source))["DefaultSource"].name()

    assert set(found.values()) == {source.name() for source in sources()}


@pytest.mark.parametrize("source", sources())
def test_a_stream_is_refused_on_a_spark_that_does_not_report_commits(
    monkeypatch: pytest.MonkeyPatch, source: type[DataSource]
) -> None:
    monkeypatch.setattr(versions, "HAS_STREAM_SOURCES", False)
    with pytest.raises(
        VersionTooOldError, match=rf"{source.name()}: reading a stream needs Spark 4\.2, this is"
    ):
        source({}).streamReader(StructType())


@pytest.mark.parametrize(
    "name",
    [
        "builtins.ValueError",
        "sbpair.data.spark.checkpoint.ForeignCheckpointError",
        "sbpair.data.spark.entities.NoAnswerError",
    ],
)
def test_the_reason_of_a_failed_query_is_its_innermost_error(name: str) -> None:
    text = (
        "[PYTHON_STREAMING_DATA_SOURCE_RUNTIME_ERROR] Failed when ...: Traceback (most recent call last):\n"
    )
    error = RuntimeError(f'{text}  File "x.py", line 1\n{name}: sbpair: orders: no response\n')

    assert reason_of(error) == "Spark: sbpair: orders: no response"


STARTED = """
import sys
import sbpair.data.spark.{module}
print(*[name for name in {unwanted} if name in sys.modules])
"""


@pytest.mark.spec("R-149")
@pytest.mark.parametrize(
    ("module", "unwanted"),
    [
        ("message_source", ["numpy", "pyarrow", "pandas", "sbpair.data.audit", "azure.servicebus"]),
        ("syphon_source", ["numpy", "pyarrow", "pandas", "sbpair.data.audit"]),
        ("journal_source", ["pandas", "matplotlib", "sbpair.data.audit.job", "sbpair.pair.amqp"]),
        ("session", ["numpy", "pyarrow", "pandas", "matplotlib", "sbpair.data.audit", "sbpair.pair.amqp"]),
    ],
)
def test_a_spark_process_imports_only_what_its_format_needs(module: str, unwanted: list[str]) -> None:
    """A first stream starts five Python processes, one after the other, and each imports its source."""
    program = STARTED.format(module=module, unwanted=unwanted)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.split() == []
