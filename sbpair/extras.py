"""The extras of the package: what each is for, and what to say when one is not installed."""

from __future__ import annotations

from importlib.util import find_spec

PACKAGES: dict[str, tuple[str, ...]] = {
    "cli": ("click", "rich"),
    "broker": ("cryptography", "defusedxml"),
    "observe": ("httpx", "prometheus_client"),
    "identity": ("azure.identity",),
    "audit": ("pyarrow", "matplotlib"),
    "spark": ("pyspark",),
    "otel": ("opentelemetry.sdk",),
}
"""The packages by which an extra is known to be installed."""


class ExtraMissingError(ImportError):
    """A package of an extra is not installed; the message says which line installs it."""


def require(extra: str, what: str) -> None:
    """Check that ``extra`` is installed, which ``what`` needs. Raises ExtraMissingError."""
    missing = next((package for package in PACKAGES[extra] if not _is_there(package)), None)
    if missing is not None:
        text = f"{what} needs {missing}, which is not installed: pip install 'sbpair[{extra}]'"
        raise ExtraMissingError(text, name=missing)


def installed_extras() -> list[str]:
    """The extras that are installed."""
    return [extra for extra, packages in PACKAGES.items() if all(map(_is_there, packages))]


def _is_there(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except (ImportError, ValueError):  # its parent package is not there, or is halted
        return False
