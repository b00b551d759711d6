"""The extras of the package: the purpose of each, and the error text when one is not installed."""

from __future__ import annotations

from importlib.util import find_spec

PACKAGES: dict[str, tuple[str, ...]] = {
    "cli": ("click", "httpx", "rich"),
    "broker": ("cryptography", "defusedxml", "jsonc"),
    "observe": ("prometheus_client",),
    "identity": ("azure.identity",),
    "audit": ("pyarrow", "matplotlib"),
    "spark": ("pyspark",),
    "otel": ("opentelemetry.sdk",),
}
"""The packages by which an extra is known to be installed."""


class ExtraMissingError(ImportError):
    """A package of an extra is not installed; the message contains the command that installs it."""


def require(extra: str, what: str) -> None:
    """Check that ``extra``, which ``what`` needs, is installed. Raises ExtraMissingError."""
    missing = next((package for package in PACKAGES[extra] if not _is_there(package)), None)
    if missing is not None:
        text = f"{what} needs {missing}, which is not installed: {install_line(extra)}"
        raise ExtraMissingError(text, name=missing)


def install_line(*extras: str) -> str:
    """Return the command that adds ``extras`` to this installation, from the source it was installed from."""
    import json
    from importlib.metadata import PackageNotFoundError, distribution
    from urllib.request import url2pathname

    wanted = f"[{','.join(extras)}]"
    try:
        origin = json.loads(distribution("sbpair").read_text("direct_url.json") or "{}")
    except PackageNotFoundError:  # a source tree on the path
        origin = {}
    url = origin.get("url", "")
    if "vcs_info" in origin:
        found = origin["vcs_info"]
        return f"pip install 'sbpair{wanted} @ {found['vcs']}+{url}@{found['commit_id']}'"
    if not url.startswith("file:"):
        return f"pip install 'sbpair{wanted}'"
    is_editable = origin.get("dir_info", {}).get("editable", False)
    return f"pip install {'-e ' if is_editable else ''}'{url2pathname(url.removeprefix('file://'))}{wanted}'"


def installed_extras() -> list[str]:
    """Return the names of the installed extras."""
    return [extra for extra, packages in PACKAGES.items() if all(map(_is_there, packages))]


def _is_there(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except (ImportError, ValueError):  # its parent package is not there, or is halted
        return False
