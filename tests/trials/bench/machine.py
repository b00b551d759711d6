"""The machine of a run: a figure says little without it."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

LIBRARIES = ("sbpair", "azure-servicebus", "aiohttp")


def machine() -> dict[str, object]:
    """Processor, memory, system, versions, and how busy it is."""
    return {
        "at": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_gb": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1e9, 1),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "libraries": {name: found for name in LIBRARIES if (found := _version(name)) is not None},
        "commit": _commit(),
        "load_before": round(os.getloadavg()[0], 1),
    }


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _commit() -> str:
    done = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False,
        cwd=Path(__file__).parent,
    )  # fmt: skip
    return done.stdout.strip()
