"""What does Spark's error say, on one line? Ours are wrapped: a Python traceback in a Java one in another."""

from __future__ import annotations

import re

LONGEST = 300
_PYTHON = re.compile(r"^(?:[\w.]*\.)?[A-Z]\w*(?:Error|Exception|Missing): (?P<text>.+)$", re.MULTILINE)


def session_errors() -> tuple[type[Exception], ...]:
    """What a Spark job may raise."""
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    return (PySparkException, Py4JError)


def reason_of(error: Exception) -> str:
    """The last Python error in it, which is the innermost one; else its first line."""
    text = str(error)
    found = [match for match in _PYTHON.finditer(text) if not match["text"].startswith("Traceback")]
    said = found[-1]["text"] if found else next((line for line in text.splitlines() if line.strip()), "")
    return f"Spark: {said.strip()[:LONGEST] or type(error).__name__}"
