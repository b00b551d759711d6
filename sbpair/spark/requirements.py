"""Is there a Spark that this can work with? If not: what to install, on one line."""

from __future__ import annotations

from importlib import metadata

LEAST, BELOW = (4, 2), (5,)
INSTALL = "pip install 'sbpair[spark]'"


class SparkMissing(ImportError):
    """pyspark or Java is missing or of another version; the text says what to install."""


def require() -> None:
    """Raises SparkMissing unless pyspark 4.2 to 4.x is installed, and what the extra brings with it."""
    for package in ("pyspark", "pandas", "pyarrow", "matplotlib"):
        try:
            version = metadata.version(package)
        except metadata.PackageNotFoundError:
            raise SparkMissing(f"{package} is not installed; {INSTALL}") from None
        if package == "pyspark" and not LEAST <= _numbers(version) < BELOW:
            raise SparkMissing(f"pyspark {version} is installed, 4.2 to 4.x is needed; {INSTALL}")


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdigit())
