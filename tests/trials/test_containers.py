"""The container files are carried out and run."""

from __future__ import annotations

import pytest

from tests.trials.containers import trial


@pytest.mark.long
@pytest.mark.spec("R-190")
def test_the_containers_of_broker_and_syphon_are_built_become_healthy_and_end() -> None:
    trial()
