"""Local Spark sessions, the registration of sbpair's formats, and the errors of Spark jobs."""

from __future__ import annotations

import atexit
import os
import re
import shutil
import sys
import tempfile
from importlib.util import find_spec
from typing import TYPE_CHECKING

from .requirements import require_driver_packages, use_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.datasource import DataSource

DEFAULTS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "8",
    "spark.log.level": "ERROR",
}
SHORT_JOB = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",  # with few rows, planning dominates
    "spark.sql.codegen.wholeStage": "false",
}
"""Settings for a job of seconds: they save start-up and compilation. A long SQL job takes twice as long with them.

An audit runs with them at any size, since the JVM only moves its packets.
"""

INSTALLED = ("pyspark_sbpair_journal", "pyspark_sbpair", "pyspark_sbpair_syphon")
"""The modules of a wheel whose formats Spark registers itself, in the order of :func:`sources`."""

MAX_ERROR_LENGTH = 300  # characters of an error
_LINE = re.compile(r"^(?P<name>[\w.]+): (?P<text>.+)$", re.MULTILINE)


def build_session(
    name: str, *, master: str = "local[*,2]", settings: dict[str, str] | None = None, has_formats: bool = True
) -> SparkSession:
    """Create a local session with sbpair's formats registered.

    ``settings`` are Spark options that override sbpair's own. An audit needs no formats: without ``has_formats`` the
    session starts sooner. On a cluster create the session as usual and call :func:`register`. Raises SparkMissingError
    when Java or a required package is missing.
    """
    require_driver_packages()
    use_java()
    from pyspark.sql import SparkSession

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    ours = DEFAULTS | {"spark.local.dir": tempfile.gettempdir(), "spark.sql.warehouse.dir": _warehouse()}
    builder = SparkSession.builder.master(master).appName(name)
    for key, value in (ours | (settings or {})).items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    if has_formats:
        register(session)
    return session


def _warehouse() -> str:
    """A warehouse directory for this process alone, removed at exit."""
    directory = tempfile.mkdtemp(prefix="sbpair-warehouse-")
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return directory


def register(spark: SparkSession) -> None:
    """Register sbpair's formats with ``spark``, also a Spark Connect session, unless Spark has done so itself.

    Spark registers those of a wheel that is installed where the driver runs.
    """
    runs_here = hasattr(spark, "_jsparkSession")  # a server of Spark Connect may have another environment
    for module, source in zip(INSTALLED, sources(), strict=True):
        if not (runs_here and find_spec(module)):
            spark.dataSource.register(source)


def sources() -> tuple[type[DataSource], ...]:
    """Return the classes of sbpair's formats.

    Each is imported from its module here, because a process of Spark needs only one of them.
    """
    from .journal_source import JournalDataSource
    from .message_source import MessageDataSource
    from .syphon_source import SyphonDataSource

    return JournalDataSource, MessageDataSource, SyphonDataSource


def session_errors() -> tuple[type[Exception], ...]:
    """The exceptions that a Spark job may raise."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    return (PySparkException, Py4JError)


def reason_of(error: Exception) -> str:
    """The innermost Python error of a failed job, on one line; else the first line of ``error``."""
    text = str(error)
    found = [
        match["text"]
        for match in _LINE.finditer(text)
        if _is_error(match["name"]) and not match["text"].startswith("Traceback")
    ]
    reason = found[-1] if found else next((line for line in text.splitlines() if line.strip()), "")
    return f"Spark: {reason.strip()[:MAX_ERROR_LENGTH] or type(error).__name__}"


def _is_error(name: str) -> bool:
    """Whether a qualified name is that of an exception: it is one of sbpair, or has the usual suffix."""
    last = name.rpartition(".")[2]
    return last[:1].isupper() and (name.startswith("sbpair.") or last.endswith(("Error", "Exception")))
