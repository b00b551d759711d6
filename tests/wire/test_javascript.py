"""The unmodified JavaScript SDK schedules, defers, and works in sessions."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests import peers

pytestmark = pytest.mark.client("javascript")
PROGRAM = Path(__file__).with_name("javascript_client.js")


def test_the_javascript_sdk_schedules_defers_and_works_in_sessions(contoso, make_queue):
    plain, sessions = make_queue(), make_queue(requires_session=True)
    environment = {**os.environ, "NODE_PATH": str(peers.service_bus_directory() / "node_modules")}
    done = subprocess.run(
        ["node", str(PROGRAM), contoso.connection_string, plain, sessions],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr

    assert json.loads(done.stdout) == {
        "scheduled": [1, 2],
        "cancelledTwice": "MessageNotFound",
        "deferred": ["aside", "deferred"],
        "peeked": [["y", "scheduled"]],
        "received": ["1", "3"],
        "state": {"step": 2},
        "renewed": True,
        "next": "b",
        "heldByAnother": "SessionCannotBeLocked",
    }
    assert (contoso.counts(plain).scheduled, contoso.counts(sessions).active) == (1, 3)
