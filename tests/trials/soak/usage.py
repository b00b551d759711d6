"""The memory, descriptors and threads of a process, read from /proc (Linux)."""

from __future__ import annotations

import os
import resource
from dataclasses import dataclass
from pathlib import Path

from .flatness import Allowance

KIBIBYTES_A_PAGE = resource.getpagesize() // 1024

ALLOWANCES = {
    "memory": Allowance(least=4096, share=0.05),  # KiB: what an allocator keeps of a burst
    "descriptors": Allowance(least=3),  # sockets of a cut connection wait for the garbage collector
    "threads": Allowance(least=2),  # opened links take one for a moment
}
"""By what is sampled; the names of the fields of :class:`Usage`."""


@dataclass(frozen=True, slots=True)
class Usage:
    """One look at one process; ``memory`` is what of it is resident, in KiB."""

    memory: int
    descriptors: int
    threads: int


def usage_of(pid: int) -> Usage:
    """What the process holds. Raises OSError when it is gone."""
    process = Path(f"/proc/{pid}")
    resident = int(process.joinpath("statm").read_text().split()[1])
    return Usage(
        memory=resident * KIBIBYTES_A_PAGE,
        descriptors=len(os.listdir(process / "fd")),
        threads=len(os.listdir(process / "task")),
    )
