"""The resources that a process has used so far, as reported by Linux."""

from __future__ import annotations

import os
from pathlib import Path

TICK = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """Processor time of a process, its threads included, its children not."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def cpu_seconds_of_all(pid: int) -> float:
    """Processor time of a process and all that it started, those included that have ended."""
    total = 0.0
    for each in family(pid):
        try:
            fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it went, and is in its parent's sum the next time
        total += sum(map(int, fields[11:15])) / TICK
    return total


def resident_bytes(pid: int) -> int:
    """Memory that a process holds."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"process {pid} tells no VmRSS")


def family(pid: int) -> list[int]:
    """A process and all that it started."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue  # it went
    found = [pid]
    for each in found:
        found += [child for child, parent in parents.items() if parent == each]
    return found
