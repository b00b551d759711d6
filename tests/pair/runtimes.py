"""The runtime under a client, for tests of what no application sees: pools, timers and workers."""

from __future__ import annotations

from typing import Any


def runtime_of(owner: Any) -> Any:
    """Return the runtime of a client, a sender or a processor."""
    return owner._runtime
