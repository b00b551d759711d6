"""What holds for every test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import LoadScopeScheduling

# Six workers share the cores: how long an example takes says nothing of the code.
settings.register_profile("beside others", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("beside others")

ONE_WORKER = "tests/spark/"  # each worker would start a JVM of its own


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    """Every test goes to whichever worker is free; those of Spark all go to one.

    Not by ``--dist loadgroup``: with pytest 9.2 and pytest-xdist 3.8 it does not group.
    """
    from xdist.scheduler import LoadScopeScheduling

    class OneForSpark(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return ONE_WORKER if nodeid.startswith(ONE_WORKER) else nodeid

    return OneForSpark(config, log)
